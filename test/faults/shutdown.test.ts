/**
 * SIGTERM at the worst moment: polls parked, leases out, a body half read, an answer that nobody takes, a push in the
 * middle of its commit; and with the database away. The broker ends by itself, in time, with exit code 0, and whatever
 * it had taken it has answered.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import pg from 'pg';
import { statement } from '../../packages/broker/src/store/database.ts';
import { CLUSTER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { Client } from '../broker/client.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';
import { OwnServer } from './outages.ts';

const GRACE_MS = 5_000;
/** What the stop may take beyond the grace: the engine, the pool, on a loaded machine. */
const REST_MS = 5_000;
const env = { QUEEN_SHUTDOWN_GRACE_MS: String(GRACE_MS) };
const POP = { consumerGroup: 'g', subscriptionMode: 'all', leaseSeconds: 60 };

const WAITING = statement(
  'shutdown_waiting',
  `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
);
const LEASES = statement(
  'shutdown_leases',
  'SELECT worker_id AS worker FROM queen.log_consumers WHERE worker_id IS NOT NULL',
);

/** A request that stops in the middle of its body. */
async function halfRequest(t: Cleanup, port: number): Promise<{ socket: Socket; closed: Promise<void> }> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  atEnd(t, () => void socket.destroy());
  socket.resume();
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  await new Promise<void>((resolve) => socket.once('connect', resolve));
  socket.write('POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"items":[');
  return { socket, closed };
}

/** A pop whose large answer nobody reads. */
async function deafRequest(t: Cleanup, port: number, path: string): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  atEnd(t, () => void socket.destroy());
  await new Promise<void>((resolve) => socket.once('connect', resolve));
  socket.pause();
  socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
}

/** Holds the lock of every partition of a queue until it is released. */
async function holdLanes(t: Cleanup, database: TestDatabase, queue: string): Promise<() => Promise<void>> {
  const { hosts, user, database: name } = database.options;
  const client = new pg.Client({ host: hosts[0]!.host, port: hosts[0]!.port, user, database: name });
  client.on('error', () => {});
  await client.connect();
  let open = true;
  const release = async (): Promise<void> => {
    if (open) await client.end();
    open = false;
  };
  atEnd(t, release);
  await client.query('BEGIN');
  await client.query(
    `SELECT FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1 FOR UPDATE OF p`,
    [queue],
  );
  return release;
}

async function endsInTime(broker: BrokerProcess, stop: () => Promise<{ code: number | null; logs: string }>) {
  const asked = performance.now();
  const ended = await stop();
  const took = performance.now() - asked;
  assert.equal(ended.code, 0, ended.logs);
  assert.ok(took < GRACE_MS + REST_MS, `${took} ms`);
  assert.doesNotMatch(ended.logs, /a bug|could not be closed|takes too long/, broker.logs());
  return took;
}

test('polls parked, leases out, a half-read body, a deaf client, a push in its commit', async (t) => {
  const database = await freshDatabase(t);
  const broker = await startBroker({ database, env }, t);
  const client = new Client(broker.url);
  const db = await database.open({ poolSize: 2 });
  atEnd(t, () => db.close());
  const item = (queue: string, transactionId: string, payload: unknown = 1) => ({
    queue,
    transactionId,
    payload,
  });
  await client.push([item('leased', 'a'), item('leased', 'b'), item('slow', 'warm')]);
  await client.push(Array.from({ length: 40 }, (_, i) => item('large', `l${i}`, 'x'.repeat(250_000))));

  const held = await client.pop('leased', { ...POP, batch: 1 });
  const parked = ['one', 'two', 'three'].map((group) =>
    client.pop('empty', { ...POP, consumerGroup: group, wait: true, timeout: 120_000 }),
  );
  const half = await halfRequest(t, broker.port);
  await deafRequest(t, broker.port, '/api/v1/pop/queue/large?consumerGroup=g&subscriptionMode=all&batch=100');
  await until('the deaf client holds its leases', async () => (await db.query(LEASES)).length === 2);
  const release = await holdLanes(t, database, 'slow');
  const inFlight = client.push([item('slow', 'in flight')]);
  await until('the push is in the database', async () => (await db.query(WAITING)).length > 0);

  const stopped = endsInTime(broker, () => broker.stop());
  await broker.logged(/stopping; another signal ends at once/);
  // The parked ones are answered at once, while the push is still at it.
  for (const poll of parked) assert.deepEqual(await poll, []);
  await assert.rejects(fetch(`${broker.url}/health`), 'nobody is let in any more');
  await release();
  assert.equal((await inFlight)[0]!.status, 'queued');
  await stopped;
  await half.closed;

  // Leases are the consumers', and live on: any broker takes their acks.
  const next = new Client((await startBroker({ database, env }, t)).url);
  const verdict = await next.ack(held[0]!);
  assert.ok(verdict.success && !verdict.noop, JSON.stringify(verdict));
  const [rest] = await next.pop('leased', { ...POP, wait: true, timeout: 5_000 });
  assert.deepEqual([rest!.transactionId, rest!.deliveryAttempt], ['b', 1]);
  assert.equal((await next.push([item('slow', 'in flight')]))[0]!.status, 'duplicate');
  await assertLogInvariants(db, { windowsNeverRaised: true });
});

test('nothing but parked polls: it does not wait for the grace', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t), env }, t);
  const client = new Client(broker.url);
  const polls = Array.from({ length: 20 }, (_, i) =>
    client.pop(`empty-${i % 4}`, { wait: true, timeout: 120_000, consumerGroup: `g${i}` }),
  );
  // Something that was asked later has been answered, so they are parked.
  await client.push([{ queue: 'other', payload: 1 }]);
  const took = await endsInTime(broker, () => broker.stop());
  assert.ok(took < GRACE_MS, `${took} ms`);
  for (const poll of polls) assert.deepEqual(await poll, []);
});

test('the bundled database stops cleanly, and starts without a recovery', async (t) => {
  const broker = await startBroker({ env }, t);
  const client = new Client(broker.url);
  await client.push([{ queue: 'q', transactionId: 'a', payload: 1 }]);
  const poll = client.pop('empty', { wait: true, timeout: 120_000 });
  const half = await halfRequest(t, broker.port);
  await endsInTime(broker, () => broker.stop());
  assert.deepEqual(await poll, []);
  await half.closed;
  assert.ok(!existsSync(join(broker.dataDir!, CLUSTER, 'postmaster.pid')));
  const next = await startBroker({ dataDir: broker.dataDir!, env }, t);
  assert.doesNotMatch(next.logs(), /an earlier PostgreSQL still run|recovering/);
  assert.equal((await new Client(next.url).pop('q', POP)).length, 1);
});

test('the database is away: what waits for it is told so, and the end does not wait for it', async (t) => {
  const server = await OwnServer.start(t);
  const spoolDir = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  atEnd(t, () => rmSync(spoolDir, { recursive: true, force: true }));
  const broker = await startBroker({ database: { url: server.url }, env, spoolDir }, t);
  const client = new Client(broker.url);
  await client.push([{ queue: 'q', transactionId: 'a', payload: 1 }]);
  await server.stop();
  const pushed = client.push([{ queue: 'q', transactionId: 'b', payload: 1 }]);
  const poll = client.call('GET', '/api/v1/pop/queue/q?consumerGroup=g&wait=true&timeout=120000');
  await until('both are taken', async () => {
    const text = await (await fetch(`${broker.url}/metrics/prometheus`)).text();
    return /^queen_http_requests_in_flight [3-9]/m.test(text);
  });
  await endsInTime(broker, () => broker.stop());
  const [answer] = await pushed;
  assert.equal(answer!.status, 'buffered');
  assert.ok([204, 500].includes((await poll).status));
  await server.resume();
  const next = new Client((await startBroker({ database: { url: server.url }, env, spoolDir }, t)).url);
  const [again] = await next.push([{ queue: 'q', transactionId: 'b', payload: 1 }]);
  assert.deepEqual([again!.status, again!.message_id], ['duplicate', answer!.message_id]);
});
