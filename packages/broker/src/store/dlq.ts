/** The dead letter procedures (sql/110_dlq.sql), one function each: parameters named, results decoded. */
import { type Queryable, statement } from './database.ts';
import { StoreError } from './errors.ts';
import { invariant } from './invariant.ts';

/** Null: not filtered by it. Times in microseconds since 1970, both inclusive. */
export interface DeadLetterWanted {
  queue: string | null;
  partition: string | null;
  group: string | null;
  fromMicros: number | null;
  toMicros: number | null;
}

export interface DeadLetterRow {
  id: string;
  partitionId: number;
  queue: string;
  partition: string;
  group: string;
  transactionId: string;
  /** As stored. Null: the message was gone already, or `omitted`. */
  payload: Buffer | null;
  /** The payload is there, and the page has no room for it. */
  omitted: boolean;
  error: string | null;
  retryCount: number;
  failedAtMicros: number;
  /** How many the filter lets through in all. */
  total: number;
}

export interface DeadLetterSource {
  queue: string;
  partition: string;
  /** The queue stores encrypted payloads now. */
  encrypts: boolean;
  group: string;
  transactionId: string;
  payload: Buffer | null;
}

export type ReplayRow =
  | { outcome: 'moved'; base: number; createdAtMicros: number; windowSeconds: number }
  | { outcome: 'duplicate'; offset: number }
  /** The destination is not there (any more). */
  | { outcome: 'missing' }
  /** The row is not there (any more); nothing was written. */
  | { outcome: 'gone' }
  /** The destination wants its payloads otherwise than they were packed; nothing was written. */
  | { outcome: 'repack' };

/** A purge may remove millions. */
const PURGE_TIMEOUT_MS = 600_000;
const GONE = 'QD004';
const REPACK = 'QD005';

const LIST = statement(
  'dlq_list',
  `SELECT id, partition_id AS "partitionId", queue, partition, consumer_group AS "group",
          transaction_id AS "transactionId", payload, omitted, error, retry_count AS "retryCount",
          failed_at AS "failedAtMicros", total
     FROM queen.dlq_list($1::uuid, $2::text, $3::text, $4::text, queen.from_micros($5::bigint),
                         queen.from_micros($6::bigint), $7::int, $8::bigint, $9::bigint)`,
);
const ONE = statement(
  'dlq_one',
  `SELECT id, partition_id AS "partitionId", queue, partition, consumer_group AS "group",
          transaction_id AS "transactionId", payload, FALSE AS omitted, error, retry_count AS "retryCount",
          failed_at AS "failedAtMicros", 1::bigint AS total
     FROM queen.dlq_rows($1::uuid, NULL, NULL, NULL, NULL, NULL) WHERE id = $2::uuid`,
);
const FIND = statement('dlq_find', 'SELECT queen.dlq_find($1::uuid, $2::bigint, $3::text) AS id');
const GET = statement(
  'dlq_get',
  `SELECT queue, partition, encrypts, consumer_group AS "group", transaction_id AS "transactionId", payload
     FROM queen.dlq_get($1::uuid, $2::uuid)`,
);
const DELETE_MESSAGE = statement(
  'dlq_delete_message',
  'SELECT queen.dlq_delete_message($1::uuid, $2::bigint, $3::text) AS deleted',
);
const PURGE = statement('dlq_purge', 'SELECT queen.dlq_purge($1::uuid, $2::text, $3::text) AS deleted');
const REPLAY = statement(
  'dlq_replay',
  `SELECT outcome, base_offset AS base, created AS "createdAtMicros", window_seconds AS "windowSeconds"
     FROM queen.dlq_replay($1::uuid, $2::bigint, $3::boolean, $4::bytea, $5::bytea)`,
);

/** One page, the newest failure first. Payloads are left out once those before them exceed `bytesMax`; -1: all of them. */
export function listDeadLetters(
  db: Queryable,
  tenant: string,
  wanted: DeadLetterWanted,
  page: { limit: number; skip: number; bytesMax: number },
): Promise<DeadLetterRow[]> {
  const { queue, partition, group, fromMicros, toMicros } = wanted;
  return db.query<DeadLetterRow>(
    LIST,
    [tenant, queue, partition, group, fromMicros, toMicros, page.limit, page.skip, page.bytesMax],
    { readOnly: true },
  );
}

/** With its payload. `id` is UUID text. Null: no such dead letter of the tenant. */
export async function oneDeadLetter(
  db: Queryable,
  tenant: string,
  id: string,
): Promise<DeadLetterRow | null> {
  const rows = await db.query<DeadLetterRow>(ONE, [tenant, id], { readOnly: true });
  return rows[0] ?? null;
}

/** The id of the dead letter that a message's address means. Null: it has none. */
export async function findDeadLetter(
  db: Queryable,
  tenant: string,
  partitionId: number,
  transactionId: string,
): Promise<string | null> {
  const rows = await db.query<{ id: string | null }>(FIND, [tenant, partitionId, transactionId], {
    readOnly: true,
  });
  return rows[0]!.id;
}

/** What a replay needs of it. `id` is UUID text. Null: no such dead letter of the tenant. */
export async function getDeadLetter(
  db: Queryable,
  tenant: string,
  id: string,
): Promise<DeadLetterSource | null> {
  const rows = await db.query<DeadLetterSource>(GET, [tenant, id], { readOnly: true });
  return rows[0] ?? null;
}

/** Removes the dead letters of a message, of all groups; how many there were. */
export async function deleteDeadLetters(
  db: Queryable,
  tenant: string,
  partitionId: number,
  transactionId: string,
): Promise<number> {
  const rows = await db.query<{ deleted: number }>(DELETE_MESSAGE, [tenant, partitionId, transactionId]);
  return rows[0]!.deleted;
}

/** Removes the dead letters of a queue (and group); how many there were. */
export async function purgeDeadLetters(
  db: Queryable,
  tenant: string,
  queue: string,
  group: string | null,
): Promise<number> {
  const rows = await db.query<{ deleted: number }>(PURGE, [tenant, queue, group], {
    timeoutMs: PURGE_TIMEOUT_MS,
  });
  return rows[0]!.deleted;
}

/**
 * Moves the dead letter to the tail of the partition, in one transaction: the packed message is appended and the row
 * is removed, or neither. `encrypts`: what the message was packed for.
 */
export async function replayDeadLetter(
  db: Queryable,
  id: string,
  destination: { partitionId: number; encrypts: boolean },
  message: { hashes: Buffer; blob: Buffer },
): Promise<ReplayRow> {
  const { partitionId, encrypts } = destination;
  let rows: { outcome: number; base: number; createdAtMicros: number; windowSeconds: number }[];
  try {
    rows = await db.query(REPLAY, [id, partitionId, encrypts, message.hashes, message.blob]);
  } catch (error) {
    if (error instanceof StoreError && error.sqlState === GONE) return { outcome: 'gone' };
    if (error instanceof StoreError && error.sqlState === REPACK) return { outcome: 'repack' };
    throw error;
  }
  const row = rows[0];
  invariant(row !== undefined, 'replay_row');
  if (row.outcome === 2) return { outcome: 'missing' };
  if (row.outcome === 1) return { outcome: 'duplicate', offset: row.base };
  invariant(row.outcome === 0 && row.base >= 0, 'replay_outcome', { outcome: row.outcome, base: row.base });
  const { base, createdAtMicros, windowSeconds } = row;
  return { outcome: 'moved', base, createdAtMicros, windowSeconds };
}
