/**
 * Deletes expired keys, on every broker. They are invisible from the instant they expire, so nobody waits for this: it
 * gives their room back.
 *
 * The database says when the next key expires, and an idle broker sleeps until then, half a minute at most. A key that this
 * broker writes with a shorter life shortens the sleep.
 */
import type { Queryable } from '../../store/database.ts';
import { expireKv, type KvSweep } from '../../store/kv.ts';
import type { Clock, Timer } from '../clock.ts';

export interface ExpirySettings {
  /** Between two passes that have something to do, ms. */
  everyMs: number;
  /** Rows a pass. */
  batchRows: number;
}

export interface ExpiryDeps {
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  clock: Clock;
  settings: ExpirySettings;
  log: { warn(facts: object, message: string): void };
}

const IDLE_MS_MAX = 30_000;

export class KvExpiry {
  readonly #deps: ExpiryDeps;
  #timer: Timer | null = null;
  #dueAt = Number.POSITIVE_INFINITY;
  #running: Promise<unknown> | null = null;
  #active = false;
  readonly counters: { passes: number; deleted: number } = { passes: 0, deleted: 0 };
  #last: KvSweep = { deleted: 0, leftOver: false, lagMs: 0, waitMs: null };

  constructor(deps: ExpiryDeps) {
    this.#deps = deps;
  }

  /** What the last pass left behind. */
  get last(): KvSweep {
    return this.#last;
  }

  start(): void {
    if (this.#active) return;
    this.#active = true;
    this.#schedule(this.#deps.settings.everyMs);
  }

  async stop(): Promise<void> {
    this.#active = false;
    this.#timer?.cancel();
    this.#timer = null;
    await this.#running;
  }

  /** A key was written that lives so long. */
  written(lifeMs: number): void {
    if (!this.#active || this.#running !== null) return;
    const { clock, settings } = this.#deps;
    const waitMs = Math.max(settings.everyMs, lifeMs);
    if (clock.now() + waitMs < this.#dueAt) this.#schedule(waitMs);
  }

  /** One pass. */
  async pass(): Promise<KvSweep> {
    const sweep = await this.#deps.run((db) => expireKv(db, this.#deps.settings.batchRows));
    this.counters.passes++;
    this.counters.deleted += sweep.deleted;
    this.#last = sweep;
    return sweep;
  }

  #schedule(ms: number): void {
    this.#timer?.cancel();
    this.#dueAt = this.#deps.clock.now() + ms;
    this.#timer = this.#deps.clock.after(ms, () => {
      this.#running = this.#look().then((next) => {
        this.#running = null;
        if (this.#active) this.#schedule(next);
      });
    });
  }

  /** Answers the milliseconds to the next pass; never rejects. */
  async #look(): Promise<number> {
    const { everyMs } = this.#deps.settings;
    try {
      const sweep = await this.pass();
      if (sweep.leftOver) return everyMs;
      return Math.min(IDLE_MS_MAX, Math.max(everyMs, sweep.waitMs ?? IDLE_MS_MAX));
    } catch (err) {
      this.#deps.log.warn({ err }, 'expired keys not swept');
      return Math.max(everyMs, 5_000);
    }
  }
}
