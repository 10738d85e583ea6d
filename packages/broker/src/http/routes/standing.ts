/** Where things stand: /api/v1/resources/overview, /api/v1/status and what is below it, and the refresh of all that. */
import type {
  BrokerBar,
  CountBar,
  LivePartition,
  LiveQueue,
  Overview,
  PartitionDetail,
  StandingQueue,
  StandingTotals,
  StatisticsFace,
  SystemStatus,
} from '../../engine/statistics/face.ts';
import { formatInstant, formatInstantOrNull } from '../../log/instants.ts';
import { overview } from '../api/queues.ts';
import {
  PARTITION_SORTS,
  PARTITIONS_PAGE,
  QUEUE_SORTS,
  QUEUES_PAGE,
  refreshStatistics,
  statusPartition,
  statusQueue,
  statusQueues,
  storedMessages,
  systemStatus,
} from '../api/standing.ts';
import type { App } from '../app.ts';
import { Fault } from '../errors.ts';
import { checkedName } from '../names.ts';
import { queryOf } from '../query.ts';
import { filterName, readFilter, readPage, readSpan, timeRange } from '../span.ts';

const config = { level: 'read-only' } as const;
const STEPS: Readonly<Record<string, number>> = { minute: 1, hour: 60, day: 1_440 };

export function standingRoutes(app: App, statistics: StatisticsFace): void {
  app.get('/api/v1/resources/overview', { config, schema: overview }, async ({ identity }) =>
    renderOverview(await statistics.overview(identity.tenant)),
  );

  app.get('/api/v1/status', { config, schema: systemStatus }, async (request) => {
    const query = queryOf(request);
    return renderStatus(await statistics.status(readSpan(query), readFilter(query)));
  });

  app.get('/api/v1/status/queues', { config, schema: statusQueues }, async (request) => {
    const query = queryOf(request);
    // They narrow nothing here, but what cannot be read is refused.
    readSpan(query);
    const page = readPage(query, QUEUE_SORTS, QUEUES_PAGE);
    const { queues, total } = await statistics.queues(request.identity.tenant, readFilter(query), page);
    return {
      queues: queues.map(renderQueue),
      pagination: { limit: page.limit, offset: page.skip, total },
    };
  });

  app.get('/api/v1/status/queues/:queue', { config, schema: statusQueue }, async (request) => {
    const { queue } = request.params;
    checkedName(queue, 'queue');
    const page = readPage(queryOf(request), PARTITION_SORTS, PARTITIONS_PAGE);
    const live = await statistics.queue(request.identity.tenant, queue, page);
    if (live === null) throw new Fault('queue_not_found');
    return renderLive(live, page);
  });

  app.get(
    '/api/v1/status/queues/:queue/partitions/:partition',
    { config, schema: statusPartition },
    async (request) => {
      const { queue, partition } = request.params;
      checkedName(queue, 'queue');
      checkedName(partition, 'partition');
      const found = await statistics.partition(request.identity.tenant, queue, partition);
      if (found === null) throw new Fault('partition_not_found');
      return renderDetail(queue, found);
    },
  );

  app.get('/api/v1/status/analytics', { config, schema: storedMessages }, async (request) => {
    const query = queryOf(request);
    const asked = filterName(query, 'interval') ?? 'hour';
    const interval = Object.hasOwn(STEPS, asked) ? asked : 'hour';
    const { range, points } = await statistics.stored(
      request.identity.tenant,
      readSpan(query),
      STEPS[interval]!,
      readFilter(query),
    );
    return {
      dataPoints: points.map(({ bucketMicros, messages }) => ({
        timestamp: formatInstant(bucketMicros),
        messages,
      })),
      interval,
      ...timeRange(range),
    };
  });

  const admin = { level: 'admin', lenientBody: true } as const;
  app.post('/api/v1/stats/refresh', { config: admin, schema: refreshStatistics }, async () => {
    const { queues, partitions, tookMs } = await statistics.refresh();
    return { engine: 'segments', segPartitions: partitions, queues, tookMs: Math.round(tookMs) };
  });
}

