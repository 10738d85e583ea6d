import { Brokers } from './brokers/brokers.ts';
import { ackErrorOf, acknowledge, extendLease } from './calls/ack.ts';
import { originOf } from './calls/pop.ts';
import type { Context } from './context.ts';
import { sentenceOf } from './errors.ts';
import type { AckResult, MessageRef, Outcome } from './message.ts';
import { Queue } from './queue/queue.ts';
import { Subscription } from './queue/subscription.ts';
import { Admin } from './services/admin.ts';
import { Connectors } from './services/connectors.ts';
import { DeadLetters } from './services/dead_letters.ts';
import { Groups } from './services/groups.ts';
import { KeyValues, kvBatch } from './services/kv.ts';
import type { KvOperation } from './services/kv_operations.ts';
import { Log } from './services/log.ts';
import { Messages } from './services/messages.ts';
import { Transaction } from './services/transaction.ts';
import { RETRIES, type RetryPolicy } from './wire/backoff.ts';
import { type CallOptions, Transport } from './wire/transport.ts';

export interface ClientOptions {
  /** The brokers; all of them on one database. */
  urls: readonly string[];
  /** Token, or where to get one: asked before each request. */
  token?: string | (() => string | Promise<string>) | undefined;
  /** Sent with each request. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Longest wait for the answer to one try, ms; a long poll has its own on top. 1..600000, default 30000. */
  timeoutMs?: number | undefined;
  retry?: Partial<RetryPolicy> | undefined;
  /** Instead of the global one. */
  fetch?: typeof fetch | undefined;
  /** Reads the JSON of answers; for those who must keep every digit of a number. Default: `JSON.parse`. */
  parse?: ((text: string) => unknown) | undefined;
}

type End = (timeoutMs: number | undefined) => Promise<void>;

const TIMEOUT_MS = 30_000;

/**
 * A client of one or several brokers. Making one sends nothing; it holds no connection but those that fetch keeps.
 */
export class Queen {
  /** Consumer groups. */
  readonly groups: Groups;
  readonly admin: Admin;
  readonly connectors: Connectors;
  /** Messages and traces, looked at. */
  readonly messages: Messages;
  /** Partitions, read by offset. */
  readonly log: Log;
  /** Of all queues; those of one queue are at its handle. */
  readonly deadLetters: DeadLetters;
  readonly #context: Context;
  readonly #transport: Transport;
  readonly #owned = { consumer: new Set<End>(), producer: new Set<End>() };

  /** @throws TypeError for what is no URL of a broker */
  constructor(options: string | readonly string[] | ClientOptions) {
    const given =
      typeof options === 'string'
        ? { urls: [options] }
        : Array.isArray(options)
          ? { urls: options }
          : options;
    const {
      urls,
      token,
      headers,
      timeoutMs = TIMEOUT_MS,
      retry,
      fetch = globalThis.fetch,
      parse,
    } = given as ClientOptions;
    this.#transport = new Transport({
      brokers: new Brokers(urls),
      headers: headersOf(token, headers),
      retry: { ...RETRIES, ...retry },
      timeoutMs,
      fetch,
      parse,
    });
    this.#context = {
      transport: this.#transport,
      retry: { ...RETRIES, ...retry },
      own: (what, end) => {
        this.#owned[what].add(end);
        return () => this.#owned[what].delete(end);
      },
    };
    this.groups = new Groups(this.#transport);
    this.admin = new Admin(this.#transport);
    this.connectors = new Connectors(this.#transport);
    this.messages = new Messages(this.#transport);
    this.log = new Log(this.#transport);
    this.deadLetters = new DeadLetters(this.#transport, {});
  }

  /** A queue; `T` is what its messages hold. */
  queue<T = unknown>(name: string): Queue<T> {
    return new Queue<T>(this.#context, { queue: name });
  }

  /** All queues of a namespace, a task or both, for a consumer group. */
  queues<T = unknown>(of: { namespace?: string; task?: string; group?: string }): Subscription<T> {
    if (of.namespace === undefined && of.task === undefined)
      throw new TypeError('namespace or task is needed');
    return new Subscription<T>(this.#context, of);
  }

  /**
   * Says of messages that were popped that they are done, or what else became of them. To complete a message is to complete
   * all before it in its partition; of several there that have failed the first counts, and the others come again.
   *
   * @throws AckError when the broker did not carry out all of it, AckInDoubtError when it was repeated after a lost answer and found
   *   the lease over; both have all results. The messages come again unless somebody completes them
   */
  async ack(
    messages: MessageRef | readonly MessageRef[],
    outcome: Outcome = 'completed',
    options: CallOptions & { error?: unknown } = {},
  ): Promise<AckResult[]> {
    const list = Array.isArray(messages) ? (messages as readonly MessageRef[]) : [messages as MessageRef];
    const error = options.error === undefined ? undefined : sentenceOf(options.error);
    const acks = list.map((message) => ({ message, outcome, error }));
    const rounds = { ...this.#context.retry, lasting: false };
    const results = await acknowledge(this.#transport, acks, rounds, options);
    const failure = ackErrorOf(results);
    if (failure !== null) throw failure;
    return results;
  }

  /** They have failed: they come again and use up an attempt. Throws as `ack` does. */
  nack(
    messages: MessageRef | readonly MessageRef[],
    error?: unknown,
    options: CallOptions = {},
  ): Promise<AckResult[]> {
    return this.ack(messages, 'failed', { ...options, error });
  }

  /**
   * Makes the lease of a message, and of all that came with it, last so many seconds from now.
   *
   * @returns when it ends now; null: it is over, and somebody else may have them
   */
  renew(message: MessageRef, seconds = 60, options: CallOptions = {}): Promise<Date | null> {
    if (message.leaseId === undefined || message.leaseId === '') return Promise.resolve(null);
    const affinity = originOf(message);
    return extendLease(this.#transport, message.leaseId, seconds, { ...options, affinity });
  }

  transaction(): Transaction {
    return new Transaction(this.#transport);
  }

  /** Keys and values of a namespace. @param namespace `[a-z0-9][a-z0-9._-]{0,63}` */
  kv<V = unknown>(namespace: string): KeyValues<V> {
    return new KeyValues<V>(this.#transport, namespace);
  }

  /** Operations on keys of several namespaces in one database transaction. Throws as `kvBatch` of the wire does. */
  kvBatch(operations: readonly KvOperation[], options: CallOptions = {}): Promise<unknown[]> {
    return kvBatch(this.#transport, operations, options);
  }

  /**
   * Stops the consumers, ends the loops, flushes the producers, and then ends the client.
   *
   * @param options.timeoutMs how long handlers may go on, ms; default: without a limit
   * @throws the first error of a producer whose messages were not all stored, or of a consumer that fails
   */
  async close(options: { timeoutMs?: number } = {}): Promise<void> {
    const ends: PromiseSettledResult<void>[] = [];
    for (const owned of [this.#owned.consumer, this.#owned.producer]) {
      ends.push(...(await Promise.allSettled([...owned].map((end) => end(options.timeoutMs)))));
    }
    this.#transport.close();
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
  }
}

function headersOf(
  token: ClientOptions['token'],
  headers: ClientOptions['headers'],
): () => Promise<Record<string, string>> {
  return async () => {
    const value = typeof token === 'function' ? await token() : token;
    return { ...headers, ...(value === undefined ? {} : { authorization: `Bearer ${value}` }) };
  };
}
