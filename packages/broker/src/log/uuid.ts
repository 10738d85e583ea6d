/**
 * UUIDs as 16 bytes. Message and lease ids are version 7: they sort by the time at which they were minted,
 * and within a process strictly by the order of minting, also when the caller's clock stands still or steps
 * back. Layout: 48 bits of milliseconds, version, a 12-bit counter, variant, 62 random bits. The counter starts
 * at a random value below 2048 in each millisecond; when it runs over, the millisecond is advanced instead.
 */
import { randomFillSync } from 'node:crypto';

export const UUID_BYTES = 16;
/** Characters of a UUID's text. */
export const UUID_CHARACTERS = 36;

const DASH = 0x2d;
const HEX = Buffer.from('0123456789abcdef');
const POOL_BYTES = 8192;
const RANDOM_BYTES = 10;
const pool = Buffer.allocUnsafe(POOL_BYTES);
let poolAt = POOL_BYTES;
let lastMs = 0;
let counter = 0;

const UUID_TEXT = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** A new UUIDv7. `nowMs`: milliseconds since 1970, an integer in 0..2^48-1. */
export function mintUuidV7(nowMs: number): Buffer {
  const id = Buffer.allocUnsafe(UUID_BYTES);
  mintInto(id, 0, nowMs);
  return id;
}

/** `count` new ones of one moment, in one buffer, 16 bytes each. */
export function mintUuidsV7(count: number, nowMs: number): Buffer {
  const ids = Buffer.allocUnsafe(count * UUID_BYTES);
  for (let at = 0; at < ids.length; at += UUID_BYTES) mintInto(ids, at, nowMs);
  return ids;
}

function mintInto(id: Buffer, at: number, nowMs: number): void {
  if (poolAt + RANDOM_BYTES > POOL_BYTES) {
    randomFillSync(pool);
    poolAt = 0;
  }
  const random = (pool[poolAt]! << 8) | pool[poolAt + 1]!;
  if (nowMs > lastMs) {
    lastMs = Math.floor(nowMs);
    counter = random & 0x7ff;
  } else if (++counter > 0xfff) {
    lastMs++;
    counter = random & 0x7ff;
  }
  const upper = Math.floor(lastMs / 0x1_0000);
  id[at] = upper >>> 24;
  id[at + 1] = upper >>> 16;
  id[at + 2] = upper >>> 8;
  id[at + 3] = upper;
  id[at + 4] = lastMs >>> 8;
  id[at + 5] = lastMs;
  id[at + 6] = 0x70 | (counter >>> 8);
  id[at + 7] = counter;
  for (let i = 8; i < UUID_BYTES; i++) id[at + i] = pool[poolAt + i - 6]!;
  id[at + 8] = (id[at + 8]! & 0x3f) | 0x80;
  poolAt += RANDOM_BYTES;
}

/** The canonical lower-case text of the 16 bytes at `at`. */
export function formatUuid(bytes: Buffer, at = 0): string {
  const hex = bytes.toString('hex', at, at + UUID_BYTES);
  if (hex.length !== 32) throw new RangeError(`no 16 bytes at ${at} of ${bytes.length}`);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/**
 * The texts of all of `ids` (16 bytes each) one after the other, {@link UUID_CHARACTERS} each: a third of the time of as many
 * calls of {@link formatUuid}. A slice of it keeps the whole alive, so it suits ids that come and go together.
 */
export function formatUuids(ids: Buffer): string {
  const text = Buffer.allocUnsafe((ids.length / UUID_BYTES) * UUID_CHARACTERS);
  for (let at = 0, to = 0; to < text.length; at += UUID_BYTES) {
    for (let i = 0; i < UUID_BYTES; i++) {
      if (i === 4 || i === 6 || i === 8 || i === 10) text[to++] = DASH;
      const byte = ids[at + i]!;
      text[to++] = HEX[byte >>> 4]!;
      text[to++] = HEX[byte & 15]!;
    }
  }
  return text.toString('latin1');
}

/** The 16 bytes of a UUID in its canonical 36-character form, any version, any case; null for anything else. */
export function parseUuid(text: string): Buffer | null {
  return UUID_TEXT.test(text) ? Buffer.from(text.replaceAll('-', ''), 'hex') : null;
}
