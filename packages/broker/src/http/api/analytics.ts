/** What has passed, over time: /api/v1/analytics. */
import { Type } from 'typebox';
import type { WorkloadBy } from '../../engine/statistics/workload.ts';
import { answers, operation } from './operation.ts';
import {
  Count,
  Flag,
  filterParameters,
  Instant,
  limitParameter,
  NameFilter,
  Nullable,
  Quantity,
  RequiredName,
  type Schema,
  spanParameters,
  Text,
  Word,
} from './schemas.ts';
import { range, statistics } from './standing.ts';

export const KEYS = { limit: 200, most: 1_000 };
export const REASONS = { limit: 200, most: 1_000 };
export const LIVENESS = { limit: 20, most: 200 };
export const GROUPINGS: readonly WorkloadBy[] = ['namespace', 'task', 'queue'];

const onQueue = { ...spanParameters, queue: NameFilter };
const lags = { avgLagMs: Nullable(Quantity), maxLagMs: Nullable(Quantity) };

export const queueLag = operation({
  operationId: 'queueLag',
  ...statistics,
  summary: 'How old messages were when they were delivered',
  parameters: Type.Object(onQueue),
  answers: {
    200: answers(
      'The newest bar first.',
      Type.Array(
        Type.Object(
          { queueName: Text, popCount: Count, ...lags, bucketMinutes: Count, bucketTime: Instant },
          { title: 'LagBar' },
        ),
      ),
    ),
  },
});

export const queueOps = operation({
  operationId: 'queueOperations',
  ...statistics,
  summary: 'What happened, by bar and queue',
  parameters: Type.Object(onQueue),
  answers: {
    200: answers(
      'The oldest bar first; `truncated`: only the busiest queues.',
      Type.Object({
        ...range,
        series: Type.Array(
          Type.Object(
            {
              bucket: Instant,
              queueName: Text,
              pushRequests: Count,
              pushMessages: Count,
              popMessages: Count,
              popEmpty: Count,
              ackRequests: Count,
              ackSuccess: Count,
              ackFailed: Count,
              transactions: Count,
              partitionsCreated: Count,
              partitionsDeleted: Count,
              partitionCount: Count,
              ...lags,
              pushPerSecond: Quantity,
              popPerSecond: Quantity,
              ackPerSecond: Quantity,
              emptyPerSecond: Quantity,
              parkedCount: Quantity,
            },
            { title: 'QueueBar' },
          ),
        ),
        queues: Type.Array(Text),
        truncated: Flag,
      }),
    ),
  },
});

const broker = { hostname: Text, workerId: Count };

export const parkedReplicas = operation({
  operationId: 'parkedByBroker',
  ...statistics,
  summary: 'Waiting pops by broker',
  parameters: Type.Object(onQueue),
  answers: {
    200: answers(
      'The oldest bar first.',
      Type.Object({
        ...range,
        series: Type.Array(
          Type.Object({ bucket: Instant, queueName: Text, ...broker, parkedCount: Quantity }),
        ),
        replicas: Type.Array(Type.Object(broker)),
      }),
    ),
  },
});

const groupBy = Type.Optional(Word([...GROUPINGS, '']));
const retained = {
  retentionMsgs: Count,
  completedRetentionMsgs: Count,
  evictionMsgs: Count,
  totalMsgs: Count,
  eventCount: Count,
};

export const retentionReport = operation({
  operationId: 'retentionReport',
  ...statistics,
  summary: 'What retention deleted, by rule',
  parameters: Type.Object({ groupBy, ...onQueue }),
  answers: {
    200: answers(
      '`rows` with a groupBy only.',
      Type.Object({
        ...range,
        series: Type.Array(Type.Object({ bucket: Instant, ...retained })),
        totals: Type.Object(retained),
        rows: Type.Optional(Type.Array(Type.Object({ key: Text, queues: Count, ...retained }))),
      }),
    ),
  },
});

