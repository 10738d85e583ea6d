/** Bars of graphs over what brokers have written down (sql/152_analytics.sql), one function a procedure. */
import { textArray } from './arrays.ts';
import { type Queryable, statement } from './database.ts';
import type { QueueFilter } from './rollup.ts';

/** Times in microseconds; bars are `stepMinutes` wide. */
export interface Bars {
  fromMicros: number;
  toMicros: number;
  stepMinutes: number;
}

export interface TrafficBar {
  bucketMicros: number;
  queue: string;
  pushRequests: number;
  pushMessages: number;
  popMessages: number;
  popEmpty: number;
  ackRequests: number;
  ackMessages: number;
  ackSuccess: number;
  ackFailed: number;
  transactions: number;
  partitionsCreated: number;
  partitionsDeleted: number;
  partitions: number;
  lagCount: number;
  lagSumMicros: number;
  lagMaxMicros: number;
  parked: number;
}

export interface ParkedBar {
  bucketMicros: number;
  queue: string;
  server: string;
  parked: number;
}

/** `bucketMicros` null: a row of `key` over the whole time. */
export interface RetentionBar {
  bucketMicros: number | null;
  key: string | null;
  queues: number | null;
  retention: number;
  completed: number;
  evicted: number;
  events: number;
}

export interface WorkloadKey {
  key: string;
  namespace: string;
  task: string;
  queues: number;
  pushMessages: number;
  pushRequests: number;
  popMessages: number;
  popEmpty: number;
  ackRequests: number;
  ackSuccess: number;
  ackFailed: number;
  transactions: number;
  conflated: number;
  partitionsCreated: number;
  partitionsDeleted: number;
  parked: number;
  lagCount: number;
  lagSumMicros: number;
  lagMaxMicros: number;
  touched: number;
  active: number;
  pending: number;
  processing: number;
  deadLetter: number;
  retainedBytes: number;
  partitions: number;
  groups: number;
  withoutGroup: number;
  pendingWithoutGroup: number;
  matches: number;
}

export interface WorkloadBar {
  key: string;
  bucketMicros: number;
  push: number;
  pop: number;
  popEmpty: number;
  ackFailed: number;
  parked: number;
  lagCount: number;
  lagSumMicros: number;
  lagMaxMicros: number;
}

/** Mean, least, greatest, last. */
export type Gauge = [number, number, number, number];

export interface CountBar {
  bucketMicros: number;
  pushRequests: number;
  pushMessages: number;
  popRequests: number;
  popMessages: number;
  popEmpty: number;
  ackRequests: number;
  ackMessages: number;
  ackSuccess: number;
  ackFailed: number;
  dlq: number;
  transactions: number;
  lagCount: number;
  lagSumMicros: number;
  lagMaxMicros: number;
}

export interface BrokerBar extends CountBar {
  server: string;
  dbErrors: number;
  cpuUser: Gauge;
  cpuSystem: Gauge;
  rssBytes: Gauge;
  poolSize: Gauge;
  poolIdle: Gauge;
  poolActive: Gauge;
  loopLagMs: Gauge;
  uptimeSeconds: Gauge;
  lastAtMicros: number;
}

export interface QueueTraffic {
  queue: string;
  pushMessages: number;
  popMessages: number;
  ackSuccess: number;
  ackFailed: number;
  popEmpty: number;
  lagCount: number;
  lagSumMicros: number;
  lagMaxMicros: number;
}

export interface DeadLetterSummary {
  kind: 'all' | 'group' | 'retries' | 'day';
  key: string;
  n: number;
  bytes: number | null;
  oldestMicros: number | null;
  newestMicros: number | null;
}

const SPAN = 'queen.from_micros($2::bigint), queen.from_micros($3::bigint), $4::int';
const LAG = 'lag_count AS "lagCount", lag_sum_us AS "lagSumMicros", lag_max_us AS "lagMaxMicros"';
const COUNTS = `bucket AS "bucketMicros", push_requests AS "pushRequests", push_messages AS "pushMessages",
          pop_requests AS "popRequests", pop_messages AS "popMessages", pop_empty AS "popEmpty",
          ack_requests AS "ackRequests", ack_messages AS "ackMessages", ack_success AS "ackSuccess",
          ack_failed AS "ackFailed", dlq, transactions, ${LAG}`;

