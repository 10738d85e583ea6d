/** Loops that make load, and what they measure. */
import { median } from './stats.ts';

export interface Measured {
  /** Messages a second over the measured time. */
  rate: number;
  /** Milliseconds of each step. */
  latencies: number[];
}

/**
 * `workers` loops that each do one step after the other, for `seconds` after a warm-up that is not counted. A
 * step answers how many messages it moved; what ends within the time counts.
 */
export async function closedLoop(
  workers: number,
  seconds: number,
  warmUpSeconds: number,
  step: (worker: number) => Promise<number>,
): Promise<Measured> {
  const from = performance.now() + warmUpSeconds * 1000;
  const until = from + seconds * 1000;
  const latencies: number[] = [];
  let messages = 0;
  const loop = async (worker: number) => {
    for (;;) {
      const begun = performance.now();
      if (begun >= until) return;
      const moved = await step(worker);
      const ended = performance.now();
      if (ended > from && ended <= until) {
        messages += moved;
        latencies.push(ended - begun);
      }
    }
  };
  await Promise.all(Array.from({ length: workers }, (_, worker) => loop(worker)));
  return { rate: messages / seconds, latencies };
}

/**
 * Runs variants in turns, so that whatever else the machine does meets all of them alike, and answers the
 * median rate of each. Their ratios can be trusted far more than the rates.
 */
export async function inTurns<Name extends string>(
  rounds: number,
  variants: Record<Name, () => Promise<Measured>>,
): Promise<Record<Name, number>> {
  const rates = new Map<Name, number[]>();
  const names = Object.keys(variants) as Name[];
  for (let round = 0; round < rounds; round++) {
    // Every other round backwards: no variant always follows the same one.
    for (const name of round % 2 === 0 ? names : names.toReversed()) {
      const { rate } = await variants[name]();
      rates.set(name, [...(rates.get(name) ?? []), rate]);
    }
  }
  return Object.fromEntries(names.map((name) => [name, median(rates.get(name)!)])) as Record<Name, number>;
}
