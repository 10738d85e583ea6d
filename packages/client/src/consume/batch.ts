import { type Ack, acknowledge } from '../calls/ack.ts';
import { originOf } from '../calls/pop.ts';
import { InDoubtError, OverloadedError, RefusedError, UnavailableError } from '../errors.ts';
import type { Message, Outcome } from '../message.ts';
import { pauseMs } from '../wire/backoff.ts';
import { linked, pause } from '../wire/signals.ts';
import type { Transport } from '../wire/transport.ts';
import { type Delivery, deliveryOf } from './delivery.ts';
import { LeaseKeeper } from './lease.ts';

/** An ack that is not answered is tried again for as long as the lease holds, at most so far apart. */
const ACK_PAUSES = { retries: 0, overloadedRetries: 0, baseMs: 200, maxMs: 2_000 };

interface Entry<T> {
  readonly message: Message<T>;
  readonly delivery: Delivery<T>;
  /** What it became; null as long as nobody has said. */
  outcome: Outcome | null;
  error: string | undefined;
  sent: boolean;
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
  readonly #over = new Set<string>();
  #flushed: Promise<void> = Promise.resolve();

  /** @param sinceMs when they were asked for, by `performance.now()` */
  constructor(transport: Transport, messages: readonly Message<T>[], leaseSeconds: number, sinceMs: number) {
    const first = messages[0]!;
    this.#transport = transport;
    this.#keeper = new LeaseKeeper(transport, first.leaseId, leaseSeconds, originOf(first), sinceMs);
    this.#entries = new Map();
    for (const message of messages) {
      const delivery = deliveryOf(this, message);
      this.#entries.set(delivery, { message, delivery, outcome: null, error: undefined, sent: false });
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

  /** Notes what became of a message; the first word counts. Nothing is sent yet. */
  settle(delivery: Delivery<T>, outcome: Outcome, error?: string): void {
    const entry = this.#entries.get(delivery)!;
    if (entry.outcome !== null) return;
    entry.outcome = outcome;
    entry.error = error;
  }

  /**
   * Sends what was noted, and goes on trying while the lease holds.
   *
   * @throws RefusedError `ack_refused` when the broker did not carry out some of it, `lease_lost` when the lease is over
   */
  flush(signal?: AbortSignal): Promise<void> {
    // One at a time: an older completion must not overtake a newer failure.
    const mine = this.#flushed.catch(() => {}).then(() => this.#send(signal));
    this.#flushed = mine;
    return mine;
  }

  /** Sends what was noted, gives the rest back, and lets the lease go. Throws as `flush` does. */
  async release(signal?: AbortSignal): Promise<void> {
    try {
      for (const entry of this.#entries.values()) {
        // One message a partition would do; the others say the same.
        if (this.isOpen(entry.delivery)) entry.outcome = 'retry';
      }
      await this.flush(signal);
    } finally {
      this.#keeper.stop();
    }
  }

  async #send(signal: AbortSignal | undefined): Promise<void> {
    const due = [...this.#entries.values()].filter(
      ({ sent, outcome, message }) => !sent && outcome !== null && !this.#over.has(message.partitionId),
    );
    if (due.length === 0) return;
    const acks = due.map(({ message, outcome, error }) => ({ message, outcome: outcome!, error }));
    const results = await this.#acknowledge(acks, signal);
    let refused: string | null = null;
    results.forEach(({ success, error, leaseReleased }, index) => {
      due[index]!.sent = true;
      if (!success) refused ??= error ?? 'unknown';
      if (!success || leaseReleased) this.#over.add(due[index]!.message.partitionId);
    });
    if (this.#over.size > 0 && this.deliveries.every((delivery) => !this.isOpen(delivery)))
      this.#keeper.stop();
    if (refused !== null) throw new RefusedError(refused, { code: 'ack_refused', body: results });
  }

  async #acknowledge(acks: readonly Ack[], signal: AbortSignal | undefined) {
    const link = linked(this.lost, signal);
    try {
      for (let round = 0; ; round++) {
        try {
          return await acknowledge(this.#transport, acks, { signal: link.signal });
        } catch (error) {
          if (this.lost.aborted)
            throw new RefusedError('the lease is over', { code: 'lease_lost', cause: error });
          if (!isPassing(error)) throw error;
          await pause(pauseMs(ACK_PAUSES, round), link.signal);
        }
      }
    } finally {
      link.unlink();
    }
  }
}

function isPassing(error: unknown): boolean {
  return (
    error instanceof UnavailableError || error instanceof InDoubtError || error instanceof OverloadedError
  );
}
