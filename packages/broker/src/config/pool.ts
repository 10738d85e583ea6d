import type { Values } from './settings.ts';

/** How many connections and how many database calls at a time, once the server's limit is known. */
export interface PoolPlan {
  poolSize: number;
  reserve: number;
  min: number;
  max: number;
  init: number;
}

/** What PostgreSQL keeps back for superusers, and a few sessions of ours outside the pool. */
const OUTSIDE_POOL = 10;

/** The pool's size before anything is known of the server. */
export function defaultPoolSize(cores: number): number {
  return Math.min(160, Math.max(24, 16 * cores));
}

/**
 * An external server is shared, so a derived pool takes at most half of its connections. With a pool of 160
 * the figures come out as 16 kept back, 96 calls at a time to begin with and 128 at most.
 *
 * @param maxConnections of an external server; null for the bundled one, which is sized after the pool.
 * @param durable commits wait for their flush. Those that do not are done in no time, and fewer at once carry the load.
 * @returns the plan, or the faults of the given values.
 */
export function planPool(
  config: Pick<Values, 'postgres' | 'admission'>,
  cores: number,
  maxConnections: number | null,
  durable = true,
): PoolPlan | { faults: string[] } {
  const faults: string[] = [];
  const { admission } = config;
  let poolSize = config.postgres.poolSize ?? defaultPoolSize(cores);
  if (maxConnections !== null) {
    if (config.postgres.poolSize === null)
      poolSize = Math.max(4, Math.min(poolSize, Math.floor(maxConnections / 2)));
    else if (poolSize > maxConnections - OUTSIDE_POOL) {
      faults.push(
        `DB_POOL_SIZE="${poolSize}" does not fit the server's max_connections of ${maxConnections} (expected at most ${maxConnections - OUTSIDE_POOL})`,
      );
    }
  }
  const reserve = admission.poolReserve ?? Math.min(16, Math.max(2, Math.floor(poolSize / 10)));
  const usable = poolSize - reserve;
  const { nosyncBudget } = admission;
  const ceiling = durable ? 128 : nosyncBudget;
  if (usable < 1)
    faults.push(`QUEEN_ADMISSION_POOL_RESERVE="${reserve}" leaves nothing of a pool of ${poolSize}`);
  const min =
    admission.min ??
    Math.min(usable, admission.max ?? Math.min(usable, ceiling), Math.max(8, Math.floor((usable * 2) / 3)));
  const max = admission.max ?? Math.max(min, Math.min(ceiling, Math.floor((usable * 8) / 9)));
  const init = admission.init ?? min;
  if (max > usable) {
    faults.push(`QUEEN_ADMISSION_MAX="${max}" is above what the pool leaves (expected at most ${usable})`);
  }
  if (min > max) faults.push(`QUEEN_ADMISSION_MIN="${min}" is above QUEEN_ADMISSION_MAX (${max})`);
  if (init < min || init > max)
    faults.push(`QUEEN_ADMISSION_INIT="${init}" is out of range (expected ${min}..${max})`);
  return faults.length > 0 ? { faults } : { poolSize, reserve, min, max, init };
}
