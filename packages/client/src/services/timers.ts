import { InDoubtError } from '../errors.ts';
import { mintId } from '../uuid.ts';
import { type CallOptions, segment, type Transport } from '../wire/transport.ts';

/** Due before this is over, a schedule whose answer was lost may have fired before it is sent again, ms. */
const REPEATABLE_FROM_MS = 60_000;

/** When: after so many ms by the database's clock, or at an instant by the clock of this machine. At most 90 days ahead. */
export type Due =
  | { readonly delayMs: number; readonly at?: undefined }
  | { readonly at: Date | string | number; readonly delayMs?: undefined };

export type TimerMessage<T = unknown> = Due & {
  readonly data: T;
  /** Default: the partition of the handle, else `Default`. */
  readonly partition?: string | undefined;
  /** Of the message to come. Default: a new UUID. */
  readonly transactionId?: string | undefined;
};

export interface TimerResult {
  /** `absent`: nothing is pending, it may have fired; `too_late`: it is being fired, nothing was changed. */
  readonly status: 'scheduled' | 'rescheduled' | 'cancelled' | 'absent' | 'too_late';
  readonly key: string;
  readonly queue: string;
  readonly transactionId: string | null;
  readonly messageId: string | null;
  readonly deliverAt: string | null;
}

export interface PendingTimer {
  readonly key: string;
  readonly queue: string;
  readonly partition: string;
  readonly transactionId: string;
  readonly messageId: string;
  readonly deliverAt: string;
  readonly attempts: number;
  readonly lastError: string | null;
  readonly createdAt: string;
}

/** An operation as the wire has it, for a batch of them or a transaction. */
export interface TimerOperation {
  readonly op: 'schedule' | 'cancel';
  readonly queue: string;
  readonly timerKey: string;
  readonly partition?: string | undefined;
  readonly delayMs?: number | undefined;
  readonly txn?: string | undefined;
  readonly payload?: string | undefined;
}

/**
 * Messages of a queue that are to be pushed later, under keys of yours: one is pending for a key at most, and a later schedule
 * replaces it.
 */
export class Timers<T = unknown> {
  readonly #transport: Transport;
  readonly #queue: string;
  readonly #partition: string | undefined;

  constructor(transport: Transport, queue: string, partition: string | undefined) {
    this.#transport = transport;
    this.#queue = queue;
    this.#partition = partition;
  }

  /**
   * @param key 1..512 bytes of UTF-8
   * @throws InDoubtError when the answer was lost and the timer is due within a minute: to schedule it again could make a
   *   second message
   */
  async schedule(key: string, message: TimerMessage<T>, { signal }: CallOptions = {}): Promise<TimerResult> {
    const partition = message.partition ?? this.#partition;
    const { at, ...rest } = scheduleOf(this.#queue, key, { ...message, partition });
    // The time is sent as a delay, which shrinks from try to try.
    const operation = () => ({ ...rest, delayMs: delayUntil(at) });
    return this.#apply(() => ({ operations: [operation()] }), at - Date.now() >= REPEATABLE_FROM_MS, signal);
  }

  /**
   * Takes it back.
   *
   * @throws InDoubtError when the answer was lost and nothing is pending now: it was taken back, or it has fired
   */
  cancel(key: string, { signal }: CallOptions = {}): Promise<TimerResult> {
    const operations: TimerOperation[] = [{ op: 'cancel', queue: this.#queue, timerKey: key }];
    return this.#apply({ operations }, true, signal);
  }

  /** The pending one, or null. */
  async get(
    key: string,
    { signal }: CallOptions = {},
  ): Promise<(PendingTimer & { readonly data: T }) | null> {
    const path = `/api/v1/timers/${segment(this.#queue)}/${segment(key)}`;
    const body = await this.#transport.ask<WirePending & { found: boolean; payload: string }>({
      method: 'GET',
      path,
      repeatable: true,
      signal,
    });
    if (!body.found) return null;
    return { ...pendingOf(body), data: JSON.parse(decode(body.payload)) as T };
  }

  /** All pending ones, by key. */
  async *list(
    options: CallOptions & { prefix?: string } = {},
  ): AsyncGenerator<PendingTimer, void, undefined> {
    const path = `/api/v1/timers/${segment(this.#queue)}`;
    for (let after: string | undefined; ; ) {
      const page = await this.#transport.ask<{
        rows: WirePending[];
        truncated: boolean;
        nextAfter: string | null;
      }>({
        method: 'GET',
        path,
        query: { after, prefix: options.prefix, limit: 500 },
        repeatable: true,
        signal: options.signal,
      });
      for (const row of page.rows) yield pendingOf(row);
      if (!page.truncated || page.nextAfter === null) return;
      after = page.nextAfter;
    }
  }

