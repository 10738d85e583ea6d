/**
 * The text of a PostgreSQL array as a JSON array, by the grammar of "Array Input and Output Syntax": optional bounds, nested
 * braces, `NULL` unquoted, and backslash escapes inside and outside quotes.
 *
 * A text that does not follow it becomes a JSON string as a whole: better a value that is readable than a stream that
 * stands still.
 */
import type { JsonWriter } from '../../../log/json/writer.ts';
import { type ArrayForm, writeValue } from './values.ts';

/** PostgreSQL's own limit (MAXDIM). */
const DIMENSIONS_MAX = 6;
const OPEN = 0x7b;
const CLOSE = 0x7d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const EQUALS = 0x3d;
const BRACKET = 0x5b;
const BOUNDS = /^(?:\[[-+]?\d+(?::[-+]?\d+)?\])+$/;

/** Writes the array that is printed in `bytes[from..to]`. Throws EncodingFault. */
export function writeArray(
  writer: JsonWriter,
  form: ArrayForm,
  bytes: Buffer,
  from: number,
  to: number,
): void {
  const start = writer.length;
  const end = new ArrayText(writer, form, bytes, to).array(afterBounds(bytes, from, to), 1);
  if (end === to) return;
  writer.rewind(start);
  writer.utf8(bytes, from, to);
}

/** `[1:3][0:2]=` says where the indices begin; JSON has nothing for it. */
function afterBounds(bytes: Buffer, from: number, to: number): number {
  if (bytes[from] !== BRACKET) return from;
  const equals = bytes.indexOf(EQUALS, from);
  if (equals < 0 || equals >= to || !BOUNDS.test(bytes.toString('latin1', from, equals))) return from;
  return equals + 1;
}

class ArrayText {
  readonly #writer: JsonWriter;
  readonly #form: ArrayForm;
  readonly #bytes: Buffer;
  readonly #end: number;

  constructor(writer: JsonWriter, form: ArrayForm, bytes: Buffer, end: number) {
    this.#writer = writer;
    this.#form = form;
    this.#bytes = bytes;
    this.#end = end;
  }

  /** Writes the array at `at`; the index after it, or -1 when it is none. */
  array(at: number, depth: number): number {
    if (this.#at(at) !== OPEN || depth > DIMENSIONS_MAX) return -1;
    this.#writer.ascii('[');
    at++;
    if (this.#at(at) !== CLOSE) {
      for (let first = true; ; first = false) {
        if (!first) this.#writer.ascii(',');
        at = this.#at(at) === OPEN ? this.array(at, depth + 1) : this.#element(at);
        if (at < 0) return -1;
        const next = this.#at(at);
        if (next === CLOSE) break;
        if (next !== this.#form.delimiter) return -1;
        at++;
      }
    }
    this.#writer.ascii(']');
    return at + 1;
  }

  #element(at: number): number {
    const quoted = this.#at(at) === QUOTE;
    const start = quoted ? at + 1 : at;
    const end = quoted ? this.#quotedEnd(start) : this.#plainEnd(start);
    if (end < 0) return -1;
    if (!quoted && this.#isNull(start, end)) this.#writer.ascii('null');
    else this.#write(start, end);
    return quoted ? end + 1 : end;
  }

  #quotedEnd(at: number): number {
    while (at < this.#end && this.#bytes[at] !== QUOTE) at += this.#bytes[at] === BACKSLASH ? 2 : 1;
    return at < this.#end ? at : -1;
  }

  #plainEnd(start: number): number {
    let at = start;
    for (; at < this.#end; at += this.#bytes[at] === BACKSLASH ? 2 : 1) {
      const byte = this.#bytes[at]!;
      if (byte === CLOSE || byte === this.#form.delimiter) break;
      if (byte === OPEN || byte === QUOTE) return -1;
    }
    return at > start && at < this.#end ? at : -1;
  }

  #isNull(start: number, end: number): boolean {
    return end - start === 4 && this.#bytes.toString('latin1', start, end).toLowerCase() === 'null';
  }

  #write(start: number, end: number): void {
    const { element } = this.#form;
    const backslash = this.#bytes.indexOf(BACKSLASH, start);
    if (backslash < 0 || backslash >= end) {
      writeValue(this.#writer, element, this.#bytes, start, end);
      return;
    }
    const plain = Buffer.allocUnsafe(end - start);
    let length = 0;
    for (let at = start; at < end; at++) {
      if (this.#bytes[at] === BACKSLASH) at++;
      plain[length++] = this.#bytes[at]!;
    }
    writeValue(this.#writer, element, plain, 0, length);
  }

  /** -1 behind the end. */
  #at(at: number): number {
    return at < this.#end ? this.#bytes[at]! : -1;
  }
}
