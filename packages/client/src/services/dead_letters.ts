import type { Scope } from '../calls/pop.ts';
import type { MessageRef } from '../message.ts';
import { type CallOptions, segment, type Transport } from '../wire/transport.ts';

export interface DeadLetter<T = unknown> {
  readonly id: string;
  readonly transactionId: string;
  readonly partitionId: string;
  readonly queue: string;
  readonly partition: string;
  readonly consumerGroup: string;
  /** Why it ended here. */
  readonly errorMessage: string;
  readonly retryCount: number;
  readonly data: T;
  readonly failedAt: string;
}

export interface DeadLetterFilter extends CallOptions {
  /** Failed at or after. */
  from?: Date | string | undefined;
  /** Failed at or before. */
  to?: Date | string | undefined;
  /** 1..1000, default 100. */
  limit?: number | undefined;
  offset?: number | undefined;
}

export interface Replayed {
  /** `duplicate`: it is there already, replayed before; the dead letter is kept. */
  readonly result: 'moved' | 'duplicate';
  readonly queue: string;
  readonly partition: string;
  readonly dlqId: string;
  readonly originalTransactionId: string;
  readonly dlqRowRemoved: boolean;
}

/** The dead letters of a queue, narrowed to the partition and group of the handle that they come from; or of all queues. */
export class DeadLetters<T = unknown> {
  readonly #transport: Transport;
  readonly #scope: Scope;

  constructor(transport: Transport, scope: Scope) {
    this.#transport = transport;
    this.#scope = scope;
  }

  /** One page, the latest first. */
  async list(filter: DeadLetterFilter = {}): Promise<DeadLetter<T>[]> {
    const { queue, partition, group } = this.#scope;
    const { messages } = await this.#transport.ask<{ messages: DeadLetter<T>[] }>({
      method: 'GET',
      path: '/api/v1/dlq',
      query: {
        queue,
        partition,
        consumerGroup: group,
        from: instant(filter.from),
        to: instant(filter.to),
        limit: filter.limit,
        offset: filter.offset,
      },
      repeatable: true,
      signal: filter.signal,
    });
    return messages;
  }

  /** How many there are. */
  async count(filter: Omit<DeadLetterFilter, 'limit' | 'offset'> = {}): Promise<number> {
    const { queue, partition, group } = this.#scope;
    const query = {
      queue,
      partition,
      consumerGroup: group,
      from: instant(filter.from),
      to: instant(filter.to),
    };
    const { total } = await this.#transport.ask<{ total: number }>({
      method: 'GET',
      path: '/api/v1/dlq',
      query: { ...query, limit: 1 },
      repeatable: true,
      signal: filter.signal,
    });
    return total;
  }

  /**
   * Pushes a dead letter again, at the end of its partition or of another one, and removes it from here, in one step. All
   * groups of the queue see it.
   *
   * @throws RefusedError `message_not_found` when it is gone; InDoubtError when a lost answer may have been the one that did it
   */
  replay(
    letter: { id: string } | string,
    options: CallOptions & { queue?: string | undefined; partition?: string | undefined } = {},
  ): Promise<Replayed> {
    const { queue, partition, signal } = options;
    const id = typeof letter === 'string' ? letter : letter.id;
    return this.#transport.ask({
      method: 'POST',
      path: `/api/v1/dlq/${segment(id)}/replay`,
      body: { queue, partition },
      repeatable: true,
      signal,
    });
  }

  /**
   * Replays all that there are now, the oldest first.
   *
   * @returns how many
   */
  async replayAll(options: CallOptions = {}): Promise<number> {
    const seen = new Map<string, DeadLetter<T>>();
    for (let offset = 0; ; offset += 1_000) {
      const page = await this.list({ ...options, limit: 1_000, offset });
      for (const letter of page) seen.set(letter.id, letter);
      if (page.length < 1_000) break;
    }
    let moved = 0;
    for (const letter of [...seen.values()].reverse()) {
      if ((await this.replay(letter, options)).result === 'moved') moved++;
    }
    return moved;
  }

  /**
   * Pushes the newest dead letter of a message again.
   *
   * @throws RefusedError `message_not_found` when there is none; InDoubtError when the answer was lost: it is not sent again, as the
   *   newest one would be another one then
   */
  retry(message: MessageRef, { signal }: CallOptions = {}): Promise<Replayed> {
    const path = `${pathOf(message)}/retry`;
    return this.#transport.ask({ method: 'POST', path, repeatable: false, signal });
  }

  /** Deletes the dead letters of one message, of all groups. @throws RefusedError `message_not_found` */
  async delete(message: MessageRef, { signal }: CallOptions = {}): Promise<void> {
    await this.#transport.call({ method: 'DELETE', path: pathOf(message), repeatable: true, signal });
  }

  /**
   * Deletes all dead letters of the queue, or of one group of it.
   *
   * @returns how many
   * @throws TypeError for those of a partition or of all queues: they are deleted by queue and group only
   */
  async clear({ signal }: CallOptions = {}): Promise<number> {
    const { queue, partition, group } = this.#scope;
    if (partition !== undefined || queue === undefined)
      throw new TypeError('dead letters are cleared by queue and group, not by partition');
    const query = { queue, consumerGroup: group };
    const { deleted } = await this.#transport.ask<{ deleted: number }>({
      method: 'DELETE',
      path: '/api/v1/dlq',
      query,
      repeatable: true,
      signal,
    });
    return deleted;
  }
}

function pathOf({ partitionId, transactionId }: MessageRef): string {
  return `/api/v1/messages/${segment(partitionId)}/${segment(transactionId)}`;
}

/** An instant as the wire has it. */
export function instant(at: Date | string | undefined): string | undefined {
  return at instanceof Date ? at.toISOString() : at;
}
