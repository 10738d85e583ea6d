/**
 * The rollup of where everything stands, counted anew every few seconds by one broker of all.
 *
 * It paces itself: however many partitions there are, it takes at most a fifth of the time of one database connection,
 * since a refresh that took long is followed by a rest of four times as long. A hundred thousand partitions with two groups
 * took 3.7 s on a machine that was busy with six times what it has cores for.
 */
import { countQueues, finishRefresh, planRefresh } from '../../store/rollup.ts';
import { type MaintenanceDeps, MaintenanceJob } from '../retention/maintenance_loop.ts';

export interface RefreshReport {
  queues: number;
  partitions: number;
  tookMs: number;
}

const PARTITIONS_A_STATEMENT = 20_000;
const REST = 4;

export class StatsRefresh extends MaintenanceJob {
  constructor(deps: MaintenanceDeps, settings: { intervalMs: number }) {
    super(deps, 'stats_refresh', settings.intervalMs);
  }

  /** A refresh, unless the last one was so long that it is not time yet. */
  pass(signal?: AbortSignal): Promise<RefreshReport> {
    return this.#refresh(REST, signal);
  }

  /** Counts everything now, whoever holds the lease. */
  refresh(): Promise<RefreshReport> {
    return this.#refresh(0);
  }

  async #refresh(rest: number, signal?: AbortSignal): Promise<RefreshReport> {
    const { clock } = this.deps;
    const report: RefreshReport = { queues: 0, partitions: 0, tookMs: 0 };
    const parts = await this.run((db) => planRefresh(db, PARTITIONS_A_STATEMENT, rest));
    for (const queues of parts) {
      if (signal?.aborted === true) return report;
      const begun = clock.now();
      if (queues.length > 0) report.partitions += await this.run((db) => countQueues(db, queues));
      report.queues += queues.length;
      report.tookMs += clock.now() - begun;
    }
    if (parts.length > 0) await this.run((db) => finishRefresh(db, report.tookMs, report.partitions));
    return report;
  }
}
