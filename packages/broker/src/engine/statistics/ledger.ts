/**
 * What passes through this broker, by queue, until it is written down (writer.ts). The engine's face notes here what it has
 * answered, so whoever calls it is counted, the wire and callers inside the process alike.
 *
 * A hot path pays a look-up in a map and some additions. An ack names a partition and no queue: it is counted by partition,
 * and the database, which knows whose that is, adds it to its queue when all this is written.
 *
 * The maps are bounded. What does not fit counts in the broker's sums only, and asks for an early flush; a client that
 * makes up names fills a map for a moment and the database not at all.
 */

import type { TransactionAnswer, TransactionRequest } from '../transaction/types.ts';
import {
  type AckRequest,
  type AckVerdict,
  DEFAULT_TENANT,
  type PopAnswer,
  type PopRequest,
  type PushRequest,
  type PushResult,
  type TenantId,
} from '../types.ts';

/** Numbers of one queue. Times in microseconds. */
export interface QueueCounts {
  pushRequests: number;
  /** Stored, by pushes and transactions. */
  pushMessages: number;
  popRequests: number;
  popMessages: number;
  popEmpty: number;
  ackRequests: number;
  ackMessages: number;
  /** Completed, or committed at delivery. */
  ackSuccess: number;
  /** Failed or dead-lettered by the consumer, or refused. */
  ackFailed: number;
  dlq: number;
  conflated: number;
  transactions: number;
  partitionsCreated: number;
  partitionsDeleted: number;
  retentionMessages: number;
  completedMessages: number;
  evictedMessages: number;
  retentionEvents: number;
  /** Delivered messages, and how old they were. */
  lagCount: number;
  lagSumUs: number;
  lagMaxUs: number;
  parkedSum: number;
  parkedLooks: number;
}

export type RetentionRule = 'retention' | 'completed_retention' | 'max_wait';

/** What counts belong to. */
export type Place =
  | { tenant: TenantId; queue: string }
  | { tenant: TenantId; partition: number }
  | { queue_id: number };

export interface Taken {
  totals: QueueCounts;
  queues: { place: Place; counts: QueueCounts }[];
}

export const QUEUES_MAX = 20_000;
export const PARTITIONS_MAX = 50_000;

type Entry = { place: Place; counts: QueueCounts };

export class Ledger {
  /** The database's clock, as far as it is known; microseconds. */
  readonly #now: () => number;
  /** There is no more room. */
  onFull: () => void = () => {};
  #totals = zero();
  #queues = new Map<string, Entry>();
  #partitions = new Map<string, Entry>();
  #byId = new Map<number, Entry>();

  constructor(now: () => number) {
    this.#now = now;
  }

  pushed({ tenant, items }: PushRequest, results: readonly PushResult[]): void {
    this.#totals.pushRequests++;
    const seen = new Set<string>();
    for (let i = 0; i < results.length; i++) {
      const { queue } = items[i]!;
      const counts = this.#queue(tenant, queue);
      if (!seen.has(queue)) {
        seen.add(queue);
        if (counts !== null) counts.pushRequests++;
      }
      const { status } = results[i]!;
      if (status !== 'queued' && status !== 'buffered') continue;
      this.#totals.pushMessages++;
      if (counts !== null) counts.pushMessages++;
    }
  }

  /** Messages that got into a queue otherwise: a replayed dead letter, a timer that fired. */
  stored(tenant: TenantId, queue: string, messages: number): void {
    this.#totals.pushMessages += messages;
    const counts = this.#queue(tenant, queue);
    if (counts !== null) counts.pushMessages += messages;
  }

