/** The brokers, the switches that all of them follow, and their database. */
import { get, post } from './client.ts';

export interface Gauge {
  avg: number;
  min: number;
  max: number;
  last: number;
}

export interface BrokerMetrics {
  /** Hundredths of a percent of one core. */
  cpu: { user_us: Gauge; system_us: Gauge };
  memory: { rss_bytes: Gauge };
  database: { pool_size: Gauge; pool_idle: Gauge; pool_active: Gauge };
  uptime_seconds: Gauge;
  event_loop_lag_ms: Gauge;
}

export interface Replica {
  hostname: string;
  timeSeries: { timestamp: string; metrics: BrokerMetrics }[];
}

/** From an instant (null: an hour ago, by the minute) to now. */
export const getBrokers = (from: string | null, signal: AbortSignal) =>
  get<{ replicas: Replica[] }>('/api/v1/analytics/system-metrics', {
    query: { from },
    signal,
  });

export interface Switches {
  kvEnabled: boolean;
  timersScheduleEnabled: boolean;
  timersFireEnabled: boolean;
  pushPaused: boolean;
  popPaused: boolean;
}

/** For admins. */
export async function getSwitches(signal: AbortSignal): Promise<Switches> {
  const [maintenance, others] = await Promise.all([
    get<{ maintenanceMode: boolean; popMaintenanceMode: boolean }>('/api/v1/system/maintenance', { signal }),
    get<Pick<Switches, 'kvEnabled' | 'timersScheduleEnabled' | 'timersFireEnabled'>>(
      '/api/v1/system/kv-timers',
      { signal },
    ),
  ]);
  const { kvEnabled, timersScheduleEnabled, timersFireEnabled } = others;
  return {
    kvEnabled,
    timersScheduleEnabled,
    timersFireEnabled,
    pushPaused: maintenance.maintenanceMode,
    popPaused: maintenance.popMaintenanceMode,
  };
}

export const setSwitch = (name: keyof Switches, on: boolean) => {
  switch (name) {
    case 'pushPaused':
      return post('/api/v1/system/maintenance', { body: { enabled: on } });
    case 'popPaused':
      return post('/api/v1/system/maintenance/pop', { body: { enabled: on } });
    case 'kvEnabled':
      return post('/api/v1/system/kv-timers', { body: { kv: on } });
    case 'timersScheduleEnabled':
      return post('/api/v1/system/kv-timers', { body: { timersSchedule: on } });
    case 'timersFireEnabled':
      return post('/api/v1/system/kv-timers', { body: { timersFire: on } });
  }
};

export interface PostgresStats {
  timestamp: string;
  database: {
    name: string;
    sizeBytes: number;
    connections: number;
    maxConnections: number;
    commits: number;
    rollbacks: number;
    deadlocks: number;
    tempFiles: number;
    tempBytes: number;
    version: string;
    startedAt: string;
  } | null;
  databaseCache: { hitRatio: number | null } | null;
  cacheSummary: { tableHitRatio: number | null; indexHitRatio: number | null } | null;
  deadTuples: {
    table: string;
    live: number;
    dead: number;
    deadRatio: number | null;
    lastVacuum: string | null;
    lastAutovacuum: string | null;
  }[];
  hotUpdates: { table: string; updates: number; hotUpdates: number; hotRatio: number | null }[];
  activeQueries: {
    pid: number;
    application: string;
    state: string;
    waitEventType: string | null;
    waitEvent: string | null;
    seconds: number | null;
    transactionSeconds: number | null;
    query: string | null;
  }[];
  autovacuumStatus: {
    pid: number;
    table: string;
    phase: string;
    blocksTotal: number;
    blocksScanned: number;
  }[];
  bufferConfig: { name: string; setting: string; unit: string | null }[];
  tableSizes: {
    table: string;
    totalBytes: number;
    tableBytes: number;
    indexBytes: number;
    toastBytes: number;
    rows: number;
  }[];
}

export const getPostgres = (signal: AbortSignal) =>
  get<PostgresStats>('/api/v1/analytics/postgres-stats', { signal });
