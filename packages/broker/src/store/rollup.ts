/** The rollup of where everything stands (sql/150_statistics.sql), one function a procedure. */
import { int8Array } from './arrays.ts';
import { type Queryable, statement } from './database.ts';
import type { PageWanted } from './partitions.ts';

/** What narrows a read; null: everything. */
export interface QueueFilter {
  queue: string | null;
  namespace: string | null;
  task: string | null;
}

export interface StandingQueue {
  id: number;
  name: string;
  namespace: string;
  task: string;
  createdAtMicros: number;
  partitions: number;
  total: number;
  pending: number;
  processing: number;
  deadLetter: number;
  /** Over all groups, ever. */
  consumed: number;
  retainedBytes: number;
  segments: number;
}

export type QueueSort =
  | 'name'
  | 'partitions'
  | 'total'
  | 'pending'
  | 'processing'
  | 'deadLetter'
  | 'retainedBytes';

/** Sums; lags in microseconds and messages over the queues with something pending. */
export interface StandingTotals {
  queues: number;
  partitions: number;
  namespaces: number;
  tasks: number;
  total: number;
  pending: number;
  processing: number;
  completed: number;
  deadLetter: number;
  deadPartitions: number;
  leases: number;
  leasedPartitions: number;
  leasedMessages: number;
  consumed: number;
  lagAvg: number;
  lagMedian: number;
  lagMin: number;
  lagMax: number;
  behindAvg: number;
  behindMedian: number;
  behindMin: number;
  behindMax: number;
}

export interface LivenessRow {
  queue: string;
  namespace: string;
  task: string;
  partitions: number;
  live1h: number;
  live24h: number;
  live7d: number;
  created24h: number;
  oldestWriteMicros: number | null;
  newestWriteMicros: number | null;
  pending: number;
}

export interface RefreshAge {
  finishedAtMicros: number;
  ageMs: number;
  tookMs: number;
}

const PLAN = statement('stats_plan', 'SELECT queues FROM queen.stats_plan($1::bigint, $2::int)');
const COUNT = statement('stats_count', 'SELECT queen.stats_count($1::bigint[]) AS partitions');
const FINISH = statement('stats_finish', 'SELECT queen.stats_finish($1::bigint, $2::bigint)::text');
const AGE = statement(
  'stats_age',
  'SELECT finished_at AS "finishedAtMicros", age_ms AS "ageMs", took_ms AS "tookMs" FROM queen.stats_age()',
);
const QUEUES = statement(
  'stats_queues',
  `SELECT id, name, namespace, task, created_at AS "createdAtMicros", partitions, total, pending, processing,
          dead AS "deadLetter", consumed, retained_bytes AS "retainedBytes", segments, matches
     FROM queen.stats_queues($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::boolean, $8::int, $9::bigint)`,
);
const TOTALS = statement(
  'stats_totals',
  `SELECT queues, partitions, namespaces, tasks, total, pending, processing, completed, dead AS "deadLetter",
          dead_partitions AS "deadPartitions", leases, leased_parts AS "leasedPartitions",
          leased_messages AS "leasedMessages", consumed, lag_avg_us AS "lagAvg", lag_median_us AS "lagMedian",
          lag_min_us AS "lagMin", lag_max_us AS "lagMax", behind_avg AS "behindAvg", behind_median AS "behindMedian",
          behind_min AS "behindMin", behind_max AS "behindMax"
     FROM queen.stats_totals($1::uuid, $2::text, $3::text, $4::text)`,
);
const BUSY = statement(
  'stats_largest',
  `SELECT q.id, q.name::text AS name, q.namespace, q.task, s.partitions, s.consumed
     FROM queen.queues q JOIN queen.stats s ON s.queue_id = q.id
    WHERE ($1::text IS NULL OR q.name = $1) AND ($2::text IS NULL OR q.namespace = $2)
      AND ($3::text IS NULL OR q.task = $3)
    ORDER BY s.consumed DESC, q.name LIMIT $4::int`,
);
const LIVENESS = statement(
  'stats_liveness',
  `SELECT queue, namespace, task, partitions, live_1h AS "live1h", live_24h AS "live24h", live_7d AS "live7d",
          created_24h AS "created24h", oldest_write_at AS "oldestWriteMicros", newest_write_at AS "newestWriteMicros",
          pending
     FROM queen.stats_liveness($1::uuid, $2::text, $3::text, $4::text, $5::int)`,
);
const QUEUE_TOTALS = statement(
  'queue_totals',
  `SELECT partitions, total, pending, processing, dead AS "deadLetter" FROM queen.queue_totals($1::uuid, $2::bigint)`,
);
const USAGE = statement(
  'stats_usage',
  `SELECT kv_rows AS "kvRows", kv_bytes AS "kvBytes", timer_bytes AS "timerBytes" FROM queen.kv_usage
    WHERE tenant_id = $1::uuid`,
);

