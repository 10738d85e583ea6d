/**
 * A known workload, and what every route and family says of it: so much was pushed, delivered, acked, failed, moved to the
 * dead letters, and so much is left.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Message } from './client.ts';
import { type Json, openCounted } from './counted.ts';
import type { Live } from './live.ts';

const sum = (list: Json[], key: string) => list.reduce((total, each) => total + (each[key] as number), 0);

/**
 * shop.orders: 12 pushed in two requests (and two repeated: duplicates) into two partitions; group `billing` pops 8, acks 5,
 * fails 1, sends 1 to the dead letters. shop.mail: 4 pushed by a transaction that acks one more of the orders, 3 taken at
 * delivery, without a group.
 */
async function workload({ client, broker }: Live): Promise<void> {
  await client.configure('shop.orders', { namespace: 'shop', task: 'orders' });
  await client.configure('shop.mail', { namespace: 'shop', task: 'mail' });
  const items = (from: number, to: number, partition: string) =>
    Array.from({ length: to - from }, (_, i) => ({
      queue: 'shop.orders',
      partition,
      transactionId: `${partition}-${from + i}`,
      payload: { n: from + i },
    }));
  await client.push([...items(0, 8, 'a'), ...items(0, 2, 'b')]);
  await client.push([...items(2, 4, 'b'), ...items(0, 2, 'b')]);
  const group = { consumerGroup: 'billing', subscriptionMode: 'all' };
  const popped = await client.pop('shop.orders', { ...group, batch: 8 }, 'a');
  assert.equal(popped.length, 8);
  const done = await client.ackBatch(popped.slice(0, 5));
  assert.ok(done.every(({ success }) => success));
  const dead = await client.ack(popped[5]!, 'dlq', { error: 'order 17 of 2026-01-02 is broken' });
  assert.equal(dead.dlq, true);
  // The lease is over: the rest comes again.
  const [head, last] = await client.pop('shop.orders', { ...group, batch: 8 }, 'a');
  const { body } = await client.call<Json>('POST', '/api/v1/transaction', {
    operations: [
      { type: 'ack', ...pick(head!), status: 'completed', consumerGroup: 'billing' },
      ...[0, 1, 2, 3].map((n) => ({ type: 'push', items: [{ queue: 'shop.mail', payload: n }] })),
    ],
    requiredLeases: [head!.leaseId],
  });
  assert.equal(body.success, true, JSON.stringify(body));
  const failed = await client.ack(last!, 'failed', { error: 'not now' });
  assert.deepEqual([failed.success, failed.dlq], [true, false]);
  assert.equal((await client.pop('shop.mail', { autoAck: true, batch: 3 })).length, 3);
  assert.equal((await client.pop('shop.orders', group, 'c')).length, 0);
  await broker.statistics.refresh();
}

function pick({ transactionId, partitionId, leaseId }: Message) {
  return { transactionId, partitionId, leaseId };
}

