/** From due timers to messages: once, in order, whatever became of their destination meanwhile. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { zstdCompressSync } from 'node:zlib';
import { ENGINE_DEFAULTS } from '../../../../test/kit/engine.ts';
import { until } from '../../../../test/kit/until.ts';
import { DEFAULT_TENANT, type PopRequest } from '../../src/engine/types.ts';
import { parseSealingKey } from '../../src/log/envelope.ts';
import { claimTimers } from '../../src/store/timers.ts';
import { cancel, OTHER_TENANT, QUEUE, Rig, schedule } from './fixture.ts';

const HOUR = 3_600_000;
const CLAIM = { limit: 200, bytesMax: 8_388_608, leaseMs: 30_000 };

function pop(more: Partial<PopRequest> = {}): PopRequest {
  return {
    tenant: DEFAULT_TENANT,
    scope: { kind: 'queue', queue: QUEUE },
    group: 'g',
    batch: 1000,
    partitions: 0,
    autoAck: true,
    waitMs: 0,
    leaseSeconds: 60,
    subscriptionMode: 'all',
    subscriptionFrom: null,
    conflation: null,
    autopilot: false,
    signal: null,
    ...more,
  };
}

async function messages(rig: Rig, more: Partial<PopRequest> = {}) {
  const { claims } = await rig.broker.pop(pop(more));
  return claims.flatMap((claim) => claim.messages);
}

test('a timer fires once, not before its time, as the message that was announced', async (t) => {
  const rig = await Rig.open(t);
  const payload = Buffer.from('{ "n": 1.10, "n": 12345678901234567890 }');
  const [scheduled] = await rig.broker.timers.apply({
    tenant: DEFAULT_TENANT,
    producerSub: 'alice',
    operations: [schedule('k', HOUR, { payload, partition: 'p' })],
  });
  assert.equal(await rig.sweep(), 0);
  await rig.test.advanceClock(3_599);
  assert.equal(await rig.sweep(), 0);
  await rig.test.advanceClock(1);
  assert.equal(await rig.sweep(), 1);
  assert.equal(await rig.sweep(), 0);
  assert.deepEqual(await rig.pending(), []);
  const [message, ...others] = await messages(rig);
  assert.deepEqual(others, []);
  assert.deepEqual(
    [message!.id, message!.transactionId, message!.producerSub, String(message!.payload)],
    [scheduled!.messageId, 'txn-k', 'alice', String(payload)],
  );
  assert.ok(message!.createdAtMicros >= scheduled!.dueAtMicros!);
  assert.equal((await rig.one(cancel('k'))).status, 'absent');
});

test('a consumer that waits gets it at once, on another broker too', async (t) => {
  const rig = await Rig.open(t);
  const other = await Rig.on(t, rig.test);
  await messages(other, { subscriptionMode: 'new' });
  const waiting = messages(other, { waitMs: 20_000 });
  await rig.apply([schedule('k')]);
  const begun = performance.now();
  await rig.sweep();
  assert.equal((await waiting)[0]!.transactionId, 'txn-k');
  assert.ok(performance.now() - begun < 5_000);
});

test('three thousand due at once: in bundles, each once, in the order of their times', async (t) => {
  const rig = await Rig.open(t);
  const due = new Map<string, number>();
  for (let from = 0; from < 3000; from += 250) {
    const operations = Array.from({ length: 250 }, (_, i) => {
      const n = from + i;
      return schedule(`k${n}`, -((n * 7919) % 3000), { partition: `p${n % 3}` });
    });
    for (const { transactionId, dueAtMicros } of await rig.apply(operations))
      due.set(transactionId!, dueAtMicros!);
  }
  const before = rig.broker.db.statementsTotal;
  assert.equal(await rig.sweep(), 3000);
  const statements = rig.broker.db.statementsTotal - before;
  assert.ok(statements < 70, `${statements} statements`);
  const stored = await rig.stored();
  assert.equal(new Set(stored.map(({ transactionId }) => transactionId)).size, 3000);
  assert.equal(stored.length, 3000);
  // stored() gives partition after partition, each by offset.
  let last = '';
  let at = 0;
  for (const { transactionId, payload } of stored) {
    const lane = String(Number(JSON.parse(payload).key.slice(1)) % 3);
    const time = due.get(transactionId)!;
    if (lane === last) assert.ok(time >= at, `${transactionId} is earlier than the one before`);
    last = lane;
    at = time;
  }
});

test('keys that all fall on one shard keep their order among those that do not', async (t) => {
  const { timers } = ENGINE_DEFAULTS;
  const rig = await Rig.open(t, { timers: { ...timers, sweep: { ...timers.sweep, claimBatch: 20 } } });
  const shards = await rig.query<{ key: string; shard: number }>(
    `SELECT 'k' || n AS key, (hashtext('k' || n) & 63) AS shard FROM generate_series(1, 4000) n ORDER BY n`,
  );
  const same = shards.filter(({ shard }) => shard === 7).slice(0, 40);
  const others = shards.filter(({ shard }) => shard !== 7).slice(0, 40);
  assert.deepEqual([same.length, others.length], [40, 40]);
  // The crowded shard is the earlier one: nobody may overtake it for want of a look behind its first few.
  const order = [...same, ...others].map(({ key }) => key);
  await rig.apply(order.map((key, i) => schedule(key, i - 1000)));
  await rig.sweep();
  assert.deepEqual(
    await rig.storedIds(),
    order.map((key) => `txn-${key}`),
  );
});

test('large payloads: a claim takes as many as fit into a fire', async (t) => {
  const rig = await Rig.open(t);
  const payload = Buffer.from(JSON.stringify('x'.repeat(1_000_000)));
  for (let n = 0; n < 20; n++) await rig.apply([schedule(`k${n}`, 0, { payload })]);
  const claimed = await claimTimers(rig.broker.db, CLAIM);
  assert.equal(claimed.timers.length, 9);
  assert.equal(claimed.more, true);
  await rig.broker.firing.fire(claimed.timers);
  assert.equal(await rig.sweep(), 11);
  assert.equal((await rig.storedIds()).length, 20);
});

test('tenants take turns', async (t) => {
  const rig = await Rig.open(t, { tenancy: true });
  for (let from = 0; from < 400; from += 200) {
    await rig.apply(
      Array.from({ length: 200 }, (_, i) => schedule(`k${from + i}`, 100 * (from + i) - 60_000)),
    );
  }
  // Nine of the other tenant are earlier than it.
  await rig.apply([schedule('tenth', -59_050)], OTHER_TENANT);
  const claimed = await claimTimers(rig.broker.db, { ...CLAIM, limit: 5 });
  assert.equal(claimed.timers.filter(({ tenant }) => tenant === OTHER_TENANT).length, 1);
  await rig.broker.firing.fire(claimed.timers);
  await rig.sweep();
  const own = await rig.query<{ tenant: string; last: number }>(
    `SELECT q.tenant_id AS tenant, p.last_offset AS last FROM queen.log_partitions p
       JOIN queen.queues q ON q.id = p.queue_id ORDER BY 1`,
  );
  assert.deepEqual(own, [
    { tenant: DEFAULT_TENANT, last: 399 },
    { tenant: OTHER_TENANT, last: 0 },
  ]);
});

test('what is being fired cannot be changed; a claim that ended can, and its late fire does nothing', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a'), schedule('b'), schedule('c')]);
  const claimed = await claimTimers(rig.broker.db, CLAIM);
  assert.equal(claimed.timers.length, 3);
  const held = await rig.apply([cancel('a'), schedule('b', HOUR), schedule('d', HOUR)]);
  assert.deepEqual(
    held.map(({ status, messageId }) => [status, messageId !== null]),
    [
      ['too_late', false],
      ['too_late', false],
      ['scheduled', true],
    ],
  );
  assert.equal((await rig.broker.timers.peek(DEFAULT_TENANT, QUEUE, 'a'))!.claimed, true);
  assert.equal(await rig.sweep(), 0, 'nobody else claims them');
  await rig.test.advanceClock(31);
  assert.deepEqual(
    (await rig.apply([cancel('a'), schedule('b', HOUR)])).map(({ status }) => status),
    ['cancelled', 'rescheduled'],
  );
  const again = await claimTimers(rig.broker.db, CLAIM);
  assert.deepEqual(
    again.timers.map(({ timerKey }) => timerKey),
    ['c'],
  );
  // The first claim's fire comes too late for all of them.
  await rig.broker.firing.fire(claimed.timers);
  assert.deepEqual(await rig.storedIds(), []);
  await rig.broker.firing.fire(again.timers);
  assert.deepEqual(await rig.storedIds(), ['txn-c']);
  await rig.broker.firing.fire(again.timers);
  assert.deepEqual(await rig.storedIds(), ['txn-c'], 'a repeated fire adds nothing');
  assert.deepEqual(await rig.pending(), ['b', 'd']);
  assert.deepEqual([rig.broker.firing.counters.fired, rig.broker.firing.counters.stale], [1, 4]);
});

test('one of a segment is stale: the others fire without it, in their order', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([
    schedule('a', -3),
    schedule('b', -2),
    schedule('c', -1),
    schedule('d', 0, { partition: 'p' }),
  ]);
  const claimed = await claimTimers(rig.broker.db, CLAIM);
  await rig.query(`UPDATE queen.log_timers SET claim_token = gen_random_uuid() WHERE timer_key = 'b'`);
  await rig.broker.firing.fire(claimed.timers);
  assert.deepEqual((await rig.storedIds()).sort(), ['txn-a', 'txn-c', 'txn-d']);
  const { counters } = rig.broker.firing;
  assert.deepEqual([counters.fired, counters.stale, counters.released], [3, 1, 0]);
});

test('a claimed timer is locked by somebody: a moment later all fire in their order', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a', -3), schedule('b', -2), schedule('c', -1)]);
  const { timers } = await claimTimers(rig.broker.db, CLAIM);
  const hold = await holdRow(rig, 'b');
  const before = rig.broker.db.statementsTotal;
  const fire = rig.broker.firing.fire(timers);
  await until('it has been found locked', async () => rig.broker.db.statementsTotal > before + 1);
  await hold.release();
  await fire;
  assert.deepEqual(await rig.storedIds(), ['txn-a', 'txn-b', 'txn-c']);
});

test('a claimed timer stays locked: the others do not wait for it, and it fires when it is free', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a', -3), schedule('b', -2), schedule('c', -1)]);
  const { timers } = await claimTimers(rig.broker.db, CLAIM);
  const hold = await holdRow(rig, 'b');
  await rig.broker.firing.fire(timers);
  assert.deepEqual(await rig.storedIds(), ['txn-a', 'txn-c']);
  assert.equal(await rig.sweep(), 0, 'it is claimed still');
  await hold.release();
  // Long before the claim would have ended by itself.
  assert.equal(await rig.sweep(), 1);
  assert.deepEqual(await rig.storedIds(), ['txn-a', 'txn-c', 'txn-b']);
});

test('the database clock is set back between claim and fire: nothing comes before its time', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('k', 60_000)]);
  await rig.test.advanceClock(61);
  const claimed = await claimTimers(rig.broker.db, CLAIM);
  await rig.test.advanceClock(-50);
  await rig.broker.firing.fire(claimed.timers);
  assert.deepEqual(await rig.storedIds(), []);
  await rig.test.advanceClock(50);
  assert.equal(await rig.sweep(), 1);
  assert.deepEqual(await rig.storedIds(), ['txn-k']);
});

/** Somebody else's transaction has the row of this timer. */
async function holdRow(rig: Rig, key: string): Promise<{ release(): Promise<void> }> {
  const open = Promise.withResolvers<void>();
  const locked = Promise.withResolvers<void>();
  const over = rig.broker.db.transaction(async (tx) => {
    await tx.query({ name: '', text: `SELECT FROM queen.log_timers WHERE timer_key = '${key}' FOR UPDATE` });
    locked.resolve();
    await open.promise;
  });
  await locked.promise;
  return {
    release() {
      open.resolve();
      return over;
    },
  };
}

