/**
 * The retention procedures (sql/050_retention.sql). Every one takes the moment of the whole cycle
 * (`nowMicros`, microseconds since 1970 by the database's clock) and finds its cutoffs from the queue's
 * configuration as it reads it.
 */
import type { Queryable } from './database.ts';
import { statement } from './database.ts';

/** Rules 1 and 2 of the segments, rule 3 of the segments, the purge of the hash sidecar. */
export type RetentionPhase = 'segments' | 'max_wait' | 'sidecar';

/** Where a due list stopped; the next one goes on behind it. */
export interface DuePosition {
  queueId: number;
  atMicros: number;
  partitionId: number;
}
export const DUE_START: DuePosition = { queueId: 0, atMicros: 0, partitionId: 0 };

export interface DuePartition {
  partitionId: number;
  queueId: number;
  /** The configuration that made it due, as one opaque text. */
  rules: string;
}

export interface StepResult {
  /** Segments (or sidecar rows) deleted. */
  rows: number;
  /** Offsets deleted; 0 for the sidecar. */
  messages: number;
  /** The whole horizon of the step went: there may be more at once. */
  more: boolean;
  /** What deleted the newest of it; null: nothing was deleted, or this is the sidecar. */
  rule: 'retention' | 'completed_retention' | 'max_wait' | null;
}

/** One partition whose recorded ages are wrong, with the watermarks under which the right ones were read. */
export interface DriftedPartition {
  id: number;
  last_offset: number;
  log_start: number;
  txns_start: number;
  oldest_live_at: number | null;
  oldest_txn_at: number | null;
}

const NOW = statement('maintenance_now', 'SELECT queen.maintenance_now() AS now');
const DUE = statement(
  'retention_due',
  `SELECT partition_id, queue_id, oldest_at, rules
     FROM queen.retention_due($1::text, queen.from_micros($2::bigint), $3::bigint, queen.from_micros($4::bigint),
                              $5::bigint, $6::int)`,
);
const STEP = statement(
  'retention_step',
  `SELECT segments AS rows, messages, more, rule
     FROM queen.retention_step($1::bigint, $2::text, queen.from_micros($3::bigint), $4::int)`,
);
const SIDECAR_STEP = statement(
  'sidecar_step',
  `SELECT purged AS rows, 0::bigint AS messages, more, NULL::text AS rule
     FROM queen.sidecar_step($1::bigint, queen.from_micros($2::bigint), $3::int)`,
);
const CLEANUP = statement(
  'partition_cleanup',
  `SELECT removed, queues, last_id
     FROM queen.partition_cleanup(queen.from_micros($1::bigint), queen.from_micros($2::bigint), $3::bigint,
                                  $4::int, $5::int)`,
);
const WALK_READ = statement(
  'retention_walk_read',
  'SELECT * FROM queen.retention_walk_read($1::bigint, $2::int)',
);
const WALK_WRITE = statement(
  'retention_walk_write',
  `SELECT queen.retention_walk_write($1::bigint, $2::bigint, $3::bigint, $4::bigint,
                                     queen.from_micros($5::bigint), queen.from_micros($6::bigint)) AS written`,
);
const PRUNE = statement(
  'history_prune',
  'SELECT queen.history_prune(queen.from_micros($1::bigint), $2::int) AS pruned',
);
const GARBAGE_STEP = statement('garbage_step', 'SELECT rows, more FROM queen.garbage_step($1::int)');
const QUEUE_IDS = statement(
  'retained_queue_ids',
  'SELECT id FROM queen.queues WHERE id > $1::bigint ORDER BY id LIMIT $2::int',
);
const RETAINED = statement(
  'queue_retained_refresh',
  'SELECT queen.queue_retained_refresh($1::bigint, queen.from_micros($2::bigint)) AS written',
);

/** Reading the lengths of a large queue's blobs walks all of its segments. */
const RETAINED_TIMEOUT_MS = 120_000;

/** The moment that all cutoffs of one cycle are measured from, microseconds. */
export async function maintenanceNow(db: Queryable): Promise<number> {
  const rows = await db.query<{ now: number }>(NOW);
  return rows[0]!.now;
}

/**
 * At most `limit` due partitions behind `after`. `next` is where to go on, null when the list reached the
 * last queue.
 */
