/** Counts what each tenant stores, one broker at a time: what the quotas are held against. */
import { countKvUsage } from '../../store/kv.ts';
import { type MaintenanceDeps, MaintenanceJob } from '../retention/maintenance_loop.ts';

/** Above, an eighth of the shards is counted and stands for the whole. */
const EXACT_ROWS_MAX = 200_000;

export class KvUsage extends MaintenanceJob {
  constructor(deps: MaintenanceDeps, settings: { intervalMs: number }) {
    super(deps, 'kv_usage', settings.intervalMs);
  }

  /** Answers the number of tenants that store something, or did. */
  override pass(): Promise<number> {
    return this.run((db) => countKvUsage(db, EXACT_ROWS_MAX));
  }
}
