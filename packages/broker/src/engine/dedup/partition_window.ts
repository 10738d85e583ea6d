/**
 * What the cache knows of one partition: every hash that was stored at an offset in (hydratedFrom, verifiedUpto] inside
 * the window. It is born complete from a hydration (or empty, for a partition known to be empty) and only ever loses
 * completeness, never regains it: then another one takes its place.
 *
 * Its clock is the newest `created_at` of the partition that it has heard of. The allocator stamps a segment with the
 * later of the server's clock and the partition's newest `created_at`, so whatever the server's clock does, no
 * later probe can look at a time before this one, and what is older than the window by it is out of the window for good.
 */
import { BloomFront, bloomBytes } from './bloom_front.ts';
import { HashRing, ringBytes } from './hash_ring.ts';
import { chunk, HASH_BYTES, HASH_WORDS, loadChunk } from './hash_words.ts';
import type { Linked } from './use_order.ts';

/**
 * What an entry costs besides its hashes and filters, rounded up: 100,000 entries took 400 to 650 bytes of heap each for
 * objects and map entries, and the allocator's share for its arrays.
 */
export const ENTRY_BYTES = 1024;

/** Up to here a scan of the hot buffer is as cheap as a filter, and spares its 8 KiB. */
const UNFILTERED_HASHES_MAX = 32;

/**
 * - `appended`: it followed directly, and is known now.
 * - `known`: it lies wholly below, within what the hydration had fetched already.
 * - `gap`: others have stored offsets in between.
 * - `overlap`: offsets that were allocated before, which a monotone allocator cannot give.
 */
export type Advance = 'appended' | 'known' | 'gap' | 'overlap';

export class PartitionWindow implements Linked<PartitionWindow> {
  older: PartitionWindow | null = null;
  newer: PartitionWindow | null = null;
  readonly partitionId: number;
  readonly windowSeconds: number;
  /** Every offset at or below is before the window. */
  hydratedFrom: number;
  /** Every in-window hash at or below is resident. */
  verifiedUpto: number;
  /** A commit was met that leaves offsets below it unknown: vouches no more. */
  broken = false;
  /** Monotonic milliseconds of the last use. */
  usedAtMs: number;
  readonly bornAtMs: number;
  /** Not rebuilt before; monotonic milliseconds. Only of a broken one. */
  rebuildAtMs = 0;
  /** Times in a row that a gap followed soon after a hydration. */
  gaps = 0;
  readonly #ring = new HashRing();
  readonly #front = new BloomFront();
  #newestMicros = 0;
  /** `verifiedUpto` at birth. */
  #bornUpto = -1;

  constructor(partitionId: number, windowSeconds: number, nowMs: number) {
    this.partitionId = partitionId;
    this.windowSeconds = windowSeconds;
    this.usedAtMs = nowMs;
    this.bornAtMs = nowMs;
    this.hydratedFrom = -1;
    this.verifiedUpto = -1;
  }

  get bytes(): number {
    return ENTRY_BYTES + this.#ring.bytes + this.#front.bytes;
  }

  get hashes(): number {
    return this.#ring.size;
  }

