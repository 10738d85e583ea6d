/** A log to retain: queues, partitions and segments written through the one allocator, without a broker. */
import { createHash } from 'node:crypto';
import { type Queryable, statement } from '../../src/store/database.ts';
import * as push from '../../src/store/push.ts';
import { configureQueue } from '../../src/store/queues.ts';

export const TENANT = '00000000-0000-0000-0000-000000000001';

/** Runs at once: a stand-in for admission control. */
export const admission = { run: <T>(_lane: string, work: () => Promise<T>): Promise<T> => work() };

export async function queueWith(
  db: Queryable,
  queue: string,
  options: Record<string, unknown>,
): Promise<number> {
  return (await configureQueue(db, TENANT, queue, true, options)).queueId;
}

export async function partitionOf(db: Queryable, queue: string, partition: string): Promise<number> {
  const [place] = await push.provision(db, TENANT, [{ queue, partition }]);
  return place!.partitionId;
}

export type Append =
  | { verdict: 'stored'; base: number; createdAtMicros: number }
  | { verdict: 'duplicate'; offsets: number[] }
  | { verdict: 'missing' };

/** Sixteen bytes that stand for a transactionId. */
export function hashOf(txn: string): Buffer {
  return createHash('md5').update(txn).digest();
}

/** One segment with these transactionIds, probed over the whole window. */
export async function append(db: Queryable, partitionId: number, txns: readonly string[]): Promise<Append> {
  const segment = {
    partitionId,
    count: txns.length,
    verifiedUpto: -1,
    // Whatever is in force: a window of 0 would ask for layer 2 first.
    windowSeconds: 1,
    hashes: Buffer.concat(txns.map(hashOf)),
    blob: Buffer.from(txns.join()),
    sealed: false,
  };
  const result = (await push.append(db, [segment]))[0]!;
  switch (result.verdict) {
    case push.VERDICT.stored:
      return { verdict: 'stored', base: result.base, createdAtMicros: result.createdAtMicros };
    case push.VERDICT.duplicates:
      return { verdict: 'duplicate', offsets: result.duplicates.map((duplicate) => duplicate.offset) };
    case push.VERDICT.missing:
      return { verdict: 'missing' };
    default:
      throw new Error(`verdict ${result.verdict}`);
  }
}

let counter = 0;
/** `count` transactionIds that nobody else uses. */
export function freshTxns(count: number): string[] {
  return Array.from({ length: count }, () => `txn-${counter++}`);
}

const SET_CURSOR = statement(
  'test_set_cursor',
  `INSERT INTO queen.log_consumers AS c (partition_id, consumer_group, committed) VALUES ($1::bigint, $2::text, $3::bigint)
   ON CONFLICT (partition_id, consumer_group) DO UPDATE SET committed = excluded.committed`,
);
export async function setCursor(
  db: Queryable,
  partitionId: number,
  group: string,
  committed: number,
): Promise<void> {
  await db.query(SET_CURSOR, [partitionId, group, committed]);
}

const SET_LEASE = statement(
  'test_set_lease',
  `UPDATE queen.log_consumers SET worker_id = 'w', batch_end = $3::bigint, lease_acquired_at = queen.clock(),
          lease_expires_at = queen.clock() + $4::bigint * interval '1 second'
    WHERE partition_id = $1::bigint AND consumer_group = $2::text`,
);
export async function setLease(
  db: Queryable,
  partitionId: number,
  group: string,
  batchEnd: number,
  seconds: number,
): Promise<void> {
  await db.query(SET_LEASE, [partitionId, group, batchEnd, seconds]);
}

const PARTITION = statement(
  'test_partition',
  `SELECT last_offset, log_start, txns_start, oldest_live_at, oldest_txn_at, last_created_at
     FROM queen.log_partitions WHERE id = $1::bigint`,
);
const SEGMENTS = statement(
  'test_segments',
  `SELECT base_offset, end_offset, created_at FROM queen.log_segments WHERE partition_id = $1::bigint ORDER BY base_offset`,
);
const SIDECAR = statement(
  'test_sidecar',
  `SELECT base_offset, end_offset, created_at FROM queen.log_txns WHERE partition_id = $1::bigint ORDER BY base_offset`,
);

export interface Range {
  base: number;
  end: number;
  at: number;
}
export interface LogState {
  lastOffset: number;
  logStart: number;
  txnsStart: number;
  oldestLiveAt: number | null;
  oldestTxnAt: number | null;
  segments: Range[];
  sidecar: Range[];
}

/** What the tables hold of one partition; null when it is gone (and then nothing may be left of it). */
export async function logState(db: Queryable, partitionId: number): Promise<LogState | null> {
  const [partition, segments, sidecar] = await Promise.all([
    db.query<Record<string, number | null>>(PARTITION, [partitionId]),
    db.query<Record<string, number>>(SEGMENTS, [partitionId]),
    db.query<Record<string, number>>(SIDECAR, [partitionId]),
  ]);
  const range = (row: Record<string, number>): Range => ({
    base: row.base_offset!,
    end: row.end_offset!,
    at: row.created_at!,
  });
  const row = partition[0];
  if (row === undefined) {
    if (segments.length + sidecar.length > 0) throw new Error(`rows of partition ${partitionId} outlived it`);
    return null;
  }
  return {
    lastOffset: row.last_offset!,
    logStart: row.log_start!,
    txnsStart: row.txns_start!,
    oldestLiveAt: row.oldest_live_at!,
    oldestTxnAt: row.oldest_txn_at!,
    segments: segments.map(range),
    sidecar: sidecar.map(range),
  };
}