test('somebody holds a row: the others fire, and it does when it is free', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('held'), schedule('free')]);
  const hold = await holdRow(rig, 'held');
  const cycle = await rig.broker.timerSweeper.pass();
  assert.deepEqual([cycle.rows, cycle.end.kind], [1, 'held']);
  assert.deepEqual(await rig.storedIds(), ['txn-free']);
  assert.ok(rig.broker.timerSweeper.counters.passedBy > 0);
  await hold.release();
  assert.equal(await rig.sweep(), 1);
});

test('the destination is deleted, before the claim and between claim and fire', async (t) => {
  const rig = await Rig.open(t);
  await rig.broker.push({
    tenant: DEFAULT_TENANT,
    producerSub: null,
    items: [{ queue: QUEUE, partition: 'Default', payload: Buffer.from('1'), transactionId: 'pushed' }],
  });
  await rig.apply([schedule('a'), schedule('b', HOUR)]);
  const claimed = await claimTimers(rig.broker.db, CLAIM);
  assert.equal(await rig.broker.deleteQueue(DEFAULT_TENANT, QUEUE), true);
  await rig.broker.firing.fire(claimed.timers);
  assert.deepEqual(await rig.storedIds(), ['txn-a']);
  assert.deepEqual(await rig.pending(), ['b'], 'the deletion of a queue leaves its timers');
  await rig.broker.deleteQueue(DEFAULT_TENANT, QUEUE);
  await rig.test.advanceClock(3600);
  assert.equal(await rig.sweep(), 1);
  assert.deepEqual(await rig.storedIds(), ['txn-b']);
});

