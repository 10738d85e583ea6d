/** Dead letters at the engine's face. */
import type { TenantId } from '../types.ts';

/** The group under which timers that could not be fired are kept. Their messages were never in a log. */
export const TIMER_GROUP = '__timer__';

/** Null: not filtered by it. Times in microseconds since 1970, both inclusive, of the failure. */
export interface DeadLetterFilter {
  queue: string | null;
  partition: string | null;
  group: string | null;
  fromMicros: number | null;
  toMicros: number | null;
  /** At least 0. */
  limit: number;
  /** Rows to pass over, at least 0. */
  skip: number;
  /** Without: all that have a payload are `omitted`. */
  payloads: boolean;
}

export interface DeadLetter {
  /** UUID text. */
  id: string;
  transactionId: string;
  partitionId: string;
  queue: string;
  partition: string;
  group: string;
  error: string | null;
  /** Failures that were tolerated before. */
  retryCount: number;
  failedAtMicros: number;
  /** JSON text, opened when this broker's key opens it. Null: retention was faster than the failure, or `omitted`. */
  payload: Buffer | null;
  /** It was stored sealed, and `payload` is what was inside. */
  opened: boolean;
  /** The page has no room for its payload, or was asked for without. */
  omitted: boolean;
}

export interface ReplayRequest {
  tenant: TenantId;
  /** As the caller sent it; what is no id names nothing. */
  id: string;
  /** Null: where it came from. */
  queue: string | null;
  partition: string | null;
}

/** Where a dead letter came from and where it went. */
export interface Replayed {
  dlqId: string;
  group: string;
  originalTransactionId: string;
  queue: string;
  partition: string;
  transactionId: string;
  /** ZERO_UUID for a duplicate. */
  messageId: string;
  /** Of the new message, or of the one that bears the id already. */
  offset: number;
}

export type ReplayResult =
  | ({ result: 'moved' } & Replayed)
  /** The destination's window holds a message of that id: nothing was written, the dead letter is kept. */
  | ({ result: 'duplicate' } & Replayed)
  /** There is no such dead letter (any more). */
  | { result: 'gone' }
  /** Pushes are diverted just now. */
  | { result: 'maintenance' };

export interface DeadLettersFace {
  /** The newest failure first; `total`: how many the filter lets through. */
  list(tenant: TenantId, filter: DeadLetterFilter): Promise<{ letters: DeadLetter[]; total: number }>;
  /** Null: there is none of that id. What is no id names nothing. */
  get(tenant: TenantId, id: string): Promise<DeadLetter | null>;
  /** Removes those of a queue, of one group or (null) of all; how many there were. */
  purge(tenant: TenantId, queue: string, group: string | null): Promise<number>;
  /** Removes those of a message, of all groups; how many there were. */
  deleteMessage(tenant: TenantId, partitionId: string, transactionId: string): Promise<number>;
  /** The id of a message's newest dead letter. Null: it has none. */
  find(tenant: TenantId, partitionId: string, transactionId: string): Promise<string | null>;
  /**
   * Moves a dead letter to the tail of a partition, in one transaction.
   *
   * @throws EngineError refused: `bad_name`, `timer_dead_letter`, `encryption_required`; nothing was written.
   */
  replay(request: ReplayRequest): Promise<ReplayResult>;
}
