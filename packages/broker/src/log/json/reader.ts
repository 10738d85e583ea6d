/**
 * A pull reader over the bytes of a JSON text: it walks members and elements one by one, tells where each value
 * begins and ends, and decodes only the strings that the caller asks for. Nothing is built for what is skipped, so
 * a payload costs no object and its bytes can be taken as they are. The whole text is validated on the way
 * (see grammar.ts); any fault is a BodyFault.
 */
import { isUtf8 } from 'node:buffer';
import { BodyFault } from './fault.ts';
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  JSON_DEPTH_MAX,
  MINUS,
  NINE,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  skipColon,
  skipSpace,
  skipString,
  skipValue,
  tooDeep,
  unexpected,
  ZERO,
} from './grammar.ts';

/** Answers of `firstKey` and `nextKey` besides an index into the known keys. */
export const KEY_UNKNOWN = -1;
export const KEYS_END = -2;

export type JsonKind = 'object' | 'array' | 'string' | 'number' | 'boolean' | 'null';

/** Keys that a caller wants to tell apart, prepared once. */
export interface KnownKeys {
  readonly names: readonly string[];
  /** As they stand in a body that writes them without escapes. */
  readonly bytes: readonly Uint8Array[];
}

/**
 * `names`: the keys; `firstKey` and `nextKey` answer positions in this list. One that JSON cannot write without an
 * escape (it holds a quote, a backslash or a control character) is found in its escaped forms all the same.
 */
export function knownKeys(...names: string[]): KnownKeys {
  return { names, bytes: names.map((name) => Buffer.from(JSON.stringify(name).slice(1, -1))) };
}

export class JsonReader {
  readonly bytes: Buffer;
  /** Index of the next byte. At the first byte of a value whenever a method has left one to the caller. */
  at: number;
  #depth = 0;

  /** Stands at the text's value. Throws BodyFault when the bytes are not UTF-8. */
  constructor(bytes: Buffer) {
    if (!isUtf8(bytes)) throw new BodyFault('', 'not JSON: the body is not valid UTF-8');
    this.bytes = bytes;
    this.at = skipSpace(bytes, 0);
  }

  /** What the value at `at` is, by its first byte. Throws BodyFault when no value can begin with it. */
  kind(): JsonKind {
    const c = this.bytes[this.at];
    if (c === QUOTE) return 'string';
    if (c === OPEN_BRACE) return 'object';
    if (c === OPEN_BRACKET) return 'array';
    if (c === 0x74 || c === 0x66) return 'boolean';
    if (c === 0x6e) return 'null';
    if (c === MINUS || (c !== undefined && c >= ZERO && c <= NINE)) return 'number';
    throw unexpected(this.bytes, this.at);
  }

  /**
   * Enters the object at `at` and reads its first key. Answers the key's index in `known`, KEY_UNKNOWN, or KEYS_END
   * for an empty object; after a key the reader stands at its value, which the caller must consume.
   */
  firstKey(known: KnownKeys): number {
    this.#enter(OPEN_BRACE);
    if (this.bytes[this.at] === CLOSE_BRACE) return this.#leave();
    return this.#key(known);
  }

  /** The next key after a consumed value, or KEYS_END: then the object is consumed. */
  nextKey(known: KnownKeys): number {
    this.at = skipSpace(this.bytes, this.at);
    const c = this.bytes[this.at];
    if (c === CLOSE_BRACE) return this.#leave();
    if (c !== COMMA) throw unexpected(this.bytes, this.at);
    this.at = skipSpace(this.bytes, this.at + 1);
    return this.#key(known);
  }

  /** Enters the array at `at`. False: it is empty and consumed. True: the reader stands at the first element. */
  firstElement(): boolean {
    this.#enter(OPEN_BRACKET);
    if (this.bytes[this.at] !== CLOSE_BRACKET) return true;
    this.#leave();
    return false;
  }

  /** True: the reader stands at the next element. False: there is none, the array is consumed. */
  nextElement(): boolean {
    this.at = skipSpace(this.bytes, this.at);
    const c = this.bytes[this.at];
    if (c === CLOSE_BRACKET) {
      this.#leave();
      return false;
    }
    if (c !== COMMA) throw unexpected(this.bytes, this.at);
    this.at = skipSpace(this.bytes, this.at + 1);
    return true;
  }

  /** Consumes the value at `at`, whatever it is. Answers the index after its last byte. */
  skip(): number {
    this.at = skipValue(this.bytes, this.at, this.#depth);
    return this.at;
  }

  /** Consumes the string at `at` and answers its characters. */
  string(): string {
    const start = this.at;
    this.at = skipString(this.bytes, start);
    return decode(this.bytes, start, this.at);
  }

  /**
   * The same, for a member that mostly repeats: answers `guess` itself when the string is written in exactly these
   * ASCII characters, which spares making another copy of it.
   */
  stringLike(guess: string): string {
    const { bytes, at } = this;
    const length = guess.length;
    let i = 0;
    while (i < length) {
      const c = bytes[at + 1 + i]!;
      if (c !== guess.charCodeAt(i) || c > 0x7e || c < 0x20 || c === 0x5c || c === QUOTE) break;
      i++;
    }
    if (i < length || bytes[at] !== QUOTE || bytes[at + 1 + length] !== QUOTE) return this.string();
    this.at = at + length + 2;
    return guess;
  }

  /** Throws BodyFault unless only white space follows. */
  end(): void {
    this.at = skipSpace(this.bytes, this.at);
    if (this.at !== this.bytes.length) throw unexpected(this.bytes, this.at);
  }

  #enter(open: number): void {
    if (this.bytes[this.at] !== open) throw unexpected(this.bytes, this.at);
    if (this.#depth === JSON_DEPTH_MAX) throw tooDeep();
    this.#depth++;
    this.at = skipSpace(this.bytes, this.at + 1);
  }

  #leave(): typeof KEYS_END {
    this.#depth--;
    this.at++;
    return KEYS_END;
  }

  #key(known: KnownKeys): number {
    const { bytes, at: start } = this;
    if (bytes[start] !== QUOTE) throw unexpected(bytes, start);
    for (let k = 0; k < known.bytes.length; k++) {
      const name = known.bytes[k]!;
      const length = name.length;
      let i = 0;
      while (i < length && bytes[start + 1 + i] === name[i]) i++;
      if (i < length || bytes[start + 1 + length] !== QUOTE) continue;
      this.at = skipColon(bytes, start + 2 + length);
      return k;
    }
    const end = skipString(bytes, start);
    this.at = skipColon(bytes, end);
    // Written with an escape it may still be one of the known ones.
    const escaped = bytes.subarray(start, end).includes(0x5c);
    return escaped ? known.names.indexOf(decode(bytes, start, end)) : KEY_UNKNOWN;
  }
}

/** The characters of the string token `start..end` (with its quotes). */
function decode(bytes: Buffer, start: number, end: number): string {
  const text = bytes.toString('utf8', start + 1, end - 1);
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text;
}
