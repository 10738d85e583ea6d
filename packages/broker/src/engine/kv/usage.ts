/** Counts what each tenant stores, one broker at a time: what the quotas are held against. */
import { countKvUsage } from '../../store/kv.ts';
import { type MaintenanceDeps, MaintenanceLoop } from '../retention/maintenance_loop.ts';

/** Above, an eighth of the shards is counted and stands for the whole. */
const EXACT_ROWS_MAX = 200_000;

export class KvUsage {
  readonly #deps: MaintenanceDeps;
  readonly #loop: MaintenanceLoop;

  constructor(deps: MaintenanceDeps, settings: { intervalMs: number }) {
    this.#deps = deps;
    this.#loop = new MaintenanceLoop(deps, {
      name: 'kv_usage',
      periodMs: settings.intervalMs,
      pass: () => this.pass(),
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** Answers the number of tenants that store something, or did. */
  pass(): Promise<number> {
    return this.#deps.admission.run('maintenance', () => countKvUsage(this.#deps.db, EXACT_ROWS_MAX));
  }
}
