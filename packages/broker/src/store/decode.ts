/**
 * Values out of PostgreSQL's binary format, by type OID. Strict: a type that is not listed, or a value that a
 * JS number cannot hold exactly, is an InvariantError and never a guess.
 *
 * A decoder gets the whole receive buffer and a range of it. That buffer is reused by the protocol parser,
 * so whatever a decoder returns is a copy.
 */
import { formatUuid } from '../log/uuid.ts';
import { InvariantError, invariant } from './invariant.ts';

export type Decoder = (bytes: Buffer, start: number, end: number) => unknown;

const TWO_32 = 0x1_0000_0000;
/** Microseconds between 1970-01-01 and PostgreSQL's own epoch, 2000-01-01. */
const EPOCH_SHIFT_MICROS = 946_684_800_000_000;
const HIGH_WORD_MAX = 0x1f_ffff;

function text(bytes: Buffer, start: number, end: number): string {
  return bytes.toString('utf8', start, end);
}

function int8(bytes: Buffer, start: number, end: number): number {
  expectLength(start, end, 8, 'int8');
  const high = bytes.readInt32BE(start);
  const value = high * TWO_32 + bytes.readUInt32BE(start + 4);
  if (high > HIGH_WORD_MAX || !Number.isSafeInteger(value)) {
    throw new InvariantError('int8_not_exact', { value: bytes.readBigInt64BE(start) });
  }
  return value;
}

/** Microseconds since 1970; the years that a safe integer cannot hold (after 2255) and the infinities throw. */
function timestamptz(bytes: Buffer, start: number, end: number): number {
  expectLength(start, end, 8, 'timestamptz');
  const value = bytes.readInt32BE(start) * TWO_32 + bytes.readUInt32BE(start + 4) + EPOCH_SHIFT_MICROS;
  if (!Number.isSafeInteger(value)) {
    throw new InvariantError('timestamptz_not_exact', { microsSince2000: bytes.readBigInt64BE(start) });
  }
  return value;
}

function jsonb(bytes: Buffer, start: number, end: number): string {
  invariant(bytes[start] === 1, 'jsonb_version', { version: bytes[start] });
  return text(bytes, start + 1, end);
}

const SCALARS: ReadonlyMap<number, Decoder> = new Map<number, Decoder>([
  [16, (bytes, start) => bytes[start] === 1],
  [17, (bytes, start, end) => Buffer.from(bytes.subarray(start, end))],
  [18, text], // "char"
  [19, text], // name
  [20, int8],
  [21, (bytes, start) => bytes.readInt16BE(start)],
  [23, (bytes, start) => bytes.readInt32BE(start)],
  [25, text],
  [26, (bytes, start) => bytes.readUInt32BE(start)], // oid
  [114, text], // json
  [700, (bytes, start) => bytes.readFloatBE(start)],
  [701, (bytes, start) => bytes.readDoubleBE(start)],
  [705, text], // an untyped literal
  [1042, text], // char(n)
  [1043, text], // varchar
  [1184, timestamptz],
  [2278, () => null], // void
  [2950, (bytes, start) => formatUuid(bytes, start)],
  [3802, jsonb],
]);

const ARRAY_OIDS = [199, 1000, 1001, 1003, 1005, 1007, 1009, 1015, 1016, 1022, 1185, 2951, 3807];

/** One-dimensional arrays; NULL elements become null. The element type is in the value itself. */
function array(bytes: Buffer, start: number): unknown[] {
  const dimensions = bytes.readInt32BE(start);
  if (dimensions === 0) return [];
  invariant(dimensions === 1, 'array_dimensions', { dimensions });
  const oid = bytes.readUInt32BE(start + 8);
  const decode = SCALARS.get(oid);
  invariant(decode !== undefined, 'unknown_type', { oid });
  const out = new Array<unknown>(bytes.readInt32BE(start + 12));
  let at = start + 20;
  for (let i = 0; i < out.length; i++) {
    const length = bytes.readInt32BE(at);
    at += 4;
    if (length < 0) {
      out[i] = null;
      continue;
    }
    out[i] = decode(bytes, at, at + length);
    at += length;
  }
  return out;
}

/** The decoder of a column's type; an unknown type is an InvariantError that names its OID and the column. */
export function decoderFor(oid: number, column: string): Decoder {
  const decoder = SCALARS.get(oid) ?? (ARRAY_OIDS.includes(oid) ? array : undefined);
  invariant(decoder !== undefined, 'unknown_type', { oid, column });
  return decoder;
}

function expectLength(start: number, end: number, bytes: number, type: string): void {
  invariant(end - start === bytes, 'value_length', { type, bytes: end - start });
}
