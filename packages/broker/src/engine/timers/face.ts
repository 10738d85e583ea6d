/** Timers as the engine's face has them: messages that are pushed later, each under (tenant, queue, key). */
import type { TimerStatus } from '../../store/timers.ts';
import type { TenantId } from '../types.ts';

export type { TimerStatus } from '../../store/timers.ts';

export type TimerOperation =
  | {
      /** Also over a pending one, which it replaces. */
      op: 'schedule';
      queue: string;
      timerKey: string;
      partition: string;
      /** From now; 0 and below: due at once. */
      delayMs: number;
      /** Of the message to come. */
      transactionId: string;
      /** JSON text. */
      payload: Buffer;
      /** The text is zstd compressed. */
      payloadZstd: boolean;
      /** The caller encrypted it. */
      encrypted: boolean;
    }
  | { op: 'cancel'; queue: string; timerKey: string; transactionId: string | null };

export interface TimerResult {
  status: TimerStatus;
  queue: string;
  timerKey: string;
  /** As sent; of a cancellation that named none, what was cancelled. */
  transactionId: string | null;
  /** Of the message to come. Null: nothing was scheduled. */
  messageId: string | null;
  /** Not before. */
  dueAtMicros: number | null;
}

export interface TimersRequest {
  tenant: TenantId;
  /** `sub` of the verified token; stamped on the message. */
  producerSub: string | null;
  operations: readonly TimerOperation[];
}

/** A pending timer, for people who look. */
export interface PendingTimer {
  queue: string;
  timerKey: string;
  partition: string;
  dueAtMicros: number;
  transactionId: string;
  messageId: string;
  payloadZstd: boolean;
  encrypted: boolean;
  producerSub: string | null;
  /** Failed fires. */
  attempts: number;
  lastError: string | null;
  /** It is being fired, and cannot be changed. */
  claimed: boolean;
  createdAtMicros: number;
  updatedAtMicros: number;
}

export interface TimerPage {
  /** By key, in byte order. */
  rows: PendingTimer[];
  truncated: boolean;
  /** The `after` of the next page; null: this is the last. */
  nextAfter: string | null;
}

export interface TimersFace {
  /**
   * Applies a whole call, or nothing of it; one result an operation, in order. Throws EngineError: `refused` with the codes
   * `timers_bad_request`, `payload_too_large`, `timer_horizon_exceeded`, `timers_quota_exceeded`, `feature_gated` (and a
   * finer `reason`); `overloaded` `rate_limited`; `unavailable` `timers_disabled` and `timers_unavailable`; `in_doubt`.
   * Cancellations alone meet neither plans nor rates nor switches.
   */
  apply(request: TimersRequest): Promise<TimerResult[]>;
  /** Null: nothing is pending under the key. `payload`: as stored. */
  peek(
    tenant: TenantId,
    queue: string,
    timerKey: string,
  ): Promise<(PendingTimer & { payload: Buffer }) | null>;
  /** `limit` null: 100; held within 1 and 1000. `prefix` '': all. */
  list(
    tenant: TenantId,
    queue: string,
    page: { prefix: string; after: string | null; limit: number | null },
  ): Promise<TimerPage>;
  count(tenant: TenantId, queue: string, prefix: string): Promise<number>;
  /** Queues that have pending ones, in byte order. `limit` as above. */
  queues(
    tenant: TenantId,
    page: { after: string | null; limit: number | null },
  ): Promise<{ queues: string[]; nextAfter: string | null }>;
}
