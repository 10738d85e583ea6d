/**
 * Statistics at the engine's face. What stands somewhere is from the rollup, which is some seconds old (`statsAgeMs`),
 * unless it says live; what has passed is from what brokers have written down, this one's up to now. Times in microseconds.
 */
import type { BrokerBar, CountBar, ParkedBar, QueueTraffic, TrafficBar } from '../../store/analytics.ts';
import type { PageWanted, PartitionCursor, PartitionSort } from '../../store/partitions.ts';
import type {
  LivenessRow,
  QueueFilter,
  QueueSort,
  StandingQueue,
  StandingTotals,
} from '../../store/rollup.ts';
import type { ServerStats } from '../../store/server_stats.ts';
import type { MessageCounts, QueueOptions, TenantId } from '../types.ts';
import type { Range } from './bars.ts';
import type { RefreshReport } from './refresh.ts';
import type { Workload, WorkloadBy } from './workload.ts';

export type {
  BrokerBar,
  CountBar,
  Gauge,
  ParkedBar,
  QueueTraffic,
  TrafficBar,
} from '../../store/analytics.ts';
export type { PageWanted, PartitionCursor, PartitionSort } from '../../store/partitions.ts';
export type {
  LivenessRow,
  QueueFilter,
  QueueSort,
  StandingQueue,
  StandingTotals,
} from '../../store/rollup.ts';

/** Null: from an hour (or what the call says) before `to`, to now. */
export interface Asked {
  fromMicros: number | null;
  toMicros: number | null;
}

export interface Overview {
  totals: StandingTotals;
  /** Messages a second over the last five minutes. */
  storedPerSecond: number;
  finishedPerSecond: number;
  nowMicros: number;
  /** -1: never counted. */
  statsAgeMs: number;
}

export interface LivePartition extends MessageCounts {
  id: string;
  name: string;
  completed: number;
  deadLetter: number;
  /** By all groups, ever. */
  consumed: number;
  lastWriteMicros: number;
  oldestMicros: number | null;
  newestMicros: number | null;
}

export interface LiveQueue {
  id: string;
  name: string;
  createdAtMicros: number;
  options: QueueOptions;
  /** How many there are; `page` has some of them. */
  partitions: number;
  /** How many have a name that was searched for. */
  matches: number;
  page: LivePartition[];
  totals: MessageCounts & { completed: number; deadLetter: number };
}

export interface PartitionDetail extends LivePartition {
  logStart: number;
  /** What the next message gets. */
  nextOffset: number;
  createdAtMicros: number;
  cursors: PartitionCursor[];
}

export interface SystemStatus {
  range: Range;
  bars: CountBar[];
  brokers: BrokerBar[];
  totals: StandingTotals;
  queues: Pick<StandingQueue, 'id' | 'name' | 'namespace' | 'task' | 'partitions' | 'consumed'>[];
  statsAgeMs: number;
}

export interface RetentionCounts {
  retention: number;
  completed: number;
  evicted: number;
  events: number;
}

export interface RetentionReport {
  range: Range;
  series: (RetentionCounts & { bucketMicros: number })[];
  totals: RetentionCounts;
  /** Null without a grouping. */
  rows: (RetentionCounts & { key: string; queues: number })[] | null;
}

export interface DeadLetterReport {
  rowsNow: number;
  /** Reasons that were looked at. */
  sample: number;
  retryCounts: { retryCount: number; n: number }[];
  groups: { group: string; n: number }[];
  oldestMicros: number | null;
  newestMicros: number | null;
  avgBytes: number | null;
  signatures: { text: string; n: number; share: number }[];
  byDay: { day: string; n: number }[];
}

export interface StatisticsFace {
  /** Counts everything now. */
  refresh(): Promise<RefreshReport>;
  overview(tenant: TenantId): Promise<Overview>;
  /** One page, and how many there are in all. */
  queues(
    tenant: TenantId,
    filter: QueueFilter,
    page: PageWanted<QueueSort>,
  ): Promise<{ queues: StandingQueue[]; total: number }>;
  /** What the tenant stores beside its queues, some minutes old. */
  beside(tenant: TenantId): Promise<{ kvRows: number; kvBytes: number; timerBytes: number }>;
  /** Live. Null: no such queue. */
  queue(tenant: TenantId, queue: string, page: PageWanted<PartitionSort>): Promise<LiveQueue | null>;
  /** Live, with everybody who consumes it. Null: no such partition. */
  partition(tenant: TenantId, queue: string, partition: string): Promise<PartitionDetail | null>;
  /** Messages stored, by minute, hour or day. */
  stored(
    tenant: TenantId,
    asked: Asked,
    stepMinutes: number,
    filter: QueueFilter,
  ): Promise<{ range: Range; points: { bucketMicros: number; messages: number }[] }>;
  /** Of the whole installation. */
  status(asked: Asked, filter: QueueFilter): Promise<SystemStatus>;
  /** By bar and queue, oldest first; `truncated`: only the busiest queues. */
  traffic(
    tenant: TenantId,
    asked: Asked,
    queue: string | null,
  ): Promise<{ range: Range; bars: TrafficBar[]; truncated: boolean }>;
  parked(tenant: TenantId, asked: Asked, queue: string | null): Promise<{ range: Range; bars: ParkedBar[] }>;
  retention(
    tenant: TenantId,
    asked: Asked,
    queue: string | null,
    by: WorkloadBy | null,
  ): Promise<RetentionReport>;
  workload(
    tenant: TenantId,
    asked: Asked,
    by: WorkloadBy,
    filter: QueueFilter,
    limit: number,
  ): Promise<Workload>;
  /** Live. The newest `limit` reasons are looked at. */
  deadLetters(tenant: TenantId, queue: string, limit: number): Promise<DeadLetterReport>;
  liveness(
    tenant: TenantId,
    filter: QueueFilter,
    limit: number,
  ): Promise<{ capturedAtMicros: number | null; rows: LivenessRow[] }>;
  /** By bar and broker; null: all brokers. */
  brokers(asked: Asked, server: string | null): Promise<{ range: Range; bars: BrokerBar[] }>;
  /** Traffic of one queue name over all tenants and the brokers asked for. */
  allTraffic(
    asked: Asked,
    queue: string | null,
    server: string | null,
  ): Promise<{ range: Range; bars: CountBar[]; queues: QueueTraffic[] }>;
  /** What PostgreSQL says about itself. */
  server(): Promise<{ nowMicros: number; stats: ServerStats }>;
}
