import type { CallOptions } from './wire/transport.ts';

/** A message as it is taken from a queue. */
export interface Message<T = unknown> {
  /** UUID that the broker gave it. */
  readonly id: string;
  /** Yours, or minted by the producer: what it is deduplicated by. */
  readonly transactionId: string;
  readonly data: T;
  /** Empty for a pop over several queues of a broker that does not say. */
  readonly queue: string;
  readonly partition: string;
  readonly partitionId: string;
  /** Place within the partition, from 0 on. */
  readonly offset: number;
  /** Empty when it was taken with `autoAck`. */
  readonly leaseId: string;
  readonly consumerGroup: string;
  /** When it was committed: ISO 8601, UTC, microseconds. */
  readonly createdAt: string;
  /** 1 for the first delivery. */
  readonly deliveryAttempt: number;
  readonly traceId: string | null;
  /** Subject of the token that it was pushed with. */
  readonly producerSub: string | null;
}

/** What names a message for an ack. A `Message` is one. */
export interface MessageRef {
  readonly transactionId: string;
  readonly partitionId: string;
  readonly leaseId?: string | undefined;
  readonly consumerGroup?: string | undefined;
  readonly queue?: string | undefined;
}

/**
 * What became of a message:
 * `completed` done, with all before it in the partition; `failed` comes again and uses up an attempt of the queue's
 * `retryLimit`, a dead letter after the last; `retry` comes again at no cost; `dlq` a dead letter now.
 */
export type Outcome = 'completed' | 'failed' | 'retry' | 'dlq';

export interface AckResult {
  readonly transactionId: string;
  /** Whether the instruction was carried out. */
  readonly success: boolean;
  /** Not a success, but it was sent more than once, as an answer was lost: an earlier try may have been carried out. */
  readonly inDoubt?: boolean;
  /** Why not. */
  readonly error: string | null;
  /** The lease of its partition is over: what is left of the batch has to be popped again. */
  readonly leaseReleased: boolean;
  /** It is a dead letter now. */
  readonly dlq: boolean;
  /** It was done already. */
  readonly noop: boolean;
  /** How many older messages a conflating group skipped with it. */
  readonly conflated?: number;
}

/** A message to push. */
export interface NewMessage<T = unknown> {
  /** Any JSON; `undefined` is not. */
  readonly data: T;
  /**
   * Names the message within its partition: a second one with the same is answered `duplicate` and not stored, within the
   * queue's `dedupWindowSeconds`. At most 65,535 bytes. Default: a new UUID.
   */
  readonly transactionId?: string | undefined;
  /** Default: the partition of the call, else `Default`. At most 255 characters. */
  readonly partition?: string | undefined;
}

export interface PushResult {
  readonly transactionId: string;
  /** Of the message; of the first one for a duplicate. */
  readonly messageId: string;
  readonly queue: string;
  /**
   * `queued` durable in the database; `duplicate` there already; `buffered` durable on the broker's disk while its database
   * is away; `failed` not stored, `error` says why; `in_doubt` nobody knows. The last two come with an error only.
   */
  readonly status: 'queued' | 'duplicate' | 'buffered' | 'failed' | 'in_doubt';
  readonly error?: string;
  /** Place within the partition, when it is known. */
  readonly offset?: number;
}

/** How a group begins and what one pop takes. */
export interface PopOptions extends CallOptions {
  /** Messages at most, over all partitions. 1 and up; default 100. */
  batch?: number | undefined;
  /** Partitions at most; 0: any number. Default 1. */
  partitions?: number | undefined;
  /** How long to wait for messages when there are none, ms. 0..60000, default 0. */
  waitMs?: number | undefined;
  /** How long the messages are yours, s. 1 and up; default: the queue's `leaseTime`. */
  leaseSeconds?: number | undefined;
  /** Done at delivery: no lease, nothing to ack, and a lost answer loses its messages. Default false. */
  autoAck?: boolean | undefined;
  /** Where a group starts that has never popped this queue: at what comes from now on, or at the oldest. Default `new`. */
  subscriptionMode?: 'new' | 'all' | undefined;
  /** Instead: at the first message at or after an instant. */
  subscriptionFrom?: Date | string | undefined;
  /** Only the newest message of each partition; for good, from the first pop of the group on. */
  conflation?: boolean | undefined;
}
