/**
 * Slots for database calls, taken before a connection. A pool alone serves first come, first served: ten thousand pushes
 * in its queue would keep an ack, which is what lets the consumers go on, waiting behind all of them.
 *
 * - Each lane has a share of the limit. What it does not use is lent to the others, except for a quarter of it, which is
 *   always free for the lane's own next call: borrowers that hang must not shut out an ack.
 * - A borrowed slot is not taken back, it ends with its call.
 * - A free slot goes to the first lane that waits, in the order ack, pop, push, maintenance: first among those below their
 *   share, then among the rest. So no lane starves, and what finishes work comes before what brings new.
 *
 * `run` must not be called from within `run`: a full house whose every guest waits for a second seat never moves.
 */
import type { Clock } from '../clock.ts';
import { AdaptiveLimit, type LimitBounds } from './limit.ts';
import { Trains } from './trains.ts';

export type Lane = 'push' | 'pop' | 'ack' | 'maintenance';

export interface AdmissionSettings extends LimitBounds {
  /** Fractions of the limit; together at most 1. */
  shares: Readonly<Record<Lane, number>>;
  /** Period of the adaptation of the limit. */
  tickMs: number;
  /** Answers so close together count as one train of commits. Default 0.3. */
  trainGapMs?: number;
  /** Hears of each adaptation. */
  trace?: ((facts: object) => void) | undefined;
}

export interface AdmissionStats {
  limit: number;
  inFlight: Record<Lane, number>;
  waiting: Record<Lane, number>;
}

/** In the order in which a free slot is offered. */
const LANES: readonly Lane[] = ['ack', 'pop', 'push', 'maintenance'];

const TRAIN_GAP_MS = 0.3;

/** Below, a slot kept free for each lane would leave too little to work with. */
const KEEPING_LIMIT_MIN = 8;

interface Waiter {
  grant: () => void;
  next: Waiter | null;
}

class LaneState {
  readonly index: number;
  readonly share: number;
  inFlight = 0;
  waiting = 0;
  #first: Waiter | null = null;
  #last: Waiter | null = null;

  constructor(index: number, share: number) {
    this.index = index;
    this.share = share;
  }

  enqueue(grant: () => void): void {
    const waiter: Waiter = { grant, next: null };
    if (this.#last === null) this.#first = waiter;
    else this.#last.next = waiter;
    this.#last = waiter;
    this.waiting++;
  }

  dequeue(): () => void {
    const waiter = this.#first!;
    this.#first = waiter.next;
    if (this.#first === null) this.#last = null;
    this.waiting--;
    return waiter.grant;
  }
}

export class Admission {
  readonly #clock: Clock;
  readonly #limit: AdaptiveLimit;
  readonly #lanes: LaneState[];
  readonly #tickMs: number;
  readonly #trace: ((facts: object) => void) | undefined;
  /** Of calls that commit. */
  readonly trains: Trains;
  #inFlight = 0;
  #contended = false;
  #tickAt: number;

  constructor(settings: AdmissionSettings, clock: Clock) {
    this.#clock = clock;
    this.#limit = new AdaptiveLimit(settings, LANES.length);
    this.#lanes = LANES.map((lane, index) => new LaneState(index, settings.shares[lane]));
    this.#tickMs = settings.tickMs;
    this.#trace = settings.trace;
    this.trains = new Trains(clock, settings.trainGapMs ?? TRAIN_GAP_MS);
    this.#tickAt = clock.now() + settings.tickMs;
  }

  /** Runs `work` as soon as its lane has a slot; the slot is given back when it settles. */
  async run<T>(lane: Lane, work: () => Promise<T>): Promise<T> {
    const state = this.#lanes[LANES.indexOf(lane)]!;
    // Somebody of this lane waits already: no overtaking.
    if (state.waiting === 0 && this.#hasSlot(state)) this.#start(state);
    else {
      this.#contended = true;
      await new Promise<void>((grant) => state.enqueue(grant));
    }
    const startedAt = this.#clock.now();
    try {
      return await work();
    } finally {
      this.#finish(state, startedAt);
    }
  }

  stats(): AdmissionStats {
    const read = (of: (state: LaneState) => number) =>
      Object.fromEntries(LANES.map((lane, i) => [lane, of(this.#lanes[i]!)])) as Record<Lane, number>;
    return {
      limit: this.#limit.value,
      inFlight: read((state) => state.inFlight),
      waiting: read((state) => state.waiting),
    };
  }

  #share(state: LaneState): number {
    return Math.max(1, Math.floor(this.#limit.value * state.share));
  }

  /** Of its share, what is not lent. */
  #kept(state: LaneState): number {
    return this.#limit.value < KEEPING_LIMIT_MIN ? 0 : Math.max(1, this.#share(state) >> 2);
  }

  #hasSlot(state: LaneState): boolean {
    let free = this.#limit.value - this.#inFlight;
    if (state.inFlight >= this.#kept(state)) {
      for (const other of this.#lanes) {
        if (other !== state) free -= Math.max(0, this.#kept(other) - other.inFlight);
      }
    }
    return free > 0;
  }

  #start(state: LaneState): void {
    state.inFlight++;
    this.#inFlight++;
  }

  #finish(state: LaneState, startedAt: number): void {
    state.inFlight--;
    this.#inFlight--;
    const now = this.#clock.now();
    const lane = LANES[state.index];
    if (lane !== 'maintenance') this.#limit.observe(state.index, now - startedAt);
    if (lane === 'push' || lane === 'ack') this.trains.note(now);
    // Driven by the calls themselves: without any there is nothing to adapt to, and no timer to stop.
    if (now >= this.#tickAt) {
      this.#limit.tick(this.#contended);
      this.#trace?.({ contended: this.#contended, ...this.stats() });
      this.#contended = this.#lanes.some((lane) => lane.waiting > 0);
      this.#tickAt = now + this.#tickMs;
    }
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      this.#start(next);
      next.dequeue()();
    }
  }

  #next(): LaneState | undefined {
    const ready = (lane: LaneState) => lane.waiting > 0 && this.#hasSlot(lane);
    return (
      this.#lanes.find((lane) => ready(lane) && lane.inFlight < this.#share(lane)) ?? this.#lanes.find(ready)
    );
  }
}
