/** Connections to the databases that connectors read and write. All values are text, as the server prints them. */
import type { ReplicationConnection } from '../replication/connection.ts';

/** A string travels as text, a Buffer in the type's binary format (for a text, that is its UTF-8). */
export type SqlParam = string | Buffer | null;

export interface SqlResult {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | null)[])[];
  /** Rows that the statement returned or touched, by its command tag. */
  readonly count: number;
}

export interface SqlOptions {
  /** Prepared once a session under it. */
  readonly name?: string;
  /** After it the server is asked to give up, and the session is closed. Default: none. */
  readonly timeoutMs?: number;
  /** All parameters are declared as text, instead of what the server infers. */
  readonly textParams?: boolean;
  /**
   * Shares the Sync of the call behind it, which must come at once: the server answers them together, and skips what is left
   * of them when one fails; those reject as that one does. Inside a transaction, which such a failure ends anyway.
   */
  readonly joined?: boolean;
}

export interface SqlSession {
  /**
   * One statement. Calls made without waiting for the former are sent one after the other without waiting, and answered
   * in order. Throws ConnectorFault: `io`, or `postgres` with its SQLSTATE and the server's own error (detail, constraint,
   * context) as its cause.
   */
  query(text: string, params?: readonly SqlParam[], options?: SqlOptions): Promise<SqlResult>;
  /**
   * Prepares a statement under `name` without running it, its first `textParams` parameters declared to be text, and
   * answers how many parameters it takes. A later `query` with this name and text runs what was prepared here.
   */
  prepare(name: string, text: string, textParams: number): Promise<number>;
  /**
   * A query with values as the bytes that came, which need not be UTF-8; those of a row lie in one piece of memory. Without
   * parameters.
   */
  bytes(text: string): Promise<readonly (readonly (Buffer | null)[])[]>;
  readonly processId: number;
  /** 170004 for 17.4. */
  readonly serverVersion: number;
  /** Called once, when the connection is gone for whatever reason. */
  onClose(listener: () => void): void;
  /** Never rejects. A statement that still runs is cancelled. */
  close(): Promise<void>;
}

/** Opens connections to one connector's database: name looked up, guarded, password unsealed, settings read back. */
export interface Dialler {
  /** `role`: which settings a session gets. Throws ConnectorFault. */
  sql(applicationName: string, role: 'source' | 'sink', signal?: AbortSignal): Promise<SqlSession>;
  replication(applicationName: string, signal?: AbortSignal): Promise<ReplicationConnection>;
}
