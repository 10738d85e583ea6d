/** Reading deduplication windows: the sidecar rows that a broker's cache is filled with. */
import { int4Array, int8Array } from './arrays.ts';
import { type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';

export interface WindowRequest {
  partitionId: number;
  /** Above 0. */
  windowSeconds: number;
}

/** A row of the sidecar. */
export interface WindowRow {
  baseOffset: number;
  /** Inclusive. */
  endOffset: number;
  createdAtMicros: number;
  /** 16 bytes an offset. */
  hashes: Buffer;
}

export interface WindowStart {
  /** The partition's `last_offset`, of the same snapshot as the rows. */
  lastOffset: number;
  /** Hashes in the whole window. */
  hashes: number;
  /** The first rows of the window, ascending; all of it when it is small. */
  rows: WindowRow[];
}

/** 16,384 hashes: some milliseconds of work for the reader, so that a large window does not hold its event loop. */
const PAGE_BYTES = 256 * 1024;
const PAGE_ROWS = 4096;

const OPEN = statement(
  'dedup_window_open',
  'SELECT * FROM queen.dedup_window_open($1::bigint[], $2::int[], $3, $4)',
);
const NEXT = statement(
  'dedup_window_next',
  `SELECT base_offset, end_offset, queen.micros(created_at) AS created, hashes
     FROM queen.dedup_window_next($1, $2, $3, $4, $5)`,
);

interface Row {
  base_offset: number;
  end_offset: number;
  created: number;
  hashes: Buffer;
}

interface OpenRow extends Row {
  seq: number;
  last_offset: number;
  total: number;
}

/** The beginnings of the requested windows, one answer a request, in order; null: no such partition. */
export async function openWindows(
  db: Queryable,
  requests: readonly WindowRequest[],
): Promise<(WindowStart | null)[]> {
  const rows = await db.query<OpenRow>(
    OPEN,
    [
      int8Array(requests.map((request) => request.partitionId)),
      int4Array(requests.map((request) => request.windowSeconds)),
      PAGE_ROWS,
      PAGE_BYTES,
    ],
    { readOnly: true },
  );
  const starts: (WindowStart | null)[] = requests.map(() => null);
  for (const row of rows) {
    invariant(row.seq >= 1 && row.seq <= starts.length, 'dedup_window_seq', { seq: row.seq });
    starts[row.seq - 1] ??= { lastOffset: row.last_offset, hashes: row.total, rows: [] };
    // A window without rows is one row of nulls.
    if (row.hashes !== null) starts[row.seq - 1]!.rows.push(windowRow(row));
  }
  return starts;
}

/** The next rows of a window with a base above `afterBase` and an end at or below `lastOffset`; none: that was all. */
export async function nextWindowRows(
  db: Queryable,
  partitionId: number,
  afterBase: number,
  lastOffset: number,
): Promise<WindowRow[]> {
  const params = [partitionId, afterBase, lastOffset, PAGE_ROWS, PAGE_BYTES];
  return (await db.query<Row>(NEXT, params, { readOnly: true })).map(windowRow);
}

function windowRow(row: Row): WindowRow {
  return {
    baseOffset: row.base_offset,
    endOffset: row.end_offset,
    createdAtMicros: row.created,
    hashes: row.hashes,
  };
}
