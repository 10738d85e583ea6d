/** One popped partition of a batch, and how far it is settled: applied, skipped as applied before, or handed to the dead letters. */
import type { PopClaim } from '../../../engine/types.ts';
import { type Message, messageOf } from './message.ts';

export class Lane {
  readonly partition: string;
  readonly partitionId: string;
  /** The end of its log when it was popped. */
  readonly logEnd: number;
  readonly messages: readonly Message[];
  /** The first message that is not settled. */
  next = 0;
  /** Settled messages that the queue knows of. */
  acknowledged = 0;
  /** What is wrong with the message at `next`, and how often it was tried. */
  poison: { error: unknown; attempts: number } | null = null;
  /** The queue has taken it back: it comes again with what is left. */
  closed = false;

  constructor(claim: PopClaim) {
    this.partition = claim.partition;
    this.partitionId = claim.partitionId;
    this.logEnd = claim.lastOffset;
    this.messages = claim.messages.map((popped) => messageOf(claim, popped));
  }

  get done(): boolean {
    return this.closed || this.next >= this.messages.length;
  }

  /** The offset of the last settled message, when the queue does not know of it yet. */
  get toAcknowledge(): number | null {
    return this.next > this.acknowledged ? this.messages[this.next - 1]!.offset : null;
  }
}
