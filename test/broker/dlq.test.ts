/** Dead letters over HTTP: list, purge, delete, retry, replay. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { DeadLetters } from '../../packages/broker/src/engine/dlq/dead_letters.ts';
import { createAccess } from '../../packages/broker/src/http/access/access.ts';
import { parseSealingKey } from '../../packages/broker/src/log/envelope.ts';
import { StoreError } from '../../packages/broker/src/store/errors.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { until } from '../kit/until.ts';
import { failStatement, type Live, openLive, payloads, popRequest, sql } from './live.ts';

interface Letter {
  id: string;
  transactionId: string;
  partitionId: string;
  queue: string;
  partition: string;
  consumerGroup: string;
  errorMessage: string | null;
  retryCount: number;
  data: unknown;
  producerSub: null;
  createdAt: string;
  failedAt: string;
  isEncrypted?: boolean;
  dataOmitted?: boolean;
}

interface Listing {
  messages: Letter[];
  pagination: { limit: number; offset: number };
  total: number;
}

interface Replayed {
  success: boolean;
  result: string;
  dlqId: string;
  queue: string;
  partition: string;
  consumerGroup: string;
  originalTransactionId: string;
  replayedAs: {
    status: string;
    message_id: string;
    transaction_id: string;
    offset: number;
    queueName: string;
  };
  dlqRowRemoved: boolean;
  error?: string;
}

const ZERO = '00000000-0000-0000-0000-000000000000';

/** Pushes messages and dead-letters all of them, for each group. */
async function bury(
  live: Live,
  queue: string,
  ids: readonly string[],
  options: { partition?: string; groups?: string[]; error?: string; payload?: (id: string) => unknown } = {},
): Promise<void> {
  const { partition = 'p', groups = ['g'], error = 'broken', payload = (id) => ({ id }) } = options;
  const { client } = live;
  await client.push(
    ids.map((transactionId) => ({ queue, partition, transactionId, payload: payload(transactionId) })),
  );
  for (const consumerGroup of groups) {
    for (let left = ids.length; left > 0; left--) {
      const [message] = await client.pop(
        queue,
        { consumerGroup, subscriptionMode: 'all', batch: 1 },
        partition,
      );
      const verdict = await client.ack(message!, 'dlq', { error });
      assert.ok(verdict.success && verdict.dlq, JSON.stringify(verdict));
    }
  }
}

async function list(live: Live, query = ''): Promise<Listing> {
  const { status, body } = await live.client.call<Listing>('GET', `/api/v1/dlq${query}`);
  assert.equal(status, 200, JSON.stringify(body));
  return body;
}

const ids = (listing: Listing) => listing.messages.map(({ transactionId }) => transactionId);

