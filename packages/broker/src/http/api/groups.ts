/** Consumer groups. */
import { Type } from 'typebox';
import { answers, operation } from './operation.ts';
import {
  Count,
  Flag,
  GivenFlag,
  GivenInstant,
  GivenInteger,
  Instant,
  listParameters,
  Maybe,
  NameFilter,
  Nullable,
  PartitionId,
  Quantity,
  Text,
  TotalledPagination,
  Word,
} from './schemas.ts';

const OneGroup = Type.Object({ group: Type.String() });
const OnQueue = Type.Object({ group: Type.String(), queue: Type.String() });
const OnPartition = Type.Object({ group: Type.String(), queue: Type.String(), partition: Type.String() });

/** Of a list that is asked for in pages. */
export const GROUPS_PAGE = { limit: 100, most: 1_000 };
export const GROUP_SORTS = ['name', 'lag', 'waiting', 'partitions'] as const;
export const GROUP_PARTITIONS_PAGE = { limit: 100, most: 10_000 };
export const GROUP_PARTITION_SORTS = ['lag', 'waiting', 'name'] as const;

const Standing = Type.Object(
  {
    name: Text,
    topics: Type.Array(Text),
    queueName: Text,
    members: Type.Integer({ description: 'Cursors, not processes.' }),
    partitionCursors: Count,
    partitionsWithLag: Count,
    totalLag: Type.Integer({ description: 'Messages.' }),
    maxTimeLag: Type.Integer({ description: 'Seconds.' }),
    state: Word(['Lagging', 'Stable', 'Dead']),
    storage: Text,
    subscriptionMode: Nullable(Text),
    subscriptionTimestamp: Nullable(Instant),
    subscriptionCreatedAt: Nullable(Instant),
    conflation: Flag,
  },
  { title: 'ConsumerGroup' },
);

export const listGroups = operation({
  operationId: 'listConsumerGroups',
  tag: 'Consumer groups',
  summary: 'Groups and how far behind they are',
  about: 'Without `limit` all of them, and the other parameters count for nothing.',
  parameters: Type.Object({
    group: NameFilter,
    queue: NameFilter,
    ...listParameters(GROUP_SORTS, GROUPS_PAGE),
  }),
  answers: {
    200: answers(
      'One element for each group and queue; with `limit` one page of them.',
      Type.Union([
        Type.Array(Standing),
        Type.Object(
          { groups: Type.Array(Standing), pagination: TotalledPagination },
          { title: 'ConsumerGroupPage' },
        ),
      ]),
    ),
  },
  refuses: ['bad_query'],
});

/** Without `minLagSeconds`. */
export const LAGGING_SECONDS = 3_600;

export const laggingGroups = operation({
  operationId: 'laggingPartitions',
  tag: 'Consumer groups',
  summary: 'Partitions in which a group is late',
  parameters: Type.Object({
    minLagSeconds: Type.Optional(
      GivenInteger({ default: LAGGING_SECONDS, description: 'How late at least.' }),
    ),
  }),
  answers: {
    200: answers(
      'The latest first.',
      Type.Array(
        Type.Object(
          {
            consumer_group: Text,
            queue_name: Text,
            partition_name: Text,
            partition_id: PartitionId,
            worker_id: Nullable(Text),
            offset_lag: Count,
            time_lag_seconds: Type.Integer(),
            lag_hours: Quantity,
            oldest_unconsumed_at: Instant,
            last_consumed_at: Type.Null(),
          },
          { title: 'LaggingPartition' },
        ),
      ),
    ),
  },
  refuses: ['bad_query'],
});

export const groupOnQueue = operation({
  operationId: 'consumerGroupOnQueue',
  tag: 'Consumer groups',
  summary: 'One group on one queue, with a page of its partitions',
  params: OnQueue,
  parameters: Type.Object(listParameters(GROUP_PARTITION_SORTS, GROUP_PARTITIONS_PAGE)),
  answers: {
    200: answers(
      'Counted now. A group that nobody knows has no partitions.',
      Type.Object(
        {
          consumerGroup: Text,
          queueName: Text,
          conflation: Flag,
          totals: Type.Object({
            partitions: Count,
            partitionCursors: Count,
            partitionsWithLag: Count,
            totalLag: Count,
            maxTimeLag: Type.Integer({ description: 'Seconds.' }),
          }),
          partitions: Type.Array(
            Type.Object(
              {
                partition: Text,
                partitionId: PartitionId,
                hasCursor: Type.Boolean({ description: 'false: where it would start.' }),
                nextOffset: Count,
                endOffset: Type.Integer({ minimum: 0, description: 'What the next message gets.' }),
                offsetLag: Count,
                timeLagSeconds: Type.Integer(),
                totalConsumed: Count,
                workerId: Nullable(Text),
                leaseActive: Flag,
              },
              { title: 'GroupPartition' },
            ),
          ),
          pagination: TotalledPagination,
        },
        { title: 'GroupQueuePage' },
      ),
    ),
  },
  refuses: ['bad_query', 'bad_name'],
});

