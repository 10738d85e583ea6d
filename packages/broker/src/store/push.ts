/** The appending procedures (sql/010_push.sql), one function each: parameters named, results decoded. */
import { boolArray, byteaArray, int4Array, int8Array, textArray } from './arrays.ts';
import { type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';

export const VERDICT = { stored: 0, duplicates: 1, missing: 2, windowChanged: 3 } as const;

/** One segment to append. */
export interface Append {
  partitionId: number;
  /** Frames in the blob. */
  count: number;
  /** None of the hashes occurs in the window at or below this offset; -1: nobody vouches. */
  verifiedUpto: number;
  /** The deduplication window under which the segment was built. */
  windowSeconds: number;
  /** 16 bytes a frame. */
  hashes: Buffer;
  blob: Buffer;
  /** Its payloads are encrypted. */
  sealed: boolean;
}

export interface Duplicate {
  /** Of the frame in the segment. */
  index: number;
  /** Where its transactionId is stored; the smallest, when it is so more than once. */
  offset: number;
}

/** `queue`: what the queue wants now, as the append read it. */
export type AppendVerdict =
  | { verdict: typeof VERDICT.stored; queue: QueueDemands; base: number; createdAtMicros: number }
  | { verdict: typeof VERDICT.duplicates; queue: QueueDemands; duplicates: Duplicate[] }
  | { verdict: typeof VERDICT.missing }
  /** Also when the queue wants encrypted payloads since a while. */
  | { verdict: typeof VERDICT.windowChanged; queue: QueueDemands };

export interface QueueDemands {
  /** The deduplication window; 0: off. */
  windowSeconds: number;
  /** Payloads are stored encrypted. */
  encrypts: boolean;
}

/** A partition as the write path needs it. */
export interface Place extends QueueDemands {
  partitionId: number;
  /** As last heard; -1: nothing was stored yet. */
  lastOffset: number;
}

export interface ProvisionedPlace extends Place {
  /** The call made it. */
  created: boolean;
}

export interface CoveringSegment {
  base: number;
  /** Inclusive. */
  end: number;
  blob: Buffer;
}

const APPEND = statement(
  'push_append',
  `SELECT segments, verdicts, bases, created, windows, encrypts,
          dup_segments AS "dupSegments", dup_indexes AS "dupIndexes", dup_offsets AS "dupOffsets"
     FROM queen.log_push($1::bigint[], $2::int[], $3::bigint[], $4::int[], $5::bytea[], $6::bytea[], $7::boolean[])`,
);
const PROVISION = statement(
  'push_provision',
  `SELECT partition_ids AS "partitionIds", last_offsets AS "lastOffsets", windows, encrypts, made
     FROM queen.log_provision($1::uuid, $2::text[], $3::text[])`,
);
const COVERING = statement(
  'push_covering',
  `SELECT base_offset AS base, end_offset AS end, blob FROM queen.log_covering($1::bigint, $2::bigint[])`,
);

/** Arrays in step, one element a segment whose partition was found. Segments count from 1, frames from 0. */
export interface AppendRow {
  segments: number[] | null;
  verdicts: number[];
  bases: number[];
  created: number[];
  windows: number[];
  encrypts: boolean[];
  dupSegments: number[] | null;
  dupIndexes: number[];
  dupOffsets: number[];
}

/**
 * Appends the segments in one transaction, which is this one statement. Each partition at most once. One verdict a
 * segment, in order; a segment that is not `stored` has written nothing.
 */
export async function append(db: Queryable, segments: readonly Append[]): Promise<AppendVerdict[]> {
  if (segments.length === 0) return [];
  const [row] = await db.query<AppendRow>(APPEND, appendParams(segments));
  invariant(row !== undefined, 'append_row');
  return appendVerdicts(row, segments.length);
}

/** The arguments of the append procedure. */
export function appendParams(segments: readonly Append[]): Buffer[] {
  return [
    int8Array(segments.map((s) => s.partitionId)),
    int4Array(segments.map((s) => s.count)),
    int8Array(segments.map((s) => s.verifiedUpto)),
    int4Array(segments.map((s) => s.windowSeconds)),
    byteaArray(segments.map((s) => s.hashes)),
    byteaArray(segments.map((s) => s.blob)),
    boolArray(segments.map((s) => s.sealed)),
  ];
}

/** Its answer, one verdict a segment, in order. */
export function appendVerdicts(row: AppendRow, segments: number): AppendVerdict[] {
  const verdicts: AppendVerdict[] = Array.from({ length: segments }, () => ({ verdict: VERDICT.missing }));
  const found = row.segments ?? [];
  for (let i = 0; i < found.length; i++) {
    const at = found[i]! - 1;
    invariant(verdicts[at]?.verdict === VERDICT.missing, 'append_segment', { segment: at });
    verdicts[at] = verdictAt(row, i);
  }
  if (row.dupSegments !== null) {
    for (let i = 0; i < row.dupSegments.length; i++) {
      const of = verdicts[row.dupSegments[i]! - 1];
      invariant(of?.verdict === VERDICT.duplicates, 'append_duplicates', { segment: row.dupSegments[i] });
      of.duplicates.push({ index: row.dupIndexes[i]!, offset: row.dupOffsets[i]! });
    }
  }
  return verdicts;
}

function verdictAt(row: AppendRow, i: number): AppendVerdict {
  const verdict = row.verdicts[i]!;
  const queue = { windowSeconds: row.windows[i]!, encrypts: row.encrypts[i]! };
  if (verdict === VERDICT.windowChanged) return { verdict, queue };
  if (verdict === VERDICT.duplicates) return { verdict, queue, duplicates: [] };
  const base = row.bases[i]!;
  invariant(verdict === VERDICT.stored && base >= 0, 'append_verdict', { verdict, base });
  return { verdict, queue, base, createdAtMicros: row.created[i]! };
}

/**
 * The places of these lanes of one tenant, in order, creating queues and partitions that do not exist. A short
 * transaction of its own.
 */
export async function provision(
  db: Queryable,
  tenant: string,
  lanes: readonly { queue: string; partition: string }[],
): Promise<ProvisionedPlace[]> {
  const rows = await db.query<{
    partitionIds: (number | null)[];
    lastOffsets: (number | null)[];
    windows: (number | null)[];
    encrypts: (boolean | null)[];
    made: number[] | null;
  }>(PROVISION, [
    tenant,
    textArray(lanes.map((lane) => lane.queue)),
    textArray(lanes.map((lane) => lane.partition)),
  ]);
  const row = rows[0];
  invariant(row !== undefined && row.partitionIds.length === lanes.length, 'provisioned', {
    lanes: lanes.length,
  });
  const made = new Set(row.made);
  return lanes.map((_, i) => {
    const partitionId = row.partitionIds[i]!;
    // Null only when the queue was deleted again and again while this ran.
    invariant(partitionId !== null, 'provisioned_partition', { index: i });
    return {
      partitionId,
      lastOffset: row.lastOffsets[i]!,
      windowSeconds: row.windows[i]!,
      encrypts: row.encrypts[i]!,
      // A lane that was asked for twice counts once.
      created: made.delete(partitionId),
    };
  });
}

/** The stored segments that cover these offsets, ascending; an offset whose segment is gone has none. */
export function coveringSegments(
  db: Queryable,
  partitionId: number,
  offsets: readonly number[],
): Promise<CoveringSegment[]> {
  return db.query<CoveringSegment>(COVERING, [partitionId, int8Array(offsets)], { readOnly: true });
}
