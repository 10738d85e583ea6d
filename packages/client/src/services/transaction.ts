import { itemOf, type PushItem } from '../calls/push.ts';
import { InDoubtError, RefusedError } from '../errors.ts';
import type { MessageRef, NewMessage, Outcome } from '../message.ts';
import type { CallOptions, Transport } from '../wire/transport.ts';
import { isRepeatable, type KvOperation, unapplied } from './kv_operations.ts';
import { delayUntil, scheduleOf, type TimerMessage, type TimerOperation } from './timers.ts';

/** One element for each message pushed, each ack, each key and each timer, in this order. */
export interface TransactionResult {
  readonly transactionId: string;
  /** Empty when the answer was lost and the repeat found that all had been done: see `Transaction.commit`. */
  readonly results: readonly TransactionPart[];
}

export interface TransactionPart {
  readonly index: number;
  readonly type: 'push' | 'ack' | 'kv' | 'timer';
  readonly success?: boolean;
  readonly transactionId?: string;
  readonly messageId?: string;
  readonly applied?: boolean;
  /** Why a write was not applied. */
  readonly reason?: string;
  readonly value?: unknown;
  readonly version?: number;
  readonly status?: string;
}

interface WireAnswer {
  readonly success: boolean;
  readonly transactionId: string;
  readonly results: TransactionPart[];
  readonly reason?: string;
  readonly error?: string;
  readonly failedIndex?: number;
}

/** Pushes, acks, keys and timers that all happen, or none of them. Built up, then committed once. */
export class Transaction {
  readonly #transport: Transport;
  readonly #pushes: PushItem[] = [];
  readonly #acks: Record<string, unknown>[] = [];
  readonly #leases = new Set<string>();
  readonly #kv: KvOperation[] = [];
  readonly #timers: { at: number | null; operation: TimerOperation }[] = [];
  /** Places of pushes whose id was minted here. Nobody else can have stored it: where one is stored, this went through. */
  readonly #minted = new Set<number>();
  #committed = false;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Pushes one message or several to a queue. One whose transactionId is stored already refuses the transaction. */
  push<T>(queue: string, messages: NewMessage<T> | readonly NewMessage<T>[]): this {
    const list = Array.isArray(messages)
      ? (messages as readonly NewMessage<T>[])
      : [messages as NewMessage<T>];
    for (const message of list) {
      if (message.transactionId === undefined) this.#minted.add(this.#pushes.length);
      this.#pushes.push(itemOf(queue, undefined, message));
    }
    return this;
  }

  /** Acks a message that was popped, under its lease: that one has to hold when the transaction commits. */
  ack(message: MessageRef, outcome: Outcome = 'completed', error?: string): this {
    const { transactionId, partitionId, leaseId, consumerGroup } = message;
    if (leaseId !== undefined && leaseId !== '') this.#leases.add(leaseId);
    const lease = leaseId === undefined || leaseId === '' ? {} : { leaseId };
    this.#acks.push({
      type: 'ack',
      transactionId,
      partitionId,
      status: outcome,
      consumerGroup,
      error,
      ...lease,
    });
    return this;
  }

  /** Operations on keys, at most 64; all but `getPrefix`. With `required: true` one that is not applied undoes everything. */
  kv(...operations: readonly KvOperation[]): this {
    this.#kv.push(...operations);
    return this;
  }

  /** Schedules a message, or replaces the one under this key. */
  schedule<T>(queue: string, key: string, message: TimerMessage<T>): this {
    const { at, ...operation } = scheduleOf(queue, key, message);
    this.#timers.push({ at, operation });
    return this;
  }

  /** Takes a timer back; that there is none changes nothing. */
  cancel(queue: string, key: string): this {
    this.#timers.push({ at: null, operation: { op: 'cancel', queue, timerKey: key } });
    return this;
  }

  /**
   * Commits. When the answer is lost, a transaction that pushes is sent again, as its transactionIds let it happen only once;
   * so is one that only completes messages. (A queue whose `dedupWindowSeconds` is 0 has no such guard.) Was it the first one that went
   * through, the second hears `duplicate` of an id that was minted here: then this resolves, without `results`.
   *
   * @throws RefusedError with `code` `duplicate`, `ack_rejected`, `kv_precondition`, …: nothing happened; InDoubtError when
   *   nobody knows
   */
  async commit({ signal }: CallOptions = {}): Promise<TransactionResult> {
    if (this.#committed)
      throw new RefusedError('this transaction was committed before', { code: 'committed' });
    this.#committed = true;
    const { body, repeated } = await this.#transport.call<WireAnswer>({
      method: 'POST',
      path: '/api/v1/transaction',
      body: () => this.#body(),
      affinity: this.#pushes.length === 0 ? 'transaction' : `push:${this.#pushes[0]!.queue}`,
      repeatable: this.#isRepeatable(),
      signal,
    });
    if (body.success) {
      // Without pushes nothing tells a repetition from the first time: it may have met its own write.
      const lost = repeated && this.#pushes.length === 0 ? unapplied(body.results) : undefined;
      if (lost === undefined) return { transactionId: body.transactionId, results: body.results };
      const facts = { code: 'kv_precondition', reason: lost.reason, status: 200, body };
      throw new InDoubtError('a write was not applied (an earlier try may have been)', facts);
    }
    const facts = { code: body.reason ?? 'refused', status: 200, body };
    const message = body.error ?? `the transaction was refused: ${body.reason}`;
    // Also when nothing was repeated here: browsers send a request again by themselves.
    if (body.reason === 'duplicate' && this.#minted.has(body.failedIndex ?? -1)) {
      return { transactionId: body.transactionId, results: [] };
    }
    if (!repeated) throw new RefusedError(message, facts);
    throw new InDoubtError(`${message} (an earlier try may have been carried out)`, facts);
  }

  #body(): Record<string, unknown> {
    return {
      // Pushes first, so that an index into the results is one into the pushes.
      operations: [...this.#pushes.map((item) => ({ type: 'push', ...item })), ...this.#acks],
      requiredLeases: [...this.#leases],
      ...(this.#kv.length === 0 ? {} : { kv: this.#kv }),
      ...(this.#timers.length === 0 ? {} : { timers: this.#timers.map(timerOf) }),
    };
  }

  #isRepeatable(): boolean {
    if (this.#pushes.length > 0) return true;
    return (
      this.#timers.length === 0 &&
      this.#kv.every(isRepeatable) &&
      this.#acks.every(({ status }) => status === 'completed')
    );
  }
}

function timerOf({ at, operation }: { at: number | null; operation: TimerOperation }): TimerOperation {
  return at === null ? operation : { ...operation, delayMs: delayUntil(at) };
}
