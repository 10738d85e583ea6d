import type { Outcome, PopOptions } from '../message.ts';
import type { Delivery } from './delivery.ts';

/** How messages are taken, by a consumer or a loop. `waitMs` is the length of one long poll, 30000 by default. */
export interface TakeOptions extends Omit<PopOptions, 'autoAck'> {
  /**
   * Length of the lease, s; it is extended while you work, so this is how soon somebody else gets the messages when this process
   * dies. It counts instead of the queue's `leaseTime`. 1 and up, default 60.
   */
  leaseSeconds?: number | undefined;
  /** Called with what went wrong and will be tried again, and with what ended a consumer. Default: `console.error`. */
  onError?: ((error: unknown) => void) | undefined;
}

export interface ConsumeOptions extends TakeOptions {
  /** How many batches are worked on at a time, each of another partition. 1..1000, default 1. */
  concurrency?: number | undefined;
  /** Completions are sent at the end of a batch, and meanwhile whenever so much time has passed, ms. Default 1000. */
  ackEveryMs?: number | undefined;
}

/** What a handler is told besides its messages. */
export interface Work {
  /** Fires when the lease is lost, or the consumer cannot wait any longer. */
  readonly signal: AbortSignal;
}

/** What a handler may say; nothing means completed, and to throw means failed, with the error as the reason. */
// biome-ignore lint/suspicious/noConfusingVoidType: a handler that returns nothing is the usual one.
export type Said = Outcome | undefined | void;

export type Handler<T> = (message: Delivery<T>, work: Work) => Said | Promise<Said>;
export type BatchHandler<T> = (messages: readonly Delivery<T>[], work: Work) => Said | Promise<Said>;

export const LEASE_SECONDS = 60;
export const WAIT_MS = 30_000;
