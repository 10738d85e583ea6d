/**
 * The partitions of one queue that may have something for one group. A hint: PostgreSQL decides in the claim. A
 * wrong entry costs an empty claim, a missing one latency until the next reseed.
 *
 * A partition is
 *   IDLE      nothing known that the group has not been given
 *   READY     in the ring, waiting to be drawn, first in first out: a busy partition goes to the end each time it was
 *             served, so it cannot starve the others
 *   PARKED    out of the ring until a time (a lease, a delay, somebody else at work on it)
 *   INFLIGHT  drawn, its claim is on its way
 * or unknown, which is as good as IDLE. INFLIGHT ends with a verdict. A push that commits while the claim is on its
 * way may be missed by the claim's snapshot, so a mark sets the entry's epoch bit, and the verdict `empty` makes an
 * entry IDLE only when the bit is clear. One bit is enough: an entry has one claim at a time, and the draw clears it.
 *
 * All columns are typed arrays indexed by slot, 41 bytes an entry with its place in the id table; READY is a list linked
 * through `link`, PARKED a binary heap by due time whose positions are kept in `link` too. Objects would cost four
 * times as much, and a timer a partition far more. Times are milliseconds of the engine's clock.
 */
import { invariant } from '../../store/invariant.ts';
import { PartitionTable } from './partition_table.ts';

const IDLE = 1;
const READY = 2;
const INFLIGHT = 3;
const LEASED = 4;
const DEFERRED = 5;
const SKIPPED = 6;
const STATE = 0x0f;
/** A push was marked since the draw: the epoch has moved. */
const MOVED = 0x10;
/** A lease was released since the draw. */
const RELEASED = 0x20;
/** Touched since the last sweep. */
const RECENT = 0x40;
const NIL = -1;

/** A lease that ran out is looked at a little later, so that the database agrees. */
export const LEASE_MARGIN_MS = 300;
/** The longest time between looks at a partition whose lease may end early, or whose delay may be lowered. */
export const PARK_MAX_MS = 1_000;
export const PARK_MIN_MS = 50;
export const SKIP_MS = 250;

export interface RingSettings {
  /** Waiting messages that open a windowed partition early. */
  readonly windowBatch: number;
}

export class Ring {
  readonly #settings: RingSettings;
  #ids: Float64Array = new Float64Array(16);
  readonly #table: PartitionTable = new PartitionTable(this.#ids);
  #lasts: Float64Array = new Float64Array(16);
  /** Everything at or below was given out or is gone. */
  #given: Float64Array = new Float64Array(16);
  #due: Float64Array = new Float64Array(16);
  #link: Int32Array = new Int32Array(16);
  #state: Uint8Array = new Uint8Array(16);
  #used = 0;
  #free = NIL;
  #head = NIL;
  #tail = NIL;
  #ready = 0;
  #inflight = 0;
  #heap: Int32Array = new Int32Array(16);
  #parked = 0;

  constructor(settings: RingSettings) {
    this.#settings = settings;
  }

  get size(): number {
    return this.#table.size;
  }

  get ready(): number {
    return this.#ready;
  }

  get parked(): number {
    return this.#parked;
  }

  get inflight(): number {
    return this.#inflight;
  }

  /** Bytes of memory, without the object headers. */
  get bytes(): number {
    const columns = this.#ids.byteLength * 4 + this.#link.byteLength + this.#state.byteLength;
    return columns + this.#heap.byteLength + this.#table.bytes;
  }

  /** When the first parked entry comes back; Infinity when none is parked. */
  get nextDue(): number {
    return this.#parked === 0 ? Number.POSITIVE_INFINITY : (this.#due[this.#heap[0] as number] as number);
  }

  /** Messages known to wait in the first `entries` READY partitions, counted up to `cap`. */
  backlog(entries: number, cap: number): number {
    let sum = 0;
    for (let slot = this.#head, n = 0; slot !== NIL && n < entries && sum < cap; n++) {
      sum += this.#waiting(slot);
      slot = this.#link[slot] as number;
    }
    return Math.min(sum, cap);
  }

