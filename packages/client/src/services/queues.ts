import { type CallOptions, segment, type Transport } from '../wire/transport.ts';
import type { QueueOptions } from './queue_options.ts';

export interface QueueSummary {
  readonly id: string;
  readonly name: string;
  readonly namespace: string;
  readonly task: string;
  readonly createdAt: string;
  readonly partitions: number;
  readonly retainedBytes: number;
  readonly messages: { readonly total: number; readonly pending: number; readonly processing: number };
}

export interface Standing {
  readonly total: number;
  readonly pending: number;
  readonly processing: number;
  readonly completed: number;
  readonly deadLetter: number;
}

export interface QueueDetail {
  readonly id: string;
  readonly name: string;
  readonly namespace: string;
  readonly task: string;
  readonly createdAt: string;
  readonly options: { readonly [K in keyof QueueOptions]-?: NonNullable<QueueOptions[K]> };
  readonly partitions: readonly {
    readonly id: string;
    readonly name: string;
    readonly createdAt: string;
    readonly stats: Standing;
    readonly oldestMessage: string | null;
    readonly newestMessage: string | null;
  }[];
  readonly totals: Standing;
  readonly retainedBytes: number;
}

/** Messages that wait: `pending`, of which `processing` are leased and `ready` are not. */
export interface QueueDepth {
  readonly queue: string;
  readonly group: string | null;
  readonly pending: number;
  readonly processing: number;
  readonly ready: number;
  readonly partitionsPending: number;
  readonly partitionsReady: number;
  readonly conflation: boolean;
  /** Calls of a handler to come: messages, or partitions for a group that conflates. */
  readonly effectivePending: number;
  readonly effectiveReady: number;
  readonly partitions: readonly {
    readonly partition: string;
    readonly pending: number;
    readonly processing: number;
    readonly ready: number;
  }[];
}

/** A page of the partitions of a queue, by name, counted when asked. */
export interface PartitionPage {
  readonly queue: Pick<QueueDetail, 'id' | 'name' | 'namespace' | 'task' | 'createdAt' | 'options'>;
  /** All that there are. */
  readonly total: number;
  readonly messages: Standing;
  readonly partitions: readonly {
    readonly id: string;
    readonly name: string;
    readonly messages: Standing;
    readonly lastActivity: string;
    readonly oldestMessage: string | null;
    readonly newestMessage: string | null;
  }[];
}

const QUEUES = '/api/v1/resources/queues';

export async function listQueues(transport: Transport, { signal }: CallOptions): Promise<QueueSummary[]> {
  const { queues } = await transport.ask<{ queues: QueueSummary[] }>({
    method: 'GET',
    path: QUEUES,
    repeatable: true,
    signal,
  });
  return queues;
}

export function inspectQueue(
  transport: Transport,
  queue: string,
  { signal }: CallOptions,
): Promise<QueueDetail> {
  return transport.ask({ method: 'GET', path: `${QUEUES}/${segment(queue)}`, repeatable: true, signal });
}

export async function partitionsOf(
  transport: Transport,
  name: string,
  { limit, offset, signal }: CallOptions & { limit?: number | undefined; offset?: number | undefined },
): Promise<PartitionPage> {
  const { queue, totals, partitions } = await transport.ask<
    Pick<PartitionPage, 'queue' | 'partitions'> & { totals: { partitions: number; messages: Standing } }
  >({
    method: 'GET',
    path: `/api/v1/status/queues/${segment(name)}`,
    query: { limit, offset },
    repeatable: true,
    signal,
  });
  return { queue, total: totals.partitions, messages: totals.messages, partitions };
}

export function depthOf(
  transport: Transport,
  queue: string,
  group: string | undefined,
  { signal }: CallOptions,
): Promise<QueueDepth> {
  const path = `${QUEUES}/${segment(queue)}/depth`;
  return transport.ask({ method: 'GET', path, query: { group }, repeatable: true, signal });
}

/**
 * Not repeated when its answer is lost: somebody may have made the queue again meanwhile.
 *
 * @returns whether there was one
 */
export async function removeQueue(
  transport: Transport,
  queue: string,
  { signal }: CallOptions,
): Promise<boolean> {
  const path = `${QUEUES}/${segment(queue)}`;
  const { deleted } = await transport.ask<{ deleted: boolean }>({
    method: 'DELETE',
    path,
    repeatable: false,
    signal,
  });
  return deleted;
}