test('a fire does not ask the deduplication window, and a push after it does', async (t) => {
  const rig = await Rig.open(t);
  const push = async (transactionId: string) => {
    const items = [{ queue: QUEUE, partition: 'Default', payload: Buffer.from('0'), transactionId }];
    return (await rig.broker.push({ tenant: DEFAULT_TENANT, producerSub: null, items }))[0]!;
  };
  assert.equal((await push('txn-k')).status, 'queued');
  const [first] = await rig.apply([schedule('k'), schedule('same', 1, { transactionId: 'txn-k' })]);
  await rig.test.advanceClock(1);
  await rig.sweep();
  assert.deepEqual(await rig.storedIds(), ['txn-k', 'txn-k', 'txn-k']);
  const [, fired] = await rig.stored();
  assert.equal(fired!.id, first!.messageId);
  // The cache of this broker has followed the fire.
  assert.equal((await push('new')).status, 'queued');
  const [other] = await rig.apply([schedule('other')]);
  await rig.sweep();
  const again = await push('txn-other');
  assert.deepEqual([again.status, again.messageId], ['duplicate', other!.messageId]);
  // Scheduling it again after its fire is another message.
  await rig.apply([schedule('other')]);
  await rig.sweep();
  assert.equal((await rig.storedIds()).filter((id) => id === 'txn-other').length, 2);
});

