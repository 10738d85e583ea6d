/** Statistics of several brokers and several tenants, of what happens in the background, and of a database that is away. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAccess } from '../../packages/broker/src/http/access/access.ts';
import { StoreError } from '../../packages/broker/src/store/errors.ts';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';
import { Client } from './client.ts';
import { type Counted, type Json, openCounted } from './counted.ts';
import { popRequest, sql } from './live.ts';

const A = '00000000-0000-4000-8000-00000000000a';
const B = '00000000-0000-4000-8000-00000000000b';

const sum = (list: Json[], key: string) => list.reduce((total, each) => total + (each[key] as number), 0);

test('two brokers: what one pushed and the other delivered adds up on both', async (t) => {
  const left = await openCounted(t, { engine: { serverId: 'left' } });
  const right = await openCounted(t, { database: left.database, engine: { serverId: 'right' } });
  const items = (count: number) => Array.from({ length: count }, (_, n) => ({ queue: 'q', payload: n }));
  const minute = () => Math.floor(Date.now() / 60_000);
  const begun = minute();
  await left.client.push(items(6));
  await right.client.push(items(3));
  const got = await right.client.pop('q', { consumerGroup: 'g', subscriptionMode: 'all', batch: 9 });
  assert.equal(got.length, 9);
  await left.client.ackBatch(got);
  // Each writes down its own when it is asked; afterwards both see all.
  for (const broker of [left, right]) await broker.get('/api/v1/analytics/queue-ops');
  for (const broker of [left, right]) {
    const { series } = await broker.get('/api/v1/analytics/queue-ops');
    assert.deepEqual(
      ['pushRequests', 'pushMessages', 'popMessages', 'ackRequests', 'ackSuccess'].map((key) =>
        sum(series, key),
      ),
      [2, 9, 9, 1, 9],
    );
    assert.equal(await broker.family('queen_cluster_push_messages_total{scope="cluster"}'), 9);
    assert.equal(await broker.family('queen_cluster_ack_total{scope="cluster",result="success"}'), 9);
    // Of the newest minute, in which the pop was unless another one has begun since.
    const popped = await broker.family('queen_queue_pop_messages_per_minute{queue="q"}');
    if (minute() === begun) assert.equal(popped, 9);
    const { workers } = await broker.get('/api/v1/status');
    assert.deepEqual(workers.map(({ hostname }: Json) => hostname).sort(), ['left', 'right']);
    const { replicas } = await broker.get('/api/v1/analytics/system-metrics?hostname=right');
    assert.deepEqual(
      replicas.map(({ hostname }: Json) => hostname),
      ['right'],
    );
    const one = await broker.get('/api/v1/analytics/worker-metrics?hostname=left');
    assert.deepEqual(
      [one.summary.totalPushMessages, one.summary.totalPopMessages, one.summary.totalAckSuccess],
      [6, 0, 9],
    );
    const mine = await broker.get('/api/v1/analytics/worker-metrics?queue=q&hostname=right');
    assert.equal(sum(mine.timeSeries, 'pushMessages'), 3);
  }
});

test('each tenant sees its own, the cell sees all', async (t) => {
  const live = await openCounted(t, {
    settings: { tenancy: true },
    server: { access: createAccess({ verifier: null, skipPaths: [], tenancy: true }) },
  });
  const as = (tenant: string) => ({ 'x-queen-tenant': tenant });
  const push = (tenant: string, count: number) =>
    live.broker.push({
      tenant,
      producerSub: null,
      items: Array.from({ length: count }, (_, n) => ({
        queue: 'same',
        partition: `p${n % 3}`,
        payload: Buffer.from(String(n)),
        transactionId: null,
      })),
    });
  await push(A, 5);
  await push(B, 2);
  const { claims, leaseId } = await live.broker.pop(popRequest('same', 'g', { tenant: A }));
  const [claim] = claims;
  const acked = (tenant: string) =>
    live.broker.ack({
      tenant,
      group: 'g',
      items: [
        {
          partitionId: claim!.partitionId,
          leaseId,
          status: 'completed',
          error: null,
          transactionId: claim!.messages[0]!.transactionId,
        },
      ],
    });
  const [foreign] = await acked(B);
  assert.equal(foreign!.success, false);
  const [own] = await acked(A);
  assert.equal(own!.success, true);
  await live.broker.statistics.refresh();

  const counts = async (tenant: string) => {
    const { series } = await tenantGet(live, '/api/v1/analytics/queue-ops', as(tenant));
    const overview = await tenantGet(live, '/api/v1/resources/overview', as(tenant));
    const workload = await tenantGet(live, '/api/v1/analytics/workload?groupBy=queue', as(tenant));
    return [
      sum(series, 'pushMessages'),
      sum(series, 'ackSuccess'),
      sum(series, 'ackFailed'),
      overview.messages.total,
      overview.partitions,
      workload.tenant.window.pushMessages,
      workload.tenant.now.groups,
    ];
  };
  assert.deepEqual(await counts(A), [5, 1, 0, 5, 3, 5, 1], 'the refused ack of a stranger is none of theirs');
  assert.deepEqual(await counts(B), [2, 0, 0, 2, 2, 2, 0]);
  const nobody = '00000000-0000-4000-8000-00000000000c';
  assert.deepEqual(await counts(nobody), [0, 0, 0, 0, 0, 0, 0]);
  for (const path of [
    'status/queues',
    'analytics/queue-ops',
    'analytics/queue-lag',
    'analytics/retention?groupBy=queue',
    'analytics/queue-parked-replicas',
    'analytics/partition-liveness',
    'analytics/dlq-signatures?queue=same',
    'status/analytics',
  ]) {
    const text = JSON.stringify(await tenantGet(live, `/api/v1/${path}`, as(nobody)));
    assert.ok(!text.replace('"queue":"same"', '').includes('same'), `${path}: ${text}`);
  }

  assert.equal(sum((await live.get('/api/v1/status')).throughput, 'pushMessages'), 7);
  assert.equal(await live.family('queen_queue_push_messages_per_minute{queue="same"}'), 7);
  assert.equal(await live.family('queen_cluster_ack_total{scope="cluster",result="failed"}'), 1);
});

async function tenantGet(live: Counted, path: string, headers: Record<string, string>): Promise<Json> {
  return live.get(path, headers);
}

test('what retention deletes, and by which rule', async (t) => {
  const live = await openCounted(t);
  await live.client.configure('aged', { retentionEnabled: true, retentionSeconds: 100, namespace: 'n' });
  await live.client.configure('done', { retentionEnabled: true, completedRetentionSeconds: 100 });
  await live.client.configure('late', { maxWaitTimeSeconds: 100, namespace: 'n' });
  for (const [queue, count] of [
    ['aged', 3],
    ['done', 2],
    ['late', 4],
  ] as const) {
    await live.client.push(Array.from({ length: count }, (_, n) => ({ queue, payload: n })));
  }
  await live.client.pop('done', { autoAck: true });
  await live.database.advanceClock(200);
  await live.broker.retention.pass();
  const report = await live.get(
    '/api/v1/analytics/retention?groupBy=namespace&from=2020-01-01&to=2029-01-01',
  );
  assert.deepEqual(report.totals, {
    retentionMsgs: 3,
    completedRetentionMsgs: 2,
    evictionMsgs: 4,
    totalMsgs: 9,
    eventCount: 3,
  });
  assert.equal(sum(report.series, 'totalMsgs'), 9);
  assert.deepEqual(
    report.rows.map(({ key, queues, totalMsgs }: Json) => [key, queues, totalMsgs]),
    [
      ['n', 2, 7],
      ['', 1, 2],
    ],
  );
  const one = await live.get('/api/v1/analytics/retention?queue=late&from=2020-01-01&to=2029-01-01');
  assert.deepEqual([one.totals.totalMsgs, one.totals.evictionMsgs, one.rows], [4, 4, undefined]);
  assert.equal(await live.family('queen_retention_messages_total{rule="max_wait"}'), 4);
  assert.equal(await live.family('queen_retention_passes_total'), 1);

  await live.database.advanceClock(40 * 86_400);
  await live.broker.retention.pass();
  const ops = await live.get('/api/v1/analytics/queue-ops?from=2020-01-01&to=2029-01-01');
  assert.equal(sum(ops.series, 'partitionsCreated'), 3);
  assert.equal(sum(ops.series, 'partitionsDeleted'), 3);
  assert.equal(await live.family('queen_retention_partitions_removed_total'), 3);
});

test('pops that wait show where they wait, and how many of them', async (t) => {
  const live = await openCounted(t, { engine: { serverId: 'here' } });
  const wait = { wait: true, timeout: 20_000, consumerGroup: 'g' };
  const parked = [
    live.client.pop('waited-for', wait),
    live.client.pop('waited-for', wait),
    live.client.pop('waited-for', { ...wait, consumerGroup: 'h' }, 'p'),
    live.client.popAt('/api/v1/pop', { ...wait, namespace: 'n' }),
  ];
  await until('four are parked', async () => live.broker.wake.parking.parked === 4);
  const at = '/api/v1/analytics/queue-parked-replicas?queue=waited-for';
  await until('somebody has looked', async () => (await live.get(at)).series.length > 0);
  const { series, replicas } = await live.get(at);
  assert.deepEqual(replicas, [{ hostname: 'here', workerId: 0 }]);
  assert.deepEqual(
    series.map(({ queueName, hostname, workerId, parkedCount }: Json) => [
      queueName,
      hostname,
      workerId,
      parkedCount,
    ]),
    [['waited-for', 'here', 0, 3]],
  );
  assert.equal(await live.family('queen_queue_parked_consumers{queue="waited-for"}'), 3);
  assert.equal(
    await live.family('queen_queue_push_messages_per_minute{queue="waited-for"}'),
    undefined,
    'no line without traffic',
  );
  await live.stop();
  for (const messages of await Promise.all(parked)) assert.deepEqual(messages, []);
});

test('without a database a scrape has the families of the process, and a read says what is wrong', async (t) => {
  const live = await openCounted(t);
  await live.client.push([{ queue: 'q', payload: 1 }]);
  const { db } = live.broker;
  const query = db.query;
  db.query = (() =>
    Promise.reject(new StoreError('unavailable', 'pool', 'away'))) as unknown as typeof db.query;
  assert.ok((await live.family('queen_db_statements_total'))! > 0);
  assert.equal(await live.family('queen_cluster_push_messages_total{scope="cluster"}'), undefined);
  assert.equal(await live.family('queen_dlq_depth{scope="cluster"}'), undefined);
  const { status, body } = await live.ask('GET', '/api/v1/analytics/queue-ops');
  assert.deepEqual([status, body], [500, { error: 'pool', code: 'pool' }]);
  db.query = query;
  const { series } = await live.get('/api/v1/analytics/queue-ops');
  assert.equal(sum(series, 'pushMessages'), 1, 'and nothing is lost');
});

test('a broker by itself: it refreshes, writes down, and leaves its last numbers behind', async (t) => {
  const database = await freshDatabase(t);
  const env = { METRICS_FLUSH_MS: '1000', STATS_INTERVAL_MS: '1000', QUEEN_SERVER_ID: 'solo' };
  const broker = await startBroker({ database, env, alone: 'the brokers are counted' }, t);
  const client = new Client(broker.url);
  const get = async (path: string) => (await client.call<Json>('GET', path)).body;
  await client.push([1, 2, 3].map((payload) => ({ queue: 'q', payload })));
  await until('the rollup has the queue', async () => {
    const { queues } = await get('/api/v1/status/queues');
    return queues[0]?.messages.total === 3;
  });
  await until('a scrape has the sums', async () => {
    const text = await (await fetch(`${broker.url}/metrics/prometheus`)).text();
    return text.includes('queen_cluster_push_messages_total{scope="cluster"} 3\n');
  });
  assert.ok((await get('/api/v1/resources/overview')).statsAge < 30);
  await client.push([{ queue: 'q', payload: 4 }]);
  assert.equal((await broker.stop()).code, 0);
  const db = await database.open();
  t.after(() => db.close());
  const [totals] = await sql<{ n: number }>(db, 'SELECT push_messages AS n FROM queen.cluster_totals');
  assert.equal(totals!.n, 4);
  assert.doesNotMatch(broker.logs(), /not written down|failed/);
});
