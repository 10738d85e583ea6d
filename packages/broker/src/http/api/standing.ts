/** What stands where: /api/v1/status. */
import { Type } from 'typebox';
import type { PartitionSort, QueueSort } from '../../engine/statistics/face.ts';
import { answers, operation } from './operation.ts';
import { QUEUE_OPTIONS } from './queues.ts';
import {
  Count,
  Flag,
  filterParameters,
  Id,
  Instant,
  listParameters,
  NameFilter,
  Nullable,
  Quantity,
  spanParameters,
  Text,
  TimeRange,
  TotalledPagination,
  Word,
} from './schemas.ts';

export const QUEUES_PAGE = { limit: 100, most: 1_000 };
/** A queue may have a million partitions; an answer shows some of them. */
export const PARTITIONS_PAGE = { limit: 1_000, most: 10_000 };
export const QUEUE_SORTS = [
  'name',
  'partitions',
  'total',
  'pending',
  'processing',
  'deadLetter',
  'retainedBytes',
] as const satisfies readonly QueueSort[];
export const PARTITION_SORTS = [
  'name',
  'lastActivity',
  'pending',
] as const satisfies readonly PartitionSort[];

export const statistics = { tag: 'Statistics', refuses: ['bad_query'] } as const;

const counts = { total: Count, pending: Count, processing: Count };
const Standing = Type.Object({ ...counts, completed: Count, failed: Count, deadLetter: Count });
const Live = Type.Object({ ...counts, completed: Count, failed: Type.Null(), deadLetter: Count });
export const range = { timeRange: TimeRange, bucketMinutes: Count };

export const systemStatus = operation({
  operationId: 'systemStatus',
  ...statistics,
  summary: 'The installation over time, with its brokers',
  parameters: Type.Object({ ...spanParameters, ...filterParameters }),
  answers: {
    200: answers(
      'Bars of a minute for up to an hour, 5 for 6 hours, 15 for a day, 60 for a week, 360 beyond.',
      Type.Object(
        {
          ...range,
          pointCount: Count,
          throughput: Type.Array(
            Type.Object(
              {
                timestamp: Instant,
                ingested: Count,
                processed: Count,
                ingestedPerSecond: Quantity,
                processedPerSecond: Quantity,
                pushRequests: Count,
                pushMessages: Count,
                popRequests: Count,
                popMessages: Count,
                popEmpty: Count,
                ackRequests: Count,
                ackMessages: Count,
                ackSuccess: Count,
                ackFailed: Count,
                transactions: Count,
                dlqCount: Count,
                avgEventLoopLagMs: Quantity,
                maxEventLoopLagMs: Quantity,
                cpuUserPercent: Quantity,
                cpuSystemPercent: Quantity,
                rssBytes: Count,
                dbPoolSize: Count,
                dbPoolIdle: Count,
                dbPoolActive: Count,
              },
              { title: 'ThroughputBar' },
            ),
          ),
          queues: Type.Array(
            Type.Object({
              id: Id,
              name: Text,
              namespace: Text,
              task: Text,
              partitions: Count,
              totalConsumed: Count,
            }),
          ),
          messages: Standing,
          leases: Type.Object({ active: Count, partitionsWithLeases: Count, totalBatchSize: Count }),
          deadLetterQueue: Type.Object({ totalMessages: Count, affectedPartitions: Count }),
          workers: Type.Array(
            Type.Object({
              hostname: Text,
              workerId: Count,
              lastSeen: Instant,
              uptimeSeconds: Count,
              avgEventLoopLagMs: Quantity,
              maxEventLoopLagMs: Quantity,
              rssBytes: Count,
              dbPoolSize: Count,
              dbPoolIdle: Count,
              dbPoolActive: Count,
            }),
          ),
          errors: Type.Object({ dbErrors: Count, ackFailed: Count, dlqMessages: Count }),
          statsAge: Type.Number({ description: 'Seconds; -1: never counted.' }),
        },
        { title: 'SystemStatus' },
      ),
    ),
  },
});