const Line = Type.Array(Nullable(Quantity));
const worked = {
  queues: Count,
  window: Type.Object({
    pushMessages: Count,
    pushRequests: Count,
    popMessages: Count,
    popEmpty: Count,
    ackRequests: Count,
    ackSuccess: Count,
    ackFailed: Count,
    transactions: Count,
    conflated: Count,
    partitionsCreated: Count,
    partitionsDeleted: Count,
    parkedAvg: Quantity,
    ...lags,
  }),
  series: Type.Object({
    push: Line,
    pop: Line,
    popEmpty: Line,
    ackFailed: Line,
    parked: Line,
    avgLagMs: Line,
    maxLagMs: Line,
  }),
  now: Type.Object({
    pending: Count,
    processing: Count,
    deadLetter: Count,
    retainedBytes: Count,
    partitions: Count,
    groups: Count,
    queuesWithoutGroup: Count,
    pendingWithoutGroup: Count,
    queuesTouched: Count,
    queuesActive: Count,
  }),
};

export const workload = operation({
  operationId: 'workload',
  ...statistics,
  summary: 'Who does how much',
  parameters: Type.Object({ groupBy, ...limitParameter(KEYS), ...spanParameters, ...filterParameters }),
  answers: {
    200: answers(
      'The busiest first; each line of a graph is as long as `buckets`.',
      Type.Object({
        ...range,
        groupBy: Word(GROUPINGS),
        buckets: Type.Array(Instant),
        rows: Type.Array(
          Type.Object(
            { key: Text, namespace: Type.Optional(Text), task: Type.Optional(Text), ...worked },
            { title: 'Workload' },
          ),
        ),
        rowsTotal: Count,
        tenant: Type.Object(worked),
      }),
    ),
  },
});

export const deadLetterReport = operation({
  operationId: 'deadLetterReport',
  ...statistics,
  summary: 'Dead letters by what their reasons have in common',
  parameters: Type.Object({
    queue: RequiredName,
    ...limitParameter(REASONS),
  }),
  answers: {
    200: answers(
      'Counted now, over the newest `limit` reasons.',
      Type.Object({
        queue: Text,
        rowsNow: Count,
        sample: Count,
        retryCounts: Type.Array(Type.Object({ retryCount: Count, n: Count })),
        groups: Type.Array(Type.Object({ group: Text, n: Count })),
        oldest: Nullable(Instant),
        newest: Nullable(Instant),
        avgBytes: Nullable(Quantity),
        signatures: Type.Array(Type.Object({ text: Text, n: Count, share: Quantity })),
        byDay: Type.Array(Type.Object({ day: Text, n: Count })),
      }),
    ),
  },
});

export const partitionLiveness = operation({
  operationId: 'partitionLiveness',
  ...statistics,
  summary: 'How many partitions were written lately',
  parameters: Type.Object({ ...limitParameter(LIVENESS), ...filterParameters }),
  answers: {
    200: answers(
      'As of `capturedAt`.',
      Type.Object({
        capturedAt: Nullable(Instant),
        rows: Type.Array(
          Type.Object(
            {
              queue: Text,
              namespace: Text,
              task: Text,
              partitions: Count,
              live1h: Count,
              live24h: Count,
              live7d: Count,
              created24h: Count,
              oldestWriteAt: Nullable(Instant),
              newestWriteAt: Nullable(Instant),
              pending: Count,
            },
            { title: 'LivenessRow' },
          ),
        ),
      }),
    ),
  },
});

const Gauge = Type.Object(
  { avg: Quantity, min: Quantity, max: Quantity, last: Quantity },
  { title: 'Gauge' },
);
const ofBrokers = {
  ...spanParameters,
  hostname: NameFilter,
  workerId: Type.Optional(Type.String({ description: 'A broker is one worker, number 0.' })),
};

