import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission } from '../../src/engine/admission/admission.ts';
import { Trains } from '../../src/engine/admission/trains.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';

test('answers that follow each other closely are one train', () => {
  const clock = new FakeClock();
  const trains = new Trains(clock, 0.3);
  assert.deepEqual(trains.read(), { perSecond: 0, callsPerTrain: 0, cycleMs: 0 });
  for (let flush = 0; flush < 500; flush++) {
    for (let call = 0; call < 4; call++) {
      trains.note(clock.now());
      clock.advance(0.25);
    }
    clock.advance(9);
  }
  assert.deepEqual(trains.read(), { perSecond: 100, callsPerTrain: 4, cycleMs: 10 });
  clock.advance(5_000);
  trains.note(clock.now());
  assert.equal(trains.read().perSecond, 50, 'the last whole window');
  clock.advance(30_000);
  assert.deepEqual(trains.read(), { perSecond: 0, callsPerTrain: 0, cycleMs: 0 }, 'long ago says nothing');
});

test('calls that commit are told to it, and each look at the limit to whoever traces', async () => {
  const clock = new FakeClock();
  const seen: object[] = [];
  const shares = { push: 0.25, pop: 0.4, ack: 0.3, maintenance: 0.05 };
  const admission = new Admission(
    { min: 8, max: 8, init: 8, tickMs: 100, shares, trace: (facts) => seen.push(facts) },
    clock,
  );
  for (const lane of ['push', 'ack', 'pop', 'maintenance'] as const) {
    await admission.run(lane, async () => clock.advance(60));
  }
  assert.equal(admission.trains.read().callsPerTrain, 1);
  assert.equal(Math.round(admission.trains.read().perSecond * 0.24), 2);
  assert.equal(seen.length, 2);
  assert.deepEqual(Object.keys(seen[0]!), ['contended', 'limit', 'inFlight', 'waiting']);
});
