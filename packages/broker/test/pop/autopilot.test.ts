import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ring } from '../../src/engine/hotlist/ring.ts';
import { Autopilot } from '../../src/engine/pop/autopilot.ts';
import { POP_DEFAULTS } from '../../src/engine/pop/settings.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';
import { range, setup } from './fixture.ts';

function ringOf(partitions: number, each: number): Ring {
  const ring = new Ring({ windowBatch: 100 });
  for (let id = 1; id <= partitions; id++) ring.seed(id, each - 1, -1, 0, -1, 0);
  return ring;
}

test('many partitions with little each are gathered, few with much are shared out', () => {
  const pilot = new Autopilot(new FakeClock(), POP_DEFAULTS);
  assert.deepEqual(pilot.choose('a', ringOf(1_000, 1)), { partitions: 64, batch: 100, waitMs: 25 });
  assert.deepEqual(pilot.choose('b', ringOf(10, 1_000)), { partitions: 1, batch: 100, waitMs: 0 });
  assert.deepEqual(pilot.choose('c', ringOf(20, 30)), { partitions: 4, batch: 100, waitMs: 0 });
  assert.deepEqual(pilot.choose('d', ringOf(0, 0)), { partitions: 1, batch: 100, waitMs: 25 });
});

test('a choice is kept for a time or a number of pops', () => {
  const clock = new FakeClock();
  const pilot = new Autopilot(clock, POP_DEFAULTS);
  assert.equal(pilot.choose('a', ringOf(1_000, 1)).partitions, 64);
  for (let i = 1; i < 16; i++) assert.equal(pilot.choose('a', ringOf(1, 1)).partitions, 64);
  assert.equal(pilot.choose('a', ringOf(1, 1)).partitions, 1);
  clock.advance(499);
  assert.equal(pilot.choose('a', ringOf(1_000, 1)).partitions, 1);
  clock.advance(1);
  assert.equal(pilot.choose('a', ringOf(1_000, 1)).partitions, 64);
});

test('lanes and bursts are capped', () => {
  const pilot = new Autopilot(new FakeClock(), {
    ...POP_DEFAULTS,
    autopilotLanesMax: 10,
    autopilotBurstCap: 5,
  });
  for (let i = 0; i < 50; i++) pilot.choose(`lane${i}`, ringOf(1_000, 1));
  assert.equal(pilot.lanes, 10);
  assert.equal(pilot.choose('x', ringOf(1_000, 1)).partitions, 5);
});

test('in the shadow the log tells now and then what would have been chosen', () => {
  const clock = new FakeClock();
  const lines: Record<string, unknown>[] = [];
  const log = { info: (facts: object) => lines.push({ ...facts }), warn() {}, error() {} };
  const pilot = new Autopilot(clock, { ...POP_DEFAULTS, autopilot: 'shadow' }, log);
  for (let second = 0; second < 25; second++) {
    pilot.choose('tenant\u001fq\u001fg', ringOf(1_000, 1));
    clock.advance(1_000);
  }
  assert.equal(pilot.choices, 25);
  assert.deepEqual(
    lines.map(({ queue, group, partitions, choices }) => [queue, group, partitions, choices]),
    [
      ['q', 'g', 64, 1],
      ['q', 'g', 64, 10],
      ['q', 'g', 64, 10],
    ],
  );
  const applied = new Autopilot(clock, POP_DEFAULTS, log);
  applied.choose('tenant\u001fq\u001fg', ringOf(1_000, 1));
  assert.deepEqual([applied.choices, lines.length], [1, 3]);
  assert.deepEqual(applied.partitions.read([0.5]), [64]);
});

test('a pop with autopilot fills what the caller left out, and says so', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  for (let p = 0; p < 30; p++) await rig.push('q', `p${p}`, ['a', 'b']);
  const g = { group: 'g', autopilot: true };
  await broker.pop({ group: 'g' });
  const answer = await broker.pop(g);
  assert.equal(answer.autopilot?.batch, 100);
  assert.ok(answer.claims.length > 1, `${answer.claims.length}`);
  assert.equal((await broker.pop({ ...g, batch: 2, partitions: 1 })).autopilot, null, 'both were given');
  for (let p = 30; p < 33; p++) await rig.push('q', `p${p}`, ['a', 'b'], [broker]);
  const own = await broker.pop({ ...g, batch: 2 });
  assert.equal(own.autopilot?.batch, 2);
  assert.equal(
    own.claims.reduce((n, c) => n + c.messages.length, 0),
    2,
  );
  assert.equal((await broker.pop({ autopilot: true })).autopilot, null, 'queue mode');
  assert.equal((await broker.pop({ ...g, partition: 'p0' })).autopilot, null, 'a pinned pop');
});

test('shadow computes and does not apply', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker({ pop: { autopilot: 'shadow' } });
  for (let p = 0; p < 5; p++) await rig.push('q', `p${p}`, range(2));
  await broker.pop({ group: 'g' });
  const answer = await broker.pop({ group: 'g', autopilot: true });
  assert.equal(answer.autopilot, null);
  assert.equal(answer.claims.length, 1);
});
