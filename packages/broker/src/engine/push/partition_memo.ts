import type { Place } from '../../store/push.ts';
import type { Clock } from '../clock.ts';

/** How long a place is believed without a word from the database. */
export const MEMO_TTL_MS = 30_000;
export const MEMO_ENTRIES_MAX = 100_000;

interface Entry {
  place: Place;
  until: number;
}

/**
 * Where a lane's partition is: its id, and what its queue wants of a segment. A hint like every memory of the broker: the
 * append judges by what it reads under the row lock and answers `missing` or `window changed` when the memo was wrong.
 * Every answer of the append brings the window along, so a busy lane never has to look it up again.
 */
export class PartitionMemo {
  readonly #clock: Clock;
  readonly #ttlMs: number;
  readonly #entriesMax: number;
  /** In the order of their last refresh: the first is the next to go. */
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock, ttlMs = MEMO_TTL_MS, entriesMax = MEMO_ENTRIES_MAX) {
    this.#clock = clock;
    this.#ttlMs = ttlMs;
    this.#entriesMax = entriesMax;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): Place | null {
    const entry = this.#entries.get(key);
    if (entry === undefined) return null;
    if (entry.until > this.#clock.now()) return entry.place;
    this.#entries.delete(key);
    return null;
  }

  set(key: string, place: Place): void {
    this.#entries.delete(key);
    this.#entries.set(key, { place, until: this.#clock.now() + this.#ttlMs });
    if (this.#entries.size > this.#entriesMax) this.#entries.delete(this.#entries.keys().next().value!);
  }

  drop(key: string): void {
    this.#entries.delete(key);
  }
}
