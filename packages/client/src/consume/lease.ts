import { extendLease } from '../calls/ack.ts';
import { AbortedError, QueenError, RefusedError } from '../errors.ts';
import { linked, pause } from '../wire/signals.ts';
import type { Transport } from '../wire/transport.ts';

/** Timers cannot be set for weeks. */
const PAUSE_MAX_MS = 600_000;

/**
 * Keeps a lease for as long as somebody works under it: extended each third of its length, so two extensions may get
 * lost. The work is told by `lost` when it is over all the same, by the broker's word or by this machine's clock: from then on
 * somebody else may have the messages.
 */
export class LeaseKeeper {
  readonly #transport: Transport;
  readonly #leaseId: string;
  readonly #seconds: number;
  readonly #affinity: string;
  readonly #lost = new AbortController();
  readonly #stopped = new AbortController();
  #until: number;
  #runningOut = false;

  /** @param sinceMs when the messages were asked for, by `performance.now()`: the lease cannot be older */
  constructor(transport: Transport, leaseId: string, seconds: number, affinity: string, sinceMs: number) {
    this.#transport = transport;
    this.#leaseId = leaseId;
    this.#seconds = seconds;
    this.#affinity = affinity;
    this.#until = sinceMs + seconds * 1000;
    void this.#keep();
  }

  /** Fires when the lease is lost. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  stop(): void {
    this.#stopped.abort();
  }

  /** It is not extended any more, and still fires when it is over. */
  letRunOut(): void {
    this.#runningOut = true;
  }

  async #keep(): Promise<void> {
    const signal = this.#stopped.signal;
    const third = Math.min((this.#seconds * 1000) / 3, PAUSE_MAX_MS);
    try {
      for (;;) {
        await pause(Math.min(third, Math.max(0, this.#until - performance.now())), signal);
        const asked = performance.now();
        if (asked >= this.#until) return this.#lose();
        if (this.#runningOut) continue;
        const kept = await this.#extend(Math.max(1, this.#until - asked));
        if (kept === false) return this.#lose();
        if (kept === true) this.#until = asked + this.#seconds * 1000;
      }
    } catch {
      // Stopped, or else the client was closed: then nobody extends it any more.
      if (!signal.aborted) this.#lose();
    }
  }

  /** True: extended. False: it is over. Null: nobody knows yet. */
  async #extend(leftMs: number): Promise<boolean | null> {
    const link = linked(this.#stopped.signal);
    // However often it is tried: nobody may hear too late that the lease is over.
    const timer = setTimeout(() => link.abort(), Math.min(leftMs, PAUSE_MAX_MS));
    const options = { signal: link.signal, affinity: this.#affinity, timeoutMs: Math.min(leftMs, 10_000) };
    try {
      return (await extendLease(this.#transport, this.#leaseId, this.#seconds, options)) !== null;
    } catch (error) {
      if (error instanceof RefusedError) return false;
      if (error instanceof QueenError && error.code !== 'closed') return null;
      throw error;
    } finally {
      clearTimeout(timer);
      link.unlink();
    }
  }

  #lose(): void {
    this.#lost.abort(new AbortedError('the lease is over', { code: 'lease_lost' }));
  }
}
