/**
 * What of a restarted stream is in the queues already. A slot may send transactions again that were confirmed late or not at
 * all; the pointer says which of them are in, and how far into the one that was being sent in pieces.
 *
 * The verdict is made at a transaction's begin, by the position of its commit record. Strictly below: the next
 * transaction's record may begin at the very byte where the last one that is in ended.
 */
import { ConnectorFault } from '../fault.ts';
import { formatLsn } from '../replication/lsn.ts';
import type { Place } from './pointer.ts';

/** So many changes of a transaction are skipped: all of them. */
export const ALL = Number.POSITIVE_INFINITY;

export class RestartFilter {
  readonly #start: Place;
  #covered = false;

  /** `start`: the pointer from which the stream was started. */
  constructor(start: Place) {
    this.#start = start;
  }

  /** Changes of the transaction that begins, counted from its first one, that are in the queues. */
  begin(commitLsn: bigint): number {
    const { lsn, inTxn } = this.#start;
    this.#covered = commitLsn < lsn;
    if (this.#covered) return ALL;
    return inTxn !== null && inTxn.commitLsn === commitLsn ? inTxn.done : 0;
  }

  /** The end must say the same. Throws ConnectorFault `pointer_corrupt`. */
  commit(endLsn: bigint): void {
    if (endLsn <= this.#start.lsn === this.#covered) return;
    throw new ConnectorFault(
      'pointer_corrupt',
      `the pointer ${formatLsn(this.#start.lsn)} lies inside a commit that ends at ${formatLsn(endLsn)}. POST …/resync begins anew`,
    );
  }
}
