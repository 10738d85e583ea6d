/** Calls of one kind to the database: how much went along in recent ones, and how long they took. */
import { RecentQuantiles } from './quantiles.ts';

export class Batches {
  readonly #items = new RecentQuantiles();
  readonly #ms = new RecentQuantiles();

  note(items: number, ms: number): void {
    this.#items.observe(items);
    this.#ms.observe(ms);
  }

  /** Null before the first. */
  meanItems(): number | null {
    return this.#items.mean();
  }

  /** Milliseconds at the given ranks; null before the first. */
  durations(ranks: readonly number[]): number[] | null {
    return this.#ms.read(ranks);
  }
}
