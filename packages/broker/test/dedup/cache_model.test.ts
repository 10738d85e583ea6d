/**
 * The cache against a simulated database: two brokers push to two partitions, everything that can be in flight is
 * in flight in any order, and each push is judged twice by the simulated allocator, with the watermark that the cache
 * vouched and with none. The two verdicts must be equal, offsets of the originals included.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DedupCache } from '../../src/engine/dedup/cache.ts';
import type {
  WindowRequest,
  WindowRow,
  WindowSource,
  WindowStart,
} from '../../src/engine/dedup/hydration.ts';
import { FakeClock, hashesOf } from './fakes.ts';

const SECOND = 1_000_000;
const PAGE_ROWS = 3;

interface Stored {
  base: number;
  atMicros: number;
  ids: number[];
}

/** A partition as the database has it: the allocator of the storage model, in memory. */
class Partition {
  rows: Stored[] = [];
  lastOffset = -1;
  lastCreatedMicros = Number.NEGATIVE_INFINITY;
  txnsStart = 0;
  windowSeconds = 60;
  /** Where each id is stored, ascending. */
  readonly places = new Map<number, { offset: number; atMicros: number }[]>();

  stamp(nowMicros: number): number {
    return Math.max(nowMicros, this.lastCreatedMicros);
  }

  /** For each id that is a duplicate its index and the offset of the original. */
  probe(ids: readonly number[], verified: number, nowMicros: number): [number, number][] {
    const floor = Math.max(verified, this.txnsStart - 1);
    if (this.lastOffset <= floor) return [];
    const from = this.stamp(nowMicros) - this.windowSeconds * SECOND;
    const found: [number, number][] = [];
    for (const [index, id] of ids.entries()) {
      const original = this.places.get(id)?.find((place) => place.offset > floor && place.atMicros >= from);
      if (original !== undefined) found.push([index, original.offset]);
    }
    return found;
  }

  store(ids: number[], nowMicros: number): Stored {
    const row = { base: this.lastOffset + 1, atMicros: this.stamp(nowMicros), ids };
    this.rows.push(row);
    for (const [i, id] of ids.entries()) {
      const places = this.places.get(id) ?? [];
      places.push({ offset: row.base + i, atMicros: row.atMicros });
      this.places.set(id, places);
    }
    this.lastOffset += ids.length;
    this.lastCreatedMicros = row.atMicros;
    return row;
  }

  /** Removes the sidecar's rows that are older than the longest window in use. */
  purge(nowMicros: number): void {
    while (this.rows.length > 0 && this.rows[0]!.atMicros < nowMicros - 120 * SECOND) {
      const row = this.rows.shift()!;
      this.txnsStart = row.base + row.ids.length;
    }
  }

  open(windowSeconds: number): WindowStart {
    const from = this.lastCreatedMicros - (windowSeconds + 5) * SECOND;
    const rows = this.rows.filter((row) => row.atMicros >= from);
    const hashes = rows.reduce((sum, row) => sum + row.ids.length, 0);
    return { lastOffset: this.lastOffset, hashes, rows: rows.slice(0, PAGE_ROWS).map(windowRow) };
  }

  next(afterBase: number, lastOffset: number): WindowRow[] {
    const rows = this.rows.filter(
      (row) => row.base > afterBase && row.base + row.ids.length - 1 <= lastOffset,
    );
    return rows.slice(0, PAGE_ROWS).map(windowRow);
  }
}

function windowRow({ base, atMicros, ids }: Stored): WindowRow {
  return {
    baseOffset: base,
    endOffset: base + ids.length - 1,
    createdAtMicros: atMicros,
    hashes: hashesOf(ids),
  };
}

/** A question on its way to the database and back: taken by it, then answered, each when the schedule says so. */
interface Question {
  take(): void;
  deliver(): void;
  fail(): void;
}

class Broker implements WindowSource {
  readonly clock = new FakeClock();
  readonly questions: Question[] = [];
  readonly cache: DedupCache;
  /** The window of each partition as this broker last heard of it. */
  readonly memo: number[];
  readonly #partitions: readonly Partition[];

  constructor(partitions: readonly Partition[], maxBytes: number) {
    this.#partitions = partitions;
    this.memo = partitions.map((partition) => partition.windowSeconds);
    const log = { warn: () => {} };
    this.cache = new DedupCache({ enabled: true, maxBytes, hydrate: this, clock: this.clock, log });
  }

