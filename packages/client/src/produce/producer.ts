import { itemOf, PushError, PushInDoubtError, push } from '../calls/push.ts';
import { abortedBy, closed, tell } from '../errors.ts';
import type { NewMessage, PushResult } from '../message.ts';
import type { RetryPolicy } from '../wire/backoff.ts';
import { unlessAborted } from '../wire/signals.ts';
import type { CallOptions, Transport } from '../wire/transport.ts';
import { Lanes, type Waiting } from './lanes.ts';

export interface ProducerOptions {
  /** A request is sent when so many messages wait. 1..100000, default 100. */
  batch?: number | undefined;
  /** Or when their JSON is so long, in characters. Default 1048576. */
  batchSize?: number | undefined;
  /** Or when the oldest has waited so long, ms. 0..60000, default 10. */
  lingerMs?: number | undefined;
  /** Requests under way at a time, each with other partitions. 1..100, default 4. */
  inFlight?: number | undefined;
  /** So many messages may wait or be under way; `add` and `send` wait beyond that. Default 10000. */
  pending?: number | undefined;
  /** Told of messages that `add` took and that were not stored. Without it the next `flush` throws the first such error. */
  onError?: ((error: unknown, message: NewMessage) => void) | undefined;
}

/** In an object, as an async function would wait for a promise that it returns. */
interface Taken {
  readonly stored: Promise<PushResult>;
}

/**
 * Gathers messages and pushes them together: what comes within some milliseconds goes in one request. Order holds within
 * each partition, and each message is stored once, however often a request is repeated.
 */
export class Producer<T = unknown> {
  readonly #transport: Transport;
  readonly #retry: RetryPolicy;
  readonly #queue: string;
  readonly #partition: string | undefined;
  readonly #options: Readonly<Record<'batch' | 'batchSize' | 'lingerMs' | 'inFlight' | 'pending', number>>;
  readonly #onError: ProducerOptions['onError'];
  readonly #onClosed: () => void;
  readonly #lanes = new Lanes();
  #underWay = 0;
  #requests = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** As long as somebody waits for a flush nothing lingers. */
  #flushing = 0;
  #closed = false;
  #failure: { error: unknown } | null = null;
  /** One for each message that was given: settles, and never rejects, when its end is known and told. */
  readonly #open = new Set<Promise<void>>();
  /** Who waits for room, in the order of their calls; to be called when there is some. */
  readonly #waiting = new Set<() => void>();

