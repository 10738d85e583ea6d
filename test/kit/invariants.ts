/**
 * The invariants of the log, checked from the tables alone, at rest (no append in flight). Made to be run after a random
 * test, whatever it did; invariants.test.ts shows that each kind of damage is found.
 */
import assert from 'node:assert/strict';
import { hashTransactionIds } from '../../packages/broker/src/log/hash.ts';
import { unpackSegment } from '../../packages/broker/src/log/segment.ts';
import { formatUuid } from '../../packages/broker/src/log/uuid.ts';
import { type Queryable, statement } from '../../packages/broker/src/store/database.ts';

const PARTITIONS = statement(
  'kit_partitions',
  `SELECT p.id, p.last_offset AS "lastOffset", p.log_start AS "logStart", p.txns_start AS "txnsStart",
          queen.micros(p.oldest_live_at) AS "oldestLive", queen.micros(p.oldest_txn_at) AS "oldestTxn",
          queen.micros(p.last_created_at) AS "lastCreated", q.dedup_window_seconds AS "windowSeconds"
     FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id ORDER BY p.id`,
);
const SEGMENTS = statement(
  'kit_segments',
  `SELECT base_offset AS base, end_offset AS end, queen.micros(created_at) AS created, blob
     FROM queen.log_segments WHERE partition_id = $1::bigint ORDER BY base_offset`,
);
const SIDECARS = statement(
  'kit_sidecars',
  `SELECT base_offset AS base, end_offset AS end, queen.micros(created_at) AS created, hashes
     FROM queen.log_txns WHERE partition_id = $1::bigint ORDER BY base_offset`,
);

interface Partition {
  id: number;
  lastOffset: number;
  logStart: number;
  txnsStart: number;
  oldestLive: number | null;
  oldestTxn: number | null;
  lastCreated: number | null;
  windowSeconds: number;
}

interface Range {
  base: number;
  end: number;
  created: number;
}

export interface StoredMessage {
  offset: number;
  id: string;
  transactionId: string;
  payload: string;
  createdAtMicros: number;
}

export interface LogReport {
  /** What is wrong, each naming partition and offset. Empty: nothing. */
  faults: string[];
  /** What is stored, by partition id, ascending by offset. */
  messages: Map<number, StoredMessage[]>;
  /** By partition id; hand it to a later check. */
  watermarks: Map<number, { lastOffset: number; logStart: number; txnsStart: number }>;
}

export interface LogCheck {
  /** An earlier report's: nothing may have moved backwards since. */
  since?: LogReport['watermarks'];
  /** The queues' windows were never raised, so no transactionId is there twice inside one. */
  windowsNeverRaised?: boolean;
}

/** Fails with every fault that {@link checkLogInvariants} finds. */
export async function assertLogInvariants(db: Queryable, check: LogCheck = {}): Promise<LogReport> {
  const report = await checkLogInvariants(db, check);
  assert.deepEqual(report.faults, []);
  return report;
}

export async function checkLogInvariants(db: Queryable, check: LogCheck = {}): Promise<LogReport> {
  const report: LogReport = { faults: [], messages: new Map(), watermarks: new Map() };
  const ids = new Map<string, string>();
  for (const partition of await db.query<Partition>(PARTITIONS)) {
    const { id, lastOffset, logStart, txnsStart } = partition;
    const fault = (text: string): void => void report.faults.push(`partition ${id}: ${text}`);
    report.watermarks.set(id, { lastOffset, logStart, txnsStart });
    const segments = await db.query<Range & { blob: Buffer }>(SEGMENTS, [id]);
    const sidecars = await db.query<Range & { hashes: Buffer }>(SIDECARS, [id]);
    checkRanges(partition, segments, sidecars, fault);
    checkWatermarks(partition, segments, sidecars, check.since?.get(id), fault);
    const stored: StoredMessage[] = [];
    const hashes = new Map(sidecars.map((row) => [row.base, row]));
    for (const segment of segments) {
      const messages = await read(segment, fault);
      checkSidecar(segment, messages, hashes.get(segment.base), txnsStart, fault);
      stored.push(...messages);
    }
    for (const message of stored) {
      const at = `partition ${id} offset ${message.offset}`;
      const other = ids.get(message.id);
      if (other !== undefined) report.faults.push(`${at}: message id ${message.id} is at ${other} too`);
      ids.set(message.id, at);
    }
    if (check.windowsNeverRaised === true) checkWindow(partition.windowSeconds, stored, fault);
    report.messages.set(id, stored);
  }
  return report;
}

type Fault = (text: string) => void;

