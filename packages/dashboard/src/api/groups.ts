/** Consumer groups: how far behind they are, and how they are moved. */
import { at, get, post, remove } from './client.ts';
import type { PageQuery, Pagination } from './queues.ts';

/** A group on a queue. */
export interface GroupRow {
  name: string;
  queueName: string;
  /** Partitions that it has a cursor on. */
  partitionCursors: number;
  partitionsWithLag: number;
  /** Messages. */
  totalLag: number;
  /** Seconds. */
  maxTimeLag: number;
  state: 'Stable' | 'Lagging' | 'Dead';
  /** Null: it never registered. */
  subscriptionMode: string | null;
  subscriptionTimestamp: string | null;
  conflation: boolean;
}

/** Of one group when it is named. */
export const listGroups = (query: PageQuery & { group?: string }, signal: AbortSignal) =>
  get<{ groups: GroupRow[]; pagination: Pagination }>('/api/v1/consumer-groups', {
    query: { ...query },
    signal,
  });

export interface GroupPartition {
  partition: string;
  partitionId: string;
  /** False: it has not been there yet, and would start at `nextOffset`. */
  hasCursor: boolean;
  nextOffset: number;
  endOffset: number;
  offsetLag: number;
  timeLagSeconds: number;
  totalConsumed: number;
  workerId: string | null;
  leaseActive: boolean;
}

export interface GroupOnQueue {
  consumerGroup: string;
  queueName: string;
  conflation: boolean;
  totals: {
    partitions: number;
    partitionCursors: number;
    partitionsWithLag: number;
    totalLag: number;
    maxTimeLag: number;
  };
  partitions: GroupPartition[];
  pagination: Pagination;
}

export const getGroupOnQueue = (group: string, queue: string, query: PageQuery, signal: AbortSignal) =>
  get<GroupOnQueue>(at`/api/v1/consumer-groups/${group}/queues/${queue}`, { query: { ...query }, signal });

export type SeekTarget = { toBeginning: true } | { toEnd: true } | { timestamp: string } | { offset: number };

/** Moves the group on a queue, or on one partition of it. */
export async function seek(
  group: string,
  queue: string,
  partition: string | null,
  target: SeekTarget,
): Promise<{ partitionsUpdated: number; resumesAt: number | null }> {
  const path =
    partition === null
      ? at`/api/v1/consumer-groups/${group}/queues/${queue}/seek`
      : at`/api/v1/consumer-groups/${group}/queues/${queue}/partitions/${partition}/seek`;
  const answer = await post<{ partitionsUpdated?: number; resumesAt?: number | null }>(path, {
    body: target,
  });
  return { partitionsUpdated: answer.partitionsUpdated ?? 1, resumesAt: answer.resumesAt ?? null };
}

/** Forgets the group on a queue, or (null) everywhere, with where it began. */
export const deleteGroup = (group: string, queue: string | null) =>
  remove<{ deletedPartitions: number }>(
    queue === null
      ? at`/api/v1/consumer-groups/${group}`
      : at`/api/v1/consumer-groups/${group}/queues/${queue}`,
  );
