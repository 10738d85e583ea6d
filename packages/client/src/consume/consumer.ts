import { sentenceOf } from '../errors.ts';
import type { Outcome } from '../message.ts';
import { pauseMs } from '../wire/backoff.ts';
import { linked, pause, unlessAborted } from '../wire/signals.ts';
import type { Batch } from './batch.ts';
import type { Delivery } from './delivery.ts';
import type { BatchHandler, ConsumeOptions, Handler, Said } from './options.ts';
import { nextBatch, report, type Source } from './poll.ts';

const ACK_EVERY_MS = 1_000;
const CONCURRENCY_MAX = 1_000;

export interface StopOptions {
  /**
   * How long handlers may go on, ms. After that their signals fire and their messages are given back, whether they end or not.
   * Default: without a limit.
   */
  timeoutMs?: number | undefined;
}

/** How a batch is put through a handler; ends when nothing of it is left to do, or `stopping` fires. */
type Course<T> = (batch: Batch<T>, stopping: AbortSignal, force: AbortSignal) => Promise<void>;

/**
 * Takes batches and gives them to a handler, until it is stopped. As many loops as `concurrency` says: the broker
 * gives a partition to one of them at a time, so order holds within it.
 */
export class Consumer<T = unknown> {
  /**
   * Settles when it has stopped; rejects with a RefusedError when the broker will not give anything, of which `onError` hears as
   * well.
   */
  readonly done: Promise<void>;
  readonly #source: Source;
  readonly #options: ConsumeOptions;
  readonly #course: Course<T>;
  /** No further message is begun. */
  readonly #stopping = new AbortController();
  /** Nobody waits for handlers any more. */
  readonly #force = new AbortController();

  constructor(source: Source, course: Course<T>, options: ConsumeOptions) {
    const { concurrency = 1, signal } = options;
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > CONCURRENCY_MAX) {
      throw new RangeError(`concurrency is 1..${CONCURRENCY_MAX}, not ${concurrency}`);
    }
    this.#source = source;
    this.#course = course;
    this.#options = options;
    const now = () => this.#end(0);
    if (signal?.aborted === true) now();
    else signal?.addEventListener('abort', now, { once: true });
    this.done = this.#run(concurrency).finally(() => signal?.removeEventListener('abort', now));
  }

  /**
   * Begins no further message, lets those that are being handled come to their end, acks them and gives the others back.
   * Resolves when nothing is leased any more, for which a broker that takes no acks is waited for until the leases are over; rejects
   * as `done` does.
   */
  async stop(options: StopOptions = {}): Promise<void> {
    const timer = this.#end(options.timeoutMs);
    try {
      await this.done;
    } finally {
      clearTimeout(timer);
    }
  }

  #end(timeoutMs: number | undefined): ReturnType<typeof setTimeout> | undefined {
    this.#stopping.abort();
    if (timeoutMs === undefined) return undefined;
    if (timeoutMs > 0) return setTimeout(() => this.#force.abort(), timeoutMs);
    this.#force.abort();
    return undefined;
  }

  async #run(concurrency: number): Promise<void> {
    const loops = Array.from({ length: concurrency }, () => this.#loop());
    let failed = false;
    for (const loop of loops) {
      loop.catch((error) => {
        // Who does not look at `done` has to hear of it, once: the others most likely fail of the same.
        if (!failed) report(this.#options, error);
        failed = true;
        // It takes the others with it, but they may finish what they have.
        this.#stopping.abort();
      });
    }
    const ends = await Promise.allSettled(loops);
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }

  async #loop(): Promise<void> {
    const stopping = this.#stopping.signal;
    const force = this.#force.signal;
    let again = 0;
    for (;;) {
      const batch = await nextBatch<T>(this.#source, this.#options, stopping);
      if (batch === null) return;
      const letRunOut = () => batch.letRunOut();
      force.addEventListener('abort', letRunOut, { once: true });
      try {
        await this.#course(batch, stopping, force);
      } finally {
        force.removeEventListener('abort', letRunOut);
        again = batch.sentBack ? again + 1 : 0;
        await batch.release().catch((error) => report(this.#options, error));
      }
      // What was sent back comes again at once: without a pause this would be a busy loop.
      if (again > 0) await pause(pauseMs(this.#source.retry, again - 1), stopping).catch(() => {});
    }
  }
}

/** One message after the other. */
export function eachMessage<T>(handler: Handler<T>, options: ConsumeOptions): Course<T> {
  const { ackEveryMs = ACK_EVERY_MS } = options;
  return async (batch, stopping, force) => {
    let flushedAt = performance.now();
    for (const delivery of batch.deliveries) {
      if (stopping.aborted) break;
      if (!batch.isOpen(delivery)) continue;
      const { outcome, error } = await outcomeOf((work) => handler(delivery, work), batch, force, options);
      if (outcome === undefined) break;
      batch.settle(delivery, outcome, error);
      const due = outcome !== 'completed' || performance.now() - flushedAt >= ackEveryMs;
      if (!due) continue;
      await batch.flush().catch((failure) => report(options, failure));
      flushedAt = performance.now();
    }
  };
}

/** All of them at once; what the handler says counts for those that it has not settled itself. */
export function wholeBatches<T>(handler: BatchHandler<T>, options: ConsumeOptions): Course<T> {
  return async (batch, stopping, force) => {
    if (stopping.aborted) return;
    const messages: readonly Delivery<T>[] = batch.deliveries;
    const { outcome, error } = await outcomeOf((work) => handler(messages, work), batch, force, options);
    if (outcome !== undefined) for (const delivery of messages) batch.settle(delivery, outcome, error);
  };
}

/** Runs a handler. No outcome: the consumer has waited long enough, or what it threw is the echo of its signal. */
async function outcomeOf<T>(
  run: (work: { signal: AbortSignal }) => Said | Promise<Said>,
  batch: Batch<T>,
  force: AbortSignal,
  options: ConsumeOptions,
): Promise<{ outcome?: Outcome; error?: string }> {
  const work = linked(batch.lost, force);
  try {
    const said = await unlessAborted(Promise.resolve(run({ signal: work.signal })), force);
    return { outcome: said ?? 'completed' };
  } catch (error) {
    if (work.signal.aborted) return {};
    report(options, error);
    return { outcome: 'failed', error: sentenceOf(error) };
  } finally {
    work.unlink();
  }
}
