/**
 * Quantiles over the most recent observations: a ring of fixed size, sorted only when somebody asks. Exact for what
 * the ring holds, 8 KiB at the default size, and an observation costs two stores.
 */
export class RecentQuantiles {
  readonly #ring: Float64Array;
  #next = 0;
  #filled = 0;

  constructor(size = 1024) {
    this.#ring = new Float64Array(size);
  }

  observe(value: number): void {
    this.#ring[this.#next] = value;
    this.#next = (this.#next + 1) % this.#ring.length;
    if (this.#filled < this.#ring.length) this.#filled++;
  }

  /** Of the same; null before the first observation. */
  mean(): number | null {
    if (this.#filled === 0) return null;
    let sum = 0;
    for (let i = 0; i < this.#filled; i++) sum += this.#ring[i]!;
    return sum / this.#filled;
  }

  /** The values at the given ranks (0 to 1, nearest rank), in their order; null before the first observation. */
  read(ranks: readonly number[]): number[] | null {
    if (this.#filled === 0) return null;
    const sorted = this.#ring.slice(0, this.#filled).sort();
    return ranks.map((rank) => sorted[Math.max(0, Math.ceil(rank * this.#filled) - 1)]!);
  }
}
