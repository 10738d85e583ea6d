import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import type { Clock, Timer } from '../../src/engine/clock.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { MaintenanceLoop } from '../../src/engine/retention/maintenance_loop.ts';
import { statement } from '../../src/store/database.ts';
import { silentLog } from '../../src/store/log.ts';
import { claimTask, ensureTask, releaseTask, renewTask } from '../../src/store/maintenance.ts';
import { admission } from './log_fixture.ts';

async function setup(t: { after(fn: () => Promise<void>): void }) {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const loop = (
    holder: string,
    pass: (signal: AbortSignal) => Promise<unknown>,
    clock: Clock = systemClock,
  ) =>
    new MaintenanceLoop(
      { db, admission, clock, log: silentLog, holder },
      { name: 'task', periodMs: 10_000, pass },
    );
  return { database, db, loop };
}

/** A clock whose timers fire when the test says so. */
class ManualClock implements Clock {
  #now = 0;
  readonly #timers: { at: number; work: () => void }[] = [];
  now(): number {
    return this.#now;
  }
  after(ms: number, work: () => void): Timer {
    const timer = { at: this.#now + ms, work };
    this.#timers.push(timer);
    return { cancel: () => void this.#timers.splice(this.#timers.indexOf(timer), 1) };
  }
  advance(ms: number): void {
    this.#now += ms;
    for (const timer of [...this.#timers]) {
      if (timer.at > this.#now) continue;
      this.#timers.splice(this.#timers.indexOf(timer), 1);
      timer.work();
    }
  }
}

test('two brokers: exactly one runs a period', async (t) => {
  const { database, loop } = await setup(t);
  const runs: string[] = [];
  const a = loop('a', async () => void runs.push('a'));
  const b = loop('b', async () => void runs.push('b'));
  await Promise.all([a.look(), b.look()]);
  assert.equal(runs.length, 1);
  for (let period = 1; period <= 4; period++) {
    await Promise.all([a.look(), b.look(), a.look(), b.look()]);
    assert.equal(runs.length, period);
    await database.advanceClock(10);
    await Promise.all([b.look(), a.look()]);
    assert.equal(runs.length, period + 1);
  }
});

test('a holder that crashed is replaced when its lease ends, and its late release changes nothing', async (t) => {
  const { database, db, loop } = await setup(t);
  let runs = 0;
  const b = loop('b', async () => void runs++);
  await ensureTask(db, 'task', 10_000);
  const dead = await claimTask(db, 'task', 'a', 30_000);
  assert.equal(dead.fence, 1);
  await b.look();
  await database.advanceClock(29);
  await b.look();
  assert.equal(runs, 0);
  await database.advanceClock(1.5);
  await b.look();
  assert.equal(runs, 1);
  assert.equal(await renewTask(db, 'task', 1, 30_000), false);
  assert.equal(await releaseTask(db, 'task', 1), null);
  assert.equal((await claimTask(db, 'task', 'a', 30_000)).fence, 3);
});

test('the due time moves by exactly one period at a release, and never into the past', async (t) => {
  const { database, db } = await setup(t);
  await ensureTask(db, 'task', 10_000);
  const run = async () => {
    const { fence } = await claimTask(db, 'task', 'a', 30_000);
    return fence === null ? null : releaseTask(db, 'task', fence);
  };
  const near = (actual: number | null, expected: number) =>
    assert.ok(
      actual !== null && actual > expected - 1500 && actual <= expected,
      `${actual}, not ${expected}`,
    );
  near(await run(), 10_000);
  assert.equal(await run(), null);
  await database.advanceClock(14);
  near(await run(), 6_000);
  await database.advanceClock(1_000);
  assert.equal(await run(), 0);
  near(await run(), 10_000);
});

test('a task that is missing is inserted; the switch is never overwritten; a new period takes effect', async (t) => {
  const { db } = await setup(t);
  const read = statement(
    'test_task',
    `SELECT enabled, period_ms, runs, ceil(extract(epoch FROM next_due_at - queen.clock()))::bigint AS due_s
       FROM queen.maintenance_leases WHERE task = 'task'`,
  );
  await ensureTask(db, 'task', 600_000);
  await db.query(
    statement('test_disable', "UPDATE queen.maintenance_leases SET enabled = false WHERE task = 'task'"),
  );
  await ensureTask(db, 'task', 600_000);
  assert.deepEqual(await claimTask(db, 'task', 'a', 1000), { fence: null, waitMs: null });
  await db.query(
    statement('test_enable', "UPDATE queen.maintenance_leases SET enabled = true WHERE task = 'task'"),
  );
  const { fence } = await claimTask(db, 'task', 'a', 1000);
  await releaseTask(db, 'task', fence!);
  assert.deepEqual(await db.query(read), [{ enabled: true, period_ms: 600_000, runs: 1, due_s: 600 }]);
  await ensureTask(db, 'task', 5_000);
  assert.deepEqual(await db.query(read), [{ enabled: true, period_ms: 5_000, runs: 1, due_s: 5 }]);
  assert.deepEqual(await claimTask(db, 'unknown', 'a', 1000), { fence: null, waitMs: null });
});

test('a long run renews its lease; when another has taken over it is told to stop', async (t) => {
  const { database, db, loop } = await setup(t);
  const clock = new ManualClock();
  const entered = Promise.withResolvers<AbortSignal>();
  const a = loop(
    'a',
    async (signal) => {
      entered.resolve(signal);
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    },
    clock,
  );
  const lease = statement(
    'test_lease',
    "SELECT fence, (lease_until - queen.clock() > interval '15 seconds') AS ample FROM queen.maintenance_leases WHERE task = 'task'",
  );
  const until = async (ample: boolean) => {
    for (;;) {
      const [row] = await db.query<{ ample: boolean }>(lease);
      if (row?.ample === ample) return;
    }
  };
  const looking = a.look();
  const signal = await entered.promise;
  for (let i = 0; i < 3; i++) {
    await database.advanceClock(20);
    await until(false);
    clock.advance(10_000);
    await until(true);
  }
  assert.equal(signal.aborted, false);
  await database.advanceClock(31);
  assert.equal((await claimTask(db, 'task', 'b', 30_000)).fence, 2);
  clock.advance(10_000);
  await looking;
  assert.equal(signal.aborted, true);
  const [row] = await db.query<{ fence: number }>(lease);
  assert.equal(row?.fence, 2);
});

test('a run that fails is released like any other', async (t) => {
  const { database, loop } = await setup(t);
  let runs = 0;
  const a = loop('a', async () => {
    runs++;
    throw new Error('no luck');
  });
  const next = await a.look();
  assert.ok(next > 8_000 && next <= 10_000);
  await database.advanceClock(10);
  await a.look();
  assert.equal(runs, 2);
});

test('start runs at once and then every period; stop waits for the run and ends it early', async (t) => {
  const { database, loop } = await setup(t);
  const clock = new ManualClock();
  let entered = Promise.withResolvers<AbortSignal>();
  let hang = false;
  const a = loop(
    'a',
    async (signal) => {
      entered.resolve(signal);
      if (hang) await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    },
    clock,
  );
  a.start();
  a.start();
  clock.advance(0);
  await entered.promise;
  entered = Promise.withResolvers();
  hang = true;
  await database.advanceClock(10);
  // The next look is scheduled once the first run has been released.
  const ticking = setInterval(() => clock.advance(10_000), 5);
  const signal = await entered.promise;
  clearInterval(ticking);
  await a.stop();
  assert.equal(signal.aborted, true);
});