  /** How many are pending under keys that begin so. @param prefix 1..128 bytes */
  async count(prefix: string, { signal }: CallOptions = {}): Promise<number> {
    const path = `/api/v1/timers/${segment(this.#queue)}`;
    const query = { mode: 'count', prefix };
    return (
      await this.#transport.ask<{ count: number }>({ method: 'GET', path, query, repeatable: true, signal })
    ).count;
  }

  async #apply(body: unknown, repeatable: boolean, signal: AbortSignal | undefined): Promise<TimerResult> {
    const answer = await this.#transport.call<{ results: WireResult[] }>({
      method: 'POST',
      path: '/api/v1/timers',
      body,
      repeatable,
      signal,
    });
    const result = resultOf(answer.body.results[0]!);
    if (answer.repeated && result.status === 'absent') {
      const facts = { code: 'timer_absent', status: answer.status, body: answer.body };
      throw new InDoubtError(
        `no timer "${result.key}" is pending (an earlier try may have taken it back)`,
        facts,
      );
    }
    return result;
  }
}

interface WireResult {
  readonly status: TimerResult['status'];
  readonly queue: string;
  readonly timerKey: string;
  readonly txn: string | null;
  readonly messageId: string | null;
  readonly deliverAt: string | null;
}

type WirePending = Omit<PendingTimer, 'key' | 'transactionId'> & { timerKey: string; txn: string };

function resultOf({ status, queue, timerKey, txn, messageId, deliverAt }: WireResult): TimerResult {
  return { status, key: timerKey, queue, transactionId: txn, messageId, deliverAt };
}

function pendingOf(row: WirePending): PendingTimer {
  const { timerKey, txn, queue, partition, messageId, deliverAt, attempts, lastError, createdAt } = row;
  return {
    key: timerKey,
    transactionId: txn,
    ...{ queue, partition, messageId, deliverAt, attempts, lastError, createdAt },
  };
}

/** A schedule without its delay, and when it is due by this machine's clock, ms. */
export function scheduleOf(
  queue: string,
  key: string,
  message: TimerMessage,
): Omit<TimerOperation, 'delayMs'> & { at: number } {
  if (message.data === undefined) throw new TypeError('a timer needs data: { data: … }');
  return {
    op: 'schedule',
    queue,
    timerKey: key,
    partition: message.partition,
    txn: message.transactionId ?? mintId(),
    payload: encode(JSON.stringify(message.data)),
    at: dueAt(message),
  };
}

export function delayUntil(at: number): number {
  return Math.max(0, Math.round(at - Date.now()));
}

function dueAt(due: Due): number {
  const at = due.at === undefined ? Date.now() + due.delayMs : new Date(due.at).getTime();
  if (!Number.isFinite(at)) throw new RangeError('a timer is due after delayMs or at an instant');
  return at;
}

function encode(text: string): string {
  let binary = '';
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

function decode(base64: string): string {
  const binary = atob(base64);
  return new TextDecoder().decode(Uint8Array.from(binary, (character) => character.charCodeAt(0)));
}
