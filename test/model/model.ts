/**
 * A broker as one would write it in an afternoon: arrays in memory, one thing at a time. It knows nothing of
 * segments, caches, rings or SQL, which is what makes it a judge of the real one. Times are microseconds of
 * the database's clock, which the test holds still and moves by hand.
 */

export interface ModelMessage {
  readonly offset: number;
  readonly txn: string;
  readonly id: string;
  readonly payload: string;
  readonly createdAt: number;
  /** Messages that were stored by one commit share one; retention deletes them together. */
  readonly segment: number;
}

export interface ModelCursor {
  committed: number;
  batchEnd: number | null;
  worker: string | null;
  expiresAt: number;
  retries: number;
  attemptOffset: number | null;
  attempts: number;
}

export interface ModelPartition {
  readonly name: string;
  id: string | null;
  messages: ModelMessage[];
  /** Offsets below are deleted. */
  logStart: number;
  lastCreatedAt: number;
  readonly cursors: Map<string, ModelCursor>;
  /** Offsets that were dead-lettered, by group. */
  readonly dead: Map<string, number[]>;
}

export interface ModelConfig {
  dedupWindowSeconds: number;
  retryLimit: number;
  leaseSeconds: number;
  deadLetters: boolean;
}

export interface ExpectedPush {
  status: 'queued' | 'duplicate';
  /** Null: a new id, the test takes it from the answer. */
  id: string | null;
  offset: number;
}

export interface ModelAck {
  offset: number;
  status: 'completed' | 'failed' | 'retry' | 'dlq';
}

export interface ExpectedVerdict {
  success: boolean;
  noop: boolean;
}

const SECOND = 1_000_000;

export class Model {
  now: number;
  readonly config: ModelConfig;
  readonly partitions: ModelPartition[];
  #segments = 0;

  constructor(now: number, names: readonly string[], config: ModelConfig) {
    this.now = now;
    this.config = config;
    this.partitions = names.map((name) => ({
      name,
      id: null,
      messages: [],
      logStart: 0,
      lastCreatedAt: 0,
      cursors: new Map(),
      dead: new Map(),
    }));
  }

  lastOffset(partition: ModelPartition): number {
    return partition.messages.length - 1;
  }

  live(partition: ModelPartition): ModelMessage[] {
    return partition.messages.slice(partition.logStart);
  }

  /** What a push of these transaction ids to one partition must answer; stored at once. */
  push(partition: ModelPartition, txns: readonly string[], idOf: (index: number) => string): ExpectedPush[] {
    const createdAt = Math.max(this.now, partition.lastCreatedAt);
    const windowStart = createdAt - this.config.dedupWindowSeconds * SECOND;
    const segment = this.#segments++;
    const inRequest = new Map<string, ModelMessage>();
    const answers = txns.map((txn, index): ExpectedPush => {
      const leader = inRequest.get(txn);
      if (leader !== undefined)
        return {
          status: 'duplicate',
          id: leader.offset >= partition.logStart ? leader.id : null,
          offset: leader.offset,
        };
      const stored =
        this.config.dedupWindowSeconds > 0
          ? partition.messages.find((m) => m.txn === txn && m.createdAt >= windowStart)
          : undefined;
      if (stored !== undefined) {
        inRequest.set(txn, stored);
        // The id of a message that retention has deleted can no longer be read.
        const readable = stored.offset >= partition.logStart;
        return { status: 'duplicate', id: readable ? stored.id : null, offset: stored.offset };
      }
      const message = {
        offset: partition.messages.length,
        txn,
        id: idOf(index),
        payload: payloadOf(txn, partition.messages.length),
        createdAt,
        segment,
      };
      inRequest.set(txn, message);
      partition.messages.push(message);
      partition.lastCreatedAt = createdAt;
      return { status: 'queued', id: null, offset: message.offset };
    });
    return answers;
  }

  cursor(partition: ModelPartition, group: string): ModelCursor | undefined {
    return partition.cursors.get(group);
  }

  leased(cursor: ModelCursor | undefined): boolean {
    return cursor !== undefined && cursor.worker !== null && cursor.expiresAt > this.now;
  }

  /** What `group` could be given from this partition right now, at most `batch` messages. */
  claimable(partition: ModelPartition, group: string, batch: number): ModelMessage[] {
    const cursor = partition.cursors.get(group);
    if (this.leased(cursor)) return [];
    const from = Math.max((cursor?.committed ?? -1) + 1, partition.logStart);
    return partition.messages.slice(from, from + batch);
  }