  constructor(
    transport: Transport,
    retry: RetryPolicy,
    queue: string,
    partition: string | undefined,
    options: ProducerOptions,
    onClosed: () => void,
  ) {
    this.#transport = transport;
    this.#retry = retry;
    this.#queue = queue;
    this.#partition = partition;
    this.#onError = options.onError;
    this.#onClosed = onClosed;
    this.#options = {
      batch: ranged('batch', options.batch ?? 100, 1, 100_000),
      batchSize: ranged('batchSize', options.batchSize ?? 1_048_576, 1, Number.MAX_SAFE_INTEGER),
      lingerMs: ranged('lingerMs', options.lingerMs ?? 10, 0, 60_000),
      inFlight: ranged('inFlight', options.inFlight ?? 4, 1, 100),
      pending: ranged('pending', options.pending ?? 10_000, 1, Number.MAX_SAFE_INTEGER),
    };
  }

  /** Messages that are not stored yet. */
  get pending(): number {
    return this.#lanes.count + this.#underWay;
  }

  /**
   * Takes a message and resolves with what became of it.
   *
   * @throws TypeError for what is no message; PushError and whatever else a push throws; AbortedError when the signal fires before there
   *   is room, or when the producer is closed
   */
  async send(message: NewMessage<T>, options: CallOptions = {}): Promise<PushResult> {
    const { stored } = await this.#admit(message, options.signal, () => {});
    return stored;
  }

  /**
   * Takes a message and resolves at once, or when there is room again. What goes wrong with it later is told to `onError` or
   * thrown by the next `flush`.
   *
   * @throws TypeError for what is no message; AbortedError as `send` does
   */
  async add(message: NewMessage<T>, options: CallOptions = {}): Promise<void> {
    const onError = this.#onError;
    await this.#admit(message, options.signal, (error) => {
      if (onError === undefined) this.#failure ??= { error };
      else tell(() => onError(error, message));
    });
  }

  /**
   * Sends what waits, and resolves when everything that was given before has been answered, whatever others give meanwhile.
   *
   * @throws the first error of what `add` took since the last flush, without `onError`
   */
  async flush(options: CallOptions = {}): Promise<void> {
    this.#flushing++;
    this.#pump();
    try {
      await unlessAborted(Promise.all(this.#open), options.signal);
    } finally {
      this.#flushing--;
    }
    const failure = this.#failure;
    this.#failure = null;
    if (failure !== null) throw failure.error;
  }

  /** Flushes, and takes nothing any more. Throws as `flush` does. */
  async close(options: CallOptions = {}): Promise<void> {
    this.#closed = true;
    await this.flush(options).finally(this.#onClosed);
  }

  /**
   * Takes a message as soon as there is room, first come first served. To look for room and to take it is one step: else all
   * who wait would find the same.
   *
   * @param lost told when it was not stored, before a flush that waits for it goes on
   */
  async #admit(
    message: NewMessage<T>,
    signal: AbortSignal | undefined,
    lost: (error: unknown) => void,
  ): Promise<Taken> {
    if (this.#closed) throw closed('producer');
    if (signal?.aborted === true) throw abortedBy(signal);
    const item = itemOf(this.#queue, this.#partition, message);
    const size = JSON.stringify(item.payload).length;
    const settled = this.#opened();
    const take = (): Taken => {
      const stored = new Promise<PushResult>((resolve, reject) => {
        this.#lanes.add({ item, size, since: performance.now(), resolve, reject });
      });
      stored.catch(lost).then(settled);
      this.#pump();
      return { stored };
    };
    if (this.#waiting.size === 0 && this.#hasRoom) return take();
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.delete(enter);
        signal?.removeEventListener('abort', abort);
      };
      const enter = () => {
        leave();
        resolve(take());
      };
      const abort = () => {
        leave();
        settled();
        reject(abortedBy(signal!));
      };
      this.#waiting.add(enter);
      signal?.addEventListener('abort', abort, { once: true });
    });
  }

  /** A flush that begins from now on waits until the function that is returned is called. */
  #opened(): () => void {
    let settle = () => {};
    const open = new Promise<void>((resolve) => {
      settle = resolve;
    });
    this.#open.add(open);
    return () => {
      this.#open.delete(open);
      settle();
    };
  }

  get #hasRoom(): boolean {
    return this.pending < this.#options.pending;
  }

  #enterWaiting(): void {
    for (const enter of this.#waiting) {
      if (!this.#hasRoom) return;
      enter();
    }
  }

  /** Sends what is due, and sees to it that the rest is looked at in time. */
  #pump(): void {
    const { batch, batchSize, lingerMs, inFlight } = this.#options;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    while (this.#requests < inFlight) {
      const ready = this.#lanes.ready();
      if (ready.count === 0) return;
      const left = ready.since + lingerMs - performance.now();
      const due = this.#flushing > 0 || left <= 0 || ready.count >= batch || ready.size >= batchSize;
      if (!due) {
        this.#timer = setTimeout(() => this.#pump(), Math.ceil(left));
        return;
      }
      void this.#send(this.#lanes.take(batch, batchSize));
    }
  }

  async #send(batch: readonly Waiting[]): Promise<void> {
    this.#requests++;
    this.#underWay += batch.length;
    try {
      const items = batch.map(({ item }) => item);
      const results = await push(this.#transport, this.#retry, items);
      results.forEach((result, at) => {
        batch[at]!.resolve(result);
      });
    } catch (error) {
      for (const [at, waiting] of batch.entries()) {
        const told = error instanceof PushError || error instanceof PushInDoubtError;
        const result = told ? error.results[at]! : null;
        if (result === null) waiting.reject(error);
        else if (result.status === 'failed') waiting.reject(new PushError([result], error));
        else if (result.status === 'in_doubt') waiting.reject(new PushInDoubtError([result], error));
        else waiting.resolve(result);
      }
    } finally {
      this.#requests--;
      this.#underWay -= batch.length;
      this.#lanes.settled(batch);
      this.#enterWaiting();
      this.#pump();
    }
  }
}

function ranged(name: string, value: number, least: number, most: number): number {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new RangeError(`${name} is an integer of ${least}..${most}, not ${value}`);
}
