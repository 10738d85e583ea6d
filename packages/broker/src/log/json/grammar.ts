/**
 * The grammar of JSON over bytes: where a string, a number, a whole value ends. These functions accept exactly what
 * JSON.parse accepts (minus what nests too deeply), provided that the bytes are valid UTF-8: then every byte above
 * 0x7f lies inside a string or is an error, and none can look like a quote, a backslash or a bracket.
 *
 * They are plain functions over (bytes, index) with everything in local variables: as methods that keep the position
 * in a field the same loops took nearly twice as long.
 *
 * Nesting is limited although nothing recurses here: what is stored must stay readable for parsers that do.
 */
import { BodyFault } from './fault.ts';

/** Levels of objects and arrays within each other, counted from the outermost one of the body. */
export const JSON_DEPTH_MAX = 1000;

export const QUOTE = 0x22;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_BRACKET = 0x5b;
export const CLOSE_BRACKET = 0x5d;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;
export const MINUS = 0x2d;
export const ZERO = 0x30;
export const NINE = 0x39;
const PLUS = 0x2b;
const DOT = 0x2e;
const BACKSLASH = 0x5c;
const LOWER_U = 0x75;
const LOWER_E = 0x65;

/** 1 for a byte that needs a look inside a string: a quote, a backslash, a control character. */
const STOPS_STRING = new Uint8Array(256);
STOPS_STRING.fill(1, 0, 0x20);
STOPS_STRING[QUOTE] = 1;
STOPS_STRING[BACKSLASH] = 1;

/** 1 for the characters that may follow a backslash, `u` not among them. */
const SIMPLE_ESCAPE = new Uint8Array(256);
for (const character of '"\\/bfnrt') SIMPLE_ESCAPE[character.charCodeAt(0)] = 1;

const HEX_DIGIT = new Uint8Array(256);
for (const character of '0123456789abcdefABCDEF') HEX_DIGIT[character.charCodeAt(0)] = 1;

/** For each open level whether it is an object (1); scratch of the one call that runs at a time. */
const openObjects = new Uint8Array(JSON_DEPTH_MAX + 1);

/** The index of the first byte at or after `at` that is not white space. */
export function skipSpace(bytes: Uint8Array, at: number): number {
  for (;;) {
    const c = bytes[at]!;
    if (c > 0x20 || (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09)) return at;
    at++;
  }
}

/** The index after the value that begins at `at`. `depth`: containers that are open around it. */
export function skipValue(bytes: Uint8Array, at: number, depth: number): number {
  const outer = depth;
  for (;;) {
    // A value must begin here.
    const c = bytes[at];
    if (c === QUOTE) at = skipString(bytes, at);
    else if (c === OPEN_BRACE || c === OPEN_BRACKET) {
      if (depth === JSON_DEPTH_MAX) throw tooDeep();
      const object = c === OPEN_BRACE;
      openObjects[++depth] = object ? 1 : 0;
      at = skipSpace(bytes, at + 1);
      if (bytes[at] !== (object ? CLOSE_BRACE : CLOSE_BRACKET)) {
        if (object) at = skipName(bytes, at);
        continue;
      }
      at++;
      depth--;
    } else at = skipScalar(bytes, at);
    // A value has ended: close containers until another value must begin.
    for (;;) {
      if (depth === outer) return at;
      at = skipSpace(bytes, at);
      const object = openObjects[depth] === 1;
      const after = bytes[at];
      if (after === COMMA) {
        at = skipSpace(bytes, at + 1);
        if (object) at = skipName(bytes, at);
        break;
      }
      if (after !== (object ? CLOSE_BRACE : CLOSE_BRACKET)) throw unexpected(bytes, at);
      at++;
      depth--;
    }
  }
}

/** The index after the string that must begin at `at`. */
export function skipString(bytes: Uint8Array, at: number): number {
  if (bytes[at] !== QUOTE) throw unexpected(bytes, at);
  const length = bytes.length;
  at++;
  for (;;) {
    while (at < length && STOPS_STRING[bytes[at]!] === 0) at++;
    const c = bytes[at];
    if (c === QUOTE) return at + 1;
    if (c !== BACKSLASH) throw unexpected(bytes, at);
    const escaped = bytes[at + 1]!;
    if (SIMPLE_ESCAPE[escaped] === 1) at += 2;
    else if (escaped === LOWER_U) {
      for (let i = at + 2; i < at + 6; i++) if (HEX_DIGIT[bytes[i]!] !== 1) throw unexpected(bytes, i);
      at += 6;
    } else throw unexpected(bytes, at + 1);
  }
}

/** The index of the value of the member whose name must begin at `at`. */
function skipName(bytes: Uint8Array, at: number): number {
  return skipColon(bytes, skipString(bytes, at));
}

/** The index of the value after a member's name that ended at `at`. */
export function skipColon(bytes: Uint8Array, at: number): number {
  at = skipSpace(bytes, at);
  if (bytes[at] !== COLON) throw unexpected(bytes, at);
  return skipSpace(bytes, at + 1);
}

function skipScalar(bytes: Uint8Array, at: number): number {
  const c = bytes[at];
  if (c === 0x74) return skipWord(bytes, at, 'true');
  if (c === 0x66) return skipWord(bytes, at, 'false');
  if (c === 0x6e) return skipWord(bytes, at, 'null');
  return skipNumber(bytes, at);
}

function skipWord(bytes: Uint8Array, at: number, word: string): number {
  for (let i = 0; i < word.length; i++, at++) {
    if (bytes[at] !== word.charCodeAt(i)) throw unexpected(bytes, at);
  }
  return at;
}

function skipNumber(bytes: Uint8Array, at: number): number {
  if (bytes[at] === MINUS) at++;
  at = bytes[at] === ZERO ? at + 1 : skipDigits(bytes, at);
  if (bytes[at] === DOT) at = skipDigits(bytes, at + 1);
  if ((bytes[at]! | 0x20) === LOWER_E) {
    const sign = bytes[at + 1];
    at = skipDigits(bytes, sign === PLUS || sign === MINUS ? at + 2 : at + 1);
  }
  return at;
}

function skipDigits(bytes: Uint8Array, at: number): number {
  const start = at;
  while (bytes[at]! >= ZERO && bytes[at]! <= NINE) at++;
  if (at === start) throw unexpected(bytes, at);
  return at;
}

export function tooDeep(): BodyFault {
  return new BodyFault('', `the body nests objects and arrays deeper than ${JSON_DEPTH_MAX} levels`);
}

/** The fault of a byte at `at` that cannot stand there, or of a text that ends there. */
export function unexpected(bytes: Uint8Array, at: number): BodyFault {
  if (at >= bytes.length)
    return new BodyFault('', `not JSON: it ends too early, after ${bytes.length} bytes`);
  const c = bytes[at]!;
  const shown = c > 0x20 && c < 0x7f ? `'${String.fromCharCode(c)}'` : `0x${c.toString(16).padStart(2, '0')}`;
  return new BodyFault('', `not JSON: unexpected ${shown} at byte ${at}`);
}