  /** The claim of messages that {@link claimable} allowed. Returns the delivery attempt of the batch. */
  claim(
    partition: ModelPartition,
    group: string,
    messages: readonly ModelMessage[],
    worker: string,
    autoAck: boolean,
    leaseSeconds: number,
  ): number {
    const cursor = partition.cursors.get(group) ?? {
      committed: -1,
      batchEnd: null,
      worker: null,
      expiresAt: 0,
      retries: 0,
      attemptOffset: null,
      attempts: 0,
    };
    partition.cursors.set(group, cursor);
    const first = messages[0]!.offset;
    const last = messages.at(-1)!.offset;
    if (autoAck) {
      cursor.committed = last;
      cursor.batchEnd = null;
      cursor.worker = null;
      return 1;
    }
    cursor.worker = worker;
    cursor.batchEnd = last;
    cursor.expiresAt = this.now + leaseSeconds * SECOND;
    cursor.attempts = cursor.attemptOffset === first ? cursor.attempts + 1 : 1;
    cursor.attemptOffset = first;
    return cursor.attempts;
  }

  /** The decision on one (partition, group, lease). Null: the lease is not the live one, nothing changes. */
  ack(
    partition: ModelPartition,
    group: string,
    worker: string,
    items: readonly ModelAck[],
  ): ExpectedVerdict[] | null {
    const cursor = partition.cursors.get(group);
    if (cursor === undefined || cursor.worker !== worker || !this.leased(cursor)) return null;
    const start = cursor.committed;
    const end = cursor.batchEnd!;
    // The batch begins with the first delivered message; a hole that retention left before it is done.
    const head = Math.max(start + 1, cursor.attemptOffset ?? 0);
    const effective = (item: ModelAck): boolean => item.offset >= head && item.offset <= end;
    const verdicts = items.map((item): ExpectedVerdict => {
      if (effective(item)) return { success: true, noop: false };
      if (item.offset > end) return { success: false, noop: false };
      return item.status === 'completed' ? { success: true, noop: true } : { success: false, noop: false };
    });
    const rank = { dlq: 0, failed: 1, retry: 2, completed: 3 };
    const signal = items
      .filter((item) => item.status !== 'completed' && effective(item))
      .sort((a, b) => a.offset - b.offset || rank[a.status] - rank[b.status])[0];
    const completed = items
      .filter((item) => item.status === 'completed' && effective(item))
      .filter((item) => signal === undefined || item.offset < signal.offset)
      .map((item) => item.offset);
    const reached = Math.max(start, ...completed);
    if (signal === undefined) this.#complete(cursor, reached, end);
    else this.#signal(partition, group, cursor, reached, signal);
    return verdicts;
  }

  #complete(cursor: ModelCursor, reached: number, end: number): void {
    if (reached === cursor.committed) return;
    cursor.committed = reached;
    if (reached >= end) {
      this.#release(cursor);
      cursor.retries = 0;
      cursor.attemptOffset = null;
      cursor.attempts = 0;
    } else {
      cursor.attemptOffset = reached + 1;
    }
  }

  #signal(
    partition: ModelPartition,
    group: string,
    cursor: ModelCursor,
    reached: number,
    signal: ModelAck,
  ): void {
    const exhausted = signal.status === 'failed' && cursor.retries >= this.config.retryLimit;
    if (signal.status === 'dlq' || exhausted) {
      cursor.committed = signal.offset;
      cursor.retries = 0;
      cursor.attemptOffset = null;
      cursor.attempts = 0;
      if (signal.status === 'dlq' || this.config.deadLetters) {
        const dead = partition.dead.get(group) ?? [];
        partition.dead.set(group, [...dead, signal.offset]);
      }
    } else {
      if (reached > cursor.committed) cursor.attemptOffset = reached + 1;
      cursor.committed = reached;
      if (signal.status === 'failed') cursor.retries += 1;
    }
    this.#release(cursor);
  }

  #release(cursor: ModelCursor): void {
    cursor.worker = null;
    cursor.batchEnd = null;
  }

  /** Extends every live lease of this worker; returns how many there were. */
  extend(worker: string, seconds: number): number {
    let renewed = 0;
    for (const partition of this.partitions) {
      for (const cursor of partition.cursors.values()) {
        if (cursor.worker !== worker || !this.leased(cursor)) continue;
        cursor.expiresAt = Math.max(cursor.expiresAt, this.now + seconds * SECOND);
        renewed += 1;
      }
    }
    return renewed;
  }
}

export function payloadOf(txn: string, _offset: number): string {
  return `{"txn": "${txn}", "n": 123456789012345678901234567890.10}`;
}
