/** GET /api/v1/messages, and one message in detail. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseSealingKey } from '../../packages/broker/src/log/envelope.ts';
import { hashTransactionIds } from '../../packages/broker/src/log/hash.ts';
import { type Live, openLive, sql } from './live.ts';

interface Row {
  id: string | null;
  transactionId: string | null;
  txnHash: string | null;
  partitionId: string;
  queuePath: string;
  queue: string;
  partition: string;
  namespace: string;
  task: string;
  status: string;
  queueStatus: string | null;
  busStatus: { consumedBy: number; totalGroups: number };
  traceId: string | null;
  producerSub: string | null;
  payloadAvailable: boolean;
  segment: { seq: number; frameIdx: number };
  createdAt: string;
  leaseExpiresAt: string | null;
  data: unknown;
  payload: unknown;
  isEncrypted: boolean;
  error?: string;
}

interface Page {
  messages: Row[];
  mode: { hasQueueMode: boolean; busGroupsCount: number; type: string };
  total: number;
}

interface Detail extends Omit<Row, 'txnHash' | 'segment'> {
  errorMessage: string | null;
  retryCount: number;
  consumerGroups: { name: string; group: string; consumed: boolean; leaseExpiresAt: string | null }[];
  mode: Page['mode'];
  queueConfig: Record<string, unknown>;
}

async function list(live: Live, query = ''): Promise<Page> {
  const { status, body } = await live.ask<Page>('GET', `/api/v1/messages${query}`);
  assert.equal(status, 200, JSON.stringify(body));
  assert.equal(body.total, body.messages.length);
  return body;
}

async function detail(live: Live, partitionId: string, transactionId: string) {
  return live.ask<Detail>('GET', `/api/v1/messages/${partitionId}/${encodeURIComponent(transactionId)}`);
}

const ids = ({ messages }: Page) => messages.map(({ transactionId }) => transactionId);
const all = { subscriptionMode: 'all' };

function push(live: Live, queue: string, partition: string, names: readonly string[]) {
  return live.client.push(
    names.map((transactionId) => ({ queue, partition, transactionId, payload: { m: transactionId } })),
  );
}

test('a row, the order, pages', async (t) => {
  const live = await openLive(t);
  await push(live, 'sales.eu', 'p', ['m0', 'm1']);
  await push(live, 'sales.eu', 'r', ['n0']);
  await push(live, 'sales.eu', 'p', ['m2']);
  const page = await list(live);
  assert.deepEqual(ids(page), ['m2', 'n0', 'm1', 'm0']);
  assert.deepEqual(page.mode, { hasQueueMode: false, busGroupsCount: 0, type: 'none' });
  const { id, partitionId, createdAt, ...row } = page.messages[2]!;
  assert.match(String(id), /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  assert.match(partitionId, /^\d+$/);
  assert.match(createdAt, /\.\d{6}Z$/);
  assert.deepEqual(row, {
    transactionId: 'm1',
    txnHash: hashTransactionIds(['m1']).toString('hex'),
    queuePath: 'sales.eu/p',
    queue: 'sales.eu',
    partition: 'p',
    namespace: 'sales',
    task: 'eu',
    status: 'pending',
    queueStatus: null,
    busStatus: { consumedBy: 0, totalGroups: 0 },
    traceId: null,
    producerSub: null,
    payloadAvailable: true,
    segment: { seq: 0, frameIdx: 1 },
    offset: 1,
    leaseExpiresAt: null,
    isEncrypted: false,
    data: { m: 'm1' },
    payload: { m: 'm1' },
  });
  assert.deepEqual(ids(await list(live, '?limit=2')), ['m2', 'n0']);
  assert.deepEqual(ids(await list(live, '?limit=2&offset=1')), ['n0', 'm1']);
  assert.deepEqual(ids(await list(live, '?offset=3')), ['m0']);
  assert.deepEqual(ids(await list(live, '?offset=9')), []);
  assert.equal((await list(live, '?limit=0')).total, 1);
});

test('filters: queue, partition, namespace, task, time', async (t) => {
  const live = await openLive(t);
  await push(live, 'sales.eu', 'p', ['a']);
  await push(live, 'sales.us', 'p', ['b']);
  await push(live, 'plain', 'x', ['c']);
  for (const [query, expected] of [
    ['?queue=sales.eu', ['a']],
    ['?partition=p', ['b', 'a']],
    ['?namespace=sales', ['b', 'a']],
    ['?ns=sales&task=us', ['b']],
    ['?task=eu', ['a']],
    ['?queue=plain&partition=p', []],
    ['?queue=unknown', []],
  ] as const) {
    assert.deepEqual(ids(await list(live, query)), expected, query);
  }
  for (const bad of ['?status=done', '?limit=many', '?from=x', '?offset=1.5']) {
    assert.equal((await live.ask('GET', `/api/v1/messages${bad}`)).status, 400, bad);
  }
  const [row] = (await list(live, '?queue=plain')).messages;
  const minute = `${row!.createdAt.slice(0, 16)}:00Z`;
  assert.deepEqual(
    ids(await list(live, `?queue=plain&from=${minute}&to=${minute}`)),
    ['c'],
    'the minute of `to` counts in full',
  );
  assert.deepEqual(ids(await list(live, `?queue=plain&from=${row!.createdAt}`)), ['c']);
  await live.database.advanceClock(3_700);
  assert.deepEqual(ids(await list(live)), [], 'the last hour is the default');
  await push(live, 'plain', 'x', ['d', 'e']);
  assert.deepEqual(ids(await list(live)), ['e', 'd']);
  assert.deepEqual(ids(await list(live, `?from=${row!.createdAt}`)), ['e', 'd', 'c']);
  assert.deepEqual(ids(await list(live, `?from=2020-01-01&to=${minute}`)), ['c', 'b', 'a']);
});

test('the status follows cursors, leases and dead letters; what a group has done', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', ['m0', 'm1', 'm2', 'm3', 'm4', 'm5']);
  const [m0] = await live.client.pop('q', { consumerGroup: 'g', ...all, batch: 1 });
  await live.client.ack(m0!);
  const [m1] = await live.client.pop('q', { consumerGroup: 'g', batch: 1 });
  await live.client.ack(m1!, 'dlq', { error: 'broken' });
  const held = await live.client.pop('q', { consumerGroup: 'g', batch: 2, leaseSeconds: 30 });
  assert.equal(held.length, 2);
  const statuses = async (query = '') =>
    Object.fromEntries((await list(live, query)).messages.map((row) => [row.transactionId, row.status]));
  const expected = {
    m0: 'completed',
    m1: 'dead_letter',
    m2: 'processing',
    m3: 'processing',
    m4: 'pending',
    m5: 'pending',
  };
  assert.deepEqual(await statuses(), expected);
  for (const status of ['completed', 'dead_letter', 'processing', 'pending']) {
    const only = Object.fromEntries(Object.entries(expected).filter(([, each]) => each === status));
    assert.deepEqual(await statuses(`?status=${status}`), only, status);
    assert.deepEqual(
      Object.keys(await statuses(`?status=${status}&limit=1`)),
      [Object.keys(only).at(-1)],
      status,
    );
  }
  const held2 = (await list(live, '?status=processing')).messages[0]!;
  assert.match(String(held2.leaseExpiresAt), /Z$/);

  // A second group, further behind, decides; consumers without a group do not.
  const [first] = await live.client.pop('q', { consumerGroup: 'h', ...all, batch: 1 });
  await live.client.ack(first!);
  await live.client.pop('q', { autoAck: true, batch: 3 });
  const page = await list(live);
  assert.deepEqual(page.mode, { hasQueueMode: true, busGroupsCount: 2, type: 'hybrid' });
  const of = (txn: string) => page.messages.find(({ transactionId }) => transactionId === txn)!;
  assert.deepEqual(
    [of('m0').status, of('m0').busStatus, of('m0').queueStatus],
    ['completed', { consumedBy: 2, totalGroups: 2 }, 'completed'],
  );
  assert.deepEqual(
    [of('m1').status, of('m1').busStatus, of('m1').queueStatus],
    ['dead_letter', { consumedBy: 1, totalGroups: 2 }, 'completed'],
  );
  assert.deepEqual([of('m4').status, of('m4').queueStatus], ['pending', 'pending']);
  await live.database.advanceClock(60);
  assert.equal((await list(live, '?status=processing')).total, 0, 'a lease that ran out holds nothing');
});

test('modes: queue, bus, none', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', ['a']);
  await live.client.pop('q');
  assert.deepEqual((await list(live)).mode, { hasQueueMode: true, busGroupsCount: 0, type: 'queue' });
  await push(live, 'bus', 'p', ['a']);
  await live.client.pop('bus', { consumerGroup: 'g', ...all });
  assert.equal((await list(live, '?queue=bus')).mode.type, 'bus');
  assert.equal((await list(live, '?queue=nothing')).mode.type, 'none');
});

test('pages across many segments neither repeat nor lose a message', async (t) => {
  const live = await openLive(t);
  for (let i = 0; i < 40; i++) await push(live, 'q', `p${i % 3}`, [`a${i}`, `b${i}`]);
  await live.client.pop('q', { consumerGroup: 'g', ...all, partitions: 0, batch: 30, autoAck: true });
  for (const status of ['', '&status=pending', '&status=completed']) {
    const whole = ids(await list(live, `?limit=1000${status}`));
    const paged: (string | null)[] = [];
    for (let offset = 0; ; offset += 7) {
      const page = ids(await list(live, `?limit=7&offset=${offset}${status}`));
      paged.push(...page);
      if (page.length < 7) break;
    }
    assert.deepEqual(paged, whole, status);
    assert.equal(whole.length, { '': 80, '&status=pending': 50, '&status=completed': 30 }[status]);
  }
});

test('one message in detail', async (t) => {
  const live = await openLive(t);
  await live.client.configure('q', { leaseTime: 77 });
  await push(live, 'q', 'p', ['m0', 'a/b ü']);
  const [{ partitionId } = { partitionId: '' }] = (await list(live)).messages;
  const held = await live.client.pop('q', { consumerGroup: 'g', ...all, batch: 2 });
  await live.client.pop('q', { consumerGroup: 'h', ...all, autoAck: true });
  const { status, body } = await detail(live, partitionId, 'a/b ü');
  assert.equal(status, 200);
  const { createdAt, id, leaseExpiresAt, consumerGroups, queueConfig, ...rest } = body;
  assert.deepEqual([id, createdAt], [held[1]!.id, held[1]!.createdAt]);
  assert.deepEqual(
    consumerGroups.map(({ name, group, consumed, leaseExpiresAt: at }) => [name, group, consumed, at]),
    [
      ['g', 'g', false, leaseExpiresAt],
      ['h', 'h', true, null],
    ],
  );
  assert.match(String(leaseExpiresAt), /Z$/);
  for (const key of ['leaseTime', 'retryLimit', 'ttl', 'maxSize', 'retentionSeconds'])
    assert.ok(key in queueConfig, key);
  assert.equal(queueConfig.leaseTime, 77);
  assert.deepEqual(rest, {
    transactionId: 'a/b ü',
    traceId: null,
    producerSub: null,
    offset: 1,
    partitionId,
    partition: 'p',
    isEncrypted: false,
    queue: 'q',
    queuePath: 'q/p',
    namespace: '',
    task: '',
    status: 'processing',
    errorMessage: null,
    retryCount: 0,
    mode: { hasQueueMode: false, busGroupsCount: 2, type: 'bus' },
    data: { m: 'a/b ü' },
    payload: { m: 'a/b ü' },
  });
  for (const [partition, txn] of [
    [partitionId, 'never'],
    ['999', 'm0'],
    ['x', 'm0'],
    [partitionId, 'a\u0000'],
  ] as const) {
    const missing = await detail(live, partition, txn);
    assert.deepEqual(
      [missing.status, (missing.body as unknown as { error: string }).error],
      [404, 'Message not found'],
      txn,
    );
  }
});

test('a dead letter tells why; and stands for the message when retention has taken it', async (t) => {
  const live = await openLive(t);
  await live.client.configure('q', { retentionEnabled: true, retentionSeconds: 10 });
  await push(live, 'q', 'p', ['m']);
  const [message] = await live.client.pop('q', { consumerGroup: 'g', ...all });
  await live.client.ack(message!, 'dlq', { error: 'no such customer' });
  const { partitionId } = message!;
  const before = (await detail(live, partitionId, 'm')).body;
  assert.deepEqual(
    [before.status, before.errorMessage, before.retryCount],
    ['dead_letter', 'no such customer', 0],
  );
  assert.equal(before.consumerGroups[0]!.consumed, true);
  await live.database.advanceClock(4_000);
  await live.broker.retention.pass();
  const after = (await detail(live, partitionId, 'm')).body;
  assert.deepEqual([after.status, after.data, after.id], ['dead_letter', { m: 'm' }, before.id]);
});

test('a message whose hash is purged is not listed, but found by looking at the segments', async (t) => {
  const live = await openLive(t);
  await live.client.configure('q', { dedupWindowSeconds: 0 });
  for (let i = 0; i < 20; i++) await push(live, 'q', 'p', [`m${i}`, `n${i}`]);
  await push(live, 'q', 'p', ['m3']);
  const { partitionId } = (await list(live)).messages[0]!;
  await live.database.advanceClock(2_000);
  await push(live, 'q', 'p', ['young']);
  await live.broker.retention.pass();
  assert.deepEqual(ids(await list(live, '?from=2020-01-01')), ['young']);
  for (const name of ['m0', 'n7', 'young']) {
    const { status, body } = await detail(live, partitionId, name);
    assert.deepEqual([status, body.data], [200, { m: name }], name);
  }
  const messages = await live.broker.messages.get('00000000-0000-0000-0000-000000000001', partitionId, 'm3');
  const [newest] = await sql<{ at: number }>(
    live.broker.db,
    'SELECT queen.micros(created_at) AS at FROM queen.log_segments WHERE base_offset = 40',
  );
  assert.equal(messages!.createdAtMicros, newest!.at, 'the newest of several');
  assert.equal((await detail(live, partitionId, 'never')).status, 404);
});

test('a corrupt segment: 500 for its messages, named in the list, and nobody else is concerned', async (t) => {
  const live = await openLive(t);
  await push(live, 'q', 'p', ['a', 'b']);
  await push(live, 'q', 'p', ['c']);
  await push(live, 'q', 'r', ['d']);
  const { partitionId } = (await list(live, '?partition=p')).messages[0]!;
  const damage = (where: string) =>
    sql(
      live.broker.db,
      `UPDATE queen.log_segments SET blob = set_byte(blob, length(blob) - 5, get_byte(blob, length(blob) - 5) # 1) WHERE ${where}`,
    );
  await damage(`base_offset = 0 AND partition_id = ${Number(partitionId)}`);
  const { status, body } = await detail(live, partitionId, 'a');
  assert.deepEqual([status, (body as unknown as { error: string }).error], [500, 'frame decode failed']);
  assert.equal((await detail(live, partitionId, 'c')).status, 200);
  const page = await list(live);
  assert.deepEqual(
    page.messages.map((row) => [row.transactionId, row.payloadAvailable, row.error]),
    [
      ['d', true, undefined],
      ['c', true, undefined],
      [null, false, 'frame decode failed'],
      [null, false, 'frame decode failed'],
    ],
  );
  // Where only a walk could tell, a segment that cannot be read may be the one.
  await sql(live.broker.db, 'DELETE FROM queen.log_txns');
  await sql(
    live.broker.db,
    'UPDATE queen.log_partitions SET txns_start = last_offset + 1, oldest_txn_at = NULL',
  );
  assert.equal((await detail(live, partitionId, 'c')).status, 200);
  assert.equal((await detail(live, partitionId, 'never')).status, 500);
});

test('payloads byte for byte; sealed ones opened, by the right key only', async (t) => {
  const live = await openLive(t, { settings: { sealingKey: parseSealingKey('ab'.repeat(32)) } });
  await live.client.configure('secret', { encryptionEnabled: true });
  const payload = '{"b":1,"a":123456789012345678901234567890,"a":2}';
  for (const queue of ['secret', 'open']) {
    await live.ask(
      'POST',
      '/api/v1/push',
      `{"items":[{"queue":"${queue}","transactionId":"m","payload":${payload}}]}`,
    );
  }
  const text = await (await fetch(`${live.client.url}/api/v1/messages`)).text();
  assert.equal(text.split(`"data":${payload},"payload":${payload}`).length, 3);
  const page = JSON.parse(text) as Page;
  assert.deepEqual(
    page.messages.map(({ queue, isEncrypted }) => [queue, isEncrypted]),
    [
      ['open', false],
      ['secret', true],
    ],
  );
  const stranger = await openLive(t, {
    database: live.database,
    settings: { sealingKey: parseSealingKey('cd'.repeat(32)) },
  });
  const [sealed] = (await list(stranger, '?queue=secret')).messages;
  assert.deepEqual(
    [Object.keys(sealed!.data as object), sealed!.isEncrypted],
    [['encrypted', 'iv', 'authTag'], true],
  );
});