test('queues that encrypt, before and after the scheduling, with and without the key', async (t) => {
  const sealingKey = parseSealingKey('cd'.repeat(32));
  const rig = await Rig.open(t, { sealingKey });
  const keyless = await Rig.on(t, rig.test);
  const encrypt = (on: boolean) =>
    rig.broker.configure({
      tenant: DEFAULT_TENANT,
      queue: QUEUE,
      mode: 'merge',
      options: { encryptionEnabled: on },
    });
  const secret = (n: number) => ({ payload: Buffer.from(`{"secret":${n}}`) });
  const ciphertext = Buffer.from('"my own ciphertext"');
  await rig.apply([
    schedule('1', HOUR, secret(1)),
    schedule('2', HOUR, { payload: ciphertext, encrypted: true }),
    schedule('3', HOUR, { payload: zstdCompressSync(secret(3).payload), payloadZstd: true }),
  ]);
  await encrypt(true);
  await rig.apply([schedule('4', HOUR, secret(4))]);
  await rig.test.advanceClock(3601);

  // Without the key nothing is fired in the clear; it is nobody's fault, so no attempt is counted.
  await keyless.broker.timerSweeper.pass();
  assert.deepEqual(await rig.storedIds(), []);
  const { rows } = await rig.broker.timers.list(DEFAULT_TENANT, QUEUE, {
    prefix: '',
    after: null,
    limit: 10,
  });
  assert.deepEqual(
    rows.map(({ attempts, claimed }) => [attempts, claimed]),
    rows.map(() => [0, false]),
  );
  assert.match(rows[0]!.lastError!, /^encryption_required/);
  await rig.test.advanceClock(1);
  assert.equal(await rig.sweep(), 4);
  const stored = await rig.stored();
  for (const { payload } of stored) assert.match(payload, /^\{"encrypted":/);
  const popped = await messages(rig);
  assert.deepEqual(popped.map(({ payload }) => String(payload)).sort(), [
    '"my own ciphertext"',
    '{"secret":1}',
    '{"secret":3}',
    '{"secret":4}',
  ]);

  // Sealed when it was scheduled, for a queue that stores payloads in the clear by now.
  await rig.apply([schedule('5', 0, secret(5))]);
  await encrypt(false);
  await rig.sweep();
  assert.deepEqual(
    (await messages(rig)).map(({ payload }) => String(payload)),
    ['{"secret":5}'],
  );
  // What the caller encrypted is no business of the broker's.
  await rig.apply([schedule('6', 0, { payload: ciphertext, encrypted: true })]);
  await rig.sweep();
  assert.deepEqual(
    (await messages(rig)).map(({ payload }) => String(payload)),
    [String(ciphertext)],
  );
  assert.equal(rig.broker.sealing.unopened, 0);
});

test('firing is switched off: nothing fires, and all of it does when it is on again', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a'), schedule('b')]);
  await rig.switch('timers_fire_enabled', false);
  const cycle = await rig.broker.timerSweeper.pass();
  assert.deepEqual([cycle.rows, cycle.end.kind], [0, 'off']);
  assert.equal((await rig.broker.timerBacklog.read()).due, 2);
  assert.equal((await rig.one(cancel('a'))).status, 'cancelled');
  await rig.switch('timers_fire_enabled', true);
  assert.equal(await rig.sweep(), 1);
});

