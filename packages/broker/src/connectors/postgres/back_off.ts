/** How long to wait after so many failures in a row. */

const SPREAD = 0.2;

interface Bounds {
  readonly fromMs: number;
  readonly toMs: number;
}

/** What is away, or must be mended. */
export const OUTAGE: Bounds = { fromMs: 1_000, toMs: 30_000 };
/** A broker that stores nothing at the moment. */
export const STORE: Bounds = { fromMs: 100, toMs: 5_000 };
/** Another transaction was in the way. */
export const CONTENTION: Bounds = { fromMs: 10, toMs: 1_000 };
/** Between two tries of a message that may be poison. */
export const POISON: Bounds = { fromMs: 200, toMs: 2_000 };
/** A queue that answers at once and with nothing. */
export const EMPTY: Bounds = { fromMs: 25, toMs: 1_000 };

/** @param failures 1 or more @param random in [0, 1) */
export function delayMs({ fromMs, toMs }: Bounds, failures: number, random: number = Math.random()): number {
  const ms = Math.min(toMs, fromMs * 2 ** Math.min(failures - 1, 30));
  return Math.round(ms * (1 - SPREAD + 2 * SPREAD * random));
}