/** Seconds; -1: never counted. */
function age(ms: number): number {
  return ms < 0 ? -1 : Math.round(ms / 100) / 10;
}

/** Nothing is ever in a state of failure: it comes again, or is a dead letter. */
function renderMessages({ total, pending, processing, completed, deadLetter }: StandingTotals) {
  return { total, pending, processing, completed, failed: 0, deadLetter };
}

function renderOverview({ totals, storedPerSecond, finishedPerSecond, nowMicros, statsAgeMs }: Overview) {
  const seconds = (micros: number) => Math.round(micros / 1_000) / 1_000;
  return {
    queues: totals.queues,
    partitions: totals.partitions,
    namespaces: totals.namespaces,
    tasks: totals.tasks,
    messages: renderMessages(totals),
    lag: {
      time: {
        avg: seconds(totals.lagAvg),
        median: seconds(totals.lagMedian),
        min: seconds(totals.lagMin),
        max: seconds(totals.lagMax),
      },
      offset: {
        avg: totals.behindAvg,
        median: totals.behindMedian,
        min: totals.behindMin,
        max: totals.behindMax,
      },
    },
    throughput: { ingestedPerSecond: storedPerSecond, processedPerSecond: finishedPerSecond },
    timestamp: formatInstant(nowMicros),
    statsAge: age(statsAgeMs),
  };
}

function renderStatus({ range, bars, brokers, totals, queues, statsAgeMs }: SystemStatus) {
  const sum = (of: (bar: BrokerBar) => number) => brokers.reduce((total, bar) => total + of(bar), 0);
  return {
    timeRange: timeRange(range),
    bucketMinutes: range.stepMinutes,
    pointCount: bars.length,
    throughput: bars.map((bar) => renderBar(bar, brokers, range.stepMinutes)),
    queues: queues.map(({ id, name, namespace, task, partitions, consumed }) => ({
      id: String(id),
      name,
      namespace,
      task,
      partitions,
      totalConsumed: consumed,
    })),
    messages: renderMessages(totals),
    leases: {
      active: totals.leases,
      partitionsWithLeases: totals.leasedPartitions,
      totalBatchSize: totals.leasedMessages,
    },
    deadLetterQueue: { totalMessages: totals.deadLetter, affectedPartitions: totals.deadPartitions },
    workers: latest(brokers).map(renderWorker),
    errors: {
      dbErrors: sum(({ dbErrors }) => dbErrors),
      ackFailed: sum(({ ackFailed }) => ackFailed),
      dlqMessages: sum(({ dlq }) => dlq),
    },
    statsAge: age(statsAgeMs),
  };
}

function renderBar(bar: CountBar, brokers: readonly BrokerBar[], stepMinutes: number) {
  const here = brokers.filter(({ bucketMicros }) => bucketMicros === bar.bucketMicros);
  const sum = (of: (each: BrokerBar) => number) => round(here.reduce((total, each) => total + of(each), 0));
  const perSecond = (count: number) => Math.round((count / (stepMinutes * 60)) * 100) / 100;
  return {
    timestamp: formatInstant(bar.bucketMicros),
    ingested: bar.pushMessages,
    processed: bar.ackSuccess,
    ingestedPerSecond: perSecond(bar.pushMessages),
    processedPerSecond: perSecond(bar.ackSuccess),
    pushRequests: bar.pushRequests,
    pushMessages: bar.pushMessages,
    popRequests: bar.popRequests,
    popMessages: bar.popMessages,
    popEmpty: bar.popEmpty,
    ackRequests: bar.ackRequests,
    ackMessages: bar.ackMessages,
    ackSuccess: bar.ackSuccess,
    ackFailed: bar.ackFailed,
    transactions: bar.transactions,
    dlqCount: bar.dlq,
    avgEventLoopLagMs: here.length === 0 ? 0 : round(sum(({ loopLagMs }) => loopLagMs[0]) / here.length),
    maxEventLoopLagMs: round(Math.max(0, ...here.map(({ loopLagMs }) => loopLagMs[2]))),
    cpuUserPercent: round(sum(({ cpuUser }) => cpuUser[0]) / 100),
    cpuSystemPercent: round(sum(({ cpuSystem }) => cpuSystem[0]) / 100),
    rssBytes: Math.round(sum(({ rssBytes }) => rssBytes[3])),
    dbPoolSize: Math.round(sum(({ poolSize }) => poolSize[3])),
    dbPoolIdle: Math.round(sum(({ poolIdle }) => poolIdle[3])),
    dbPoolActive: Math.round(sum(({ poolActive }) => poolActive[3])),
  };
}

