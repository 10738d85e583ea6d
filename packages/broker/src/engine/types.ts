/**
 * The vocabulary of the engine's face (see broker.ts). The HTTP routes and the connectors speak it; it knows
 * neither SQL nor HTTP. Payloads are bytes in and out, never parsed values. Offsets are plain numbers (the
 * store refuses values above 2^53), partition ids are strings of decimal digits, times are integers with
 * microseconds since 1970 UTC.
 */

import type { DeadLettersFace } from './dlq/face.ts';
import type { GroupsFace } from './groups/face.ts';
import type { KvFace } from './kv/operations.ts';
import type { MessagesFace, RecordsFace } from './reads/face.ts';
import type { StatisticsFace } from './statistics/face.ts';
import type { SystemFace } from './system/face.ts';
import type { TimersFace } from './timers/face.ts';
import type { TracesFace } from './traces/face.ts';
import type { TransactionFace } from './transaction/types.ts';

/** Lower-case UUID. With tenancy off everything belongs to {@link DEFAULT_TENANT}. */
export type TenantId = string;
export const DEFAULT_TENANT: TenantId = '00000000-0000-0000-0000-000000000001';

/** The group of consumers that name none: one shared cursor a partition. */
export const QUEUE_MODE_GROUP = '__QUEUE_MODE__';
export const DEFAULT_PARTITION = 'Default';
/** Stands for "the original can no longer be read" in a duplicate's answer. */
export const ZERO_UUID = '00000000-0000-0000-0000-000000000000';
/** PostgreSQL's `int`. */
export const INT_MIN = -2_147_483_648;
export const INT_MAX = 2_147_483_647;

// ---- push -------------------------------------------------------------------------------------------

export interface PushItem {
  queue: string;
  partition: string;
  /** The JSON text exactly as the client sent it. May be a view into a larger buffer. */
  payload: Buffer;
  /** The deduplication key. Null: the minted message id serves as one. */
  transactionId: string | null;
  /** UUID text, stored in the frame. Only transactions set it. */
  traceId?: string | null;
}

export interface PushRequest {
  tenant: TenantId;
  items: PushItem[];
  /** `sub` of the verified token; stamped on every frame. Null without authentication. */
  producerSub: string | null;
}

export type PushStatus = 'queued' | 'duplicate' | 'buffered' | 'failed';

export interface PushResult {
  status: PushStatus;
  /** UUIDv7 of the new message, of the original for a duplicate, ZERO_UUID when that one is unreadable. */
  messageId: string;
  transactionId: string;
  /** Null where it is not known (a failed item). */
  partitionId: string | null;
  /** Null where it is not known. For a duplicate the original's offset. */
  offset: number | null;
  error: string | null;
  /** A failed item that was meant for the disk, which did not take it. */
  unkept?: true;
}

// ---- pop --------------------------------------------------------------------------------------------

export type PopScope =
  | { kind: 'partition'; queue: string; partition: string }
  | { kind: 'queue'; queue: string }
  | { kind: 'discovery'; namespace: string | null; task: string | null };

export interface PopRequest {
  tenant: TenantId;
  scope: PopScope;
  /** {@link QUEUE_MODE_GROUP} when the caller names none. */
  group: string;
  /** Messages in the whole answer, at least 1. Null: not sent (200, or the autopilot's choice). */
  batch: number | null;
  /** Partitions in the answer; 0 or less: no cap. Null: not sent (1, or the autopilot's choice). */
  partitions: number | null;
  autoAck: boolean;
  /** How long to hold the request when nothing is claimable, in ms. 0: answer at once. */
  waitMs: number;
  /** Above 0 overrides the queue's lease time for this claim, in seconds. */
  leaseSeconds: number;
  subscriptionMode: 'new' | 'all';
  /** Wins over the mode. Microseconds since 1970, or `now`. */
  subscriptionFrom: 'now' | number | null;
  /** Null: not sent. */
  conflation: boolean | null;
  autopilot: boolean;
  /** Aborted when the client goes away: nothing stays leased for it. */
  signal: AbortSignal | null;
}

export interface PoppedMessage {
  offset: number;
  /** UUID text. */
  id: string;
  transactionId: string;
  traceId: string | null;
  producerSub: string | null;
  createdAtMicros: number;
  /** JSON text, byte for byte as pushed (decrypted when it was sealed). */
  payload: Buffer;
}

/** What one pop took from one partition. Messages are contiguous and ascending. */
export interface PopClaim {
  queue: string;
  partition: string;
  partitionId: string;
  /** The partition's `last_offset` at the moment of the claim. */
  lastOffset: number;
  /** 1-based deliveries of this batch; 1 with autoAck. */
  deliveryAttempt: number;
  messages: PoppedMessage[];
}

export interface PopAnswer {
  /** One id for every claim of the answer; '' with autoAck or when nothing was claimed. */
  leaseId: string;
  /** Empty: nothing to deliver. */
  claims: PopClaim[];
  /** The group conflates: this policy was applied. */
  conflation: boolean;
  /** The call asked for another policy than the one stored. */
  conflationConflict: boolean;
  /** What the broker chose, when it filled a knob. */
  autopilot: { partitions: number; batch: number; waitMs: number } | null;
  /** Pop maintenance is on. */
  paused: boolean;
}

