/** Transactions as the engine's face has them. */
import type { KvOperation, KvReason, KvResult, Origin } from '../kv/operations.ts';
import type { TimerOperation, TimerResult } from '../timers/face.ts';
import type { AckItem, AckVerdict, PushItem, TenantId } from '../types.ts';

export type TransactionOperation =
  | { type: 'push'; item: PushItem }
  /** An ack's `leaseId` null: it names none, see `requiredLeases`. */
  | { type: 'ack'; group: string; item: AckItem };

export interface TransactionRequest {
  tenant: TenantId;
  origin: Origin;
  /** In the order of the results. */
  operations: readonly TransactionOperation[];
  kv: readonly KvOperation[];
  timers: readonly TimerOperation[];
  /**
   * The leases that the caller holds. An ack that names none is held against the live one of its partition and group, which must
   * be among these.
   */
  requiredLeases: readonly string[];
  producerSub: string | null;
  /**
   * KV operations that are not known yet and follow those of `kv`. Until they are, what can be done without a lock is done;
   * when they never will be, it must reject, and the transaction with it.
   */
  kvLater?: Promise<readonly KvOperation[]>;
}

export type TransactionResult =
  | {
      type: 'push';
      queue: string;
      transactionId: string;
      messageId: string;
      /** The same transactionId came earlier in the call: that message is meant. */
      duplicate: boolean;
      partitionId: string;
      offset: number;
    }
  | { type: 'ack'; transactionId: string; verdict: AckVerdict };

export type RefusalReason =
  | 'duplicate'
  | 'ack_rejected'
  | 'kv_precondition'
  | 'encryption_required'
  | 'timer_horizon_exceeded'
  | 'payload_too_large'
  | 'bad_request'
  | 'misaligned'
  | 'db_error';

/** Why everything was rolled back. */
export interface Refusal {
  reason: RefusalReason;
  /** A sentence. */
  error: string;
  /** Which result it would have been: operations first, then KV, then timers. Null: none in particular. */
  failedIndex: number | null;
  /** With `kv_precondition`: what stood in the way. */
  kv?: { reason: KvReason; version: number; value: string | null };
}

export type TransactionAnswer =
  | {
      transactionId: string;
      success: true;
      results: TransactionResult[];
      kv: KvResult[];
      timers: readonly TimerResult[];
    }
  | { transactionId: string; success: false; refusal: Refusal };

export interface TransactionFace {
  /**
   * Everything or nothing. What the database decides against is an answer; throws EngineError for a call that is refused
   * before (`refused`), or whose outcome is nothing written (`overloaded`, `unavailable`) or not known (`in_doubt`).
   */
  transaction(request: TransactionRequest): Promise<TransactionAnswer>;
}
