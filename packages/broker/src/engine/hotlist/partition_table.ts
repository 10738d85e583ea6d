/**
 * Partition id -> slot, by open addressing over one typed array of slots at a load of at most 3/4; the ids
 * themselves are the ring's column. 4 bytes a place, where a Map of numbers costs 30 to 60 bytes an entry, and a
 * ring may hold a million.
 */
const EMPTY = -1;
const PLACES_MIN = 16;

export class PartitionTable {
  /** Ids by slot. The owner sets it anew when it grows. */
  ids: Float64Array;
  #slots: Int32Array = new Int32Array(PLACES_MIN).fill(EMPTY);
  #mask = PLACES_MIN - 1;
  #size = 0;

  constructor(ids: Float64Array) {
    this.ids = ids;
  }

  get size(): number {
    return this.#size;
  }

  get bytes(): number {
    return this.#slots.byteLength;
  }

  /** The slot, or -1. */
  get(id: number): number {
    for (let at = hash(id) & this.#mask; ; at = (at + 1) & this.#mask) {
      const slot = this.#slots[at] as number;
      if (slot === EMPTY || this.ids[slot] === id) return slot;
    }
  }

  /** The id that stands in `slot`; it must not be there yet. */
  add(slot: number): void {
    if ((this.#size + 1) * 4 > (this.#mask + 1) * 3) this.#resize((this.#mask + 1) * 2);
    this.#place(slot);
    this.#size++;
  }

  /** Moves what follows up, so that no gravestones pile up in a ring that lives for weeks. */
  remove(id: number): void {
    let hole = hash(id) & this.#mask;
    for (;;) {
      const slot = this.#slots[hole] as number;
      if (slot === EMPTY) return;
      if (this.ids[slot] === id) break;
      hole = (hole + 1) & this.#mask;
    }
    for (let at = (hole + 1) & this.#mask; this.#slots[at] !== EMPTY; at = (at + 1) & this.#mask) {
      const slot = this.#slots[at] as number;
      const home = hash(this.ids[slot] as number) & this.#mask;
      // It may move into the hole unless its home lies cyclically behind the hole.
      if (((at - home) & this.#mask) >= ((at - hole) & this.#mask)) {
        this.#slots[hole] = slot;
        hole = at;
      }
    }
    this.#slots[hole] = EMPTY;
    this.#size--;
  }

  #place(slot: number): void {
    let at = hash(this.ids[slot] as number) & this.#mask;
    while (this.#slots[at] !== EMPTY) at = (at + 1) & this.#mask;
    this.#slots[at] = slot;
  }

  #resize(places: number): void {
    const slots = this.#slots;
    this.#slots = new Int32Array(places).fill(EMPTY);
    this.#mask = places - 1;
    for (const slot of slots) if (slot !== EMPTY) this.#place(slot);
  }
}

/** Ids come from one sequence; the multiplication spreads runs of them over the table. */
function hash(id: number): number {
  const low = id >>> 0;
  const high = (id - low) / 4_294_967_296;
  const mixed = Math.imul(low ^ Math.imul(high, 0x85ebca6b), 0x9e3779b1);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}
