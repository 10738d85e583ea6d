/**
 * Leases, and those who hold them when they should not any more: a consumer that slept through its lease, a broker that
 * stood still in the middle of an answer.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { statement } from '../../packages/broker/src/store/database.ts';
import { Client, type Message, type Verdict } from '../broker/client.ts';
import { startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';

const HOOK = join(import.meta.dirname, 'fault_hook.ts');
const LEASE_SECONDS = 1;
const LEASE = { consumerGroup: 'g', subscriptionMode: 'all', leaseSeconds: LEASE_SECONDS };
const AGAIN = { ...LEASE, leaseSeconds: 30, wait: true, timeout: 10_000 };
const LATE = 'invalid or expired lease';

const RETRIES = statement(
  'faults_retries',
  'SELECT committed, batch_retry_count AS retries, worker_id AS worker FROM queen.log_consumers',
);

async function consumerRow(database: TestDatabase) {
  const db = await database.open({ poolSize: 1 });
  try {
    const [row] = await db.query<{ committed: number; retries: number; worker: string | null }>(RETRIES);
    return row!;
  } finally {
    await db.close();
  }
}

const items = (...ids: string[]) =>
  ids.map((transactionId) => ({ queue: 'q', transactionId, payload: transactionId }));

const ids = (batch: readonly Message[]) => batch.map(({ transactionId }) => transactionId);

/** A consumer in a process of its own that pops at once, and acks when it is told to. */
async function consumer(t: Cleanup, url: string) {
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, 'consumer_process.ts'), url, 'q', 'g', '1'],
    {
      stdio: ['pipe', 'pipe', 'inherit'],
    },
  );
  atEnd(t, () => void child.kill('SIGKILL'));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => JSON.parse((await lines.next()).value as string) as unknown;
  const batch = (await next()) as Message[];
  return {
    batch,
    signal: (name: NodeJS.Signals) => process.kill(child.pid!, name),
    async ack(): Promise<Verdict[]> {
      child.stdin.write('ack\n');
      return (await next()) as Verdict[];
    },
    ended: once(child, 'exit'),
  };
}

test('a consumer that slept through its lease: refused, its batch has gone to another', async (t) => {
  const database = await freshDatabase(t);
  const client = new Client((await startBroker({ database }, t)).url);
  await client.push(items('a', 'b', 'c'));
  const sleeper = await consumer(t, client.url);
  assert.deepEqual(ids(sleeper.batch), ['a', 'b', 'c']);
  sleeper.signal('SIGSTOP');
  const asked = performance.now();
  const second = await client.pop('q', AGAIN);
  assert.ok(performance.now() - asked < (LEASE_SECONDS + 1) * 1000 + 500, 'within the lease and a second');
  assert.deepEqual(ids(second), ['a', 'b', 'c']);
  assert.deepEqual([...new Set(second.map(({ deliveryAttempt }) => deliveryAttempt))], [2]);

  sleeper.signal('SIGCONT');
  assert.deepEqual(
    (await sleeper.ack()).map(({ success, error }) => [success, error]),
    [
      [false, LATE],
      [false, LATE],
      [false, LATE],
    ],
  );
  const held = await consumerRow(database);
  assert.deepEqual([held.committed, held.retries, held.worker], [-1, 0, second[0]!.leaseId]);
  assert.ok((await client.ackBatch(second)).every(({ success, noop }) => success && !noop));
  assert.equal((await consumerRow(database)).committed, 2);
  assert.deepEqual(await client.pop('q', LEASE), []);
});

test('a consumer that is killed with a batch: back within the lease and a second, at no cost', async (t) => {
  const database = await freshDatabase(t);
  const client = new Client((await startBroker({ database }, t)).url);
  await client.configure('q', { retryLimit: 1 });
  await client.push(items('a'));
  for (let death = 1; death <= 3; death++) {
    const victim = await consumer(t, client.url);
    assert.equal(victim.batch[0]!.deliveryAttempt, death);
    victim.signal('SIGKILL');
    await victim.ended;
  }
  const asked = performance.now();
  const [survivor] = await client.pop('q', AGAIN);
  assert.ok(performance.now() - asked < (LEASE_SECONDS + 1) * 1000 + 500);
  assert.equal(survivor!.deliveryAttempt, 4);
  assert.equal((await consumerRow(database)).retries, 0);
});

