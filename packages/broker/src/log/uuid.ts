/**
 * UUIDs as 16 bytes. Message and lease ids are version 7: they sort by the time at which they were minted,
 * and within a process strictly by the order of minting, also when the caller's clock stands still or steps
 * back. Layout: 48 bits of milliseconds, version, a 12-bit counter, variant, 62 random bits. The counter starts
 * at a random value below 2048 in each millisecond; when it runs over, the millisecond is advanced instead.
 */
import { randomFillSync } from 'node:crypto';

const POOL_BYTES = 8192;
const RANDOM_BYTES = 10;
const pool = Buffer.allocUnsafe(POOL_BYTES);
let poolAt = POOL_BYTES;
let lastMs = 0;
let counter = 0;

const UUID_TEXT = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** A new UUIDv7. `nowMs`: milliseconds since 1970, an integer in 0..2^48-1. */
export function mintUuidV7(nowMs: number): Buffer {
  if (poolAt + RANDOM_BYTES > POOL_BYTES) {
    randomFillSync(pool);
    poolAt = 0;
  }
  if (nowMs > lastMs) {
    lastMs = Math.floor(nowMs);
    counter = pool.readUInt16BE(poolAt) & 0x7ff;
  } else if (++counter > 0xfff) {
    lastMs++;
    counter = pool.readUInt16BE(poolAt) & 0x7ff;
  }
  const id = Buffer.allocUnsafe(16);
  id.writeUIntBE(lastMs, 0, 6);
  id.writeUInt16BE(0x7000 | counter, 6);
  id.set(pool.subarray(poolAt + 2, poolAt + RANDOM_BYTES), 8);
  id[8] = (id[8]! & 0x3f) | 0x80;
  poolAt += RANDOM_BYTES;
  return id;
}

/** The canonical lower-case text of the 16 bytes at `at`. */
export function formatUuid(bytes: Buffer, at = 0): string {
  const hex = bytes.toString('hex', at, at + 16);
  if (hex.length !== 32) throw new RangeError(`no 16 bytes at ${at} of ${bytes.length}`);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** The 16 bytes of a UUID in its canonical 36-character form, any version, any case; null for anything else. */
export function parseUuid(text: string): Buffer | null {
  return UUID_TEXT.test(text) ? Buffer.from(text.replaceAll('-', ''), 'hex') : null;
}