  /** A push reached `last`. True when the partition became READY by it. */
  mark(id: number, last: number, now: number): boolean {
    const slot = this.#table.get(id);
    if (slot === NIL) {
      this.#enqueue(this.#create(id, last, last - 1));
      return true;
    }
    const before = this.#lasts[slot] as number;
    if (last <= before) return false;
    this.#lasts[slot] = last;
    const state = (this.#state[slot] as number) & STATE;
    this.#state[slot] = (this.#state[slot] as number) | RECENT;
    if (state === IDLE) {
      this.#enqueue(slot);
      return true;
    }
    if (state === INFLIGHT) this.#state[slot] = (this.#state[slot] as number) | MOVED;
    if (state === LEASED) this.#sooner(slot, now + PARK_MAX_MS);
    if (state === DEFERRED) {
      const full = this.#settings.windowBatch;
      const given = this.#given[slot] as number;
      if (last - given >= full && before - given < full) {
        this.#unpark(slot);
        this.#enqueue(slot);
        return true;
      }
    }
    return false;
  }

  /**
   * What the database says about a pending partition. `leasedMs` 0: nobody holds it; `leasedTo` the end of the
   * batch that is leased. True when the partition became READY by it.
   */
  seed(id: number, last: number, position: number, leasedMs: number, leasedTo: number, now: number): boolean {
    let slot = this.#table.get(id);
    if (slot === NIL) slot = this.#create(id, last, position);
    else if (((this.#state[slot] as number) & STATE) === INFLIGHT) return false;
    const state = (this.#state[slot] as number) & STATE;
    this.#lasts[slot] = Math.max(this.#lasts[slot] as number, last);
    if (leasedMs > 0) {
      if (state === READY || state === DEFERRED || state === LEASED) return false;
      if (state === SKIPPED) this.#unpark(slot);
      this.#given[slot] = Math.max(position, leasedTo);
      this.#park(slot, LEASED, now + this.#leaseDelay(slot, leasedMs));
      return false;
    }
    this.#given[slot] = position;
    if (state === READY || state === DEFERRED || state === SKIPPED) return false;
    if (state === LEASED) this.#unpark(slot);
    this.#enqueue(slot);
    return true;
  }

  /** The group may claim the partition again. `committed`: its cursor, where known. True when it became READY. */
  release(id: number, committed: number | null): boolean {
    const slot = this.#table.get(id);
    if (slot === NIL) return false;
    const done = committed !== null && committed >= (this.#lasts[slot] as number);
    switch ((this.#state[slot] as number) & STATE) {
      case INFLIGHT:
        this.#state[slot] = (this.#state[slot] as number) | RELEASED;
        return false;
      case READY:
      case DEFERRED:
        return false;
      case LEASED:
      case SKIPPED:
        this.#unpark(slot);
    }
    if (done) {
      this.#rest(slot);
      return false;
    }
    if (committed !== null) this.#given[slot] = committed;
    this.#enqueue(slot);
    return true;
  }

  /** Nothing is known behind `committed`. */
  isDone(id: number, committed: number): boolean {
    const slot = this.#table.get(id);
    return slot !== NIL && committed >= (this.#lasts[slot] as number);
  }

  /** Draws up to `k` partitions into `out`, fewer when the known backlog of those covers `batch` messages. */
  draw(k: number, batch: number, out: number[]): void {
    for (let n = 0, sum = 0; n < k && sum < batch && this.#head !== NIL; n++) {
      const slot = this.#head;
      this.#head = this.#link[slot] as number;
      if (this.#head === NIL) this.#tail = NIL;
      this.#ready--;
      this.#fly(slot);
      sum += this.#waiting(slot);
      out.push(this.#ids[slot] as number);
    }
  }

  /** Draws up to `k` parked partitions, the soonest first: for a caller that wants to be sure. */
  drawParked(k: number, out: number[]): void {
    for (let n = 0; n < k && this.#parked > 0; n++) {
      const slot = this.#heap[0] as number;
      this.#unpark(slot);
      this.#fly(slot);
      out.push(this.#ids[slot] as number);
    }
  }

  /** Puts drawn partitions that were not used back to where they were, the first of `ids` in front. */
  undraw(ids: readonly number[]): void {
    for (let i = ids.length - 1; i >= 0; i--) {
      const slot = this.#land(ids[i] as number);
      if (slot === NIL) continue;
      this.#state[slot] = READY | RECENT;
      this.#link[slot] = this.#head;
      this.#head = slot;
      if (this.#tail === NIL) this.#tail = slot;
      this.#ready++;
    }
  }

  /** The claim took up to `to` of a partition that ends at `last`; `leaseMs` null: no lease is held on it. */
  took(id: number, to: number, last: number, leaseMs: number | null, now: number): void {
    const slot = this.#land(id);
    if (slot === NIL) return;
    const released = ((this.#state[slot] as number) & RELEASED) !== 0;
    this.#lasts[slot] = Math.max(this.#lasts[slot] as number, last);
    this.#given[slot] = to;
    if (leaseMs !== null && !released) this.#park(slot, LEASED, now + this.#leaseDelay(slot, leaseMs));
    else if ((this.#lasts[slot] as number) > to || released) this.#enqueue(slot);
    else this.#rest(slot);
  }

  /** Nothing was there; the claim saw the partition end at `last`. */
  empty(id: number, last: number): void {
    const slot = this.#land(id);
    if (slot === NIL) return;
    if (((this.#state[slot] as number) & (MOVED | RELEASED)) !== 0) {
      this.#enqueue(slot);
      return;
    }
    this.#lasts[slot] = Math.max(this.#lasts[slot] as number, last);
    this.#given[slot] = this.#lasts[slot] as number;
    this.#rest(slot);
  }

  /** Somebody holds a lease for another `forMs`. */
  leased(id: number, forMs: number, now: number): void {
    const slot = this.#land(id);
    if (slot === NIL) return;
    if (((this.#state[slot] as number) & RELEASED) !== 0) this.#enqueue(slot);
    else this.#park(slot, LEASED, now + this.#leaseDelay(slot, forMs));
  }

  /** Something is there, not to be seen for another `forMs`. `position`: see the claim. */
  deferred(id: number, forMs: number, position: number, last: number, now: number): void {
    const slot = this.#land(id);
    if (slot === NIL) return;
    this.#given[slot] = position;
    this.#lasts[slot] = Math.max(this.#lasts[slot] as number, last);
    this.#park(slot, DEFERRED, now + Math.min(Math.max(forMs, PARK_MIN_MS), PARK_MAX_MS));
  }

  /** Somebody else is at work on it; `forMs` longer than usual for one that cannot be served. */
  skipped(id: number, now: number, forMs: number = SKIP_MS): void {
    const slot = this.#land(id);
    if (slot === NIL) return;
    if (((this.#state[slot] as number) & RELEASED) !== 0) this.#enqueue(slot);
    else this.#park(slot, SKIPPED, now + forMs);
  }

  /** The claim came to nothing, or was undone: as if it had never been drawn, but at the end of the ring. */
  requeue(id: number): void {
    const slot = this.#table.get(id);
    if (slot === NIL) return;
    const state = (this.#state[slot] as number) & STATE;
    if (state === INFLIGHT) this.#land(id);
    else if (state === READY) return;
    else if (state !== IDLE) this.#unpark(slot);
    this.#enqueue(slot);
  }

  /** The partition is no more. */
  forget(id: number): void {
    const slot = this.#land(id);
    if (slot !== NIL) this.#remove(slot);
  }

  /** Returns what is due to the ring; gives their number. */
  wake(now: number): number {
    let woken = 0;
    while (this.#parked > 0 && (this.#due[this.#heap[0] as number] as number) <= now) {
      const slot = this.#heap[0] as number;
      this.#unpark(slot);
      this.#enqueue(slot);
      woken++;
    }
    return woken;
  }

  /** Everything parked is due at once: the database's clock has jumped. */
  wakeAll(): number {
    return this.wake(Number.POSITIVE_INFINITY);
  }

  /** Its cursor was moved by hand: it is looked at, whatever is known of it. */
  revive(id: number): void {
    const slot = this.#table.get(id);
    if (slot === NIL) {
      this.#enqueue(this.#create(id, 0, -1));
      return;
    }
    this.#given[slot] = -1;
    if (((this.#state[slot] as number) & STATE) === INFLIGHT)
      this.#state[slot] = INFLIGHT | RELEASED | RECENT;
    else this.requeue(id);
  }

  /** Drops IDLE entries that were not touched since the last sweep; their slots are used again. */
  sweep(): void {
    for (let slot = 0; slot < this.#used; slot++) {
      const flags = this.#state[slot] as number;
      if ((flags & STATE) !== IDLE) continue;
      if ((flags & RECENT) !== 0) this.#state[slot] = flags & ~RECENT;
      else this.#remove(slot);
    }
  }

  /** READY | PARKED | INFLIGHT | IDLE as a word, or null; for tests. */
  stateOf(id: number): 'idle' | 'ready' | 'parked' | 'inflight' | null {
    const slot = this.#table.get(id);
    if (slot === NIL) return null;
    const state = (this.#state[slot] as number) & STATE;
    if (state === IDLE) return 'idle';
    if (state === READY) return 'ready';
    return state === INFLIGHT ? 'inflight' : 'parked';
  }

  #waiting(slot: number): number {
    return Math.max(1, (this.#lasts[slot] as number) - (this.#given[slot] as number));
  }

  /** With a known backlog the lease may end early by an ack elsewhere; without one nobody has to hurry. */
  #leaseDelay(slot: number, leaseMs: number): number {
    const late = leaseMs + LEASE_MARGIN_MS;
    return (this.#lasts[slot] as number) > (this.#given[slot] as number) ? Math.min(late, PARK_MAX_MS) : late;
  }

  #fly(slot: number): void {
    this.#state[slot] = INFLIGHT | RECENT;
    this.#inflight++;
  }

  /** Ends a flight; the flags of the flight stay readable until the next state is set. NIL: not in flight. */
  #land(id: number): number {
    const slot = this.#table.get(id);
    if (slot === NIL || ((this.#state[slot] as number) & STATE) !== INFLIGHT) return NIL;
    this.#inflight--;
    return slot;
  }

  #enqueue(slot: number): void {
    this.#state[slot] = READY | RECENT;
    this.#link[slot] = NIL;
    if (this.#tail === NIL) this.#head = slot;
    else this.#link[this.#tail] = slot;
    this.#tail = slot;
    this.#ready++;
  }

  #rest(slot: number): void {
    this.#state[slot] = IDLE | RECENT;
  }

  #park(slot: number, reason: number, due: number): void {
    this.#state[slot] = reason | RECENT;
    this.#due[slot] = due;
    const at = this.#parked++;
    if (at === this.#heap.length) this.#heap = grown(this.#heap);
    this.#place(slot, at);
    this.#rise(at);
  }

  #unpark(slot: number): void {
    const at = this.#link[slot] as number;
    // An entry that were parked twice would send the walk through the heap round for ever.
    if (this.#heap[at] !== slot) invariant(false, 'ring_heap', { slot, at, parked: this.#parked });
    const last = this.#heap[--this.#parked] as number;
    if (last === slot) return;
    this.#place(last, at);
    this.#rise(at);
    this.#sink(this.#link[last] as number);
  }

  #sooner(slot: number, due: number): void {
    if (due >= (this.#due[slot] as number)) return;
    this.#due[slot] = due;
    this.#rise(this.#link[slot] as number);
  }

  #place(slot: number, at: number): void {
    this.#heap[at] = slot;
    this.#link[slot] = at;
  }

  #rise(from: number): void {
    const slot = this.#heap[from] as number;
    const due = this.#due[slot] as number;
    let at = from;
    while (at > 0) {
      const up = (at - 1) >> 1;
      const above = this.#heap[up] as number;
      if ((this.#due[above] as number) <= due) break;
      this.#place(above, at);
      at = up;
    }
    this.#place(slot, at);
  }

  #sink(from: number): void {
    const slot = this.#heap[from] as number;
    const due = this.#due[slot] as number;
    let at = from;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= this.#parked) break;
      const right = down + 1;
      if (right < this.#parked && this.#dueAt(right) < this.#dueAt(down)) down = right;
      if (this.#dueAt(down) >= due) break;
      this.#place(this.#heap[down] as number, at);
      at = down;
    }
    this.#place(slot, at);
  }

  #dueAt(at: number): number {
    return this.#due[this.#heap[at] as number] as number;
  }

  /** A slot for `id`, in no list yet. */
  #create(id: number, last: number, given: number): number {
    let slot = this.#free;
    if (slot !== NIL) {
      this.#free = this.#link[slot] as number;
    } else {
      slot = this.#used++;
      if (slot === this.#ids.length) this.#grow();
    }
    this.#ids[slot] = id;
    this.#lasts[slot] = last;
    this.#given[slot] = given;
    this.#state[slot] = IDLE | RECENT;
    this.#table.add(slot);
    return slot;
  }

  #remove(slot: number): void {
    this.#table.remove(this.#ids[slot] as number);
    this.#state[slot] = 0;
    this.#link[slot] = this.#free;
    this.#free = slot;
  }

  #grow(): void {
    this.#ids = grown(this.#ids);
    this.#table.ids = this.#ids;
    this.#lasts = grown(this.#lasts);
    this.#given = grown(this.#given);
    this.#due = grown(this.#due);
    this.#link = grown(this.#link);
    this.#state = grown(this.#state);
  }
}

/** By half, not by doubling: the columns of a large ring are most of its memory. */
function grown<A extends Float64Array | Int32Array | Uint8Array>(array: A): A {
  const make = array.constructor as new (length: number) => A;
  const out = new make(Math.ceil(array.length * 1.5));
  out.set(array);
  return out;
}
