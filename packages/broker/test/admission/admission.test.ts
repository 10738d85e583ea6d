import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Admission, type AdmissionSettings, type Lane } from '../../src/engine/admission/admission.ts';
import { AdaptiveLimit } from '../../src/engine/admission/limit.ts';
import { PendingBytes } from '../../src/engine/admission/pending_bytes.ts';
import type { Clock, Timer } from '../../src/engine/clock.ts';

/** Time that stands still until it is moved by hand. */
class HandClock implements Clock {
  #now = 0;
  #timers: { at: number; work: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, work: () => void): Timer {
    const timer = { at: this.#now + ms, work };
    this.#timers.push(timer);
    return {
      cancel: () => {
        this.#timers = this.#timers.filter((other) => other !== timer);
      },
    };
  }

  advance(ms: number): void {
    this.#now += ms;
    for (;;) {
      const due = this.#timers.find((timer) => timer.at <= this.#now);
      if (due === undefined) return;
      this.#timers = this.#timers.filter((timer) => timer !== due);
      due.work();
    }
  }
}

const SHARES = { push: 0.25, pop: 0.4, ack: 0.3, maintenance: 0.05 };
const LANES: readonly Lane[] = ['push', 'pop', 'ack', 'maintenance'];
const turn = () => new Promise((resolve) => setImmediate(resolve));

function house(limit: number, overrides: Partial<AdmissionSettings> = {}) {
  const clock = new HandClock();
  const settings = { min: limit, max: limit, init: limit, shares: SHARES, tickMs: 500, ...overrides };
  const admission = new Admission(settings, clock);
  const started: Lane[] = [];
  const running: { lane: Lane; end: () => void }[] = [];
  const enter = (lane: Lane, count = 1) => {
    for (let i = 0; i < count; i++) {
      void admission.run(lane, () => {
        started.push(lane);
        return new Promise<void>((end) => running.push({ lane, end }));
      });
    }
    return turn();
  };
  const leave = async (lane?: Lane) => {
    const at = lane === undefined ? 0 : running.findIndex((one) => one.lane === lane);
    const [gone] = running.splice(at, 1);
    gone!.end();
    await turn();
  };
  return { clock, admission, started, running, enter, leave };
}

test('a lane borrows what the others do not use, but a quarter of their shares stays free', async () => {
  const { admission, started, enter } = house(40);
  await enter('push', 100);
  // Shares of 40: ack 12, pop 16, push 10, maintenance 2; kept of the others: 3 + 4 + 1.
  assert.equal(started.length, 32);
  await enter('ack', 10);
  assert.equal(started.filter((lane) => lane === 'ack').length, 3);
  await enter('pop', 10);
  assert.equal(started.filter((lane) => lane === 'pop').length, 4);
  await enter('maintenance', 2);
  const { inFlight, waiting, limit } = admission.stats();
  assert.deepEqual(inFlight, { ack: 3, pop: 4, push: 32, maintenance: 1 });
  assert.deepEqual(waiting, { ack: 7, pop: 6, push: 68, maintenance: 1 });
  assert.equal(limit, 40);
});

test('a free slot goes to ack, pop, push, maintenance in this order, those below their share first', async () => {
  const { started, enter, leave } = house(20);
  await enter('push', 60);
  await enter('maintenance', 3);
  await enter('pop', 20);
  await enter('ack', 20);
  started.length = 0;
  const freed: string[] = [];
  for (let i = 0; i < 14; i++) {
    await leave('push');
    freed.push(started.at(-1)!);
  }
  // Shares of 20: ack 6, pop 8, push 5, maintenance 1; running before: push 14, maintenance 1, pop 2, ack 1.
  assert.deepEqual(freed.slice(0, 11), [...Array(5).fill('ack'), ...Array(6).fill('pop')].slice(0, 11));
  // Each lane has its share now, and push may go down to its own no further.
  assert.deepEqual(freed.slice(11), ['push', 'push', 'push'].slice(0, freed.length - 11));
});

test('a house too small to keep anything free lets one lane fill it', async () => {
  const { started, enter, leave } = house(4);
  await enter('push', 6);
  assert.equal(started.length, 4);
  await enter('ack');
  await leave();
  assert.equal(started.at(-1), 'ack');
});

test('work that fails gives its slot back, and its error goes to the caller', async () => {
  const { admission } = house(8);
  for (let i = 0; i < 50; i++) {
    await assert.rejects(
      admission.run('push', () => Promise.reject(new Error('no'))),
      /no/,
    );
    await assert.rejects(
      admission.run('push', () => {
        throw new Error('at once');
      }),
      /at once/,
    );
  }
  assert.equal(admission.stats().inFlight.push, 0);
});

