/** A broker that runs a source is killed at the worst moments: every change is in the queue once, whoever goes on. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import type { FaultPoint } from '../../packages/broker/src/observability/buggify.ts';
import { Client } from '../broker/client.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import { Upstream, type UpstreamDatabase } from '../kit/upstream.ts';
import { until } from '../start/talk.ts';

const HOOK = join(import.meta.dirname, 'fault_hook.ts');
const ENV = { QUEEN_PG_RELOAD_MS: '500', QUEEN_PG_LEASE_TTL_MS: '3000', DB_POOL_SIZE: '8' };
const ALONE = 'it is the one that dies';

interface Seen {
  id: string;
  op: string;
  n: number;
}

suite('a source whose broker is killed', () => {
  let server: Upstream;
  before(async () => {
    server = await Upstream.start({ major: 18 });
  });
  after(() => server.remove());

  function startAt(database: TestDatabase, t: Cleanup, fault: string | null): Promise<BrokerProcess> {
    const env = fault === null ? ENV : { ...ENV, NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: fault };
    return startBroker({ database, env, alone: ALONE }, t);
  }

  async function create(client: Client, upstream: UpstreamDatabase, source: Record<string, unknown> = {}) {
    const { host, port, user } = server;
    const { status, body } = await client.call('PUT', '/api/v1/connectors/s', {
      kind: 'source',
      connection: { host, port, user, database: upstream.name, sslMode: 'disable' },
      source: {
        slot: `slot_${upstream.name}`,
        snapshot: 'never',
        tables: [{ table: 'public.t', queue: 'q', partitionBy: 'single' }],
        heartbeatSeconds: 1,
        ...source,
      },
    });
    assert.equal(status, 200, JSON.stringify(body));
  }

  async function phase(client: Client): Promise<string> {
    const { body } = await client.call<{ status: { phase: string } }>('GET', '/api/v1/connectors/s');
    return body.status.phase;
  }

  const streams = (client: Client) =>
    until('it streams', async () => (await phase(client)) === 'streaming', 30_000);

  /** Everything there is, once it has come to so many. */
  async function drained(client: Client, count: number): Promise<Seen[]> {
    const seen: Seen[] = [];
    await until(
      `${count} messages have come`,
      async () => {
        const popped = await client.pop('q', {
          batch: 5_000,
          consumerGroup: 'g',
          subscriptionMode: 'all',
          autoAck: true,
        });
        for (const { transactionId, data } of popped) {
          const { op, after: row } = data as { op: string; after: { id: number } };
          seen.push({ id: transactionId, op, n: row.id });
        }
        return seen.length >= count && popped.length === 0;
      },
      60_000,
    );
    return seen;
  }

  function assertOnce(seen: readonly Seen[], count: number): void {
    assert.deepEqual(
      seen.map(({ n }) => n),
      Array.from({ length: count }, (_, i) => i + 1),
    );
    assert.equal(new Set(seen.map(({ id }) => id)).size, count);
  }

  const points: FaultPoint[] = ['transaction.written', 'transaction.committed', 'source.committed'];
  for (const point of points) {
    test(`at ${point}, and the next one goes on`, async (t) => {
      const database = await freshDatabase(t);
      const upstream = await server.database(t);
      await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
      const doomed = await startAt(database, t, `${point}:kill:2`);
      const client = new Client(doomed.url);
      await create(client, upstream);
      await streams(client);
      await upstream.sql('INSERT INTO t VALUES (1)');
      await until('it is there or nobody is', async () => {
        const found = await client
          .pop('q', { consumerGroup: 'probe', subscriptionMode: 'all' })
          .catch(() => [1]);
        return found.length > 0;
      });
      for (let n = 2; n <= 20; n++) await upstream.sql(`INSERT INTO t VALUES (${n})`);
      const ended = await doomed.ended;
      assert.equal(ended.signal, 'SIGKILL', ended.logs);
      const heir = new Client((await startAt(database, t, null)).url);
      await streams(heir);
      assertOnce(await drained(heir, 20), 20);
    });
  }

  test('after the slot was made and before there is a pointer', async (t) => {
    const database = await freshDatabase(t);
    const upstream = await server.database(t);
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
    const doomed = await startAt(database, t, 'source.slot_created:kill:1');
    await create(new Client(doomed.url), upstream);
    assert.equal((await doomed.ended).signal, 'SIGKILL');
    await upstream.sql('INSERT INTO t VALUES (1)');
    const heir = new Client((await startAt(database, t, null)).url);
    await streams(heir);
    await upstream.sql('INSERT INTO t VALUES (2)');
    assertOnce(await drained(heir, 2), 2);
  });

  test('halfway through a transaction of 20,000 rows, twice, and taken over by one that waited', async (t) => {
    const database = await freshDatabase(t);
    const upstream = await server.database(t);
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
    const first = await startAt(database, t, 'source.committed:kill:8');
    const client = new Client(first.url);
    await create(client, upstream, { maxBundleMessages: 1_000 });
    await streams(client);
    const second = await startAt(database, t, 'source.committed:kill:8');
    await upstream.sql('INSERT INTO t SELECT g FROM generate_series(1, 20000) g');
    assert.equal((await first.ended).signal, 'SIGKILL');
    assert.equal((await second.ended).signal, 'SIGKILL');
    const heir = new Client((await startAt(database, t, null)).url);
    assertOnce(await drained(heir, 20_000), 20_000);
  });

  test('told to end: it hands over before its lease runs out', async (t) => {
    const database = await freshDatabase(t);
    const upstream = await server.database(t);
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
    const env = { ...ENV, QUEEN_PG_LEASE_TTL_MS: '30000' };
    const first = await startBroker({ database, env, alone: ALONE }, t);
    await create(new Client(first.url), upstream);
    await streams(new Client(first.url));
    const second = await startBroker({ database, env: ENV, alone: ALONE }, t);
    const client = new Client(second.url);
    await until('it waits', async () => (await phase(client)) === 'standby');
    const ended = await first.stop();
    assert.equal(ended.code, 0, ended.logs);
    const began = performance.now();
    await streams(client);
    assert.ok(performance.now() - began < 10_000);
    await upstream.sql('INSERT INTO t VALUES (1)');
    assertOnce(await drained(client, 1), 1);
  });
});
