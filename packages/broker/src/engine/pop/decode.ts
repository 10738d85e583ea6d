/** From stored segments to messages: decompressed and sliced here, outside the transaction and without a connection. */
import type { Frame } from '../../log/frame.ts';
import { unpackSegment } from '../../log/segment.ts';
import { formatUuid } from '../../log/uuid.ts';
import type { ClaimRow } from '../../store/pop.ts';
import type { PoppedMessage } from '../types.ts';

/** Opens an encrypted payload; gives back the envelope itself where no key fits. */
export type OpenPayload = (payload: Buffer) => Buffer;

/** A stored segment that is not what was written. Its partition cannot be read past it. */
export class CorruptSegment extends Error {
  readonly partitionId: number;
  /** Null: the database itself cannot read what it stores of this partition, and says where in its own terms. */
  readonly baseOffset: number | null;

  constructor(partitionId: number, baseOffset: number | null, cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const what = baseOffset === null ? 'what is stored' : `the segment at offset ${baseOffset}`;
    super(`partition ${partitionId}: ${what} cannot be read: ${why}`, { cause });
    this.name = 'CorruptSegment';
    this.partitionId = partitionId;
    this.baseOffset = baseOffset;
  }
}

/**
 * The messages `fromOffset..toOffset` of a claim, ascending. Empty when retention took the segments between the claim
 * and its read. Throws CorruptSegment; never gives a part of a batch.
 */
export async function decodeClaim(row: ClaimRow, open: OpenPayload | null): Promise<PoppedMessage[]> {
  const messages: PoppedMessage[] = [];
  const { bases, ends, created, blobs } = row;
  if (bases === null || ends === null || created === null || blobs === null) return messages;
  const from = row.fromOffset as number;
  const to = row.toOffset as number;
  for (let i = 0; i < bases.length; i++) {
    const base = bases[i] as number;
    const end = ends[i] as number;
    const first = Math.max(from, base);
    const last = Math.min(to, end);
    if (first > last) continue;
    let frames: Frame[];
    try {
      frames = await unpackSegment(blobs[i] as Buffer, end - base + 1, first - base, last - base);
      if (frames.length !== last - first + 1) throw new Error(`${frames.length} frames in ${first}..${last}`);
    } catch (error) {
      throw new CorruptSegment(row.partitionId, base, error);
    }
    const createdAtMicros = created[i] as number;
    for (let n = 0; n < frames.length; n++) {
      messages.push(message(frames[n] as Frame, first + n, createdAtMicros, open));
    }
  }
  return messages;
}

function message(
  frame: Frame,
  offset: number,
  createdAtMicros: number,
  open: OpenPayload | null,
): PoppedMessage {
  return {
    offset,
    id: formatUuid(frame.messageId),
    transactionId: frame.transactionId,
    traceId: frame.traceId === null ? null : formatUuid(frame.traceId),
    producerSub: frame.producerSub,
    createdAtMicros,
    payload: frame.encrypted && open !== null ? open(frame.payload) : frame.payload,
  };
}
