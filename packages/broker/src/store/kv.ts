/** The KV procedures (sql/080_kv.sql), one function each: parameters named, results decoded. */
import { boolArray, int4Array, textArray } from './arrays.ts';
import { type Param, type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';

export const KV_OP = { get: 0, put: 1, delete: 2, incr: 3, getMany: 4, getPrefix: 5 } as const;

/** One validated operation. Values and numbers are JSON text; `null` stands for "not given". */
export interface KvStep {
  code: (typeof KV_OP)[keyof typeof KV_OP];
  namespace: string;
  /** The key; of `getPrefix` the prefix, of `getMany` ''. */
  key: string;
  /** Of `getMany`. */
  keys?: readonly string[];
  /** put: the value; incr: the delta; getPrefix: the exclusive cursor. */
  value?: string | null;
  /** Seconds to live; null: for ever. */
  ttlSeconds?: number | null;
  /** 0: nothing may live there. */
  expect?: number | null;
  required?: boolean;
  min?: string | null;
  max?: string | null;
  limit?: number;
  keysOnly?: boolean;
}

export interface KvCall {
  tenant: string;
  steps: readonly KvStep[];
  /** Bytes of values that reads of several keys may give together. */
  readBytesMax: number;
  /** What the tenant may grow by; null: unlimited, and growth is not measured. */
  rowsLeft: number | null;
  bytesLeft: number | null;
  /** Something else depends on what is found absent. */
  guard: boolean;
  /** The commit must be durable whatever the database's default is. */
  durable: boolean;
}

export interface KvRow {
  key: string;
  /** JSON text; null with keysOnly. */
  value: string | null;
  version: number;
  expiresAtMicros: number | null;
  updatedAtMicros: number;
}

/** What came of one step. */
export interface KvAnswer {
  /** A single key: found, or applied. */
  done: boolean;
  /** Why a condition was lost. */
  reason: string | null;
  /** 0: nothing lives there. Null: a read that found nothing. */
  version: number | null;
  /** What was read, deleted, counted, or stood in the way; null after a put and where nothing was. */
  value: string | null;
  expiresAtMicros: number | null;
  updatedAtMicros: number | null;
  /** Of several keys, in byte order. */
  rows: KvRow[];
  /** Keys of getMany that are there and did not fit. */
  omitted: string[];
  truncated: boolean;
}

export interface KvOutcome {
  /** Null: the call was applied. Else the step that ended it: what was written must be rolled back. */
  failed: { step: number; failure: 'kv_precondition' | 'kv_quota_exceeded' } | null;
  /** By step; those after a failed one mean nothing. */
  answers: KvAnswer[];
  grownRows: number;
  grownBytes: number;
}

const APPLY_COLUMNS = [
  ...[
    'failed',
    'failure',
    'done',
    'reasons',
    'versions',
    'vals',
    'expires',
    'updated',
    'row_ops',
    'row_keys',
    'row_vals',
  ],
  ...['row_versions', 'row_expires', 'row_updated', 'cut', 'grown_rows', 'grown_bytes'],
];
const APPLY_CALL = `queen.kv_apply($1::uuid, $2::int[], $3::text[], $4::text[], $5::text[], $6::text[]::bigint[],
  $7::text[]::bigint[], $8::boolean[], $9::text[], $10::text[], $11::int[], $12::boolean[], $13::int[], $14::text[],
  $15::bigint, $16::bigint, $17::bigint, $18::boolean, $19::boolean)`;
const APPLY_PARAMS = 19;

/**
 * The call as part of a larger statement: its expression (placeholders from $1 on), its columns under `alias`, and for each
 * use the parameters and the reading of the row.
 */
export function kvStatement(alias: string) {
  return {
    call: APPLY_CALL,
    count: APPLY_PARAMS,
    columns: APPLY_COLUMNS.map((column) => `${alias}.${column} AS kv_${column}`).join(', '),
    prepare(call: KvCall): { params: Param[]; decode(row: object | undefined): KvOutcome } {
      const order = lockOrder(call.steps);
      return { params: applyParams(call, order), decode: (row) => decode(row, call.steps, order) };
    },
  };
}

const ALONE = kvStatement('k');
const APPLY = statement('kv_apply', `SELECT ${ALONE.columns} FROM ${ALONE.call} k`);

interface ApplyRow {
  kv_failed: number | null;
  kv_failure: 'kv_precondition' | 'kv_quota_exceeded' | null;
  kv_done: boolean[];
  kv_reasons: (string | null)[];
  kv_versions: (number | null)[];
  kv_vals: (string | null)[];
  kv_expires: (number | null)[];
  kv_updated: (number | null)[];
  kv_row_ops: number[] | null;
  kv_row_keys: string[];
  kv_row_vals: (string | null)[];
  kv_row_versions: (number | null)[];
  kv_row_expires: (number | null)[];
  kv_row_updated: (number | null)[];
  kv_cut: number[] | null;
  kv_grown_rows: number;
  kv_grown_bytes: number;
}

/**
 * Applies the call in one statement. Inside a transaction a failed call leaves what it wrote to the rollback of the
 * caller; alone, the caller must see to it that nothing can have been written before a failure.
 */
export async function applyKv(db: Queryable, call: KvCall): Promise<KvOutcome> {
  const { params, decode } = ALONE.prepare(call);
  const readOnly = !call.steps.some(writes);
  const rows = await db.query(APPLY, params, { readOnly });
  return decode(rows[0]);
}

/** Single keys first, by (namespace, key) in byte order, those on one key as they came; then the rest. */
function lockOrder(steps: readonly KvStep[]): number[] {
  const order = steps.map((_, i) => i);
  if (steps.length < 2) return order;
  const bytes = steps.map((step) => Buffer.from(place(step)));
  const several = (i: number) => (steps[i]!.code > KV_OP.incr ? 1 : 0);
  return order.sort((a, b) => {
    const last = several(a) - several(b);
    if (last !== 0 || several(a) === 1) return last || a - b;
    return bytes[a]!.compare(bytes[b]!) || a - b;
  });
}

function applyParams(call: KvCall, order: readonly number[]): Param[] {
  const steps = order.map((i) => call.steps[i]!);
  const written = new Set<string>();
  if (steps.length > 1) for (const step of steps) if (writes(step)) written.add(place(step));
  const numbers = (of: (step: KvStep) => number | null | undefined) =>
    textArray(steps.map((step) => numberText(of(step))));
  const manyOps: number[] = [];
  const manyKeys: string[] = [];
  steps.forEach((step, i) => {
    for (const key of step.keys ?? []) {
      manyOps.push(i + 1);
      manyKeys.push(key);
    }
  });
  return [
    call.tenant,
    int4Array(steps.map((step) => step.code)),
    textArray(steps.map((step) => step.namespace)),
    textArray(steps.map((step) => step.key)),
    textArray(steps.map((step) => step.value ?? null)),
    numbers((step) => step.ttlSeconds),
    numbers((step) => step.expect),
    boolArray(
      steps.map((step) => step.required === true || (step.code === KV_OP.get && written.has(place(step)))),
    ),
    textArray(steps.map((step) => step.min ?? null)),
    textArray(
      steps.map((step) => (step.code === KV_OP.getPrefix ? prefixEnd(step.key) : (step.max ?? null))),
    ),
    int4Array(steps.map((step) => step.limit ?? 0)),
    boolArray(steps.map((step) => step.keysOnly === true)),
    int4Array(manyOps),
    textArray(manyKeys),
    call.readBytesMax,
    call.rowsLeft,
    call.bytesLeft,
    call.guard,
    call.durable,
  ];
}

function writes(step: KvStep): boolean {
  return step.code !== KV_OP.get && step.code <= KV_OP.incr;
}

function place(step: KvStep): string {
  return `${step.namespace}\u0000${step.key}`;
}

function numberText(value: number | null | undefined): string | null {
  return value === null || value === undefined ? null : String(value);
}

/**
 * The first text in byte order that lies behind everything that begins with `prefix`; null when there is none. UTF-8
 * sorts as code points do, so it is the prefix with its last code point raised.
 */
export function prefixEnd(prefix: string): string | null {
  const points = Array.from(prefix, (character) => character.codePointAt(0)!);
  for (let last = points.pop(); last !== undefined; last = points.pop()) {
    if (last === 0x10ffff) continue;
    const next = last === 0xd7ff ? 0xe000 : last + 1;
    return points.map((point) => String.fromCodePoint(point)).join('') + String.fromCodePoint(next);
  }
  return null;
}

function decode(given: object | undefined, steps: readonly KvStep[], order: readonly number[]): KvOutcome {
  const row = given as ApplyRow | undefined;
  invariant(row !== undefined && row.kv_done.length === steps.length, 'kv_result', { steps: steps.length });
  const answers = new Array<KvAnswer>(steps.length);
  order.forEach((step, i) => {
    answers[step] = {
      done: row.kv_done[i]!,
      reason: row.kv_reasons[i]!,
      version: row.kv_versions[i]!,
      value: row.kv_vals[i]!,
      expiresAtMicros: row.kv_expires[i]!,
      updatedAtMicros: row.kv_updated[i]!,
      rows: [],
      omitted: [],
      truncated: false,
    };
  });
  for (let r = 0; r < (row.kv_row_ops?.length ?? 0); r++) {
    const answer = answers[order[row.kv_row_ops![r]! - 1]!]!;
    const key = row.kv_row_keys[r]!;
    const version = row.kv_row_versions[r]!;
    if (version === null) {
      answer.omitted.push(key);
      continue;
    }
    answer.rows.push({
      key,
      value: row.kv_row_vals[r]!,
      version,
      expiresAtMicros: row.kv_row_expires[r]!,
      updatedAtMicros: row.kv_row_updated[r]!,
    });
  }
  for (const i of row.kv_cut ?? []) answers[order[i - 1]!]!.truncated = true;
  const { kv_failed: failed, kv_failure: failure } = row;
  return {
    failed: failed === null || failure === null ? null : { step: order[failed - 1]!, failure },
    answers,
    grownRows: row.kv_grown_rows,
    grownBytes: row.kv_grown_bytes,
  };
}

export interface KvPage {
  rows: (KvRow & { expired: boolean })[];
  truncated: boolean;
}

const SCAN = statement(
  'kv_scan',
  `SELECT key, value, version, queen.micros(expires_at) AS "expiresAtMicros",
          queen.micros(updated_at) AS "updatedAtMicros", expired, more
     FROM queen.kv_scan($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::int, $7::boolean, $8::boolean,
                        queen.clock(), $9::bigint)`,
);

/** A page of a namespace in byte order, for people who look. */
export async function scanKv(
  db: Queryable,
  page: {
    tenant: string;
    namespace: string;
    prefix: string;
    after: string | null;
    limit: number;
    keysOnly: boolean;
    includeExpired: boolean;
    readBytesMax: number;
  },
): Promise<KvPage> {
  const rows = await db.query<KvRow & { expired: boolean; more: boolean }>(
    SCAN,
    [
      page.tenant,
      page.namespace,
      page.prefix,
      prefixEnd(page.prefix),
      page.after,
      page.limit,
      page.keysOnly,
      page.includeExpired,
      page.readBytesMax,
    ],
    { readOnly: true },
  );
  return { rows, truncated: rows.at(-1)?.more === true };
}

const NAMESPACES = statement(
  'kv_namespaces',
  `SELECT k.namespace, count(*) AS keys FROM queen.kv k WHERE k.tenant_id = $1::uuid
    GROUP BY k.namespace ORDER BY k.namespace`,
);

/** In byte order, expired rows that are not swept yet included. */
export function listKvNamespaces(
  db: Queryable,
  tenant: string,
): Promise<{ namespace: string; keys: number }[]> {
  return db.query(NAMESPACES, [tenant], { readOnly: true });
}

export interface KvSweep {
  deleted: number;
  /** The limit was reached: there may be more. */
  leftOver: boolean;
  /** How long the longest expired of them had been so. */
  lagMs: number;
  /** Until the next row expires; null: none ever will. */
  waitMs: number | null;
}

const EXPIRE = statement(
  'kv_expire',
  `SELECT deleted, left_over AS "leftOver", lag_ms AS "lagMs", wait_ms AS "waitMs" FROM queen.kv_expire($1::int)`,
);

/** Deletes up to `limit` expired rows, waiting for nobody. */
export async function expireKv(db: Queryable, limit: number): Promise<KvSweep> {
  const rows = await db.query<KvSweep>(EXPIRE, [limit]);
  return rows[0]!;
}

const COUNT_USAGE = statement(
  'kv_count_usage',
  'SELECT greatest(queen.kv_count_usage($1::bigint), queen.timers_count_usage($1::bigint)) AS tenants',
);
/** A table of a hundred million rows is read once in a while, and by one broker. */
const COUNT_TIMEOUT_MS = 600_000;

/** Counts what every tenant stores and has pending; above `exactRowsMax` rows by a sample. Answers the number of tenants. */
export async function countKvUsage(db: Queryable, exactRowsMax: number): Promise<number> {
  const rows = await db.query<{ tenants: number }>(COUNT_USAGE, [exactRowsMax], {
    timeoutMs: COUNT_TIMEOUT_MS,
  });
  return rows[0]!.tenants;
}

/** A tenant's plan and what was counted last. Null in a limit: unlimited. */
export interface QuotaRow {
  tenant: string;
  /** Null: the tenant has no plan. */
  enabled: boolean | null;
  maxRows: number | null;
  maxBytes: number | null;
  maxTimers: number | null;
  maxTimerHorizonSeconds: number | null;
  maxReadsPerSecond: number | null;
  maxWritesPerSecond: number | null;
  /** Null: never counted. */
  computedAtMicros: number | null;
  kvRows: number;
  kvBytes: number;
  timerRows: number;
  timerBytes: number;
}

const QUOTAS = statement(
  'kv_quotas',
  `SELECT coalesce(q.tenant_id, u.tenant_id) AS tenant, q.enabled, q.max_rows AS "maxRows", q.max_bytes AS "maxBytes",
          q.max_timers AS "maxTimers", q.max_timer_horizon_s AS "maxTimerHorizonSeconds",
          q.max_reads_per_sec AS "maxReadsPerSecond", q.max_writes_per_sec AS "maxWritesPerSecond",
          queen.micros(u.computed_at) AS "computedAtMicros", coalesce(u.kv_rows, 0) AS "kvRows",
          coalesce(u.kv_bytes, 0) AS "kvBytes", coalesce(u.timer_rows, 0) AS "timerRows",
          coalesce(u.timer_bytes, 0) AS "timerBytes"
     FROM queen.kv_quota q FULL JOIN queen.kv_usage u ON u.tenant_id = q.tenant_id`,
);

/** Every tenant that has a plan or stores something. */
export function readQuotas(db: Queryable): Promise<QuotaRow[]> {
  return db.query<QuotaRow>(QUOTAS, [], { readOnly: true });
}
