/**
 * Runs one background job once a period over all brokers of a database.
 *
 * Every broker looks for work; the lease in the database picks one. The due time moves only when a run is
 * released, so a broker that dies during a run is replaced as soon as its lease ends, without anybody noticing
 * its death. While a run lasts its lease is renewed at a third of its length; a renewal that finds another
 * fence tells the run to stop (another broker has taken over, which can only follow a stall of ours longer
 * than the lease). A run must therefore be harmless when two of them overlap for a moment: the lease saves
 * work, it protects nothing.
 *
 * Rejected: looking every tenth of the period, as often as the schedule allows. The database says when the next
 * look is worth it, which costs an idle broker a fifth of a statement a second instead of two.
 */
import type { Queryable } from '../../store/database.ts';
import type { StoreLog } from '../../store/log.ts';
import { claimTask, ensureTask, releaseTask, renewTask } from '../../store/maintenance.ts';
import type { Clock, Timer } from '../clock.ts';

export interface MaintenanceDeps {
  db: Queryable;
  /** Takes a slot before a connection. */
  admission: { run<T>(lane: 'maintenance', work: () => Promise<T>): Promise<T> };
  clock: Clock;
  log: StoreLog;
  /** Names this broker in the lease. */
  holder: string;
}

export interface MaintenanceTask {
  name: string;
  periodMs: number;
  /** How long a claim lives without renewal, and so how long a dead holder blocks the task. Default 30 s. */
  leaseMs?: number;
  /** One run. Stops early when the signal aborts (shutdown, or another broker took over). */
  pass(signal: AbortSignal): Promise<unknown>;
}

const LEASE_MS = 30_000;

export class MaintenanceLoop {
  readonly #deps: MaintenanceDeps;
  readonly #task: MaintenanceTask;
  readonly #leaseMs: number;
  #timer: Timer | null = null;
  #running: Promise<number> | null = null;
  #abort: AbortController | null = null;
  #ensured = false;
  #active = false;
  #stopping = false;

  constructor(deps: MaintenanceDeps, task: MaintenanceTask) {
    this.#deps = deps;
    this.#task = task;
    this.#leaseMs = task.leaseMs ?? LEASE_MS;
  }

  start(): void {
    if (this.#active) return;
    this.#active = true;
    this.#stopping = false;
    this.#schedule(0);
  }

  /** Resolves when a run in progress has ended; it is told to stop early. */
  async stop(): Promise<void> {
    this.#active = false;
    this.#stopping = true;
    this.#timer?.cancel();
    this.#timer = null;
    this.#abort?.abort();
    await this.#running?.catch(() => {});
  }

  /** Claims and runs the task if it is due and free. Answers the milliseconds until the next look. */
  async look(): Promise<number> {
    const { name, periodMs } = this.#task;
    if (!this.#ensured) {
      await this.#run((db) => ensureTask(db, name, periodMs));
      this.#ensured = true;
    }
    const claim = await this.#run((db) => claimTask(db, name, this.#deps.holder, this.#leaseMs));
    let waitMs = claim.waitMs;
    if (claim.fence !== null) waitMs = await this.#hold(claim.fence);
    return Math.min(Math.max(waitMs ?? periodMs, periodMs / 10), periodMs);
  }

  async #hold(fence: number): Promise<number | null> {
    const abort = new AbortController();
    this.#abort = abort;
    if (this.#stopping) abort.abort();
    let renewal: Timer | null = null;
    const renew = async () => {
      try {
        const held = await this.#run((db) => renewTask(db, this.#task.name, fence, this.#leaseMs));
        if (!held) abort.abort();
      } catch (error) {
        this.#deps.log.warn({ err: error, task: this.#task.name }, 'maintenance lease not renewed');
      }
      if (!abort.signal.aborted) renewal = this.#deps.clock.after(this.#leaseMs / 3, renew);
    };
    renewal = this.#deps.clock.after(this.#leaseMs / 3, renew);
    try {
      await this.#task.pass(abort.signal);
    } catch (error) {
      this.#deps.log.warn(
        { err: error, task: this.#task.name },
        'maintenance run failed, the next period repeats it',
      );
    } finally {
      abort.abort();
      (renewal as Timer | null)?.cancel();
      this.#abort = null;
    }
    return this.#run((db) => releaseTask(db, this.#task.name, fence));
  }

  #schedule(ms: number): void {
    if (!this.#active) return;
    this.#timer = this.#deps.clock.after(ms, () => {
      this.#running = this.look().catch((error) => {
        this.#deps.log.warn({ err: error, task: this.#task.name }, 'maintenance look failed');
        return this.#task.periodMs;
      });
      void this.#running.then((next) => this.#schedule(next));
    });
  }

  #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    return this.#deps.admission.run('maintenance', () => work(this.#deps.db));
  }
}

/** A background job that is nothing but passes under its lease. */
export abstract class MaintenanceJob {
  protected readonly deps: MaintenanceDeps;
  readonly #loop: MaintenanceLoop;

  constructor(deps: MaintenanceDeps, name: string, periodMs: number) {
    this.deps = deps;
    this.#loop = new MaintenanceLoop(deps, { name, periodMs, pass: (signal) => this.pass(signal) });
  }

  abstract pass(signal?: AbortSignal): Promise<unknown>;

  start(): void {
    this.#loop.start();
  }

  /** Resolves when the pass that runs has ended. */
  stop(): Promise<void> {
    return this.#loop.stop();
  }

  protected run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    return this.deps.admission.run('maintenance', () => work(this.deps.db));
  }
}
