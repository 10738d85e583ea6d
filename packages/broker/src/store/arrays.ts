/**
 * JS values as PostgreSQL's binary array format, in one Buffer, to be passed as a parameter and cast in the
 * SQL text (`$1::bigint[]`). Measured on 100 x 2 KiB of bytea: 0.62 ms a call against 4.40 ms for the text
 * form with hex digits.
 *
 * Layout, big-endian: dimensions, has-nulls flag, element OID, length, lower bound, then per element its
 * length (-1 for NULL) and bytes. An empty array has no dimension at all.
 */
import { parseUuid } from '../log/uuid.ts';
import { invariant } from './invariant.ts';

const OID = { bool: 16, bytea: 17, int8: 20, int4: 23, text: 25, uuid: 2950 } as const;
const HEADER_BYTES = 20;
const TWO_32 = 0x1_0000_0000;

/** `bigint[]` of safe integers. */
export function int8Array(values: ArrayLike<number>): Buffer {
  const out = allocate(OID.int8, values.length, 12 * values.length);
  for (let i = 0, at = HEADER_BYTES; i < values.length; i++, at += 12) {
    const value = values[i]!;
    invariant(Number.isSafeInteger(value), 'int8_parameter', { index: i, value });
    out.writeInt32BE(8, at);
    out.writeInt32BE(Math.floor(value / TWO_32), at + 4);
    out.writeUInt32BE(value >>> 0, at + 8);
  }
  return out;
}

/** `integer[]`. */
export function int4Array(values: ArrayLike<number>): Buffer {
  const out = allocate(OID.int4, values.length, 8 * values.length);
  for (let i = 0, at = HEADER_BYTES; i < values.length; i++, at += 8) {
    const value = values[i]!;
    invariant((value | 0) === value, 'int4_parameter', { index: i, value });
    out.writeInt32BE(4, at);
    out.writeInt32BE(value, at + 4);
  }
  return out;
}

/** `boolean[]`. */
export function boolArray(values: ArrayLike<boolean>): Buffer {
  const out = allocate(OID.bool, values.length, 5 * values.length);
  for (let i = 0, at = HEADER_BYTES; i < values.length; i++, at += 5) {
    out.writeInt32BE(1, at);
    out[at + 4] = values[i] ? 1 : 0;
  }
  return out;
}

/** `text[]`; null elements become NULL. A NUL character is refused by the server, a lone surrogate becomes U+FFFD. */
export function textArray(values: readonly (string | null)[]): Buffer {
  let bytes = 0;
  let nulls = false;
  for (const value of values) {
    if (value === null) nulls = true;
    bytes += 4 + (value === null ? 0 : Buffer.byteLength(value));
  }
  const out = allocate(OID.text, values.length, bytes);
  if (nulls) out.writeInt32BE(1, 4);
  let at = HEADER_BYTES;
  for (const value of values) {
    if (value === null) {
      out.writeInt32BE(-1, at);
      at += 4;
      continue;
    }
    const written = out.write(value, at + 4);
    out.writeInt32BE(written, at);
    at += 4 + written;
  }
  return out;
}

/** `uuid[]` from the text form (any letter case). */
export function uuidArray(values: readonly string[]): Buffer {
  const out = allocate(OID.uuid, values.length, 20 * values.length);
  values.forEach((value, i) => {
    const at = HEADER_BYTES + 20 * i;
    out.writeInt32BE(16, at);
    const bytes = parseUuid(value);
    invariant(bytes !== null, 'uuid_parameter', { index: i });
    out.set(bytes, at + 4);
  });
  return out;
}

/** `bytea[]`; null elements become NULL. */
export function byteaArray(values: readonly (Uint8Array | null)[]): Buffer {
  let bytes = 0;
  let nulls = false;
  for (const value of values) {
    if (value === null) nulls = true;
    bytes += 4 + (value?.length ?? 0);
  }
  const out = allocate(OID.bytea, values.length, bytes);
  if (nulls) out.writeInt32BE(1, 4);
  let at = HEADER_BYTES;
  for (const value of values) {
    out.writeInt32BE(value === null ? -1 : value.length, at);
    at += 4;
    if (value === null) continue;
    out.set(value, at);
    at += value.length;
  }
  return out;
}

function allocate(elementOid: number, count: number, bytes: number): Buffer {
  const out = Buffer.allocUnsafe(count === 0 ? 12 : HEADER_BYTES + bytes);
  out.writeInt32BE(count === 0 ? 0 : 1, 0);
  out.writeInt32BE(0, 4);
  out.writeInt32BE(elementOid, 8);
  if (count > 0) {
    out.writeInt32BE(count, 12);
    out.writeInt32BE(1, 16);
  }
  return out;
}
