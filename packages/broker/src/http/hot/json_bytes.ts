/**
 * Builds JSON text out of strings and ready bytes. Small pieces are gathered in one buffer; a large one becomes a
 * chunk of its own, so that a megabyte of payload is not copied to be sent.
 */
const SPLICE_BYTES = 32 * 1024;
const CHUNK_BYTES_MAX = 1024 * 1024;
const CHUNK_BYTES_MIN = 1024;

export class JsonBytes {
  readonly #chunks: Buffer[] = [];
  #buffer: Buffer;
  #from = 0;
  #at = 0;

  /** `expectedBytes` only sizes the first buffer. */
  constructor(expectedBytes: number) {
    this.#buffer = Buffer.allocUnsafeSlow(
      Math.min(Math.max(expectedBytes, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX),
    );
  }

  text(text: string): void {
    // A UTF-16 unit takes at most three bytes of UTF-8.
    this.#reserve(text.length * 3);
    this.#at += this.#buffer.write(text, this.#at, 'utf8');
  }

  bytes(bytes: Buffer): void {
    if (bytes.length >= SPLICE_BYTES) {
      this.#cut();
      this.#chunks.push(bytes);
      return;
    }
    this.#reserve(bytes.length);
    bytes.copy(this.#buffer, this.#at);
    this.#at += bytes.length;
  }

  /** The text so far, in pieces to be sent in this order. */
  chunks(): Buffer[] {
    this.#cut();
    return this.#chunks;
  }

  #reserve(bytes: number): void {
    if (this.#at + bytes <= this.#buffer.length) return;
    this.#cut();
    this.#buffer = Buffer.allocUnsafeSlow(
      Math.max(bytes, Math.min(this.#buffer.length * 2, CHUNK_BYTES_MAX)),
    );
    this.#from = 0;
    this.#at = 0;
  }

  /** Closes the piece that is being filled. */
  #cut(): void {
    if (this.#at > this.#from) this.#chunks.push(this.#buffer.subarray(this.#from, this.#at));
    this.#from = this.#at;
  }
}
