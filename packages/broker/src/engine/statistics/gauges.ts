/** Gauges of the broker, looked at every few seconds, as mean, least, greatest and last of the time since they were taken. */

/** What one look gives. CPU in hundredths of a percent of one core since the look before. */
export interface Look {
  cpuUser: number;
  cpuSystem: number;
  rssBytes: number;
  poolSize: number;
  poolIdle: number;
  poolActive: number;
  loopLagMs: number;
}

export type Gauges = Record<keyof Look, [mean: number, least: number, greatest: number, last: number]>;

const NAMES: readonly (keyof Look)[] = [
  'cpuUser',
  'cpuSystem',
  'rssBytes',
  'poolSize',
  'poolIdle',
  'poolActive',
  'loopLagMs',
];

export class GaugeWindow {
  #looks = 0;
  #sums = new Map<keyof Look, { sum: number; least: number; greatest: number; last: number }>();

  note(look: Look): void {
    this.#looks++;
    for (const name of NAMES) {
      const value = look[name];
      const known = this.#sums.get(name);
      if (known === undefined) {
        this.#sums.set(name, { sum: value, least: value, greatest: value, last: value });
        continue;
      }
      known.sum += value;
      known.least = Math.min(known.least, value);
      known.greatest = Math.max(known.greatest, value);
      known.last = value;
    }
  }

  /** Everything since the last time; at least one look is needed. */
  take(): { looks: number; gauges: Gauges } {
    const looks = this.#looks;
    const gauges = Object.fromEntries(
      NAMES.map((name) => {
        const { sum, least, greatest, last } = this.#sums.get(name)!;
        return [name, [sum / looks, least, greatest, last]];
      }),
    ) as Gauges;
    this.#looks = 0;
    this.#sums = new Map();
    return { looks, gauges };
  }
}

/** Processor time between two calls, in hundredths of a percent of one core. */
export class CpuShare {
  #last = process.cpuUsage();
  #at = performance.now();

  read(): { user: number; system: number } {
    const { user, system } = process.cpuUsage(this.#last);
    const now = performance.now();
    const micros = Math.max(1, (now - this.#at) * 1000);
    this.#last = process.cpuUsage();
    this.#at = now;
    return { user: (user / micros) * 10_000, system: (system / micros) * 10_000 };
  }
}