test('the numbers of a known workload', async (t) => {
  const live = await openCounted(t);
  await workload(live);
  const standing = { total: 12, pending: 5, processing: 0, completed: 6, deadLetter: 1 };

  await t.test('where things stand', async () => {
    const { queues, pagination } = await live.get('/api/v1/status/queues?namespace=shop');
    assert.deepEqual(
      queues.map((queue: Json) => [
        queue.name,
        queue.namespace,
        queue.task,
        queue.partitions,
        queue.messages,
      ]),
      [
        [
          'shop.mail',
          'shop',
          'mail',
          1,
          { total: 4, pending: 1, processing: 0, completed: 3, deadLetter: 0 },
        ],
        ['shop.orders', 'shop', 'orders', 2, standing],
      ],
    );
    assert.deepEqual(pagination, { limit: 100, offset: 0, total: 2 });
    const second = await live.get('/api/v1/status/queues?limit=1&offset=1');
    assert.deepEqual(
      second.queues.map(({ name }: Json) => name),
      ['shop.orders'],
    );
    assert.deepEqual((await live.get('/api/v1/status/queues?task=none')).queues, []);

    const one = await live.get('/api/v1/status/queues/shop.orders');
    assert.deepEqual(one.totals, { partitions: 2, messages: { ...standing, failed: null } });
    assert.deepEqual(
      one.partitions.map(({ name, messages, cursor }: Json) => [
        name,
        messages.pending,
        cursor.totalConsumed,
      ]),
      [
        ['a', 1, 7],
        ['b', 4, 0],
      ],
    );
    assert.equal(one.queue.config.leaseTime, 300);
    const missing = await live.ask('GET', '/api/v1/status/queues/nothing');
    assert.deepEqual([missing.status, missing.body.error], [404, 'Queue not found']);

    const overview = await live.get('/api/v1/resources/overview');
    const { queues: count, partitions, namespaces, tasks, messages, lag, throughput, statsAge } = overview;
    assert.deepEqual([count, partitions, namespaces, tasks], [2, 3, 1, 2]);
    assert.deepEqual(messages, {
      total: 16,
      pending: 6,
      processing: 0,
      completed: 9,
      failed: 0,
      deadLetter: 1,
    });
    assert.deepEqual(lag.offset, { avg: 3, median: 3, min: 1, max: 5 });
    assert.ok(lag.time.max > 0 && lag.time.max < 60 && lag.time.min <= lag.time.max);
    assert.equal(throughput.ingestedPerSecond, Math.round((16 / 300) * 100) / 100);
    assert.equal(throughput.processedPerSecond, Math.round((9 / 300) * 100) / 100);
    assert.ok(statsAge >= 0 && statsAge < 60);

    const live1 = await live.get('/api/v1/resources/queues');
    const cached = await live.get('/api/v1/resources/queues?stats=cached');
    assert.deepEqual(cached, live1);

    const liveness = await live.get('/api/v1/analytics/partition-liveness?queue=shop.orders');
    const { oldestWriteAt, newestWriteAt, ...counts } = liveness.rows[0];
    assert.deepEqual(counts, {
      queue: 'shop.orders',
      namespace: 'shop',
      task: 'orders',
      partitions: 2,
      live1h: 2,
      live24h: 2,
      live7d: 2,
      created24h: 2,
      pending: 5,
    });
    assert.ok(oldestWriteAt <= newestWriteAt && newestWriteAt <= liveness.capturedAt);
  });

  await t.test('what has passed, by queue', async () => {
    const ops = await live.get('/api/v1/analytics/queue-ops');
    assert.equal(ops.bucketMinutes, 1);
    assert.deepEqual(ops.queues, ['shop.mail', 'shop.orders']);
    const orders = ops.series.filter(({ queueName }: Json) => queueName === 'shop.orders');
    const mail = ops.series.filter(({ queueName }: Json) => queueName === 'shop.mail');
    const keys = [
      'pushRequests',
      'pushMessages',
      'popMessages',
      'popEmpty',
      'ackRequests',
      'ackSuccess',
      'ackFailed',
      'transactions',
      'partitionsCreated',
    ];
    assert.deepEqual(
      keys.map((key) => sum(orders, key)),
      [2, 12, 10, 1, 3, 6, 2, 0, 2],
    );
    assert.deepEqual(
      keys.map((key) => sum(mail, key)),
      [0, 4, 3, 0, 0, 3, 0, 1, 1],
    );
    const [first] = orders;
    assert.ok(first.avgLagMs >= 0 && first.avgLagMs <= first.maxLagMs && first.maxLagMs < 60_000);
    assert.equal(first.pushPerSecond, Math.round((first.pushMessages / 60) * 100) / 100);
    const only = await live.get('/api/v1/analytics/queue-ops?queue=shop.mail');
    assert.deepEqual(only.queues, ['shop.mail']);

    const lag = await live.get('/api/v1/analytics/queue-lag?queue=shop.orders');
    assert.ok(Array.isArray(lag));
    assert.equal(sum(lag, 'popCount'), 10);

    const { dataPoints, interval } = await live.get(
      '/api/v1/status/analytics?interval=day&queue=shop.orders',
    );
    assert.deepEqual([interval, sum(dataPoints, 'messages')], ['day', 12]);
    const all = await live.get('/api/v1/status/analytics?interval=fortnight&task=mail');
    assert.deepEqual([all.interval, sum(all.dataPoints, 'messages')], ['hour', 4]);
  });

  await t.test('who does how much', async () => {
    const byTask = await live.get('/api/v1/analytics/workload?groupBy=task');
    assert.deepEqual(
      byTask.rows.map(({ key, queues }: Json) => [key, queues]),
      [
        ['orders', 1],
        ['mail', 1],
      ],
    );
    const [orders, mail] = byTask.rows;
    const { window, now, series } = orders;
    assert.deepEqual(
      [window.pushMessages, window.popMessages, window.ackSuccess, window.ackFailed, window.popEmpty],
      [12, 10, 6, 2, 1],
    );
    assert.deepEqual([now.pending, now.deadLetter, now.partitions, now.groups], [5, 1, 2, 1]);
    assert.deepEqual([now.queuesWithoutGroup, now.queuesTouched, now.queuesActive], [0, 1, 1]);
    assert.deepEqual([mail.now.groups, mail.now.pending, mail.window.transactions], [0, 1, 1]);
    for (const line of Object.values(series) as Json[]) assert.equal(line.length, byTask.buckets.length);
    assert.equal(
      series.push.reduce((total: number, n: number | null) => total + (n ?? 0), 0),
      12,
    );
    assert.equal(series.push[0], null, 'nothing was written down an hour ago');
    const { tenant } = byTask;
    assert.deepEqual([tenant.queues, tenant.window.pushMessages, tenant.now.pending], [2, 16, 6]);

    const byQueue = await live.get('/api/v1/analytics/workload?groupBy=queue&task=mail');
    assert.deepEqual(
      byQueue.rows.map(({ key, namespace, task }: Json) => [key, namespace, task]),
      [['shop.mail', 'shop', 'mail']],
    );
    assert.deepEqual([byQueue.rowsTotal, byQueue.tenant.window.pushMessages], [1, 16]);
    const byNamespace = await live.get('/api/v1/analytics/workload');
    assert.equal(byNamespace.groupBy, 'namespace');
    assert.deepEqual(
      byNamespace.rows.map(({ key, queues }: Json) => [key, queues]),
      [['shop', 2]],
    );
    for (const path of ['workload', 'retention']) {
      const bad = await live.ask('GET', `/api/v1/analytics/${path}?groupBy=color`);
      assert.deepEqual([bad.status, bad.body.error], [400, 'bad groupBy']);
    }
  });

  await t.test('dead letters by their reasons', async () => {
    const { signatures, ...report } = await live.get('/api/v1/analytics/dlq-signatures?queue=shop.orders');
    assert.deepEqual(signatures, [{ text: 'order <n> of <date> is broken', n: 1, share: 1 }]);
    assert.deepEqual([report.rowsNow, report.sample, report.groups], [1, 1, [{ group: 'billing', n: 1 }]]);
    assert.equal(report.oldest, report.newest);
    assert.equal(report.avgBytes, Buffer.byteLength('{"n":5}'));
    assert.deepEqual(report.byDay, [{ day: report.newest.slice(0, 10), n: 1 }]);
    const none = await live.get('/api/v1/analytics/dlq-signatures?queue=shop.mail');
    assert.deepEqual([none.rowsNow, none.sample, none.signatures, none.oldest], [0, 0, [], null]);
    const missing = await live.ask('GET', '/api/v1/analytics/dlq-signatures');
    assert.deepEqual([missing.status, missing.body.error], [400, 'queue required']);
  });

  await t.test('of the whole broker', async () => {
    const status = await live.get('/api/v1/status');
    const keys = [
      'pushRequests',
      'pushMessages',
      'popRequests',
      'popMessages',
      'ackRequests',
      'ackSuccess',
      'ackFailed',
    ];
    assert.deepEqual(
      keys.map((key) => sum(status.throughput, key)),
      [2, 16, 4, 13, 3, 9, 2],
    );
    assert.deepEqual(status.messages, {
      total: 16,
      pending: 6,
      processing: 0,
      completed: 9,
      failed: 0,
      deadLetter: 1,
    });
    assert.deepEqual(status.deadLetterQueue, { totalMessages: 1, affectedPartitions: 1 });
    assert.deepEqual(status.errors, { dbErrors: 0, ackFailed: 2, dlqMessages: 1 });
    assert.equal(status.workers.length, 1);
    assert.ok(status.throughput.at(-1).rssBytes > 10_000_000);
    const mail = await live.get('/api/v1/status?task=mail');
    assert.deepEqual(
      keys.map((key) => sum(mail.throughput, key)),
      [0, 4, 1, 3, 0, 3, 0],
    );
    assert.deepEqual([mail.messages.total, mail.queues.length], [4, 1]);

    const workers = await live.get('/api/v1/analytics/worker-metrics');
    assert.deepEqual(
      keys.map((key) => sum(workers.timeSeries, key)),
      [2, 16, 4, 13, 3, 9, 2],
    );
    assert.equal(workers.summary.totalTransactions, 1);
    assert.deepEqual(
      workers.queues.map(({ queueName }: Json) => queueName),
      ['shop.orders', 'shop.mail'],
    );
    assert.equal(workers.workers[0].workerId, 0);
    const other = await live.get('/api/v1/analytics/worker-metrics?hostname=nobody');
    assert.deepEqual([other.pointCount, other.workers, other.queues], [0, [], []]);

    const system = await live.get('/api/v1/analytics/system-metrics');
    const [replica] = system.replicas;
    const { metrics } = replica.timeSeries[0];
    for (const gauge of [metrics.memory.rss_bytes, metrics.database.pool_size, metrics.uptime_seconds]) {
      assert.ok(gauge.min <= gauge.avg && gauge.avg <= gauge.max && gauge.last > 0, JSON.stringify(gauge));
    }
    const postgres = await live.get('/api/v1/analytics/postgres-stats');
    assert.equal(postgres.database.name, live.database.options.database);
    assert.ok(postgres.tableSizes.some(({ table }: Json) => table === 'log_segments'));
    for (const section of [
      'tableCache',
      'indexCache',
      'deadTuples',
      'hotUpdates',
      'activeQueries',
      'bufferConfig',
    ])
      assert.ok(Array.isArray(postgres[section]), section);
  });

  await t.test('the families of a scrape', async () => {
    const expected: Record<string, number> = {
      'queen_cluster_push_requests_total{scope="cluster"}': 2,
      'queen_cluster_push_messages_total{scope="cluster"}': 16,
      'queen_cluster_pop_requests_total{scope="cluster"}': 4,
      'queen_cluster_pop_messages_total{scope="cluster"}': 13,
      'queen_cluster_ack_requests_total{scope="cluster"}': 3,
      'queen_cluster_ack_messages_total{scope="cluster"}': 11,
      'queen_cluster_ack_total{scope="cluster",result="success"}': 9,
      'queen_cluster_ack_total{scope="cluster",result="failed"}': 2,
      'queen_cluster_transactions_total{scope="cluster"}': 1,
      'queen_cluster_dlq_total{scope="cluster"}': 1,
      'queen_cluster_db_errors_total{scope="cluster"}': 0,
      'queen_queue_push_messages_per_minute{queue="shop.orders"}': 12,
      'queen_queue_ack_per_minute{queue="shop.orders",result="failed"}': 2,
      'queen_queue_transactions_per_minute{queue="shop.mail"}': 1,
      'queen_queue_pending_messages{queue="shop.orders"}': 5,
      'queen_queue_partitions{queue="shop.orders"}': 2,
      'queen_group_lag_messages{queue="shop.orders",group="billing"}': 1,
      // It only ever asked for one partition, and registered nowhere: the other one is not its business.
      'queen_group_lag_partitions{queue="shop.orders",group="billing"}': 1,
      'queen_dlq_depth{scope="cluster"}': 1,
      'queen_dlq_depth_by_queue{queue="shop.orders"}': 1,
      queen_kv_expired_not_pruned: 0,
      queen_retention_passes_total: 0,
      queen_pop_fill_wait_total: 0,
    };
    for (const [line, value] of Object.entries(expected)) assert.equal(await live.family(line), value, line);
    for (const line of [
      'queen_batch_rtt_milliseconds{op="push",quantile="0.5"}',
      'queen_batch_rtt_milliseconds{op="pop",quantile="0.99"}',
      'queen_fusion_items_per_batch{op="push"}',
      'queen_queue_pop_lag_milliseconds{queue="shop.orders",stat="avg"}',
      'queen_queue_metrics_age_seconds{queue="shop.orders"}',
      'queen_group_lag_seconds{queue="shop.orders",group="billing"}',
      'queen_admission_txn_per_train',
    ]) {
      assert.ok(((await live.family(line)) ?? -1) > 0, line);
    }
    assert.equal(await live.family('queen_dlq_depth_by_queue{queue="shop.mail"}'), undefined);
  });

  await t.test('a refresh for those who cannot wait', async () => {
    await live.client.push([{ queue: 'shop.mail', payload: 'late' }]);
    const pending = async () =>
      (await live.get('/api/v1/status/queues?queue=shop.mail')).queues[0].messages.pending;
    assert.equal(await pending(), 1);
    const { status, body } = await live.ask('POST', '/api/v1/stats/refresh');
    assert.deepEqual([status, body.engine, body.segPartitions, body.queues], [200, 'segments', 3, 2]);
    assert.equal(await pending(), 2);
  });

  await t.test('a time that has not begun is empty', async () => {
    for (const path of ['queue-lag', 'queue-ops', 'queue-parked-replicas', 'retention']) {
      for (const query of [
        'from=2100-01-01',
        'from=2100-01-01&to=2100-01-02',
        'to=9999-12-31',
        'from=9999-12-31',
      ]) {
        const answer = await live.get(`/api/v1/analytics/${path}?${query}`);
        assert.deepEqual(answer.series ?? answer, [], `${path}?${query}`);
      }
    }
  });

  await t.test('what cannot be read is refused by name', async () => {
    for (const [query, field] of [
      ['from=yesterday', 'from'],
      ['to=x', 'to'],
      ['from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z', 'from'],
      ['from=2001-01-01', 'from'],
    ]) {
      for (const path of ['analytics/queue-ops', 'analytics/workload', 'status', 'status/analytics']) {
        const { status, body } = await live.ask('GET', `/api/v1/${path}?${query}`);
        assert.deepEqual([status, body.field], [400, field], `${path}?${query}`);
      }
    }
    const long = await live.get(
      '/api/v1/analytics/queue-ops?from=2026-01-01T00:00:00Z&to=2026-12-31T00:00:00Z',
    );
    assert.equal(long.bucketMinutes, 360);
  });
});
