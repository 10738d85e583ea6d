import { MalformedSegment } from '../../log/frame.ts';
import { unpackSegment } from '../../log/segment.ts';
import { formatUuid } from '../../log/uuid.ts';
import type { Queryable } from '../../store/database.ts';
import { type CoveringSegment, coveringSegments } from '../../store/push.ts';

/** Runs work against the database, through admission. */
export type Run = <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;

/** Offsets a query: bounds the blobs that are in memory at once. */
const OFFSETS_A_STEP = 64;

/**
 * The message ids stored at these offsets of a partition. An offset is missing from the answer when retention has taken
 * its segment, or when the segment cannot be read (told to `unreadable`). Rejects when the database does not answer.
 */
export async function originalIds(
  run: Run,
  partitionId: number,
  offsets: readonly number[],
  unreadable: (segment: CoveringSegment, error: MalformedSegment) => void,
): Promise<Map<number, string>> {
  const ids = new Map<number, string>();
  const wanted = [...new Set(offsets)].sort((a, b) => a - b);
  for (let from = 0; from < wanted.length; from += OFFSETS_A_STEP) {
    const step = wanted.slice(from, from + OFFSETS_A_STEP);
    const segments = await run((db) => coveringSegments(db, partitionId, step));
    for (const segment of segments) {
      const inside = step.filter((offset) => offset >= segment.base && offset <= segment.end);
      if (inside.length === 0) continue;
      const first = inside[0]! - segment.base;
      const last = inside.at(-1)! - segment.base;
      try {
        const frames = await unpackSegment(segment.blob, segment.end - segment.base + 1, first, last);
        for (const offset of inside) {
          ids.set(offset, formatUuid(frames[offset - segment.base - first]!.messageId));
        }
      } catch (error) {
        if (!(error instanceof MalformedSegment)) throw error;
        unreadable(segment, error);
      }
    }
  }
  return ids;
}
