/**
 * A ring of generations of blocked Bloom filters in front of the exact hashes: it answers "certainly not there" with
 * one cache line a live generation. 16 bits a hash, seven probes, all within one 64-byte block.
 *
 * A filter never forgets what was added, so there is no false negative; a generation goes only when even its newest
 * hash is older than the window, the rule by which exact blocks go. A new generation is opened when the newest one
 * has taken as many hashes as it was made for, eight times larger than that one, from 4096 up to a million: a quiet
 * partition carries one filter of 8 KiB, a busy one settles at three or four generations.
 *
 * The bits come straight from the hash, which is uniform: word 0 picks the block, words 1 to 3 the seven positions.
 */
import { HASH_WORDS } from './hash_words.ts';

const BITS_PER_HASH = 16;
const BLOCK_WORDS = 16;
const BLOCK_BITS = BLOCK_WORDS * 32;
const CAPACITY_MIN = 4096;
const CAPACITY_FACTOR = 8;
const CAPACITY_MAX = 1_000_000;
const POSITION = BLOCK_BITS - 1;
const TWO_32 = 2 ** 32;

interface Generation {
  readonly filter: Uint32Array;
  readonly blocks: number;
  readonly capacity: number;
  /** How many hashes had been added to the front before its first one. */
  readonly first: number;
  count: number;
  newestMicros: number;
}

export class BloomFront {
  readonly #generations: Generation[] = [];
  #bytes = 0;
  /** Hashes that were added to generations that are gone. */
  #dropped = 0;

  get bytes(): number {
    return this.#bytes;
  }

  /** Live generations; 0: nothing was added, or all of it has expired. */
  get generations(): number {
    return this.#generations.length;
  }

  /** Adds `count` hashes from the start of `words`, stored at `createdAtMicros`. */
  add(words: Uint32Array, count: number, createdAtMicros: number): void {
    for (let done = 0; done < count; ) {
      const generation = this.#open();
      const end = Math.min(count, done + generation.capacity - generation.count);
      for (let i = done; i < end; i++) {
        const at = i * HASH_WORDS;
        set(generation, words[at]!, words[at + 1]!, words[at + 2]!, words[at + 3]!);
      }
      generation.count += end - done;
      generation.newestMicros = Math.max(generation.newestMicros, createdAtMicros);
      done = end;
    }
  }

  /**
   * The first of the live generations, from index `from` on, that may hold the hash; -1: none does. What it may hold are
   * the hashes that were added as number `firstOf` to `endOf` - 1.
   */
  find(w0: number, w1: number, w2: number, w3: number, from = 0): number {
    const generations = this.#generations;
    for (let g = from; g < generations.length; g++) if (test(generations[g]!, w0, w1, w2, w3)) return g;
    return -1;
  }

  firstOf(generation: number): number {
    return this.#generations[generation]!.first;
  }

  endOf(generation: number): number {
    const { first, count } = this.#generations[generation]!;
    return first + count;
  }

  /** Drops the generations whose hashes are all older than `cutoffMicros`. */
  expire(cutoffMicros: number): void {
    let dropped = 0;
    while (dropped < this.#generations.length && this.#generations[dropped]!.newestMicros < cutoffMicros) {
      const { filter, first, count } = this.#generations[dropped]!;
      this.#bytes -= filter.byteLength;
      this.#dropped = first + count;
      dropped++;
    }
    if (dropped > 0) this.#generations.splice(0, dropped);
  }

  #open(): Generation {
    const newest = this.#generations.at(-1);
    if (newest !== undefined && newest.count < newest.capacity) return newest;
    const capacity = nextCapacity(newest?.capacity);
    const blocks = blocksFor(capacity);
    const filter = new Uint32Array(blocks * BLOCK_WORDS);
    const first = newest === undefined ? this.#dropped : newest.first + newest.count;
    const generation = { filter, blocks, capacity, first, count: 0, newestMicros: 0 };
    this.#generations.push(generation);
    this.#bytes += filter.byteLength;
    return generation;
  }
}

/** The bytes of filters after `hashes` hashes were added to an empty front. */
export function bloomBytes(hashes: number): number {
  let bytes = 0;
  let capacity: number | undefined;
  for (let covered = 0; covered < hashes; covered += capacity) {
    capacity = nextCapacity(capacity);
    bytes += blocksFor(capacity) * BLOCK_WORDS * 4;
  }
  return bytes;
}

function nextCapacity(capacity: number | undefined): number {
  return capacity === undefined ? CAPACITY_MIN : Math.min(capacity * CAPACITY_FACTOR, CAPACITY_MAX);
}

function blocksFor(capacity: number): number {
  return Math.ceil((capacity * BITS_PER_HASH) / BLOCK_BITS);
}

function set(generation: Generation, w0: number, w1: number, w2: number, w3: number): void {
  const { filter } = generation;
  const base = Math.floor((w0 * generation.blocks) / TWO_32) * BLOCK_WORDS;
  setBit(filter, base, w1);
  setBit(filter, base, w1 >>> 9);
  setBit(filter, base, w1 >>> 18);
  setBit(filter, base, w2);
  setBit(filter, base, w2 >>> 9);
  setBit(filter, base, w2 >>> 18);
  setBit(filter, base, w3);
}

function test(generation: Generation, w0: number, w1: number, w2: number, w3: number): boolean {
  const { filter } = generation;
  const base = Math.floor((w0 * generation.blocks) / TWO_32) * BLOCK_WORDS;
  return (
    bit(filter, base, w1) &&
    bit(filter, base, w2) &&
    bit(filter, base, w3) &&
    bit(filter, base, w1 >>> 9) &&
    bit(filter, base, w2 >>> 9) &&
    bit(filter, base, w1 >>> 18) &&
    bit(filter, base, w2 >>> 18)
  );
}

function setBit(filter: Uint32Array, base: number, source: number): void {
  const position = source & POSITION;
  filter[base + (position >>> 5)]! |= 1 << (position & 31);
}

function bit(filter: Uint32Array, base: number, source: number): boolean {
  const position = source & POSITION;
  return (filter[base + (position >>> 5)]! & (1 << (position & 31))) !== 0;
}
