/** Traces over HTTP. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULT_TENANT } from '../../packages/broker/src/engine/types.ts';
import { createAccess } from '../../packages/broker/src/http/access/access.ts';
import { StoreError } from '../../packages/broker/src/store/errors.ts';
import { tracesByName, tracesOfMessage } from '../../packages/broker/src/store/traces.ts';
import { type Live, openLive } from './live.ts';

interface Trace {
  id: string;
  event_type: string;
  data: unknown;
  consumer_group: string;
  worker_id: string;
  created_at: string;
  trace_names: string[];
}

interface Named extends Trace {
  transaction_id: string;
  partition_id: string;
  queue_name: string;
  partition_name: string;
  message_payload: null;
}

interface Listing<T> {
  traces: T[];
  total: number;
  pagination: { limit: number; offset: number };
}

const TRACES = '/api/v1/traces';

async function partition(live: Live, queue: string, transactionId = 'm'): Promise<string> {
  await live.client.push([{ queue, partition: 'p', transactionId, payload: 1 }]);
  const detail = await live.broker.inspectQueue('00000000-0000-0000-0000-000000000001', queue);
  return detail!.partitions[0]!.id;
}

async function write(live: Live, body: Record<string, unknown>): Promise<string> {
  const answer = await live.ask<{ success: boolean; traceId: string }>('POST', TRACES, body);
  assert.deepEqual([answer.status, answer.body.success], [201, true], JSON.stringify(answer.body));
  assert.match(answer.body.traceId, /^[0-9a-f-]{36}$/);
  return answer.body.traceId;
}

test('written as the client writes them, read by address, oldest first', async (t) => {
  const live = await openLive(t);
  const partitionId = await partition(live, 'q');
  const data = { text: 'picked \u0000 \ud800', n: [1, { a: null }] };
  const first = await write(live, {
    transactionId: 'm',
    partitionId,
    consumerGroup: 'g',
    traceNames: ['order-1', 'order-1', 'all', 5, ''],
    eventType: 'step',
    data,
  });
  const second = await write(live, { transactionId: 'm', partitionId, traceNames: 'one', data: 'bare' });
  await write(live, { transactionId: 'other', partitionId, traceNames: null, data: {} });
  const { status, body } = await live.ask<Listing<Trace>>('GET', `${TRACES}/${partitionId}/m`);
  assert.equal(status, 200);
  const [one, two] = body.traces;
  assert.deepEqual([one!.id, two!.id, body.traces.length], [first, second, 2]);
  assert.match(one!.created_at, /\.\d{6}Z$/);
  assert.equal(typeof one!.worker_id, 'string');
  assert.deepEqual(
    [one!.event_type, one!.data, one!.consumer_group, one!.trace_names],
    ['step', data, 'g', ['all', 'order-1']],
  );
  assert.deepEqual(
    [two!.event_type, two!.data, two!.consumer_group, two!.trace_names],
    ['info', 'bare', '__QUEUE_MODE__', ['one']],
  );
  for (const none of [`${partitionId}/never`, '999/m', 'x/m', `${partitionId}/a%00`]) {
    assert.deepEqual(await live.ask('GET', `${TRACES}/${none}`), { status: 200, body: { traces: [] } }, none);
  }
});

test('data comes back as its text was: no digit of a number is lost', async (t) => {
  const live = await openLive(t);
  const partitionId = await partition(live, 'q');
  const data = '{ "order":12345678901234567890.10, "e":1E400, "twice":1, "twice":2 }';
  const body = `{"data":0, "transactionId":"m", "partitionId":"${partitionId}", "data": ${data} }`;
  const written = await live.ask('POST', TRACES, body);
  assert.equal(written.status, 201, JSON.stringify(written.body));
  const answer = await fetch(`${live.client.url}${TRACES}/${partitionId}/m`);
  assert.ok((await answer.text()).includes(`"data":${data}`));
});

test('an answer has a bound: what has no room in it comes without its data', async (t) => {
  const whole = { id: 'i', eventType: 'e', group: 'g', worker: 'w', createdAtMicros: 0 };
  const trace = { ...whole, data: null, omitted: true, names: [] };
  const live = await openLive(t, {
    face: ({ traces }) => ({
      traces: {
        write: (note) => traces.write(note),
        ofMessage: () => Promise.resolve([trace]),
        byName: traces.byName,
        names: traces.names,
      },
    }),
  });
  const partitionId = await partition(live, 'q');
  for (const n of [1, 2, 3, 4]) {
    await write(live, { transactionId: 'm', partitionId, traceNames: ['x'], data: `${n}${'x'.repeat(97)}` });
  }
  const { db } = live.broker;
  const id = Number(partitionId);
  // A hundred bytes with its quotes, and a name of one: the third one takes it over 250.
  for (const rows of [
    await tracesOfMessage(db, DEFAULT_TENANT, id, 'm', { limit: 10, bytesMax: 250 }),
    await tracesByName(db, DEFAULT_TENANT, 'x', { limit: 10, skip: 0, bytesMax: 250 }),
  ]) {
    assert.deepEqual(
      rows.map(({ data, omitted, names }) => [data?.length, omitted, names]),
      [...Array(3).fill([100, false, ['x']]), [undefined, true, []]],
    );
  }
  const page = { limit: 10, skip: 3, bytesMax: 0 };
  const [last] = await tracesByName(db, DEFAULT_TENANT, 'x', page);
  assert.match(last!.data!, /^"4x/, 'the first one of a page is always whole');
  assert.equal((await tracesOfMessage(db, DEFAULT_TENANT, id, 'm', { limit: 2, bytesMax: 0 })).length, 2);

  const { body } = await live.ask<Listing<Record<string, unknown>>>('GET', `${TRACES}/${partitionId}/m`);
  assert.deepEqual([body.traces[0]!.data, body.traces[0]!.dataOmitted], [null, true]);
});

test('what is missing or wrong', async (t) => {
  const live = await openLive(t, { alone: 'breaks the statements of one process' });
  const good = { transactionId: 'm', partitionId: '1', data: { text: 'x' } };
  const refused = async (body: unknown) => live.ask('POST', TRACES, body);
  for (const body of [
    undefined,
    {},
    [],
    { ...good, transactionId: '' },
    { ...good, partitionId: null },
    { ...good, partitionId: 7 },
  ]) {
    const { status, body: answer } = await refused(body);
    assert.deepEqual(
      [status, answer.error],
      [400, 'transactionId and partitionId are required'],
      JSON.stringify(body),
    );
  }
  for (const data of [undefined, null]) {
    const { status, body } = await refused({ ...good, data });
    assert.deepEqual([status, body.error], [400, 'data is required']);
  }
  for (const more of [
    { traceNames: ['a\u0000'] },
    { traceNames: 'n'.repeat(256) },
    { consumerGroup: 'g\u0001' },
    { transactionId: 'a\u0000' },
    { eventType: 'e'.repeat(1001) },
  ]) {
    assert.equal((await refused({ ...good, ...more })).status, 400, JSON.stringify(more));
  }
  for (const traceNames of [7, { a: 1 }, true])
    assert.equal((await refused({ ...good, traceNames })).status, 201, 'ignored');
  const malformed = await refused({ ...good, partitionId: 'no-number' });
  assert.equal(malformed.status, 500);
  assert.match(String(malformed.body.error), /^trace failed: /);

  const { db } = live.broker;
  const query = db.query;
  db.query = () => Promise.reject(new StoreError('unavailable', 'sql', 'x', { sqlState: '53100' }));
  const failed = await refused(good);
  db.query = query;
  assert.equal(failed.status, 500);
  assert.match(String(failed.body.error), /^trace failed: /);
});

test('by name: pages, totals, and the literal segments come first', async (t) => {
  const live = await openLive(t);
  const partitionId = await partition(live, 'q');
  const ids: string[] = [];
  for (let i = 0; i < 5; i++) {
    ids.push(
      await write(live, {
        transactionId: `m${i % 2}`,
        partitionId,
        traceNames: ['a/b', `only-${i}`],
        data: { i },
      }),
    );
  }
  const page = async (query: string) => {
    const { status, body } = await live.ask<Listing<Named>>(
      'GET',
      `${TRACES}/by-name/${encodeURIComponent('a/b')}${query}`,
    );
    assert.equal(status, 200);
    return body;
  };
  const all = await page('');
  assert.deepEqual(
    all.traces.map(({ id }) => id),
    ids,
  );
  assert.deepEqual([all.total, all.pagination], [5, { limit: 100, offset: 0 }]);
  const { id, created_at, worker_id, ...rest } = all.traces[1]!;
  assert.deepEqual(rest, {
    event_type: 'info',
    data: { i: 1 },
    consumer_group: '__QUEUE_MODE__',
    trace_names: ['a/b', 'only-1'],
    transaction_id: 'm1',
    partition_id: partitionId,
    queue_name: 'q',
    partition_name: 'p',
    message_payload: null,
  });
  const some = await page('?limit=2&offset=3');
  assert.deepEqual(
    [some.traces.map((each) => each.id), some.total, some.pagination],
    [ids.slice(3), 5, { limit: 2, offset: 3 }],
  );
  assert.deepEqual([(await page('?offset=9')).traces, (await page('?offset=9')).total], [[], 5]);
  const none = await live.ask<Listing<Named>>('GET', `${TRACES}/by-name/nobody`);
  assert.deepEqual([none.body.traces, none.body.total], [[], 0]);
});

test('names: the most recently seen first', async (t) => {
  const live = await openLive(t);
  const partitionId = await partition(live, 'q');
  for (const [txn, names] of [
    ['m1', ['a', 'b']],
    ['m1', ['a']],
    ['m2', ['a', 'c']],
    ['m3', ['b']],
  ] as const) {
    await write(live, { transactionId: txn, partitionId, traceNames: names, data: {} });
  }
  const { body } = await live.ask<{ trace_names: Record<string, unknown>[]; total: number }>(
    'GET',
    `${TRACES}/names`,
  );
  assert.deepEqual(
    body.trace_names.map(({ last_seen, ...rest }) => rest),
    [
      { trace_name: 'b', trace_count: 2, message_count: 2 },
      { trace_name: 'a', trace_count: 3, message_count: 2 },
      { trace_name: 'c', trace_count: 1, message_count: 1 },
    ],
  );
  const second = (await live.ask('GET', `${TRACES}/names?limit=1&offset=1`))
    .body as unknown as typeof body & { pagination: unknown };
  assert.deepEqual(
    [second.trace_names[0]!.trace_name, second.total, second.pagination],
    ['a', 3, { limit: 1, offset: 1 }],
  );
});

test('the traces of a deleted queue are only found by their address', async (t) => {
  const live = await openLive(t);
  const partitionId = await partition(live, 'q');
  await write(live, { transactionId: 'm', partitionId, traceNames: ['n'], data: {} });
  await live.ask('DELETE', '/api/v1/resources/queues/q');
  assert.equal((await live.ask<Listing<Trace>>('GET', `${TRACES}/${partitionId}/m`)).body.traces.length, 1);
  assert.equal((await live.ask('GET', `${TRACES}/by-name/n`)).body.total, 0);
  assert.equal((await live.ask('GET', `${TRACES}/names`)).body.total, 0);
  await write(live, { transactionId: 'm', partitionId: '424242', data: {} });
});

test('with several tenants a foreign partition is none, and nothing of it is seen', async (t) => {
  const access = createAccess({ verifier: null, skipPaths: [], tenancy: true });
  const live = await openLive(t, { settings: { tenancy: true }, server: { access } });
  const partitionId = await partition(live, 'q');
  await write(live, { transactionId: 'm', partitionId, traceNames: ['n'], data: {} });
  const headers = { 'x-queen-tenant': '11111111-1111-4111-8111-111111111111' };
  for (const id of [partitionId, '4242', 'nonsense']) {
    const { status, body } = await live.ask(
      'POST',
      TRACES,
      { transactionId: 'm', partitionId: id, data: {} },
      headers,
    );
    assert.deepEqual([status, body.success, body.error], [404, false, 'Message not found'], id);
  }
  assert.deepEqual((await live.ask('GET', `${TRACES}/${partitionId}/m`, undefined, headers)).body, {
    traces: [],
  });
  assert.equal((await live.ask('GET', `${TRACES}/by-name/n`, undefined, headers)).body.total, 0);
  assert.equal((await live.ask('GET', `${TRACES}/names`, undefined, headers)).body.total, 0);
});
