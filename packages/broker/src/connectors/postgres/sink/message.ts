/** One message on its way into the table, with where it came from. */
import type { PoppedMessage } from '../../../engine/types.ts';
import { formatInstant } from '../../../log/instants.ts';

export interface Message {
  readonly partition: string;
  readonly partitionId: string;
  readonly offset: number;
  readonly transactionId: string;
  readonly createdAtMicros: number;
  /** JSON text, byte for byte as it was pushed. */
  readonly payload: Buffer;
}

export function messageOf(
  claim: { readonly partition: string; readonly partitionId: string },
  popped: PoppedMessage,
): Message {
  const { offset, transactionId, createdAtMicros, payload } = popped;
  return {
    partition: claim.partition,
    partitionId: claim.partitionId,
    offset,
    transactionId,
    createdAtMicros,
    payload,
  };
}

/** RFC 3339 in UTC with microseconds. */
export function createdAtText({ createdAtMicros }: Message): string {
  return formatInstant(createdAtMicros);
}
