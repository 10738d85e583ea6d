/**
 * How many database calls run at a time. More of them fill PostgreSQL's group commit until its cores are busy; from
 * there on each call only waits longer and holds its row locks longer.
 *
 * The rule is the one of TCP, on service times. Each lane remembers its best mean service time, which is forgotten slowly
 * (by 1 % a tick), so that a load that became heavier for good is the new normal within a minute. At a tick at which
 * calls had to wait for a slot, the limit grows by a twentieth as long as calls take less than twice their best, and
 * shrinks by a twentieth when they take more than three times. In between, or when nobody waits, it stays: a limit that
 * is not reached says nothing about itself. Comparing lane by lane keeps a change of the mix (pops are slower than acks)
 * from looking like a change of the load; maintenance is left out, its calls are long by nature.
 *
 * Holding commits back into trains was left out: PostgreSQL's own group commit lets all that wait for one flush share
 * the next.
 */
const STEP = 0.05;
const FORGET = 1.01;
const GROW_BELOW = 2;
const SHRINK_ABOVE = 3;
/** Calls in a tick below which it tells nothing. */
const SAMPLE_MIN = 20;

export interface LimitBounds {
  /** Calls at a time, 1 or more. */
  min: number;
  max: number;
  init: number;
}

class ServiceTime {
  #best = Number.POSITIVE_INFINITY;
  #totalMs = 0;
  count = 0;

  observe(ms: number): void {
    this.#totalMs += ms;
    this.count++;
  }

  /** This tick's mean as a multiple of the best one; starts the next tick. */
  close(): number {
    if (this.count === 0) return 0;
    const mean = Math.max(this.#totalMs / this.count, 0.01);
    this.#best = Math.min(this.#best * FORGET, mean);
    this.#totalMs = 0;
    this.count = 0;
    return mean / this.#best;
  }
}

export class AdaptiveLimit {
  readonly #bounds: LimitBounds;
  readonly #lanes: ServiceTime[];
  #value: number;

  constructor(bounds: LimitBounds, lanes: number) {
    this.#bounds = bounds;
    this.#lanes = Array.from({ length: lanes }, () => new ServiceTime());
    this.#value = bounds.init;
  }

  get value(): number {
    return Math.floor(this.#value);
  }

  observe(lane: number, ms: number): void {
    this.#lanes[lane]!.observe(ms);
  }

  /** @param contended somebody had to wait for a slot since the last tick */
  tick(contended: boolean): void {
    let calls = 0;
    let stretched = 0;
    for (const lane of this.#lanes) {
      const count = lane.count;
      stretched += lane.close() * count;
      calls += count;
    }
    if (!contended || calls < SAMPLE_MIN) return;
    const stretch = stretched / calls;
    const step = Math.max(1, this.#value * STEP);
    if (stretch < GROW_BELOW) this.#value = Math.min(this.#bounds.max, this.#value + step);
    else if (stretch > SHRINK_ABOVE) this.#value = Math.max(this.#bounds.min, this.#value - step);
  }
}
