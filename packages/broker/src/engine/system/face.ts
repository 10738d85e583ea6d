/** What is about the whole cluster, or about this broker as a whole, at the engine's face. */
import type { TenantId } from '../types.ts';
import type { SwitchStates } from './switches.ts';

/** Messages on this broker's disk that wait for the database. */
export interface SpoolState {
  /** Null: this broker has no spool, and what the database does not take is refused. */
  directory: string | null;
  /** False: a temporary directory, which does not survive the machine. */
  lasting: boolean;
  /** Messages that wait, and their bytes on disk. */
  pending: number;
  bytes: number;
  /** Messages that could not be stored for good, kept in files of their own. */
  failed: number;
  failedFiles: { count: number; bytes: number };
  /** Messages that came here since the start because a flush failed. */
  failovers: number;
  /** The database took what it was last given. */
  healthy: boolean;
}

/** How brokers hear of each other; counts since the start. */
export interface PeerState {
  connected: boolean;
  sent: number;
  received: number;
  dropped: number;
  reconnects: number;
}

export interface SystemFace {
  /** Read anew from the database; as last known when it does not answer. Never rejects. */
  switches(): Promise<SwitchStates>;
  /** The same from memory. */
  knownSwitches(): SwitchStates;
  /** For every broker, and for good. Throws when the database did not take it; then nothing has changed. */
  setSwitches(changes: Partial<SwitchStates>): Promise<void>;
  /** The same, but what the database does not take holds here until it can be read again. False: it is so. */
  setSwitchesAnyhow(changes: Partial<SwitchStates>): Promise<boolean>;
  spool(): SpoolState;
  /** Null: this broker neither sends nor hears notifications. */
  peers(): PeerState | null;
  quotas(): { tenants: number; ageMs: number | null; hot: number };
  /** Somebody says that a queue was written to. */
  noticed(tenant: TenantId, queue: string): void;
}
