/** The spool over a log that is only a list: order, once each, whatever goes wrong and whenever it ends. */
import assert from 'node:assert/strict';
import { readdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { until } from '../../../../test/kit/until.ts';
import { laneKey } from '../../src/engine/push/unit.ts';
import type { Spool } from '../../src/engine/spool/spool.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';
import { FakeLog, filesOf, type Mood, messages, openSpool, TENANT, temporary } from './fixture.ts';

const key = (partition: string) => laneKey(TENANT, 'q', partition);
const slotOf = (directory: string) => join(directory, '0');

async function keep(spool: Spool, partition: string, ids: readonly string[], failed = true): Promise<void> {
  await spool.keep(messages(partition, ids), failed);
}

const empty = (spool: Spool) => until('it is empty', async () => spool.state().pending === 0, 10_000);

test('lanes come into the log in their order, and a push waits for what lies before it', async (t) => {
  const log = new FakeLog();
  let away = true;
  log.mood = () => (away ? 'away' : 'fine');
  const spool = await openSpool(temporary(t), log);
  assert.equal(spool.way(key('p')), 'log');
  await keep(spool, 'p', ['a', 'b']);
  await keep(spool, 'r', ['x']);
  assert.deepEqual([spool.way(key('p')), spool.way(key('s'))], ['spool', 'log']);
  spool.start();
  await until('it was tried', async () => log.calls > 2);
  assert.equal(spool.state().healthy, false);
  await keep(spool, 'p', ['c'], false);
  away = false;
  await empty(spool);
  assert.equal(await spool.way(key('p')), 'log');
  assert.deepEqual(log.lanes.get('p'), ['a', 'b', 'c']);
  assert.deepEqual(spool.state().healthy, true);
  await spool.stop();
});

test('a push that waits goes to the log when its lane is clear, and to the disk when that takes long', async (t) => {
  const log = new FakeLog();
  let paused = true;
  const clock = new FakeClock();
  const spool = await openSpool(temporary(t), log, { clock, paused: () => paused });
  await keep(spool, 'p', ['a'], false);
  spool.start();
  assert.equal(spool.way(key('p')), 'spool');
  assert.equal(spool.way(key('other')), 'spool', 'paused is paused for all');
  paused = false;
  const waiting = spool.way(key('p'));
  assert.ok(waiting instanceof Promise);
  const late = spool.way(key('p'));
  spool.resumed();
  assert.equal(await waiting, 'log');
  assert.equal(await late, 'log');
  assert.deepEqual(log.lanes.get('p'), ['a']);

  paused = true;
  await keep(spool, 'p', ['b'], false);
  paused = false;
  const patient = spool.way(key('p'));
  clock.advance(2_000);
  assert.equal(await patient, 'spool');
  await spool.stop();
});

test('trouble that lasts is met with rests; then pushes of all lanes go to the disk at once', async (t) => {
  const log = new FakeLog();
  log.mood = () => 'away';
  const clock = new FakeClock();
  const spool = await openSpool(temporary(t), log, { clock });
  spool.start();
  await keep(spool, 'p', ['a']);
  // The flush that failed is the first of ten.
  for (let i = 1; i < 10; i++) {
    assert.equal(spool.way(key('other')), 'log', `after ${i} failures`);
    await until('it was tried', async () => {
      if (spool.counters.failures < i) clock.advance(1);
      return spool.counters.failures === i;
    });
  }
  assert.equal(spool.way(key('other')), 'spool', 'nobody else need find out');
  await until('it was tried', async () => {
    if (spool.counters.failures < 10) clock.advance(1);
    return spool.counters.failures === 10;
  });
  const { calls } = log;
  for (let i = 0; i < 50; i++) {
    clock.advance(90);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(log.calls, calls, 'nobody tries during a rest');
  spool.databaseBack();
  await until('the database has shown itself', async () => {
    clock.advance(1);
    return log.calls > calls;
  });
  log.mood = () => 'fine';
  for (let i = 0; i < 2_000 && spool.state().pending > 0; i++) {
    clock.advance(5);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal(spool.state().pending, 0);
  assert.equal(spool.way(key('other')), 'log');
  await spool.stop();
});

test('what no log takes is put aside alone, after some tries, and can be put back', async (t) => {
  const directory = temporary(t);
  const log = new FakeLog();
  log.poison.add('bad');
  const spool = await openSpool(directory, log);
  for (const ids of [['a'], ['b', 'bad'], ['c']]) await keep(spool, 'p', ids);
  await keep(spool, 'r', ['x']);
  spool.start();
  await empty(spool);
  assert.deepEqual([log.lanes.get('p'), log.lanes.get('r')], [['a', 'c'], ['x']]);
  assert.deepEqual(
    [spool.state().failed, spool.state().failedFiles.count, spool.counters.putAside],
    [2, 1, 2],
  );
  assert.equal(spool.state().healthy, true);
  log.poison.clear();
  const slot = slotOf(directory);
  const [name] = readdirSync(join(slot, 'failed'));
  renameSync(join(slot, 'failed', name!), join(slot, name!));
  assert.equal(await spool.adopt(), 1);
  await empty(spool);
  assert.deepEqual(log.lanes.get('p'), ['a', 'c', 'b', 'bad']);
  assert.equal(spool.state().failed, 0);
  await spool.stop();
});

test('a start stores what was left before it goes on, and gives up on a database that takes nothing', async (t) => {
  const directory = temporary(t);
  const first = await openSpool(directory, new FakeLog());
  const ids = Array.from({ length: 50 }, (_, i) => `m${i}`);
  for (const id of ids) await keep(first, 'p', [id]);
  await first.stop();
  const log = new FakeLog();
  log.mood = () => 'away';
  const clock = new FakeClock();
  const stuck = await openSpool(directory, log, { clock });
  let over = false;
  const recovery = stuck.recover(3_600_000, null).then(() => {
    over = true;
  });
  for (let i = 0; i < 100_000 && !over; i++) {
    clock.advance(50);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await recovery;
  assert.ok(clock.now() >= 30_000 && clock.now() < 60_000, `${clock.now()} ms`);
  assert.equal(stuck.way(key('p')), 'spool');
  await stuck.stop();
  const asked = Promise.resolve();
  const stopped = await openSpool(directory, log);
  await stopped.recover(3_600_000, asked);
  assert.equal(stopped.state().pending, 50);
  await stopped.stop();
  const next = await openSpool(directory, new FakeLog());
  await next.recover(3_600_000, null);
  assert.equal(next.state().pending, 0);
  await next.stop();
  assert.deepEqual(filesOf(slotOf(directory), 'buf'), []);
});

type Step =
  | { do: 'push'; lane: 'p' | 'r'; count: number }
  | { do: 'wait' }
  | { do: 'mood'; mood: Mood }
  | { do: 'pause'; on: boolean }
  | { do: 'restart' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('push' as const),
      lane: fc.constantFrom('p', 'r'),
      count: fc.integer({ min: 1, max: 12 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('mood' as const),
      mood: fc.constantFrom<Mood>('fine', 'away', 'in doubt'),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('pause' as const), on: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
) as fc.Arbitrary<Step>;

test('whatever happens: every message once, and each lane in the order of its pushes', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      const directory = temporary(t);
      const log = new FakeLog();
      let mood: Mood = 'fine';
      let paused = false;
      log.mood = () => mood;
      const open = async () => {
        const spool = await openSpool(directory, log, { paused: () => paused });
        spool.start();
        return spool;
      };
      let spool = await open();
      const pushed: Record<'p' | 'r', string[]> = { p: [], r: [] };
      try {
        for (const each of steps) {
          if (each.do === 'wait') await new Promise((resolve) => setTimeout(resolve, 6));
          else if (each.do === 'mood') mood = each.mood;
          else if (each.do === 'pause') {
            paused = each.on;
            if (!paused) spool.resumed();
          } else if (each.do === 'restart') {
            await spool.stop();
            spool = await open();
          } else {
            const { lane, count } = each;
            const ids = Array.from({ length: count }, (_, i) => `${lane}${pushed[lane].length + i}`);
            // As the push path does it: by the way that it is told, and around when the flush fails.
            const way = await spool.way(key(lane));
            if (way === 'log' && mood === 'fine') log.push(lane, ids);
            else if (way === 'log') {
              if (mood === 'in doubt') log.push(lane, ids);
              await keep(spool, lane, ids);
            } else await keep(spool, lane, ids, false);
            pushed[lane].push(...ids);
          }
        }
        mood = 'fine';
        paused = false;
        spool.resumed();
        await until('it is empty', async () => spool.state().pending === 0, 20_000);
        assert.deepEqual([log.lanes.get('p') ?? [], log.lanes.get('r') ?? []], [pushed.p, pushed.r]);
      } finally {
        await spool.stop();
      }
    }),
    { numRuns: 25, endOnFailure: true },
  );
});
