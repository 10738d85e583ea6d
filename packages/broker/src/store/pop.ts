/** The pop procedures (sql/020_*.sql), one function each: parameters named, results decoded. */
import { int8Array } from './arrays.ts';
import type { Queryable } from './database.ts';
import { statement } from './database.ts';
import { invariant } from './invariant.ts';

/** Where a group starts on what it has never met. `fromMicros` goes with `timestamp`; see {@link SINCE_CREATION}. */
export interface Start {
  readonly mode: 'all' | 'new' | 'timestamp';
  readonly fromMicros: number | null;
}

/** With mode `new`: from the creation of the queue on. */
export const SINCE_CREATION = -1;

export interface Registration {
  queueId: number;
  createdAtMicros: number;
  /** The policy that is stored. */
  conflation: boolean;
  /** This call made the registration. */
  inserted: boolean;
  minPopWaitMs: number;
  namespace: string;
  task: string;
  nowMicros: number;
}

export interface ScopeQueue {
  queueId: number;
  queue: string;
  createdAtMicros: number;
  minPopWaitMs: number;
}

export interface Pin {
  queueId: number;
  /** Null: there is no such partition; the group's start on it is recorded. */
  partitionId: number | null;
  conflation: boolean;
}

export const MEET = { met: 0, busy: 1, missing: 2, unregistered: 3 } as const;

export const CLAIM = {
  claimed: 0,
  empty: 1,
  leased: 2,
  skipped: 3,
  deferred: 4,
  unmet: 5,
  missing: 6,
  foreign: 7,
} as const;

/** What became of one candidate. Fields that a verdict does not have are null (see the procedure). */
export interface ClaimRow {
  partitionId: number;
  verdict: number;
  queueId: number | null;
  queue: string | null;
  partition: string | null;
  lastOffset: number | null;
  /** Everything at or below is done or gone. */
  position: number | null;
  waitMicros: number | null;
  minPopWaitMs: number | null;
  fromOffset: number | null;
  toOffset: number | null;
  attempt: number | null;
  leaseSeconds: number | null;
  prevOffset: number | null;
  prevCount: number | null;
  bases: number[] | null;
  ends: number[] | null;
  created: number[] | null;
  blobs: Buffer[] | null;
}

export interface ClaimOptions {
  group: string;
  /** In the order in which the budget is spent. */
  candidates: readonly number[];
  /** The queue that each is believed to belong to. */
  queues: readonly number[];
  /** Null: commit at delivery. */
  worker: string | null;
  /** Messages, at least 1. */
  batch: number;
  /** 0: no cap. */
  partitions: number;
  /** Bytes of stored segments after which no further segment is taken. */
  bytesMax: number;
  /** 0: the queue's. */
  leaseSeconds: number;
  conflate: boolean;
  /** Waiting messages that open a windowed queue early; 0: only quiet does. */
  windowBatch: number;
}

/** Bulk seeding writes a row a partition: a queue of a million takes longer than a statement may. */
const SEED_TIMEOUT_MS = 600_000;

const REGISTER = statement(
  'pop_register',
  `SELECT queue_id AS "queueId", created_at AS "createdAtMicros", conflation, inserted,
          min_pop_wait AS "minPopWaitMs", namespace, task, now_at AS "nowMicros"
     FROM queen.log_pop_register($1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::boolean)`,
);
const REGISTER_SCOPE = statement(
  'pop_register_scope',
  `SELECT conflation, inserted
     FROM queen.log_pop_register_scope($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::bigint, $7::boolean)`,
);
const SCOPE = statement(
  'pop_scope',
  `SELECT queue_id AS "queueId", queue, created_at AS "createdAtMicros", min_pop_wait AS "minPopWaitMs"
     FROM queen.log_pop_scope($1::uuid, $2::text, $3::text)`,
);
const PIN = statement(
  'pop_pin',
  `SELECT queue_id AS "queueId", partition_id AS "partitionId", conflation
     FROM queen.log_pop_pin($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::bigint)`,
);
const MEET_ALL = statement(
  'pop_meet',
  'SELECT queen.log_pop_meet($1::text, $2::bigint[], $3::boolean, $4::text, $5::bigint) AS verdicts',
);
const CLAIM_ALL = statement(
  'pop_claim',
  `SELECT partition_id AS "partitionId", verdict, queue_id AS "queueId", queue, partition,
          last_offset AS "lastOffset", position, wait_us AS "waitMicros", min_pop_wait AS "minPopWaitMs",
          from_offset AS "fromOffset", to_offset AS "toOffset", attempt, lease_seconds AS "leaseSeconds",
          prev_offset AS "prevOffset", prev_count AS "prevCount", bases, ends, created, blobs
     FROM queen.log_pop_claim($1::text, $2::bigint[], $3::bigint[], $4::text, $5::int, $6::int, $7::bigint,
                              $8::int, $9::boolean, $10::int)`,
);
const UNDO = statement(
  'pop_undo',
  'SELECT queen.log_pop_undo($1::text, $2::text, $3::bigint[], $4::bigint[], $5::int[]) AS undone',
);
const UNREAD = statement(
  'pop_unread',
  'SELECT queen.log_pop_unread($1::text, $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS "putBack"',
);
const CANDIDATES = statement(
  'pop_candidates',
  'SELECT queen.log_pop_candidates($1::bigint[], $2::text, $3::int) AS candidates',
);

