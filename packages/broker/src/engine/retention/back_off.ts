/**
 * Which due partitions are not worth a step yet. A partition can be old enough for a rule and still give
 * nothing (a consumer is behind, a sink holds it): it is left alone for 8 cycles, then for twice as many each
 * time, up to 512. A changed configuration starts afresh.
 *
 * Memory of one broker only; losing it costs a few useless steps. Above `ENTRIES_MAX` the oldest entry goes.
 */
const FIRST_CYCLES = 8;
const CYCLES_MAX = 512;
const ENTRIES_MAX = 100_000;

export class BackOff {
  readonly #entries = new Map<number, { rules: string; cycles: number; until: number }>();

  get size(): number {
    return this.#entries.size;
  }

  /** Whether the partition is to be left alone in this cycle. `rules`: the configuration that made it due. */
  skips(partitionId: number, rules: string, cycle: number): boolean {
    const entry = this.#entries.get(partitionId);
    return entry !== undefined && entry.rules === rules && cycle < entry.until;
  }

  /** A step gave nothing. */
  idle(partitionId: number, rules: string, cycle: number): void {
    const entry = this.#entries.get(partitionId);
    const cycles = entry?.rules === rules ? Math.min(entry.cycles * 2, CYCLES_MAX) : FIRST_CYCLES;
    this.#entries.delete(partitionId);
    this.#entries.set(partitionId, { rules, cycles, until: cycle + cycles });
    if (this.#entries.size > ENTRIES_MAX) {
      for (const oldest of this.#entries.keys()) {
        this.#entries.delete(oldest);
        break;
      }
    }
  }

  /** A step gave something, or the partition is gone. */
  forget(partitionId: number): void {
    this.#entries.delete(partitionId);
  }
}
