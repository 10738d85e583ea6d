const DRAW_EVERY_MS = 100;

/** One line on a terminal that tells how far long work is, and goes when it is over. Without a terminal: nothing. */
export class Progress {
  readonly #stream: NodeJS.WriteStream | null;
  #drawnAt = 0;
  #drawn = false;

  constructor(stream: NodeJS.WriteStream | null) {
    this.#stream = stream;
  }

  /** @param text is asked only when there is something to draw */
  show(text: () => string): void {
    const now = performance.now();
    if (this.#stream === null || now - this.#drawnAt < DRAW_EVERY_MS) return;
    this.#drawnAt = now;
    this.#drawn = true;
    this.#stream.write(`\r\u001b[2K${text().slice(0, (this.#stream.columns || 80) - 1)}`);
  }

  /** Makes room for other lines. */
  clear(): void {
    if (this.#drawn) this.#stream?.write('\r\u001b[2K');
    this.#drawn = false;
  }
}
