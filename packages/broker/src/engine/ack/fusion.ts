/**
 * Whole-batch completions of many requests in one statement and one commit: an ack costs a commit, and a commit costs a
 * flush of the write-ahead log. When a flush leaves is decided in ../departures.ts.
 *
 * A flush settles rows of which this broker knows worker, first and last message. What it does not settle changed
 * meanwhile and is for the decision procedure to judge.
 */

import type { Completion, Settled } from '../../store/ack.ts';
import { StoreError } from '../../store/errors.ts';
import type { Clock } from '../clock.ts';
import { type DepartureSettings, Departures } from '../departures.ts';

/** Settles completions, one answer each, in order. No two name one consumer row. */
export type Flush = (completions: readonly Completion[]) => Promise<(Settled | null)[]>;

interface Pending extends Completion {
  /** Names the consumer row. */
  readonly row: string;
  readonly since: number;
  readonly waiters: { resolve(settled: Settled | null): void; reject(error: unknown): void }[];
}

/** Rows a flush may hold locked until its commit. */
const ROWS_A_FLUSH_MAX = 512;

export class AckFusion {
  /** By row and worker, in the order of arrival. */
  readonly #pending = new Map<string, Pending>();
  readonly #clock: Clock;
  readonly #flush: Flush;
  readonly #departures: Departures;
  /** Flushes, and the completions in them, since the start. */
  readonly counters: { flushes: number; items: number } = { flushes: 0, items: 0 };

  constructor(clock: Clock, settings: DepartureSettings, flush: Flush) {
    this.#clock = clock;
    this.#flush = flush;
    this.#departures = new Departures(
      clock,
      settings,
      () => {
        for (const { since } of this.#pending.values()) {
          return { since, full: this.#pending.size >= ROWS_A_FLUSH_MAX };
        }
        return null;
      },
      () => this.#fly(),
    );
  }

  /** Null: the row is not as this broker knew it. Rejects when the flush failed: then nothing is known to be committed. */
  submit(completion: Completion): Promise<Settled | null> {
    return new Promise((resolve, reject) => {
      const row = `${completion.partitionId}\u001f${completion.group}`;
      const key = `${row}\u001f${completion.worker}`;
      const same = this.#pending.get(key);
      if (same === undefined) {
        const waiters = [{ resolve, reject }];
        this.#pending.set(key, { ...completion, row, since: this.#clock.now(), waiters });
      } else {
        same.first = Math.min(same.first, completion.first);
        same.last = Math.max(same.last, completion.last);
        same.waiters.push({ resolve, reject });
      }
      this.#departures.schedule();
    });
  }

  get waiting(): number {
    return this.#pending.size;
  }

  async #fly(): Promise<void> {
    const batch = this.#take();
    this.counters.flushes++;
    this.counters.items += batch.length;
    await this.#settle(batch);
  }

  /** The next flush: no consumer row twice, so a second worker of a row waits for the flush after. */
  #take(): Pending[] {
    const rows = new Set<string>();
    const batch: Pending[] = [];
    for (const [key, pending] of this.#pending) {
      if (batch.length >= ROWS_A_FLUSH_MAX) break;
      if (rows.has(pending.row)) continue;
      rows.add(pending.row);
      batch.push(pending);
      this.#pending.delete(key);
    }
    return batch;
  }

  async #settle(batch: readonly Pending[]): Promise<void> {
    try {
      const settled = await this.#flush(batch);
      batch.forEach((pending, i) => {
        for (const waiter of pending.waiters) waiter.resolve(settled[i]!);
      });
    } catch (error) {
      // The statement itself was refused, say by a row that cannot be read: nothing was written, and one partition's
      // trouble must not become that of whoever shared its flush.
      if (batch.length > 1 && error instanceof StoreError && error.kind === 'refused') {
        for (const pending of batch) await this.#settle([pending]);
      } else {
        for (const pending of batch) for (const waiter of pending.waiters) waiter.reject(error);
      }
    }
  }
}
