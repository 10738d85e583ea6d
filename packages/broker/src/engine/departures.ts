/**
 * When the next group of requests leaves for the database, for whatever gathers requests into transactions: at once
 * when none is under way, when a group is full, or when its first request has waited for `holdMs`; else when
 * another one lands. A commit costs the same for one request as for many, so while there is something to wait
 * for it is cheaper to wait for company; the hold is for a database that is slow rather than busy, where flights side
 * by side are what brings throughput.
 */
import type { Clock, Timer } from './clock.ts';

export interface DepartureSettings {
  /** Groups under way at a time. */
  flightsMax: number;
  holdMs: number;
}

/** What waits, as far as it has no flight yet. */
export interface Waiting {
  /** When the first one came, by the clock. */
  since: number;
  /** They fill a group. */
  full: boolean;
}

export class Departures {
  readonly #clock: Clock;
  readonly #settings: DepartureSettings;
  readonly #waiting: () => Waiting | null;
  readonly #fly: () => Promise<void>;
  #flights = 0;
  #scheduled = false;
  #hold: Timer | null = null;

  /**
   * @param waiting what is to be sent; null: nothing
   * @param fly sends one group; never rejects. What it takes along must not be reported as waiting any more when it returns
   */
  constructor(
    clock: Clock,
    settings: DepartureSettings,
    waiting: () => Waiting | null,
    fly: () => Promise<void>,
  ) {
    this.#clock = clock;
    this.#settings = settings;
    this.#waiting = waiting;
    this.#fly = fly;
  }

  get flights(): number {
    return this.#flights;
  }

  /** Looks at what waits once this turn of the event loop has read its sockets, so that all of it goes together. */
  schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#dispatch();
    });
  }

  #dispatch(): void {
    while (this.#flights < this.#settings.flightsMax) {
      const waiting = this.#waiting();
      if (waiting === null) return;
      if (this.#flights > 0 && !waiting.full && this.#isHeld(waiting.since)) return;
      this.#flights++;
      void this.#fly().then(() => {
        this.#flights--;
        this.schedule();
      });
    }
  }

  #isHeld(since: number): boolean {
    const left = since + this.#settings.holdMs - this.#clock.now();
    if (left <= 0) return false;
    this.#hold ??= this.#clock.after(Math.ceil(left), () => {
      this.#hold = null;
      this.#dispatch();
    });
    return true;
  }
}
