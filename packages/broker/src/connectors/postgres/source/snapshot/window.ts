/**
 * Which rows of a chunk may be written, and why the folded events are the table.
 *
 * A snapshot copies a table in chunks while the stream goes on. Before a chunk is read a marker is written into the
 * upstream's log, and another one after it; both come back through the stream, in their place among the commits. Where the
 * second one comes by, the chunk's rows are written into the queues, but not those of which the stream may have
 * brought something as new or newer. Two claims make that right:
 *
 * (1) *No event is older than one before it.* Take a row of the chunk, and a change of its key that the stream brings before
 * the second marker. Either the chunk's query saw the change, and then the row is as new; or it did not. If it did
 * not, the change is dropped from our sight only if we know of it: it was decoded between the markers (these are
 * remembered all), or before the first one. The latter happens since a commit is in the log before it is visible. So changes
 * are remembered, key by key, until a snapshot of the upstream is known to see their transaction, and a row whose
 * remembered change the chunk does not see is dropped. Changes behind the second marker come later and are newer.
 *
 * (2) *Nothing is missing.* A row is dropped only if its key was touched by something that the stream carried. If that
 * was an insert or a whole update, the consumer has the row; if a delete, it is right to have none. If it was an update that
 * left large columns out, the consumer may never have seen these: they are taken from the chunk, in an event of
 * their own (a fill). A value that the chunk read of a column that no change in sight has touched is the right one, whichever
 * side of the change the chunk's query was on.
 *
 * For one key the last transaction is enough to ask about: a second one could touch the row only after the first one had let
 * go of it, which it does after it has become visible. So who sees the last one sees all.
 *
 * What was rejected: to wait, instead of remembering, until the chunk's query sees all that was decoded before. With a
 * synchronous standby and a steady load there is no such moment.
 *
 * Memory is bounded by a number of keys. Beyond it only the transactions are remembered, and a chunk counts only if
 * its query saw all of them; a chunk whose markers enclose more keys than that is thrown away.
 */
import type { Visibility } from './visibility.ts';

/** Keys remembered at a time, of all tables together. */
const KEYS_MAX = 100_000;
/** Transactions remembered without their keys; beyond, only the newest of them. */
const TRANSACTIONS_MAX = 100_000;

const NOTHING: ReadonlySet<string> = new Set();

/** The last that the stream brought of a key. */
interface Touch {
  at: number;
  xid: number;
  /** Columns that no change since the last whole row has carried; empty: the consumer has all of them, or no row. */
  missing: ReadonlySet<string>;
}

interface TableTouches {
  readonly keys: Map<string, Touch>;
  truncated: { at: number; xid: number } | null;
}

export class ChunkWindow {
  readonly #tables = new Map<string, TableTouches>();
  readonly #keysMax: number;
  #keys = 0;
  /** Counts what the stream brought. */
  #at = 0;
  /** Where the first marker came by. Null: no chunk is between its markers. */
  #openedAt: number | null = null;
  #spoiled = false;
  /** The newest snapshot of the upstream that is known of. */
  #seen: Visibility | null = null;
  /** Transactions whose keys were too many, or are not known. */
  readonly #wide = new Set<number>();
  #widest: number | null = null;

  /** @param tables names of those that are still to be copied; changes of others are none of ours */
  constructor(tables: Iterable<string>, keysMax = KEYS_MAX) {
    for (const table of tables) this.#tables.set(table, { keys: new Map(), truncated: null });
    this.#keysMax = keysMax;
  }

  watches(table: string): boolean {
    return this.#tables.has(table);
  }

  /**
   * A row has now this version. `unchanged`: columns that the change left as they were and did not carry.
   * @param key texts that tell rows apart as the key does
   */
  wrote(table: string, xid: number, key: string, unchanged: readonly string[]): void {
    const touches = this.#tables.get(table);
    if (touches !== undefined) this.#touch(touches, xid, key, unchanged);
  }

  /** There is no row of this key any more. */
  removed(table: string, xid: number, key: string): void {
    const touches = this.#tables.get(table);
    if (touches !== undefined) this.#touch(touches, xid, key, []);
  }

