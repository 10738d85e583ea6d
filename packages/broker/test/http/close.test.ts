import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PushResult } from '../../src/engine/types.ts';
import { EMPTY_POP } from './fake_broker.ts';
import { get, openWire, post, RawClient, until } from './wire.ts';

const ITEM = '{"items":[{"queue":"q","payload":1}]}';
const QUEUED: PushResult = {
  status: 'queued',
  messageId: 'm',
  transactionId: 't',
  partitionId: '1',
  offset: 0,
  error: null,
};

test('parked polls are answered 204, what is in flight is finished, idle connections end', async (t) => {
  const wire = await openWire(t);
  wire.broker.onPop = ({ signal }) =>
    new Promise((resolve, reject) => {
      // One engine answers an aborted pop, another rejects it.
      signal!.addEventListener('abort', () =>
        wire.broker.pops.length % 2 ? resolve(EMPTY_POP) : reject(new Error()),
      );
    });
  let commit: () => void = () => {};
  wire.broker.onPush = () =>
    new Promise((resolve) => {
      commit = () => resolve([QUEUED]);
    });
  const idle = await RawClient.open(wire.port, t);
  await idle.send(get('/health/live')).answer();
  const polls = [];
  for (let i = 0; i < 3; i++)
    polls.push((await RawClient.open(wire.port, t)).send(get('/api/v1/pop/queue/q?wait=true')));
  const push = (await RawClient.open(wire.port, t)).send(post('/api/v1/push', ITEM));
  await until(() => wire.broker.pops.length === 3 && wire.broker.pushes.length === 1);

  let closed = false;
  const closing = wire.close(5000).then(() => {
    closed = true;
  });
  for (const poll of polls) {
    const answer = await poll.answer();
    assert.equal(answer!.status, 204);
    await poll.closed();
  }
  await idle.closed();
  assert.equal(closed, false);
  commit();
  const answer = await push.answer();
  assert.equal(answer!.status, 201);
  await closing;
  await push.closed();
  await assert.rejects(RawClient.open(wire.port, t));
});

test('a connection in use takes its next request during the close, a pop on it comes back at once', async (t) => {
  const wire = await openWire(t);
  let commit: () => void = () => {};
  wire.broker.onPush = () =>
    new Promise((resolve) => {
      commit = () => resolve([QUEUED]);
    });
  const client = await RawClient.open(wire.port, t);
  client.send(post('/api/v1/push', ITEM));
  await until(() => wire.broker.pushes.length === 1);
  const closing = wire.close(5000);
  client.send(get('/api/v1/pop/queue/q?wait=true'));
  // The pop is pipelined behind the push, so only the push can let it out.
  commit();
  assert.equal((await client.answer())!.status, 201);
  await closing;
  assert.equal(wire.broker.pops.length, 0);
});

test('what does not finish is cut when the grace is over', async (t) => {
  const wire = await openWire(t);
  wire.broker.onPush = () => new Promise(() => {});
  const stuck = (await RawClient.open(wire.port, t)).send(post('/api/v1/push', ITEM));
  const halfRead = (await RawClient.open(wire.port, t)).send(post('/api/v1/push', ITEM).subarray(0, -3));
  await until(() => wire.broker.pushes.length === 1);
  const begin = performance.now();
  await wire.close(200);
  const took = performance.now() - begin;
  assert.ok(took >= 190 && took < 2000, `${took} ms`);
  assert.equal(await stuck.answer(), null);
  assert.equal(await halfRead.answer(), null);
});

test('a body that is not coming does not use up the grace', async (t) => {
  const wire = await openWire(t);
  const halfRead = (await RawClient.open(wire.port, t)).send(post('/api/v1/push', ITEM).subarray(0, -3));
  const halfHead = (await RawClient.open(wire.port, t)).send('POST /api/v1/push HTTP/1.1\r\nHost');
  const served = await RawClient.open(wire.port, t);
  await served.send(get('/health/live')).answer();
  const begin = performance.now();
  const closing = wire.close(20_000);
  assert.equal((await halfRead.answer())!.status, 408);
  halfRead.socket.end();
  await closing;
  assert.ok(performance.now() - begin < 10_000);
  await halfHead.closed();
});

test('a taken port is an error of listen, not of the process', async (t) => {
  const wire = await openWire(t);
  const { createServer } = await import('../../src/http/server.ts');
  const { silentLog } = await import('../../src/observability/log.ts');
  const { broker, metrics } = wire;
  const second = createServer({ broker, metrics, log: silentLog, version: '0', serverId: 's' });
  await assert.rejects(second.listen(wire.port, '127.0.0.1'), { code: 'EADDRINUSE' });
  await second.close(10);
});
