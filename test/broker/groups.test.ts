/** Consumer groups over HTTP: lag, subscription, seek, deletion. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAccess } from '../../packages/broker/src/http/access/access.ts';
import { StoreError } from '../../packages/broker/src/store/errors.ts';
import { until } from '../kit/until.ts';
import type { Message } from './client.ts';
import { failStatement, type Live, openLive, payloads, popRequest, sql } from './live.ts';

interface Standing {
  name: string;
  topics: string[];
  queueName: string;
  members: number;
  partitionCursors: number;
  partitionsWithLag: number;
  totalLag: number;
  maxTimeLag: number;
  state: string;
  storage: string;
  subscriptionMode: string | null;
  subscriptionTimestamp: string | null;
  subscriptionCreatedAt: string | null;
  conflation: boolean;
}

const GROUPS = '/api/v1/consumer-groups';

async function push(
  live: Live,
  queue: string,
  partition: string,
  from: number,
  count: number,
): Promise<void> {
  // One message a segment: seeks by time have something to choose from.
  for (let i = from; i < from + count; i++) {
    await live.client.push([{ queue, partition, transactionId: `${partition}${i}`, payload: i }]);
  }
}

async function standing(live: Live, name: string): Promise<Standing[]> {
  const { status, body } = await live.ask<Standing[]>('GET', GROUPS);
  assert.equal(status, 200);
  return body.filter((each) => each.name === name);
}

function seek(live: Live, group: string, queue: string, body: unknown, partition?: string) {
  const on = partition === undefined ? '' : `/partitions/${encodeURIComponent(partition)}`;
  return live.ask('POST', `${GROUPS}/${group}/queues/${queue}${on}/seek`, body);
}

const all = { subscriptionMode: 'all' };

async function take(live: Live, queue: string, group: string, partition?: string): Promise<unknown[]> {
  const messages = await live.client.pop(
    queue,
    { consumerGroup: group, ...all, batch: 1000, partitions: 0, autoAck: true },
    partition,
  );
  return messages.map(({ data }) => data);
}

test('the list: one element a group and queue, lag in messages and seconds', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'a', 0, 3);
  await push(live, 'q', 'b', 0, 1);
  assert.deepEqual((await live.ask('GET', GROUPS)).body, []);
  const [first] = await live.client.pop('q', { consumerGroup: 'g', ...all, batch: 1 }, 'a');
  await live.client.ack(first!);
  await live.client.pop('q', { consumerGroup: 'g', ...all, batch: 1 });
  const [row] = await standing(live, 'g');
  const { subscriptionTimestamp, subscriptionCreatedAt, maxTimeLag, ...rest } = row!;
  assert.deepEqual(rest, {
    name: 'g',
    topics: ['q'],
    queueName: 'q',
    members: 2,
    partitionCursors: 2,
    partitionsWithLag: 2,
    totalLag: 3,
    state: 'Stable',
    storage: 'segments',
    subscriptionMode: 'all',
    conflation: false,
  });
  assert.equal(subscriptionTimestamp, '1970-01-01T00:00:00.000000Z');
  assert.match(String(subscriptionCreatedAt), /^\d{4}-.*Z$/);
  assert.ok(maxTimeLag >= 0 && maxTimeLag < 120);

  await live.database.advanceClock(400);
  await push(live, 'q', 'c', 0, 1);
  const [late] = await standing(live, 'g');
  assert.deepEqual(
    [late!.state, late!.totalLag, late!.partitionsWithLag, late!.partitionCursors],
    ['Lagging', 4, 3, 2],
  );
  assert.ok(late!.maxTimeLag >= 400 && late!.maxTimeLag < 520, String(late!.maxTimeLag));
  await seek(live, 'g', 'q', { toEnd: true });
  const [idle] = await standing(live, 'g');
  assert.deepEqual([idle!.state, idle!.totalLag, idle!.maxTimeLag, idle!.members], ['Stable', 0, 0, 3]);
});

test('pages of the list, and of the partitions of a group on a queue', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'a', 0, 3);
  await push(live, 'other', 'a', 0, 1);
  await take(live, 'q', 'g');
  await take(live, 'other', 'h');
  await push(live, 'q', 'b', 0, 1);
  await push(live, 'q', 'B2', 0, 2);
  await push(live, 'q', 'a', 3, 1);
  await live.client.pop('q', { consumerGroup: 'g', ...all, batch: 2 }, 'B2');

  const page = async (query: string) => {
    const { status, body } = await live.ask<{
      groups: Standing[];
      pagination: { limit: number; offset: number; total: number };
    }>('GET', `${GROUPS}?${query}`);
    assert.equal(status, 200, JSON.stringify(body));
    return { ...body, names: body.groups.map(({ name, queueName }) => `${name} ${queueName}`) };
  };
  const first = await page('limit=10');
  assert.deepEqual(first.names, ['g q', 'h other']);
  // It grows between the two.
  const settled = (rows: Standing[]) => rows.map((row) => ({ ...row, maxTimeLag: 0 }));
  assert.deepEqual(settled(first.groups), settled((await live.ask<Standing[]>('GET', GROUPS)).body));
  assert.deepEqual(first.pagination, { limit: 10, offset: 0, total: 2 });
  assert.deepEqual((await page('limit=1&offset=1')).names, ['h other']);
  assert.deepEqual((await page('limit=9&sort=lag')).names, ['h other', 'g q']);
  assert.deepEqual((await page('limit=9&sort=lag&order=desc')).names, ['g q', 'h other']);
  assert.deepEqual((await page('limit=9&sort=name&order=desc')).names, ['h other', 'g q']);
  assert.deepEqual((await page('limit=9&search=OTH')).names, ['h other']);
  assert.deepEqual((await page('limit=9&group=g')).names, ['g q']);
  assert.deepEqual((await page('limit=9&queue=q')).names, ['g q']);
  assert.deepEqual((await page('limit=9&queue=nothing')).pagination.total, 0);

  const on = async (query = '', group = 'g', queue = 'q') => {
    const { status, body } = await live.ask<{
      totals: Record<string, number>;
      partitions: {
        partition: string;
        partitionId: string;
        timeLagSeconds: number;
        workerId: string | null;
      }[];
      pagination: { limit: number; offset: number; total: number };
    }>('GET', `${GROUPS}/${group}/queues/${queue}${query}`);
    assert.equal(status, 200, JSON.stringify(body));
    return { ...body, names: body.partitions.map(({ partition }) => partition) };
  };
  const whole = await on('?order=desc');
  const { maxTimeLag, ...totals } = whole.totals;
  assert.deepEqual(totals, { partitions: 3, partitionCursors: 2, partitionsWithLag: 3, totalLag: 4 });
  assert.ok(maxTimeLag! >= 0 && maxTimeLag! < 120);
  assert.deepEqual(whole.names, ['B2', 'a', 'b'], 'by lag, then by name');
  const shapes = whole.partitions.map(({ partitionId, timeLagSeconds, workerId, ...row }) => {
    assert.match(partitionId, /^\d+$/);
    assert.ok(timeLagSeconds < 120);
    assert.equal(workerId !== null, row.partition === 'B2');
    return row;
  });
  const common = { hasCursor: true, totalConsumed: 0, leaseActive: false };
  assert.deepEqual(shapes, [
    { ...common, partition: 'B2', nextOffset: 0, endOffset: 2, offsetLag: 2, leaseActive: true },
    { ...common, partition: 'a', nextOffset: 3, endOffset: 4, offsetLag: 1, totalConsumed: 3 },
    { ...common, partition: 'b', nextOffset: 0, endOffset: 1, offsetLag: 1, hasCursor: false },
  ]);
  assert.deepEqual((await on('?sort=name')).names, ['B2', 'a', 'b']);
  assert.deepEqual((await on('?sort=name&order=desc')).names, ['b', 'a', 'B2']);
  const part = await on('?search=b&sort=name&limit=1&offset=1');
  assert.deepEqual([part.names, part.pagination], [['b'], { limit: 1, offset: 1, total: 2 }]);
  assert.deepEqual(part.totals, whole.totals, 'sums are over all of them');
  const beyond = await on('?offset=50');
  assert.deepEqual([beyond.names, beyond.pagination.total, beyond.totals.totalLag], [[], 3, 4]);
  assert.deepEqual((await on('', 'nobody')).totals.partitions, 0);
  assert.deepEqual((await on('', 'g', 'nothing')).names, []);
  for (const bad of ['?limit=5&sort=age', '?limit=x', '?limit=5&order=up', '/g/queues/q?sort=age']) {
    assert.equal((await live.ask('GET', `${GROUPS}${bad}`)).status, 400, bad);
  }
});

test('a group without consumption is dead, one without a registration says so, a conflating one too', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'a', 0, 2);
  await live.client.pop('q', { consumerGroup: 'fresh' });
  await live.client.pop('q', { consumerGroup: 'pinned', ...all, batch: 1 }, 'a');
  await live.client.pop('q', { consumerGroup: 'newest', ...all, conflation: true });
  await live.client.pop('empty', { consumerGroup: 'early' });
  await live.client.pop('q');
  assert.equal((await standing(live, 'fresh'))[0]!.state, 'Dead');
  const [pinned] = await standing(live, 'pinned');
  assert.deepEqual(
    [
      pinned!.subscriptionMode,
      pinned!.subscriptionTimestamp,
      pinned!.subscriptionCreatedAt,
      pinned!.totalLag,
    ],
    [null, null, null, 2],
  );
  assert.equal((await standing(live, 'newest'))[0]!.conflation, true);
  const [early] = await standing(live, 'early');
  assert.deepEqual([early!.queueName, early!.members, early!.totalLag], ['empty', 0, 0]);
  assert.equal((await standing(live, '__QUEUE_MODE__')).length, 1);
});

test('the time lag is the age of the segment that holds the next message', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'a', 0, 1);
  await live.database.advanceClock(1_000);
  await push(live, 'q', 'a', 1, 1);
  await live.database.advanceClock(2_000);
  const [first] = await live.client.pop('q', { consumerGroup: 'g', ...all, batch: 1 });
  const near = (value: number, expected: number) =>
    assert.ok(value >= expected && value < expected + 60, `${value} instead of ${expected}`);
  near((await standing(live, 'g'))[0]!.maxTimeLag, 3_000);
  await live.client.ack(first!);
  near((await standing(live, 'g'))[0]!.maxTimeLag, 2_000);

  const lagging = async (query: string) =>
    (await live.ask<Record<string, unknown>[]>('GET', `${GROUPS}/lagging${query}`)).body;
  const [row] = await lagging('?minLagSeconds=1500');
  const { time_lag_seconds, oldest_unconsumed_at, lag_hours, partition_id, ...rest } = row!;
  near(Number(time_lag_seconds), 2_000);
  assert.equal(lag_hours, Math.round(Number(time_lag_seconds) / 36) / 100);
  assert.match(String(oldest_unconsumed_at), /Z$/);
  assert.match(String(partition_id), /^\d+$/);
  assert.deepEqual(rest, {
    consumer_group: 'g',
    queue_name: 'q',
    partition_name: 'a',
    worker_id: null,
    offset_lag: 1,
    last_consumed_at: null,
  });
  assert.deepEqual(await lagging(''), [], 'an hour is the default');
  assert.deepEqual(await lagging('?minLagSeconds=2500'), []);
  assert.equal((await live.ask('GET', `${GROUPS}/lagging?minLagSeconds=x`)).status, 400);
});

test('one group in detail', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'a', 0, 3);
  await push(live, '__proto__', 'b', 0, 1);
  const [held] = await live.client.pop('q', { consumerGroup: 'g', ...all, batch: 2, leaseSeconds: 30 });
  await live.client.pop('__proto__', { consumerGroup: 'g', ...all, autoAck: true });
  const text = await (await fetch(`${live.client.url}${GROUPS}/g`)).text();
  const detail = JSON.parse(text) as Record<
    string,
    { conflation: boolean; partitions: Record<string, unknown>[] }
  >;
  assert.deepEqual(Object.keys(detail), ['__proto__', 'q']);
  const { timeLagSeconds, ...row } = detail.q!.partitions[0]!;
  assert.ok(Number(timeLagSeconds) >= 0);
  assert.equal(detail.q!.conflation, false);
  assert.deepEqual(row, {
    partition: 'a',
    workerId: held!.leaseId,
    lastConsumedAt: null,
    totalConsumed: 0,
    offsetLag: 3,
    leaseActive: true,
  });
  for (const unknown of ['nobody', 'a%01', '%F0%9F%90%9D']) {
    assert.deepEqual(await live.ask('GET', `${GROUPS}/${unknown}`), { status: 200, body: {} }, unknown);
  }
});

test('the lag is read in one statement each', async (t) => {
  const live = await openLive(t, { alone: 'counts the statements of one process' });
  for (const partition of ['a', 'b', 'c', 'd']) await push(live, 'q', partition, 0, 1);
  await live.client.pop('q', { consumerGroup: 'g', ...all });
  for (const path of ['', '/lagging?minLagSeconds=0', '/g']) {
    const before = live.broker.db.statementsTotal;
    await live.ask('GET', `${GROUPS}${path}`);
    assert.equal(live.broker.db.statementsTotal - before, 1, path);
  }
});

test('a subscription moves the start on partitions to come, and no cursor', async (t) => {
  const live = await openLive(t);
  const subscribe = (group: string, body: unknown) =>
    live.ask('POST', `${GROUPS}/${group}/subscription`, body);
  await push(live, 'q', 'a', 0, 2);
  await live.client.pop('q', { consumerGroup: 'g', ...all, batch: 1 });
  await live.client.pop('other', { consumerGroup: 'g' });
  for (const body of [
    undefined,
    {},
    { subscriptionTimestamp: null },
    { subscriptionTimestamp: 'soon' },
    { subscriptionTimestamp: 5 },
    [],
  ]) {
    const { status, body: answer } = await subscribe('g', body);
    assert.equal(status, 400, JSON.stringify(body));
    assert.equal(typeof answer.error, 'string');
  }
  const [now] = await sql<{ at: string }>(
    live.broker.db,
    "SELECT to_json(queen.clock() + interval '100 seconds')::text AS at",
  );
  const subscriptionTimestamp = JSON.parse(now!.at) as string;
  assert.deepEqual(await subscribe('g', { subscriptionTimestamp }), {
    status: 200,
    body: { success: true, consumerGroup: 'g', newTimestamp: subscriptionTimestamp, rowsUpdated: 2 },
  });
  assert.deepEqual((await subscribe('never', { subscriptionTimestamp })).body.rowsUpdated, 0);
  assert.equal((await standing(live, 'g'))[0]!.subscriptionMode, 'timestamp');
  await push(live, 'q', 'b', 0, 1);
  await live.database.advanceClock(200);
  await push(live, 'q', 'b', 1, 1);
  assert.deepEqual(
    await take(live, 'q', 'g', 'b'),
    [1],
    'a partition that it met later starts at the instant',
  );
  assert.equal(
    (await standing(live, 'g')).find(({ queueName }) => queueName === 'q')!.totalLag,
    2,
    'the cursor of a stayed',
  );
  const far = await subscribe('g', { subscriptionTimestamp: '9999-12-31T23:59:59Z' });
  assert.equal(far.status, 200);
  assert.equal(
    (await live.ask('GET', GROUPS)).status,
    200,
    'an instant beyond all reason can still be listed',
  );
});

test('seek on a queue: to the end, the beginning, an instant; forward and back', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'a', 0, 2);
  await push(live, 'q', 'b', 10, 1);
  const [between] = await sql<{ at: string }>(live.broker.db, 'SELECT to_json(queen.clock())::text AS at');
  const timestamp = JSON.parse(between!.at) as string;
  await push(live, 'q', 'a', 2, 1);
  assert.deepEqual(
    (await seek(live, 'g', 'q', { toEnd: true })).body,
    {
      success: true,
      consumerGroup: 'g',
      queueName: 'q',
      seekToEnd: true,
      targetTimestamp: null,
      partitionsUpdated: 2,
    },
    'a group that nobody has heard of gets its cursors',
  );
  assert.deepEqual(await take(live, 'q', 'g'), []);
  assert.deepEqual((await seek(live, 'g', 'q', { timestamp })).body, {
    success: true,
    consumerGroup: 'g',
    queueName: 'q',
    seekToEnd: false,
    targetTimestamp: timestamp,
    partitionsUpdated: 2,
  });
  assert.deepEqual(await take(live, 'q', 'g'), [2]);
  const back = await seek(live, 'g', 'q', { toBeginning: true });
  assert.deepEqual([back.status, back.body.seekToBeginning, back.body.seekToEnd], [200, true, false]);
  assert.deepEqual((await take(live, 'q', 'g')).sort(), [0, 1, 10, 2]);
  await seek(live, 'g', 'q', { timestamp: '1999-01-01T00:00:00Z' });
  assert.equal((await take(live, 'q', 'g')).length, 4);
  await seek(live, 'g', 'q', { timestamp: '2999-01-01T00:00:00+02:00' });
  assert.deepEqual(await take(live, 'q', 'g'), []);
  await seek(live, '__QUEUE_MODE__', 'q', { toEnd: true });
  assert.deepEqual(await live.client.pop('q'), []);
});

test('seek on a partition: an offset held within the log, an empty body, its answers', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p/1', 0, 5);
  await push(live, 'q', 'other', 100, 1);
  const answer = await seek(live, 'g', 'q', { offset: 3 }, 'p/1');
  assert.deepEqual(answer, {
    status: 200,
    body: {
      success: true,
      consumerGroup: 'g',
      queueName: 'q',
      partitionName: 'p/1',
      seekToEnd: false,
      targetTimestamp: null,
      targetOffset: 3,
      resumesAt: 3,
      updated: true,
    },
  });
  assert.deepEqual(await take(live, 'q', 'g', 'p/1'), [3, 4]);
  assert.equal((await seek(live, 'g', 'q', { offset: 99 }, 'p/1')).body.resumesAt, 5);
  assert.equal((await seek(live, 'g', 'q', { offset: 0 }, 'p/1')).body.resumesAt, 0);
  await live.client.configure('q', { retentionEnabled: true, retentionSeconds: 50 });
  await live.database.advanceClock(100);
  await push(live, 'q', 'p/1', 5, 1);
  await live.broker.retention.pass();
  assert.equal((await seek(live, 'g', 'q', { offset: 1 }, 'p/1')).body.resumesAt, 5, 'the oldest retained');
  assert.equal((await seek(live, 'g', 'q', { toBeginning: true }, 'p/1')).body.resumesAt, 5);
  for (const body of [undefined, {}, { toEnd: false }]) {
    const end = await seek(live, 'g', 'q', body, 'p/1');
    assert.deepEqual([end.body.seekToEnd, end.body.resumesAt], [true, 6], JSON.stringify(body));
  }
});

test('seeks that are refused', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', 0, 1);
  await live.client.configure('bare');
  const nothing = { status: 400, error: 'Must specify toEnd=true or a timestamp' };
  for (const body of [undefined, {}, { toEnd: false }, { timestamp: null }]) {
    const { status, body: answer } = await seek(live, 'g', 'q', body);
    assert.deepEqual({ status, error: answer.error }, nothing, JSON.stringify(body));
    assert.deepEqual(answer.allowed, ['toEnd', 'toBeginning', 'timestamp']);
  }
  for (const body of [
    { toEnd: true, toBeginning: true },
    { toEnd: true, timestamp: '2020-01-01' },
    { timestamp: 'x' },
    { toEnd: 'yes' },
    { offset: 1 },
    [],
    '{',
  ]) {
    assert.equal((await seek(live, 'g', 'q', body)).status, 400, JSON.stringify(body));
  }
  for (const body of [{ offset: -1 }, { offset: 1.5 }, { offset: '1' }, { offset: 1, toEnd: true }]) {
    assert.equal((await seek(live, 'g', 'q', body, 'p')).status, 400, JSON.stringify(body));
  }
  for (const queue of ['unknown', 'bare']) {
    assert.deepEqual(await seek(live, 'g', queue, { toEnd: true }), {
      status: 404,
      body: {
        success: false,
        error: 'Queue not found or has no partitions',
        code: 'queue_not_found',
        consumerGroup: 'g',
        queueName: queue,
        partitionsUpdated: 0,
      },
    });
  }
  for (const [queue, partition] of [
    ['q', 'nope'],
    ['unknown', 'p'],
    ['q', 'a\u0001'],
  ] as const) {
    const { status, body } = await seek(live, 'g', queue, {}, partition);
    assert.deepEqual([status, body.success, body.error], [404, false, 'Partition not found'], partition);
  }
  const [repairs] = await sql<{ n: number }>(
    live.broker.db,
    'SELECT count(*)::int AS n FROM queen.hotlist_repairs',
  );
  assert.equal(repairs!.n, 0, 'nothing was published');
});

test('a seek ends the lease: late acks are refused, however they come, and the budget starts anew', async (t) => {
  const live = await openLive(t);
  await live.client.configure('q', { retryLimit: 1 });
  await push(live, 'q', 'p', 0, 3);
  const pop = async (): Promise<Message[]> => live.client.pop('q', { consumerGroup: 'g', ...all, batch: 3 });
  for (const failed of await pop().then((messages) => messages.slice(0, 1)))
    await live.client.ack(failed, 'failed');
  const held = await pop();
  assert.equal(held.length, 3);
  await seek(live, 'g', 'q', { offset: 1 }, 'p');
  const [row] = await sql<Record<string, unknown>>(
    live.broker.db,
    `SELECT committed, batch_end, worker_id, lease_expires_at, batch_retry_count, attempt_offset, attempt_count
       FROM queen.log_consumers WHERE consumer_group = 'g'`,
  );
  assert.deepEqual(
    { ...row },
    {
      committed: 0,
      batch_end: null,
      worker_id: null,
      lease_expires_at: null,
      batch_retry_count: 0,
      attempt_offset: null,
      attempt_count: 0,
    },
  );
  const whole = await live.client.ackBatch(held);
  const one = await live.client.ack(held[2]!);
  for (const verdict of [...whole, one]) {
    assert.deepEqual([verdict.success, verdict.error], [false, 'invalid or expired lease']);
  }
  const again = await pop();
  assert.deepEqual(
    again.map(({ data }) => data),
    [1, 2],
  );
  assert.equal(again[0]!.deliveryAttempt, 1);
  const failed = await live.client.ack(again[0]!, 'failed');
  assert.ok(failed.success && !failed.dlq, 'the budget had been spent and is whole again');
});

test('what a seek leaves behind: a repair that widens, no watermark', async (t) => {
  const live = await openLive(t);
  const { db } = live.broker;
  await push(live, 'q', 'a', 0, 1);
  await push(live, 'q', 'b', 0, 1);
  const [queue] = await sql<{ id: number }>(db, "SELECT id FROM queen.queues WHERE name = 'q'");
  await sql(
    db,
    `INSERT INTO queen.consumer_watermarks (queue_id, consumer_group, last_empty_scan_at) VALUES ($1::bigint, 'g', queen.clock())`,
    [queue!.id],
  );
  await sql(
    db,
    `INSERT INTO queen.hotlist_repairs (tenant_id, queue_name, consumer_group, repair_at)
                 VALUES (gen_random_uuid(), 'old', 'g', queen.clock() - interval '61 minutes')`,
  );
  const repair = async () =>
    sql<{ partition: string | null; at: number }>(
      db,
      'SELECT partition_name AS partition, queen.micros(repair_at) AS at FROM queen.hotlist_repairs',
    );
  await seek(live, 'g', 'q', {}, 'a');
  const first = await repair();
  assert.deepEqual(
    first.map(({ partition }) => partition),
    ['a'],
    'and the one that is over an hour old is gone',
  );
  await seek(live, 'g', 'q', {}, 'a');
  const second = await repair();
  assert.equal(second[0]!.partition, 'a');
  assert.ok(second[0]!.at > first[0]!.at, 'every move is a change');
  await seek(live, 'g', 'q', {}, 'b');
  assert.equal((await repair())[0]!.partition, null);
  await seek(live, 'g', 'q', {}, 'b');
  assert.equal((await repair())[0]!.partition, null);
  const [marks] = await sql<{ n: number }>(db, 'SELECT count(*)::int AS n FROM queen.consumer_watermarks');
  assert.equal(marks!.n, 0);
});

test('deleting a group: on one queue, on all, with and without its registration', async (t) => {
  const live = await openLive(t);
  const gone = async (path: string) => {
    const { status, body } = await live.ask('DELETE', `${GROUPS}/${path}`);
    assert.equal(status, 200, path);
    return body;
  };
  await push(live, 'q1', 'a', 0, 2);
  await push(live, 'q1', 'b', 10, 1);
  await push(live, 'q2', 'a', 20, 1);
  for (const queue of ['q1', 'q2']) assert.ok((await take(live, queue, 'g')).length > 0);
  await take(live, 'q1', 'h');

  assert.deepEqual(await gone('g/queues/q1'), {
    success: true,
    consumerGroup: 'g',
    queueName: 'q1',
    deletedPartitions: 2,
    metadataDeleted: true,
  });
  assert.deepEqual(await take(live, 'q2', 'g'), [], 'the other queue is as it was');
  assert.deepEqual(await take(live, 'q1', 'h'), [], 'and the other group');
  assert.deepEqual(
    (await take(live, 'q1', 'g')).sort(),
    [0, 1, 10],
    'first contact with mode all: everything again',
  );

  assert.deepEqual(await gone('g?deleteMetadata=false'), {
    success: true,
    consumerGroup: 'g',
    deletedPartitions: 3,
    metadataDeleted: false,
  });
  const [kept] = await standing(live, 'g');
  assert.deepEqual([kept!.partitionCursors, kept!.subscriptionMode, kept!.totalLag], [0, 'all', 3]);
  const fresh = await live.client.pop('q1', {
    consumerGroup: 'g',
    subscriptionMode: 'new',
    batch: 10,
    partitions: 0,
  });
  assert.equal(fresh.length, 3, 'the registration decides, not what the pop says');

  await gone('g');
  assert.deepEqual(await standing(live, 'g'), []);
  assert.deepEqual(
    await live.client.pop('q1', { consumerGroup: 'g', subscriptionMode: 'new' }),
    [],
    'it registers as new',
  );
  await push(live, 'q1', 'a', 2, 1);
  assert.deepEqual(await take(live, 'q1', 'g'), [2]);
  const late = await live.client.ack(fresh[0]!);
  assert.equal(late.success, false, 'a lease of the deleted cursor is worth nothing');

  for (const path of ['nobody', 'nobody/queues/q1', 'g/queues/unknown', 'nobody?deleteMetadata=0']) {
    assert.equal((await gone(path)).deletedPartitions, 0, path);
  }
  assert.equal((await live.ask('DELETE', `${GROUPS}/g?deleteMetadata=maybe`)).status, 400);
});

test('a deleted group that polls a scope starts anew there too', async (t) => {
  const live = await openLive(t);
  await push(live, 'sales.eu', 'p', 0, 2);
  const discover = () =>
    live.client.popAt('/api/v1/pop', { namespace: 'sales', consumerGroup: 'g', ...all, autoAck: true });
  assert.equal((await discover()).length, 2);
  assert.deepEqual(await discover(), []);
  assert.equal((await live.ask('DELETE', `${GROUPS}/g`)).body.deletedPartitions, 1);
  assert.equal((await discover()).length, 2);
});

test('two brokers: what is moved on one is moved for the pops of the other', async (t) => {
  const a = await openLive(t);
  const b = await openLive(t, { database: a.database });
  await push(a, 'q', 'p', 0, 3);
  assert.equal((await take(b, 'q', 'g')).length, 3);
  assert.deepEqual(await take(b, 'q', 'g'), []);
  const within = async (
    what: string,
    pop: ReturnType<typeof b.broker.pop>,
    move: () => Promise<unknown>,
  ): Promise<Record<string, unknown[]>> => {
    await until('the pop is parked', async () => b.broker.wake.parking.parked > 0);
    const started = performance.now();
    await move();
    const found = payloads(await pop);
    assert.ok(performance.now() - started < 10_000, what);
    return found;
  };
  const parked = (over = {}) =>
    b.broker.pop(popRequest('q', 'g', { waitMs: 25_000, autoAck: true, ...over }));
  const pinned = { scope: { kind: 'partition', queue: 'q', partition: 'p' } } as const;
  assert.deepEqual(
    await within('a parked pop of the queue', parked(), () => seek(a, 'g', 'q', { toBeginning: true })),
    { p: [0, 1, 2] },
  );
  assert.deepEqual(
    await within('a parked pop of the partition', parked(pinned), () =>
      seek(a, 'g', 'q', { offset: 2 }, 'p'),
    ),
    { p: [2] },
  );
  assert.deepEqual(await within('a group that is deleted', parked(), () => a.ask('DELETE', `${GROUPS}/g`)), {
    p: [0, 1, 2],
  });
  assert.deepEqual(await take(a, 'q', 'g'), []);
});

test('two brokers without notifications: a look at the repairs finds what was moved', async (t) => {
  const a = await openLive(t, { engine: { notifications: false } });
  const b = await openLive(t, { database: a.database, engine: { notifications: false } });
  await push(a, 'q', 'p', 0, 2);
  assert.equal((await take(b, 'q', 'g')).length, 2);
  await seek(a, 'g', 'q', { toBeginning: true });
  await b.broker.reseed.pollRepairs();
  assert.equal((await take(b, 'q', 'g')).length, 2);
  await a.ask('DELETE', `${GROUPS}/g/queues/q`);
  await b.broker.reseed.pollRepairs();
  assert.equal((await take(b, 'q', 'g')).length, 2);
});

test('a seek that cannot look at its own repair is seen by the pops of its broker all the same', async (t) => {
  const live = await openLive(t, { alone: 'breaks a statement of one process' });
  await push(live, 'q', 'p', 0, 2);
  assert.equal((await take(live, 'q', 'g')).length, 2);
  const heal = failStatement(live, 'hotlist_repairs', new StoreError('unavailable', 'timeout', 'cancelled'));
  assert.equal((await seek(live, 'g', 'q', { toBeginning: true })).status, 200);
  assert.equal((await take(live, 'q', 'g')).length, 2);
  heal();
});

test('moves that race pushes, pops, acks and the end of the queue: no deadlock, no cursor out of its log', async (t) => {
  const a = await openLive(t);
  const b = await openLive(t, { database: a.database });
  for (let round = 0; round < 3; round++) {
    const names = Array.from({ length: 8 }, (_, i) => `p${i}`);
    await a.client.push(names.map((partition) => ({ queue: 'q', partition, payload: partition })));
    const work: Promise<unknown>[] = [];
    const ok = (answer: Promise<{ status: number; body: unknown }>) =>
      work.push(
        answer.then(({ status, body }) => assert.ok([200, 404].includes(status), JSON.stringify(body))),
      );
    for (let i = 0; i < 6; i++) {
      const [left, right] = i % 2 ? [a, b] : [b, a];
      const group = `g${i % 2}`;
      ok(
        seek(left, group, 'q', [{ toEnd: true }, { toBeginning: true }, { timestamp: '2020-01-01' }][i % 3]),
      );
      ok(seek(right, group, 'q', { offset: 1 }, `p${i}`));
      if (i % 3 === 0) ok(right.ask('DELETE', `${GROUPS}/${group}${i % 2 ? '' : '/queues/q'}`));
      ok(left.ask('POST', `${GROUPS}/${group}/subscription`, { subscriptionTimestamp: '2020-01-01' }));
      work.push(
        left.client.push([...names].reverse().map((partition) => ({ queue: 'q', partition, payload: i }))),
      );
      work.push(
        right.client
          .pop('q', { consumerGroup: group, ...all, partitions: 4, batch: 8 })
          .then(async (messages) => {
            if (messages.length > 0) await right.client.ackBatch(messages);
          }),
      );
    }
    if (round === 2) ok(a.ask('DELETE', '/api/v1/resources/queues/q'));
    await Promise.all(work);
    const wrong = await sql(
      a.broker.db,
      `SELECT c.* FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
        WHERE c.committed > p.last_offset OR c.committed < -1 OR c.batch_end <= c.committed OR c.batch_end > p.last_offset`,
    );
    assert.deepEqual(wrong, []);
  }
});

test('another tenant sees and moves nothing', async (t) => {
  const access = createAccess({ verifier: null, skipPaths: [], tenancy: true });
  const live = await openLive(t, { settings: { tenancy: true }, server: { access } });
  await push(live, 'q', 'p', 0, 1);
  await take(live, 'q', 'g');
  const headers = { 'x-queen-tenant': '11111111-1111-4111-8111-111111111111' };
  const asked = (method: string, path: string, body?: unknown) =>
    live.ask(method, `${GROUPS}${path}`, body, headers);
  assert.deepEqual((await asked('GET', '')).body, []);
  assert.deepEqual((await asked('GET', '/g')).body, {});
  assert.equal((await asked('POST', '/g/queues/q/seek', { toBeginning: true })).status, 404);
  assert.equal((await asked('POST', '/g/queues/q/partitions/p/seek', {})).status, 404);
  assert.equal((await asked('DELETE', '/g')).body.deletedPartitions, 0);
  assert.equal(
    (await asked('POST', '/g/subscription', { subscriptionTimestamp: '2020-01-01' })).body.rowsUpdated,
    0,
  );
  assert.deepEqual(await take(live, 'q', 'g'), []);
});
