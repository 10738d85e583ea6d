/** Consumer groups at the engine's face. Times in microseconds. */
import type { GroupPageRow, GroupSort, GroupSums } from '../../store/groups.ts';
import type { PageWanted } from '../../store/partitions.ts';
import type { TenantId } from '../types.ts';

export type { GroupPageRow, GroupSort, GroupSums } from '../../store/groups.ts';

export type StandingSort = 'name' | 'lag' | 'waiting' | 'partitions';

/** Which rows of the list; null: of all. */
export interface StandingFilter {
  group: string | null;
  queue: string | null;
}

/** A group on a queue. */
export interface GroupStanding {
  group: string;
  queue: string;
  /** Partitions that it has a cursor on. */
  cursors: number;
  /** Partitions with something left for it. */
  behind: number;
  /** Messages that are left, over all partitions. */
  lag: number;
  /** How long the oldest of them has waited. */
  lagMicros: number;
  /** It has consumed something, ever. */
  consumed: boolean;
  conflation: boolean;
  /** Null: it never registered. */
  subscription: { mode: string; fromMicros: number | null; createdAtMicros: number } | null;
}

/** A partition on which a group is late. */
export interface LaggingPartition {
  group: string;
  queue: string;
  partition: string;
  partitionId: string;
  worker: string | null;
  lag: number;
  lagMicros: number;
  oldestMicros: number;
}

export interface GroupQueue {
  queue: string;
  conflation: boolean;
  partitions: {
    partition: string;
    worker: string | null;
    consumed: number;
    lag: number;
    lagMicros: number;
    leased: boolean;
  }[];
}

/** Where delivery resumes. An offset only makes sense on one partition. */
export type SeekTarget =
  | { to: 'end' }
  | { to: 'beginning' }
  /** Held between the oldest retained offset and the next one to come. */
  | { to: 'offset'; offset: number }
  /** With the first segment written at or after it; at the end when there is none. */
  | { to: 'at'; atMicros: number };

export interface SeekRequest {
  tenant: TenantId;
  group: string;
  queue: string;
  /** Null: all partitions of the queue. */
  partition: string | null;
  target: SeekTarget;
}

export interface GroupsFace {
  /** By group and queue. */
  list(tenant: TenantId): Promise<GroupStanding[]>;
  /** One page of the list: `search` looks at the names of groups and queues; and how many there are in all. */
  page(
    tenant: TenantId,
    filter: StandingFilter,
    wanted: PageWanted<StandingSort>,
  ): Promise<{ rows: GroupStanding[]; total: number }>;
  /** Live: one page of the partitions of a queue as the group sees them, with sums over all of them. */
  onQueue(
    tenant: TenantId,
    group: string,
    queue: string,
    wanted: PageWanted<GroupSort>,
  ): Promise<{ sums: GroupSums; rows: GroupPageRow[] }>;
  /** Whose oldest message has waited for `minSeconds` or longer; the longest first, at most ten thousand. */
  lagging(tenant: TenantId, minSeconds: number): Promise<LaggingPartition[]>;
  /** By queue and partition; empty for an unknown group. */
  detail(tenant: TenantId, group: string): Promise<GroupQueue[]>;
  /** Changes where the group starts on partitions that it meets later; how many registrations it has. */
  subscribe(tenant: TenantId, group: string, fromMicros: number): Promise<number>;
  /**
   * Moves cursors, ends their leases. `moved` 0: no such queue, no partitions in it, or no such partition.
   *
   * @throws EngineError refused: `bad_name`.
   */
  seek(request: SeekRequest): Promise<{ moved: number; resumesAt: number | null }>;
  /** Removes the group's cursors on a queue or (null) on all, with its registrations if wanted; how many cursors. */
  delete(
    tenant: TenantId,
    group: string,
    queue: string | null,
    registrations: boolean,
  ): Promise<{ cursors: number }>;
}
