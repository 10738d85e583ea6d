/** Reading the log without a group, at the engine's face. Times in microseconds since 1970. */
import type { QueueOptions, TenantId } from '../types.ts';

// ---- messages, for a person -------------------------------------------------------------------------

export type MessageStatus = 'pending' | 'processing' | 'completed' | 'dead_letter';

/** Null: not filtered by it. */
export interface MessageFilter {
  queue: string | null;
  partition: string | null;
  namespace: string | null;
  task: string | null;
  status: MessageStatus | null;
  /** Null: the last hour. */
  fromMicros: number | null;
  /** Exclusive; null: to the end of this minute. */
  toMicros: number | null;
  limit: number;
  /** Messages to pass over. */
  skip: number;
}

export interface ListedMessage {
  partitionId: string;
  queue: string;
  partition: string;
  namespace: string;
  task: string;
  offset: number;
  segmentBase: number;
  createdAtMicros: number;
  status: MessageStatus;
  /** What the consumers without a group make of it; null: there are none. */
  queueStatus: MessageStatus | null;
  /** Named groups that have consumed it, and all named groups of its partition. */
  consumedBy: number;
  totalGroups: number;
  leaseExpiresAtMicros: number | null;
  /** Null: its segment cannot be read. */
  content: MessageContent | null;
}

export interface MessageContent {
  /** UUID text. */
  id: string;
  transactionId: string;
  /** The 16 bytes by which an ack finds it. */
  transactionHash: Buffer;
  traceId: string | null;
  producerSub: string | null;
  sealed: boolean;
  /** JSON text, opened if it was sealed and this broker's key opens it. Null: the page has no room for it. */
  payload: Buffer | null;
}

/** Who consumes. */
export interface ConsumptionMode {
  hasQueueMode: boolean;
  namedGroups: number;
}

export interface MessageDetail {
  partitionId: string;
  offset: number;
  queue: string;
  partition: string;
  namespace: string;
  task: string;
  /** UUID text. */
  id: string;
  transactionId: string;
  traceId: string | null;
  producerSub: string | null;
  createdAtMicros: number;
  sealed: boolean;
  payload: Buffer | null;
  status: MessageStatus;
  /** Of its newest dead letter. */
  error: string | null;
  retryCount: number;
  leaseExpiresAtMicros: number | null;
  groups: { group: string; status: MessageStatus; leaseExpiresAtMicros: number | null }[];
  mode: ConsumptionMode;
  options: QueueOptions;
}

export interface FoundMessage {
  queue: string;
  partition: string;
  partitionId: string;
  offset: number;
  /** When it was stored; of what only a dead letter keeps, when that was made. */
  atMicros: number;
  /** A dead letter keeps it. */
  dead: boolean;
}

export interface MessagesFace {
  /** The newest first. A page may be short where only a scan of very many segments would fill it. */
  list(
    tenant: TenantId,
    filter: MessageFilter,
  ): Promise<{ messages: ListedMessage[]; mode: ConsumptionMode }>;
  /**
   * Where a transactionId is stored or kept by dead letters, in one queue or all (null); the newest `limit`. Those whose
   * hash was purged are not found.
   */
  find(tenant: TenantId, queue: string | null, transactionId: string, limit: number): Promise<FoundMessage[]>;
  /**
   * The newest message of that transactionId, or what its dead letter kept of it. Null: there is none.
   *
   * @throws EngineError refused `corrupt_segment`: what holds it cannot be read.
   */
  get(tenant: TenantId, partitionId: string, transactionId: string): Promise<MessageDetail | null>;
}

// ---- records, for a program -------------------------------------------------------------------------

export interface FetchRequest {
  tenant: TenantId;
  entries: { queue: string; partition: string; offset: number; maxBytes: number }[];
  /** How long to wait while less than `minBytes` of payload is there. 0: not at all. */
  maxWaitMs: number;
  minBytes: number;
  /** Aborted when the client goes away. */
  signal: AbortSignal | null;
}

export type FetchError = 'UNKNOWN_TOPIC_OR_PARTITION' | 'OFFSET_OUT_OF_RANGE' | 'CORRUPT_MESSAGE';

export interface FetchedRecord {
  offset: number;
  transactionId: string;
  payload: Buffer;
  createdAtMicros: number;
}

export interface FetchedEntry {
  queue: string;
  partition: string;
  records: FetchedRecord[];
  /** The offset that the next message will get; -1 when the partition is unknown. */
  highWatermark: number;
  /** The oldest offset that is retained; -1 when the partition is unknown. */
  logStart: number;
  error: FetchError | null;
}

export interface OffsetsRequest {
  tenant: TenantId;
  entries: { queue: string; partition: string; atMicros: number }[];
}

export interface FoundOffset {
  queue: string;
  partition: string;
  /** The first message at or after the instant, and its time; null: there is none. */
  offset: number | null;
  atMicros: number | null;
  highWatermark: number;
  logStart: number;
  error: FetchError | null;
}

export interface ChangedRequest {
  tenant: TenantId;
  entries: {
    queue: string;
    /** Null: all partitions by name; else those written at or after it, by time. */
    sinceMicros: number | null;
    /** The `next` of the page before. */
    after: string | null;
    limit: number;
  }[];
}

export interface ChangedEntry {
  queue: string;
  partitions: { name: string; lastOffset: number; logStart: number; lastWriteAtMicros: number }[];
  /** Null: that was the last page. */
  next: string | null;
  error: 'UNKNOWN_TOPIC_OR_PARTITION' | 'BAD_CURSOR' | null;
}

export interface ChangedAnswer {
  /** Nothing older can still become visible. */
  safeTimeMicros: number;
  /** The running transactions are hidden from this broker: the time is a guess, far on the safe side. */
  degraded: boolean;
  entries: ChangedEntry[];
}

export interface RecordsFace {
  fetch(request: FetchRequest): Promise<FetchedEntry[]>;
  offsets(request: OffsetsRequest): Promise<FoundOffset[]>;
  changed(request: ChangedRequest): Promise<ChangedAnswer>;
}
