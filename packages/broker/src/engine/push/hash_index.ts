import { HASH_BYTES } from '../../log/hash.ts';

/**
 * Finds equal 16-byte hashes within a segment: open addressing over one table that serves all segments in turn. A string
 * or bigint as the key of a Map would cost an allocation a message.
 */
export class HashIndex {
  /** Index of a hash plus 1; 0 = free. */
  #slots: Int32Array = new Int32Array(512);
  #mask = 0;
  #words: Int32Array = new Int32Array(0);
  readonly #seed = Math.trunc(Math.random() * 0x7fffffff) | 1;

  /** Starts over with `hashes`, none of them added yet. */
  reset(hashes: Buffer): void {
    const aligned = (hashes.byteOffset & 3) === 0 ? hashes : Buffer.from(new Uint8Array(hashes).buffer);
    this.#words = new Int32Array(aligned.buffer, aligned.byteOffset, aligned.length >> 2);
    let size = 16;
    while (size * 2 < this.#words.length) size *= 2;
    if (size > this.#slots.length) this.#slots = new Int32Array(size);
    else this.#slots.fill(0, 0, size);
    this.#mask = size - 1;
  }

  /** The index of an equal hash that was added before, or -1, and then hash `index` counts as added. */
  add(index: number): number {
    const words = this.#words;
    const at = index * 4;
    const mixed = Math.imul(words[at]! ^ this.#seed, 0x9e3779b1) ^ words[at + 2]!;
    for (let slot = (mixed ^ (mixed >>> 15)) & this.#mask; ; slot = (slot + 1) & this.#mask) {
      const held = this.#slots[slot]! - 1;
      if (held < 0) {
        this.#slots[slot] = index + 1;
        return -1;
      }
      const other = held * 4;
      if (
        words[other] === words[at] &&
        words[other + 1] === words[at + 1] &&
        words[other + 2] === words[at + 2] &&
        words[other + 3] === words[at + 3]
      ) {
        return held;
      }
    }
  }
}

const shared = new HashIndex();

/**
 * The indices of the first of each of equal hashes; null when all differ. `equal` hears of the others, each with the index
 * of its first.
 */
export function firstsOf(
  hashes: Buffer,
  equal: (index: number, first: number) => void,
): readonly number[] | null {
  const count = hashes.length / HASH_BYTES;
  shared.reset(hashes);
  let kept: number[] | null = null;
  for (let i = 0; i < count; i++) {
    const first = shared.add(i);
    if (first < 0) {
      kept?.push(i);
      continue;
    }
    kept ??= Array.from({ length: i }, (_, before) => before);
    equal(i, first);
  }
  return kept;
}

/** The hashes at these indices. */
export function hashesAt(hashes: Buffer, indices: readonly number[]): Buffer {
  const out = Buffer.allocUnsafe(indices.length * HASH_BYTES);
  for (const [to, from] of indices.entries()) {
    hashes.copy(out, to * HASH_BYTES, from * HASH_BYTES, (from + 1) * HASH_BYTES);
  }
  return out;
}