const TRAFFIC = statement(
  'traffic_bars',
  `SELECT bucket AS "bucketMicros", queue, push_requests AS "pushRequests", push_messages AS "pushMessages",
          pop_messages AS "popMessages", pop_empty AS "popEmpty", ack_requests AS "ackRequests",
          ack_messages AS "ackMessages", ack_success AS "ackSuccess", ack_failed AS "ackFailed", transactions,
          partitions_created AS "partitionsCreated", partitions_deleted AS "partitionsDeleted", partitions, ${LAG}, parked
     FROM queen.traffic_bars($1::uuid, ${SPAN}, $5::text, $6::int)`,
);
const PARKED = statement(
  'parked_bars',
  `SELECT bucket AS "bucketMicros", queue, server, parked
     FROM queen.parked_bars($1::uuid, ${SPAN}, $5::text, $6::int)`,
);
const STORED = statement(
  'stored_bars',
  `SELECT bucket AS "bucketMicros", messages
     FROM queen.stored_bars($1::uuid, ${SPAN}, $5::text, $6::text, $7::text)`,
);
const RETENTION = statement(
  'retention_bars',
  `SELECT bucket AS "bucketMicros", key, queues, retention, completed, evicted, events
     FROM queen.retention_bars($1::uuid, ${SPAN}, $5::text, $6::text)`,
);
const KEYS = statement(
  'workload_keys',
  `SELECT key, namespace, task, queues, push_messages AS "pushMessages", push_requests AS "pushRequests",
          pop_messages AS "popMessages", pop_empty AS "popEmpty", ack_requests AS "ackRequests",
          ack_success AS "ackSuccess", ack_failed AS "ackFailed", transactions, conflated,
          partitions_created AS "partitionsCreated", partitions_deleted AS "partitionsDeleted", parked, ${LAG}, touched,
          active, pending, processing, dead AS "deadLetter", retained_bytes AS "retainedBytes", partitions, groups,
          without_group AS "withoutGroup", pending_without_group AS "pendingWithoutGroup", matches
     FROM queen.workload_keys($1::uuid, ${SPAN}, $5::text, $6::text, $7::text, $8::text, $9::int)`,
);
const KEY_BARS = statement(
  'workload_bars',
  `SELECT key, bucket AS "bucketMicros", push, pop, pop_empty AS "popEmpty", ack_failed AS "ackFailed", parked, ${LAG}
     FROM queen.workload_bars($1::uuid, ${SPAN}, $5::text, $6::text[], $7::text, $8::text, $9::text)`,
);
const SINCE = statement(
  'traffic_since',
  'SELECT stored, finished FROM queen.traffic_since($1::uuid, queen.from_micros($2::bigint))',
);
const BROKERS = statement(
  'broker_bars',
  `SELECT ${COUNTS}, server, db_errors AS "dbErrors", cpu_user AS "cpuUser", cpu_system AS "cpuSystem",
          rss_bytes AS "rssBytes", pool_size AS "poolSize", pool_idle AS "poolIdle", pool_active AS "poolActive",
          loop_lag_ms AS "loopLagMs", uptime_s AS "uptimeSeconds", last_at AS "lastAtMicros"
     FROM queen.broker_bars(queen.from_micros($1::bigint), queen.from_micros($2::bigint), $3::int, $4::text)`,
);
const ALL = statement(
  'traffic_all_bars',
  `SELECT ${COUNTS}
     FROM queen.traffic_all_bars(queen.from_micros($1::bigint), queen.from_micros($2::bigint), $3::int, $4::text,
                                 $5::text, $6::text, $7::text)`,
);
const ALL_QUEUES = statement(
  'traffic_all_queues',
  `SELECT queue, push_messages AS "pushMessages", pop_messages AS "popMessages", ack_success AS "ackSuccess",
          ack_failed AS "ackFailed", pop_empty AS "popEmpty", ${LAG}
     FROM queen.traffic_all_queues(queen.from_micros($1::bigint), queen.from_micros($2::bigint), $3::int, $4::text,
                                   $5::text, $6::int)`,
);
const DLQ = statement(
  'dlq_summary',
  `SELECT kind, key, n, bytes, oldest AS "oldestMicros", newest AS "newestMicros"
     FROM queen.dlq_summary($1::uuid, $2::text)`,
);
const REASONS = statement('dlq_reasons', 'SELECT error FROM queen.dlq_reasons($1::uuid, $2::text, $3::int)');

