/** Counts retained bytes and segments of every queue now and then, so that no listing has to. */
import { maintenanceNow, queueIds, refreshRetained } from '../../store/retention.ts';
import { type MaintenanceDeps, MaintenanceJob } from './maintenance_loop.ts';

const PAGE = 1000;

export class RetainedBytes extends MaintenanceJob {
  constructor(deps: MaintenanceDeps, settings: { intervalMs: number } = { intervalMs: 600_000 }) {
    super(deps, 'retained_bytes', settings.intervalMs);
  }

  /** One statement a queue. Answers how many queues were counted. */
  async pass(signal?: AbortSignal): Promise<number> {
    const nowMicros = await this.run((db) => maintenanceNow(db));
    let counted = 0;
    for (let after = 0; !signal?.aborted; ) {
      const from = after;
      const page = await this.run((db) => queueIds(db, from, PAGE));
      for (const id of page) {
        if (signal?.aborted) break;
        if (await this.run((db) => refreshRetained(db, id, nowMicros))) counted++;
      }
      if (page.length < PAGE) break;
      after = page[page.length - 1]!;
    }
    return counted;
  }
}
