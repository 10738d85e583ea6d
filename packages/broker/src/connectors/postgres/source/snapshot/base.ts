/**
 * What a chunk must see to be worth anything, whoever reads it. It stands in the pointer, since memory dies with its owner.
 *
 * - What was done when the stream began is not in the stream: a chunk that does not see it (a commit that waits for a
 *   synchronous standby is in the log, but not visible) would lose it for good.
 * - What an earlier owner has delivered is not sent again, so nobody remembers its keys: a chunk that does not see it
 *   could bring an older version of a row after a newer one.
 *
 * A chunk that does not see one of these is read again a moment later.
 */
import { DELIVERED_MAX, type SnapshotBase } from './state.ts';
import { parseVisibility, printVisibility, Visibility } from './visibility.ts';

export class ChunkBase {
  readonly #stored: SnapshotBase | null;
  /** Null: nobody knows what was visible when the stream began, or was handed over. */
  #sees: Visibility | null;
  /** Delivered by earlier owners, and not known to be visible. */
  #former: bigint[];
  /** Delivered by this one. */
  readonly #own = new Set<number>();
  /** The newest of those that did not fit into the list. */
  #unlisted: number | null = null;
  #settled = false;
  #printed: SnapshotBase | null = null;
  /** The former and the own ones as texts, to which each transaction adds its own; null: to be made anew. */
  #texts: string[] | null = null;

  constructor(stored: SnapshotBase | null) {
    this.#stored = stored;
    this.#sees = stored === null || stored.delivered === null ? null : parseVisibility(stored.sees);
    this.#former = (stored?.delivered ?? []).map(BigInt);
  }

  /** If not: all that may be invisible now has to end first. */
  get known(): boolean {
    return this.#sees !== null;
  }

  /** Whether a chunk that is read under this snapshot misses nothing, as far as that is {@link known}. */
  admits(visibility: Visibility): boolean {
    return (
      this.#sees !== null &&
      visibility.covers(this.#sees) &&
      this.#former.every((xid) => visibility.sees(xid))
    );
  }

  /** Whether every snapshot from now on is admitted, since one was. */
  get settled(): boolean {
    return this.#settled;
  }

  /** The stream carries changes of this transaction, which will be in the queues. */
  carried(xid: number): void {
    if (this.#own.has(xid)) return;
    this.#printed = null;
    if (this.#own.size < DELIVERED_MAX) {
      this.#own.add(xid);
      if (this.#sees !== null) this.#texts?.push(String(this.#sees.widen(xid)));
    } else if (this.#unlisted === null || ((xid - this.#unlisted) | 0) > 0) this.#unlisted = xid;
  }

  /**
   * A snapshot has been taken that is admitted, or before which all has ended that was not known: forgets what every later one
   * sees.
   */
  saw(visibility: Visibility): void {
    this.#printed = null;
    this.#texts = null;
    this.#settled = true;
    this.#former = this.#former.filter((xid) => !visibility.sees(xid));
    for (const xid of this.#own) if (visibility.seesLow(xid)) this.#own.delete(xid);
    if (this.#unlisted !== null && visibility.widen(this.#unlisted) < visibility.xmin) this.#unlisted = null;
    const { xmin } = visibility;
    if (this.#sees === null || xmin >= this.#sees.xmax) this.#sees = new Visibility(xmin, xmin, []);
  }

  /** For the pointer. Until it is known, what was stored stays. */
  print(): SnapshotBase | null {
    const sees = this.#sees;
    if (sees === null) return this.#stored;
    this.#printed ??= { sees: printVisibility(sees), delivered: this.#delivered(sees) };
    return this.#printed;
  }

  #delivered(near: Visibility): string[] | null {
    if (this.#unlisted !== null || this.#former.length + this.#own.size > DELIVERED_MAX) return null;
    this.#texts ??= [...this.#former, ...[...this.#own].map((xid) => near.widen(xid))].map(String);
    // A copy: what a pointer says must not change while it is being written.
    return this.#texts.slice();
  }
}
