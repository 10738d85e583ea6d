/**
 * The daily safety walk: re-reads the age of the oldest data of every partition and corrects the recorded ones
 * that are wrong. Nothing should make them wrong; were one too young, or lost, its partition would never come up
 * as due and keep its data for ever.
 */
import { correctDrift, readDrift } from '../../store/retention.ts';
import { type MaintenanceDeps, MaintenanceJob } from './maintenance_loop.ts';

const PAGE = 5000;

export interface WalkReport {
  drifted: number;
  /** Less than `drifted`: the others had moved on by themselves. */
  corrected: number;
}

export class WatermarkWalk extends MaintenanceJob {
  constructor(deps: MaintenanceDeps, settings: { intervalMs: number } = { intervalMs: 86_400_000 }) {
    super(deps, 'retention_watermark', settings.intervalMs);
  }

  async pass(signal?: AbortSignal): Promise<WalkReport> {
    const report: WalkReport = { drifted: 0, corrected: 0 };
    let after: number | null = 0;
    while (after !== null && !signal?.aborted) {
      const from: number = after;
      const page = await this.run((db) => readDrift(db, from, PAGE));
      for (const row of page.drifted) {
        report.drifted++;
        if (await this.run((db) => correctDrift(db, row))) report.corrected++;
      }
      after = page.lastId;
    }
    if (report.corrected > 0) this.deps.log.warn(report, 'recorded ages of partitions were wrong');
    return report;
  }
}
