/** Partitions for a person who looks (sql/153_partitions.sql), one function a procedure. */
import { type Queryable, statement } from './database.ts';

export interface CountedPage {
  id: number;
  name: string;
  total: number;
  pending: number;
  processing: number;
  deadLetter: number;
  consumed: number;
  lastWriteMicros: number;
  oldestAtMicros: number | null;
  newestAtMicros: number | null;
}

export type PartitionSort = 'name' | 'lastActivity' | 'pending';

/** Which rows of a list, and in which order. `search` is a part of a name, in whatever case; null: all. */
export interface PageWanted<Sort extends string> {
  search: string | null;
  sort: Sort;
  descending: boolean;
  limit: number;
  skip: number;
}

export interface PartitionRow extends CountedPage {
  logStart: number;
  /** What the next message gets. */
  nextOffset: number;
  createdAtMicros: number;
}

export interface PartitionCursor {
  group: string;
  /** Where its next batch begins. */
  nextOffset: number;
  /** Messages that it has still to get. */
  behind: number;
  /** Ever. */
  consumed: number;
  /** The last offset of the batch that is leased now; null, with the two below: none is. */
  leaseUpto: number | null;
  leaseExpiresAtMicros: number | null;
  worker: string | null;
}

const FIGURES = `id, name, total, pending, processing, dead AS "deadLetter", consumed, last_write_at AS "lastWriteMicros",
          oldest_at AS "oldestAtMicros", newest_at AS "newestAtMicros"`;
const PAGE = statement(
  'queue_page',
  `SELECT ${FIGURES}
     FROM queen.queue_page($1::uuid, $2::bigint, $3::text, $4::text, $5::boolean, $6::int, $7::bigint)`,
);
const MATCHES = statement('queue_matches', 'SELECT queen.queue_matches($1::bigint, $2::text) AS matches');
const READ_ONE = statement(
  'partition_read',
  `SELECT log_start AS "logStart", next_offset AS "nextOffset", created_at AS "createdAtMicros", ${FIGURES}
     FROM queen.partition_read($1::uuid, $2::text, $3::text)`,
);
const CURSORS = statement(
  'partition_cursors',
  `SELECT consumer_group AS "group", next_offset AS "nextOffset", behind, consumed, lease_upto AS "leaseUpto",
          lease_expires_at AS "leaseExpiresAtMicros", worker_id AS worker
     FROM queen.partition_cursors($1::bigint)`,
);

const READ = { readOnly: true, timeoutMs: 60_000 } as const;

/** Live counters of one page of a queue's partitions. */
export function queuePage(
  db: Queryable,
  tenant: string,
  queueId: number,
  wanted: PageWanted<PartitionSort>,
): Promise<CountedPage[]> {
  const { search, sort, descending, limit, skip } = wanted;
  return db.query<CountedPage>(PAGE, [tenant, queueId, search, sort, descending, limit, skip], READ);
}

/** How many of a queue's partitions have a name that holds `search`, in whatever case. */
export async function queueMatches(db: Queryable, queueId: number, search: string): Promise<number> {
  const [row] = await db.query<{ matches: number }>(MATCHES, [queueId, search], READ);
  return row!.matches;
}

/** Null: no such partition of the tenant. */
export async function readPartition(
  db: Queryable,
  tenant: string,
  queue: string,
  partition: string,
): Promise<PartitionRow | null> {
  const [row] = await db.query<PartitionRow>(READ_ONE, [tenant, queue, partition], READ);
  return row ?? null;
}

/** Everybody who consumes it, by group. */
export function partitionCursors(db: Queryable, partitionId: number): Promise<PartitionCursor[]> {
  return db.query<PartitionCursor>(CURSORS, [partitionId], READ);
}
