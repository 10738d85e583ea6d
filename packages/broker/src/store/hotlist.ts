/** The hot list's and the waker's procedures (sql/060_*.sql), one function each. */
import { int8Array, textArray, uuidArray } from './arrays.ts';
import type { Queryable } from './database.ts';
import { statement } from './database.ts';
import { invariant } from './invariant.ts';

/** Pending partitions of a ring, as parallel arrays; null: none. */
export interface PendingPage {
  ids: number[] | null;
  lasts: number[] | null;
  /** Everything at or below is done or gone. Null: the group has no row here. */
  positions: (number | null)[] | null;
  /** How long the partition is leased, 0: it is not. */
  leasedMicros: number[] | null;
  /** The end of the batch that was leased last, -1: none. */
  leasedTo: number[] | null;
}

export interface QueuePage extends PendingPage {
  /** Where the next page starts; null: this was the last. */
  nextName: string | null;
}

export interface RecentPage extends PendingPage {
  /** Index into the rings that were asked for. */
  ring: number;
  /** More was written than fits: the queue has to be read in full. */
  truncated: boolean;
}

/** The first row has a null tenant and only tells the time. */
export interface WakeRow {
  tenant: string | null;
  queue: string | null;
  queueId: number | null;
  nowMicros: number;
  createdAtMicros: number | null;
  truncated: boolean | null;
  ids: number[] | null;
  lasts: number[] | null;
}

export interface WakeQueue {
  tenant: string;
  queue: string;
  /** 0: not known. */
  knownId: number;
  sinceMicros: number;
}

export interface WakeScope {
  tenant: string;
  namespace: string;
  task: string;
}

export interface Repair {
  tenant: string;
  queue: string;
  group: string;
  /** Null: the whole queue. */
  partition: string | null;
  partitionId: number | null;
  repairAtMicros: number;
}

const PAGE = statement(
  'hotlist_page',
  `SELECT next_name AS "nextName", ids, lasts, positions, leased_us AS "leasedMicros", leased_to AS "leasedTo"
     FROM queen.log_hotlist_page($1::bigint, $2::text, $3::text, $4::int)`,
);
const RECENT = statement(
  'hotlist_recent',
  `SELECT ring, truncated, ids, lasts, positions, leased_us AS "leasedMicros", leased_to AS "leasedTo"
     FROM queen.log_hotlist_recent($1::bigint[], $2::text[], $3::bigint, $4::int)`,
);
const WAKE = statement(
  'wake_scan',
  `SELECT tenant, queue, queue_id AS "queueId", now_at AS "nowMicros", created_at AS "createdAtMicros",
          truncated, ids, lasts
     FROM queen.log_wake_scan($1::uuid[], $2::text[], $3::bigint[], $4::bigint[],
                              $5::uuid[], $6::text[], $7::text[], $8::bigint, $9::int)`,
);
const REPAIRS = statement(
  'hotlist_repairs',
  `SELECT tenant, queue, consumer_group AS "group", partition_name AS partition, partition_id AS "partitionId",
          repair_at AS "repairAtMicros"
     FROM queen.log_hotlist_repairs()`,
);
const NOTIFY = statement('wake_notify', 'SELECT queen.log_wake_notify($1::text[]) AS sent');
const LISTEN = statement('wake_listen', 'LISTEN queen_wake');
const HINT_COMMITS = statement('wake_async', 'SET synchronous_commit = off');

/** One page of a queue by partition name, `limit` partitions looked at. */
export async function page(
  db: Queryable,
  queueId: number,
  group: string,
  afterName: string,
  limit: number,
): Promise<QueuePage> {
  const rows = await db.query<QueuePage>(PAGE, [queueId, group, afterName, limit], { readOnly: true });
  invariant(rows.length === 1, 'one_row', { rows: rows.length });
  return rows[0] as QueuePage;
}

/** What is pending among the partitions written since `sinceMicros`, for many rings at once. */
export function recent(
  db: Queryable,
  rings: readonly { queueId: number; group: string }[],
  sinceMicros: number,
  limit: number,
): Promise<RecentPage[]> {
  return db.query<RecentPage>(
    RECENT,
    [int8Array(rings.map((r) => r.queueId)), textArray(rings.map((r) => r.group)), sinceMicros, limit],
    { readOnly: true },
  );
}

/** What was written lately to queues and scopes that somebody waits for. */
export function wakeScan(
  db: Queryable,
  queues: readonly WakeQueue[],
  scopes: readonly WakeScope[],
  scopeSinceMicros: number,
  limit: number,
): Promise<WakeRow[]> {
  return db.query<WakeRow>(
    WAKE,
    [
      uuidArray(queues.map((q) => q.tenant)),
      textArray(queues.map((q) => q.queue)),
      int8Array(queues.map((q) => q.knownId)),
      int8Array(queues.map((q) => q.sinceMicros)),
      uuidArray(scopes.map((s) => s.tenant)),
      textArray(scopes.map((s) => s.namespace)),
      textArray(scopes.map((s) => s.task)),
      scopeSinceMicros,
      limit,
    ],
    { readOnly: true },
  );
}

export function repairs(db: Queryable): Promise<Repair[]> {
  return db.query<Repair>(REPAIRS, [], { readOnly: true });
}

/** Sends the payloads, each below 8000 bytes, on a connection of their own. */
export async function notify(
  session: Queryable,
  payloads: readonly string[],
  timeoutMs: number,
): Promise<void> {
  await session.query(NOTIFY, [textArray(payloads)], { timeoutMs });
}

/** Subscribes the session. A notification is only a hint, so its commit need not wait for the disk. */
export async function listen(session: Queryable): Promise<void> {
  await session.query(HINT_COMMITS);
  await session.query(LISTEN);
}
