/**
 * The hashes of one partition in the order in which they were stored: a ring of immutable blocks of 4096, each sorted,
 * and one hot buffer in order of arrival, which becomes the next block when it is full. Present means: in one of them.
 *
 * There is no map by hash and no reference count. A hash that was stored twice (with the window off, say) is in two
 * places, and stays known until the later one goes. Blocks go from the front and only whole, when even their newest
 * hash is too old; so what is resident is a superset of what is inside the window, and the worst that can come
 * of the rest is a needless "present".
 *
 * No allocation is larger than a block. A table by hash doubles towards the size of the whole window, and many
 * partitions under the same load double in lockstep.
 *
 * A block is sorted by the first word of its hashes only. The words are uniform: two of 4096 share one once in 500
 * blocks, and then the run is walked. Three passes of a radix sort take 75 µs a block, once in 4096 hashes; the
 * platform's sort of 8-byte keys took 500, and both beat comparing hashes.
 */
import { HASH_BYTES, HASH_WORDS } from './hash_words.ts';

export const BLOCK_HASHES = 4096;
/** What the accounting charges for a block besides its hashes. */
export const BLOCK_BYTES = 48;
const HOT_HASHES_MIN = 16;

interface Block {
  readonly words: Uint32Array;
  /** `created_at` of the newest hash, microseconds. */
  readonly newestMicros: number;
  /** Highest offset in the block. */
  readonly lastOffset: number;
}

const NO_WORDS = new Uint32Array(0);
const orderA = new Uint16Array(BLOCK_HASHES);
const orderB = new Uint16Array(BLOCK_HASHES);
const counts = new Uint16Array(0x800);
const sortWords = new Uint32Array(BLOCK_HASHES * HASH_WORDS);

export class HashRing {
  readonly #blocks: Block[] = [];
  #droppedBlocks = 0;
  #hot: Uint32Array = NO_WORDS;
  #hotCount = 0;
  #hotNewestMicros = 0;

  /** Bytes by the accounting: 16 a hash (the hot buffer by its capacity) and 48 a block. */
  get bytes(): number {
    return this.#blocks.length * (BLOCK_HASHES * HASH_BYTES + BLOCK_BYTES) + this.#hot.byteLength;
  }

  get size(): number {
    return this.#blocks.length * BLOCK_HASHES + this.#hotCount;
  }

  get sealedBlocks(): number {
    return this.#blocks.length;
  }

  /** The hot buffer's words; only the first `hotCount` hashes mean something. */
  get hotWords(): Uint32Array {
    return this.#hot;
  }

  get hotCount(): number {
    return this.#hotCount;
  }

