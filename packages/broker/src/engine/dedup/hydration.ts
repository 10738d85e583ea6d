/** Loading one partition's window: what is asked of the database, and the state while the answer is on its way. */

import type { Queryable } from '../../store/database.ts';
import {
  nextWindowRows,
  openWindows,
  type WindowRequest,
  type WindowRow,
  type WindowStart,
} from '../../store/dedup.ts';
import type { Clock } from '../clock.ts';

export type { WindowRequest, WindowRow, WindowStart } from '../../store/dedup.ts';

/** Where windows come from. Both calls may reject; nothing is vouched on the ground of half a window. */
export interface WindowSource {
  /** One answer a request, in order; null for a partition that does not exist. */
  open(requests: readonly WindowRequest[]): Promise<(WindowStart | null)[]>;
  /** The next rows with a base above `afterBase` and an end at or below `lastOffset`; empty: that was all. */
  next(partitionId: number, afterBase: number, lastOffset: number): Promise<WindowRow[]>;
}

/**
 * The windows of the database. `run` is put around each statement: the place for admission. It must not wait for
 * something that a push holds while it waits for its hydration.
 */
export function databaseWindows(
  db: Queryable,
  run: <T>(work: () => Promise<T>) => Promise<T> = (work) => work(),
): WindowSource {
  return {
    open: (requests) => run(() => openWindows(db, requests)),
    next: (partitionId, afterBase, lastOffset) =>
      run(() => nextWindowRows(db, partitionId, afterBase, lastOffset)),
  };
}

interface NotedCommit {
  base: number;
  hashes: Buffer;
  createdAtMicros: number;
}

/** How long a push waits for a hydration; then it goes on without a vouch and the hydration goes on without it. */
const PATIENCE_MS = 250;
/** Hashes of commits that are noted during a hydration; beyond it they are let go, and cost a gap. */
const NOTED_HASHES_MAX = 65_536;

export class Hydration implements WindowRequest {
  readonly partitionId: number;
  readonly windowSeconds: number;
  /** Its answer is not wanted any more. */
  cancelled = false;
  reservedBytes: number;
  /** Settles when the hydration has ended, however, or when a push has waited long enough. */
  readonly ready: Promise<void>;
  readonly #finish: () => void;
  #noted: NotedCommit[] = [];
  #notedHashes = 0;

  constructor(partitionId: number, windowSeconds: number, reservedBytes: number, clock: Clock) {
    this.partitionId = partitionId;
    this.windowSeconds = windowSeconds;
    this.reservedBytes = reservedBytes;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = clock.after(PATIENCE_MS, resolve);
    this.ready = promise;
    this.#finish = () => {
      timer.cancel();
      resolve();
    };
  }

  /** A commit of this broker that may or may not be in the answer. */
  note(base: number, hashes: Buffer, createdAtMicros: number): void {
    this.#notedHashes += hashes.length / 16;
    if (this.#notedHashes > NOTED_HASHES_MAX) this.#noted = [];
    else this.#noted.push({ base, hashes: Buffer.from(hashes), createdAtMicros });
  }

  /** The noted commits above `lastOffset`, in the order of their offsets. */
  notedAbove(lastOffset: number): NotedCommit[] {
    const above = this.#noted.filter(({ base, hashes }) => base + hashes.length / 16 - 1 > lastOffset);
    return above.sort((a, b) => a.base - b.base);
  }

  end(): void {
    this.#finish();
  }
}
