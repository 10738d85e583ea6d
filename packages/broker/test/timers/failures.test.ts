/** Fires that fail: nobody's fault, or one timer's; and what becomes of the others beside it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../src/engine/clock.ts';
import { Firing, type FiringDeps } from '../../src/engine/timers/firing.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { StoreError } from '../../src/store/errors.ts';
import { claimTimers } from '../../src/store/timers.ts';
import { cancel, QUEUE, Rig, schedule } from './fixture.ts';

const CLAIM = { limit: 200, bytesMax: 8_388_608, leaseMs: 30_000 };

/** Raises `state` whenever a row of this table meets the condition. */
async function sabotage(
  rig: Rig,
  table: string,
  event: string,
  condition: string,
  state: string,
): Promise<void> {
  await rig.query(`CREATE FUNCTION test_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '${state}'; END $$`);
  await rig.query(`CREATE TRIGGER test_refuse BEFORE ${event} ON queen.${table} FOR EACH ROW WHEN (${condition})
                   EXECUTE FUNCTION test_refuse()`);
}

async function repair(rig: Rig): Promise<void> {
  await rig.query('DROP FUNCTION test_refuse CASCADE');
}

async function row(rig: Rig, key: string) {
  const [found] = await rig.query<{
    attempts: number;
    error: string | null;
    pause: number | null;
    token: string | null;
  }>(
    `SELECT attempts, last_error AS error, claim_token AS token,
            round(extract(epoch FROM claimed_until - queen.clock()))::int AS pause
       FROM queen.log_timers WHERE timer_key = '${key}'`,
  );
  return found;
}

test('one poisoned timer: the others of its partition fire, it is tried five times, then it is a dead letter', async (t) => {
  const rig = await Rig.open(t);
  const [poison] = await rig.apply([schedule('poison'), schedule('a'), schedule('b', 0, { partition: 'p' })]);
  await sabotage(rig, 'log_timers', 'DELETE', `OLD.timer_key = 'poison'`, '23514');
  await rig.sweep();
  assert.deepEqual((await rig.storedIds()).sort(), ['txn-a', 'txn-b']);
  const pauses: number[] = [];
  for (let attempt = 1; attempt < 5; attempt++) {
    const found = (await row(rig, 'poison'))!;
    assert.deepEqual([found.attempts, found.token], [attempt, null]);
    assert.match(found.error!, /SQLSTATE 23514/);
    pauses.push(found.pause!);
    assert.equal(await rig.sweep(), 0, 'not before its pause is over');
    await rig.test.advanceClock(found.pause! + 1);
    if (attempt === 4) break;
    assert.equal(await rig.sweep(), 1);
  }
  assert.deepEqual(pauses, [1, 4, 16, 64]);
  // The last attempt needs a way to delete the row.
  await repair(rig);
  await sabotage(rig, 'log_segments', 'INSERT', 'true', '23514');
  assert.equal(await rig.sweep(), 1);
  await repair(rig);
  assert.equal(await row(rig, 'poison'), undefined);

  const { letters, total } = await rig.broker.deadLetters.list(DEFAULT_TENANT, {
    queue: QUEUE,
    partition: null,
    group: null,
    fromMicros: null,
    toMicros: null,
    limit: 10,
    skip: 0,
    payloads: true,
  });
  assert.equal(total, 1);
  const [letter] = letters;
  assert.deepEqual(
    [letter!.group, letter!.transactionId, String(letter!.payload), letter!.retryCount],
    ['__timer__', 'txn-poison', '{"key":"poison"}', 5],
  );
  const [stored] = await rig.query<{ offset: number; id: string }>(
    `SELECT "offset", message_id AS id FROM queen.log_dlq`,
  );
  assert.deepEqual(stored, { offset: -1, id: poison!.messageId });
  await assert.rejects(
    rig.broker.deadLetters.replay({ tenant: DEFAULT_TENANT, id: letter!.id, queue: null, partition: null }),
    { code: 'timer_dead_letter' },
  );
  const { counters } = rig.broker.firing;
  assert.deepEqual([counters.fired, counters.poisoned, counters.buried], [2, 5, 1]);
  assert.equal(counters.permanent.get('23'), 5);
  assert.equal((await rig.storedIds()).length, 2);
});

test('a timer that backs off can be taken back and replaced', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a'), schedule('b')]);
  await sabotage(rig, 'log_segments', 'INSERT', 'true', 'P0001');
  await rig.sweep();
  await repair(rig);
  const found = await rig.broker.timers.peek(DEFAULT_TENANT, QUEUE, 'a');
  assert.deepEqual([found!.attempts, found!.claimed], [1, false]);
  assert.deepEqual(
    (await rig.apply([cancel('a'), schedule('b')])).map(({ status }) => status),
    ['cancelled', 'rescheduled'],
  );
  const replaced = await rig.broker.timers.peek(DEFAULT_TENANT, QUEUE, 'b');
  assert.deepEqual([replaced!.attempts, replaced!.lastError], [0, null]);
  assert.equal(await rig.sweep(), 1);
  assert.deepEqual(await rig.storedIds(), ['txn-b']);
});