  /**
   * Adds `count` hashes from the start of `words`. They lie at the offsets `firstOffset`, `firstOffset + 1`, …, above
   * all before, and were stored at `createdAtMicros`, not before the ones before.
   */
  append(words: Uint32Array, count: number, firstOffset: number, createdAtMicros: number): void {
    for (let done = 0; done < count; ) {
      const taken = Math.min(count - done, BLOCK_HASHES - this.#hotCount);
      this.#reserve(this.#hotCount + taken);
      copyWords(words, done * HASH_WORDS, this.#hot, this.#hotCount * HASH_WORDS, taken * HASH_WORDS);
      this.#hotCount += taken;
      done += taken;
      this.#hotNewestMicros = Math.max(this.#hotNewestMicros, createdAtMicros);
      if (this.#hotCount === BLOCK_HASHES) this.#seal(firstOffset + done - 1);
    }
  }

  /** Whether the hash is among those that were added as number `first` to `end` - 1, counted from the very first. */
  has(w0: number, w1: number, w2: number, w3: number, first = 0, end = Number.POSITIVE_INFINITY): boolean {
    const sealed = this.#droppedBlocks + this.#blocks.length;
    if (end > sealed * BLOCK_HASHES) {
      const hot = this.#hot;
      for (let at = 0, hotEnd = this.#hotCount * HASH_WORDS; at < hotEnd; at += HASH_WORDS) {
        if (hot[at] === w0 && hot[at + 1] === w1 && hot[at + 2] === w2 && hot[at + 3] === w3) return true;
      }
    }
    const newest = Math.min(sealed, Math.ceil(end / BLOCK_HASHES)) - this.#droppedBlocks - 1;
    const oldest = Math.max(0, Math.floor(first / BLOCK_HASHES) - this.#droppedBlocks);
    for (let b = newest; b >= oldest; b--) {
      if (blockHas(this.#blocks[b]!.words, w0, w1, w2, w3)) return true;
    }
    return false;
  }

  /**
   * Drops the blocks whose hashes are all older than `cutoffMicros`. Answers the highest offset that is not known
   * any more because of it, or -1 when nothing was dropped.
   */
  expire(cutoffMicros: number): number {
    let dropped = 0;
    while (dropped < this.#blocks.length && this.#blocks[dropped]!.newestMicros < cutoffMicros) dropped++;
    if (dropped === 0) return -1;
    const { lastOffset } = this.#blocks[dropped - 1]!;
    this.#blocks.splice(0, dropped);
    this.#droppedBlocks += dropped;
    return lastOffset;
  }

  #reserve(hashes: number): void {
    let capacity = Math.max(this.#hot.length / HASH_WORDS, HOT_HASHES_MIN);
    while (capacity < hashes) capacity *= 2;
    if (capacity * HASH_WORDS === this.#hot.length) return;
    const grown = new Uint32Array(capacity * HASH_WORDS);
    grown.set(this.#hot);
    this.#hot = grown;
  }

  /** The hot buffer is at its full capacity now and is handed over as it is. */
  #seal(lastOffset: number): void {
    sortBlock(this.#hot);
    this.#blocks.push({ words: this.#hot, newestMicros: this.#hotNewestMicros, lastOffset });
    this.#hot = NO_WORDS;
    this.#hotCount = 0;
    this.#hotNewestMicros = 0;
  }
}

/** The bytes that a ring of `hashes` hashes accounts for at most. */
export function ringBytes(hashes: number): number {
  return Math.ceil(hashes / BLOCK_HASHES) * (BLOCK_HASHES * HASH_BYTES + BLOCK_BYTES);
}

function copyWords(from: Uint32Array, fromAt: number, to: Uint32Array, toAt: number, words: number): void {
  // A view costs more than copying a few words.
  if (words > 256) to.set(from.subarray(fromAt, fromAt + words), toAt);
  else for (let i = 0; i < words; i++) to[toAt + i] = from[fromAt + i]!;
}

function sortBlock(words: Uint32Array): void {
  radixPass(words, 0, 0x7ff, null, orderA);
  radixPass(words, 11, 0x7ff, orderA, orderB);
  radixPass(words, 22, 0x3ff, orderB, orderA);
  sortWords.set(words);
  for (let i = 0; i < BLOCK_HASHES; i++) {
    const from = orderA[i]! * HASH_WORDS;
    const to = i * HASH_WORDS;
    words[to] = sortWords[from]!;
    words[to + 1] = sortWords[from + 1]!;
    words[to + 2] = sortWords[from + 2]!;
    words[to + 3] = sortWords[from + 3]!;
  }
}

/** Sorts the positions `from` (null: 0, 1, …) stably into `to`, by some bits of the first word. */
function radixPass(
  words: Uint32Array,
  shift: number,
  mask: number,
  from: Uint16Array | null,
  to: Uint16Array,
): void {
  counts.fill(0);
  for (let i = 0; i < BLOCK_HASHES; i++) counts[(words[i * HASH_WORDS]! >>> shift) & mask]!++;
  let start = 0;
  for (let digit = 0; digit <= mask; digit++) {
    const count = counts[digit]!;
    counts[digit] = start;
    start += count;
  }
  for (let i = 0; i < BLOCK_HASHES; i++) {
    const position = from === null ? i : from[i]!;
    to[counts[(words[position * HASH_WORDS]! >>> shift) & mask]!++] = position;
  }
}

function blockHas(words: Uint32Array, w0: number, w1: number, w2: number, w3: number): boolean {
  let low = 0;
  let high = BLOCK_HASHES;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (words[middle * HASH_WORDS]! < w0) low = middle + 1;
    else high = middle;
  }
  for (let at = low * HASH_WORDS; at < words.length && words[at] === w0; at += HASH_WORDS) {
    if (words[at + 1] === w1 && words[at + 2] === w2 && words[at + 3] === w3) return true;
  }
  return false;
}