export const statusQueues = operation({
  operationId: 'statusQueues',
  ...statistics,
  summary: 'Queues with their messages',
  parameters: Type.Object({
    ...spanParameters,
    ...listParameters(QUEUE_SORTS, QUEUES_PAGE),
    ...filterParameters,
  }),
  answers: {
    200: answers(
      'Some seconds old; `retainedBytes` some minutes.',
      Type.Object({
        queues: Type.Array(
          Type.Object(
            {
              id: Id,
              name: Text,
              namespace: Text,
              task: Text,
              createdAt: Instant,
              partitions: Count,
              retainedBytes: Count,
              messages: Type.Object({ ...counts, completed: Count, deadLetter: Count }),
            },
            { title: 'StandingQueue' },
          ),
        ),
        pagination: TotalledPagination,
      }),
    ),
  },
});

const livePartition = {
  id: Id,
  name: Text,
  messages: Live,
  stats: Live,
  cursor: Type.Object({ batchesConsumed: Count, totalConsumed: Count }),
  lastActivity: Instant,
  oldestMessage: Nullable(Instant),
  newestMessage: Nullable(Instant),
};

export const statusQueue = operation({
  operationId: 'statusQueue',
  tag: 'Statistics',
  summary: 'One queue and its partitions',
  params: Type.Object({ queue: Type.String() }),
  parameters: Type.Object(listParameters(PARTITION_SORTS, PARTITIONS_PAGE)),
  answers: {
    200: answers(
      'Counted now.',
      Type.Object(
        {
          queue: Type.Object({
            id: Id,
            name: Text,
            namespace: Text,
            task: Text,
            createdAt: Instant,
            config: Type.Object({
              leaseTime: Type.Integer(),
              retryLimit: Type.Integer(),
              ttl: Type.Integer(),
              maxSize: Type.Integer(),
              retryDelay: Type.Integer(),
              priority: Type.Integer(),
            }),
            options: Type.Object(QUEUE_OPTIONS),
          }),
          partitions: Type.Array(Type.Object(livePartition)),
          totals: Type.Object({ partitions: Count, messages: Live }),
          pagination: TotalledPagination,
        },
        { title: 'LiveQueue' },
      ),
    ),
  },
  refuses: ['bad_query', 'bad_name', 'queue_not_found'],
});

export const statusPartition = operation({
  operationId: 'statusPartition',
  tag: 'Statistics',
  summary: 'One partition, with everybody who consumes it',
  params: Type.Object({ queue: Type.String(), partition: Type.String() }),
  answers: {
    200: answers(
      'Counted now.',
      Type.Object(
        {
          queue: Text,
          ...livePartition,
          createdAt: Instant,
          logStartOffset: Count,
          nextOffset: Count,
          groups: Type.Array(
            Type.Object({
              group: Text,
              nextOffset: Count,
              offsetLag: Count,
              totalConsumed: Count,
              leaseActive: Flag,
              leaseUpToOffset: Nullable(Count),
              leaseExpiresAt: Nullable(Instant),
              workerId: Nullable(Text),
            }),
          ),
        },
        { title: 'LivePartition' },
      ),
    ),
  },
  refuses: ['bad_name', 'partition_not_found'],
});

export const storedMessages = operation({
  operationId: 'storedMessages',
  ...statistics,
  summary: 'Messages stored, over time',
  parameters: Type.Object({
    ...spanParameters,
    ...filterParameters,
    interval: Type.Optional(
      Type.String({
        ...NameFilter,
        default: 'hour',
        description: 'minute, hour or day; another word is hour.',
      }),
    ),
  }),
  answers: {
    200: answers(
      'Over the last day unless told otherwise.',
      Type.Object({
        dataPoints: Type.Array(Type.Object({ timestamp: Instant, messages: Count })),
        interval: Word(['minute', 'hour', 'day']),
        from: Instant,
        to: Instant,
      }),
    ),
  },
});

export const refreshStatistics = operation({
  operationId: 'refreshStatistics',
  tag: 'Statistics',
  summary: 'Count now',
  answers: {
    200: answers(
      'Counted.',
      Type.Object({ engine: Text, segPartitions: Count, queues: Count, tookMs: Count }),
      { engine: 'segments', segPartitions: 3, queues: 2, tookMs: 16 },
    ),
  },
});
