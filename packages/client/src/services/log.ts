import { RefusedError } from '../errors.ts';
import type { CallOptions, Transport } from '../wire/transport.ts';
import { instant } from './dead_letters.ts';
import type { LogRecord } from './messages.ts';

/** A place in a partition. */
export interface LogPlace {
  readonly queue: string;
  readonly partition: string;
  /** The first that is wanted. 0 and up. */
  readonly offset: number;
  /** Of records, in one answer; one always comes. 1..8388608, default 1048576. */
  readonly maxBytes?: number | undefined;
}

export interface LogPart<T = unknown> {
  readonly queue: string;
  readonly partition: string;
  readonly records: LogRecord<T>[];
  /** What the next message will get. */
  readonly highWatermark: number;
  /** The oldest that is still there. */
  readonly logStartOffset: number;
  /** Why there are no records. */
  readonly error?: 'UNKNOWN_TOPIC_OR_PARTITION' | 'OFFSET_OUT_OF_RANGE';
}

export interface PartitionHead {
  readonly name: string;
  /** -1: nothing was ever written. */
  readonly lastOffset: number;
  readonly logStart: number;
  readonly lastWriteAt: string;
}

export interface ChangedPage {
  readonly partitions: readonly PartitionHead[];
  /** For the next page; null: there is none. */
  readonly next: string | null;
  /** Nothing older can still appear: where the next round begins. */
  readonly safeTime: string;
}

/** Partitions read as they stand in the log, many at a time. No group moves, nothing is leased. */
export class Log {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Records from several places on, one element for each in the same order. A place that cannot be read has an `error`.
   *
   * @param places at most 1024
   * @param options.waitMs how long to wait when there is nothing at any of them. 0..30000, default 0
   */
  async read<T = unknown>(
    places: readonly LogPlace[],
    options: CallOptions & { waitMs?: number } = {},
  ): Promise<LogPart<T>[]> {
    const { waitMs = 0, signal } = options;
    const { entries } = await this.#transport.ask<{ entries: LogPart<T>[] }>({
      method: 'POST',
      path: '/api/v1/fetch',
      body: { entries: places, maxWaitMs: waitMs },
      repeatable: true,
      reads: true,
      timeoutMs: waitMs + 30_000,
      signal,
    });
    return entries;
  }

  /** Of each partition the offset of the first message at or after an instant; null: there is none yet. At most 1024. */
  async offsetsAt(
    queue: string,
    partitions: readonly string[],
    at: Date | string,
    { signal }: CallOptions = {},
  ): Promise<(number | null)[]> {
    const timestamp = instant(at);
    const { entries } = await this.#transport.ask<{ entries: { offset: number | null }[] }>({
      method: 'POST',
      path: '/api/v1/fetch/offsets',
      body: { entries: partitions.map((partition) => ({ queue, partition, timestamp })) },
      repeatable: true,
      reads: true,
      signal,
    });
    return entries.map(({ offset }) => offset);
  }

  /**
   * One page of the partitions of a queue: all by name, or those that were written since an instant.
   *
   * @param options.after `next` of the page before, asked with the same `since`
   * @param options.limit 1..1000, default 1000
   * @throws RefusedError `UNKNOWN_TOPIC_OR_PARTITION` when there is no such queue
   */
  async changed(
    queue: string,
    options: CallOptions & { since?: string | undefined; after?: string | undefined; limit?: number } = {},
  ): Promise<ChangedPage> {
    const { since, after, limit, signal } = options;
    const { safeTime, entries } = await this.#transport.ask<{
      safeTime: string;
      entries: (Omit<ChangedPage, 'safeTime'> & { error?: string })[];
    }>({
      method: 'POST',
      path: '/api/v1/partitions/changed',
      body: { entries: [{ queue, since, after, limit }] },
      repeatable: true,
      reads: true,
      signal,
    });
    const { partitions, next, error } = entries[0]!;
    if (error === undefined) return { partitions, next, safeTime };
    throw new RefusedError(`${error}: ${queue}`, { code: error, body: entries[0] });
  }
}