export const groupDetail = operation({
  operationId: 'consumerGroup',
  tag: 'Consumer groups',
  summary: 'One group on all its queues',
  params: OneGroup,
  answers: {
    200: answers(
      'By queue; empty for a group that nobody knows.',
      Type.Record(
        Type.String(),
        Type.Object(
          {
            conflation: Flag,
            partitions: Type.Array(
              Type.Object({
                partition: Text,
                workerId: Nullable(Text),
                lastConsumedAt: Type.Null(),
                totalConsumed: Count,
                offsetLag: Count,
                timeLagSeconds: Type.Integer(),
                leaseActive: Flag,
              }),
            ),
          },
          { title: 'GroupOnQueue' },
        ),
      ),
    ),
  },
});

export const subscription = operation({
  operationId: 'setSubscription',
  tag: 'Consumer groups',
  summary: 'Change where a group starts',
  about: 'On partitions where it has no cursor yet, on every queue of the group.',
  params: OneGroup,
  body: Type.Object({ subscriptionTimestamp: GivenInstant }, { title: 'Subscription' }),
  noBodyIsEmpty: true,
  bodyExample: { subscriptionTimestamp: '2026-01-31T10:00:00Z' },
  answers: {
    200: answers(
      '`rowsUpdated` 0: the group was never registered.',
      Type.Object({ success: Flag, consumerGroup: Text, newTimestamp: Text, rowsUpdated: Count }),
    ),
  },
  refuses: ['bad_body'],
});

const seekFields = {
  toEnd: Maybe(GivenFlag),
  toBeginning: Maybe(GivenFlag),
  timestamp: Maybe(GivenInstant),
};
/** What the validator judges; the handler sees to it that there is one place to go to. */
const SeekQueue = Type.Object({ ...seekFields, offset: Maybe(Type.Unknown()) });
const SeekPartition = Type.Object({
  ...seekFields,
  offset: Maybe(
    Type.Integer({
      minimum: 0,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'Held between what is retained and what comes next.',
      refusal: 'must be an integer, at least 0',
    }),
  ),
});
const PLACES = [
  { required: ['toEnd'], properties: { toEnd: { const: true } } },
  { required: ['toBeginning'], properties: { toBeginning: { const: true } } },
  { required: ['timestamp'], properties: { timestamp: { type: 'string' } } },
];
const NOWHERE = {
  properties: {
    toEnd: { enum: [false, null] },
    toBeginning: { enum: [false, null] },
    timestamp: { type: 'null' },
    offset: { type: 'null' },
  },
};
const echo = {
  success: Flag,
  consumerGroup: Text,
  queueName: Text,
  seekToEnd: Flag,
  targetTimestamp: Nullable(Text),
  seekToBeginning: Type.Optional(Flag),
};
const seeks =
  'Live leases of the cursors end, and acks with them are refused. To a timestamp: at the first batch that was written then or later.';

export const seekQueue = operation({
  operationId: 'seekQueue',
  tag: 'Consumer groups',
  summary: 'Move a group on a queue',
  about: `Exactly one of the three. ${seeks}`,
  params: OnQueue,
  body: SeekQueue,
  readBody: Type.Unsafe<unknown>({
    ...Type.Object({ ...seekFields, offset: Type.Optional(Type.Null()) }),
    oneOf: PLACES,
    title: 'SeekQueue',
  }),
  noBodyIsEmpty: true,
  bodyExample: { toBeginning: true },
  answers: {
    200: answers('Moved.', Type.Object({ ...echo, partitionsUpdated: Count }, { title: 'QueueSought' })),
  },
  refuses: ['bad_body', 'queue_not_found'],
});

export const seekPartition = operation({
  operationId: 'seekPartition',
  tag: 'Consumer groups',
  summary: 'Move a group on a partition',
  about: `At most one of the four; none: to the end. ${seeks}`,
  params: OnPartition,
  body: SeekPartition,
  readBody: Type.Unsafe<unknown>({
    ...SeekPartition,
    oneOf: [...PLACES, { required: ['offset'], properties: { offset: { type: 'integer' } } }, NOWHERE],
    title: 'SeekPartition',
  }),
  noBodyIsEmpty: true,
  bodyExample: { offset: 17 },
  answers: {
    200: answers(
      'Moved.',
      Type.Object(
        {
          ...echo,
          partitionName: Text,
          targetOffset: Type.Optional(Count),
          resumesAt: Nullable(Type.Integer({ description: 'Offset of the next delivery.' })),
          updated: Flag,
        },
        { title: 'PartitionSought' },
      ),
    ),
  },
  refuses: ['bad_body', 'partition_not_found'],
});

const deleted = { success: Flag, consumerGroup: Text, deletedPartitions: Count, metadataDeleted: Flag };
const deletion = Type.Object({
  deleteMetadata: Type.Optional(
    Type.Boolean({
      default: true,
      description: 'Forget where it began, too: its next pop registers it anew. Also 1, 0, yes, no.',
    }),
  ),
});

export const deleteGroup = operation({
  operationId: 'deleteConsumerGroup',
  tag: 'Consumer groups',
  summary: 'Delete a group',
  params: OneGroup,
  parameters: deletion,
  answers: { 200: answers('Also when there was none.', Type.Object(deleted)) },
  refuses: ['bad_query'],
});

export const deleteGroupOnQueue = operation({
  operationId: 'deleteConsumerGroupOnQueue',
  tag: 'Consumer groups',
  summary: 'Delete a group on one queue',
  params: OnQueue,
  parameters: deletion,
  answers: { 200: answers('Also when there was none.', Type.Object({ ...deleted, queueName: Text })) },
  refuses: ['bad_query'],
});
