/** A sink on one node: the checks, its workers, and what its status says of them. */
import type { SinkDocument } from '../document/types.ts';
import { instantNow } from '../instants.ts';
import { pause } from '../pause.ts';
import type { Unit, UnitContext } from '../unit.ts';
import { logEnds, Progress, sinkName } from './progress.ts';
import { Worker, type WorkerReport } from './worker.ts';
import { isFinding, Workshop } from './workshop.ts';

/** How often the table is looked at while all is well. */
const CHECK_MS = 60_000;

export class SinkUnit implements Unit {
  readonly #context: UnitContext<SinkDocument>;
  /** Workers that wait for better times. */
  readonly #failing = new Set<number>();

  constructor(context: UnitContext<SinkDocument>) {
    this.#context = context;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { status, document, dialler, applicationName } = this.#context;
    const { sink: settings, name } = document;
    status.enter('starting');
    const workshop = new Workshop(settings, () =>
      dialler.sql(`${applicationName} sink:${name}:setup`, 'sink', signal),
    );
    try {
      await workshop.check();
    } catch (error) {
      if (signal.aborted) return;
      throw error;
    }
    status.owner(true);
    status.enter('running');
    try {
      await this.#runWorkers(workshop, signal);
    } finally {
      status.owner(false);
    }
  }

  /** One that cannot go on stops all of them, as the signal does. */
  async #runWorkers(workshop: Workshop, signal: AbortSignal): Promise<void> {
    const { document, clock } = this.#context;
    const stop = new AbortController();
    const asked = () => stop.abort();
    signal.addEventListener('abort', asked, { once: true });
    if (signal.aborted) stop.abort();
    const workers = Array.from({ length: document.sink.workers }, (_, index) =>
      this.#worker(index + 1, workshop, stop.signal),
    );
    let fault: unknown = null;
    const running = workers.map((worker) =>
      worker.run().catch((error: unknown) => {
        fault ??= error;
        stop.abort();
      }),
    );
    const checks = this.#checks(workshop, stop.signal).catch((error: unknown) => {
      fault ??= error;
      stop.abort();
    });
    stop.signal.addEventListener('abort', () => {
      // What has not ended by then is as safe as after a kill.
      const graceMs = Math.min(document.sink.leaseSeconds * 1000, this.#context.shutdownGraceMs);
      const timer = clock.after(graceMs, () => void Promise.all(workers.map((worker) => worker.cut())));
      void Promise.all(running).then(() => timer.cancel());
    });
    await Promise.all([...running, checks]);
    signal.removeEventListener('abort', asked);
    if (fault !== null && !signal.aborted) throw fault;
  }

  async #checks(workshop: Workshop, signal: AbortSignal): Promise<void> {
    for (;;) {
      await pause(this.#context.clock, CHECK_MS, signal);
      if (signal.aborted) return;
      try {
        await workshop.check();
      } catch (error) {
        if (isFinding(error)) throw error;
        this.#context.log.warn(
          { err: error, connector: this.#context.document.name },
          'a check was not made',
        );
      }
    }
  }

  #worker(number: number, workshop: Workshop, signal: AbortSignal): Worker {
    const { tenant, document, broker, dialler, storeId, applicationName, clock, log } = this.#context;
    const { sink: settings, name } = document;
    const progress = new Progress(
      sinkName(storeId, tenant, name),
      settings,
      logEnds(broker, tenant, settings.queue),
    );
    return new Worker(
      {
        tenant,
        settings,
        broker,
        dial: () => dialler.sql(`${applicationName} sink:${name}:${number}`, 'sink', signal),
        workshop,
        progress,
        clock,
        log,
        report: this.#report(number),
      },
      signal,
    );
  }

  #report(worker: number): WorkerReport {
    const { status } = this.#context;
    return {
      batch: (applied, skipped) => {
        status.count('batches', 1);
        if (skipped > 0) status.count('skipped', skipped);
        if (applied === 0) return;
        status.count('applied', applied);
        status.show({ lastAppliedAt: instantNow() });
      },
      deadLetter: () => status.count('dlq', 1),
      failed: (fault, retryInMs) => {
        this.#failing.add(worker);
        status.fail(fault, retryInMs);
        // It is still this node that has the work, however badly it goes.
        status.owner(true);
        status.show({ lastError: { code: fault.code, message: fault.message, at: instantNow() } });
      },
      recovered: () => {
        if (!this.#failing.delete(worker) || this.#failing.size > 0) return;
        status.enter('running');
      },
    };
  }
}
