import { type CallOptions, segment, type Transport } from '../wire/transport.ts';
import { instant } from './dead_letters.ts';

export interface GroupStanding {
  readonly name: string;
  readonly queueName: string;
  /** Partitions that it has a cursor on. */
  readonly partitionCursors: number;
  readonly partitionsWithLag: number;
  /** Messages. */
  readonly totalLag: number;
  /** Age of the oldest message that it has not passed, s. */
  readonly maxTimeLag: number;
  readonly state: 'Stable' | 'Lagging' | 'Dead';
  readonly subscriptionMode: string | null;
  readonly subscriptionTimestamp: string | null;
  readonly conflation: boolean;
}

export interface GroupPartition {
  readonly partition: string;
  readonly workerId: string | null;
  readonly totalConsumed: number;
  readonly offsetLag: number;
  readonly timeLagSeconds: number;
  readonly leaseActive: boolean;
}

/** By queue. */
export type GroupDetail = Readonly<
  Record<string, { readonly conflation: boolean; readonly partitions: readonly GroupPartition[] }>
>;

export interface LaggingPartition {
  readonly group: string;
  readonly queue: string;
  readonly partition: string;
  readonly partitionId: string;
  readonly offsetLag: number;
  readonly timeLagSeconds: number;
}

/** Where a group goes on. */
export type SeekTarget =
  | { readonly to: 'beginning' | 'end' }
  /** At the first batch that was written at or after an instant. */
  | { readonly to: Date | string }
  /** On one partition only. */
  | { readonly to: number };

const GROUPS = '/api/v1/consumer-groups';

/** Consumer groups: what there are, how far behind, and how they are moved and removed. */
export class Groups {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** One element for each group and queue. */
  list({ signal }: CallOptions = {}): Promise<GroupStanding[]> {
    return this.#transport.ask({ method: 'GET', path: GROUPS, repeatable: true, signal });
  }

  /** Partitions on which a group is further behind than so many seconds. Default 3600. */
  async lagging(options: CallOptions & { minLagSeconds?: number } = {}): Promise<LaggingPartition[]> {
    const rows = await this.#transport.ask<Record<string, string & number>[]>({
      method: 'GET',
      path: `${GROUPS}/lagging`,
      query: { minLagSeconds: options.minLagSeconds },
      repeatable: true,
      signal: options.signal,
    });
    return rows.map((row) => ({
      group: row.consumer_group!,
      queue: row.queue_name!,
      partition: row.partition_name!,
      partitionId: row.partition_id!,
      offsetLag: row.offset_lag!,
      timeLagSeconds: row.time_lag_seconds!,
    }));
  }

  /** Its partitions, queue by queue; empty for a group that nobody knows. */
  inspect(group: string, { signal }: CallOptions = {}): Promise<GroupDetail> {
    return this.#transport.ask({ method: 'GET', path: pathOf(group), repeatable: true, signal });
  }

  /** Messages that it has not passed yet, on all its queues or on one. */
  async lag(group: string, options: CallOptions & { queue?: string } = {}): Promise<number> {
    const detail = await this.inspect(group, options);
    let lag = 0;
    for (const [queue, { partitions }] of Object.entries(detail)) {
      if (options.queue !== undefined && queue !== options.queue) continue;
      for (const { offsetLag } of partitions) lag += offsetLag;
    }
    return lag;
  }

  /**
   * Moves a group on a queue, or on one partition of it. Leases that it has there end, so acks that are under way are refused.
   *
   * @returns partitions that were moved
   * @throws RefusedError `queue_not_found`, `partition_not_found`
   */
  async seek(
    group: string,
    queue: string,
    target: SeekTarget,
    options: CallOptions & { partition?: string } = {},
  ): Promise<number> {
    const onQueue = pathOf(group, queue);
    const { partition, signal } = options;
    const where = partition === undefined ? onQueue : `${onQueue}/partitions/${segment(partition)}`;
    const answer = await this.#transport.ask<{ partitionsUpdated?: number }>({
      method: 'POST',
      path: `${where}/seek`,
      body: wireOf(target),
      repeatable: true,
      signal,
    });
    return answer.partitionsUpdated ?? 1;
  }

  /** Where it starts on partitions that it has no cursor on. @returns registrations that were changed */
  async startFrom(group: string, at: Date | string, { signal }: CallOptions = {}): Promise<number> {
    const { rowsUpdated } = await this.#transport.ask<{ rowsUpdated: number }>({
      method: 'POST',
      path: `${pathOf(group)}/subscription`,
      body: { subscriptionTimestamp: instant(at) },
      repeatable: true,
      signal,
    });
    return rowsUpdated;
  }

  /**
   * Forgets where a group is, on all queues or on one; with `keepRegistration` not where it starts.
   *
   * @returns cursors that were deleted
   */
  async delete(
    group: string,
    options: CallOptions & { queue?: string; keepRegistration?: boolean } = {},
  ): Promise<number> {
    const { deletedPartitions } = await this.#transport.ask<{ deletedPartitions: number }>({
      method: 'DELETE',
      path: pathOf(group, options.queue),
      query: { deleteMetadata: options.keepRegistration !== true },
      repeatable: false,
      signal: options.signal,
    });
    return deletedPartitions;
  }
}

function pathOf(group: string, queue?: string): string {
  const path = `${GROUPS}/${segment(group)}`;
  return queue === undefined ? path : `${path}/queues/${segment(queue)}`;
}

function wireOf({ to }: SeekTarget): Record<string, unknown> {
  if (to === 'beginning') return { toBeginning: true };
  if (to === 'end') return { toEnd: true };
  return typeof to === 'number' ? { offset: to } : { timestamp: instant(to) };
}
