/**
 * Messages that cannot be taken yet: something has to be read for one of them first, or too much waits to be written. A
 * paused socket still delivers what it had read, 64 KiB at most; that is kept here, in order.
 */
import { decodePgoutput, type PgoutputMessage, type Tuple } from '../replication/pgoutput.ts';

export interface Held {
  readonly message: PgoutputMessage;
  /** What was read for it; undefined: nothing was asked. */
  read: Tuple | null | undefined;
}

export class Backlog {
  #held: Held[] = [];
  #at = 0;

  get empty(): boolean {
    return this.#at === this.#held.length;
  }

  get first(): Held | undefined {
    return this.#held[this.#at];
  }

  /** `bytes` may be reused by the caller. Throws ProtocolViolation. */
  add(bytes: Buffer, from: number, to: number): void {
    this.#held.push({ message: decodePgoutput(Buffer.from(bytes.subarray(from, to))), read: undefined });
  }

  shift(): void {
    this.#at++;
    if (this.empty) {
      this.#held = [];
      this.#at = 0;
    }
  }

  /** In order, from the first one. */
  *ahead(): Generator<Held> {
    for (let i = this.#at; i < this.#held.length; i++) yield this.#held[i]!;
  }
}