test('never above the limit, never idle while somebody may start, first come first served in a lane', async () => {
  const step = fc.oneof(
    fc.record({ enter: fc.constantFrom(...LANES), count: fc.integer({ min: 1, max: 8 }) }),
    fc.record({ leave: fc.nat() }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 8, max: 40 }),
      fc.array(step, { maxLength: 60 }),
      async (limit, steps) => {
        const { admission, running, enter } = house(limit);
        for (const one of steps) {
          if ('enter' in one) await enter(one.enter, one.count);
          else if (running.length > 0) {
            const [gone] = running.splice(one.leave % running.length, 1);
            gone!.end();
            await turn();
          }
          const { inFlight, waiting } = admission.stats();
          const total = LANES.reduce((sum, lane) => sum + inFlight[lane], 0);
          assert.ok(total <= limit, `${total} above ${limit}`);
          assert.equal(total, running.length);
          for (const lane of LANES) {
            if (waiting[lane] > 0) assert.ok(inFlight[lane] >= 1, `${lane} starves`);
          }
          // At least the smallest share is used before anybody waits.
          if (LANES.some((lane) => waiting[lane] > 0))
            assert.ok(total >= Math.floor(limit / 2), `${total} of ${limit}`);
        }
        while (running.length > 0) {
          running.shift()!.end();
          await turn();
        }
        assert.deepEqual(admission.stats().waiting, { push: 0, pop: 0, ack: 0, maintenance: 0 });
      },
    ),
    { numRuns: 40 },
  );
});

test('the limit grows under contention while calls stay fast, and gives way when they do not', () => {
  const limit = new AdaptiveLimit({ min: 10, max: 20, init: 10 }, 4);
  const tick = (ms: number, contended: boolean, calls = 50) => {
    for (let i = 0; i < calls; i++) limit.observe(i % 2, ms);
    limit.tick(contended);
    return limit.value;
  };
  assert.equal(tick(2, false), 10);
  assert.equal(tick(2, true), 11);
  // Too few calls tell nothing.
  assert.equal(tick(2, true, 10), 11);
  for (let i = 0; i < 30; i++) tick(3, true);
  assert.equal(limit.value, 20);
  // Between twice and three times the best: it stays.
  assert.equal(tick(5, true), 20);
  for (let i = 0; i < 5; i++) tick(9, true);
  assert.equal(limit.value, 15);
  for (let i = 0; i < 20; i++) tick(20, true);
  assert.ok(limit.value >= 10);
});

test('calls that became slower for good are the new normal in a while', () => {
  const limit = new AdaptiveLimit({ min: 10, max: 20, init: 10 }, 4);
  const tick = (ms: number) => {
    for (let i = 0; i < 50; i++) limit.observe(0, ms);
    limit.tick(true);
  };
  tick(1);
  let ticks = 0;
  while (limit.value < 20 && ticks < 1_000) {
    tick(10);
    ticks++;
  }
  // Half a second each: within two and a half minutes for a load ten times as heavy.
  assert.ok(ticks > 20 && ticks < 300, `${ticks} ticks`);
});

test('pending bytes: held for a moment, refused after it, first come first served', async () => {
  const clock = new HandClock();
  const pending = new PendingBytes({ maxBytes: 100, holdMs: 50 }, clock);
  const ends: (() => void)[] = [];
  const done: string[] = [];
  const enter = (name: string, bytes: number) =>
    pending
      .run(bytes, () => new Promise<void>((end) => ends.push(end)))
      .then(
        () => void done.push(name),
        (error: { kind: string; retryAfterSeconds: number }) =>
          void done.push(`${name} ${error.kind} ${error.retryAfterSeconds}`),
      );
  // A request that is alone passes, whatever its size.
  const all = [enter('huge', 500)];
  await turn();
  assert.deepEqual(pending.stats(), { bytes: 500, held: 0, refused: 0 });
  all.push(enter('b', 20), enter('c', 20));
  await turn();
  assert.equal(pending.stats().held, 1);
  // What is held is bounded as well: the third was refused at once.
  assert.deepEqual(done, ['c overloaded 1']);
  clock.advance(49);
  ends.shift()!();
  await turn();
  assert.deepEqual(pending.stats(), { bytes: 20, held: 0, refused: 1 });
  all.push(enter('d', 70), enter('e', 20), enter('f', 5));
  await turn();
  assert.equal(ends.length, 2);
  clock.advance(50);
  await turn();
  // e did not fit; f did, and does not wait for e any longer than e itself.
  assert.deepEqual(done.slice(2), ['e overloaded 1']);
  assert.equal(ends.length, 3);
  for (const end of ends.splice(0)) end();
  await Promise.all(all);
  assert.deepEqual(pending.stats(), { bytes: 0, held: 0, refused: 2 });
});