  open(requests: readonly WindowRequest[]): Promise<(WindowStart | null)[]> {
    return this.#ask(
      requests.map(
        ({ partitionId, windowSeconds }) =>
          () =>
            this.#partitions[partitionId]!.open(windowSeconds),
      ),
    );
  }

  async next(partitionId: number, afterBase: number, lastOffset: number): Promise<WindowRow[]> {
    const [rows] = await this.#ask([() => this.#partitions[partitionId]!.next(afterBase, lastOffset)]);
    return rows!;
  }

  #ask<Answer>(parts: (() => Answer)[]): Promise<Answer[]> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer[]>();
    let answers: Answer[] | null = null;
    const done = (): void => {
      this.questions.splice(this.questions.indexOf(question), 1);
    };
    const question: Question = {
      take: () => {
        answers ??= parts.map((part) => part());
      },
      deliver: () => {
        done();
        resolve(answers ?? parts.map((part) => part()));
      },
      fail: () => {
        done();
        reject(new Error('away'));
      },
    };
    this.questions.push(question);
    return promise;
  }
}

/** A push on its way: prepared, vouched for, stored; then its commit is reported, or lost. */
interface Flight {
  broker: Broker;
  partitionId: number;
  ids: number[];
  windowSeconds: number;
  verified: number | null;
  stored: Stored | null;
}

const ACTIONS = [
  'push',
  'fly',
  'take',
  'deliver',
  'fail',
  'forward',
  'back',
  'local',
  'window',
  'memo',
  'purge',
  'lose',
  'wipe',
] as const;
type Action = (typeof ACTIONS)[number];

/** How often each thing happens, by the theme of a run, in the order of ACTIONS. */
const THEMES: readonly (readonly number[])[] = [
  // a bit of everything
  [20, 46, 4, 13, 1, 4, 1, 3, 1, 3, 1, 1, 1],
  // windows that change, clocks that jump
  [20, 46, 1, 12, 0, 8, 3, 3, 6, 10, 1, 0, 0],
  // peace, so that blocks fill and expire
  [20, 60, 0, 12, 0, 5, 0, 1, 0, 0, 1, 0, 0],
];

function choose(theme: number, kind: number): Action {
  const weights = THEMES[theme]!;
  let rest = kind % weights.reduce((sum, weight) => sum + weight, 0);
  for (const [i, weight] of weights.entries()) {
    if (rest < weight) return ACTIONS[i]!;
    rest -= weight;
  }
  throw new Error('unreachable');
}

type Step = readonly [action: Action, a: number, b: number, c: number];

class World {
  nowMicros = 1_000_000 * SECOND;
  readonly partitions = [new Partition(), new Partition()];
  readonly brokers: Broker[];
  flights: Flight[] = [];
  vouched = 0;
  probesSpared = 0;
  duplicates = 0;
  #nextId = 1;

  constructor(maxBytes: number) {
    this.brokers = [new Broker(this.partitions, maxBytes), new Broker(this.partitions, maxBytes)];
  }

  /** One step of the schedule; the numbers choose among what is possible. */
  step([action, a, b, c]: Step): void {
    for (const { clock } of this.brokers) clock.advance(100);
    // One broker takes most of the pushes: in peace an entry stays warm, which must occur as well.
    const broker = this.brokers[a === 0 ? 1 : 0]!;
    const partitionId = b === 0 ? 1 : 0;
    const flight = this.flights[c % Math.max(1, this.flights.length)];
    const question = broker.questions[c % Math.max(1, broker.questions.length)];
    const at = <T>(values: readonly T[]): T => values[c % values.length]!;
    if (action === 'push') this.#push(broker, partitionId, c);
    else if (action === 'fly') this.#fly(flight);
    else if (action === 'take') question?.take();
    else if (action === 'deliver') question?.deliver();
    else if (action === 'fail') question?.fail();
    else if (action === 'forward') this.nowMicros += at([1, 3, 6, 15, 60]) * SECOND;
    else if (action === 'back') this.nowMicros -= at([1, 30, 100]) * SECOND;
    else if (action === 'local') broker.clock.advance(at([10, 300, 6_000, 31_000]));
    else if (action === 'window') this.partitions[partitionId]!.windowSeconds = at([10, 60, 110]);
    else if (action === 'memo') broker.memo[partitionId] = this.partitions[partitionId]!.windowSeconds;
    else if (action === 'purge') this.partitions[partitionId]!.purge(this.nowMicros);
    else if (action === 'lose') this.flights = this.flights.filter((other) => other !== flight);
    else if (c % 3 === 0) broker.cache.clear();
    else broker.cache.forget(partitionId);
  }

  #push(broker: Broker, partitionId: number, c: number): void {
    // The push path has one flush in flight a partition; transactions and replays come beside it.
    const busy = this.flights.filter((other) => other.broker === broker && other.partitionId === partitionId);
    if (busy.length > (c % 8 === 7 ? 2 : 0)) return;
    const size = [1, 2, 10, 300, 1500][c % 5]!;
    // Every third push brings a few ids of earlier ones, of any age.
    const old = c % 3 === 0 ? 1 + (c % 4) : 0;
    const seen = this.#nextId;
    const ids = new Set<number>();
    for (let i = 0; i < size; i++) {
      ids.add(i < old ? seen - 1 - ((c * 7919 + i * 104_729) % seen) : this.#nextId++);
    }
    const windowSeconds = broker.memo[partitionId]!;
    const known = c % 3 === 0 ? this.partitions[partitionId]!.lastOffset : c % 3 === 1 ? -1 : null;
    void broker.cache.prepare(partitionId, windowSeconds, known);
    this.flights.push({ broker, partitionId, ids: [...ids], windowSeconds, verified: null, stored: null });
  }

