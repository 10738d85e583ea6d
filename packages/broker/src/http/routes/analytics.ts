/** What has passed, over time: /api/v1/analytics. */
import type {
  BrokerBar,
  CountBar,
  Gauge,
  QueueTraffic,
  RetentionCounts,
  StatisticsFace,
  TrafficBar,
} from '../../engine/statistics/face.ts';
import {
  maxMs,
  meanMs,
  tenth,
  type Workload,
  type WorkloadBy,
  type WorkloadRow,
} from '../../engine/statistics/workload.ts';
import { formatInstant, formatInstantOrNull } from '../../log/instants.ts';
import {
  deadLetterReport,
  GROUPINGS,
  KEYS,
  LIVENESS,
  parkedReplicas,
  partitionLiveness,
  postgresStats,
  queueLag,
  queueOps,
  REASONS,
  retentionReport,
  systemMetrics,
  workerMetrics,
  workload,
} from '../api/analytics.ts';
import type { App } from '../app.ts';
import { Fault } from '../errors.ts';
import { type Query, queryOf } from '../query.ts';
import { filterName, oneOf, readFilter, readSpan, timeRange } from '../span.ts';

const AT = '/api/v1/analytics';
const config = { level: 'read-only' } as const;

export function analyticsRoutes(app: App, statistics: StatisticsFace): void {
  queueRoutes(app, statistics);
  brokerRoutes(app, statistics);
}

function queueRoutes(app: App, statistics: StatisticsFace): void {
  app.get(`${AT}/queue-lag`, { config, schema: queueLag }, async (request) => {
    const query = queryOf(request);
    const queue = filterName(query, 'queue');
    const { range, bars } = await statistics.traffic(request.identity.tenant, readSpan(query), queue);
    return bars
      .toSorted((a, b) => b.bucketMicros - a.bucketMicros || compare(a.queue, b.queue))
      .map((bar) => ({
        queueName: bar.queue,
        popCount: bar.lagCount,
        avgLagMs: meanMs(bar),
        maxLagMs: maxMs(bar),
        bucketMinutes: range.stepMinutes,
        bucketTime: formatInstant(bar.bucketMicros),
      }));
  });

  app.get(`${AT}/queue-ops`, { config, schema: queueOps }, async (request) => {
    const query = queryOf(request);
    const queue = filterName(query, 'queue');
    const { range, bars, truncated } = await statistics.traffic(
      request.identity.tenant,
      readSpan(query),
      queue,
    );
    return {
      timeRange: timeRange(range),
      bucketMinutes: range.stepMinutes,
      series: bars.map((bar) => renderOps(bar, range.stepMinutes)),
      queues: [...new Set(bars.map((bar) => bar.queue))].sort(compare),
      truncated,
    };
  });

  app.get(`${AT}/queue-parked-replicas`, { config, schema: parkedReplicas }, async (request) => {
    const query = queryOf(request);
    const { tenant } = request.identity;
    const { range, bars } = await statistics.parked(tenant, readSpan(query), filterName(query, 'queue'));
    return {
      timeRange: timeRange(range),
      bucketMinutes: range.stepMinutes,
      series: bars.map(({ bucketMicros, queue, server, parked }) => ({
        bucket: formatInstant(bucketMicros),
        queueName: queue,
        hostname: server,
        workerId: 0,
        parkedCount: tenth(parked),
      })),
      replicas: [...new Set(bars.map(({ server }) => server))]
        .sort(compare)
        .map((hostname) => ({ hostname, workerId: 0 })),
    };
  });

  app.get(`${AT}/retention`, { config, schema: retentionReport }, async (request) => {
    const query = queryOf(request);
    const by = readGroupBy(query);
    const { tenant } = request.identity;
    const queue = filterName(query, 'queue');
    const { range, series, totals, rows } = await statistics.retention(tenant, readSpan(query), queue, by);
    return {
      timeRange: timeRange(range),
      bucketMinutes: range.stepMinutes,
      series: series.map((bar) => ({ bucket: formatInstant(bar.bucketMicros), ...renderRetention(bar) })),
      totals: renderRetention(totals),
      ...(rows === null
        ? {}
        : { rows: rows.map((row) => ({ key: row.key, queues: row.queues, ...renderRetention(row) })) }),
    };
  });

  app.get(`${AT}/workload`, { config, schema: workload }, async (request) => {
    const query = queryOf(request);
    const by = readGroupBy(query) ?? 'namespace';
    const limit = query.limit(KEYS);
    const { tenant } = request.identity;
    return renderWorkload(await statistics.workload(tenant, readSpan(query), by, readFilter(query), limit));
  });

  app.get(`${AT}/dlq-signatures`, { config, schema: deadLetterReport }, async (request) => {
    const query = queryOf(request);
    const queue = filterName(query, 'queue');
    if (queue === null) throw new Fault('bad_query', { message: 'queue required', field: 'queue' });
    const limit = query.limit(REASONS);
    const { oldestMicros, newestMicros, ...report } = await statistics.deadLetters(
      request.identity.tenant,
      queue,
      limit,
    );
    return {
      queue,
      ...report,
      oldest: formatInstantOrNull(oldestMicros),
      newest: formatInstantOrNull(newestMicros),
    };
  });

  app.get(`${AT}/partition-liveness`, { config, schema: partitionLiveness }, async (request) => {
    const query = queryOf(request);
    const limit = query.limit(LIVENESS);
    const { tenant } = request.identity;
    const { capturedAtMicros, rows } = await statistics.liveness(tenant, readFilter(query), limit);
    return {
      capturedAt: formatInstantOrNull(capturedAtMicros),
      rows: rows.map(({ oldestWriteMicros, newestWriteMicros, ...row }) => ({
        ...row,
        oldestWriteAt: formatInstantOrNull(oldestWriteMicros),
        newestWriteAt: formatInstantOrNull(newestWriteMicros),
      })),
    };
  });
}

