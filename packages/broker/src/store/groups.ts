/** The procedures on consumer groups (sql/120_groups.sql), one function each: parameters named, results decoded. */
import { type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';
import type { PageWanted } from './partitions.ts';

export interface GroupRow {
  group: string;
  queue: string;
  /** Partitions that the group has a cursor on, and those with something left for it. */
  cursors: number;
  behind: number;
  /** Messages; microseconds since the oldest of them was written. */
  lag: number;
  lagMicros: number;
  /** It has consumed something, ever. */
  consumed: boolean;
  conflation: boolean;
  /** Null without a registration. */
  mode: string | null;
  atMicros: number | null;
  registeredAtMicros: number | null;
}

export interface LaggingRow {
  group: string;
  queue: string;
  partition: string;
  partitionId: number;
  worker: string | null;
  lag: number;
  lagMicros: number;
  sinceMicros: number;
}

export interface GroupPartitionRow {
  queue: string;
  conflation: boolean;
  partition: string;
  worker: string | null;
  consumed: number;
  lag: number;
  lagMicros: number;
  leased: boolean;
}

export type GroupSort = 'lag' | 'waiting' | 'name';

/** A group on a queue, over all its partitions. */
export interface GroupSums {
  partitions: number;
  cursors: number;
  behind: number;
  totalLag: number;
  maxLagMicros: number;
  /** Partitions whose name was searched for. */
  matches: number;
  conflation: boolean;
}

export interface GroupPageRow {
  partition: string;
  partitionId: number;
  /** It has a cursor there; else it is where it would start. */
  met: boolean;
  nextOffset: number;
  /** What the next message to come gets. */
  endOffset: number;
  worker: string | null;
  consumed: number;
  lag: number;
  lagMicros: number;
  leased: boolean;
}

export type SeekTarget =
  | { to: 'end' }
  | { to: 'beginning' }
  | { to: 'offset'; offset: number }
  | { to: 'at'; atMicros: number };

/** All cursors of a queue of a hundred thousand partitions move in one transaction. */
const MOVE_TIMEOUT_MS = 600_000;
const READ_TIMEOUT_MS = 60_000;

const LIST = statement(
  'group_list',
  `SELECT consumer_group AS "group", queue, cursors, behind, lag, lag_us AS "lagMicros", consumed, conflation, mode,
          at AS "atMicros", registered_at AS "registeredAtMicros"
     FROM queen.group_list($1::uuid)`,
);
const LAGGING = statement(
  'group_lagging',
  `SELECT consumer_group AS "group", queue, partition, partition_id AS "partitionId", worker_id AS worker, lag,
          lag_us AS "lagMicros", since AS "sinceMicros"
     FROM queen.group_lagging($1::uuid, $2::bigint, $3::int)`,
);
const DETAIL = statement(
  'group_detail',
  `SELECT queue, conflation, partition, worker_id AS worker, consumed, lag, lag_us AS "lagMicros", leased
     FROM queen.group_detail($1::uuid, $2::text)`,
);
const PAGE = statement(
  'group_page',
  `SELECT partitions, cursors, behind, total_lag AS "totalLag", max_lag_us AS "maxLagMicros", matches, conflation, partition,
          partition_id AS "partitionId", met, next_offset AS "nextOffset", end_offset AS "endOffset", worker_id AS worker,
          consumed, lag, lag_us AS "lagMicros", leased
     FROM queen.group_page($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::boolean, $7::int, $8::bigint)`,
);
const SUBSCRIBE = statement(
  'group_subscribe',
  'SELECT queen.group_subscribe($1::uuid, $2::text, queen.from_micros($3::bigint)) AS updated',
);
const SEEK = statement(
  'group_seek',
  `SELECT moved, resumes_at AS "resumesAt"
     FROM queen.group_seek($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::bigint, queen.from_micros($7::bigint))`,
);
const DELETE = statement(
  'group_delete',
  'SELECT cursors, queues FROM queen.group_delete($1::uuid, $2::text, $3::text, $4::boolean)',
);

/** One row a (group, queue), by name. One set-based statement. */
export function listGroups(db: Queryable, tenant: string): Promise<GroupRow[]> {
  return db.query<GroupRow>(LIST, [tenant], { readOnly: true, timeoutMs: READ_TIMEOUT_MS });
}

/** Partitions whose oldest unconsumed message has waited for `minMicros` or longer, the longest first. */
export function laggingPartitions(
  db: Queryable,
  tenant: string,
  minMicros: number,
  limit: number,
): Promise<LaggingRow[]> {
  return db.query<LaggingRow>(LAGGING, [tenant, minMicros, limit], {
    readOnly: true,
    timeoutMs: READ_TIMEOUT_MS,
  });
}

/** One row a partition, by queue and name; none for an unknown group. */
export function groupDetail(db: Queryable, tenant: string, group: string): Promise<GroupPartitionRow[]> {
  return db.query<GroupPartitionRow>(DETAIL, [tenant, group], {
    readOnly: true,
    timeoutMs: READ_TIMEOUT_MS,
  });
}

/** One page of the partitions of a queue as a group sees them, with sums over all of them. */
export async function groupPage(
  db: Queryable,
  tenant: string,
  group: string,
  queue: string,
  wanted: PageWanted<GroupSort>,
): Promise<{ sums: GroupSums; rows: GroupPageRow[] }> {
  const { search, sort, descending, limit, skip } = wanted;
  type Row = GroupSums & (GroupPageRow | { partition: null });
  const found = await db.query<Row>(PAGE, [tenant, group, queue, search, sort, descending, limit, skip], {
    readOnly: true,
    timeoutMs: READ_TIMEOUT_MS,
  });
  invariant(found.length > 0, 'group_page_row');
  return {
    sums: found[0]!,
    rows: found.filter((row): row is GroupSums & GroupPageRow => row.partition !== null),
  };
}

/** Changes where the group starts on partitions that it has not met; the number of its registrations. */
export async function subscribeGroup(
  db: Queryable,
  tenant: string,
  group: string,
  atMicros: number,
): Promise<number> {
  const rows = await db.query<{ updated: number }>(SUBSCRIBE, [tenant, group, atMicros]);
  return rows[0]!.updated;
}

/**
 * Moves the group's cursors on a queue, or on one partition of it, and publishes the repair in the same transaction.
 * `moved` 0: there is no such queue, or no such partition. `resumesAt`: the next offset of the (one) partition.
 */
export async function seekGroup(
  db: Queryable,
  tenant: string,
  queue: string,
  partition: string | null,
  group: string,
  target: SeekTarget,
): Promise<{ moved: number; resumesAt: number | null }> {
  const rows = await db.query<{ moved: number; resumesAt: number | null }>(
    SEEK,
    [
      tenant,
      queue,
      partition,
      group,
      target.to,
      target.to === 'offset' ? target.offset : null,
      target.to === 'at' ? target.atMicros : null,
    ],
    { timeoutMs: MOVE_TIMEOUT_MS },
  );
  invariant(rows.length === 1, 'seek_row');
  return rows[0]!;
}

/** Removes the group's cursors on one queue or (null) on all, and its registrations if wanted. */
export async function deleteGroup(
  db: Queryable,
  tenant: string,
  group: string,
  queue: string | null,
  registrations: boolean,
): Promise<{ cursors: number; queues: string[] }> {
  const rows = await db.query<{ cursors: number; queues: string[] }>(
    DELETE,
    [tenant, group, queue, registrations],
    { timeoutMs: MOVE_TIMEOUT_MS },
  );
  invariant(rows.length === 1, 'delete_row');
  return rows[0]!;
}