const READ = { readOnly: true, timeoutMs: 60_000 } as const;

/** By bar and queue; the `queues` busiest ones. */
export function trafficBars(
  db: Queryable,
  tenant: string,
  bars: Bars,
  queue: string | null,
  queues: number,
): Promise<TrafficBar[]> {
  return db.query<TrafficBar>(TRAFFIC, [tenant, ...span(bars), queue, queues], READ);
}

/** By bar, queue and broker; the newest `rows`. */
export function parkedBars(
  db: Queryable,
  tenant: string,
  bars: Bars,
  queue: string | null,
  rows: number,
): Promise<ParkedBar[]> {
  return db.query<ParkedBar>(PARKED, [tenant, ...span(bars), queue, rows], READ);
}

export function storedBars(
  db: Queryable,
  tenant: string,
  bars: Bars,
  { queue, namespace, task }: QueueFilter,
): Promise<{ bucketMicros: number; messages: number }[]> {
  return db.query(STORED, [tenant, ...span(bars), queue, namespace, task], READ);
}

/** The bars, and with `by` the rows a key. */
export function retentionBars(
  db: Queryable,
  tenant: string,
  bars: Bars,
  queue: string | null,
  by: string | null,
): Promise<RetentionBar[]> {
  return db.query<RetentionBar>(RETENTION, [tenant, ...span(bars), queue, by], READ);
}

/** `by`: `namespace`, `task`, `queue`, or `all` for one row with the key ''. */
export function workloadKeys(
  db: Queryable,
  tenant: string,
  bars: Bars,
  by: string,
  { queue, namespace, task }: QueueFilter,
  limit: number,
): Promise<WorkloadKey[]> {
  return db.query<WorkloadKey>(KEYS, [tenant, ...span(bars), by, queue, namespace, task, limit], READ);
}

export function workloadBars(
  db: Queryable,
  tenant: string,
  bars: Bars,
  by: string,
  keys: readonly string[],
  { queue, namespace, task }: QueueFilter,
): Promise<WorkloadBar[]> {
  const params = [tenant, ...span(bars), by, textArray(keys), queue, namespace, task];
  return db.query<WorkloadBar>(KEY_BARS, params, READ);
}

/** Messages stored and finished since. */
export async function trafficSince(
  db: Queryable,
  tenant: string,
  fromMicros: number,
): Promise<{ stored: number; finished: number }> {
  const rows = await db.query<{ stored: number; finished: number }>(SINCE, [tenant, fromMicros], READ);
  return rows[0]!;
}

/** By bar and broker; `server` null: all of them. */
export function brokerBars(db: Queryable, bars: Bars, server: string | null): Promise<BrokerBar[]> {
  return db.query<BrokerBar>(BROKERS, [...span(bars), server], READ);
}

/** Over all tenants. */
export function allTrafficBars(
  db: Queryable,
  bars: Bars,
  { queue, namespace, task }: QueueFilter,
  server: string | null,
): Promise<CountBar[]> {
  return db.query<CountBar>(ALL, [...span(bars), queue, namespace, task, server], READ);
}

/** Over all tenants, the busiest first. */
export function allTrafficQueues(
  db: Queryable,
  bars: Bars,
  queue: string | null,
  server: string | null,
  limit: number,
): Promise<QueueTraffic[]> {
  return db.query<QueueTraffic>(ALL_QUEUES, [...span(bars), queue, server, limit], READ);
}

export function deadLetterSummary(
  db: Queryable,
  tenant: string,
  queue: string,
): Promise<DeadLetterSummary[]> {
  return db.query<DeadLetterSummary>(DLQ, [tenant, queue], READ);
}

/** The newest first; null: none was given. */
export async function deadLetterReasons(
  db: Queryable,
  tenant: string,
  queue: string,
  limit: number,
): Promise<(string | null)[]> {
  const rows = await db.query<{ error: string | null }>(REASONS, [tenant, queue, limit], READ);
  return rows.map(({ error }) => error);
}

function span({ fromMicros, toMicros, stepMinutes }: Bars): [number, number, number] {
  return [fromMicros, toMicros, stepMinutes];
}