export const systemMetrics = operation({
  operationId: 'systemMetrics',
  ...statistics,
  summary: 'Brokers over time: CPU, memory, pool',
  parameters: Type.Object(ofBrokers),
  answers: {
    200: answers(
      'By broker.',
      Type.Object({
        ...range,
        pointCount: Count,
        replicas: Type.Array(
          Type.Object({
            ...broker,
            timeSeries: Type.Array(
              Type.Object({
                timestamp: Instant,
                metrics: Type.Object({
                  cpu: Type.Object(
                    { user_us: Gauge, system_us: Gauge },
                    { description: 'Percent times 100.' },
                  ),
                  memory: Type.Object({ rss_bytes: Gauge }),
                  database: Type.Object({ pool_size: Gauge, pool_idle: Gauge, pool_active: Gauge }),
                  uptime_seconds: Gauge,
                  event_loop_lag_ms: Gauge,
                  threadpool: Type.Null(),
                  shared_state: Type.Object({ enabled: Flag }),
                }),
              }),
            ),
          }),
        ),
      }),
    ),
  },
});

const point: Record<string, Schema> = {
  timestamp: Instant,
  pushMessages: Count,
  popMessages: Count,
  ackMessages: Count,
  pushRequests: Count,
  popRequests: Count,
  ackRequests: Count,
  ackSuccess: Count,
  ackFailed: Count,
  dlqCount: Count,
  dbErrors: Count,
  pushPerSecond: Quantity,
  popPerSecond: Quantity,
  ackPerSecond: Quantity,
  avgEventLoopLagMs: Quantity,
  maxEventLoopLagMs: Quantity,
  ...lags,
  lagCount: Count,
  dbConnections: Quantity,
  avgFreeSlots: Quantity,
  minFreeSlots: Quantity,
  jobsDone: Count,
  avgJobQueueSize: Count,
  maxJobQueueSize: Count,
  backoffSize: Count,
};

export const workerMetrics = operation({
  operationId: 'workerMetrics',
  ...statistics,
  summary: 'Brokers over time: counts and event loop',
  parameters: Type.Object({ ...ofBrokers, queue: NameFilter }),
  answers: {
    200: answers(
      'All brokers together, and each as it was last.',
      Type.Object({
        ...range,
        pointCount: Count,
        timeSeries: Type.Array(Type.Object(point, { title: 'BrokerPoint' })),
        workers: Type.Array(
          Type.Object({
            ...broker,
            lastSeen: Instant,
            uptimeSeconds: Count,
            avgEventLoopLagMs: Quantity,
            maxEventLoopLagMs: Quantity,
            dbConnections: Count,
            freeSlots: Count,
          }),
        ),
        queues: Type.Array(
          Type.Object({
            queueName: Text,
            pushMessages: Count,
            popMessages: Count,
            popEmpty: Count,
            ackSuccess: Count,
            ackFailed: Count,
            ...lags,
          }),
        ),
        summary: Type.Object({
          totalPushMessages: Count,
          totalPopMessages: Count,
          totalAckMessages: Count,
          totalPushRequests: Count,
          totalPopRequests: Count,
          totalAckRequests: Count,
          totalAckSuccess: Count,
          totalAckFailed: Count,
          totalTransactions: Count,
          totalDlq: Count,
          totalDbErrors: Count,
        }),
      }),
    ),
  },
});

/** Columns are PostgreSQL's own, by the name of the section. */
const Section = Type.Array(Type.Record(Type.String(), Type.Unknown()), {
  description: 'Empty where this server cannot tell.',
});
const Row = Nullable(Type.Record(Type.String(), Type.Unknown()));

export const postgresStats = operation({
  operationId: 'postgresStats',
  tag: 'Statistics',
  summary: 'What PostgreSQL says about itself',
  answers: {
    200: answers(
      'Now. Of the sessions of others only their state is shown.',
      Type.Object(
        {
          timestamp: Instant,
          database: Row,
          databaseCache: Row,
          cacheSummary: Row,
          tableCache: Section,
          indexCache: Section,
          deadTuples: Section,
          hotUpdates: Section,
          activeQueries: Section,
          autovacuumStatus: Section,
          bufferConfig: Section,
          bufferUsage: Section,
          tableSizes: Section,
        },
        { title: 'PostgresStats' },
      ),
    ),
  },
});
