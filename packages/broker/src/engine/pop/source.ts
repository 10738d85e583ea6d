/**
 * Where a pop's candidates come from: the rings of its queues, the one partition that it names, or a scan. A source
 * belongs to one pop, which draws from it, reports what became of each candidate, and parks on its wish.
 */
import type { ClaimRow, Start } from '../../store/pop.ts';
import type { Wish } from '../wake/parking.ts';

export interface Candidates {
  readonly ids: number[];
  /** The queue that each is believed to belong to. */
  readonly queues: number[];
}

export interface Source {
  readonly wish: Wish;
  /** The group's stored policy. Known after `prepare`. */
  readonly conflation: boolean;
  /** Where the group starts on a partition that no registration covers; null: it must be registered. */
  readonly pinned: Start | null;
  /** First contact where it is due, and whatever else must be known before candidates can be drawn. */
  prepare(): Promise<void>;
  /**
   * Up to `k` candidates, fewer when the known backlog of those covers `batch`; none: nothing is there. `sure`: the
   * caller will not wait, so doubtful ones are wanted too when nothing better is there.
   */
  draw(k: number, batch: number, sure: boolean): Promise<Candidates>;
  /** The claim saw the candidate so. For `claimed`, after its messages could be read. */
  settle(row: ClaimRow, autoAck: boolean): void;
  /** Candidates that the claim did not get to. */
  giveBack(ids: readonly number[]): void;
  /** The claim failed or was undone; `parkMs`: not to be tried again before. */
  retry(id: number, parkMs?: number): void;
  /** Another one is creating the group's row there. */
  busy(id: number): void;
  /**
   * What was known is wrong: the queue was made anew (`foreign`), the group's registration is gone (`unregistered`),
   * or the one partition that the pop names is (`missing`).
   */
  outdated(id: number, why: 'foreign' | 'unregistered' | 'missing'): void;
  /** `prepare` has to be called again before anything more is drawn. */
  readonly stale: boolean;
  /** Messages known to wait in at most so many partitions, up to `cap`; null: not known. */
  backlog(partitions: number, cap: number): number | null;
  /** The longest that the queue lets a pop wait for a fuller batch, in ms. */
  readonly minPopWaitMs: number;
  /** Ends the source: whatever is still drawn goes back. */
  close(): void;
}
