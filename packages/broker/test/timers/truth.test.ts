/**
 * What callers are told while two brokers fire as fast as they can: every answer must be true of what ends up in the log.
 * Each worker owns its keys, so it knows the order of its operations on each.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Chance, seeded } from '../../../../test/faults/seed.ts';
import type { TimerResult } from '../../src/engine/timers/face.ts';
import { cancel, Rig, schedule } from './fixture.ts';

const WORKERS = 6;
const KEYS_A_WORKER = 3;
const ROUNDS = 60;

interface Told {
  /** What the answers say must be in the log, and what must not. */
  fired: Set<string>;
  never: Set<string>;
  tooLate: number;
}

/** One worker's operations, in batches over all its keys; `lives` is the message that is pending as far as it knows. */
async function work(rig: Rig, worker: number, chance: Chance, told: Told): Promise<void> {
  const lives = new Map<string, string>();
  for (let round = 0; round < ROUNDS; round++) {
    const keys = chance.shuffled(Array.from({ length: KEYS_A_WORKER }, (_, k) => `w${worker}-${k}`));
    const operations = keys
      .slice(0, chance.integer(1, KEYS_A_WORKER))
      .map((key) =>
        chance.chance(0.35)
          ? cancel(key)
          : schedule(key, chance.integer(-5, 30), { partition: `p${chance.integer(0, 3)}` }),
      );
    for (const result of await rig.apply(operations)) judge(result, lives, told);
  }
  // What is still pending, or being fired, fires.
  for (const id of lives.values()) told.fired.add(id);
}

function judge({ status, timerKey, messageId }: TimerResult, lives: Map<string, string>, told: Told): void {
  const known = lives.get(timerKey);
  switch (status) {
    case 'scheduled':
    case 'absent':
      // Nothing was pending: what was scheduled before has fired.
      if (known !== undefined) told.fired.add(known);
      lives.delete(timerKey);
      break;
    case 'rescheduled':
    case 'cancelled':
      assert.ok(known !== undefined, `${timerKey}: ${status}, but nothing was scheduled`);
      told.never.add(known);
      lives.delete(timerKey);
      break;
    case 'too_late':
      assert.ok(known !== undefined, `${timerKey}: too late, but nothing was scheduled`);
      told.tooLate++;
  }
  if (status === 'scheduled' || status === 'rescheduled') lives.set(timerKey, messageId!);
}

test('answers are true of the log, whoever fires meanwhile', async (t) => {
  const chance = seeded(t);
  const first = await Rig.open(t);
  const second = await Rig.on(t, first.test);
  for (const { broker } of [first, second]) broker.timerSweeper.start();
  const told: Told = { fired: new Set(), never: new Set(), tooLate: 0 };
  await Promise.all(
    Array.from({ length: WORKERS }, (_, worker) =>
      work(worker % 2 === 0 ? first : second, worker, chance.fork(`worker ${worker}`), told),
    ),
  );
  for (const { broker } of [first, second]) await broker.timerSweeper.stop();
  await first.test.advanceClock(31);
  await first.sweep();

  const stored = (await first.stored()).map(({ id }) => id);
  const ids = new Set(stored);
  assert.equal(ids.size, stored.length, 'a message is there twice');
  assert.deepEqual(
    [...told.never].filter((id) => ids.has(id)),
    [],
    'fired although it was taken back or replaced',
  );
  assert.deepEqual(
    [...told.fired].filter((id) => !ids.has(id)),
    [],
    'lost',
  );
  assert.equal(ids.size, told.fired.size);
  const { counters } = first.broker.firing;
  t.diagnostic(
    `${stored.length} fired, ${told.never.size} taken back or replaced, ${told.tooLate} too late, ${counters.stale} stale`,
  );
  assert.ok(told.never.size > 20 && stored.length > 20);
});
