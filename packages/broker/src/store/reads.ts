/** The reading procedures (sql/130_reads.sql), one function each: parameters named, results decoded. */
import { boolArray, int4Array, int8Array, textArray } from './arrays.ts';
import { type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';

// ---- messages for a person --------------------------------------------------------------------------

/** Which segments of a partition can hold what is wanted. */
export const PICK = { all: 0, aboveDone: 1, done: 2, dead: 3 } as const;

/** Null: not filtered by it. */
export interface MessagesWanted {
  queue: string | null;
  partition: string | null;
  namespace: string | null;
  task: string | null;
  /** One of {@link PICK}. */
  pick: number;
  /** Microseconds; null: the last hour. */
  fromMicros: number | null;
  /** Exclusive; null: to the end of this minute. */
  toMicros: number | null;
}

/** Where a list goes on: behind this segment. */
export interface SegmentPlace {
  createdAtMicros: number;
  partitionId: number;
  base: number;
}

export interface MessageSegment extends SegmentPlace {
  queue: string;
  partition: string;
  namespace: string;
  task: string;
  /** Inclusive. */
  end: number;
  /** The lowest cursor that counts; null: nobody consumes. */
  done: number | null;
  /** Live leases of those who count, in step: the batch is `after` < offset <= `upto`. */
  leaseAfter: number[] | null;
  leaseUpto: number[] | null;
  /** Offsets of its dead letters. */
  dead: number[] | null;
}

export interface CursorRow {
  partitionId: number;
  group: string;
  committed: number;
  /** End of the batch that is leased now; null: none. */
  leaseUpto: number | null;
  leaseExpiresAtMicros: number | null;
}

export interface BlobRow {
  /** Index into what was asked for. */
  seq: number;
  end: number;
  blob: Buffer;
}

export interface MessagePlace {
  queue: string;
  namespace: string;
  task: string;
  partition: string;
  /** The queue's options as JSON text. */
  options: string;
  txnsStart: number;
  /** The queue has a named group. */
  named: boolean;
}

export interface ReadSegment {
  base: number;
  /** Inclusive. */
  end: number;
  createdAtMicros: number;
  blob: Buffer;
}

export interface DeadMessageRow {
  group: string;
  messageId: string | null;
  offset: number;
  payload: Buffer | null;
  error: string | null;
  retryCount: number;
  failedAtMicros: number;
}

export interface FoundMessage {
  queue: string;
  partition: string;
  partitionId: number;
  offset: number;
  /** When it was stored; of what only a dead letter keeps, when that was made. */
  atMicros: number;
  /** A dead letter keeps it. */
  dead: boolean;
}

const SEGMENT = 'base_offset AS base, end_offset AS "end", created_at AS "createdAtMicros", blob';
const SEGMENTS = statement(
  'message_segments',
  `SELECT partition_id AS "partitionId", queue, partition, namespace, task, base_offset AS base, end_offset AS "end",
          created_at AS "createdAtMicros", done, lease_after AS "leaseAfter", lease_upto AS "leaseUpto", dead
     FROM queen.message_segments($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::int,
                                 queen.from_micros($7::bigint), queen.from_micros($8::bigint),
                                 queen.from_micros($9::bigint), $10::bigint, $11::bigint, $12::int, $13::int)`,
);
const CURSORS = statement(
  'message_cursors',
  `SELECT partition_id AS "partitionId", consumer_group AS "group", committed, lease_upto AS "leaseUpto",
          lease_expires_at AS "leaseExpiresAtMicros"
     FROM queen.message_cursors($1::uuid, $2::bigint[])`,
);
const BLOBS = statement(
  'message_blobs',
  'SELECT seq, end_offset AS "end", blob FROM queen.message_blobs($1::bigint[], $2::bigint[])',
);
const PLACE = statement(
  'message_place',
  `SELECT queue, namespace, task, partition, options, txns_start AS "txnsStart", named
     FROM queen.message_place($1::uuid, $2::bigint)`,
);
const FIND = statement(
  'message_find',
  `SELECT queue, partition, partition_id AS "partitionId", at_offset AS "offset", at AS "atMicros", dead
     FROM queen.message_find($1::uuid, $2::text, $3::bytea, $4::text, $5::int)`,
);
const LOCATE = statement('message_locate', 'SELECT queen.message_locate($1::bigint, $2::bytea) AS "offset"');
const WALK = statement(
  'message_walk',
  `SELECT ${SEGMENT} FROM queen.message_walk($1::bigint, $2::bigint, $3::int)`,
);
const SEGMENT_OF = statement(
  'message_segment',
  `SELECT ${SEGMENT} FROM queen.message_segment($1::bigint, $2::bigint)`,
);
const DEAD = statement(
  'message_dead',
  `SELECT consumer_group AS "group", message_id AS "messageId", position AS "offset", payload, error,
          retry_count AS "retryCount", failed_at AS "failedAtMicros"
     FROM queen.message_dead($1::bigint, $2::bigint, $3::text)`,
);

/** Up to `limit` segments, the newest first, behind `behind`. Of many partitions, the `partitionsMax` written last. */
export function messageSegments(
  db: Queryable,
  tenant: string,
  wanted: MessagesWanted,
  behind: SegmentPlace | null,
  limit: number,
  partitionsMax: number,
): Promise<MessageSegment[]> {
  return db.query<MessageSegment>(
    SEGMENTS,
    [
      tenant,
      wanted.queue,
      wanted.partition,
      wanted.namespace,
      wanted.task,
      wanted.pick,
      wanted.fromMicros,
      wanted.toMicros,
      behind?.createdAtMicros ?? null,
      behind?.partitionId ?? null,
      behind?.base ?? null,
      limit,
      partitionsMax,
    ],
    { readOnly: true },
  );
}

/** Every group's cursor on these partitions. */
export function messageCursors(
  db: Queryable,
  tenant: string,
  partitionIds: readonly number[],
): Promise<CursorRow[]> {
  return db.query<CursorRow>(CURSORS, [tenant, int8Array(partitionIds)], { readOnly: true });
}

/** These segments; one that is gone is left out. */
export function messageBlobs(
  db: Queryable,
  segments: readonly { partitionId: number; base: number }[],
): Promise<BlobRow[]> {
  return db.query<BlobRow>(
    BLOBS,
    [int8Array(segments.map((s) => s.partitionId)), int8Array(segments.map((s) => s.base))],
    { readOnly: true },
  );
}

/** Null: no such partition of the tenant. */
export async function messagePlace(
  db: Queryable,
  tenant: string,
  partitionId: number,
): Promise<MessagePlace | null> {
  const rows = await db.query<MessagePlace>(PLACE, [tenant, partitionId], { readOnly: true });
  return rows[0] ?? null;
}

/** Where a transactionId is stored or kept by dead letters, in one queue or all of the tenant's (null); the newest first. */
export function findMessages(
  db: Queryable,
  tenant: string,
  queue: string | null,
  hash: Buffer,
  transactionId: string,
  limit: number,
): Promise<FoundMessage[]> {
  return db.query<FoundMessage>(FIND, [tenant, queue, hash, transactionId, limit], { readOnly: true });
}

/** The newest offset of a transactionId by its hash (16 bytes); null: the sidecar does not know it. */
export async function locateMessage(
  db: Queryable,
  partitionId: number,
  hash: Buffer,
): Promise<number | null> {
  const rows = await db.query<{ offset: number | null }>(LOCATE, [partitionId, hash], { readOnly: true });
  return rows[0]?.offset ?? null;
}

/** Up to `limit` segments with a base below `below`, the newest first. */
export function walkSegments(
  db: Queryable,
  partitionId: number,
  below: number,
  limit: number,
): Promise<ReadSegment[]> {
  return db.query<ReadSegment>(WALK, [partitionId, below, limit], { readOnly: true });
}

/** The segment that holds the offset; null: it is gone. */
export async function segmentOf(
  db: Queryable,
  partitionId: number,
  offset: number,
): Promise<ReadSegment | null> {
  const rows = await db.query<ReadSegment>(SEGMENT_OF, [partitionId, offset], { readOnly: true });
  return rows[0] ?? null;
}

/** The dead letters of a message, the newest first. `offset` null: wherever it was. */
export function deadMessages(
  db: Queryable,
  partitionId: number,
  offset: number | null,
  transactionId: string,
): Promise<DeadMessageRow[]> {
  return db.query<DeadMessageRow>(DEAD, [partitionId, offset, transactionId], { readOnly: true });
}

// ---- records for a program --------------------------------------------------------------------------

export interface FetchPlace {
  /** Index into what was asked for. */
  seq: number;
  partitionId: number;
  lastOffset: number;
  logStart: number;
}

export interface FetchedSegment extends ReadSegment {
  seq: number;
}

export interface OffsetAt {
  seq: number;
  lastOffset: number;
  logStart: number;
  /** The first message that young, and its time; null: there is none. */
  offset: number | null;
  atMicros: number | null;
}

export interface ChangedQuery {
  queue: string;
  /** Null: all partitions by name. */
  sinceMicros: number | null;
  /** Behind this one; `atMicros` only counts in a sweep by time. */
  after: { atMicros: number; name: string } | null;
  limit: number;
}

export interface ChangedPage {
  seq: number;
  names: string[] | null;
  lasts: number[] | null;
  starts: number[] | null;
  written: number[] | null;
}

const PLACES = statement(
  'log_fetch_places',
  `SELECT seq, partition_id AS "partitionId", last_offset AS "lastOffset", log_start AS "logStart"
     FROM queen.log_fetch_places($1::uuid, $2::text[], $3::text[])`,
);
const FETCH = statement(
  'log_fetch',
  `SELECT seq, ${SEGMENT} FROM queen.log_fetch($1::bigint[], $2::bigint[], $3::bigint[], $4::int)`,
);
const OFFSETS = statement(
  'log_fetch_offsets',
  `SELECT seq, last_offset AS "lastOffset", log_start AS "logStart", at_offset AS "offset", at AS "atMicros"
     FROM queen.log_fetch_offsets($1::uuid, $2::text[], $3::text[], $4::bigint[])`,
);
const CHANGED = statement(
  'log_partitions_changed',
  `SELECT seq, names, lasts, starts, written
     FROM queen.log_partitions_changed($1::uuid, $2::text[], $3::boolean[], $4::bigint[], $5::boolean[], $6::bigint[],
                                       $7::text[], $8::int[])`,
);
const SAFE_TIME = statement(
  'log_safe_time',
  'SELECT safe AS "safeMicros", degraded FROM queen.log_safe_time($1::int)',
);

/** Rows only for partitions that exist. */
export function fetchPlaces(
  db: Queryable,
  tenant: string,
  lanes: readonly { queue: string; partition: string }[],
): Promise<FetchPlace[]> {
  return db.query<FetchPlace>(
    PLACES,
    [tenant, textArray(lanes.map((lane) => lane.queue)), textArray(lanes.map((lane) => lane.partition))],
    { readOnly: true },
  );
}

/** The segments that hold `from` and what follows; for each lane at least one, and more up to `bytes` stored bytes. */
export function fetchSegments(
  db: Queryable,
  lanes: readonly { partitionId: number; from: number; bytes: number }[],
  segmentsMax: number,
): Promise<FetchedSegment[]> {
  return db.query<FetchedSegment>(
    FETCH,
    [
      int8Array(lanes.map((lane) => lane.partitionId)),
      int8Array(lanes.map((lane) => lane.from)),
      int8Array(lanes.map((lane) => lane.bytes)),
      segmentsMax,
    ],
    { readOnly: true },
  );
}

/** Rows only for partitions that exist. */
export function offsetsAt(
  db: Queryable,
  tenant: string,
  wanted: readonly { queue: string; partition: string; atMicros: number }[],
): Promise<OffsetAt[]> {
  return db.query<OffsetAt>(
    OFFSETS,
    [
      tenant,
      textArray(wanted.map((each) => each.queue)),
      textArray(wanted.map((each) => each.partition)),
      int8Array(wanted.map((each) => each.atMicros)),
    ],
    { readOnly: true },
  );
}

/** A page of partitions for each query; rows only for queues that exist. */
export function changedPartitions(
  db: Queryable,
  tenant: string,
  queries: readonly ChangedQuery[],
): Promise<ChangedPage[]> {
  return db.query<ChangedPage>(
    CHANGED,
    [
      tenant,
      textArray(queries.map((each) => each.queue)),
      boolArray(queries.map((each) => each.sinceMicros !== null)),
      int8Array(queries.map((each) => each.sinceMicros ?? 0)),
      boolArray(queries.map((each) => each.after !== null)),
      int8Array(queries.map((each) => each.after?.atMicros ?? 0)),
      textArray(queries.map((each) => each.after?.name ?? '')),
      int4Array(queries.map((each) => each.limit)),
    ],
    { readOnly: true },
  );
}

/** Nothing older can still become visible. To be asked before the look that it vouches for, not inside a transaction. */
export async function safeTime(
  db: Queryable,
  floorMs: number,
): Promise<{ safeMicros: number; degraded: boolean }> {
  const rows = await db.query<{ safeMicros: number; degraded: boolean }>(SAFE_TIME, [floorMs], {
    readOnly: true,
  });
  invariant(rows.length === 1, 'safe_time_row');
  return rows[0]!;
}
