import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DatabaseTime } from '../../src/engine/wake/database_time.ts';
import { WakeScan } from '../../src/engine/wake/scan.ts';
import { silentLog } from '../../src/store/log.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';

const TENANT = '00000000-0000-0000-0000-000000000001';
const START_MICROS = 1_000_000_000_000_000;

function bench() {
  const clock = new FakeClock();
  const time = new DatabaseTime(clock);
  const state = { parked: false, failing: false, jumpMicros: 0, jumps: 0 };
  const looks: number[] = [];
  const scan = new WakeScan({
    read: async () => {
      looks.push(clock.now());
      if (state.failing) throw new Error('away');
      return [{ tenant: null, nowMicros: START_MICROS + clock.now() * 1_000 + state.jumpMicros }] as never;
    },
    clock,
    time,
    log: silentLog,
    wanted: () =>
      state.parked ? { queues: [{ tenant: TENANT, queue: 'q', knownId: 1 }], scopes: [] } : null,
    onRow() {},
    onClockJump: () => {
      state.jumps++;
    },
  });
  return { clock, time, state, looks, scan };
}

test('one look a second while something is parked, none when nothing is', async () => {
  const { clock, state, looks, scan } = bench();
  await clock.advanceAsync(5_000);
  assert.deepEqual(looks, []);
  state.parked = true;
  scan.plan();
  scan.plan();
  await clock.advanceAsync(5_000);
  assert.equal(looks.length, 5);
  for (let i = 1; i < looks.length; i++) assert.ok(looks[i]! - looks[i - 1]! >= 1_000);
  state.parked = false;
  await clock.advanceAsync(2_000);
  assert.equal(looks.length, 5);
  // Parking and leaving again and again does not make it more.
  state.parked = true;
  for (let i = 0; i < 300; i++) {
    scan.plan();
    await clock.advanceAsync(10);
  }
  assert.ok(looks.length <= 5 + 4, `${looks.length}`);
  scan.stop();
});

test('a failed look is followed by the next', async () => {
  const { clock, state, looks, scan } = bench();
  state.parked = true;
  state.failing = true;
  scan.plan();
  await clock.advanceAsync(3_200);
  assert.equal(looks.length, 4);
  scan.stop();
});

test('a bare name of a queue is looked at soon, gathered', async () => {
  const { clock, looks, scan } = bench();
  for (let i = 0; i < 50; i++) scan.look(TENANT, `q${i}`);
  await clock.advanceAsync(10);
  assert.equal(looks.length, 1);
  for (let i = 0; i < 50; i++) scan.look(TENANT, `q${i}`);
  await clock.advanceAsync(80);
  assert.equal(looks.length, 1, 'not at once again');
  await clock.advanceAsync(50);
  assert.equal(looks.length, 2);
  scan.stop();
});

test('the time of the database is known from answers, and its jumps are told', async () => {
  const { clock, time, state, scan } = bench();
  assert.equal(time.now(), null);
  state.parked = true;
  scan.plan();
  await clock.advanceAsync(2_500);
  assert.equal(time.now(), START_MICROS + 2_500_000);
  assert.equal(state.jumps, 0);
  state.jumpMicros = 60_000_000;
  await clock.advanceAsync(1_000);
  assert.equal(state.jumps, 1);
  state.jumpMicros = 0;
  await clock.advanceAsync(1_000);
  assert.equal(state.jumps, 2, 'backwards too');
  await clock.advanceAsync(3_000);
  assert.equal(state.jumps, 2);
  scan.stop();
});
