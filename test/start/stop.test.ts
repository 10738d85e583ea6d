import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { spawnBroker, startBroker } from '../kit/broker.ts';
import { atEnd } from '../kit/cleanup.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';
import { drain, push } from './talk.ts';

/** A request whose body never ends: it keeps a drain waiting. */
async function halfRequest(port: number): Promise<ReturnType<typeof connect>> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  await new Promise<void>((resolve) => socket.once('connect', resolve));
  socket.write('POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"items":[');
  return socket;
}

test('SIGTERM and SIGINT end a broker with code 0, on an external database too', async (t) => {
  const database = await freshDatabase(t);
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    const broker = await startBroker({ database }, t);
    await push(broker.url, `by-${signal}`, 0, 3);
    const ended = await broker.kill(signal);
    assert.deepEqual([ended.code, ended.signal], [0, null], ended.logs);
  }
  const last = await startBroker({ database }, t);
  assert.deepEqual(await drain(last.url, 'by-SIGINT', 'g'), [0, 1, 2]);
});

test('a parked poll is answered when the broker stops', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t) }, t);
  await push(broker.url, 'q', 0, 1);
  await drain(broker.url, 'q', 'g');
  const parked = fetch(`${broker.url}/api/v1/pop/queue/q?consumerGroup=g&wait=true&timeout=60000`);
  // A request that was sent later is answered: the poll before it has been parked.
  await fetch(`${broker.url}/health`);
  const ended = await broker.stop();
  assert.equal((await parked).status, 204);
  assert.equal(ended.code, 0, ended.logs);
});

test('a request that never ends holds the stop no longer than the grace', async (t) => {
  const env = { QUEEN_SHUTDOWN_GRACE_MS: '300' };
  const broker = await startBroker({ database: await freshDatabase(t), env }, t);
  const socket = await halfRequest(broker.port);
  atEnd(t, () => void socket.destroy());
  const ended = await broker.stop();
  assert.equal(ended.code, 0, ended.logs);
});

test('a second signal ends it at once', async (t) => {
  const env = { QUEEN_SHUTDOWN_GRACE_MS: '60000' };
  const broker = await startBroker({ env }, t);
  const socket = await halfRequest(broker.port);
  atEnd(t, () => void socket.destroy());
  const ended = broker.stop();
  await broker.logged(/stopping; another signal ends at once/);
  await broker.kill('SIGTERM');
  assert.equal((await ended).code, 1);
  // Its database was told to stop on the way out.
  await until(
    'the database has stopped',
    async () => !existsSync(join(broker.dataDir!, 'postgres/postmaster.pid')),
  );
});

test('a signal in the middle of a first start, and the start after it', async (t) => {
  const broker = spawnBroker({}, t);
  await until('the database is being made', async () => existsSync(join(broker.dataDir!, 'broker.sock')));
  const ended = await broker.stop();
  assert.equal(ended.code, 0, ended.logs);
  const second = await startBroker({ dataDir: broker.dataDir! }, t);
  await push(second.url, 'q', 0, 1);
});
