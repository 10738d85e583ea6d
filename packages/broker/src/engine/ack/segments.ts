/**
 * Looking into stored segments on behalf of an ack: for the message that becomes a dead letter, and for the place of a
 * transactionId whose hash the sidecar has lost. A segment that cannot be read is that partition's error, told
 * with its place, and nobody else's.
 */
import { type Frame, MalformedSegment } from '../../log/frame.ts';
import { unpackSegment } from '../../log/segment.ts';
import { type StoredSegment, segmentsBetween } from '../../store/ack.ts';
import type { Queryable } from '../../store/database.ts';

/** Runs work against the database: through admission, or on the transaction that is open already. */
export type Run = <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;

export class UnreadableSegment extends Error {
  constructor(partitionId: number, segment: StoredSegment, cause: MalformedSegment) {
    super(
      `segment of partition ${partitionId} at offsets ${segment.base} to ${segment.end} is corrupt: ${cause.message}`,
      { cause },
    );
    this.name = 'UnreadableSegment';
  }
}

/** Segments that are held in memory at once while a batch is searched. */
const SEGMENTS_A_STEP = 8;

/** The message at `offset`; null when retention has taken it. Throws UnreadableSegment. */
export async function messageAt(run: Run, partitionId: number, offset: number): Promise<Frame | null> {
  const [segment] = await run((db) => segmentsBetween(db, partitionId, offset, offset, 1));
  if (segment === undefined) return null;
  const index = offset - segment.base;
  const [frame] = await unpack(partitionId, segment, index, index);
  return frame ?? null;
}

/**
 * The lowest offset in `low..high` (inclusive) of each wanted transactionId that occurs there; with `newestFirst`, the
 * message at `high` comes before any other. Throws UnreadableSegment.
 */
export async function locate(
  run: Run,
  partitionId: number,
  low: number,
  high: number,
  wanted: ReadonlySet<string>,
  newestFirst: boolean,
): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  for (let from = low; from <= high; ) {
    const segments = await run((db) => segmentsBetween(db, partitionId, from, high, SEGMENTS_A_STEP));
    for (const segment of segments) {
      const first = Math.max(0, low - segment.base);
      const last = Math.min(segment.end, high) - segment.base;
      const frames = await unpack(partitionId, segment, first, last);
      frames.forEach((frame, i) => {
        const offset = segment.base + first + i;
        const txn = frame.transactionId;
        if (wanted.has(txn) && (!found.has(txn) || (newestFirst && offset === high))) found.set(txn, offset);
      });
      from = segment.end + 1;
    }
    if (segments.length < SEGMENTS_A_STEP) break;
  }
  return found;
}

async function unpack(
  partitionId: number,
  segment: StoredSegment,
  from: number,
  to: number,
): Promise<Frame[]> {
  try {
    return await unpackSegment(segment.blob, segment.end - segment.base + 1, from, to);
  } catch (error) {
    if (error instanceof MalformedSegment) throw new UnreadableSegment(partitionId, segment, error);
    throw error;
  }
}
