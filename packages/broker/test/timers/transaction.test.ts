/** Timers that ride in a transaction: they commit or vanish with its pushes, acks and keys. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { parseSealingKey } from '../../src/log/envelope.ts';
import { sql } from '../push/fixture.ts';
import { ack, gate, push, Rig, verdictOf } from '../transaction/fixture.ts';
import { cancel, schedule } from './fixture.ts';

const HOUR = 3_600_000;
const QUEUE = 'later';

function later(key: string, delayMs = HOUR, more: Parameters<typeof schedule>[2] = {}) {
  return schedule(key, delayMs, { queue: QUEUE, ...more });
}

async function pending(rig: Rig): Promise<string[]> {
  const { rows } = await rig.broker.timers.list(DEFAULT_TENANT, QUEUE, {
    prefix: '',
    after: null,
    limit: 100,
  });
  return rows.map((row) => row.timerKey);
}

test('pushes, acks, keys and timers commit together, and the timer fires as any other', async (t) => {
  const rig = await Rig.open(t);
  await rig.push(['m1'], 'in');
  const { leaseId, claims } = await rig.pop({ queue: 'in' });
  await rig.broker.timers.apply({ tenant: DEFAULT_TENANT, producerSub: null, operations: [later('old')] });
  const answer = await rig.done([ack(claims[0]!.partitionId, 'm1', { leaseId }), push('out', 'out')], {
    kv: [gate('k')],
    timers: [later('b', 0), cancel('old', QUEUE), cancel('none', QUEUE), later('a')],
    producerSub: 'alice',
  });
  assert.deepEqual(
    answer.timers.map(({ status, timerKey }) => `${status} ${timerKey}`),
    ['scheduled b', 'cancelled old', 'absent none', 'scheduled a'],
  );
  assert.equal(verdictOf(answer.results[0]).success, true);
  assert.deepEqual(await pending(rig), ['a', 'b']);
  await rig.broker.timerSweeper.pass();
  const { claims: fired } = await rig.pop({ queue: QUEUE, group: 'reader', autoAck: true });
  const [message] = fired[0]!.messages;
  assert.deepEqual([message!.id, message!.producerSub], [answer.timers[0]!.messageId, 'alice']);
  // Alone, without anything of the log.
  const alone = await rig.done([], { timers: [cancel('a', QUEUE)] });
  assert.equal(alone.timers[0]!.status, 'cancelled');
});

test('whatever else is refused, no timer is scheduled or taken back', async (t) => {
  const rig = await Rig.open(t);
  await rig.push(['taken'], 'out');
  await rig.broker.timers.apply({ tenant: DEFAULT_TENANT, producerSub: null, operations: [later('old')] });
  await rig.done([], { kv: [gate('lost')] });
  const timers = [later('new'), cancel('old', QUEUE)];
  const refusals = [
    await rig.refused([push('taken', 'out')], { timers }),
    await rig.refused([ack(1, 'ghost')], { timers }),
    await rig.refused([push('fresh', 'out')], { timers, kv: [gate('lost')] }),
    await rig.refused([push('fresh', 'out')], {
      kv: [gate('k')],
      timers: [...timers, later('far', 91 * 24 * HOUR)],
    }),
  ];
  assert.deepEqual(
    refusals.map(({ reason, failedIndex }) => [reason, failedIndex]),
    [
      ['duplicate', 0],
      ['ack_rejected', 0],
      ['kv_precondition', 1],
      ['timer_horizon_exceeded', 4],
    ],
  );
  assert.deepEqual(await pending(rig), ['old']);
  assert.deepEqual(await rig.stored('out'), ['taken']);
  assert.deepEqual(await sql(rig.broker.db, `SELECT key FROM queen.kv`), [{ key: 'lost' }]);
});

test('what is wrong with a timer is said before anything is done', async (t) => {
  const rig = await Rig.open(t);
  const reject = (timers: Parameters<Rig['run']>[1], expected: object) =>
    assert.rejects(rig.run([push('p', 'out')], timers), expected);
  await reject({ timers: [later('')] }, { code: 'timers_bad_request', field: 'timers[0].timerKey' });
  await reject(
    { timers: [later('a', 0, { payload: Buffer.alloc(1_048_577, 0x20) })] },
    { kind: 'refused', code: 'payload_too_large', field: 'timers[0].payload' },
  );
  await reject(
    { timers: Array.from({ length: 257 }, (_, i) => later(`k${i}`)) },
    { code: 'timers_bad_request', reason: 'timers_too_many_ops' },
  );
  await rig.broker.switches.set({ timers_schedule_enabled: false });
  await reject({ timers: [later('a')] }, { kind: 'refused', code: 'timers_disabled' });
  assert.equal(
    (await rig.done([push('p2', 'out')], { timers: [cancel('a', QUEUE)] })).timers[0]!.status,
    'absent',
  );
  await rig.broker.switches.set({ timers_schedule_enabled: true });
  await sql(
    rig.broker.db,
    `INSERT INTO queen.kv_quota (tenant_id, max_timers) VALUES ('${DEFAULT_TENANT}', 1)`,
  );
  await rig.broker.quotas.refresh();
  await reject(
    { timers: [later('a'), later('b')], kv: [gate('q')] },
    { kind: 'refused', code: 'timers_quota_exceeded' },
  );
  assert.deepEqual(await pending(rig), []);
  assert.deepEqual(await rig.stored('out'), ['p2']);
  assert.deepEqual(await sql(rig.broker.db, `SELECT key FROM queen.kv`), []);
});

test('a queue that encrypts: sealed inside the transaction, refused without the key', async (t) => {
  const rig = await Rig.open(t, { sealingKey: parseSealingKey('ab'.repeat(32)) });
  const keyless = await Rig.on(t, rig.test);
  const options = { encryptionEnabled: true };
  await rig.broker.configure({ tenant: DEFAULT_TENANT, queue: QUEUE, mode: 'merge', options });
  await rig.done([push('p', 'out')], { timers: [later('a', 0)], kv: [gate('k')] });
  const found = await rig.broker.timers.peek(DEFAULT_TENANT, QUEUE, 'a');
  assert.match(String(found!.payload), /^\{"encrypted":/);
  const refusal = await keyless.refused([push('p2', 'out')], { timers: [cancel('a', QUEUE), later('b')] });
  assert.deepEqual([refusal.reason, refusal.failedIndex], ['encryption_required', 2]);
  assert.deepEqual(await pending(rig), ['a']);
});

test('transactions over the same timers, keys and lanes in any order, beside a sweeper: no deadlock', async (t) => {
  const rig = await Rig.open(t);
  const other = await Rig.on(t, rig.test);
  const before = await sql<{ deadlocks: number }>(
    rig.broker.db,
    `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`,
  );
  rig.broker.timerSweeper.start();
  let n = 0;
  const worker = async (on: Rig, turn: number) => {
    for (let round = 0; round < 25; round++) {
      const keys = ['x', 'y', 'z'].sort(() => ((turn + round) % 2 === 0 ? 1 : -1));
      const timers = keys.map((key, i) => (i === round % 3 ? cancel(key, QUEUE) : later(key, -1)));
      const lanes = keys.map((key) => push(`m${n++}`, QUEUE, key));
      const kv = keys.map((key) => ({
        op: 'incr' as const,
        ns: 'n',
        key,
        delta: '1',
        life: null,
        min: null,
        max: null,
        required: false,
      }));
      await on.done(lanes, { timers, kv });
    }
  };
  await Promise.all([worker(rig, 0), worker(other, 1), worker(rig, 2), worker(other, 3)]);
  await rig.broker.timerSweeper.stop();
  const after = await sql<{ deadlocks: number }>(
    rig.broker.db,
    `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`,
  );
  assert.deepEqual(after, before);
});
