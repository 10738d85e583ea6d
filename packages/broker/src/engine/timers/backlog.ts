/** How much is due and waits, for the metrics: looked up when somebody asks, at most every few seconds. */
import type { Queryable } from '../../store/database.ts';
import { readBacklog, type TimerBacklog } from '../../store/timers.ts';
import type { Clock } from '../clock.ts';

const MEMO_MS = 5_000;

export class Backlog {
  readonly #run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  readonly #clock: Clock;
  #known: TimerBacklog = { due: 0, capped: false, lateMs: 0 };
  #until = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | null = null;

  constructor(run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>, clock: Clock) {
    this.#run = run;
    this.#clock = clock;
  }

  /** What was read last while the database does not answer. Never rejects. */
  async read(): Promise<TimerBacklog> {
    if (this.#clock.now() >= this.#until) {
      this.#reading ??= this.#refresh();
      await this.#reading;
    }
    return this.#known;
  }

  async #refresh(): Promise<void> {
    try {
      this.#known = await this.#run(readBacklog);
    } catch {
      // The scrape has other families to show.
    } finally {
      this.#until = this.#clock.now() + MEMO_MS;
      this.#reading = null;
    }
  }
}