/** Disjoint, ascending, without holes, in time order, and a sidecar row that mirrors each segment. */
function checkRanges(
  partition: Partition,
  segments: readonly Range[],
  sidecars: readonly Range[],
  fault: Fault,
): void {
  for (const [kind, rows] of [
    ['segment', segments],
    ['sidecar', sidecars],
  ] as const) {
    let previous: Range | undefined;
    for (const row of rows) {
      const name = `${kind} ${row.base}..${row.end}`;
      if (row.end < row.base) fault(`${name} ends before it begins`);
      if (previous !== undefined && row.base <= previous.end)
        fault(`${name} overlaps ${previous.base}..${previous.end}`);
      if (previous !== undefined && row.base > previous.end + 1) fault(`${name}: a hole in front of it`);
      if (previous !== undefined && row.created < previous.created)
        fault(`${name} is older than the one before`);
      if (partition.lastCreated === null || row.created > partition.lastCreated)
        fault(`${name} is newer than last_created_at`);
      previous = row;
    }
    if (previous !== undefined && previous.end !== partition.lastOffset) {
      fault(`last_offset is ${partition.lastOffset}, the last ${kind} ends at ${previous.end}`);
    }
  }
}

function checkWatermarks(
  partition: Partition,
  segments: readonly Range[],
  sidecars: readonly Range[],
  since: { lastOffset: number; logStart: number; txnsStart: number } | undefined,
  fault: Fault,
): void {
  const { lastOffset, logStart, txnsStart } = partition;
  if (lastOffset < -1) fault(`last_offset is ${lastOffset}`);
  const start = segments[0]?.base ?? lastOffset + 1;
  if (logStart !== start) fault(`log_start is ${logStart}, the log begins at ${start}`);
  const txns = sidecars[0]?.base ?? lastOffset + 1;
  if (txnsStart !== txns) fault(`txns_start is ${txnsStart}, the sidecar begins at ${txns}`);
  checkOldest('oldest_live_at', partition.oldestLive, segments[0]?.created ?? null, fault);
  checkOldest('oldest_txn_at', partition.oldestTxn, sidecars[0]?.created ?? null, fault);
  if (since === undefined) return;
  if (lastOffset < since.lastOffset) fault(`last_offset went back from ${since.lastOffset} to ${lastOffset}`);
  if (logStart < since.logStart) fault(`log_start went back from ${since.logStart} to ${logStart}`);
  if (txnsStart < since.txnsStart) fault(`txns_start went back from ${since.txnsStart} to ${txnsStart}`);
}

function checkOldest(column: string, value: number | null, expected: number | null, fault: Fault): void {
  const wrong = value === null || expected === null ? value !== expected : Math.abs(value - expected) >= 1000;
  if (wrong) fault(`${column} is ${value}, the oldest row is of ${expected}`);
}

function checkSidecar(
  segment: Range,
  messages: readonly StoredMessage[],
  sidecar: (Range & { hashes: Buffer }) | undefined,
  txnsStart: number,
  fault: Fault,
): void {
  const name = `segment ${segment.base}..${segment.end}`;
  if (sidecar === undefined) {
    if (segment.end >= txnsStart) fault(`${name} has no sidecar row`);
    return;
  }
  if (sidecar.end !== segment.end) fault(`${name}: its sidecar row ends at ${sidecar.end}`);
  if (sidecar.created !== segment.created) fault(`${name}: its sidecar row has another created_at`);
  if (sidecar.hashes.length !== 16 * (segment.end - segment.base + 1)) {
    fault(`${name}: ${sidecar.hashes.length} bytes of hashes`);
  }
  const expected = hashTransactionIds(messages.map((message) => message.transactionId));
  if (messages.length > 0 && !sidecar.hashes.equals(expected))
    fault(`${name}: the hashes are not those of its frames`);
}

async function read(segment: Range & { blob: Buffer }, fault: Fault): Promise<StoredMessage[]> {
  try {
    const frames = await unpackSegment(segment.blob, segment.end - segment.base + 1);
    return frames.map((frame, i) => ({
      offset: segment.base + i,
      id: formatUuid(frame.messageId),
      transactionId: frame.transactionId,
      payload: frame.payload.toString(),
      createdAtMicros: segment.created,
    }));
  } catch (error) {
    fault(`segment ${segment.base}..${segment.end} cannot be read: ${String(error)}`);
    return [];
  }
}

function checkWindow(windowSeconds: number, messages: readonly StoredMessage[], fault: Fault): void {
  const newest = new Map<string, StoredMessage>();
  for (const message of messages) {
    const earlier = newest.get(message.transactionId);
    if (earlier !== undefined && message.createdAtMicros - earlier.createdAtMicros < windowSeconds * 1e6) {
      fault(`offsets ${earlier.offset} and ${message.offset} have one transactionId inside the window`);
    }
    newest.set(message.transactionId, message);
  }
}