test('the list: what a row says, filters, pages', async (t) => {
  const live = await openLive(t);
  await bury(live, 'a', ['a1', 'a2', 'a3'], { groups: ['g', 'h'], error: 'no such customer' });
  await bury(live, 'b', ['b1'], { partition: 'other' });
  const all = await list(live);
  assert.deepEqual(ids(all), ['b1', 'a3', 'a2', 'a1', 'a3', 'a2', 'a1'], 'the newest failure first');
  assert.deepEqual([all.total, all.pagination], [7, { limit: 100, offset: 0 }]);
  const { id, partitionId, createdAt, failedAt, ...row } = all.messages[1]!;
  assert.match(id, /^[0-9a-f-]{36}$/);
  assert.match(partitionId, /^\d+$/);
  assert.equal(createdAt, failedAt);
  assert.match(failedAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  assert.deepEqual(row, {
    transactionId: 'a3',
    queue: 'a',
    partition: 'p',
    consumerGroup: 'h',
    errorMessage: 'no such customer',
    retryCount: 0,
    data: { id: 'a3' },
    producerSub: null,
  });

  assert.deepEqual(ids(await list(live, '?queue=b')), ['b1']);
  assert.deepEqual(ids(await list(live, '?queue=a&consumerGroup=g')), ['a3', 'a2', 'a1']);
  assert.deepEqual(ids(await list(live, '?partition=other')), ['b1']);
  assert.deepEqual(ids(await list(live, '?queue=a&partition=other')), []);
  assert.deepEqual(ids(await list(live, '?queue=nothing')), []);
  const second = await list(live, '?queue=a&limit=2&offset=1');
  assert.deepEqual(ids(second), ['a2', 'a1']);
  assert.deepEqual([second.total, second.pagination], [6, { limit: 2, offset: 1 }]);
  const beyond = await list(live, '?queue=a&offset=50');
  assert.deepEqual([beyond.messages, beyond.total], [[], 6]);

  const times = all.messages.map((letter) => letter.failedAt);
  assert.deepEqual(ids(await list(live, `?from=${times[1]}`)), ['b1', 'a3']);
  assert.deepEqual(ids(await list(live, `?to=${times[5]}`)), ['a2', 'a1']);
  assert.deepEqual(ids(await list(live, `?from=${times[5]}&to=${times[4]}&queue=a`)), ['a3', 'a2']);
  assert.deepEqual((await list(live, '?from=2999-01-01')).messages, []);
  for (const bad of ['?from=yesterday', '?limit=x', '?queue=a&queue=b']) {
    const { status } = await live.client.call('GET', `/api/v1/dlq${bad}`);
    assert.equal(status, 400, bad);
  }
});

test('one dead letter by its id, and lists without payloads', async (t) => {
  const live = await openLive(t);
  await bury(live, 'a', ['a1', 'a2']);
  const bare = await list(live, '?data=false&limit=1');
  const [row] = bare.messages;
  assert.deepEqual([bare.total, row!.data, row!.dataOmitted], [2, null, true]);
  const one = await live.ask('GET', `/api/v1/dlq/${row!.id}`);
  const { dataOmitted, ...rest } = { ...row!, data: { id: 'a2' } };
  assert.deepEqual([one.status, one.body], [200, rest]);
  assert.equal((await live.client.call('GET', '/api/v1/dlq?data=perhaps')).status, 400);
  for (const id of [ZERO, 'nothing', row!.transactionId]) {
    const { status, body } = await live.ask('GET', `/api/v1/dlq/${id}`);
    assert.deepEqual([status, body.code], [404, 'message_not_found'], id);
  }
});

test('payloads come back byte for byte, and outlive the log and its retention', async (t) => {
  const live = await openLive(t);
  const payload = '{"b":1,"a":123456789012345678901234567890,"a":2,"t":"\\u00e9\\/\\u0000\\ud800"}';
  await live.ask(
    'POST',
    '/api/v1/push',
    `{"items":[{"queue":"raw","transactionId":"m","payload":${payload}}]}`,
  );
  await live.ask('POST', '/api/v1/configure', {
    queue: 'raw',
    options: { retentionEnabled: true, retentionSeconds: 1 },
  });
  const [message] = await live.client.pop('raw', { consumerGroup: 'g', subscriptionMode: 'all' });
  assert.ok((await live.client.ack(message!, 'dlq')).dlq);
  await live.database.advanceClock(3_600);
  await live.broker.retention.pass();
  const [left] = await sql<{ n: number }>(
    live.broker.db,
    'SELECT count(*)::int AS n FROM queen.log_segments',
  );
  assert.equal(left!.n, 0, 'retention took the message');
  const response = await fetch(`${live.client.url}/api/v1/dlq`);
  assert.ok((await response.text()).includes(`"data":${payload}`));
  const { messages } = await list(live);
  const { body } = await live.ask<Replayed>('POST', `/api/v1/dlq/${messages[0]!.id}/replay`);
  assert.equal(body.result, 'moved');
  const pop = await fetch(`${live.client.url}/api/v1/pop/queue/raw?consumerGroup=g`);
  assert.ok((await pop.text()).includes(`"data":${payload}`));
});

test('purge: a queue, one group of it, nothing; the queue must be named', async (t) => {
  const live = await openLive(t);
  await bury(live, 'a', ['1', '2'], { groups: ['g', 'h'] });
  await bury(live, 'b', ['1']);
  for (const path of ['/api/v1/dlq', '/api/v1/dlq?consumerGroup=g', '/api/v1/dlq?queue=']) {
    const { status, body } = await live.ask('DELETE', path);
    assert.deepEqual([status, body.error], [400, 'queue is required'], path);
  }
  const group = await live.ask('DELETE', '/api/v1/dlq?queue=a&consumerGroup=g');
  assert.deepEqual(group, {
    status: 200,
    body: { success: true, deleted: 2, queue: 'a', consumerGroup: 'g' },
  });
  assert.equal((await list(live)).total, 3);
  const queue = await live.ask('DELETE', '/api/v1/dlq?queue=a&consumerGroup=');
  assert.deepEqual(queue.body, { success: true, deleted: 2, queue: 'a', consumerGroup: null });
  for (const name of ['a', 'unknown', 'b&consumerGroup=nobody']) {
    assert.equal((await live.ask('DELETE', `/api/v1/dlq?queue=${name}`)).body.deleted, 0, name);
  }
  assert.equal((await list(live)).total, 1);
});

test('deleting a message removes the dead letters of all its groups and leaves the log alone', async (t) => {
  const live = await openLive(t);
  await bury(live, 'q', ['a/b ü', 'keep'], { groups: ['g', 'h'] });
  const { partitionId } = (await list(live)).messages[0]!;
  const path = `/api/v1/messages/${partitionId}/${encodeURIComponent('a/b ü')}`;
  assert.deepEqual(await live.ask('DELETE', path), {
    status: 200,
    body: { success: true, partitionId, transactionId: 'a/b ü', message: 'Message deleted successfully' },
  });
  assert.deepEqual(ids(await list(live)), ['keep', 'keep']);
  for (const gone of [
    path,
    `/api/v1/messages/${partitionId}/never`,
    '/api/v1/messages/x/keep',
    '/api/v1/messages/999/keep',
  ]) {
    const { status, body } = await live.ask('DELETE', gone);
    assert.deepEqual([status, body.success, body.error], [404, false, 'Message not found'], gone);
    assert.ok('partitionId' in body && 'transactionId' in body && 'message' in body);
  }
  assert.equal((await live.client.pop('q', { consumerGroup: 'third', subscriptionMode: 'all' })).length, 2);
});

test('retry moves the newest dead letter of a message to the tail; all groups see it', async (t) => {
  const live = await openLive(t);
  await bury(live, 'q', ['m1', 'm2'], { groups: ['g', 'h'] });
  const before = await list(live);
  const [ofH, ofG] = before.messages.filter(({ transactionId }) => transactionId === 'm1');
  assert.deepEqual([ofH!.consumerGroup, ofG!.consumerGroup], ['h', 'g']);
  const { partitionId } = ofH!;
  const path = `/api/v1/messages/${partitionId}/m1/retry`;
  const { status, body } = await live.ask<Replayed>('POST', path);
  assert.equal(status, 200);
  const { message_id, ...replayedAs } = body.replayedAs;
  assert.match(message_id, /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  assert.deepEqual(
    { ...body, replayedAs },
    {
      success: true,
      result: 'moved',
      queue: 'q',
      partition: 'p',
      consumerGroup: 'h',
      dlqId: ofH!.id,
      originalTransactionId: 'm1',
      replayedAs: { index: 0, transaction_id: `dlq:${ofH!.id}`, queueName: 'q', status: 'queued', offset: 2 },
      dlqRowRemoved: true,
    },
  );
  for (const consumerGroup of ['g', 'h']) {
    const [message] = await live.client.pop('q', { consumerGroup });
    assert.deepEqual(
      [message!.data, message!.transactionId, message!.id],
      [{ id: 'm1' }, `dlq:${ofH!.id}`, message_id],
    );
    assert.ok((await live.client.ack(message!)).success);
  }
  // The other group's row is next, then there is none.
  assert.equal((await live.ask<Replayed>('POST', path)).body.dlqId, ofG!.id);
  for (const missing of [path, `/api/v1/messages/${partitionId}/m9/retry`, '/api/v1/messages/abc/m1/retry']) {
    const gone = await live.ask('POST', missing);
    assert.deepEqual(
      [gone.status, gone.body.success, gone.body.error],
      [404, false, 'Message not found'],
      missing,
    );
    assert.ok('partitionId' in gone.body && 'transactionId' in gone.body);
  }
  assert.deepEqual(ids(await list(live)), ['m2', 'm2']);
  await assertLogInvariants(live.broker.db, { windowsNeverRaised: true });
});

test('replay by id: to other destinations, which are made when they are missing', async (t) => {
  const live = await openLive(t);
  await bury(live, 'src', ['1', '2', '3', '4']);
  const rows = (await list(live)).messages;
  const to = [
    [undefined, 'src', 'p'],
    [{}, 'src', 'p'],
    [{ queue: ' fixed.up ' }, 'fixed.up', 'p'],
    [{ queue: 'dest', partition: 'new' }, 'dest', 'new'],
  ] as const;
  for (const [i, [body, queue, partition]] of to.entries()) {
    const answer = await live.ask<Replayed>('POST', `/api/v1/dlq/${rows[i]!.id.toUpperCase()}/replay`, body);
    assert.equal(answer.status, 200, JSON.stringify(answer.body));
    assert.deepEqual(
      [answer.body.queue, answer.body.partition, answer.body.replayedAs.queueName],
      [queue, partition, queue],
    );
    assert.equal(answer.body.replayedAs.transaction_id, `dlq:${rows[i]!.id}`);
  }
  assert.deepEqual((await list(live)).messages, []);
  const [made] = await live.client.pop('dest', { consumerGroup: 'x', subscriptionMode: 'all' }, 'new');
  assert.deepEqual(made!.data, { id: '1' });
});

test('replay refuses blank and bad destinations, and answers 404 for whatever is no row', async (t) => {
  const live = await openLive(t);
  await bury(live, 'q', ['m']);
  const { id } = (await list(live)).messages[0]!;
  for (const body of [
    { queue: '' },
    { queue: '   ' },
    { partition: ' ' },
    { queue: 7 },
    { queue: 'a\u0001' },
    [],
    '"x"',
    '{',
  ]) {
    const { status } = await live.ask('POST', `/api/v1/dlq/${id}/replay`, body);
    assert.equal(status, 400, JSON.stringify(body));
  }
  for (const unknown of [ZERO, 'nonsense', '123', `${id}0`, '%00']) {
    const { status, body } = await live.ask('POST', `/api/v1/dlq/${unknown}/replay`, { queue: 'elsewhere' });
    assert.deepEqual(
      [status, body.success, body.result, body.error],
      [404, false, 'gone', 'Message not found'],
      unknown,
    );
    assert.equal(typeof body.dlqId, 'string');
  }
  assert.equal((await list(live)).total, 1);
  const queues = await live.broker.listQueues('00000000-0000-0000-0000-000000000001');
  assert.deepEqual(
    queues.map(({ name }) => name),
    ['q'],
    'nothing was made for a row that is not there',
  );
});

test('a dead timer is refused, a dead letter without a message too; both stay', async (t) => {
  const live = await openLive(t);
  await bury(live, 'q', ['m']);
  const { partitionId } = (await list(live)).messages[0]!;
  await sql(
    live.broker.db,
    `INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", transaction_id, payload)
     VALUES ($1::bigint, '__timer__', -1, 'timer', 'null'), ($1::bigint, 'g', 0, 'lost', NULL)`,
    [Number(partitionId)],
  );
  const rows = (await list(live)).messages;
  for (const name of ['timer', 'lost']) {
    const { id } = rows.find(({ transactionId }) => transactionId === name)!;
    for (const path of [`/api/v1/dlq/${id}/replay`, `/api/v1/messages/${partitionId}/${name}/retry`]) {
      const { status, body } = await live.ask('POST', path);
      assert.deepEqual([status, body.success, body.dlqRowRemoved], [400, false, false], path);
    }
  }
  assert.equal((await list(live)).total, 3);
});

test('a guessed id in the destination keeps the row: the match does not prove that it is this message', async (t) => {
  const live = await openLive(t);
  await bury(live, 'q', ['m']);
  const { id } = (await list(live)).messages[0]!;
  await live.client.push([{ queue: 'q', partition: 'p', transactionId: `dlq:${id}`, payload: 'guess' }]);
  const { status, body } = await live.ask<Replayed>('POST', `/api/v1/dlq/${id}/replay`);
  assert.deepEqual([status, body.success, body.result, body.dlqRowRemoved], [200, true, 'duplicate', false]);
  assert.deepEqual(
    [body.replayedAs.status, body.replayedAs.message_id, body.replayedAs.offset],
    ['duplicate', ZERO, 1],
  );
  assert.equal((await list(live)).total, 1);
  // Where the destination has no window there is no probe.
  await live.client.configure('free', { dedupWindowSeconds: 0 });
  await live.client.push([{ queue: 'free', partition: 'p', transactionId: `dlq:${id}`, payload: 'guess' }]);
  assert.equal(
    (await live.ask<Replayed>('POST', `/api/v1/dlq/${id}/replay`, { queue: 'free' })).body.result,
    'moved',
  );
});

test('push maintenance: 503, and the row stays', async (t) => {
  const live = await openLive(t, {
    face: ({ db, admission, wake, dedup, sealing }) => ({
      deadLetters: new DeadLetters({
        db,
        admission,
        announcer: wake,
        dedup,
        sealing,
        zstdLevel: 1,
        pushPaused: () => true,
      }),
    }),
  });
  await bury(live, 'q', ['m']);
  const { id, partitionId } = (await list(live)).messages[0]!;
  for (const path of [`/api/v1/dlq/${id}/replay`, `/api/v1/messages/${partitionId}/m/retry`]) {
    const { status, body } = await live.ask('POST', path);
    assert.deepEqual(
      [status, body.success, body.result, body.dlqRowRemoved],
      [503, false, 'maintenance', false],
      path,
    );
    assert.equal(typeof body.error, 'string');
  }
  assert.equal((await list(live)).total, 1);
});

test('a failed move says whether the row is still there', async (t: TestContext) => {
  const cases = [
    ['dlq_replay', new StoreError('unavailable', 'timeout', 'cancelled', { sqlState: '57014' }), false],
    ['dlq_replay', new StoreError('in_doubt', 'connection', 'lost'), null],
    ['dlq_get', new StoreError('unavailable', 'sql', 'x', { sqlState: '53100' }), false],
  ] as const;
  const live = await openLive(t, { alone: 'breaks a statement of one process' });
  await bury(live, 'q', ['m']);
  const { id, partitionId } = (await list(live)).messages[0]!;
  for (const [name, error, removed] of cases) {
    const heal = failStatement(live, name, error);
    const { status, body } = await live.ask('POST', `/api/v1/dlq/${id}/replay`);
    heal();
    assert.deepEqual([status, body.success, body.dlqRowRemoved], [500, false, removed], name);
  }
  const heal = failStatement(
    live,
    'dlq_find',
    new StoreError('unavailable', 'sql', 'x', { sqlState: '53100' }),
  );
  const lookup = await live.ask('POST', `/api/v1/messages/${partitionId}/m/retry`);
  assert.equal(lookup.status, 500);
  assert.match(String(lookup.body.error), /^dlq lookup failed: /);
  heal();
  assert.equal((await live.ask('POST', `/api/v1/dlq/${id}/replay`)).status, 200);
});

const KEY = parseSealingKey('ab'.repeat(32));
const OTHER = parseSealingKey('cd'.repeat(32));

test('encryption: lists open, the destination decides how it is stored', async (t) => {
  const live = await openLive(t, { settings: { sealingKey: KEY } });
  const { db } = live.broker;
  await live.client.configure('secret', { encryptionEnabled: true });
  await live.client.configure('open');
  await bury(live, 'secret', ['s1', 's2', 's3'], { payload: () => ({ card: 4711 }) });
  const [stored] = await sql<{ payload: Buffer }>(db, 'SELECT payload FROM queen.log_dlq LIMIT 1');
  assert.match(stored!.payload.toString(), /^\{"encrypted":/, 'it lies there sealed');
  const rows = (await list(live)).messages;
  assert.deepEqual([rows[0]!.data, rows[0]!.isEncrypted], [{ card: 4711 }, true]);

  const plain = await live.ask<Replayed>('POST', `/api/v1/dlq/${rows[0]!.id}/replay`, { queue: 'open' });
  assert.equal(plain.body.result, 'moved');
  const back = await live.ask<Replayed>('POST', `/api/v1/dlq/${rows[1]!.id}/replay`);
  assert.equal(back.body.result, 'moved');
  for (const queue of ['open', 'secret']) {
    const [message] = await live.client
      .pop(queue, { consumerGroup: 'x', subscriptionMode: 'all', batch: 10 })
      .then((all) => all.slice(-1));
    assert.deepEqual(message!.data, { card: 4711 }, queue);
  }
  const fetched = await live.broker.records.fetch({
    tenant: '00000000-0000-0000-0000-000000000001',
    entries: [{ queue: 'open', partition: 'p', offset: 0, maxBytes: 1000 }],
    maxWaitMs: 0,
    minBytes: 1,
    signal: null,
  });
  assert.equal(fetched[0]!.records[0]!.payload.toString(), '{"card":4711}');

  await bury(live, 'open', ['o1'], { partition: 'clear', payload: () => ({ pin: 1 }) });
  const [clear] = (await list(live, '?queue=open')).messages;
  assert.equal(clear!.isEncrypted, undefined);
  assert.equal(
    (
      await live.ask<Replayed>('POST', `/api/v1/dlq/${clear!.id}/replay`, {
        queue: 'secret',
        partition: 'fresh',
      })
    ).status,
    200,
  );
  const detail = await live.broker.messages.get(
    '00000000-0000-0000-0000-000000000001',
    await partitionOf(live, 'secret', 'fresh'),
    `dlq:${clear!.id}`,
  );
  assert.deepEqual([detail!.sealed, detail!.payload!.toString()], [true, '{"pin":1}']);

  // The same rows at a broker with another key: what it cannot open moves as it is, and the right key opens it later.
  const stranger = await openLive(t, { database: live.database, settings: { sealingKey: OTHER } });
  const [last] = (await list(stranger, '?queue=secret')).messages;
  assert.deepEqual(Object.keys(last!.data as object), ['encrypted', 'iv', 'authTag']);
  assert.equal(last!.isEncrypted, undefined);
  assert.equal(
    (
      await stranger.ask<Replayed>('POST', `/api/v1/dlq/${last!.id}/replay`, {
        queue: 'open',
        partition: 'later',
      })
    ).body.result,
    'moved',
  );
  const [opened] = await live.client.pop('open', { consumerGroup: 'y', subscriptionMode: 'all' }, 'later');
  assert.deepEqual(opened!.data, { card: 4711 });
});

test('a payload that only looks sealed comes back unchanged; without a key nothing goes into an encrypting queue', async (t) => {
  const live = await openLive(t, { settings: { sealingKey: KEY } });
  const fake = { encrypted: 'AAAA', iv: `${'A'.repeat(22)}==`, authTag: `${'B'.repeat(22)}==` };
  await bury(live, 'q', ['m', 'n'], { payload: () => fake });
  const rows = (await list(live)).messages;
  assert.deepEqual([rows[0]!.data, rows[0]!.isEncrypted], [fake, undefined]);
  assert.equal((await live.ask<Replayed>('POST', `/api/v1/dlq/${rows[0]!.id}/replay`)).body.result, 'moved');
  const [message] = await live.client
    .pop('q', { consumerGroup: 'x', subscriptionMode: 'all', batch: 10 })
    .then((all) => all.slice(-1));
  assert.deepEqual(message!.data, fake);

  const keyless = await openLive(t, { database: live.database });
  await live.client.configure('secret', { encryptionEnabled: true });
  const { status, body } = await keyless.ask('POST', `/api/v1/dlq/${rows[1]!.id}/replay`, {
    queue: 'secret',
  });
  assert.deepEqual(
    [status, body.success, body.code, body.dlqRowRemoved],
    [400, false, 'encryption_required', false],
  );
  assert.equal((await list(live)).total, 1);
});

async function partitionOf(live: Live, queue: string, name: string): Promise<string> {
  const detail = await live.broker.inspectQueue('00000000-0000-0000-0000-000000000001', queue);
  return detail!.partitions.find((partition) => partition.name === name)!.id;
}

test('of concurrent replays of a row one moves it, over two brokers and several destinations', async (t) => {
  const a = await openLive(t);
  const b = await openLive(t, { database: a.database });
  const rows = Array.from({ length: 6 }, (_, i) => `m${i}`);
  await bury(a, 'q', rows);
  for (const [round, { id }] of (await list(a)).messages.entries()) {
    // Even rounds meet at one partition, odd ones at different ones.
    const tries = Array.from({ length: 8 }, (_, i) =>
      (i % 2 ? a : b).ask<Replayed>('POST', `/api/v1/dlq/${id}/replay`, round % 2 ? { queue: `d${i}` } : {}),
    );
    const answers = await Promise.all(tries);
    const moved = answers.filter(({ body }) => body.result === 'moved');
    assert.equal(moved.length, 1, JSON.stringify(answers));
    for (const { status, body } of answers) {
      if (body.result !== 'moved') assert.deepEqual([status, body.result], [404, 'gone']);
    }
  }
  const { messages } = await assertLogInvariants(a.broker.db, { windowsNeverRaised: true });
  const stored = [...messages.values()]
    .flat()
    .filter(({ transactionId }) => transactionId.startsWith('dlq:'));
  assert.equal(stored.length, rows.length, 'one message a row, wherever it went');
  assert.equal((await list(a)).total, 0);
});

test('replays, purges and deletions that race the deletion of their queue end, and leave nothing half done', async (t) => {
  const a = await openLive(t);
  const b = await openLive(t, { database: a.database });
  for (let round = 0; round < 4; round++) {
    const names = Array.from({ length: 6 }, (_, i) => `m${i}`);
    await bury(a, 'src', names, { groups: ['g', 'h'] });
    await bury(b, 'dst', names);
    const rows = (await list(a)).messages;
    const work: Promise<{ status: number; body: Record<string, unknown> }>[] = [];
    for (const [i, { id, queue, partitionId, transactionId }] of rows.entries()) {
      const to = queue === 'src' ? { queue: 'dst' } : { queue: 'src' };
      work.push((i % 2 ? a : b).ask('POST', `/api/v1/dlq/${id}/replay`, to));
      if (i % 5 === 0) work.push(a.ask('DELETE', `/api/v1/messages/${partitionId}/${transactionId}`));
    }
    work.push(
      a.ask('DELETE', '/api/v1/resources/queues/src'),
      b.ask('DELETE', '/api/v1/resources/queues/dst'),
    );
    work.push(b.ask('DELETE', '/api/v1/dlq?queue=src'), a.ask('DELETE', '/api/v1/dlq?queue=dst'));
    for (const { status, body } of await Promise.all(work)) {
      assert.ok([200, 404].includes(status), JSON.stringify(body));
    }
    await a.ask('DELETE', '/api/v1/resources/queues/src');
    await a.ask('DELETE', '/api/v1/resources/queues/dst');
    const [orphans] = await sql<{ n: number }>(a.broker.db, 'SELECT count(*)::int AS n FROM queen.log_dlq');
    assert.equal(orphans!.n, 0);
  }
});

test('a replay wakes a pop that is parked on the destination, on another broker too', async (t) => {
  const a = await openLive(t);
  const b = await openLive(t, { database: a.database });
  await bury(a, 'q', ['m']);
  const { id } = (await list(a)).messages[0]!;
  await b.client.pop('dest', { consumerGroup: 'x' });
  const parked = b.broker.pop(popRequest('dest', 'x', { waitMs: 20_000 }));
  await until('the pop is parked', async () => b.broker.wake.parking.parked > 0);
  const started = performance.now();
  await a.ask('POST', `/api/v1/dlq/${id}/replay`, { queue: 'dest' });
  assert.deepEqual(payloads(await parked), { p: [{ id: 'm' }] });
  assert.ok(performance.now() - started < 5_000);
});

test('another tenant sees, moves and removes nothing', async (t) => {
  const tenancy = createAccess({ verifier: null, skipPaths: [], tenancy: true });
  const live = await openLive(t, { settings: { tenancy: true }, server: { access: tenancy } });
  await bury(live, 'q', ['m']);
  const { id, partitionId } = (await list(live)).messages[0]!;
  const foreign = { 'x-queen-tenant': '11111111-1111-4111-8111-111111111111' };
  const asked = async (method: string, path: string, body?: unknown) => live.ask(method, path, body, foreign);
  assert.deepEqual((await asked('GET', '/api/v1/dlq')).body.messages, []);
  assert.equal((await asked('DELETE', '/api/v1/dlq?queue=q')).body.deleted, 0);
  assert.equal((await asked('DELETE', `/api/v1/messages/${partitionId}/m`)).status, 404);
  assert.equal((await asked('POST', `/api/v1/messages/${partitionId}/m/retry`)).status, 404);
  const replay = await asked('POST', `/api/v1/dlq/${id}/replay`, { queue: 'mine' });
  assert.deepEqual([replay.status, replay.body.result], [404, 'gone']);
  assert.equal((await asked('GET', `/api/v1/messages/${partitionId}/m`)).status, 404);
  assert.equal((await list(live)).total, 1);
});