test('a passing failure is nobody’s fault: no attempt is counted, and all of it fires afterwards', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a'), schedule('b', 0, { partition: 'p' })]);
  for (const state of ['40001', '40P01', '53100', '58030', '57P03']) {
    await sabotage(rig, 'log_segments', 'INSERT', 'true', state);
    const cycle = await rig.broker.timerSweeper.pass();
    assert.deepEqual([cycle.rows, cycle.end.kind], [2, 'trouble'], state);
    await repair(rig);
    const found = (await row(rig, 'a'))!;
    assert.deepEqual([found.attempts, found.token], [0, null]);
    assert.match(found.error!, new RegExp(state));
    await rig.test.advanceClock(1);
  }
  assert.equal(await rig.sweep(), 2);
  assert.deepEqual((await rig.storedIds()).sort(), ['txn-a', 'txn-b']);
  assert.deepEqual(
    [rig.broker.firing.counters.poisoned, rig.broker.firing.counters.transient.get('40')],
    [0, 2],
  );
});

test('a payload that was damaged where it lay becomes a dead letter without one', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('bad'), schedule('good')]);
  await rig.query(
    `UPDATE queen.log_timers SET payload_zstd = true, attempts = 4, payload = '\\xdeadbeef' WHERE timer_key = 'bad'`,
  );
  await rig.sweep();
  assert.deepEqual(await rig.storedIds(), ['txn-good']);
  const [letter] = await rig.query<{ payload: Buffer | null; error: string }>(
    'SELECT payload, error FROM queen.log_dlq',
  );
  assert.deepEqual(letter, { payload: null, error: 'the payload cannot be decompressed' });
});

test('a dead letter of a queue that encrypts is sealed', async (t) => {
  const { parseSealingKey } = await import('../../src/log/envelope.ts');
  const rig = await Rig.open(t, { sealingKey: parseSealingKey('ef'.repeat(32)) });
  await rig.apply([schedule('bad')]);
  await rig.broker.configure({
    tenant: DEFAULT_TENANT,
    queue: QUEUE,
    mode: 'merge',
    options: { encryptionEnabled: true },
  });
  await rig.query('UPDATE queen.log_timers SET attempts = 4');
  await sabotage(rig, 'log_segments', 'INSERT', 'true', '23514');
  await rig.sweep();
  const [letter] = await rig.query<{ payload: Buffer }>('SELECT payload FROM queen.log_dlq');
  assert.match(String(letter!.payload), /^\{"encrypted":/);
});

test('no partition can be had for a timer: it stays, and is tried at longer and longer intervals', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a'), schedule('b', 0, { queue: 'fine' })]);
  await sabotage(rig, 'queues', 'INSERT', `NEW.name = '${QUEUE}'`, '23514');
  for (let attempt = 1; attempt <= 7; attempt++) {
    await rig.sweep();
    const found = (await row(rig, 'a'))!;
    assert.equal(found.attempts, attempt);
    await rig.test.advanceClock(found.pause! + 1);
  }
  assert.deepEqual(await rig.storedIds(), ['txn-b']);
  await repair(rig);
  assert.equal(await rig.sweep(), 1);
});

/** A firing whose statements fail when the test says so. */
function flaky(rig: Rig, fails: (name: string) => Error | null): Firing {
  const { broker } = rig;
  const run: FiringDeps['run'] = (work) =>
    work({
      query: async (statement, params, options) => {
        const error = fails(statement.name);
        if (error !== null && (error as StoreError).kind !== 'in_doubt') throw error;
        const rows = await broker.db.query(statement, params, options);
        if (error !== null) throw error;
        return rows as never;
      },
    });
  return new Firing({
    run,
    memo: broker.pushPath.memo,
    provisioner: broker.pushPath.provisioner,
    dedup: broker.dedup,
    announcer: broker.wake,
    quotas: broker.quotas,
    ledger: broker.ledger,
    seal: null,
    zstdLevel: 1,
    clock: systemClock,
    settings: { fireBytesMax: 8_388_608, attemptsMax: 5, leaseMs: 30_000 },
    log: { warn() {} },
  });
}

test('the answer to a fire is lost after its commit: it is not fired again', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a'), schedule('b')]);
  const { timers } = await claimTimers(rig.broker.db, CLAIM);
  const lost = new StoreError('in_doubt', 'connection', 'connection lost');
  let once: Error | null = lost;
  const firing = flaky(rig, (name) => {
    if (name !== 'timers_fire') return null;
    const error = once;
    once = null;
    return error;
  });
  assert.equal(await firing.fire(timers), false);
  assert.deepEqual(await rig.storedIds(), ['txn-a', 'txn-b']);
  await rig.test.advanceClock(60);
  assert.equal(await rig.sweep(), 0);
  assert.equal((await rig.storedIds()).length, 2);
});

test('the database is away during the fire and the release: the claims are given back when it returns', async (t) => {
  const rig = await Rig.open(t);
  await rig.apply([schedule('a'), schedule('b', 0, { partition: 'p' })]);
  const { timers } = await claimTimers(rig.broker.db, CLAIM);
  let away = true;
  const gone = () => (away ? new StoreError('unavailable', 'pool', 'no connection') : null);
  const firing = flaky(rig, gone);
  assert.equal(await firing.fire(timers), false);
  await assert.rejects(firing.settleDebts());
  away = false;
  await firing.settleDebts();
  // Long before the claims would have ended by themselves.
  assert.equal(await rig.sweep(), 2);
  assert.deepEqual((await rig.storedIds()).sort(), ['txn-a', 'txn-b']);
});
