import { ackErrorOf, acknowledge } from '../calls/ack.ts';
import { originOf } from '../calls/pop.ts';
import { AbortedError, InDoubtError, RefusedError } from '../errors.ts';
import type { AckResult, Message, Outcome } from '../message.ts';
import type { Transport } from '../wire/transport.ts';
import { type Delivery, deliveryOf } from './delivery.ts';
import { LeaseKeeper } from './lease.ts';

/** An ack that is not answered is tried again for as long as the lease holds, at most so far apart. */
const ROUNDS = { retries: Number.POSITIVE_INFINITY, baseMs: 200, maxMs: 2_000, lasting: true };

interface Entry<T> {
  readonly message: Message<T>;
  readonly delivery: Delivery<T>;
  /** What it became; null as long as nobody has said. */
  outcome: Outcome | null;
  error: string | undefined;
  /** What the broker said to that. */
  result: AckResult | null;
}

/**
 * What one pop gave out, and what became of it. Every message ends in one of three ways: acked, given back, or lost with
 * the lease. A partition is over as soon as the broker says that its lease is: what is left of it comes again, so nobody
 * should work on it any more.
 */
export class Batch<T> {
  readonly deliveries: readonly Delivery<T>[];
  readonly #entries: Map<Delivery<T>, Entry<T>>;
  readonly #transport: Transport;
  readonly #keeper: LeaseKeeper;
  readonly #report: (error: unknown) => void;
  readonly #over = new Set<string>();
  #flushed: Promise<void> = Promise.resolve();

  /**
   * @param sinceMs when they were asked for, by `performance.now()`
   * @param report told of acks that were not carried out and that nobody waits for
   */
  constructor(
    transport: Transport,
    messages: readonly Message<T>[],
    leaseSeconds: number,
    sinceMs: number,
    report: (error: unknown) => void,
  ) {
    const first = messages[0]!;
    this.#transport = transport;
    this.#report = report;
    this.#keeper = new LeaseKeeper(transport, first.leaseId, leaseSeconds, originOf(first), sinceMs);
    this.#entries = new Map();
    for (const message of messages) {
      const delivery = deliveryOf(this, message);
      this.#entries.set(delivery, { message, delivery, outcome: null, error: undefined, result: null });
    }
    this.deliveries = [...this.#entries.keys()];
  }

  /** Fires when the lease is lost. */
  get lost(): AbortSignal {
    return this.#keeper.lost;
  }

  /** Whether it still makes sense to work on a message. */
  isOpen(delivery: Delivery<T>): boolean {
    const entry = this.#entries.get(delivery)!;
    return entry.outcome === null && !this.lost.aborted && !this.#over.has(entry.message.partitionId);
  }

  /** Whether something was put back on purpose, so that it comes again at once. */
  get sentBack(): boolean {
    return [...this.#entries.values()].some(({ outcome }) => outcome === 'retry');
  }

  /** Notes what became of a message; the first word counts. Nothing is sent yet. */
  settle(delivery: Delivery<T>, outcome: Outcome, error?: string): void {
    const entry = this.#entries.get(delivery)!;
    if (entry.outcome !== null) return;
    entry.outcome = outcome;
    entry.error = error;
  }

  /**
   * Notes it, sends it, and resolves when the broker has carried it out.
   *
   * @throws RefusedError `settled` when another word came before, `lease_lost` when the lease of its partition is over; AckError or
   *   AckInDoubtError when the broker did not carry it out; InDoubtError `lease_lost` when it was over before there was an answer
   */
  async conclude(delivery: Delivery<T>, outcome: Outcome, error?: string): Promise<void> {
    this.settle(delivery, outcome, error);
    const entry = this.#entries.get(delivery)!;
    if (entry.outcome !== outcome) {
      throw new RefusedError(`this message was settled before, as ${entry.outcome}`, { code: 'settled' });
    }
    await this.flush().catch((failure) => {
      if (entry.result === null) throw failure;
      // What went wrong with others that were noted before; their own callers, if there are any, hear of it too.
      if (entry.result.success) this.#report(failure);
    });
    if (entry.result === null) throw leaseLost();
    const failure = ackErrorOf([entry.result]);
    if (failure !== null) throw failure;
  }

  /**
   * Sends what was noted, and goes on trying while the lease holds.
   *
   * @throws AckError or AckInDoubtError when the broker did not carry out some of it, RefusedError `lease_lost` when the lease is over,
   *   InDoubtError `lease_lost` when it was over before there was an answer
   */
  flush(): Promise<void> {
    // One at a time: an older completion must not overtake a newer failure.
    const mine = this.#flushed.catch(() => {}).then(() => this.#send());
    this.#flushed = mine;
    return mine;
  }

  /** From now on acks are tried for as long as the lease lasts, which is not extended any more. */
  letRunOut(): void {
    this.#keeper.letRunOut();
  }

  /** Sends what was noted, gives the rest back, and lets the lease go. Throws as `flush` does. */
  async release(): Promise<void> {
    this.letRunOut();
    try {
      for (const entry of this.#entries.values()) {
        // One message a partition would do; the others say the same.
        if (this.isOpen(entry.delivery)) entry.outcome = 'retry';
      }
      await this.flush();
    } finally {
      this.#keeper.stop();
    }
  }

  async #send(): Promise<void> {
    const due = [...this.#entries.values()].filter(
      ({ result, outcome, message }) =>
        result === null && outcome !== null && !this.#over.has(message.partitionId),
    );
    if (due.length === 0) return;
    if (this.lost.aborted) throw leaseLost();
    const acks = due.map(({ message, outcome, error }) => ({ message, outcome: outcome!, error }));
    const results = await acknowledge(this.#transport, acks, ROUNDS, { signal: this.lost }).catch((error) => {
      throw error instanceof AbortedError && this.lost.aborted ? lostOnTheWay(error) : error;
    });
    results.forEach((result, index) => {
      due[index]!.result = result;
      if (!result.success || result.leaseReleased) this.#over.add(due[index]!.message.partitionId);
    });
    if (this.#over.size > 0 && this.deliveries.every((delivery) => !this.isOpen(delivery)))
      this.#keeper.stop();
    const failure = ackErrorOf(results);
    if (failure !== null) throw failure;
  }
}

/** Nothing was sent. */
function leaseLost(): RefusedError {
  return new RefusedError('the lease is over', { code: 'lease_lost' });
}

function lostOnTheWay(cause: unknown): InDoubtError {
  const sentence = 'the lease ended before there was an answer to an ack, which may have been carried out';
  return new InDoubtError(sentence, { code: 'lease_lost', cause });
}
