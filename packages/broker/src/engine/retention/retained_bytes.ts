/** Counts retained bytes and segments of every queue now and then, so that no listing has to. */
import type { Queryable } from '../../store/database.ts';
import { maintenanceNow, queueIds, refreshRetained } from '../../store/retention.ts';
import { type MaintenanceDeps, MaintenanceLoop } from './maintenance_loop.ts';

const PAGE = 1000;

export class RetainedBytes {
  readonly #deps: MaintenanceDeps;
  readonly #loop: MaintenanceLoop;

  constructor(deps: MaintenanceDeps, settings: { intervalMs: number } = { intervalMs: 600_000 }) {
    this.#deps = deps;
    this.#loop = new MaintenanceLoop(deps, {
      name: 'retained_bytes',
      periodMs: settings.intervalMs,
      pass: (signal) => this.pass(signal),
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** One statement a queue. Answers how many queues were counted. */
  async pass(signal?: AbortSignal): Promise<number> {
    const nowMicros = await this.#run((db) => maintenanceNow(db));
    let counted = 0;
    for (let after = 0; !signal?.aborted; ) {
      const from = after;
      const page = await this.#run((db) => queueIds(db, from, PAGE));
      for (const id of page) {
        if (signal?.aborted) break;
        if (await this.#run((db) => refreshRetained(db, id, nowMicros))) counted++;
      }
      if (page.length < PAGE) break;
      after = page[page.length - 1]!;
    }
    return counted;
  }

  #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    return this.#deps.admission.run('maintenance', () => work(this.#deps.db));
  }
}
