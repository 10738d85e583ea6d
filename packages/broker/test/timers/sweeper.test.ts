/** When the sweeper looks: a clock that the test moves, and a database that answers what the test says. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TimerSweeper } from '../../src/engine/timers/sweeper.ts';
import type { Queryable } from '../../src/store/database.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';

const SETTINGS = {
  minSleepMs: 5,
  maxSleepMs: 1000,
  idleSleepMs: 30_000,
  idleAfterCycles: 3,
  leaseMs: 30_000,
  claimBatch: 200,
  cycleRowsMax: 5000,
  fireBytesMax: 8_388_608,
  parallelism: 1,
};

type Answer = { rows?: number; more?: boolean; waitMs?: number | null; enabled?: boolean } | Error;

class Stage {
  readonly clock = new FakeClock();
  readonly looks: number[] = [];
  answer: () => Answer = () => ({ waitMs: null });
  fired = 0;
  well = true;
  fireMs = 0;
  readonly warnings: string[] = [];
  readonly sweeper: TimerSweeper;

  constructor(settings: Partial<typeof SETTINGS> = {}) {
    const db = { query: async () => this.#claim() } as unknown as Queryable;
    this.sweeper = new TimerSweeper({
      run: (work) => work(db),
      firing: {
        fire: async (timers) => {
          this.fired += timers.length;
          this.clock.advance(this.fireMs);
          return this.well;
        },
        settleDebts: async () => {},
      },
      paused: () => false,
      clock: this.clock,
      settings: { ...SETTINGS, ...settings },
      log: { warn: (_facts, message) => void this.warnings.push(message) },
    });
  }

  #claim(): object[] {
    this.looks.push(this.clock.now());
    const answer = this.answer();
    if (answer instanceof Error) throw answer;
    const { rows = 0, more = false, waitMs = null, enabled = true } = answer;
    const all = <T>(value: T) => Array.from({ length: rows }, () => value);
    return [
      {
        enabled,
        more,
        passedBy: 0,
        waitMs,
        tenants: rows === 0 ? null : all(''),
        queues: all(''),
        keys: all(''),
        tokens: all(''),
        partitions: all(''),
        due: all(0),
        txns: all(''),
        ids: all(Buffer.alloc(0)),
        payloads: all(Buffer.alloc(0)),
        zstd: all(false),
        encrypted: all(false),
        sealed: all(false),
        subs: all(null),
        attempts: all(0),
      },
    ];
  }

  async run(ms: number, step = ms > 1000 ? 20 : 1): Promise<number[]> {
    this.looks.length = 0;
    const from = this.clock.now();
    for (const end = from + ms; this.clock.now() < end; ) {
      this.clock.advance(Math.min(step, end - this.clock.now()));
      for (let i = 0; i < 12; i++) await Promise.resolve();
    }
    return this.looks.map((at) => at - from);
  }
}

test('it sleeps until the next is due, within its bounds', async () => {
  const stage = new Stage();
  stage.answer = () => ({ waitMs: 300 });
  stage.sweeper.start();
  assert.deepEqual((await stage.run(700)).slice(0, 3), [1, 301, 601]);
  stage.answer = () => ({ waitMs: 3_600_000 });
  await stage.run(400);
  const looks = await stage.run(2500);
  assert.ok(looks.length === 2 || looks.length === 3, String(looks));
  stage.answer = () => ({ waitMs: 0 });
  await stage.run(1000);
  assert.equal((await stage.run(100)).length, 20);
  await stage.sweeper.stop();
  assert.deepEqual(await stage.run(100), []);
});

test('nothing is scheduled: after a while it looks every half minute, until it is rung or hears of a peer', async () => {
  const stage = new Stage();
  stage.sweeper.start();
  assert.equal((await stage.run(3500)).length, 3);
  assert.equal((await stage.run(25_000)).length, 0);
  stage.sweeper.ring(200);
  assert.deepEqual((await stage.run(400)).length, 1);
  await stage.run(5000);
  assert.deepEqual(await stage.run(10_000), []);
  stage.sweeper.heard();
  assert.deepEqual((await stage.run(100)).length, 1);
  // What is due later than the next look anyway changes nothing.
  await stage.run(5000);
  stage.sweeper.ring(60_000);
  assert.deepEqual(await stage.run(5000), []);
});

test('something is scheduled while a cycle runs: the sleep after it is as short as that needs', async () => {
  const stage = new Stage();
  let rung = false;
  stage.answer = () => {
    if (!rung) stage.sweeper.ring(50);
    rung = true;
    return { waitMs: null };
  };
  stage.sweeper.start();
  const looks = await stage.run(200);
  assert.equal(looks.length, 2);
  assert.ok(looks[1]! - looks[0]! >= 50 && looks[1]! - looks[0]! < 60, String(looks));
});

test('more is due: it goes on, up to the rows of a cycle and half of the lease', async () => {
  const stage = new Stage({ cycleRowsMax: 500 });
  stage.answer = () => ({ rows: 200, more: true });
  const cycle = await stage.sweeper.pass();
  assert.deepEqual([cycle.rows, cycle.end.kind], [600, 'limit']);
  assert.equal(stage.looks.length, 3);
  const slow = new Stage();
  slow.answer = () => ({ rows: 10, more: true });
  slow.fireMs = 4_000;
  const late = await slow.sweeper.pass();
  assert.deepEqual([late.rows, late.end.kind], [40, 'limit']);
});

test('others hold what is due: the pause grows to 200 ms, and is short again afterwards', async () => {
  const stage = new Stage();
  stage.answer = () => ({ more: true });
  stage.sweeper.start();
  const looks = await stage.run(1000);
  const gaps = looks.slice(1).map((at, i) => at - looks[i]!);
  assert.deepEqual(gaps.slice(0, 5), [25, 50, 100, 200, 200]);
  stage.answer = () => ({ rows: 1, waitMs: 100 });
  await stage.run(300);
  stage.answer = () => ({ more: true });
  const again = await stage.run(150);
  assert.equal(again[1]! - again[0]!, 25);
});

test('firing is off, the database is away, or has trouble in the middle: once a second', async () => {
  for (const answer of [{ enabled: false }, new Error('away'), { rows: 1, more: true }] as Answer[]) {
    const stage = new Stage();
    stage.well = false;
    stage.answer = () => answer;
    stage.sweeper.start();
    const looks = await stage.run(4500);
    assert.equal(looks.length, 5, String(looks));
    assert.equal(stage.warnings.length, answer instanceof Error ? 1 : 0, 'told once, not each time');
  }
});

test('a stop waits for the fire, and nothing more is claimed', async () => {
  const stage = new Stage();
  let finish: () => void = () => {};
  const firing = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const sweeper = new TimerSweeper({
    run: async () => ({ enabled: true, timers: [{}], more: true, passedBy: 0, waitMs: null }) as never,
    firing: {
      fire: async () => {
        stage.fired++;
        await firing;
        return true;
      },
      settleDebts: async () => {},
    },
    paused: () => false,
    clock: stage.clock,
    settings: SETTINGS,
    log: { warn() {} },
  });
  sweeper.start();
  await stage.run(5);
  let stopped = false;
  const stop = sweeper.stop().then(() => {
    stopped = true;
  });
  await stage.run(5);
  assert.deepEqual([stage.fired, stopped], [1, false]);
  finish();
  await stop;
  assert.equal(stage.fired, 1);
});
