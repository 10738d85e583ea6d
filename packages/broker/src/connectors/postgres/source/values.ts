/**
 * How a column's value becomes JSON. The input is always what the type's output function prints under the connector's
 * session settings (UTC, ISO dates, hex bytea, shortest exact floats), for rows of the snapshot and of the stream alike, so
 * that both give the same characters.
 *
 * Digits are copied, never parsed: a numeric of 30 digits and a bigint beyond 2^53 stay what they are.
 */
import { isUtf8 } from 'node:buffer';
import { BodyFault } from '../../../log/json/fault.ts';
import { skipSpace, skipValue } from '../../../log/json/grammar.ts';
import type { JsonWriter } from '../../../log/json/writer.ts';
import { writeArray } from './arrays.ts';

/** A type as the catalog has it, domains followed to their base type. */
export interface ColumnType {
  readonly oid: number;
  /** `pg_type.typtype`: b base, c composite, e enum, r range, m multirange, p pseudo. */
  readonly kind: string;
  /** Of a true array: its element, also with domains followed. */
  readonly element: ColumnType | null;
  /** `pg_type.typdelim` of the element. */
  readonly delimiter: string;
}

export interface ArrayForm {
  readonly element: Exclude<ValueForm, ArrayForm>;
  /** The byte between two elements. */
  readonly delimiter: number;
}

export type ValueForm = 'boolean' | 'number' | 'json' | 'timestamp' | 'timestamptz' | 'string' | ArrayForm;

/** A value that is not UTF-8 although the session asked for it: the upstream database stores bytes of no encoding. */
export class EncodingFault extends Error {
  constructor() {
    super('a value is not UTF-8');
    this.name = 'EncodingFault';
  }
}

const FORMS: ReadonlyMap<number, Exclude<ValueForm, ArrayForm>> = new Map([
  [16, 'boolean'],
  [20, 'number'], // int8
  [21, 'number'], // int2
  [23, 'number'], // int4
  [26, 'number'], // oid
  [700, 'number'], // float4
  [701, 'number'], // float8
  [1700, 'number'], // numeric
  [114, 'json'],
  [3802, 'json'], // jsonb
  [1114, 'timestamp'],
  [1184, 'timestamptz'],
]);
/** Types below are PostgreSQL's own; extensions and users come after. */
const FIRST_NORMAL_OID = 16_384;
/** Arrays by the catalog, but printed as plain words. */
const VECTORS: ReadonlySet<number> = new Set([22, 30]);

/** How values of this type are written. */
export function valueForm(type: ColumnType): ValueForm {
  const { element } = type;
  if (element === null || VECTORS.has(type.oid)) return FORMS.get(type.oid) ?? 'string';
  // Of types that somebody else defined, only enums and composites are known to print what an array's grammar expects.
  if (element.oid >= FIRST_NORMAL_OID && element.kind !== 'e' && element.kind !== 'c') return 'string';
  return { element: FORMS.get(element.oid) ?? 'string', delimiter: type.delimiter.charCodeAt(0) };
}

/** Writes the value that is printed in `bytes`, from `from` (inclusive) to `to` (exclusive). Throws EncodingFault. */
export function writeValue(
  writer: JsonWriter,
  form: ValueForm,
  bytes: Buffer,
  from: number,
  to: number,
): void {
  if (form === 'number') {
    if (isJsonNumber(bytes, from, to)) writer.raw(bytes, from, to);
    else writer.utf8(bytes, from, to);
    return;
  }
  if (form === 'boolean') {
    writer.ascii(bytes[from] === 0x74 ? 'true' : 'false');
    return;
  }
  if (form === 'string') {
    if (writer.utf8(bytes, from, to) && !isUtf8(bytes.subarray(from, to))) throw new EncodingFault();
    return;
  }
  assertUtf8(bytes, from, to);
  if (form === 'json') writeJson(writer, bytes, from, to);
  else if (typeof form === 'object') writeArray(writer, form, bytes, from, to);
  else writeTimestamp(writer, bytes, from, to, form === 'timestamptz');
}

function assertUtf8(bytes: Buffer, from: number, to: number): void {
  for (let i = from; i < to; i++) {
    if (bytes[i]! < 0x80) continue;
    if (!isUtf8(bytes.subarray(i, to))) throw new EncodingFault();
    return;
  }
}

const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const MINUS = 0x2d;
const PLUS = 0x2b;

/** Of `NaN`, `Infinity` and the like it is not. */
function isJsonNumber(bytes: Uint8Array, from: number, to: number): boolean {
  const start = bytes[from] === MINUS ? from + 1 : from;
  let at = digitsEnd(bytes, start, to);
  if (at === start || (bytes[start] === DIGIT_0 && at > start + 1)) return false;
  if (at === to) return true;
  if (bytes[at] === 0x2e) {
    const fraction = at + 1;
    at = digitsEnd(bytes, fraction, to);
    if (at === fraction) return false;
  }
  if (at < to && (bytes[at]! | 0x20) === 0x65) {
    const signed = at + 1 < to && (bytes[at + 1] === PLUS || bytes[at + 1] === MINUS);
    const exponent = at + (signed ? 2 : 1);
    at = digitsEnd(bytes, exponent, to);
    if (at === exponent) return false;
  }
  return at === to;
}

function digitsEnd(bytes: Uint8Array, from: number, to: number): number {
  let at = from;
  while (at < to && bytes[at]! >= DIGIT_0 && bytes[at]! <= DIGIT_9) at++;
  return at;
}

/** Objects and arrays around a value in an event: the event, its row, and the dimensions of an array. */
const AROUND_MAX = 8;

/** Its inner formatting stays. Not JSON by our grammar (nested too deep, say): a string. */
function writeJson(writer: JsonWriter, bytes: Buffer, from: number, to: number): void {
  const text = bytes.subarray(from, to);
  try {
    const start = skipSpace(text, 0);
    const end = skipValue(text, start, AROUND_MAX);
    if (skipSpace(text, end) === text.length) {
      writer.raw(text, start, end);
      return;
    }
  } catch (error) {
    if (!(error instanceof BodyFault)) throw error;
  }
  writer.utf8(bytes, from, to);
}

const BLANK = 0x20;
const QUOTE = '"';
/** What a timestamp that has a form in ISO 8601 is printed with. */
const TIMESTAMP_BYTES = new Uint8Array(256);
for (const character of '0123456789-:.+ ') TIMESTAMP_BYTES[character.charCodeAt(0)] = 1;

/**
 * ISO 8601: a `T` for the blank, and a whole zone. What has no such form (the infinities, years before Christ) stays as
 * printed.
 */
function writeTimestamp(writer: JsonWriter, bytes: Buffer, from: number, to: number, zoned: boolean): void {
  let blank = -1;
  for (let i = from; i < to; i++) {
    if (TIMESTAMP_BYTES[bytes[i]!] === 0) {
      writer.utf8(bytes, from, to);
      return;
    }
    if (bytes[i] === BLANK && blank < 0) blank = i;
  }
  if (blank < 0) {
    writer.utf8(bytes, from, to);
    return;
  }
  writer.ascii(QUOTE);
  writer.raw(bytes, from, blank);
  writer.ascii('T');
  writer.raw(bytes, blank + 1, to);
  const sign = bytes[to - 3];
  if (zoned && (sign === PLUS || sign === MINUS)) writer.ascii(':00');
  writer.ascii(QUOTE);
}
