/** Writes JSON into one growing buffer, byte by byte where that beats a call into the platform: short ASCII. */

/** Above, the platform's own writing is faster. */
const WALKED_MAX = 128;
const BYTES_PER_UNIT_MAX = 3;
const DIGITS_MAX = 17;
const ZERO = 0x30;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const ESCAPE_BYTES_MAX = 6;
const HEX_DIGITS = '0123456789abcdef';
/** By byte: what stands behind the backslash, 0 for the long form. */
const SHORT_ESCAPES = new Uint8Array(256);
for (const [escaped, letter] of ['""', '\\\\', '\bb', '\ff', '\nn', '\rr', '\tt']) {
  SHORT_ESCAPES[escaped!.charCodeAt(0)] = letter!.charCodeAt(0);
}

/** Longer text is looked through before it is escaped, so that it needs little more room than its own length. */
const ESCAPED_BLINDLY_MAX = 1_024;

export class JsonWriter {
  readonly #capacity: number;
  #bytes: Buffer;
  /** Before it lies what was cut off. */
  #from = 0;
  #at = 0;

  /** `capacity`: bytes to begin with. */
  constructor(capacity: number) {
    this.#capacity = Math.max(64, capacity);
    this.#bytes = Buffer.allocUnsafe(this.#capacity);
  }

  /** Bytes written so far, since the last cut. */
  get length(): number {
    return this.#at - this.#from;
  }

  /** Forgets what was written behind the first `length` bytes. */
  rewind(length: number): void {
    this.#at = this.#from + length;
  }

  /** What was written. The writer must not be used after. */
  bytes(): Buffer {
    return this.#bytes.subarray(this.#from, this.#at);
  }

  /** What was written since the last cut; the writer begins anew behind it, in the same memory while there is some. */
  cut(): Buffer {
    const piece = this.bytes();
    this.#from = this.#at;
    return piece;
  }

  /** Short text, known to be ASCII, as it is. */
  ascii(text: string): void {
    const { length } = text;
    this.#reserve(length);
    const bytes = this.#bytes;
    const at = this.#at;
    for (let i = 0; i < length; i++) bytes[at + i] = text.charCodeAt(i);
    this.#at = at + length;
  }

  /** Any text as it is. */
  text(text: string): void {
    this.#reserve(text.length * BYTES_PER_UNIT_MAX);
    this.#at += this.#bytes.write(text, this.#at);
  }

  /** A string with its quotes, escaped as JSON.stringify does. */
  string(text: string): void {
    const { length } = text;
    if (length > WALKED_MAX) {
      this.text(JSON.stringify(text));
      return;
    }
    this.#reserve(length + 2);
    const bytes = this.#bytes;
    let at = this.#at;
    bytes[at++] = QUOTE;
    for (let i = 0; i < length; i++) {
      const unit = text.charCodeAt(i);
      if (unit < 0x20 || unit > 0x7e || unit === QUOTE || unit === BACKSLASH) {
        this.text(JSON.stringify(text));
        return;
      }
      bytes[at++] = unit;
    }
    bytes[at++] = QUOTE;
    this.#at = at;
  }

  /** Bytes as they are: `from` (inclusive) to `to` (exclusive). */
  raw(bytes: Uint8Array, from: number, to: number): void {
    const length = to - from;
    this.#reserve(length);
    const out = this.#bytes;
    const at = this.#at;
    if (length > WALKED_MAX) out.set(bytes.subarray(from, to), at);
    else for (let i = 0; i < length; i++) out[at + i] = bytes[from + i]!;
    this.#at = at + length;
  }

  /**
   * A string with its quotes, from what should be its UTF-8. Escaped are the quote, the backslash and what is below U+0020,
   * nothing else. False: all of it is ASCII; else nobody looked whether it is UTF-8.
   */
  utf8(bytes: Uint8Array, from: number, to: number): boolean {
    const length = to - from;
    if (length > ESCAPED_BLINDLY_MAX) {
      const escapes = countEscapes(bytes, from, to);
      this.#reserve(length + escapes * (ESCAPE_BYTES_MAX - 1) + 2);
      if (escapes === 0) {
        this.#bytes[this.#at] = QUOTE;
        this.#bytes.set(bytes.subarray(from, to), this.#at + 1);
        this.#at += length + 2;
        this.#bytes[this.#at - 1] = QUOTE;
        return true;
      }
    } else this.#reserve(length * ESCAPE_BYTES_MAX + 2);
    const out = this.#bytes;
    let at = this.#at;
    let all = 0;
    out[at++] = QUOTE;
    for (let i = from; i < to; i++) {
      const byte = bytes[i]!;
      all |= byte;
      if (byte >= 0x20 && byte !== QUOTE && byte !== BACKSLASH) {
        out[at++] = byte;
        continue;
      }
      out[at++] = BACKSLASH;
      const short = SHORT_ESCAPES[byte]!;
      if (short !== 0) {
        out[at++] = short;
        continue;
      }
      out[at] = 0x75;
      out[at + 1] = ZERO;
      out[at + 2] = ZERO;
      out[at + 3] = ZERO + (byte >> 4);
      out[at + 4] = HEX_DIGITS.charCodeAt(byte & 15);
      at += 5;
    }
    out[at++] = QUOTE;
    this.#at = at;
    return all > 0x7f;
  }

  /** A safe integer, not negative. */
  integer(value: number): void {
    this.#reserve(DIGITS_MAX);
    if (value > 0x7fffffff) {
      this.ascii(String(value));
      return;
    }
    let digits = 1;
    for (let power = 10; power <= value; power *= 10) digits++;
    const bytes = this.#bytes;
    let at = this.#at + digits;
    this.#at = at;
    let rest = value | 0;
    for (let i = 0; i < digits; i++) {
      const next = (rest / 10) | 0;
      bytes[--at] = ZERO + rest - next * 10;
      rest = next;
    }
  }

  #reserve(more: number): void {
    if (this.#at + more <= this.#bytes.length) return;
    const kept = this.#at - this.#from;
    // Behind a cut the old memory belongs to the pieces: begun is a new one, as large as the first one was.
    const room = this.#from === 0 ? 2 * this.#bytes.length : this.#capacity;
    const grown = Buffer.allocUnsafe(Math.max(kept + more, room));
    this.#bytes.copy(grown, 0, this.#from, this.#at);
    this.#bytes = grown;
    this.#from = 0;
    this.#at = kept;
  }
}

function countEscapes(bytes: Uint8Array, from: number, to: number): number {
  let count = 0;
  for (let i = from; i < to; i++) {
    const byte = bytes[i]!;
    if (byte < 0x20 || byte === QUOTE || byte === BACKSLASH) count++;
  }
  return count;
}
