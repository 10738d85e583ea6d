/** What brokers write down of their traffic (sql/151_traffic.sql), and what a scrape reads of all of them. */
import { type Queryable, statement } from './database.ts';

export interface Flush {
  /** One process. Its flushes are numbered upwards from 1. */
  writer: string;
  seq: number;
  server: string;
  /** The time that it covers: how long, and how long ago that ended. */
  elapsedMs: number;
  ageMs: number;
  /** Columns of queen.broker_metrics; null: a continuation. */
  broker: Record<string, number | number[]> | null;
  /** Columns of queen.queue_metrics with what they belong to. */
  queues: readonly Record<string, string | number>[];
}

export interface ClusterTotals {
  push_requests: number;
  push_messages: number;
  pop_requests: number;
  pop_messages: number;
  ack_requests: number;
  ack_messages: number;
  ack_success: number;
  ack_failed: number;
  dlq: number;
  transactions: number;
  db_errors: number;
}

export interface NewestMinute {
  queue: string;
  pushRequests: number;
  pushMessages: number;
  popMessages: number;
  popEmpty: number;
  ackSuccess: number;
  ackFailed: number;
  conflated: number;
  transactions: number;
  lagCount: number;
  lagSumMicros: number;
  lagMaxMicros: number;
  parked: number;
  ageMs: number;
}

const FLUSH = statement(
  'metrics_flush',
  `SELECT queen.metrics_flush($1::uuid, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::jsonb, $7::jsonb) AS written`,
);
const PRUNE = statement(
  'metrics_prune',
  'SELECT queen.metrics_prune(queen.from_micros($1::bigint), $2::int) AS removed',
);
const TOTALS = statement(
  'metrics_totals',
  `SELECT push_requests, push_messages, pop_requests, pop_messages, ack_requests, ack_messages, ack_success, ack_failed,
          dlq, transactions, db_errors
     FROM queen.cluster_totals`,
);
const NEWEST = statement(
  'metrics_newest',
  `SELECT queue, push_requests AS "pushRequests", push_messages AS "pushMessages", pop_messages AS "popMessages",
          pop_empty AS "popEmpty", ack_success AS "ackSuccess", ack_failed AS "ackFailed", conflated, transactions,
          lag_count AS "lagCount", lag_sum_us AS "lagSumMicros", lag_max_us AS "lagMaxMicros", parked,
          age_ms AS "ageMs"
     FROM queen.metrics_newest($1::int)`,
);
const BACKLOG = statement(
  'metrics_backlog',
  'SELECT queue, pending, dead, partitions FROM queen.metrics_backlog($1::int)',
);
const DEAD = statement(
  'metrics_dead',
  'SELECT coalesce(sum(s.dead_letter), 0)::bigint AS dead FROM queen.stats s JOIN queen.queues q ON q.id = s.queue_id',
);
const GROUPS = statement(
  'metrics_groups',
  `SELECT queue, consumer_group AS "group", lag, behind, lag_ms AS "lagMs" FROM queen.metrics_groups($1::int)`,
);
const KV_EXPIRED = statement(
  'metrics_kv_expired',
  'SELECT expired, capped FROM queen.metrics_kv_expired($1::int)',
);

const READ = { readOnly: true, timeoutMs: 5_000 } as const;

/** False: the database has this flush already. */
export async function flushMetrics(db: Queryable, flush: Flush): Promise<boolean> {
  const { writer, seq, server, elapsedMs, ageMs, broker, queues } = flush;
  const rows = await db.query<{ written: boolean }>(FLUSH, [
    writer,
    seq,
    server,
    Math.round(ageMs),
    Math.round(elapsedMs),
    broker === null ? null : JSON.stringify(broker),
    JSON.stringify(queues),
  ]);
  return rows[0]!.written;
}

/** At most `rows` of each kind; `rows`: there may be more. */
export async function pruneMetrics(db: Queryable, cutoffMicros: number, rows: number): Promise<number> {
  const result = await db.query<{ removed: number }>(PRUNE, [cutoffMicros, rows]);
  return result[0]!.removed;
}

/** Over all brokers since the beginning. */
export async function clusterTotals(db: Queryable): Promise<ClusterTotals | null> {
  const rows = await db.query<ClusterTotals>(TOTALS, [], READ);
  return rows[0] ?? null;
}

export function newestMinutes(db: Queryable, limit: number): Promise<NewestMinute[]> {
  return db.query<NewestMinute>(NEWEST, [limit], READ);
}

export function backlogs(
  db: Queryable,
  limit: number,
): Promise<{ queue: string; pending: number; dead: number; partitions: number }[]> {
  return db.query(BACKLOG, [limit], READ);
}

/** Dead letters of all queues, as of the last refresh. */
export async function deadLetterDepth(db: Queryable): Promise<number> {
  const rows = await db.query<{ dead: number }>(DEAD, [], READ);
  return rows[0]!.dead;
}

export function groupLags(
  db: Queryable,
  limit: number,
): Promise<{ queue: string; group: string; lag: number; behind: number; lagMs: number }[]> {
  return db.query(GROUPS, [limit], READ);
}

/** Counted up to `most` in each of the 64 shards. */
export async function expiredKeys(
  db: Queryable,
  most: number,
): Promise<{ expired: number; capped: boolean }> {
  const rows = await db.query<{ expired: number; capped: boolean }>(KV_EXPIRED, [most], READ);
  return rows[0]!;
}
