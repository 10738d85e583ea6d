/** The log's part of a transaction (sql/100_transaction.sql), alone or together with KV operations: one statement. */
import { type AckGroupArgs, type AckGroupRow, ackGroupRows, ackItemParams, type LogAckRow } from './ack.ts';
import { int8Array, textArray, uuidArray } from './arrays.ts';
import { type Param, type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';
import { applyKv, type KvCall, type KvOutcome, kvStatement } from './kv.ts';
import { type Append, type AppendRow, type AppendVerdict, appendParams, appendVerdicts } from './push.ts';

/** `lease` null: the ack names none. */
export type TransactionAckGroup = Omit<AckGroupArgs, 'lease'> & { lease: string | null };

export interface LogWork {
  appends: readonly Append[];
  /** A consumer row at most once. */
  groups: readonly TransactionAckGroup[];
  /** The distinct leases that the caller says it holds. */
  requiredLeases: readonly string[];
  /** False: only locks the rows of the groups and finds their leases. */
  decide: boolean;
  durable: boolean;
}

export interface LogResult {
  appends: AppendVerdict[];
  /** Index of a group that is leased by somebody whose lease is not in the list. */
  fenced: number | null;
  /** What each group was held against; '': nothing. */
  leases: string[];
  /** Null: not decided, since something before was refused, or because that was the wish. */
  acks: AckGroupRow[] | null;
}

const STAGE = { none: 0, pushes: 1, leases: 2, done: 3 } as const;

const LOG_COLUMNS = `l.stage, l.fenced, l.leases, l.segments, l.verdicts, l.bases, l.created, l.windows, l.encrypts,
  l.dup_segments AS "dupSegments", l.dup_indexes AS "dupIndexes", l.dup_offsets AS "dupOffsets", l.outcomes, l.befores,
  l.afters, l.batch_ends, l.holders, l.signals, l.released, l.backlogs, l.conflateds, l.item_offsets, l.item_below`;

const LOG_TYPES = [
  ...['boolean', 'bigint[]', 'int[]', 'bigint[]', 'int[]', 'bytea[]', 'bytea[]', 'boolean[]'],
  ...['uuid[]', 'bigint[]', 'text[]', 'text[]', 'int[]', 'int[]', 'bigint[]', 'bytea', 'text[]', 'boolean'],
];

/** The placeholders from `first` on, each with its type. */
function placeholders(first: number): string {
  return LOG_TYPES.map((type, i) => `$${first + i}::${type}`).join(', ');
}

const LOG = statement(
  'transaction_log',
  `SELECT ${LOG_COLUMNS} FROM queen.log_transaction(true, ${placeholders(1)}) l`,
);

const KV = kvStatement('k');
const KV_LOG = statement(
  'transaction_kv_log',
  `SELECT ${KV.columns}, ${LOG_COLUMNS}
     FROM ${KV.call} k
    CROSS JOIN LATERAL queen.log_transaction(k.failed IS NULL, ${placeholders(KV.count + 1)}) l`,
);

interface LogRow extends AppendRow, LogAckRow {
  stage: number;
  fenced: number | null;
  leases: string[] | null;
}

/**
 * KV, pushes and acks in one statement. Whatever is refused, the caller must roll back: what stands before it has been
 * written.
 */
export async function applyAll(
  tx: Queryable,
  kv: KvCall | null,
  work: LogWork,
): Promise<{ kv: KvOutcome | null; log: LogResult | null }> {
  const logging = work.appends.length > 0 || work.groups.length > 0;
  if (!logging) return { kv: kv === null ? null : await applyKv(tx, kv), log: null };
  if (kv === null) {
    const rows = await tx.query<LogRow>(LOG, logParams(work));
    return { kv: null, log: decode(rows[0], work) };
  }
  const prepared = KV.prepare(kv);
  const rows = await tx.query<LogRow>(KV_LOG, [...prepared.params, ...logParams(work)]);
  const outcome = prepared.decode(rows[0]);
  return { kv: outcome, log: outcome.failed === null ? decode(rows[0], work) : null };
}

function logParams({ appends, groups, requiredLeases, decide, durable }: LogWork): Param[] {
  return [
    durable,
    ...appendParams(appends),
    uuidArray(groups.map((group) => group.tenant)),
    int8Array(groups.map((group) => group.partitionId)),
    textArray(groups.map((group) => group.group)),
    textArray(groups.map((group) => group.lease)),
    ...ackItemParams(groups),
    textArray(requiredLeases),
    decide,
  ];
}

function decode(row: LogRow | undefined, work: LogWork): LogResult {
  invariant(row !== undefined && row.stage !== STAGE.none, 'transaction_result', { stage: row?.stage });
  const done = row.stage === STAGE.done;
  const appends = work.appends.length === 0 ? [] : appendVerdicts(row, work.appends.length);
  return {
    appends,
    fenced: row.fenced === null ? null : row.fenced - 1,
    leases: row.leases ?? [],
    acks: done && work.decide && work.groups.length > 0 ? ackGroupRows(row, work.groups) : null,
  };
}
