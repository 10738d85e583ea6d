/** One running connector on one node, as the manager that starts and stops it sees it. */
import type { Clock } from '../../engine/clock.ts';
import type { BrokerFace, TenantId } from '../../engine/types.ts';
import type { StoreLog } from '../../store/log.ts';
import type { ConnectorDocument } from './document/types.ts';
import type { ConnectorFault } from './fault.ts';
import type { Dialler } from './session/types.ts';

export type Phase =
  | 'disabled'
  | 'starting'
  | 'standby'
  | 'connecting'
  | 'waiting_for_slot'
  | 'snapshot'
  | 'streaming'
  | 'running'
  | 'error'
  | 'torn_down'
  | 'stopped';

/** What a unit adds to. Kept by the manager: they survive the unit. */
export type UnitCounter =
  | 'transactions'
  | 'messages'
  | 'bundles'
  | 'snapshotRows'
  | 'applied'
  | 'skipped'
  | 'dlq'
  | 'batches'
  | 'errors';

/** What the status of a connector shows on this node; the manager keeps it and renders it. */
export interface UnitStatus {
  readonly phase: Phase;
  /** A change of phase sets `since` and writes a line into the log. */
  enter(phase: Phase, facts?: Readonly<Record<string, unknown>>): void;
  /** The unit has met an error and goes on by itself after so long; null: only another document helps. */
  fail(fault: ConnectorFault, retryInMs: number | null): void;
  /** Fields beside the phase, by their names on the wire; undefined takes one away. */
  show(facts: Readonly<Record<string, unknown>>): void;
  count(what: UnitCounter, by: number): void;
  /** Null: this node does not own it, and says nothing of it. */
  gauge(what: 'slotLagBytes' | 'pointerLsn', value: bigint | null): void;
  /** This node runs the work. */
  owner(yes: boolean): void;
}

export interface UnitContext<Document extends ConnectorDocument> {
  readonly tenant: TenantId;
  readonly document: Document;
  readonly broker: BrokerFace;
  readonly dialler: Dialler;
  readonly status: UnitStatus;
  readonly clock: Clock;
  readonly log: StoreLog;
  /** Names this broker. */
  readonly node: string;
  /** Names the store: a new one, or one that was made anew, has another. */
  readonly storeId: string;
  /** Begins the name of each connection: `queen-pg/<version>`. */
  readonly applicationName: string;
  readonly leaseTtlMs: number;
  readonly shutdownGraceMs: number;
  /** The teardown is done: removes the document, if it is still the version that asked for it. */
  removeDocument(): Promise<void>;
}

export interface Unit {
  /**
   * Works until the signal; resolves after an orderly end (stopped, or nothing left to do), rejects with a ConnectorFault
   * when the manager is to try again as the fault says. Called once.
   */
  run(signal: AbortSignal): Promise<void>;
}