/** The newest bar of each broker. */
function latest(brokers: readonly BrokerBar[]): BrokerBar[] {
  return [...new Map(brokers.map((bar) => [bar.server, bar])).values()];
}

function renderWorker(bar: BrokerBar) {
  return {
    hostname: bar.server,
    workerId: 0,
    lastSeen: formatInstant(bar.lastAtMicros),
    uptimeSeconds: Math.round(bar.uptimeSeconds[3]),
    avgEventLoopLagMs: round(bar.loopLagMs[0]),
    maxEventLoopLagMs: round(bar.loopLagMs[2]),
    rssBytes: Math.round(bar.rssBytes[3]),
    dbPoolSize: Math.round(bar.poolSize[3]),
    dbPoolIdle: Math.round(bar.poolIdle[3]),
    dbPoolActive: Math.round(bar.poolActive[3]),
  };
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function renderQueue(queue: StandingQueue) {
  const { id, name, namespace, task, partitions, total, pending, processing, deadLetter } = queue;
  return {
    id: String(id),
    name,
    namespace,
    task,
    createdAt: formatInstant(queue.createdAtMicros),
    partitions,
    retainedBytes: queue.retainedBytes,
    messages: {
      total,
      pending,
      processing,
      completed: Math.max(0, total - pending - deadLetter),
      deadLetter,
    },
  };
}

function renderLive(queue: LiveQueue, page: { limit: number; skip: number }) {
  const { id, name, createdAtMicros, options, totals } = queue;
  const { namespace, task, leaseTime, retryLimit, ttl, maxSize, retryDelay, priority } = options;
  return {
    queue: {
      id,
      name,
      namespace,
      task,
      createdAt: formatInstant(createdAtMicros),
      config: { leaseTime, retryLimit, ttl, maxSize, retryDelay, priority },
      options,
    },
    partitions: queue.page.map(renderPartition),
    totals: { partitions: queue.partitions, messages: renderLiveCounts(totals) },
    pagination: { limit: page.limit, offset: page.skip, total: queue.matches },
  };
}

function renderPartition(partition: LivePartition) {
  const messages = renderLiveCounts(partition);
  return {
    id: partition.id,
    name: partition.name,
    messages,
    stats: messages,
    cursor: { batchesConsumed: 0, totalConsumed: partition.consumed },
    lastActivity: formatInstant(partition.lastWriteMicros),
    oldestMessage: formatInstantOrNull(partition.oldestMicros),
    newestMessage: formatInstantOrNull(partition.newestMicros),
  };
}

function renderDetail(queue: string, partition: PartitionDetail) {
  return {
    queue,
    ...renderPartition(partition),
    createdAt: formatInstant(partition.createdAtMicros),
    logStartOffset: partition.logStart,
    nextOffset: partition.nextOffset,
    groups: partition.cursors.map((cursor) => ({
      group: cursor.group,
      nextOffset: cursor.nextOffset,
      offsetLag: cursor.behind,
      totalConsumed: cursor.consumed,
      leaseActive: cursor.leaseUpto !== null,
      leaseUpToOffset: cursor.leaseUpto,
      leaseExpiresAt: formatInstantOrNull(cursor.leaseExpiresAtMicros),
      workerId: cursor.worker,
    })),
  };
}

function renderLiveCounts(counts: LiveQueue['totals']) {
  const { total, pending, processing, completed, deadLetter } = counts;
  return { total, pending, processing, completed, failed: null, deadLetter };
}