export async function duePartitions(
  db: Queryable,
  phase: RetentionPhase,
  nowMicros: number,
  after: DuePosition,
  limit: number,
): Promise<{ due: DuePartition[]; next: DuePosition | null }> {
  const rows = await db.query<{
    partition_id: number | null;
    queue_id: number;
    oldest_at: number;
    rules: string | null;
  }>(DUE, [phase, nowMicros, after.queueId, after.atMicros, after.partitionId, limit]);
  const due: DuePartition[] = [];
  let next: DuePosition | null = null;
  for (const row of rows) {
    if (row.partition_id === null) next = { queueId: row.queue_id, atMicros: 0, partitionId: 0 };
    else due.push({ partitionId: row.partition_id, queueId: row.queue_id, rules: row.rules ?? '' });
  }
  const last = rows[due.length - 1];
  if (due.length >= limit && last !== undefined) {
    next = { queueId: last.queue_id, atMicros: last.oldest_at, partitionId: last.partition_id! };
  }
  return { due, next };
}

/** One bounded step on one partition under its row lock. Null: the partition is gone. */
export async function retentionStep(
  db: Queryable,
  phase: RetentionPhase,
  partitionId: number,
  nowMicros: number,
  rows: number,
): Promise<StepResult | null> {
  const result =
    phase === 'sidecar'
      ? await db.query<StepResult>(SIDECAR_STEP, [partitionId, nowMicros, rows])
      : await db.query<StepResult>(STEP, [partitionId, phase, nowMicros, rows]);
  return result[0] ?? null;
}

/**
 * Removes idle empty partitions of one page after `afterId`, at most `max`; `queues` has the queue of each. `lastId` is
 * where the next page starts, null after the last one.
 */
export async function cleanupPartitions(
  db: Queryable,
  cutoffMicros: number,
  nowMicros: number,
  afterId: number,
  page: number,
  max: number,
): Promise<{ removed: number[]; queues: number[]; lastId: number | null }> {
  const rows = await db.query<{ removed: number[]; queues: number[]; last_id: number | null }>(CLEANUP, [
    cutoffMicros,
    nowMicros,
    afterId,
    page,
    max,
  ]);
  const { removed, queues, last_id: lastId } = rows[0]!;
  return { removed, queues, lastId };
}

/** Partitions of one page whose recorded ages differ from the tables. Changes nothing. */
export async function readDrift(
  db: Queryable,
  afterId: number,
  page: number,
): Promise<{ drifted: DriftedPartition[]; lastId: number | null }> {
  const rows = await db.query<Omit<DriftedPartition, 'id'> & { id: number | null; last_id: number | null }>(
    WALK_READ,
    [afterId, page],
  );
  const drifted = rows.filter((row): row is typeof row & { id: number } => row.id !== null);
  return { drifted, lastId: rows[0]?.last_id ?? null };
}

/** Writes the right ages unless the watermarks moved meanwhile (false). */
export async function correctDrift(db: Queryable, row: DriftedPartition): Promise<boolean> {
  const rows = await db.query<{ written: boolean }>(WALK_WRITE, [
    row.id,
    row.last_offset,
    row.log_start,
    row.txns_start,
    row.oldest_live_at,
    row.oldest_txn_at,
  ]);
  return rows[0]!.written;
}

/** Drops at most `rows` rows of retention history written before the cutoff. */
export async function pruneHistory(db: Queryable, cutoffMicros: number, rows: number): Promise<number> {
  const result = await db.query<{ pruned: number }>(PRUNE, [cutoffMicros, rows]);
  return result[0]!.pruned;
}

/** Removes some `rows` rows of what deleted queues left, whichever broker deleted them. */
export async function garbageStep(db: Queryable, rows: number): Promise<{ rows: number; more: boolean }> {
  const result = await db.query<{ rows: number; more: boolean }>(GARBAGE_STEP, [rows]);
  return result[0]!;
}

/** Ids of at most `page` queues after `afterId`, over all tenants. */
export async function queueIds(db: Queryable, afterId: number, page: number): Promise<number[]> {
  const rows = await db.query<{ id: number }>(QUEUE_IDS, [afterId, page]);
  return rows.map((row) => row.id);
}

/** Counts bytes and segments of one queue for the listings. False: it is gone, or another broker is at it. */
export async function refreshRetained(db: Queryable, queueId: number, nowMicros: number): Promise<boolean> {
  const rows = await db.query<{ written: boolean }>(RETAINED, [queueId, nowMicros], {
    timeoutMs: RETAINED_TIMEOUT_MS,
  });
  return rows[0]!.written;
}
