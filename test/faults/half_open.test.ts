/**
 * Between broker and database the network swallows everything, and closes nothing. Requests fail within their deadline
 * with an error that says what may have happened, the pool gets new connections when the network is back, and no lock
 * is left behind.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Database, statement } from '../../packages/broker/src/store/database.ts';
import { Client } from '../broker/client.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { startProxy, type TcpProxy } from '../kit/proxy.ts';
import { until } from '../kit/until.ts';

const STATEMENT_MS = 1_000;
/**
 * A statement's time, the grace for the answer to its cancellation, the wait for a connection when there is none, and
 * what a loaded machine adds.
 */
const DEADLINE_MS = STATEMENT_MS + 1_000 + 5_000 + 3_000;

interface Setup {
  broker: BrokerProcess;
  client: Client;
  proxy: TcpProxy;
  db: Database;
}

async function setup(t: Cleanup): Promise<Setup> {
  const database = await freshDatabase(t);
  const { hosts, user, database: name } = database.options;
  const proxy = await startProxy({ path: `${hosts[0]!.host}/.s.PGSQL.${hosts[0]!.port}` });
  atEnd(t, () => proxy.close());
  const url = `postgres://${user}@${proxy.host}:${proxy.port}/${name}`;
  const env = { DB_POOL_SIZE: '6', QUEEN_STMT_TIMEOUT_MS: String(STATEMENT_MS) };
  const broker = await startBroker({ database: { url }, env }, t);
  const db = await database.open({ poolSize: 2 });
  atEnd(t, () => db.close());
  return { broker, client: new Client(broker.url), proxy, db };
}

const item = (transactionId: string) => ({ queue: 'q', transactionId, payload: transactionId });
const POP = { consumerGroup: 'g', subscriptionMode: 'all', leaseSeconds: 30 };

const LOCKS = statement(
  'faults_locks',
  `SELECT count(*)::int AS locks FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE c.relname LIKE 'log_%' AND l.mode LIKE 'Row%Lock' AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
);

async function timed<T>(work: Promise<T>): Promise<[T, number]> {
  const from = performance.now();
  return [await work, performance.now() - from];
}

for (const direction of ['both', 'to_server', 'to_client'] as const) {
  test(`half-open, ${direction.replace('_', ' ')}: what is asked is answered in time`, async (t) => {
    const { client, proxy, db } = await setup(t);
    await client.push([item('before')]);
    const held = await client.pop('q', POP);
    assert.equal(held.length, 1);

    proxy.swallow(direction);
    const [[pushed, pushMs], [acked, ackMs], [popped, popMs]] = await Promise.all([
      timed(client.push([item('during')])),
      timed(client.ackBatch(held)),
      timed(
        client.call<{ code?: string } | null>('GET', '/api/v1/pop/queue/q/partition/Default?consumerGroup=h'),
      ),
    ]);
    const took = `push ${pushMs} ms, ack ${ackMs} ms, pop ${popMs} ms`;
    assert.ok(Math.max(pushMs, ackMs, popMs) < DEADLINE_MS, took);
    // It had been sent, and whether it was carried out is not known: it is kept, to be told apart when the database is back.
    const [push] = pushed;
    assert.equal(push!.status, 'buffered');
    // Or, when the others had the connections, it was never sent.
    const unsent = acked[0]!.error === 'pool';
    if (!unsent) assert.equal(acked[0]!.error, 'ack flush failed; lease will expire and redeliver');
    assert.equal(acked[0]!.success, false);
    assert.equal(popped.status, 500);

    // What comes later meets an empty pool.
    const [[later], laterMs] = await timed(client.push([item('later')]));
    assert.ok(laterMs < DEADLINE_MS, `${laterMs} ms`);
    assert.equal(later!.status, 'buffered');

    proxy.heal();
    proxy.drop();
    await until(
      'a push is stored again',
      async () => ['queued', 'duplicate'].includes((await client.push([item('after')]))[0]!.status),
      10_000,
    );
    const again = await client.push([item('before'), item('during'), item('later'), item('after')]);
    assert.deepEqual(
      again.map(({ status }) => status),
      ['duplicate', 'duplicate', 'duplicate', 'duplicate'],
    );
    assert.deepEqual([again[1]!.message_id, again[2]!.message_id], [push!.message_id, later!.message_id]);
    assert.deepEqual(
      again.map((result) => (result as { offset?: number }).offset),
      [0, 1, 2, 3],
    );
    await until(
      'no lock is left',
      async () => (await db.query<{ locks: number }>(LOCKS))[0]!.locks === 0,
      15_000,
    );
    await assertLogInvariants(db, { windowsNeverRaised: true });
    const [repeated] = await client.ackBatch(held);
    if (direction === 'to_client' && !unsent) {
      // It was committed, and so was its release of the lease.
      assert.deepEqual([repeated!.success, repeated!.error], [false, 'invalid or expired lease']);
    } else assert.ok(repeated!.success);
  });
}

test('half-open while nothing is asked: the first request afterwards is answered in time', async (t) => {
  const { broker, client, proxy } = await setup(t);
  await client.push([item('before')]);
  proxy.swallow();
  const health = await client.call<{ status: string }>('GET', '/health');
  assert.equal(health.status, 503);
  assert.equal((await client.call('GET', '/health/live')).status, 200);
  proxy.heal();
  proxy.drop();
  const [[pushed], ms] = await timed(client.push([item('after')]));
  assert.equal(pushed!.status, 'queued');
  assert.ok(ms < DEADLINE_MS, `${ms} ms`);
  // Other brokers' news come over a connection of their own, which has to come back as well.
  await until(
    'it listens again',
    async () => /queen_wake_connected 1/.test(await (await fetch(`${broker.url}/metrics/prometheus`)).text()),
    20_000,
  );
});

test('a connection that is slow and not dead loses nothing', async (t) => {
  const { client, proxy, db } = await setup(t);
  await client.push([item('warm')]);
  proxy.delay(150);
  const ids = Array.from({ length: 20 }, (_, i) => `slow-${i}`);
  const answers = await Promise.all(ids.map((id) => client.push([item(id)])));
  assert.ok(answers.every(([answer]) => answer!.status === 'queued'));
  const batch = await client.pop('q', { ...POP, batch: 100 });
  assert.equal(batch.length, 21);
  assert.ok((await client.ackBatch(batch)).every(({ success }) => success));
  await assertLogInvariants(db, { windowsNeverRaised: true });
});