/** Makes sure that the group is registered on the queue; creates the queue when it is unknown. Idempotent. */
export async function register(
  db: Queryable,
  tenant: string,
  queue: string,
  group: string,
  start: Start,
  conflate: boolean,
): Promise<Registration> {
  const rows = await db.query<Registration>(
    REGISTER,
    [tenant, queue, group, start.mode, start.fromMicros, conflate],
    { timeoutMs: SEED_TIMEOUT_MS },
  );
  return only(rows);
}

/** The same for a discovery scope ('' = any); gives the policy that is stored. */
export async function registerScope(
  db: Queryable,
  tenant: string,
  namespace: string,
  task: string,
  group: string,
  start: Start,
  conflate: boolean,
): Promise<{ conflation: boolean; inserted: boolean }> {
  const rows = await db.query<{ conflation: boolean; inserted: boolean }>(
    REGISTER_SCOPE,
    [tenant, namespace, task, group, start.mode, start.fromMicros, conflate],
    { timeoutMs: SEED_TIMEOUT_MS },
  );
  return only(rows);
}

export function scopeQueues(
  db: Queryable,
  tenant: string,
  namespace: string,
  task: string,
): Promise<ScopeQueue[]> {
  return db.query<ScopeQueue>(SCOPE, [tenant, namespace, task], { readOnly: true });
}

/** Finds the partition of a pinned pop; records the group's start on one that does not exist. */
export async function pin(
  db: Queryable,
  tenant: string,
  queue: string,
  partition: string,
  group: string,
  start: Start,
): Promise<Pin> {
  return only(await db.query<Pin>(PIN, [tenant, queue, partition, group, start.mode, start.fromMicros]));
}

/**
 * Creates the group's missing rows on these partitions; one of {@link MEET} for each, in order.
 * @param pinned the start that a pinned pop carries; null: only registrations decide
 */
export async function meet(
  db: Queryable,
  group: string,
  partitions: readonly number[],
  pinned: Start | null,
): Promise<number[]> {
  const rows = await db.query<{ verdicts: number[] | null }>(MEET_ALL, [
    group,
    int8Array(partitions),
    pinned !== null,
    pinned?.mode ?? 'all',
    pinned?.fromMicros ?? null,
  ]);
  const verdicts = only(rows).verdicts ?? [];
  invariant(verdicts.length === partitions.length, 'meet_verdicts', { got: verdicts.length });
  return verdicts;
}

/** Claims batches. Rows come only for candidates that were visited before the budget was spent. */
export function claim(db: Queryable, options: ClaimOptions): Promise<ClaimRow[]> {
  return db.query<ClaimRow>(CLAIM_ALL, [
    options.group,
    int8Array(options.candidates),
    int8Array(options.queues),
    options.worker,
    options.batch,
    options.partitions,
    options.bytesMax,
    options.leaseSeconds,
    options.conflate,
    options.windowBatch,
  ]);
}

/**
 * Takes back leases that nobody received. `prevCount` null: the columns before the claim are not known.
 * Returns the partitions that were still leased by the worker.
 */
export async function undo(
  db: Queryable,
  group: string,
  worker: string,
  claims: readonly { partitionId: number; prevOffset: number | null; prevCount: number | null }[],
): Promise<number[]> {
  const sorted = [...claims].sort((a, b) => a.partitionId - b.partitionId);
  const rows = await db.query<{ undone: number[] | null }>(UNDO, [
    group,
    worker,
    int8Array(sorted.map((c) => c.partitionId)),
    nullable(sorted.map((c) => c.prevOffset)),
    nullable(sorted.map((c) => c.prevCount)),
  ]);
  return only(rows).undone ?? [];
}

/**
 * Takes back commits at delivery of batches that nobody could read; `committed` is where the claim left the
 * cursor. Returns the partitions that were put back.
 */
export async function unread(
  db: Queryable,
  group: string,
  claims: readonly { partitionId: number; committed: number; back: number; count: number }[],
): Promise<number[]> {
  const sorted = [...claims].sort((a, b) => a.partitionId - b.partitionId);
  const rows = await db.query<{ putBack: number[] | null }>(UNREAD, [
    group,
    int8Array(sorted.map((c) => c.partitionId)),
    int8Array(sorted.map((c) => c.committed)),
    int8Array(sorted.map((c) => c.back)),
    int8Array(sorted.map((c) => c.count)),
  ]);
  return only(rows).putBack ?? [];
}

/** Partitions with something for the group, by a scan of the queues' rows. For a broker without the hot list. */
export async function candidates(
  db: Queryable,
  queues: readonly number[],
  group: string,
  limit: number,
): Promise<number[]> {
  const rows = await db.query<{ candidates: number[] | null }>(CANDIDATES, [int8Array(queues), group, limit]);
  return only(rows).candidates ?? [];
}

/** An array literal, since the binary form of the array helpers has no nulls. */
function nullable(values: readonly (number | null)[]): string {
  return `{${values.map((v) => (v === null ? 'NULL' : String(v))).join(',')}}`;
}

function only<T>(rows: readonly T[]): T {
  invariant(rows.length === 1, 'one_row', { rows: rows.length });
  return rows[0] as T;
}
