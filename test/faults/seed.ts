/**
 * Chance that can be repeated. A fault test draws everything it does from one number, which it prints:
 *
 *   QUEEN_TEST_SEED=1234 npm test -- faults/crash
 *
 * repeats the schedule. What the machine makes of it (which statement a kill meets) is not repeated, so a
 * failure may take a few runs to come back.
 */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A stream of its own: what it draws does not depend on how often others draw. */
  fork(label: string): Chance {
    let hash = this.#state ^ 0x9e3779b9;
    for (let i = 0; i < label.length; i++) hash = Math.imul(hash ^ label.charCodeAt(i), 0x01000193);
    return new Chance(hash);
  }

  /** 0 <= x < 1 (mulberry32). */
  fraction(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** An integer, both ends included. */
  integer(from: number, to: number): number {
    return from + Math.floor(this.fraction() * (to - from + 1));
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.integer(0, list.length - 1)]!;
  }

  shuffled<T>(list: readonly T[]): T[] {
    const out = [...list];
    for (let i = out.length - 1; i > 0; i--) {
      const j = this.integer(0, i);
      [out[i], out[j]] = [out[j]!, out[i]!];
    }
    return out;
  }
}

/** The seed of this run: QUEEN_TEST_SEED, or a new one. Printed either way. */
export function seeded(t: { diagnostic(text: string): void }): Chance {
  const given = process.env.QUEEN_TEST_SEED;
  const seed = given === undefined || given === '' ? (Date.now() ^ (process.pid << 8)) >>> 0 : Number(given);
  if (!Number.isSafeInteger(seed)) throw new RangeError(`QUEEN_TEST_SEED=${given} is no number`);
  t.diagnostic(`seed ${seed}: repeat with QUEEN_TEST_SEED=${seed}`);
  return new Chance(seed);
}