  popped({ tenant, scope, autoAck }: PopRequest, { claims }: PopAnswer): void {
    const { claimed, totals } = { claimed: new Set<string>(), totals: this.#totals };
    totals.popRequests++;
    const asked = scope.kind === 'discovery' ? null : this.#queue(tenant, scope.queue);
    if (asked !== null) asked.popRequests++;
    if (claims.length === 0) {
      totals.popEmpty++;
      if (asked !== null) asked.popEmpty++;
      return;
    }
    const now = this.#now();
    for (const { queue, messages } of claims) {
      const counts = asked ?? this.#queue(tenant, queue);
      if (asked === null && counts !== null && !claimed.has(queue)) {
        claimed.add(queue);
        counts.popRequests++;
      }
      for (const each of counts === null ? [totals] : [totals, counts]) {
        each.popMessages += messages.length;
        if (autoAck) {
          each.ackMessages += messages.length;
          each.ackSuccess += messages.length;
        }
        for (const { createdAtMicros } of messages) noteLag(each, now - createdAtMicros);
      }
    }
  }

  acked({ tenant, items }: AckRequest, verdicts: readonly AckVerdict[]): void {
    this.#totals.ackRequests++;
    const seen = new Set<string>();
    for (let i = 0; i < verdicts.length; i++) {
      const { partitionId, status } = items[i]!;
      const counts = this.#partition(tenant, partitionId);
      if (counts !== null && !seen.has(partitionId)) {
        seen.add(partitionId);
        counts.ackRequests++;
      }
      this.#verdict(counts, status, verdicts[i]!);
    }
  }

  /** Only what was committed counts. It counts once for each queue that it pushed to, else for what it acked first. */
  transacted(request: TransactionRequest, answer: TransactionAnswer): void {
    if (!answer.success) return;
    const { tenant, operations } = request;
    this.#totals.transactions++;
    const pushedTo = new Set<string>();
    let acked: QueueCounts | null = null;
    for (let i = 0; i < answer.results.length; i++) {
      const result = answer.results[i]!;
      if (result.type === 'push') {
        const counts = this.#queue(tenant, result.queue);
        if (counts !== null && !pushedTo.has(result.queue)) counts.transactions++;
        pushedTo.add(result.queue);
        if (result.duplicate) continue;
        this.#totals.pushMessages++;
        if (counts !== null) counts.pushMessages++;
      } else {
        const operation = operations[i]!;
        if (operation.type !== 'ack') continue;
        const counts = this.#partition(tenant, operation.item.partitionId);
        acked ??= counts;
        this.#verdict(counts, operation.item.status, result.verdict);
      }
    }
    if (pushedTo.size === 0 && acked !== null) acked.transactions++;
  }

  created(tenant: TenantId, queue: string, partitions: number): void {
    const counts = this.#queue(tenant, queue);
    if (counts !== null) counts.partitionsCreated += partitions;
  }

  cleaned(queueId: number, partitions: number): void {
    this.#totals.partitionsDeleted += partitions;
    const counts = this.#id(queueId);
    if (counts !== null) counts.partitionsDeleted += partitions;
  }

  /** One step of retention on one partition. */
  retained(queueId: number, rule: RetentionRule, messages: number): void {
    const counts = this.#id(queueId);
    for (const each of counts === null ? [this.#totals] : [this.#totals, counts]) {
      each.retentionEvents++;
      if (rule === 'retention') each.retentionMessages += messages;
      else if (rule === 'completed_retention') each.completedMessages += messages;
      else each.evictedMessages += messages;
    }
  }

  /** One look at the parked pops of a queue. */
  parked(tenant: TenantId, queue: string, pops: number): void {
    const counts = this.#queue(tenant, queue);
    if (counts !== null) counts.parkedSum += pops;
  }

  /** Nothing was counted since the last time. */
  get empty(): boolean {
    const entries = this.#queues.size + this.#partitions.size + this.#byId.size;
    return entries === 0 && Object.values(this.#totals).every((count) => count === 0);
  }

  /** Everything since the last time. */
  take(): Taken {
    const queues = [...this.#queues.values(), ...this.#partitions.values(), ...this.#byId.values()];
    const taken = { totals: this.#totals, queues };
    this.#totals = zero();
    this.#queues = new Map();
    this.#partitions = new Map();
    this.#byId = new Map();
    return taken;
  }

  #verdict(counts: QueueCounts | null, status: string, verdict: AckVerdict): void {
    const { success, dlq, conflated } = verdict;
    for (const each of counts === null ? [this.#totals] : [this.#totals, counts]) {
      each.ackMessages++;
      if (!success || status === 'failed' || status === 'dlq') each.ackFailed++;
      else if (status === 'completed') each.ackSuccess++;
      if (dlq) each.dlq++;
      if (conflated !== undefined) each.conflated += conflated;
    }
  }

  #queue(tenant: TenantId, queue: string): QueueCounts | null {
    const key = tenant === DEFAULT_TENANT ? queue : `${tenant}\u001f${queue}`;
    return this.#entry(this.#queues, key, QUEUES_MAX, () => ({ tenant, queue }));
  }

  #partition(tenant: TenantId, partitionId: string): QueueCounts | null {
    const key = tenant === DEFAULT_TENANT ? partitionId : `${tenant}\u001f${partitionId}`;
    const known = this.#partitions.get(key);
    if (known !== undefined) return known.counts;
    // As the client sent it.
    const partition = /^[1-9]\d{0,15}$/.test(partitionId) ? Number(partitionId) : Number.NaN;
    if (!Number.isSafeInteger(partition)) return null;
    return this.#entry(this.#partitions, key, PARTITIONS_MAX, () => ({ tenant, partition }));
  }

  #id(queueId: number): QueueCounts | null {
    return this.#entry(this.#byId, queueId, QUEUES_MAX, () => ({ queue_id: queueId }));
  }

  #entry<K>(map: Map<K, Entry>, key: K, max: number, place: () => Place): QueueCounts | null {
    const known = map.get(key);
    if (known !== undefined) return known.counts;
    if (map.size >= max) {
      this.onFull();
      return null;
    }
    const counts = zero();
    map.set(key, { place: place(), counts });
    return counts;
  }
}

function noteLag(counts: QueueCounts, micros: number): void {
  // The two clocks are compared by an estimate, so that a fresh message may seem to come from the future.
  const lag = Math.max(0, Math.round(micros));
  counts.lagCount++;
  counts.lagSumUs += lag;
  if (lag > counts.lagMaxUs) counts.lagMaxUs = lag;
}

function zero(): QueueCounts {
  return {
    pushRequests: 0,
    pushMessages: 0,
    popRequests: 0,
    popMessages: 0,
    popEmpty: 0,
    ackRequests: 0,
    ackMessages: 0,
    ackSuccess: 0,
    ackFailed: 0,
    dlq: 0,
    conflated: 0,
    transactions: 0,
    partitionsCreated: 0,
    partitionsDeleted: 0,
    retentionMessages: 0,
    completedMessages: 0,
    evictedMessages: 0,
    retentionEvents: 0,
    lagCount: 0,
    lagSumUs: 0,
    lagMaxUs: 0,
    parkedSum: 0,
    parkedLooks: 0,
  };
}
