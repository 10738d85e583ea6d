/** A switch of the whole cluster as this broker remembers it, for a second. */
import type { Clock } from '../clock.ts';

const MEMO_MS = 1_000;

export class SwitchMemo {
  readonly #read: () => Promise<boolean>;
  readonly #clock: Clock;
  #on = true;
  #until = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | null = null;

  constructor(read: () => Promise<boolean>, clock: Clock) {
    this.#read = read;
    this.#clock = clock;
  }

  /** What was read last while the database does not answer; on when nothing ever was. Never rejects. */
  async on(): Promise<boolean> {
    if (this.#clock.now() >= this.#until) {
      this.#reading ??= this.#refresh();
      await this.#reading;
    }
    return this.#on;
  }

  /** Somebody knows better: the next question is answered from here. */
  set(on: boolean): void {
    this.#on = on;
    this.#until = this.#clock.now() + MEMO_MS;
  }

  /** Looks again at the next question. */
  forget(): void {
    this.#until = Number.NEGATIVE_INFINITY;
  }

  async #refresh(): Promise<void> {
    try {
      this.#on = await this.#read();
    } catch {
      // The call itself will meet the database, and say so.
    } finally {
      this.#until = this.#clock.now() + MEMO_MS;
      this.#reading = null;
    }
  }
}
