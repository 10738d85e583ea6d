/**
 * Removes the log of deleted queues. Their deletion only takes them out of sight, so that it holds the locks of their
 * partitions for a moment: a log of 100,000 segments would take five seconds, and every push that is fused with one to
 * the deleted queue would wait as long. The broker that deleted begins at once; what it leaves when it dies is found
 * by the next period of any broker.
 */
import { garbageStep } from '../../store/retention.ts';
import { type MaintenanceDeps, MaintenanceLoop } from './maintenance_loop.ts';

const PERIOD_MS = 60_000;
const STEP_ROWS = 500;

export class Garbage {
  readonly #deps: MaintenanceDeps;
  readonly #loop: MaintenanceLoop;
  readonly #stop = new AbortController();
  #running: Promise<unknown> | null = null;
  #again = false;

  constructor(deps: MaintenanceDeps) {
    this.#deps = deps;
    this.#loop = new MaintenanceLoop(deps, {
      name: 'garbage',
      periodMs: PERIOD_MS,
      pass: (signal) => this.pass(signal),
    });
  }

  start(): void {
    this.#loop.start();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all([this.#loop.stop(), this.#running]);
  }

  /** Something was deleted. */
  soon(): void {
    this.#again = true;
    if (this.#stop.signal.aborted) return;
    this.#running ??= this.#work().finally(() => {
      this.#running = null;
    });
  }

  /** Until nothing is left, or only what another broker is at. Answers the number of rows that went. */
  async pass(signal?: AbortSignal): Promise<number> {
    let rows = 0;
    for (let more = true; more && !signal?.aborted; ) {
      const { admission, db } = this.#deps;
      const step = await admission.run('maintenance', () => garbageStep(db, STEP_ROWS));
      rows += step.rows;
      more = step.more;
    }
    return rows;
  }

  async #work(): Promise<void> {
    while (this.#again && !this.#stop.signal.aborted) {
      this.#again = false;
      try {
        await this.pass(this.#stop.signal);
      } catch (err) {
        this.#deps.log.warn({ err }, 'the log of a deleted queue is not removed yet; a later period does it');
      }
    }
  }
}