/** A queue of a million partitions takes longer than an ordinary statement may. */
const COUNT_TIMEOUT_MS = 300_000;
const READ = { readOnly: true, timeoutMs: 60_000 } as const;

/**
 * The ids of all queues, in parts of about so many partitions; one part at least. None while the last refresh is less
 * than `rest` times as long ago as it took.
 */
export async function planRefresh(db: Queryable, partitions: number, rest: number): Promise<number[][]> {
  const rows = await db.query<{ queues: number[] }>(PLAN, [partitions, rest], READ);
  return rows.map(({ queues }) => queues);
}

/** Counts these queues anew; how many partitions they have. */
export async function countQueues(db: Queryable, queues: readonly number[]): Promise<number> {
  const rows = await db.query<{ partitions: number }>(COUNT, [int8Array(queues)], {
    timeoutMs: COUNT_TIMEOUT_MS,
  });
  return rows[0]!.partitions;
}

/** Removes what deleted queues have left and notes the end of a whole refresh. */
export async function finishRefresh(db: Queryable, tookMs: number, partitions: number): Promise<void> {
  await db.query(FINISH, [Math.round(tookMs), partitions]);
}

/** Null: never refreshed. */
export async function refreshAge(db: Queryable): Promise<RefreshAge | null> {
  const [row] = await db.query<RefreshAge>(AGE, [], READ);
  return row ?? null;
}

/** One page, and how many there are in all. */
export async function standingQueues(
  db: Queryable,
  tenant: string,
  filter: QueueFilter,
  page: PageWanted<QueueSort>,
): Promise<{ queues: StandingQueue[]; total: number }> {
  const { queue, namespace, task } = filter;
  const rows = await db.query<StandingQueue & { matches: number }>(
    QUEUES,
    [tenant, queue, namespace, task, page.search, page.sort, page.descending, page.limit, page.skip],
    READ,
  );
  return { queues: rows.map(({ matches: _matches, ...row }) => row), total: rows[0]?.matches ?? 0 };
}

/** @param tenant null: over all. */
export async function standingTotals(
  db: Queryable,
  tenant: string | null,
  filter: QueueFilter,
): Promise<StandingTotals> {
  const { queue, namespace, task } = filter;
  const [row] = await db.query<StandingTotals>(TOTALS, [tenant, queue, namespace, task], READ);
  return row!;
}

/** The queues of all tenants that most was consumed from. */
export function busiestQueues(
  db: Queryable,
  filter: QueueFilter,
  limit: number,
): Promise<Pick<StandingQueue, 'id' | 'name' | 'namespace' | 'task' | 'partitions' | 'consumed'>[]> {
  return db.query(BUSY, [filter.queue, filter.namespace, filter.task, limit], READ);
}

/** What a tenant stores beside its queues, as last counted. */
export async function storedBeside(
  db: Queryable,
  tenant: string,
): Promise<{ kvRows: number; kvBytes: number; timerBytes: number }> {
  const [row] = await db.query<{ kvRows: number; kvBytes: number; timerBytes: number }>(
    USAGE,
    [tenant],
    READ,
  );
  return row ?? { kvRows: 0, kvBytes: 0, timerBytes: 0 };
}

/** The queues with most partitions first. */
export function partitionLiveness(
  db: Queryable,
  tenant: string,
  filter: QueueFilter,
  limit: number,
): Promise<LivenessRow[]> {
  return db.query(LIVENESS, [tenant, filter.queue, filter.namespace, filter.task, limit], READ);
}

/** Live counters of one queue. */
export async function queueTotals(
  db: Queryable,
  tenant: string,
  queueId: number,
): Promise<{ partitions: number; total: number; pending: number; processing: number; deadLetter: number }> {
  const rows = await db.query<Awaited<ReturnType<typeof queueTotals>>>(QUEUE_TOTALS, [tenant, queueId], READ);
  return rows[0]!;
}
