import { sentenceOf } from '../errors.ts';
import type { Message, Outcome } from '../message.ts';

/** Where a delivery reports to. */
interface Ledger<T> {
  readonly lost: AbortSignal;
  conclude(delivery: Delivery<T>, outcome: Outcome, error?: string): Promise<void>;
}

/** A message in the hands of a consumer, who may say what became of it. Who says nothing has completed it. */
export type Delivery<T = unknown> = Message<T> & Settling<T>;

class Settling<T> {
  readonly #ledger: Ledger<T>;

  constructor(ledger: Ledger<T>) {
    this.#ledger = ledger;
  }

  /** Fires when its lease is lost: somebody else may have the message from then on. */
  get signal(): AbortSignal {
    return this.#ledger.lost;
  }

  /**
   * Done, with every message before it in its partition. Resolves when the broker has carried it out; the others do so too and
   * throw the same.
   *
   * @throws RefusedError when it was not carried out and the message comes again: AckError, `lease_lost`, or `settled` when another
   *   word was said of it before; InDoubtError when nobody knows
   */
  ack(): Promise<void> {
    return this.#settle('completed');
  }

  /** It comes again, with all after it, and has used up an attempt; a dead letter with this reason after the last one. */
  nack(error?: unknown): Promise<void> {
    return this.#settle('failed', error);
  }

  /** It comes again, with all after it, at no cost. */
  retry(): Promise<void> {
    return this.#settle('retry');
  }

  /** A dead letter now. */
  deadLetter(error?: unknown): Promise<void> {
    return this.#settle('dlq', error);
  }

  #settle(outcome: Outcome, error?: unknown): Promise<void> {
    const reason = error === undefined ? undefined : sentenceOf(error);
    return this.#ledger.conclude(this as unknown as Delivery<T>, outcome, reason);
  }
}

export function deliveryOf<T>(ledger: Ledger<T>, message: Message<T>): Delivery<T> {
  return Object.assign(new Settling<T>(ledger), message);
}
