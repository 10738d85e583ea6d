/**
 * Partition id -> slot, by open addressing over two typed arrays: 12 bytes a place at a load of at most 3/4. A Map
 * of numbers costs 30 to 60 bytes an entry, and a ring may hold a million.
 */
const EMPTY = -1;
const PLACES_MIN = 16;

export class PartitionTable {
  #ids: Float64Array = new Float64Array(PLACES_MIN);
  #slots: Int32Array = new Int32Array(PLACES_MIN).fill(EMPTY);
  #mask = PLACES_MIN - 1;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get bytes(): number {
    return this.#ids.byteLength + this.#slots.byteLength;
  }

  /** The slot, or -1. */
  get(id: number): number {
    for (let at = hash(id) & this.#mask; ; at = (at + 1) & this.#mask) {
      const slot = this.#slots[at] as number;
      if (slot === EMPTY || this.#ids[at] === id) return slot;
    }
  }

  /** `id` must not be there yet. */
  add(id: number, slot: number): void {
    if ((this.#size + 1) * 4 > (this.#mask + 1) * 3) this.#resize((this.#mask + 1) * 2);
    this.#place(id, slot);
    this.#size++;
  }

  /** Moves what follows up, so that no gravestones pile up in a ring that lives for weeks. */
  remove(id: number): void {
    let hole = hash(id) & this.#mask;
    while (this.#slots[hole] !== EMPTY && this.#ids[hole] !== id) hole = (hole + 1) & this.#mask;
    if (this.#slots[hole] === EMPTY) return;
    for (let at = (hole + 1) & this.#mask; this.#slots[at] !== EMPTY; at = (at + 1) & this.#mask) {
      const home = hash(this.#ids[at] as number) & this.#mask;
      // It may move into the hole unless its home lies cyclically behind the hole.
      if (((at - home) & this.#mask) >= ((at - hole) & this.#mask)) {
        this.#ids[hole] = this.#ids[at] as number;
        this.#slots[hole] = this.#slots[at] as number;
        hole = at;
      }
    }
    this.#slots[hole] = EMPTY;
    this.#size--;
  }

  #place(id: number, slot: number): void {
    let at = hash(id) & this.#mask;
    while (this.#slots[at] !== EMPTY) at = (at + 1) & this.#mask;
    this.#ids[at] = id;
    this.#slots[at] = slot;
  }

  #resize(places: number): void {
    const ids = this.#ids;
    const slots = this.#slots;
    this.#ids = new Float64Array(places);
    this.#slots = new Int32Array(places).fill(EMPTY);
    this.#mask = places - 1;
    for (let at = 0; at < slots.length; at++) {
      if (slots[at] !== EMPTY) this.#place(ids[at] as number, slots[at] as number);
    }
  }
}

/** Ids come from one sequence; the multiplication spreads runs of them over the table. */
function hash(id: number): number {
  const low = id >>> 0;
  const high = (id - low) / 4_294_967_296;
  const mixed = Math.imul(low ^ Math.imul(high, 0x85ebca6b), 0x9e3779b1);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}
