/**
 * Keeps one connector running on this node: starts its unit, tries again after an error as the fault says, and swaps units
 * when the document changes, the next one only when the former has ended.
 */
import type { Clock } from '../../../engine/clock.ts';
import { EngineError } from '../../../engine/errors.ts';
import { StoreError } from '../../../store/errors.ts';
import type { StoreLog } from '../../../store/log.ts';
import { delayMs, OUTAGE } from '../back_off.ts';
import type { ConnectorDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { pause } from '../pause.ts';
import type { Unit } from '../unit.ts';
import type { ConnectorStatus } from './status.ts';

/** What is to run: a document, or why what is stored is none. */
export interface Target {
  readonly version: number;
  readonly document: ConnectorDocument | ConnectorFault;
}

export interface RunnerDeps {
  /** A unit for the document. May throw what a unit may throw. */
  create(target: { version: number; document: ConnectorDocument }): Unit;
  readonly status: ConnectorStatus;
  readonly clock: Clock;
  readonly log: StoreLog;
}

/** A unit that lived for so long is healthy: its next error counts as the first one. */
const HEALTHY_MS = 3_600_000;

export class Runner {
  readonly status: ConnectorStatus;
  readonly #deps: RunnerDeps;
  #target: Target;
  /** Aborts what runs for the present target. */
  #change = new AbortController();
  #stopping = false;
  readonly #done: Promise<void>;

  constructor(deps: RunnerDeps, target: Target) {
    this.#deps = deps;
    this.status = deps.status;
    this.#target = target;
    this.#done = this.#live();
  }

  get version(): number {
    return this.#target.version;
  }

  /** What runs is asked to end; this runs then. */
  replace(target: Target): void {
    this.#target = target;
    this.#change.abort();
  }

  /** Resolves when the unit has ended. */
  stop(): Promise<void> {
    this.#stopping = true;
    this.#change.abort();
    return this.#done;
  }

  async #live(): Promise<void> {
    while (!this.#stopping) {
      this.#change = new AbortController();
      await this.#serve(this.#target, this.#change.signal);
      this.status.owner(false);
      this.status.gauge('slotLagBytes', null);
    }
    this.status.enter('stopped');
  }

  /** Until the signal. Never rejects. */
  async #serve({ version, document }: Target, signal: AbortSignal): Promise<void> {
    const { status } = this;
    const { clock } = this.#deps;
    if (document instanceof ConnectorFault) {
      status.fail(document, null);
      return aborted(signal);
    }
    status.begin(document);
    if (!document.enabled && document.deleting === null) {
      status.enter('disabled');
      return aborted(signal);
    }
    let failures = 0;
    while (!signal.aborted) {
      const begun = clock.now();
      const fault = await this.#run({ version, document }, signal);
      if (signal.aborted) return;
      // It has nothing left to do, as after a teardown: the document goes, or another one comes.
      if (fault === null) return aborted(signal);
      if (clock.now() - begun >= HEALTHY_MS) failures = 0;
      if (fault.retry === 'backoff') failures++;
      const waitMs = waitOf(fault, failures);
      status.fail(fault, waitMs);
      if (waitMs === null) return aborted(signal);
      await pause(clock, waitMs, signal);
      if (!signal.aborted) status.restarts++;
    }
  }

  /** Null: an orderly end. */
  async #run(
    target: { version: number; document: ConnectorDocument },
    signal: AbortSignal,
  ): Promise<ConnectorFault | null> {
    const { status, create, log } = this.#deps;
    status.generation++;
    status.enter('starting');
    try {
      await create(target).run(signal);
      return null;
    } catch (error) {
      const fault = faultOf(error);
      if (fault.code === 'panic') {
        log.error({ err: error, connector: status.name }, `connector ${status.name}: a bug`);
      }
      return fault;
    }
  }
}

/** What a unit threw. Failures of the store that it did not word itself are passing ones; all else is a bug. */
export function faultOf(error: unknown): ConnectorFault {
  if (error instanceof ConnectorFault) return error;
  if (error instanceof EngineError) {
    return new ConnectorFault(error.kind === 'refused' ? 'queen_refused' : 'queen', error.message, {
      cause: error,
    });
  }
  if (error instanceof StoreError) return new ConnectorFault('queen', error.message, { cause: error });
  const said = error instanceof Error ? error.message : String(error);
  return new ConnectorFault('panic', `a bug of the broker: ${said}`, { cause: error });
}

/** Null: only another document helps. `failures`: in a row. */
function waitOf(fault: ConnectorFault, failures: number): number | null {
  if (fault.code === 'fenced') return OUTAGE.fromMs;
  if (fault.retry === 'document') return null;
  return fault.retry === 'backoff' ? delayMs(OUTAGE, failures) : OUTAGE.toMs;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
