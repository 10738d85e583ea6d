/**
 * How commits come back: PostgreSQL's group commit lets those that wait for one flush of the log go together, so their
 * answers arrive in bursts. Answers that follow each other closely count as one train. What it shows: how many flushes a
 * second carry the load, how many calls share one, and how long a flush takes when the house is full.
 */
import type { Clock } from '../clock.ts';

export interface TrainNumbers {
  perSecond: number;
  callsPerTrain: number;
  /** Mean time from one train to the next. */
  cycleMs: number;
}

const WINDOW_MS = 10_000;
const NONE: TrainNumbers = { perSecond: 0, callsPerTrain: 0, cycleMs: 0 };

export class Trains {
  readonly #clock: Clock;
  readonly #gapMs: number;
  #last = Number.NEGATIVE_INFINITY;
  #since: number;
  #trains = 0;
  #calls = 0;
  #before = NONE;

  /** @param gapMs answers closer than this to the one before belong to its train. */
  constructor(clock: Clock, gapMs: number) {
    this.#clock = clock;
    this.#gapMs = gapMs;
    this.#since = clock.now();
  }

  note(now: number): void {
    if (now - this.#since >= WINDOW_MS) this.#renew(now);
    if (now - this.#last > this.#gapMs) this.#trains++;
    this.#last = now;
    this.#calls++;
  }

  /** Of the last whole window, or of the running one as long as that is the first. */
  read(): TrainNumbers {
    const now = this.#clock.now();
    if (now - this.#since >= WINDOW_MS) this.#renew(now);
    return this.#before === NONE ? this.#numbers(now) : this.#before;
  }

  #renew(now: number): void {
    // A window that ended long ago says nothing about now.
    this.#before = now - this.#since >= 2 * WINDOW_MS ? { ...NONE } : this.#numbers(now);
    this.#since = now;
    this.#trains = 0;
    this.#calls = 0;
  }

  #numbers(now: number): TrainNumbers {
    if (this.#trains === 0) return { ...NONE };
    const ms = Math.max(1, now - this.#since);
    return {
      perSecond: this.#trains / (ms / 1000),
      callsPerTrain: this.#calls / this.#trains,
      cycleMs: ms / this.#trains,
    };
  }
}