  /** The next thing that happens to a push. */
  #fly(flight: Flight | undefined): void {
    if (flight === undefined) return;
    const { broker, partitionId, ids, windowSeconds } = flight;
    const land = (): void => {
      this.flights = this.flights.filter((other) => other !== flight);
    };
    if (flight.stored !== null) {
      const { base, atMicros } = flight.stored;
      broker.cache.committed(partitionId, base, hashesOf(ids), atMicros);
      land();
    } else if (flight.verified === null) {
      flight.verified = broker.cache.vouch(partitionId, windowSeconds, hashesOf(ids));
      if (flight.verified >= 0) this.vouched++;
    } else {
      const rest = this.#allocate(flight, flight.verified);
      if (rest === null) return;
      if (rest.length === 0) land();
      // Repacked without its duplicates, and vouched for anew.
      flight.ids = rest;
      flight.verified = null;
    }
  }

  /** Null: stored. Else what is left to store. */
  #allocate(flight: Flight, verified: number): number[] | null {
    const { partitionId, ids, windowSeconds } = flight;
    const partition = this.partitions[partitionId]!;
    assert.ok(verified <= partition.lastOffset, `vouched ${verified} of ${partition.lastOffset}`);
    // The allocator takes no vouch for a shorter window than the one in force.
    const floor = windowSeconds < partition.windowSeconds ? -1 : verified;
    const found = partition.probe(ids, floor, this.nowMicros);
    assert.deepEqual(found, partition.probe(ids, -1, this.nowMicros), `vouched ${verified} wrongly`);
    if (floor === partition.lastOffset && floor >= 0) this.probesSpared++;
    this.duplicates += found.length;
    if (found.length === 0) {
      flight.stored = partition.store(ids, this.nowMicros);
      return null;
    }
    const gone = new Set(found.map(([index]) => index));
    return ids.filter((_, index) => !gone.has(index));
  }
}

const numbers = fc.tuple(
  fc.nat({ max: 9999 }),
  fc.nat({ max: 15 }),
  fc.nat({ max: 3 }),
  fc.nat({ max: 1000 }),
);

test('whatever is in flight, a vouch never changes a verdict, and it is given when it can be', async () => {
  const runs = Number(process.env.DEDUP_RUNS ?? 90);
  let ran = 0;
  let vouched = 0;
  let probesSpared = 0;
  let duplicates = 0;
  const memory = fc.constantFrom(0, 60_000, 200_000, 600_000, 2_000_000, 100_000_000);
  const steps = fc.array(numbers, { minLength: 100, maxLength: 500, size: 'max' });
  await fc.assert(
    fc.asyncProperty(memory, fc.nat({ max: THEMES.length - 1 }), steps, async (maxBytes, theme, schedule) => {
      ran++;
      const world = new World(maxBytes);
      for (const [kind, a, b, c] of schedule) {
        world.step([choose(theme, kind), a, b, c]);
        await new Promise((resolve) => setImmediate(resolve));
        for (const { cache } of world.brokers) {
          const { bytes } = cache.stats();
          assert.ok(bytes >= 0 && bytes <= maxBytes, `${bytes} bytes of ${maxBytes}`);
        }
      }
      vouched += world.vouched;
      probesSpared += world.probesSpared;
      duplicates += world.duplicates;
    }),
    { numRuns: runs, interruptAfterTimeLimit: 30_000 },
  );
  // The comparison is worth something only if these happened often.
  assert.ok(
    vouched > 4 * ran && probesSpared > 2 * ran && duplicates > 3 * ran,
    `${vouched} ${probesSpared} ${duplicates}`,
  );
});

test('one broker in peace spares every probe but the first', async () => {
  const world = new World(100_000_000);
  const push: Step = ['push', 1, 1, 2];
  const fly: Step = ['fly', 1, 1, 0];
  for (let i = 0; i < 50; i++) {
    world.step(push);
    await new Promise((resolve) => setImmediate(resolve));
    while (world.brokers[0]!.questions.length > 0) {
      world.brokers[0]!.questions[0]!.deliver();
      await new Promise((resolve) => setImmediate(resolve));
    }
    while (world.flights.length > 0) world.step(fly);
    world.step(['forward', 1, 1, 0]);
  }
  assert.ok(world.probesSpared >= 40, `${world.probesSpared} probes spared`);
});
