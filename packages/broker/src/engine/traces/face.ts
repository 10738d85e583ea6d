/** Traces at the engine's face: notes that consumers attach to messages. */
import type { TenantId } from '../types.ts';

export interface TraceNote {
  tenant: TenantId;
  /** As the caller sent it. */
  partitionId: string;
  transactionId: string;
  group: string;
  eventType: string;
  /** JSON text. */
  data: string;
  names: readonly string[];
}

export interface Trace {
  /** UUID text. */
  id: string;
  eventType: string;
  /** JSON text, as it was written. Null: `omitted`. */
  data: string | null;
  /** The answer has no room for its data and names. */
  omitted: boolean;
  group: string;
  worker: string;
  createdAtMicros: number;
  names: string[];
}

export interface NamedTrace extends Trace {
  transactionId: string;
  partitionId: string;
  queue: string;
  partition: string;
}

export interface TraceName {
  name: string;
  traces: number;
  /** Distinct transactionIds. */
  messages: number;
  lastSeenMicros: number;
}

export interface TracesFace {
  /**
   * The new trace's id; null: with several tenants, the partition is not the caller's.
   *
   * @throws EngineError refused: `bad_trace` for a partition id that is none, `bad_name`; nothing was written.
   */
  write(note: TraceNote): Promise<string | null>;
  /** The oldest first. Readable for as long as there is a database, also when the queue is gone. */
  ofMessage(tenant: TenantId, partitionId: string, transactionId: string): Promise<Trace[]>;
  /** The oldest first. */
  byName(
    tenant: TenantId,
    name: string,
    limit: number,
    skip: number,
  ): Promise<{ traces: NamedTrace[]; total: number }>;
  /** The most recently seen first. */
  names(tenant: TenantId, limit: number, skip: number): Promise<{ names: TraceName[]; total: number }>;
}