  truncated(table: string, xid: number): void {
    const touches = this.#tables.get(table);
    if (touches !== undefined) touches.truncated = { at: ++this.#at, xid };
  }

  /** Some rows were changed, and nobody can tell which. */
  vague(xid: number): void {
    if (this.#openedAt !== null) this.#spoiled = true;
    this.#wide.add(xid);
    this.#boundWide();
  }

  /** The first marker came by. */
  open(): void {
    this.#openedAt = ++this.#at;
    this.#spoiled = false;
  }

  /**
   * A query has run under this snapshot: what it sees, every later one sees. Not to be called with one newer than that of
   * a chunk that is still to be judged.
   */
  saw(visibility: Visibility): void {
    this.#seen = visibility;
  }

  /** Whether more keys were touched between the markers than can be remembered, or some that are not known. */
  get spoiled(): boolean {
    return this.#spoiled;
  }

  /** Whether the chunk that was read under this snapshot can be judged row by row. Asked at the second marker. */
  usable(visibility: Visibility): boolean {
    if (this.#openedAt === null || this.#spoiled) return false;
    if (this.#widest !== null && visibility.xmin <= visibility.widen(this.#widest)) return false;
    for (const xid of this.#wide) if (!visibility.seesLow(xid)) return false;
    return true;
  }

  /** Whether {@link fate} is null for every row. */
  untouched(table: string): boolean {
    const touches = this.#tables.get(table);
    return touches === undefined || (touches.keys.size === 0 && touches.truncated === null);
  }

  /**
   * What becomes of a row that was read under this snapshot. Null: it is written. Else it is dropped, and these of its columns
   * are to be filled in: often none.
   */
  fate(table: string, key: string, visibility: Visibility): ReadonlySet<string> | null {
    const touches = this.#tables.get(table);
    if (touches === undefined) return null;
    const { truncated } = touches;
    if (truncated !== null && this.#mayBeNewer(truncated, visibility)) {
      const touch = touches.keys.get(key);
      return touch !== undefined && touch.at > truncated.at ? touch.missing : NOTHING;
    }
    const touch = touches.keys.get(key);
    return touch !== undefined && this.#mayBeNewer(touch, visibility) ? touch.missing : null;
  }

  #mayBeNewer(touch: { at: number; xid: number }, visibility: Visibility): boolean {
    const inside = this.#openedAt !== null && touch.at > this.#openedAt;
    return inside || !visibility.seesLow(touch.xid);
  }

  /** The second marker has come by, and the rows are judged: forgets what every later chunk will see. */
  close(visibility: Visibility): void {
    this.abandon();
    for (const touches of this.#tables.values()) {
      for (const [key, touch] of touches.keys) {
        if (visibility.seesLow(touch.xid) && touches.keys.delete(key)) this.#keys--;
      }
      if (touches.truncated !== null && visibility.seesLow(touches.truncated.xid)) touches.truncated = null;
    }
    for (const xid of this.#wide) if (visibility.seesLow(xid)) this.#wide.delete(xid);
    if (this.#widest !== null && visibility.widen(this.#widest) < visibility.xmin) this.#widest = null;
  }

  /** There is no chunk between markers any more; nothing is forgotten. */
  abandon(): void {
    this.#openedAt = null;
    this.#spoiled = false;
  }

  /** The table is copied. */
  forget(table: string): void {
    const touches = this.#tables.get(table);
    if (touches === undefined) return;
    this.#keys -= touches.keys.size;
    this.#tables.delete(table);
  }

  #touch(touches: TableTouches, xid: number, key: string, unchanged: readonly string[]): void {
    const at = ++this.#at;
    const before = touches.keys.get(key);
    if (this.#openedAt === null && this.#seen?.seesLow(xid) === true) {
      // Every chunk to come sees it.
      if (before !== undefined && touches.keys.delete(key)) this.#keys--;
      return;
    }
    if (before === undefined && this.#keys >= this.#keysMax) this.#overflow();
    const gone = before === undefined || before.at < (touches.truncated?.at ?? 0);
    const missing = stillMissing(gone ? null : before.missing, unchanged);
    if (before === undefined) {
      touches.keys.set(key, { at, xid, missing });
      this.#keys++;
    } else {
      before.at = at;
      before.xid = xid;
      before.missing = missing;
    }
  }

  /** Keeps the transactions without their keys. */
  #overflow(): void {
    if (this.#openedAt !== null) this.#spoiled = true;
    for (const touches of this.#tables.values()) {
      for (const { xid } of touches.keys.values()) this.#wide.add(xid);
      touches.keys.clear();
    }
    this.#keys = 0;
    this.#boundWide();
  }

  #boundWide(): void {
    if (this.#wide.size <= TRANSACTIONS_MAX) return;
    for (const xid of this.#wide) {
      if (this.#widest === null || ((xid - this.#widest) | 0) > 0) this.#widest = xid;
    }
    this.#wide.clear();
  }
}

/** `before`: null when nothing is known of the row. */
function stillMissing(before: ReadonlySet<string> | null, unchanged: readonly string[]): ReadonlySet<string> {
  if (unchanged.length === 0 || before?.size === 0) return NOTHING;
  const missing = new Set(unchanged);
  if (before !== null) for (const column of missing) if (!before.has(column)) missing.delete(column);
  return missing.size === 0 ? NOTHING : missing;
}
