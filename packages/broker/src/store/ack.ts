/**
 * The procedures of the ack path: the decision, the hand-off of a dead letter, the extension of a lease; and the reading
 * of stored segments, for what only the messages themselves can tell.
 */
import { int4Array, int8Array, textArray, uuidArray } from './arrays.ts';
import { type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';

/** Of two signals on one message the larger wins. */
export const ACK_CODE = { completed: 0, retry: 1, failed: 2, dlq: 3 } as const;

export const OUTCOME = {
  decided: 0,
  handOff: 1,
  dropped: 2,
  lease: 3,
  noConsumer: 4,
  foreignPartition: 5,
  noPartition: 6,
  unresolved: 7,
  committed: 8,
} as const;

/** One (partition, consumer group, lease). No two of a call may name the same consumer row. */
export interface AckGroupArgs {
  tenant: string;
  partitionId: number;
  group: string;
  /** '': lease-less. */
  lease: string;
  /** An {@link ACK_CODE} an item. */
  codes: readonly number[];
  /** An offset an item, -1 for one that is resolved by its hash. */
  offsets: readonly number[];
  /** 16 bytes an item. Null when every item comes by offset. */
  hashes: Buffer | null;
}

export interface AckGroupRow {
  /** An {@link OUTCOME}. From `lease` on nothing was changed. */
  outcome: number;
  /** The cursor before and after; -1 when there is no consumer row. */
  before: number;
  after: number;
  batchEnd: number | null;
  /** Worker id that the row held. */
  holder: string | null;
  /** The message that is to be dead-lettered, or was dropped. */
  signal: number | null;
  released: boolean;
  backlog: boolean;
  /** Null unless the batch was conflated. */
  conflated: number | null;
  /** Where each item is effective; -1: nowhere. */
  offsets: number[];
  /** Items that are known only at or below the cursor. */
  below: boolean[];
}

const LOG_ACK = statement(
  'log_ack',
  `SELECT * FROM queen.log_ack($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::int[], $6::int[], $7::bigint[],
                               $8::bytea, $9::int)`,
);

export interface LogAckRow {
  outcomes: number[];
  befores: (number | null)[];
  afters: (number | null)[];
  batch_ends: (number | null)[];
  holders: (string | null)[];
  signals: (number | null)[];
  released: boolean[];
  backlogs: boolean[];
  conflateds: (number | null)[];
  item_offsets: number[];
  item_below: boolean[];
}

/**
 * When a group is left as it is and answers `unresolved`: never, or when the sidecar cannot tell one of its items and its
 * lease is live.
 */
export const CAUTION = { none: 0, defer: 1 } as const;

/** Decides acks in one statement. Works inside a transaction too: no business outcome raises. */
export async function logAck(
  db: Queryable,
  groups: readonly AckGroupArgs[],
  caution: (typeof CAUTION)[keyof typeof CAUTION],
): Promise<AckGroupRow[]> {
  const rows = await db.query<LogAckRow>(LOG_ACK, [
    uuidArray(groups.map((group) => group.tenant)),
    int8Array(groups.map((group) => group.partitionId)),
    textArray(groups.map((group) => group.group)),
    textArray(groups.map((group) => group.lease)),
    ...ackItemParams(groups),
    caution,
  ]);
  const row = rows[0];
  invariant(row !== undefined, 'ack_result', { groups: groups.length });
  return ackGroupRows(row, groups);
}

/** A leased batch that is completed as a whole by its holder. */
export interface Completion {
  partitionId: number;
  group: string;
  worker: string;
  /** The lowest message of the batch: the cursor must still be below it. */
  first: number;
  /** The end of the batch. */
  last: number;
}

export interface Settled {
  /** The cursor before. */
  before: number;
  /** Messages are left above the batch. */
  backlog: boolean;
}

const COMPLETE = statement(
  'log_ack_whole',
  'SELECT settled, befores, backlogs FROM queen.log_ack_whole($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])',
);

/**
 * Completes batches in one statement, each answered in order; null: the row is not as described, and unchanged. No two may
 * name the same consumer row.
 */
export async function completeBatches(
  db: Queryable,
  completions: readonly Completion[],
): Promise<(Settled | null)[]> {
  const [row] = await db.query<{ settled: number[] | null; befores: number[]; backlogs: boolean[] }>(
    COMPLETE,
    [
      int8Array(completions.map(({ partitionId }) => partitionId)),
      textArray(completions.map(({ group }) => group)),
      textArray(completions.map(({ worker }) => worker)),
      int8Array(completions.map(({ first }) => first)),
      int8Array(completions.map(({ last }) => last)),
    ],
  );
  invariant(row !== undefined, 'ack_result', { completions: completions.length });
  const answers = new Array<Settled | null>(completions.length).fill(null);
  row.settled?.forEach((n, i) => {
    answers[n - 1] = { before: row.befores[i]!, backlog: row.backlogs[i]! };
  });
  return answers;
}

/** The arguments of the procedure that say what the items of the groups are. */
export function ackItemParams(groups: readonly Omit<AckGroupArgs, 'lease'>[]): Buffer[] {
  const codes: number[] = [];
  const offsets: number[] = [];
  const owners: number[] = [];
  groups.forEach((group, index) => {
    invariant(group.codes.length === group.offsets.length, 'ack_items', { index });
    for (let i = 0; i < group.codes.length; i++) {
      codes.push(group.codes[i]!);
      offsets.push(group.offsets[i]!);
      owners.push(index + 1);
    }
  });
  return [int4Array(owners), int4Array(codes), int8Array(offsets), joinHashes(groups, codes.length)];
}

/** Its answer, one row a group, in order. */
export function ackGroupRows(row: LogAckRow, groups: readonly Omit<AckGroupArgs, 'lease'>[]): AckGroupRow[] {
  const items = groups.reduce((sum, group) => sum + group.codes.length, 0);
  invariant(
    row.outcomes.length === groups.length &&
      row.item_offsets.length === items &&
      row.item_below.length === items,
    'ack_result',
    { groups: groups.length, items },
  );
  let at = 0;
  return groups.map((group, i) => {
    const from = at;
    at += group.codes.length;
    return {
      outcome: row.outcomes[i]!,
      before: row.befores[i] ?? -1,
      after: row.afters[i] ?? -1,
      batchEnd: row.batch_ends[i] ?? null,
      holder: row.holders[i] ?? null,
      signal: row.signals[i] ?? null,
      released: row.released[i]!,
      backlog: row.backlogs[i]!,
      conflated: row.conflateds[i] ?? null,
      offsets: row.item_offsets.slice(from, at),
      below: row.item_below.slice(from, at),
    };
  });
}

function joinHashes(groups: readonly Omit<AckGroupArgs, 'lease'>[], items: number): Buffer {
  const only = groups.length === 1 ? groups[0]!.hashes : null;
  if (only !== null) {
    invariant(only.length === 16 * items, 'ack_hashes', { bytes: only.length, items });
    return only;
  }
  const out = Buffer.alloc(16 * items);
  let at = 0;
  for (const group of groups) {
    const bytes = 16 * group.codes.length;
    if (group.hashes !== null) {
      invariant(group.hashes.length === bytes, 'ack_hashes', { bytes: group.hashes.length, expected: bytes });
      out.set(group.hashes, at);
    }
    at += bytes;
  }
  return out;
}

export interface HandOffArgs {
  tenant: string;
  partitionId: number;
  group: string;
  /** The holder that the decision saw. */
  holder: string | null;
  /** The ack named a lease, which must be live still. */
  fenced: boolean;
  offset: number;
  /** UUID text; null when the message is gone. */
  messageId: string | null;
  transactionId: string;
  /** As stored; null when the message is gone. */
  payload: Buffer | null;
  error: string;
}

export interface HandOffRow {
  /** `decided`, `lease`, `noConsumer` or `committed` of {@link OUTCOME}. */
  outcome: number;
  backlog: boolean;
  conflated: number | null;
}

const HAND_OFF = statement(
  'log_ack_hand_off',
  `SELECT * FROM queen.log_ack_hand_off($1::uuid, $2::bigint, $3::text, $4::text, $5::boolean, $6::bigint, $7::uuid,
                                        $8::text, $9::bytea, $10::text)`,
);

/** Dead-letters one message: row and cursor in one commit, exactly once. */
export async function logAckHandOff(db: Queryable, args: HandOffArgs): Promise<HandOffRow> {
  const rows = await db.query<HandOffRow>(HAND_OFF, [
    args.tenant,
    args.partitionId,
    args.group,
    args.holder,
    args.fenced,
    args.offset,
    args.messageId,
    args.transactionId,
    args.payload,
    args.error,
  ]);
  const row = rows[0];
  invariant(row !== undefined, 'hand_off_result', { partition: args.partitionId, offset: args.offset });
  return row;
}

export interface StoredSegment {
  base: number;
  /** Inclusive. */
  end: number;
  blob: Buffer;
}

const SEGMENTS_BETWEEN = statement(
  'log_segments_between',
  `SELECT s.base_offset AS base, s.end_offset AS "end", s.blob
     FROM queen.log_segments s
    WHERE s.partition_id = $1::bigint
      AND s.base_offset >= coalesce((SELECT max(b.base_offset) FROM queen.log_segments b
                                      WHERE b.partition_id = $1::bigint AND b.base_offset <= $2::bigint), $2::bigint)
      AND s.base_offset <= $3::bigint AND s.end_offset >= $2::bigint
    ORDER BY s.base_offset LIMIT $4::int`,
);

/** The first `limit` segments that touch the offsets `low..high` (inclusive), ascending. */
export function segmentsBetween(
  db: Queryable,
  partitionId: number,
  low: number,
  high: number,
  limit: number,
): Promise<StoredSegment[]> {
  return db.query<StoredSegment>(SEGMENTS_BETWEEN, [partitionId, low, high, limit], { readOnly: true });
}

const LEASE_EXTEND = statement(
  'log_lease_extend',
  'SELECT * FROM queen.log_lease_extend($1::uuid, $2::text, $3::int, $4::bigint[], $5::text[])',
);

export interface LeaseRows {
  partitionIds: readonly number[];
  groups: readonly string[];
}

export interface ExtendRow {
  renewed: number;
  /** The earliest expiry among them, microseconds since 1970. */
  expires_at: number | null;
}

/**
 * Lengthens all live leases of `lease` to at least `seconds` from now. `rows`: all consumer rows that the lease's pop
 * claimed, when the caller knows them; null scans for them.
 */
export async function leaseExtend(
  db: Queryable,
  tenant: string,
  lease: string,
  seconds: number,
  rows: LeaseRows | null,
): Promise<ExtendRow> {
  const answer = await db.query<ExtendRow>(LEASE_EXTEND, [
    tenant,
    lease,
    seconds,
    rows === null ? null : int8Array(rows.partitionIds),
    rows === null ? null : textArray(rows.groups),
  ]);
  const row = answer[0];
  invariant(row !== undefined, 'extend_result', { seconds });
  return row;
}
