/** Queues and partitions. */
import { at, get, post, remove } from './client.ts';
import type { MessageCounts } from './overview.ts';

/** Which rows of a list, and in which order. */
export interface PageQuery {
  search?: string;
  sort?: string;
  order?: 'asc' | 'desc';
  limit: number;
  offset: number;
}

export interface Pagination {
  limit: number;
  offset: number;
  total: number;
}

export interface QueueRow {
  id: string;
  name: string;
  namespace: string;
  task: string;
  createdAt: string;
  partitions: number;
  retainedBytes: number;
  messages: MessageCounts;
}

/** As last counted, some seconds ago. */
export const listQueues = (query: PageQuery, signal: AbortSignal) =>
  get<{ queues: QueueRow[]; pagination: Pagination }>('/api/v1/status/queues', {
    query: { ...query },
    signal,
  });

export interface PartitionRow {
  id: string;
  name: string;
  messages: MessageCounts;
  lastActivity: string;
  oldestMessage: string | null;
  newestMessage: string | null;
}

/** Numbers, switches and words by option. */
export type QueueOptions = Record<string, number | boolean | string>;

export interface LiveQueue {
  queue: {
    id: string;
    name: string;
    namespace: string;
    task: string;
    createdAt: string;
    options: QueueOptions;
  };
  partitions: PartitionRow[];
  totals: { partitions: number; messages: MessageCounts };
  pagination: Pagination;
}

/** Counted when asked. */
export const getQueue = (queue: string, query: PageQuery, signal: AbortSignal) =>
  get<LiveQueue>(at`/api/v1/status/queues/${queue}`, { query: { ...query }, signal });

export interface PartitionCursor {
  /** `__QUEUE_MODE__`: pops without a group. */
  group: string;
  nextOffset: number;
  offsetLag: number;
  totalConsumed: number;
  leaseActive: boolean;
  leaseUpToOffset: number | null;
  leaseExpiresAt: string | null;
  workerId: string | null;
}

export interface PartitionDetail extends PartitionRow {
  queue: string;
  createdAt: string;
  logStartOffset: number;
  nextOffset: number;
  groups: PartitionCursor[];
}

export const getPartition = (queue: string, partition: string, signal: AbortSignal) =>
  get<PartitionDetail>(at`/api/v1/status/queues/${queue}/partitions/${partition}`, { signal });

/** Messages and their fate, minute by minute. */
export interface QueueOps {
  timeRange: { from: string; to: string };
  bucketMinutes: number;
  series: {
    bucket: string;
    pushMessages: number;
    popMessages: number;
    ackSuccess: number;
    ackFailed: number;
    avgLagMs: number | null;
    maxLagMs: number | null;
  }[];
}

export const getQueueOps = (queue: string, from: string | null, signal: AbortSignal) =>
  get<QueueOps>('/api/v1/analytics/queue-ops', { query: { queue, from }, signal });

/** Changes the options that are named; the answer has all of them. */
export const configureQueue = (queue: string, options: QueueOptions) =>
  post<{ options: QueueOptions; ignored?: string[] }>('/api/v1/configure', { body: { queue, options } });

export const deleteQueue = (queue: string) =>
  remove<{ deleted: boolean; existed: boolean }>(at`/api/v1/resources/queues/${queue}`);
