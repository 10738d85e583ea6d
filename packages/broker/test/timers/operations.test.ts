/** Scheduling, replacing and taking back: what is answered, and what is refused before anything is done. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { zstdCompressSync } from 'node:zlib';
import { ENGINE_DEFAULTS } from '../../../../test/kit/engine.ts';
import type { EngineError } from '../../src/engine/errors.ts';
import type { TimerOperation } from '../../src/engine/timers/face.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { parseSealingKey } from '../../src/log/envelope.ts';
import { cancel, OTHER_TENANT, QUEUE, Rig, schedule } from './fixture.ts';

const HOUR = 3_600_000;

test('a timer is scheduled, replaced, taken back, and then absent', async (t) => {
  const rig = await Rig.open(t);
  const [first] = await rig.apply([schedule('k', HOUR)]);
  assert.equal(first!.status, 'scheduled');
  const [now] = await rig.query<{ now: number }>('SELECT queen.micros(queen.clock()) AS now');
  const early = now!.now - (first!.dueAtMicros! - HOUR * 1000);
  assert.ok(early >= 0 && early < 10_000_000, `due ${early} µs from an hour ahead`);

  const changed = schedule('k', 2 * HOUR, {
    transactionId: 'other',
    partition: 'p',
    payload: Buffer.from('[1.10]'),
  });
  const second = await rig.one(changed);
  assert.equal(second.status, 'rescheduled');
  assert.notEqual(second.messageId, first!.messageId);
  const found = await rig.broker.timers.peek(DEFAULT_TENANT, QUEUE, 'k');
  assert.deepEqual(
    [found!.messageId, found!.transactionId, found!.partition, found!.dueAtMicros, String(found!.payload)],
    [second.messageId, 'other', 'p', second.dueAtMicros, '[1.10]'],
  );
  assert.deepEqual([found!.attempts, found!.lastError, found!.claimed], [0, null, false]);
  assert.ok(found!.createdAtMicros < found!.updatedAtMicros);

  const gone = await rig.one(cancel('k'));
  assert.deepEqual(
    [gone.status, gone.transactionId, gone.messageId, gone.dueAtMicros],
    ['cancelled', 'other', null, null],
  );
  const absent = await rig.one(cancel('k', QUEUE, 'mine'));
  assert.deepEqual([absent.status, absent.transactionId], ['absent', 'mine']);
  assert.equal(await rig.broker.timers.peek(DEFAULT_TENANT, QUEUE, 'k'), null);
  await rig.sweep();
  assert.deepEqual(await rig.storedIds(), []);
});

test('a call answers in the order of its operations, and one queue does not know the other', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('b', HOUR)]);
  const results = await rig.apply([
    schedule('z', HOUR),
    cancel('b'),
    schedule('a', HOUR, { queue: 'zz' }),
    cancel('a'),
    schedule('ä', HOUR),
  ]);
  assert.deepEqual(
    results.map(({ status, timerKey, queue }) => `${status} ${queue}/${timerKey}`),
    ['scheduled orders/z', 'cancelled orders/b', 'scheduled zz/a', 'absent orders/a', 'scheduled orders/ä'],
  );
  assert.deepEqual(await rig.apply([]), []);
});

test('malformed operations are refused by name, with nothing done', async (t) => {
  const rig = await Rig.open(t);
  const faults: [TimerOperation[], string, string][] = [
    [[schedule('')], 'timers_bad_key', 'operations[0].timerKey'],
    [[schedule('a\u0000')], 'timers_bad_key', 'operations[0].timerKey'],
    [[schedule('\ud800')], 'timers_bad_key', 'operations[0].timerKey'],
    [[schedule('ä'.repeat(257))], 'timers_bad_key', 'operations[0].timerKey'],
    [[schedule('a', 0, { queue: '' })], 'timers_bad_queue', 'operations[0].queue'],
    [[schedule('a', 0, { queue: 'q\u001f' })], 'timers_bad_queue', 'operations[0].queue'],
    [[schedule('a', 0, { partition: '\n' })], 'timers_bad_partition', 'operations[0].partition'],
    [[schedule('a', 0, { transactionId: '' })], 'timers_bad_txn', 'operations[0].txn'],
    [[schedule('a', 0, { transactionId: 'x'.repeat(65_536) })], 'timers_bad_txn', 'operations[0].txn'],
    [[schedule('a', 1.5)], 'timers_bad_delay', 'operations[0].delayMs'],
    [[schedule('a', Number.NaN)], 'timers_bad_delay', 'operations[0].delayMs'],
    [[schedule('a', 0, { payload: Buffer.from('{') })], 'timers_bad_payload', 'operations[0].payload'],
    [[schedule('a', 0, { payload: Buffer.alloc(0) })], 'timers_bad_payload', 'operations[0].payload'],
    [
      [schedule('a', 0, { payload: Buffer.from([0x22, 0xff, 0x22]) })],
      'timers_bad_payload',
      'operations[0].payload',
    ],
    [[schedule('a', 0, { payloadZstd: true })], 'timers_bad_payload', 'operations[0].payload'],
    [[schedule('ok'), cancel('')], 'timers_bad_key', 'operations[1].timerKey'],
    [[schedule('ok'), cancel('ok')], 'timers_duplicate_key_in_call', 'operations[1].timerKey'],
    [Array.from({ length: 257 }, (_, i) => schedule(`k${i}`)), 'timers_too_many_ops', 'operations'],
  ];
  for (const [operations, reason, field] of faults) {
    await assert.rejects(
      rig.apply(operations),
      { kind: 'refused', code: 'timers_bad_request', reason, field },
      reason,
    );
  }
  assert.deepEqual(await rig.pending(), []);
  // A sub that the row cannot hold is the token's fault, and no reason to keep its bearer from taking back.
  const by = (operations: TimerOperation[]) =>
    rig.broker.timers.apply({ tenant: DEFAULT_TENANT, producerSub: 'a\u0000b', operations });
  await assert.rejects(by([schedule('a')]), { code: 'timers_bad_request', reason: 'timers_bad_producer' });
  assert.equal((await by([cancel('a')]))[0]!.status, 'absent');
  // The limits themselves pass.
  await rig.apply([schedule('ä'.repeat(256), HOUR, { transactionId: 'x'.repeat(65_535), partition: '' })]);
  await rig.apply(Array.from({ length: 256 }, (_, i) => schedule(`k${i}`, HOUR)));
  assert.equal((await rig.pending()).length, 257);
});

test('payloads above the limit, compressed or not, and times beyond the horizon', async (t) => {
  const rig = await Rig.open(t);
  const text = JSON.stringify('x'.repeat(1_048_574));
  const fits = Buffer.from(text);
  const over = Buffer.from(JSON.stringify('x'.repeat(1_048_575)));
  await rig.apply([schedule('fits', 0, { payload: fits })]);
  await rig.apply([schedule('zstd', 0, { payload: zstdCompressSync(fits), payloadZstd: true })]);
  for (const more of [{ payload: over }, { payload: zstdCompressSync(over), payloadZstd: true }]) {
    await assert.rejects(rig.apply([schedule('over', 0, more)]), {
      code: 'payload_too_large',
      field: 'operations[0].payload',
    });
  }
  await rig.sweep();
  const stored = await rig.stored();
  assert.deepEqual(
    stored.map(({ payload }) => payload === text),
    [true, true],
  );

  const horizon = 90 * 86_400_000;
  assert.equal((await rig.one(schedule('far', horizon))).status, 'scheduled');
  const beyond: EngineError = await rig.apply([cancel('far'), schedule('further', horizon + 1)]).then(
    () => assert.fail('scheduled'),
    (error) => error,
  );
  assert.deepEqual(
    [beyond.kind, beyond.code, beyond.field],
    ['refused', 'timer_horizon_exceeded', 'operations[1].delayMs'],
  );
  assert.match(beyond.message, /at most 7776000000/);
  assert.deepEqual(await rig.pending(), ['far'], 'the cancellation beside it was not carried out');
  assert.equal((await rig.one(schedule('past', -Number.MAX_SAFE_INTEGER))).status, 'scheduled');
});

test('pages by key in byte order, prefixes and counts', async (t) => {
  const rig = await Rig.open(t);
  const keys = ['a', 'a%', 'a_', 'aa', 'ab', 'b', 'ä', '\u{1f600}'];
  await rig.apply(keys.map((key) => schedule(key, HOUR)));
  await rig.apply([schedule('a', HOUR, { queue: 'other' })]);
  const { timers } = rig.broker;
  const page = (prefix: string, after: string | null, limit: number | null) =>
    timers.list(DEFAULT_TENANT, QUEUE, { prefix, after, limit });
  const all = await page('', null, null);
  const bytewise = [...keys].sort((x, y) => Buffer.compare(Buffer.from(x), Buffer.from(y)));
  assert.deepEqual(
    all.rows.map((row) => row.timerKey),
    bytewise,
  );
  assert.deepEqual([all.truncated, all.nextAfter], [false, null]);
  const seen: string[] = [];
  for (let after: string | null = null, more = true; more; ) {
    const next = await page('', after, 3);
    seen.push(...next.rows.map((row) => row.timerKey));
    more = next.truncated;
    after = next.nextAfter;
  }
  assert.deepEqual(seen, bytewise);
  assert.equal((await page('', null, 0)).rows.length, 1, 'a limit is held at one');
  assert.deepEqual(
    (await page('a', 'a_', 10)).rows.map((row) => row.timerKey),
    ['aa', 'ab'],
  );
  const count = (prefix: string) => timers.count(DEFAULT_TENANT, QUEUE, prefix);
  assert.deepEqual(
    await Promise.all(['a', 'a%', 'a_', 'ä', 'x', '\u{1f600}'].map(count)),
    [5, 1, 1, 1, 0, 1],
  );
  await assert.rejects(page('x'.repeat(129), null, 1), { reason: 'timers_bad_prefix' });
  await assert.rejects(count('\u0000'), { reason: 'timers_count_bad_prefix', field: 'prefix' });
});

test('tenants do not see, change or count each other', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('k', HOUR)]);
  assert.deepEqual(await rig.pending(OTHER_TENANT), []);
  assert.equal((await rig.one(cancel('k'), OTHER_TENANT)).status, 'absent');
  assert.equal(await rig.broker.timers.peek(OTHER_TENANT, QUEUE, 'k'), null);
  assert.equal(await rig.broker.timers.count(OTHER_TENANT, QUEUE, 'k'), 0);
  assert.equal((await rig.one(schedule('k', HOUR), OTHER_TENANT)).status, 'scheduled');
  assert.equal((await rig.one(cancel('k'))).status, 'cancelled');
  assert.deepEqual(await rig.pending(OTHER_TENANT), ['k']);
});

test('plans: how many, how far, how large, how fast; taking back is never in their way', async (t) => {
  const rig = await Rig.open(t, {});
  const plan = async (columns: string) => {
    await rig.query('DELETE FROM queen.kv_quota');
    await rig.query(`INSERT INTO queen.kv_quota (tenant_id, ${columns.split('=')[0]})
                     VALUES ('${DEFAULT_TENANT}', ${columns.split('=')[1]})`);
    await rig.broker.quotas.refresh();
  };
  await plan('max_timers=3');
  await rig.apply([schedule('a', HOUR), schedule('b', HOUR)]);
  await assert.rejects(rig.apply([schedule('c', HOUR), schedule('d', HOUR)]), {
    kind: 'refused',
    code: 'timers_quota_exceeded',
  });
  assert.deepEqual(await rig.pending(), ['a', 'b'], 'nothing of the call stays');
  await rig.apply([schedule('c', HOUR)]);
  assert.equal((await rig.one(schedule('c', 2 * HOUR))).status, 'rescheduled', 'what replaces does not grow');
  await assert.rejects(rig.apply([schedule('d', HOUR)]), { code: 'timers_quota_exceeded' });
  // Room is made in the order of the keys.
  assert.deepEqual(
    (await rig.apply([cancel('a'), schedule('d', HOUR)])).map(({ status }) => status),
    ['cancelled', 'scheduled'],
  );
  await rig.apply([schedule('b', 0)]);
  await rig.sweep();
  assert.equal((await rig.one(schedule('e', HOUR))).status, 'scheduled', 'a fired timer counts no more');

  await plan('max_timer_horizon_s=60');
  await rig.apply([schedule('near', 60_000)]);
  await assert.rejects(rig.apply([schedule('far', 60_001)]), { code: 'timer_horizon_exceeded' });
  await plan('max_bytes=20');
  await assert.rejects(
    rig.apply([schedule('large', HOUR, { payload: Buffer.from('"xxxxxxxxxxxxxxxxxxx"') })]),
    {
      code: 'payload_too_large',
    },
  );
  await plan('max_writes_per_sec=1');
  await rig.apply([schedule('w1', HOUR)]);
  await rig.apply([schedule('w2', HOUR)]);
  await assert.rejects(rig.apply([schedule('w3', HOUR)]), { kind: 'overloaded', code: 'rate_limited' });
  assert.equal((await rig.one(cancel('w1'))).status, 'cancelled');
  await plan('enabled=false');
  await assert.rejects(rig.apply([schedule('x', HOUR)]), { code: 'feature_gated' });
  await assert.rejects(rig.pending(), { code: 'feature_gated' });
  assert.equal((await rig.one(cancel('w2'))).status, 'cancelled');
  const { rejected } = rig.broker.timers.counters;
  assert.deepEqual(
    ['timers_quota_exceeded', 'timer_horizon_exceeded', 'rate_limited', 'feature_gated'].map((code) =>
      rejected.get(code),
    ),
    [2, 1, 1, 1],
  );
});

test('a grant is needed where it is required; the switch stops scheduling and nothing else', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a', HOUR), schedule('b', 0)]);
  await rig.switch('timers_schedule_enabled', false);
  await assert.rejects(rig.apply([schedule('c', HOUR)]), { kind: 'unavailable', code: 'timers_disabled' });
  await assert.rejects(rig.apply([cancel('a'), schedule('c', HOUR)]), { code: 'timers_disabled' });
  assert.deepEqual(await rig.pending(), ['a', 'b']);
  assert.equal((await rig.one(cancel('a'))).status, 'cancelled');
  await rig.sweep();
  assert.deepEqual(await rig.storedIds(), ['txn-b']);

  await rig.switch('timers_schedule_enabled', true);
  const { kv } = ENGINE_DEFAULTS;
  const gated = await Rig.on(t, rig.test, { kv: { ...kv, requireGrant: true } });
  await assert.rejects(gated.apply([schedule('d', HOUR)]), { code: 'feature_gated' });
  assert.equal((await gated.one(cancel('d'))).status, 'absent');
});

test('a queue that encrypts: sealed when scheduled, refused without a key or when encrypted already', async (t) => {
  const sealingKey = parseSealingKey('ab'.repeat(32));
  const rig = await Rig.open(t, { sealingKey });
  const keyless = await Rig.on(t, rig.test);
  await rig.broker.configure({
    tenant: DEFAULT_TENANT,
    queue: QUEUE,
    options: { encryptionEnabled: true },
    mode: 'merge',
  });
  const secret = Buffer.from('{"secret":1.10}');
  await rig.apply([
    schedule('a', HOUR, { payload: secret }),
    schedule('plain', HOUR, { queue: 'plain', payload: secret }),
    schedule('z', HOUR, { payload: zstdCompressSync(secret), payloadZstd: true }),
  ]);
  const [stored, plain, packed] = await Promise.all(
    [QUEUE, 'plain', QUEUE].map((queue, i) =>
      rig.broker.timers.peek(DEFAULT_TENANT, queue, ['a', 'plain', 'z'][i]!),
    ),
  );
  assert.deepEqual([stored!.encrypted, plain!.encrypted, packed!.encrypted], [true, false, true]);
  assert.equal(packed!.payloadZstd, false);
  for (const row of await rig.query<{ text: string }>(
    `SELECT encode(payload, 'escape') AS text FROM queen.log_timers WHERE queue = '${QUEUE}'`,
  )) {
    assert.match(row.text, /^\{"encrypted":/);
  }
  await assert.rejects(rig.apply([schedule('b', HOUR, { encrypted: true })]), {
    code: 'timers_bad_request',
    reason: 'timers_encrypted_twice',
    field: 'operations[0].encrypted',
  });
  await assert.rejects(keyless.apply([cancel('a'), schedule('b', HOUR)]), {
    code: 'timers_bad_request',
    reason: 'encryption_required',
  });
  assert.deepEqual(await rig.pending(), ['a', 'z']);
});

test('the count of what is pending reaches the plans', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a', HOUR), schedule('b', 2 * HOUR)]);
  await rig.apply([schedule('c', HOUR)], OTHER_TENANT);
  await rig.query('SELECT queen.kv_count_usage(1000), queen.timers_count_usage(1000)');
  const rows = await rig.query<{ tenant: string; rows: number; bytes: number; hours: number }>(
    `SELECT u.tenant_id AS tenant, u.timer_rows AS rows, u.timer_bytes AS bytes,
            round(extract(epoch FROM u.timer_oldest - queen.clock()) / 3600)::int AS hours
       FROM queen.kv_usage u ORDER BY u.tenant_id`,
  );
  assert.deepEqual(rows, [
    { tenant: DEFAULT_TENANT, rows: 2, bytes: 22, hours: 1 },
    { tenant: OTHER_TENANT, rows: 1, bytes: 11, hours: 1 },
  ]);
  await rig.apply([cancel('c')], OTHER_TENANT);
  await rig.query('SELECT queen.kv_count_usage(1000), queen.timers_count_usage(1000)');
  const [after] = await rig.query<{ rows: number; oldest: number | null }>(
    `SELECT timer_rows AS rows, timer_oldest AS oldest FROM queen.kv_usage WHERE tenant_id = '${OTHER_TENANT}'`,
  );
  assert.deepEqual(after, { rows: 0, oldest: null });
});
