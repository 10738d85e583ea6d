import { RefusedError } from '../errors.ts';
import type { MessageRef } from '../message.ts';
import { type CallOptions, segment, type Transport } from '../wire/transport.ts';
import { instant } from './dead_letters.ts';
import { Log } from './log.ts';

export interface StoredMessage<T = unknown> {
  readonly id: string;
  readonly transactionId: string;
  readonly partitionId: string;
  readonly queue: string;
  readonly partition: string;
  readonly status: 'pending' | 'processing' | 'completed' | 'dead_letter';
  readonly createdAt: string;
  readonly data: T;
}

export interface MessageFilter extends CallOptions {
  queue?: string | undefined;
  partition?: string | undefined;
  namespace?: string | undefined;
  task?: string | undefined;
  status?: StoredMessage['status'] | undefined;
  /** Default: an hour ago. */
  from?: Date | string | undefined;
  /** Default: now. */
  to?: Date | string | undefined;
  /** 1..1000, default 200. */
  limit?: number | undefined;
  offset?: number | undefined;
}

export interface LogRecord<T = unknown> {
  readonly offset: number;
  readonly transactionId: string;
  readonly payload: T;
  readonly ts: string;
}

/** Looking at messages without taking them: no group moves, nothing is leased. */
export class Messages {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** One page, the newest first. */
  async list<T = unknown>({ signal, from, to, ...filter }: MessageFilter = {}): Promise<StoredMessage<T>[]> {
    const { messages } = await this.#transport.ask<{ messages: StoredMessage<T>[] }>({
      method: 'GET',
      path: '/api/v1/messages',
      query: { ...filter, from: instant(from), to: instant(to) },
      repeatable: true,
      signal,
    });
    return messages;
  }

  /** Null: unknown, or its transactionId was forgotten. */
  async get<T = unknown>(
    message: MessageRef,
    { signal }: CallOptions = {},
  ): Promise<StoredMessage<T> | null> {
    const path = `/api/v1/messages/${segment(message.partitionId)}/${segment(message.transactionId)}`;
    try {
      return await this.#transport.ask<StoredMessage<T>>({ method: 'GET', path, repeatable: true, signal });
    } catch (error) {
      if (error instanceof RefusedError && error.code === 'message_not_found') return null;
      throw error;
    }
  }

  /**
   * Records of a partition from an offset on, as they stand in its log.
   *
   * @param options.waitMs how long to wait for one when there is none. 0..30000, default 0
   * @throws RefusedError `UNKNOWN_TOPIC_OR_PARTITION`, `OFFSET_OUT_OF_RANGE`
   */
  async read<T = unknown>(
    queue: string,
    partition: string,
    offset: number,
    options: CallOptions & { waitMs?: number; maxBytes?: number } = {},
  ): Promise<{ records: LogRecord<T>[]; highWatermark: number; logStartOffset: number }> {
    const place = { queue, partition, offset, maxBytes: options.maxBytes };
    const [part] = await new Log(this.#transport).read<T>([place], options);
    const { error, records, highWatermark, logStartOffset } = part!;
    if (error === undefined) return { records, highWatermark, logStartOffset };
    throw new RefusedError(`${error}: ${queue}/${partition} at ${offset}`, { code: error, body: part });
  }

  /** A note about a message, for those who look for it later. @returns its id */
  async trace(message: MessageRef, data: unknown, options: TraceOptions = {}): Promise<string> {
    const { transactionId, partitionId, consumerGroup } = message;
    const { traceId } = await this.#transport.ask<{ traceId: string }>({
      method: 'POST',
      path: '/api/v1/traces',
      body: {
        transactionId,
        partitionId,
        consumerGroup,
        data,
        traceNames: options.names,
        eventType: options.type,
      },
      repeatable: false,
      signal: options.signal,
    });
    return traceId;
  }

  /** The notes about a message, oldest first. */
  async traces(message: MessageRef, { signal }: CallOptions = {}): Promise<Record<string, unknown>[]> {
    const path = `/api/v1/traces/${segment(message.partitionId)}/${segment(message.transactionId)}`;
    const request = { method: 'GET', path, repeatable: true, signal } as const;
    return (await this.#transport.ask<{ traces: Record<string, unknown>[] }>(request)).traces;
  }
}

export interface TraceOptions extends CallOptions {
  /** Names under which it is found, over all queues. */
  names?: readonly string[];
  /** Default `info`. */
  type?: string;
}
