/**
 * The identity of a transactionId inside a partition: xxh3-128 of its UTF-8 bytes, in the canonical
 * (big-endian) order. The same 16 bytes are stored in the sidecar, compared by the deduplication probe and
 * looked up by an ack, so the order of bytes is part of the storage format.
 *
 * ASCII of common length is hashed here (xxh3.ts), anything else by hash-wasm, which has no native part either: a
 * function call a hash instead of three ways into WebAssembly and back.
 */
import { createXXHash128 } from 'hash-wasm';
import { XXH3_SHORT_MAX, XXH3_SHORT_MIN, xxh3Short } from './xxh3.ts';

export const HASH_BYTES = 16;

const hasher = await createXXHash128();
/** The bytes of the text that is being hashed; nothing is in it between two calls. */
const scratch = new Uint8Array(XXH3_SHORT_MAX);
const scratchView = new DataView(scratch.buffer);

/** Writes the 16 hash bytes of `txn` into `out` at byte `at`. Throws a RangeError when they do not fit. */
export function hashTransactionId(txn: string, out: Buffer, at: number): void {
  const { length } = txn;
  if (length < XXH3_SHORT_MIN || length > XXH3_SHORT_MAX || !isAsciiInto(txn, scratch)) {
    out.set(hasher.init().update(txn).digest('binary'), at);
    return;
  }
  if (at < 0 || at + HASH_BYTES > out.length)
    throw new RangeError(`no room for a hash at ${at} of ${out.length}`);
  xxh3Short(scratchView, length, out, at);
}

/** The hashes of `txns` in order, 16 bytes each, in one buffer: the sidecar's and the probe's form. */
export function hashTransactionIds(txns: readonly string[]): Buffer {
  const out = Buffer.allocUnsafe(txns.length * HASH_BYTES);
  let at = 0;
  for (const txn of txns) {
    hashTransactionId(txn, out, at);
    at += HASH_BYTES;
  }
  return out;
}

/** Writes the characters as bytes; false, with some of them written, when one is not ASCII. */
function isAsciiInto(text: string, bytes: Uint8Array): boolean {
  let all = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    bytes[i] = unit;
    all |= unit;
  }
  return all < 0x80;
}