test('a failure that comes too late spends nothing and dead-letters nothing', async (t) => {
  const database = await freshDatabase(t);
  const client = new Client((await startBroker({ database }, t)).url);
  await client.configure('q', { retryLimit: 0 });
  await client.push(items('a'));
  const [late] = await client.pop('q', LEASE);
  const [now] = await client.pop('q', AGAIN);
  for (const status of ['failed', 'dlq', 'retry', 'completed']) {
    const verdict = await client.ack(late!, status);
    assert.deepEqual([verdict.success, verdict.error, verdict.dlq], [false, LATE, false], status);
  }
  assert.ok((await client.ack(now!)).success);
});

test('a worker under the same name neither inherits nor blocks its old lease', async (t) => {
  const database = await freshDatabase(t);
  const first = await startBroker({ database, env: { QUEEN_SERVER_ID: 'worker' } }, t);
  const client = new Client(first.url);
  await client.push(items('a', 'b'));
  await client.pop('q', { ...LEASE, batch: 1, leaseSeconds: 2 });
  await first.kill('SIGKILL');
  const again = new Client((await startBroker({ database, env: { QUEEN_SERVER_ID: 'worker' } }, t)).url);
  // Its own old lease holds it off like anybody else's, and runs out like anybody else's.
  const [message] = await again.pop('q', { ...AGAIN, batch: 1 });
  assert.deepEqual([message!.transactionId, message!.deliveryAttempt], ['a', 2]);
});

test('a broker that stands still past the leases: its late answers and acks change nothing', async (t) => {
  const database = await freshDatabase(t);
  const [still, other] = await Promise.all([startBroker({ database }, t), startBroker({ database }, t)]);
  const frozen = new Client(still.url);
  const client = new Client(other.url);
  await client.push(items('a', 'b'));
  const held = await frozen.pop('q', { ...LEASE, wait: true, timeout: 5_000 });
  assert.equal(held.length, 2);

  process.kill(still.pid, 'SIGSTOP');
  // It is in the kernel's hands, for the broker to find when it wakes up.
  const late = frozen.ackBatch(held);
  const second = await client.pop('q', AGAIN);
  assert.deepEqual(ids(second), ['a', 'b']);
  await sleep(LEASE_SECONDS * 1000);
  process.kill(still.pid, 'SIGCONT');
  for (const { success, error } of await late) assert.deepEqual([success, error], [false, LATE]);
  assert.equal((await consumerRow(database)).committed, -1);
  // It goes on to serve, with whatever it remembers of that lease.
  const verdicts = await frozen.ackBatch(second);
  assert.ok(
    verdicts.every(({ success, noop }) => success && !noop),
    JSON.stringify(verdicts),
  );
  assert.equal((await consumerRow(database)).committed, 1);
});

test('a broker that stands still between a claim and its answer: the late answer is a dead lease', async (t) => {
  const database = await freshDatabase(t);
  const env = { NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: 'pop.claimed:stop' };
  const [still, other] = await Promise.all([startBroker({ database, env }, t), startBroker({ database }, t)]);
  const frozen = new Client(still.url);
  const client = new Client(other.url);
  await client.push(items('a', 'b'));
  const late = frozen.pop('q', { ...LEASE, wait: true, timeout: 5_000 });
  await still.logged(/fault: stop at pop.claimed/);
  const second = await client.pop('q', AGAIN);
  assert.deepEqual(ids(second), ['a', 'b']);
  assert.equal(second[0]!.deliveryAttempt, 2);
  process.kill(still.pid, 'SIGCONT');
  const stale = await late;
  assert.deepEqual(ids(stale), ['a', 'b']);
  for (const { success, error } of await frozen.ackBatch(stale))
    assert.deepEqual([success, error], [false, LATE]);
  assert.ok((await frozen.ackBatch(second)).every(({ success }) => success));
});

test('a broker that stands still between a push and its answer has lost nothing and blocks nobody', async (t) => {
  const database = await freshDatabase(t);
  const env = { NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: 'push.stored:stop' };
  const [still, other] = await Promise.all([startBroker({ database, env }, t), startBroker({ database }, t)]);
  const frozen = new Client(still.url);
  const client = new Client(other.url);
  const first = frozen.push(items('a'));
  await still.logged(/fault: stop at push.stored/);
  const [again] = await client.push(items('a'));
  assert.equal(again!.status, 'duplicate');
  const [behind] = await client.push(items('b'));
  assert.equal(behind!.status, 'queued');
  process.kill(still.pid, 'SIGCONT');
  const [answer] = await first;
  assert.deepEqual([answer!.status, answer!.message_id], ['queued', again!.message_id]);
  // What others have stored meanwhile is news to its cache, and it must not vouch for it.
  assert.equal((await frozen.push(items('b')))[0]!.status, 'duplicate');
  assert.deepEqual(ids(await client.pop('q', LEASE)), ['a', 'b']);
});
