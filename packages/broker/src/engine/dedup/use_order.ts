/**
 * Things in the order of their use, the longest unused first, linked through themselves: to enter, to leave and to move to
 * the end cost the same however many there are. A Map has that order too, but who deletes its first key again and again
 * walks past the places of all that were deleted before: 0.3 ms each with a hundred thousand.
 */
export interface Linked<Self> {
  /** Used before it, and after it. */
  older: Self | null;
  newer: Self | null;
}

export class UseOrder<Entry extends Linked<Entry>> {
  #oldest: Entry | null = null;
  #newest: Entry | null = null;

  /** As the newest. It must not be in any order. */
  add(entry: Entry): void {
    entry.older = this.#newest;
    if (this.#newest === null) this.#oldest = entry;
    else this.#newest.newer = entry;
    this.#newest = entry;
  }

  /** It must be in this order. */
  remove(entry: Entry): void {
    if (entry.older === null) this.#oldest = entry.newer;
    else entry.older.newer = entry.newer;
    if (entry.newer === null) this.#newest = entry.older;
    else entry.newer.older = entry.older;
    entry.older = null;
    entry.newer = null;
  }

  touch(entry: Entry): void {
    if (entry === this.#newest) return;
    this.remove(entry);
    this.add(entry);
  }

  /** The longest unused first. Nothing may enter or leave meanwhile. */
  *[Symbol.iterator](): Generator<Entry> {
    for (let entry = this.#oldest; entry !== null; entry = entry.newer) yield entry;
  }
}