test('several brokers sweep at once: each timer fires once, and none is left behind in a claim', async (t) => {
  const rig = await Rig.open(t);
  const others = await Promise.all([Rig.on(t, rig.test), Rig.on(t, rig.test)]);
  const scheduled = new Map<string, string>();
  for (let from = 0; from < 1500; from += 250) {
    const operations = Array.from({ length: 250 }, (_, i) =>
      schedule(`k${from + i}`, 0, { partition: `p${i % 20}` }),
    );
    for (const { status, transactionId, messageId } of await rig.apply(operations)) {
      assert.equal(status, 'scheduled');
      scheduled.set(transactionId!, messageId!);
    }
  }
  const claimed = await Promise.all([rig, ...others].map((each) => each.sweep()));
  const left = await rig.query('SELECT timer_key, attempts, last_error, claim_token FROM queen.log_timers');
  assert.deepEqual(left, [], `${claimed}`);
  const stored = await rig.stored();
  assert.equal(stored.length, 1500, `${claimed}`);
  for (const { id, transactionId } of stored) assert.equal(id, scheduled.get(transactionId));
});

test('what a claim reads does not grow with the backlog', async (t) => {
  const rig = await Rig.open(t);
  const buffers = async () => {
    const plan = await rig.broker.db.query<{ 'QUERY PLAN': string }>({
      name: '',
      text: 'EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM queen.timers_claim(200, 8388608, 1)',
    });
    return Number(/shared hit=(\d+)/.exec(plan.map((row) => row['QUERY PLAN']).join('\n'))![1]);
  };
  const add = (from: number, to: number) =>
    rig.query(
      `INSERT INTO queen.log_timers (queue, timer_key, deliver_at, txn, message_id, payload)
       SELECT 'q', 'k' || n, queen.clock() - interval '1 hour', 't', gen_random_uuid(), '1'
         FROM generate_series(${from}, ${to}) n`,
    );
  await add(1, 2_000);
  await buffers();
  const few = await buffers();
  await add(2_001, 30_000);
  const many = await buffers();
  assert.ok(many < 2 * few, `${few} pages with 2,000 due, ${many} with 30,000`);
  assert.equal((await rig.broker.timerBacklog.read()).capped, true);
});
