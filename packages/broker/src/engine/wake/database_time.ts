/**
 * What the database's clock shows, without asking it: the difference to the engine's monotonic clock, renewed by
 * every answer that carries a time. Good for choosing how far back to look; leases and visibility are never
 * judged by it.
 */
import type { Clock } from '../clock.ts';

/** Beyond this the clock was set, or another server answers; a late answer alone explains less. */
const JUMP_MS = 500;

export class DatabaseTime {
  readonly #clock: Clock;
  #offsetMicros: number | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Microseconds since 1970, or null before the first answer. */
  now(): number | null {
    return this.#offsetMicros === null ? null : this.#offsetMicros + Math.round(this.#clock.now() * 1000);
  }

  /**
   * An answer said `nowMicros`, to a question asked at `askedAt` (ms of the engine's clock). True when the clock has
   * jumped since the last answer.
   */
  observe(nowMicros: number, askedAt: number): boolean {
    const answeredAt = this.#clock.now();
    const offset = nowMicros - Math.round(((askedAt + answeredAt) / 2) * 1000);
    const before = this.#offsetMicros;
    this.#offsetMicros = offset;
    if (before === null) return false;
    return Math.abs(offset - before) / 1000 > JUMP_MS + (answeredAt - askedAt);
  }
}
