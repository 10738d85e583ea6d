/** Timers over HTTP: what each route takes, answers and refuses. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { zstdCompressSync } from 'node:zlib';
import { startBroker } from '../kit/broker.ts';
import { ENGINE_DEFAULTS } from '../kit/engine.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';
import { Client, type Message } from './client.ts';
import { type Live, openLive } from './live.ts';

type Fields = Record<string, unknown>;

interface Refusal {
  error: string;
  code: string;
  reason?: string;
  field?: string;
  message: string;
}

const base64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64');

function schedule(timerKey: string, delayMs: number, more: Fields = {}): Fields {
  return {
    op: 'schedule',
    queue: 'q',
    timerKey,
    delayMs,
    txn: `t-${timerKey}`,
    payload: base64(timerKey),
    ...more,
  };
}

function post<T = { results: Fields[] }>(live: Live, operations: unknown) {
  return live.ask<T>('POST', '/api/v1/timers', { operations });
}

test('schedule, reschedule, cancel, look, list and count, in their exact shapes', async (t) => {
  const live = await openLive(t);
  const posted = await post(live, [
    schedule('k', 3_600_000),
    { op: 'cancel', queue: 'q', timerKey: 'no', txn: 'x' },
  ]);
  assert.equal(posted.status, 200);
  const [made, missing] = posted.body.results;
  assert.match(made!.messageId as string, /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  assert.match(made!.deliverAt as string, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  assert.deepEqual(made, {
    ok: true,
    status: 'scheduled',
    queue: 'q',
    timerKey: 'k',
    txn: 't-k',
    messageId: made!.messageId,
    deliverAt: made!.deliverAt,
  });
  assert.deepEqual(missing, {
    ok: false,
    status: 'absent',
    queue: 'q',
    timerKey: 'no',
    txn: 'x',
    messageId: null,
    deliverAt: null,
  });
  const changed = { op: 'reschedule', partition: 'p', payloadZstd: true };
  const payload = zstdCompressSync(Buffer.from('[1.10]')).toString('base64');
  const [again] = (await post(live, [schedule('k', 60_000, { ...changed, payload })])).body.results;
  assert.equal(again!.status, 'rescheduled');

  const peeked = await live.ask<Fields>('GET', '/api/v1/timers/q/k');
  assert.deepEqual(peeked.body, {
    found: true,
    queue: 'q',
    timerKey: 'k',
    partition: 'p',
    deliverAt: again!.deliverAt,
    txn: 't-k',
    messageId: again!.messageId,
    payload,
    payloadZstd: true,
    encrypted: false,
    producerSub: null,
    attempts: 0,
    lastError: null,
    claimed: false,
    createdAt: peeked.body.createdAt,
    updatedAt: peeked.body.updatedAt,
  });
  assert.deepEqual(await live.ask('GET', '/api/v1/timers/q/none'), {
    status: 200,
    body: { found: false, queue: 'q', timerKey: 'none' },
  });

  await post(
    live,
    ['a/b c', 'ä', 'a%2F'].map((key) => schedule(key, 60_000)),
  );
  const page = await live.ask<{ rows: Fields[]; truncated: boolean; nextAfter: string | null }>(
    'GET',
    '/api/v1/timers/q?limit=2',
  );
  assert.deepEqual(
    [page.body.rows.map((row) => row.timerKey), page.body.truncated, page.body.nextAfter],
    [['a%2F', 'a/b c'], true, 'a/b c'],
  );
  assert.equal('payload' in page.body.rows[0]!, false);
  const rest = await live.ask<{ rows: Fields[] }>(
    'GET',
    `/api/v1/timers/q?mode=list&after=${encodeURIComponent('a/b c')}`,
  );
  assert.deepEqual(
    rest.body.rows.map((row) => row.timerKey),
    ['k', 'ä'],
  );
  assert.deepEqual((await live.ask('GET', '/api/v1/timers/q?mode=count&prefix=a')).body, { count: 2 });
  // A slash of the key may be escaped or not, an escape of the key is escaped.
  for (const at of ['a/b%20c?txn=mine', 'a%2Fb%20c', 'a%252F']) {
    const gone = await live.ask<Fields>('DELETE', `/api/v1/timers/q/${at}`);
    const first = at.endsWith('mine');
    const key = at === 'a%252F' ? 'a%2F' : 'a/b c';
    const status = at === 'a%2Fb%20c' ? 'absent' : 'cancelled';
    const txn = first ? 'mine' : status === 'absent' ? null : 't-a%2F';
    assert.deepEqual(gone, {
      status: 200,
      body: { ok: status === 'cancelled', status, queue: 'q', timerKey: key, txn },
    });
  }
  assert.deepEqual((await post(live, [])).body, { results: [] });
});

test('the queues that have pending timers, in pages', async (t) => {
  const live = await openLive(t);
  const queues = (query: string) => live.ask('GET', `/api/v1/timers${query}`);
  assert.deepEqual((await queues('')).body, { queues: [], nextAfter: null });
  await post(
    live,
    ['q', 'ä', 'a/b', 'q'].map((queue, index) => schedule(`k${index}`, 60_000, { queue })),
  );
  assert.deepEqual((await queues('')).body, { queues: ['a/b', 'q', 'ä'], nextAfter: null });
  assert.deepEqual((await queues('?limit=2')).body, { queues: ['a/b', 'q'], nextAfter: 'q' });
  assert.deepEqual((await queues('?limit=2&after=q')).body, { queues: ['ä'], nextAfter: null });
  assert.equal((await queues('?limit=many')).status, 400);
  assert.equal((await queues(`?after=${'x'.repeat(256)}`)).status, 400);
});

test('what is wrong with a call is named, and nothing of it is done', async (t) => {
  const live = await openLive(t);
  const cases: [unknown, number, string, string, string | undefined][] = [
    [undefined, 400, 'timers_bad_request', 'timers_bad_body', 'operations'],
    [[schedule('a', 0, { op: 'set' })], 400, 'timers_bad_request', 'timers_unknown_op', 'operations[0].op'],
    [[schedule('a', 0, { queue: 7 })], 400, 'timers_bad_request', 'timers_bad_queue', 'operations[0].queue'],
    [
      [schedule('a', 0, { timerKey: null })],
      400,
      'timers_bad_request',
      'timers_bad_key',
      'operations[0].timerKey',
    ],
    [
      [schedule('a', 0, { delayMs: '5' })],
      400,
      'timers_bad_request',
      'timers_bad_delay',
      'operations[0].delayMs',
    ],
    [
      [schedule('a', 0, { txn: undefined })],
      400,
      'timers_bad_request',
      'timers_bad_txn',
      'operations[0].txn',
    ],
    [
      [schedule('a', 0, { payload: { n: 1 } })],
      400,
      'timers_bad_request',
      'timers_bad_payload',
      'operations[0].payload',
    ],
    [
      [schedule('a', 0, { payload: '*' })],
      400,
      'timers_bad_request',
      'timers_bad_payload',
      'operations[0].payload',
    ],
    [
      [schedule('a', 0, { encrypted: 'no' })],
      400,
      'timers_bad_request',
      'timers_bad_field',
      'operations[0].encrypted',
    ],
    [
      [schedule('a', 0), schedule('b', 0, { delaySeconds: 1 })],
      400,
      'timers_bad_request',
      'timers_unknown_field',
      'operations[1].delaySeconds',
    ],
    [
      [schedule('a', 7_776_000_001)],
      403,
      'timer_horizon_exceeded',
      'timer_horizon_exceeded',
      'operations[0].delayMs',
    ],
    [
      [schedule('a', 0, { payload: base64('x'.repeat(1_048_576)) })],
      413,
      'payload_too_large',
      'payload_too_large',
      'operations[0].payload',
    ],
  ];
  for (const owned of ['producerSub', 'messageId', 'tenant', 'deliverAt', 'attempts', '_x']) {
    const field = `operations[0].${owned}`;
    cases.push([
      [schedule('a', 0, { [owned]: 1 })],
      400,
      'timers_bad_request',
      'timers_server_owned_field',
      field,
    ]);
  }
  for (const [operations, status, error, reason, field] of cases) {
    const answer = await post<Refusal>(live, operations);
    assert.deepEqual(
      [answer.status, answer.body.error, answer.body.code, answer.body.reason, answer.body.field],
      [status, error, error, reason, field],
    );
    assert.ok(answer.body.message.length > 10);
  }
  for (const [target, reason, field] of [
    ['q?mode=count', 'timers_count_prefix_required', 'prefix'],
    ['q?mode=count&prefix=a&limit=5', 'timers_count_has_no_pages', 'limit'],
    ['q?mode=count&prefix=a&after=5', 'timers_count_has_no_pages', 'after'],
    [`q?mode=count&prefix=${'x'.repeat(129)}`, 'timers_count_bad_prefix', 'prefix'],
    ['q?mode=all', 'timers_read_mode_unknown', 'mode'],
    ['q?limit=many', 'timers_bad_query', 'limit'],
    ['q/', 'timers_bad_key', 'timerKey'],
    [`${'q'.repeat(256)}/k`, 'timers_bad_queue', 'queue'],
  ] as const) {
    const answer = await live.ask<unknown>('GET', `/api/v1/timers/${target}`);
    const body = answer.body as Refusal;
    assert.deepEqual(
      [answer.status, body.error, body.reason, body.field],
      [400, 'timers_bad_request', reason, field],
      target,
    );
  }
  const torn = await live.ask<unknown>('POST', '/api/v1/timers', '{"operations":[{"op"');
  assert.deepEqual([torn.status, (torn.body as Refusal).error], [400, 'timers_bad_request']);
  assert.deepEqual((await live.ask<{ rows: [] }>('GET', '/api/v1/timers/q')).body.rows, []);
});

test('blocked schedules with cancellations beside them: a hint to send these alone, which is never refused', async (t) => {
  const { timers } = ENGINE_DEFAULTS;
  const settings = { timers: { ...timers, writes: { perSecond: 0.001, burst: 1 } } };
  const live = await openLive(t, { settings, alone: 'rates are counted by each process' });
  const ask = async (operations: Fields[]) => {
    const response = await fetch(`${live.client.url}/api/v1/timers`, {
      method: 'POST',
      body: JSON.stringify({ operations }),
    });
    const { headers } = response;
    const body = (await response.json()) as Refusal & { results: Fields[] };
    return {
      status: response.status,
      hint: headers.get('x-queen-timers-hint'),
      retry: headers.get('retry-after'),
      body,
    };
  };
  const cancel = { op: 'cancel', queue: 'q', timerKey: 'a' };
  assert.equal((await ask([schedule('a', 60_000)])).status, 200);
  const limited = await ask([cancel, schedule('b', 0)]);
  assert.deepEqual([limited.status, limited.body.error], [429, 'rate_limited']);
  assert.match(limited.hint!, /cancel/);
  assert.ok(Number(limited.retry) >= 1);
  assert.equal((await ask([schedule('b', 0)])).hint, null);
  const { status } = await live.ask('POST', '/api/v1/system/kv-timers', { timersSchedule: false });
  assert.equal(status, 200);
  const off = await ask([schedule('b', 0), cancel]);
  assert.deepEqual(
    [off.status, off.body.error, off.hint !== null, off.retry],
    [503, 'timers_disabled', true, '5'],
  );
  assert.equal((await ask([cancel])).body.results[0]!.status, 'cancelled');
});

test('in a transaction: the flat index goes on, and refusals have its shape', async (t) => {
  const live = await openLive(t);
  const run = (sent: Fields) => live.ask<Fields & { results: Fields[] }>('POST', '/api/v1/transaction', sent);
  const push = { type: 'push', items: [{ queue: 'out', payload: 1 }] };
  const kv = [{ op: 'put', ns: 'n', key: 'k', value: 1, forever: true }];
  const { body } = await run({
    operations: [push],
    kv,
    timers: [schedule('k', 60_000), { op: 'cancel', queue: 'q', timerKey: 'x' }],
  });
  const timer = body.results[2]!;
  assert.deepEqual(timer, {
    index: 2,
    type: 'timer',
    opIndex: 0,
    ok: true,
    status: 'scheduled',
    queue: 'q',
    timerKey: 'k',
    txn: 't-k',
    messageId: timer.messageId,
    deliverAt: timer.deliverAt,
  });
  assert.deepEqual(
    [body.results[3]!.index, body.results[3]!.opIndex, body.results[3]!.status],
    [3, 1, 'absent'],
  );
  for (const empty of [null, []]) {
    assert.equal((await run({ operations: [push], kv: empty, timers: empty })).body.success, true);
  }
  const far = await run({ operations: [push], timers: [schedule('far', 7_776_000_001)] });
  assert.deepEqual(
    [far.status, far.body.success, far.body.reason, far.body.failedIndex, far.body.results],
    [200, false, 'timer_horizon_exceeded', 1, []],
  );
  const bad = await run({ operations: [push], timers: [schedule('k', 0, { messageId: 'x' })] });
  assert.deepEqual(
    [bad.status, bad.body.success, bad.body.reason, bad.body.code, bad.body.field],
    [400, false, 'bad_request', 'timers_server_owned_field', 'timers[0].messageId'],
  );
  const large = await run({
    operations: [],
    timers: [schedule('k', 0, { payload: base64('x'.repeat(1_048_576)) })],
  });
  assert.deepEqual([large.status, large.body.reason], [413, 'payload_too_large']);
});

test('two brokers: a timer of one fires by itself, and a parked consumer of the other has it at once', async (t) => {
  const database = await freshDatabase(t);
  const [one, two] = await Promise.all([
    startBroker({ database }, t),
    startBroker({ database, env: { QUEEN_SWEEPER: 'false' } }, t),
  ]);
  const first = new Client(one.url);
  const second = new Client(two.url);
  const metrics = await (await fetch(`${two.url}/metrics/prometheus`)).text();
  for (const line of [
    'queen_timers_due 0',
    'queen_timers_due_capped 0',
    'queen_timers_oldest_late_seconds 0',
    'queen_timers_fire_lag_seconds{tenant="00000000-0000-0000-0000-000000000001",quantile="0.99"} 0',
    'queen_timers_fire_lag_tenants_dropped_total 0',
    'queen_timers_fired_total{outcome="fired"} 0',
    'queen_timers_dlq_total 0',
    'queen_timers_fire_failures_total{kind="permanent",sqlstate="none"} 0',
    'queen_timers_poisoned_total 0',
    'queen_timers_schedule_rejected_total{reason="timers_disabled"} 0',
    'queen_sweeper_cycle_milliseconds 0',
    'queen_sweeper_sleep_milliseconds 0',
    'queen_sweeper_rows_total{phase="timers"} 0',
    'queen_sweeper_skip_locked_total 0',
    'queen_sweeper_phase_skipped_total{phase="timers"} 0',
  ]) {
    assert.ok(metrics.split('\n').includes(line), line);
  }
  await second.pop('q', { consumerGroup: 'g', subscriptionMode: 'new' });
  const waiting = second.pop('q', { consumerGroup: 'g', wait: true, timeout: 20_000 });
  const began = performance.now();
  // The broker that takes it sweeps nothing: the other one has to hear of it.
  const { body } = await second.call<{ results: Fields[] }>('POST', '/api/v1/timers', {
    operations: [schedule('k', 300, { payload: base64({ n: 1 }) })],
  });
  const [message] = (await waiting) as [Message];
  assert.deepEqual(
    [message.id, message.transactionId, message.data],
    [body.results[0]!.messageId, 't-k', { n: 1 }],
  );
  assert.ok(message.createdAt >= (body.results[0]!.deliverAt as string));
  assert.ok(performance.now() - began < 10_000);
  await until('the fire is counted', async () => {
    const now = await (await fetch(`${one.url}/metrics/prometheus`)).text();
    return now.includes('queen_timers_fired_total{outcome="fired"} 1');
  });
  assert.equal((await first.call<Fields>('DELETE', '/api/v1/timers/q/k')).body.status, 'absent');
  assert.equal((await one.stop()).code, 0);
});