function brokerRoutes(app: App, statistics: StatisticsFace): void {
  app.get(`${AT}/system-metrics`, { config, schema: systemMetrics }, async (request) => {
    const query = queryOf(request);
    const asked = readSpan(query);
    const ours = isOurs(query);
    const { range, bars } = await statistics.brokers(asked, filterName(query, 'hostname'));
    const shown = ours ? bars : [];
    const servers = [...new Set(shown.map(({ server }) => server))].sort(compare);
    return {
      timeRange: timeRange(range),
      bucketMinutes: range.stepMinutes,
      pointCount: new Set(shown.map(({ bucketMicros }) => bucketMicros)).size,
      replicas: servers.map((hostname) => ({
        hostname,
        workerId: 0,
        timeSeries: shown
          .filter(({ server }) => server === hostname)
          .map((bar) => ({ timestamp: formatInstant(bar.bucketMicros), metrics: renderSystem(bar) })),
      })),
    };
  });

  app.get(`${AT}/worker-metrics`, { config, schema: workerMetrics }, async (request) => {
    const query = queryOf(request);
    const asked = readSpan(query);
    const hostname = filterName(query, 'hostname');
    const queue = filterName(query, 'queue');
    const ours = isOurs(query);
    const brokers = await statistics.brokers(asked, hostname);
    const traffic = await statistics.allTraffic(asked, queue, hostname);
    const { range } = brokers;
    const shown = ours ? brokers.bars : [];
    const points = pointsOf(shown, ours && queue !== null ? traffic.bars : null);
    const timeSeries = points.map((point) => renderPoint(point, range.stepMinutes));
    return {
      timeRange: timeRange(range),
      bucketMinutes: range.stepMinutes,
      pointCount: timeSeries.length,
      timeSeries,
      workers: [...new Map(shown.map((bar) => [bar.server, bar])).values()].map(renderWorker),
      queues: ours ? traffic.queues.map(renderQueueTraffic) : [],
      summary: summarize(points),
    };
  });

  app.get(`${AT}/postgres-stats`, { config, schema: postgresStats }, async () => {
    const { nowMicros, stats } = await statistics.server();
    const { database, databaseCache, cacheSummary, ...lists } = stats;
    return {
      timestamp: formatInstant(nowMicros),
      database: database[0] ?? null,
      databaseCache: databaseCache[0] ?? null,
      cacheSummary: cacheSummary[0] ?? null,
      ...lists,
    };
  });
}

/** Null: none. */
function readGroupBy(query: Query): WorkloadBy | null {
  const by = oneOf(query, 'groupBy', GROUPINGS);
  if (by !== undefined) return by;
  throw new Fault('bad_query', { message: 'bad groupBy', field: 'groupBy' });
}

