/**
 * Hashes as the cache computes with them: four 32-bit words each, in a typed array. The buffers that come from the
 * push path and from the database are not aligned, so each is copied, a chunk at a time, into one array
 * that all callers share. Nothing here survives an `await`: whoever loads a chunk is done with it before it returns.
 */
export const HASH_BYTES = 16;
export const HASH_WORDS = 4;
export const CHUNK_HASHES = 4096;

/** The words of the loaded chunk. Only equality and a fixed order matter, so the machine's byte order will do. */
export const chunk: Uint32Array<ArrayBuffer> = new Uint32Array(CHUNK_HASHES * HASH_WORDS);
const chunkBytes = new Uint8Array(chunk.buffer);

/** Loads the hashes of `hashes` from index `first` on, and answers how many (at most {@link CHUNK_HASHES}). */
export function loadChunk(hashes: Uint8Array, first: number): number {
  const from = first * HASH_BYTES;
  const count = Math.min((hashes.length - from) / HASH_BYTES, CHUNK_HASHES);
  const whole = from === 0 && count * HASH_BYTES === hashes.length;
  chunkBytes.set(whole ? hashes : hashes.subarray(from, from + count * HASH_BYTES));
  return count;
}
