/**
 * Lengths of time in buckets that grow by an eighth of a power of two: any number of them in a few kilobytes, each
 * told to within 9 %.
 */
const PER_DOUBLING = 8;
const LEAST_MS = 0.01;

export class Latencies {
  readonly #buckets: number[] = [];
  #count = 0;
  #max = 0;

  add(ms: number): void {
    const bucket = ms <= LEAST_MS ? 0 : Math.ceil(Math.log2(ms / LEAST_MS) * PER_DOUBLING);
    this.#buckets[bucket] = (this.#buckets[bucket] ?? 0) + 1;
    this.#count++;
    if (ms > this.#max) this.#max = ms;
  }

  /** What a share of them does not exceed, ms; null without any. @param share 0..1 */
  quantile(share: number): number | null {
    if (this.#count === 0) return null;
    let left = Math.max(1, Math.ceil(share * this.#count));
    for (let bucket = 0; bucket < this.#buckets.length; bucket++) {
      left -= this.#buckets[bucket] ?? 0;
      if (left <= 0) return Math.min(this.#max, LEAST_MS * 2 ** (bucket / PER_DOUBLING));
    }
    return this.#max;
  }

  get summary(): { p50Ms: number | null; p95Ms: number | null; p99Ms: number | null; maxMs: number | null } {
    const rounded = (ms: number | null) => (ms === null ? null : Math.round(ms * 100) / 100);
    return {
      p50Ms: rounded(this.quantile(0.5)),
      p95Ms: rounded(this.quantile(0.95)),
      p99Ms: rounded(this.quantile(0.99)),
      maxMs: this.#count === 0 ? null : rounded(this.#max),
    };
  }
}