// ---- ack and lease ----------------------------------------------------------------------------------

export type AckStatus = 'completed' | 'failed' | 'retry' | 'dlq';

export interface AckItem {
  /** As the client sent it; a malformed one fails its item with `consumer not found`. */
  partitionId: string;
  /** Null or '': lease-less. */
  leaseId: string | null;
  status: AckStatus;
  /** Reason text kept with a dead letter. */
  error: string | null;
  /** Address by transactionId (the wire) … */
  transactionId: string;
  /** … or by offset (callers inside the process only); when set, `transactionId` is only echoed. */
  offset?: number;
}

export interface AckRequest {
  tenant: TenantId;
  group: string;
  items: AckItem[];
}

export interface AckVerdict {
  success: boolean;
  error: string | null;
  leaseReleased: boolean;
  dlq: boolean;
  noop: boolean;
  /** Messages skipped by the commit of a conflating lease; absent otherwise. */
  conflated?: number;
  /** The budget ran out with both dead-letter flags off. */
  dropped?: boolean;
}

export interface ExtendResult {
  /** Partitions whose lease was extended (or was long enough already). */
  renewed: number;
  /** The earliest expiry among them, microseconds; null when nothing was renewed. */
  expiresAtMicros: number | null;
}

// ---- queues -----------------------------------------------------------------------------------------

/** The 21 options by their wire names, effective values. */
export interface QueueOptions {
  namespace: string;
  task: string;
  priority: number;
  leaseTime: number;
  retryLimit: number;
  retryDelay: number;
  maxSize: number;
  ttl: number;
  deadLetterQueue: boolean;
  dlqAfterMaxRetries: boolean;
  delayedProcessing: number;
  windowBuffer: number;
  retentionEnabled: boolean;
  retentionSeconds: number;
  completedRetentionSeconds: number;
  maxWaitTimeSeconds: number;
  minPopWaitTime: number;
  encryptionEnabled: boolean;
  dedupWindowSeconds: number;
  retentionSinkHold: string;
  retentionSinkHoldMaxSeconds: number;
}

export interface ConfigureRequest {
  tenant: TenantId;
  queue: string;
  mode: 'merge' | 'replace';
  /** Only the keys that the caller named; null puts an option back to its default. */
  options: { [K in keyof QueueOptions]?: QueueOptions[K] | null };
}

export interface ConfigureResult {
  queueId: string;
  queue: string;
  options: QueueOptions;
  /** Named options that are stored and have no effect. */
  ignored: string[];
}

export interface MessageCounts {
  total: number;
  pending: number;
  processing: number;
}

export interface QueueSummary {
  id: string;
  name: string;
  namespace: string;
  task: string;
  createdAtMicros: number;
  partitions: number;
  retainedBytes: number;
  segments: { segments: number; messages: number };
  messages: MessageCounts;
}

export interface PartitionStats extends MessageCounts {
  completed: number;
  deadLetter: number;
}

export interface QueueDetail {
  id: string;
  name: string;
  createdAtMicros: number;
  options: QueueOptions;
  partitions: {
    id: string;
    name: string;
    createdAtMicros: number;
    stats: PartitionStats;
    oldestMessageMicros: number | null;
    newestMessageMicros: number | null;
  }[];
  totals: PartitionStats;
  retainedBytes: number;
  segments: { segments: number; messages: number };
}

export interface QueueDepth {
  conflation: boolean;
  partitions: { partition: string; pending: number; processing: number }[];
}

export interface Grouping {
  name: string;
  queues: number;
  partitions: number;
  messages: { total: number; pending: number };
}

// ---- the face ---------------------------------------------------------------------------------------

/** What the floors above may ask of the engine. Every failure is an EngineError (errors.ts). */
export interface BrokerFace extends KvFace, TransactionFace {
  push(request: PushRequest): Promise<PushResult[]>;
  pop(request: PopRequest): Promise<PopAnswer>;
  /** One verdict an item, in order. Item failures are verdicts, not errors. */
  ack(request: AckRequest): Promise<AckVerdict[]>;
  /** `seconds` at least 1. An unknown, expired or foreign lease renews nothing. */
  extend(tenant: TenantId, leaseId: string, seconds: number): Promise<ExtendResult>;
  configure(request: ConfigureRequest): Promise<ConfigureResult>;
  listQueues(tenant: TenantId): Promise<QueueSummary[]>;
  /** Null: no such queue. */
  inspectQueue(tenant: TenantId, queue: string): Promise<QueueDetail | null>;
  /** Null: no such queue. Without a group each partition counts against its furthest-behind cursor. */
  queueDepth(tenant: TenantId, queue: string, group: string | null): Promise<QueueDepth | null>;
  namespaces(tenant: TenantId): Promise<Grouping[]>;
  tasks(tenant: TenantId): Promise<Grouping[]>;
  /** False: there was none. */
  deleteQueue(tenant: TenantId, queue: string): Promise<boolean>;
  readonly deadLetters: DeadLettersFace;
  readonly groups: GroupsFace;
  readonly messages: MessagesFace;
  readonly records: RecordsFace;
  readonly traces: TracesFace;
  readonly system: SystemFace;
  readonly statistics: StatisticsFace;
  readonly timers: TimersFace;
  /** One round trip to the database; false when it does not answer. */
  healthy(): Promise<boolean>;
}
