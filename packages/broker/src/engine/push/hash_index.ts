import { HASH_BYTES } from '../../log/hash.ts';

/**
 * Finds equal 16-byte hashes while a segment's hashes are put together: open addressing over the first n hashes of the
 * buffer that is being filled. One table serves all segments in turn. Building a string or bigint key for a Map
 * instead costs an allocation a message.
 */
export class HashIndex {
  /** Index of a hash plus 1; 0 = free. */
  #slots: Int32Array = new Int32Array(512);
  #mask = 511;
  #words: Int32Array = new Int32Array(0);
  readonly #seed = Math.trunc(Math.random() * 0x7fffffff) | 1;

  /** Starts over with the hashes of `out` (of {@link hashBuffer}), none of them added yet; `count` is the most to come. */
  reset(out: Buffer, count: number): void {
    let size = this.#slots.length;
    while (size < 2 * count) size *= 2;
    if (size !== this.#slots.length) this.#slots = new Int32Array(size);
    else this.#slots.fill(0);
    this.#mask = size - 1;
    this.#words = new Int32Array(out.buffer, out.byteOffset, out.length >> 2);
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

/** Room for `count` hashes at an address that can be read word by word. */
export function hashBuffer(count: number): Buffer {
  return Buffer.allocUnsafeSlow(count * HASH_BYTES);
}