/** A broker is one worker, number 0. */
function isOurs(query: Query): boolean {
  const worker = query.text('workerId');
  return worker === null || worker === '' || Number(worker) === 0;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function perSecond(count: number, stepMinutes: number): number {
  return Math.round((count / (stepMinutes * 60)) * 100) / 100;
}

function renderOps(bar: TrafficBar, stepMinutes: number) {
  return {
    bucket: formatInstant(bar.bucketMicros),
    queueName: bar.queue,
    pushRequests: bar.pushRequests,
    pushMessages: bar.pushMessages,
    popMessages: bar.popMessages,
    popEmpty: bar.popEmpty,
    ackRequests: bar.ackRequests,
    ackSuccess: bar.ackSuccess,
    ackFailed: bar.ackFailed,
    transactions: bar.transactions,
    partitionsCreated: bar.partitionsCreated,
    partitionsDeleted: bar.partitionsDeleted,
    partitionCount: bar.partitions,
    avgLagMs: meanMs(bar),
    maxLagMs: maxMs(bar),
    pushPerSecond: perSecond(bar.pushMessages, stepMinutes),
    popPerSecond: perSecond(bar.popMessages, stepMinutes),
    ackPerSecond: perSecond(bar.ackMessages, stepMinutes),
    emptyPerSecond: perSecond(bar.popEmpty, stepMinutes),
    parkedCount: tenth(bar.parked),
  };
}

function renderRetention({ retention, completed, evicted, events }: RetentionCounts) {
  return {
    retentionMsgs: retention,
    completedRetentionMsgs: completed,
    evictionMsgs: evicted,
    totalMsgs: retention + completed + evicted,
    eventCount: events,
  };
}

function renderWorkload({ range, by, buckets, rows, matches, tenant }: Workload) {
  const { queues, window, series, now } = renderWorkloadRow(tenant);
  return {
    timeRange: timeRange(range),
    bucketMinutes: range.stepMinutes,
    groupBy: by,
    buckets: buckets.map(formatInstant),
    rows: rows.map((row) => {
      const { key, namespace, task } = row.sums;
      return { key, ...(by === 'queue' ? { namespace, task } : {}), ...renderWorkloadRow(row) };
    }),
    rowsTotal: matches,
    tenant: { queues, window, series, now },
  };
}

function renderWorkloadRow({ sums, series }: WorkloadRow) {
  return {
    queues: sums.queues,
    window: {
      pushMessages: sums.pushMessages,
      pushRequests: sums.pushRequests,
      popMessages: sums.popMessages,
      popEmpty: sums.popEmpty,
      ackRequests: sums.ackRequests,
      ackSuccess: sums.ackSuccess,
      ackFailed: sums.ackFailed,
      transactions: sums.transactions,
      conflated: sums.conflated,
      partitionsCreated: sums.partitionsCreated,
      partitionsDeleted: sums.partitionsDeleted,
      parkedAvg: tenth(sums.parked),
      avgLagMs: meanMs(sums),
      maxLagMs: maxMs(sums),
    },
    series,
    now: {
      pending: sums.pending,
      processing: sums.processing,
      deadLetter: sums.deadLetter,
      retainedBytes: sums.retainedBytes,
      partitions: sums.partitions,
      groups: sums.groups,
      queuesWithoutGroup: sums.withoutGroup,
      pendingWithoutGroup: sums.pendingWithoutGroup,
      queuesTouched: sums.touched,
      queuesActive: sums.active,
    },
  };
}

function gauge([avg, min, max, last]: Gauge) {
  return { avg: tenth(avg), min: tenth(min), max: tenth(max), last: tenth(last) };
}

function renderSystem(bar: BrokerBar) {
  return {
    cpu: { user_us: gauge(bar.cpuUser), system_us: gauge(bar.cpuSystem) },
    memory: { rss_bytes: gauge(bar.rssBytes) },
    database: {
      pool_size: gauge(bar.poolSize),
      pool_idle: gauge(bar.poolIdle),
      pool_active: gauge(bar.poolActive),
    },
    uptime_seconds: gauge(bar.uptimeSeconds),
    event_loop_lag_ms: gauge(bar.loopLagMs),
    threadpool: null,
    shared_state: { enabled: false },
  };
}

interface Point {
  counts: CountBar;
  brokers: BrokerBar[];
}

/** One point a bar: the counts of all brokers, or those of one queue (`traffic`), and the gauges. */
function pointsOf(bars: readonly BrokerBar[], traffic: readonly CountBar[] | null): Point[] {
  const points = new Map<number, BrokerBar[]>();
  for (const bar of bars) points.set(bar.bucketMicros, [...(points.get(bar.bucketMicros) ?? []), bar]);
  const counts = traffic ?? [...points.values()].map(sumUp);
  return counts.map((each) => ({ counts: each, brokers: points.get(each.bucketMicros) ?? [] }));
}

function sumUp(brokers: readonly BrokerBar[]): CountBar {
  const sum = (of: (bar: BrokerBar) => number) => brokers.reduce((total, bar) => total + of(bar), 0);
  return {
    bucketMicros: brokers[0]!.bucketMicros,
    pushRequests: sum((bar) => bar.pushRequests),
    pushMessages: sum((bar) => bar.pushMessages),
    popRequests: sum((bar) => bar.popRequests),
    popMessages: sum((bar) => bar.popMessages),
    popEmpty: sum((bar) => bar.popEmpty),
    ackRequests: sum((bar) => bar.ackRequests),
    ackMessages: sum((bar) => bar.ackMessages),
    ackSuccess: sum((bar) => bar.ackSuccess),
    ackFailed: sum((bar) => bar.ackFailed),
    dlq: sum((bar) => bar.dlq),
    transactions: sum((bar) => bar.transactions),
    lagCount: sum((bar) => bar.lagCount),
    lagSumMicros: sum((bar) => bar.lagSumMicros),
    lagMaxMicros: Math.max(...brokers.map((bar) => bar.lagMaxMicros)),
  };
}

function renderPoint({ counts, brokers }: Point, stepMinutes: number) {
  const sum = (of: (bar: BrokerBar) => number) => brokers.reduce((total, bar) => total + of(bar), 0);
  const mean = (of: (bar: BrokerBar) => number) =>
    brokers.length === 0 ? 0 : tenth(sum(of) / brokers.length);
  return {
    timestamp: formatInstant(counts.bucketMicros),
    pushMessages: counts.pushMessages,
    popMessages: counts.popMessages,
    ackMessages: counts.ackMessages,
    pushRequests: counts.pushRequests,
    popRequests: counts.popRequests,
    ackRequests: counts.ackRequests,
    ackSuccess: counts.ackSuccess,
    ackFailed: counts.ackFailed,
    dlqCount: counts.dlq,
    dbErrors: sum((bar) => bar.dbErrors),
    pushPerSecond: perSecond(counts.pushMessages, stepMinutes),
    popPerSecond: perSecond(counts.popMessages, stepMinutes),
    ackPerSecond: perSecond(counts.ackMessages, stepMinutes),
    avgEventLoopLagMs: mean((bar) => bar.loopLagMs[0]),
    maxEventLoopLagMs: tenth(Math.max(0, ...brokers.map((bar) => bar.loopLagMs[2]))),
    avgLagMs: meanMs(counts),
    maxLagMs: maxMs(counts),
    lagCount: counts.lagCount,
    dbConnections: tenth(sum((bar) => bar.poolActive[0])),
    avgFreeSlots: tenth(sum((bar) => bar.poolIdle[0])),
    minFreeSlots: tenth(sum((bar) => bar.poolIdle[1])),
    jobsDone: counts.pushRequests,
    avgJobQueueSize: 0,
    maxJobQueueSize: 0,
    backoffSize: 0,
  };
}

function renderWorker(bar: BrokerBar) {
  return {
    hostname: bar.server,
    workerId: 0,
    lastSeen: formatInstant(bar.lastAtMicros),
    uptimeSeconds: Math.round(bar.uptimeSeconds[3]),
    avgEventLoopLagMs: tenth(bar.loopLagMs[0]),
    maxEventLoopLagMs: tenth(bar.loopLagMs[2]),
    dbConnections: Math.round(bar.poolActive[3]),
    freeSlots: Math.round(bar.poolIdle[3]),
  };
}

function renderQueueTraffic(queue: QueueTraffic) {
  return {
    queueName: queue.queue,
    pushMessages: queue.pushMessages,
    popMessages: queue.popMessages,
    popEmpty: queue.popEmpty,
    ackSuccess: queue.ackSuccess,
    ackFailed: queue.ackFailed,
    avgLagMs: meanMs(queue),
    maxLagMs: maxMs(queue),
  };
}

function summarize(points: readonly Point[]) {
  const sum = (of: (bar: CountBar) => number) => points.reduce((total, { counts }) => total + of(counts), 0);
  const errors = points.flatMap(({ brokers }) => brokers).reduce((total, bar) => total + bar.dbErrors, 0);
  return {
    totalPushMessages: sum((bar) => bar.pushMessages),
    totalPopMessages: sum((bar) => bar.popMessages),
    totalAckMessages: sum((bar) => bar.ackMessages),
    totalPushRequests: sum((bar) => bar.pushRequests),
    totalPopRequests: sum((bar) => bar.popRequests),
    totalAckRequests: sum((bar) => bar.ackRequests),
    totalAckSuccess: sum((bar) => bar.ackSuccess),
    totalAckFailed: sum((bar) => bar.ackFailed),
    totalTransactions: sum((bar) => bar.transactions),
    totalDlq: sum((bar) => bar.dlq),
    totalDbErrors: errors,
  };
}