  /** Adds a stored row; only before {@link born}. False: the row is not 16 bytes an offset. */
  load(baseOffset: number, endOffset: number, createdAtMicros: number, hashes: Uint8Array): boolean {
    if (hashes.length === 0 || hashes.length !== (endOffset - baseOffset + 1) * HASH_BYTES) return false;
    if (this.#ring.size === 0) this.hydratedFrom = baseOffset - 1;
    this.#append(hashes, baseOffset, createdAtMicros);
    return true;
  }

  /** Ends the loading: everything in the window at or below `lastOffset` has been loaded. */
  born(lastOffset: number): void {
    this.verifiedUpto = lastOffset;
    this.#bornUpto = lastOffset;
    if (this.#ring.size === 0) this.hydratedFrom = lastOffset;
  }

  /** Takes over a committed segment: its hashes lie at `base`, `base + 1`, … */
  advance(base: number, hashes: Uint8Array, createdAtMicros: number): Advance {
    if (base === this.verifiedUpto + 1) {
      this.#append(hashes, base, createdAtMicros);
      this.verifiedUpto = base + hashes.length / HASH_BYTES - 1;
      this.#expire();
      return 'appended';
    }
    if (base > this.verifiedUpto) {
      this.broken = true;
      return 'gap';
    }
    const end = base + hashes.length / HASH_BYTES - 1;
    if (end <= this.#bornUpto && this.#knowsAll(hashes)) return 'known';
    this.broken = true;
    return 'overlap';
  }

  /** Whether any of the hashes is resident. False: none of them is inside the window at or below `verifiedUpto`. */
  knowsAny(hashes: Uint8Array): boolean {
    const total = hashes.length / HASH_BYTES;
    const filtered = this.#front.generations > 0;
    for (let first = 0; first < total; ) {
      const count = loadChunk(hashes, first);
      for (let at = 0; at < count * HASH_WORDS; at += HASH_WORDS) {
        const w0 = chunk[at]!;
        const w1 = chunk[at + 1]!;
        const w2 = chunk[at + 2]!;
        const w3 = chunk[at + 3]!;
        if (filtered ? this.#holds(w0, w1, w2, w3) : this.#ring.has(w0, w1, w2, w3)) return true;
      }
      first += count;
    }
    return false;
  }

  /**
   * The front and the ring have been given the same hashes in the same order, so a generation that says "maybe" tells
   * which part of the ring to look at: with a window of millions that is a fifth of it on average.
   */
  #holds(w0: number, w1: number, w2: number, w3: number): boolean {
    const front = this.#front;
    for (let g = front.find(w0, w1, w2, w3); g >= 0; g = front.find(w0, w1, w2, w3, g + 1)) {
      if (this.#ring.has(w0, w1, w2, w3, front.firstOf(g), front.endOf(g))) return true;
    }
    return false;
  }

  #knowsAll(hashes: Uint8Array): boolean {
    for (let at = 0; at < hashes.length; at += HASH_BYTES) {
      loadChunk(hashes.subarray(at, at + HASH_BYTES), 0);
      if (!this.#ring.has(chunk[0]!, chunk[1]!, chunk[2]!, chunk[3]!)) return false;
    }
    return true;
  }

  #append(hashes: Uint8Array, base: number, createdAtMicros: number): void {
    this.#newestMicros = Math.max(this.#newestMicros, createdAtMicros);
    const total = hashes.length / HASH_BYTES;
    for (let first = 0; first < total; ) {
      const count = loadChunk(hashes, first);
      this.#filter(count, createdAtMicros);
      this.#ring.append(chunk, count, base + first, createdAtMicros);
      first += count;
    }
  }

  /** Before the loaded chunk goes into the ring: once there is a filter, it holds all that is resident. */
  #filter(count: number, createdAtMicros: number): void {
    if (this.#front.generations === 0) {
      if (this.#ring.sealedBlocks === 0 && this.#ring.hotCount + count <= UNFILTERED_HASHES_MAX) return;
      this.#front.add(this.#ring.hotWords, this.#ring.hotCount, this.#newestMicros);
    }
    this.#front.add(chunk, count, createdAtMicros);
  }

  #expire(): void {
    const cutoffMicros = this.#newestMicros - this.windowSeconds * 1_000_000;
    const dropped = this.#ring.expire(cutoffMicros);
    if (dropped > this.hydratedFrom) this.hydratedFrom = dropped;
    this.#front.expire(cutoffMicros);
  }
}

/** What a window of `hashes` hashes accounts for, at most. */
export function windowBytes(hashes: number): number {
  return ENTRY_BYTES + ringBytes(hashes) + bloomBytes(hashes);
}
