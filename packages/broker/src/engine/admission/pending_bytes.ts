/**
 * A cap on the bytes of requests that are accepted and not yet answered. Without it a database that stands still turns
 * into a broker that runs out of memory. A refusal is rare by intent, since older clients take it for final: a request
 * that does not fit is held for a moment first, in order of arrival, and one that is alone always passes.
 */
import type { Clock, Timer } from '../clock.ts';
import { EngineError } from '../errors.ts';

export interface PendingBytesSettings {
  maxBytes: number;
  /** How long a request is held before it is refused. */
  holdMs: number;
}

const RETRY_AFTER_SECONDS = 1;

interface Held {
  bytes: number;
  timer: Timer | null;
  admit: () => void;
}

export class PendingBytes {
  readonly #settings: PendingBytesSettings;
  readonly #clock: Clock;
  readonly #held: Set<Held> = new Set();
  #heldBytes = 0;
  #bytes = 0;
  #refused = 0;

  constructor(settings: PendingBytesSettings, clock: Clock) {
    this.#settings = settings;
    this.#clock = clock;
  }

  /**
   * Runs `work` with `bytes` counted as pending until it settles. Throws the EngineError `overloaded` when there is no
   * room in time; `work` has not been started then.
   */
  async run<T>(bytes: number, work: () => Promise<T>): Promise<T> {
    if (this.#held.size > 0 || !this.#fits(bytes)) await this.#hold(bytes);
    else this.#bytes += bytes;
    try {
      return await work();
    } finally {
      this.#bytes -= bytes;
      this.#admit();
    }
  }

  stats(): { bytes: number; held: number; refused: number } {
    return { bytes: this.#bytes, held: this.#held.size, refused: this.#refused };
  }

  #fits(bytes: number): boolean {
    return this.#bytes === 0 || this.#bytes + bytes <= this.#settings.maxBytes;
  }

  #hold(bytes: number): Promise<void> {
    // What is held is in memory too: a quarter of the cap at most.
    if (this.#heldBytes + bytes > this.#settings.maxBytes / 4 && this.#held.size > 0) {
      return Promise.reject(this.#refusal());
    }
    return new Promise((resolve, reject) => {
      const held: Held = { bytes, timer: null, admit: resolve };
      this.#held.add(held);
      this.#heldBytes += bytes;
      held.timer = this.#clock.after(this.#settings.holdMs, () => {
        this.#release(held);
        reject(this.#refusal());
        // A large one in front may have kept smaller ones waiting that fit.
        this.#admit();
      });
    });
  }

  #admit(): void {
    for (const held of this.#held) {
      if (!this.#fits(held.bytes)) return;
      this.#release(held);
      this.#bytes += held.bytes;
      held.admit();
    }
  }

  #release(held: Held): void {
    held.timer?.cancel();
    this.#held.delete(held);
    this.#heldBytes -= held.bytes;
  }

  #refusal(): EngineError {
    this.#refused++;
    return new EngineError(
      'overloaded',
      'overloaded',
      'too many bytes are waiting for the database; nothing of this request was taken, send it again later',
      { retryAfterSeconds: RETRY_AFTER_SECONDS },
    );
  }
}
