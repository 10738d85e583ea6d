import { ApiError, get } from './client.ts';

/** Messages by what became of them. */
export interface MessageCounts {
  total: number;
  pending: number;
  processing: number;
  completed: number;
  deadLetter: number;
}

export interface Overview {
  queues: number;
  partitions: number;
  namespaces: number;
  tasks: number;
  messages: MessageCounts;
  /** `time` in seconds, `offset` in messages. */
  lag: Record<'time' | 'offset', { avg: number; median: number; min: number; max: number }>;
  throughput: { ingestedPerSecond: number; processedPerSecond: number };
  /** Seconds since the counts were taken; -1: never. */
  statsAge: number;
}

export const getOverview = (signal: AbortSignal) => get<Overview>('/api/v1/resources/overview', { signal });

/** Sums over all queues of one point in time, and each queue's share of the range. */
export interface Workload {
  timeRange: { from: string; to: string };
  bucketMinutes: number;
  /** Instants; the series' values stand at the same places. */
  buckets: string[];
  rows: WorkloadRow[];
  rowsTotal: number;
  tenant: Omit<WorkloadRow, 'key'>;
}

export interface WorkloadRow {
  key: string;
  queues: number;
  window: {
    pushMessages: number;
    popMessages: number;
    popEmpty: number;
    ackSuccess: number;
    ackFailed: number;
    transactions: number;
    parkedAvg: number;
    avgLagMs: number | null;
    maxLagMs: number | null;
  };
  /** Messages of each bar, and milliseconds. */
  series: Record<
    'push' | 'pop' | 'popEmpty' | 'ackFailed' | 'parked' | 'avgLagMs' | 'maxLagMs',
    (number | null)[]
  >;
  now: {
    pending: number;
    processing: number;
    deadLetter: number;
    retainedBytes: number;
    partitions: number;
    groups: number;
  };
}

/** By queue, the busiest first; from an instant (null: an hour ago) to now. */
export const getWorkload = (from: string | null, limit: number, signal: AbortSignal) =>
  get<Workload>('/api/v1/analytics/workload', { query: { groupBy: 'queue', from, limit }, signal });

export interface Health {
  status: 'healthy' | 'unhealthy';
  database: 'connected' | 'disconnected';
  version: string;
  serverId: string;
  maintenance: { push: boolean; pop: boolean };
  /** Null: there is no disk to wait on. */
  spool: { pending: number; failed: number; draining: boolean; lasting: boolean } | null;
}

/** Answers with 503 too when the database is away: then the body tells, and this resolves all the same. */
export async function getHealth(signal: AbortSignal): Promise<Health> {
  try {
    return await get<Health>('/health', { signal });
  } catch (error) {
    if (error instanceof ApiError && error.body.status === 'unhealthy')
      return error.body as unknown as Health;
    throw error;
  }
}
