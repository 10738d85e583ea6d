/** Push, pop, ack and lease: the hot routes have readers of their own, which a test holds against these schemas. */
import { Type } from 'typebox';
import { DEFAULT_PARTITION, INT_MAX, INT_MIN, QUEUE_MODE_GROUP, ZERO_UUID } from '../../engine/types.ts';
import { TRANSACTION_ID_BYTES_MAX } from '../../log/names.ts';
import { answers, operation } from './operation.ts';
import {
  Count,
  Flag,
  GivenInteger,
  Instant,
  Json,
  Maybe,
  Name,
  Nullable,
  PartitionId,
  RequiredName,
  Text,
  TransactionId,
  Uuid,
  Word,
} from './schemas.ts';

const PushedItem = Type.Object(
  {
    queue: RequiredName,
    partition: Maybe(Type.String({ ...Name, default: DEFAULT_PARTITION })),
    payload: Type.Unknown({ description: 'Any JSON, null included. Stored and delivered byte for byte.' }),
    transactionId: Maybe(
      Type.String({ ...TransactionId, description: 'The deduplication key; minted when there is none.' }),
    ),
  },
  { title: 'PushItem' },
);

const PushResult = Type.Object(
  {
    index: Count,
    message_id: Type.String({
      format: 'uuid',
      description: `Of the message; of a duplicate the first one's, ${ZERO_UUID} when that cannot be read any more.`,
    }),
    transaction_id: Text,
    queueName: Text,
    status: Word(['queued', 'duplicate', 'buffered', 'failed'], {
      description:
        'queued: durable. duplicate: stored before, within dedupWindowSeconds. buffered: on the disk of the broker until the database takes it. failed: not stored, see error.',
    }),
    offset: Type.Optional(Count),
    error: Type.Optional(Text),
  },
  { title: 'PushResult' },
);

const pushResults = [
  {
    index: 0,
    message_id: '01a2c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11',
    transaction_id: 'order-1',
    queueName: 'orders',
    status: 'queued',
    offset: 0,
  },
];

export const push = operation({
  operationId: 'push',
  tag: 'Messages',
  summary: 'Push messages',
  about:
    'One element of the answer for each item, in the same order: look at each `status`. Items of one partition are stored together, in their order. Without an answer push again with the same transaction ids.',
  readBody: Type.Object({ items: Type.Array(PushedItem) }, { title: 'Push' }),
  bodyExample: {
    items: [{ queue: 'orders', partition: 'customer-7', transactionId: 'order-1', payload: { total: 12.5 } }],
  },
  answers: {
    201: answers('What became of each item.', Type.Array(PushResult), pushResults),
    500: answers('During push maintenance, when the disk did not take some.', Type.Array(PushResult)),
  },
  refuses: ['bad_body', 'overloaded'],
});

const PoppedMessage = Type.Object(
  {
    id: Uuid,
    transactionId: Text,
    traceId: Nullable(Uuid),
    data: Json,
    producerSub: Nullable(Text),
    createdAt: Instant,
    partitionId: PartitionId,
    partition: Text,
    leaseId: Type.String({ description: 'Empty with autoAck.' }),
    consumerGroup: Text,
    deliveryAttempt: Type.Integer({ minimum: 1 }),
    queue: Type.Optional(Type.String({ description: 'Only in a pop over several queues.' })),
    offset: Count,
  },
  { title: 'PoppedMessage' },
);

const Popped = Type.Object(
  {
    success: Type.Optional(Flag),
    queue: Type.Optional(Text),
    partition: Type.Optional(Type.String({ description: 'Of the first message; each has its own.' })),
    partitionId: Type.Optional(Text),
    leaseId: Type.Optional(Text),
    consumerGroup: Type.Optional(Text),
    partitionsClaimed: Type.Optional(Count),
    conflation: Type.Optional(Flag),
    conflationConflict: Type.Optional(
      Type.Boolean({ description: 'The call asked for another policy than the one of the group.' }),
    ),
    paused: Type.Optional(Flag),
    autopilot: Type.Optional(Type.Object({ partitions: Count, batch: Count, waitMs: Count })),
    messages: Type.Array(PoppedMessage),
  },
  { title: 'Popped' },
);

const popped = {
  success: true,
  queue: 'orders',
  partition: 'customer-7',
  partitionId: '42',
  leaseId: '01a2c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a12',
  consumerGroup: 'billing',
  partitionsClaimed: 1,
  messages: [
    {
      id: '01a2c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11',
      transactionId: 'order-1',
      traceId: null,
      data: { total: 12.5 },
      producerSub: null,
      createdAt: '2026-01-31T10:02:54.923823Z',
      partitionId: '42',
      partition: 'customer-7',
      leaseId: '01a2c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a12',
      consumerGroup: 'billing',
      deliveryAttempt: 1,
      offset: 0,
    },
  ],
};

const popParameters = {
  consumerGroup: Type.Optional(
    Type.String({
      ...Name,
      default: QUEUE_MODE_GROUP,
      description: 'Each group gets every message once. Pops without one share a cursor of their own.',
    }),
  ),
  batch: Type.Optional(GivenInteger({ default: 200, description: 'Messages at most. Below 1 counts as 1.' })),
  partitions: Type.Optional(
    GivenInteger({ default: 1, description: 'Partitions at most; 0 and below: any number.' }),
  ),
  wait: Type.Optional(
    Type.Boolean({ default: false, description: 'Wait for messages when there are none.' }),
  ),
  timeout: Type.Optional(
    GivenInteger({ default: 30_000, description: 'Milliseconds to wait. The default is set by the broker.' }),
  ),
  leaseSeconds: Type.Optional(
    GivenInteger({ default: 0, description: "Above 0: instead of the queue's leaseTime." }),
  ),
  autoAck: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Done at delivery: no lease, and a lost answer loses messages.',
    }),
  ),
  commitOnDelivery: Type.Optional(Type.Boolean({ description: 'Another word for autoAck.' })),
  subscriptionMode: Type.Optional(
    Type.String({
      default: 'new',
      description:
        'Where a group starts that has never popped this queue: `new` (or `new-only`) at the messages that come from now on, any other word at the oldest. The default is set by the broker.',
      examples: ['all'],
    }),
  ),
  subscriptionFrom: Type.Optional(
    Type.String({
      description: '`now` or an ISO 8601 instant; wins over the mode. Any other text is ignored.',
    }),
  ),
  conflation: Type.Optional(
    Type.Boolean({
      description: 'Only the newest message of each partition. Needs a consumerGroup, and no autoAck.',
    }),
  ),
  autopilot: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Let the broker choose what of batch and partitions is not given.',
    }),
  ),
};

const popAnswers = {
  200: answers('Messages, leased to the caller.', Popped, popped),
  204: { description: 'Nothing to deliver.', schema: null },
} as const;
const popRefuses = ['bad_query', 'bad_name', 'conflation_needs_group', 'conflation_with_auto_ack'] as const;
const hold = 'A leased partition is hidden from its group until the batch is acked or the lease ends.';

export const popDiscovery = operation({
  operationId: 'popDiscovery',
  tag: 'Messages',
  summary: 'Pop from all queues of a namespace or task',
  about: hold,
  parameters: Type.Object({
    namespace: Type.Optional(
      Type.String({ ...Name, description: 'One of the two is needed; both must match.' }),
    ),
    task: Type.Optional(Type.String({ ...Name })),
    ...popParameters,
  }),
  answers: popAnswers,
  refuses: [...popRefuses, 'scope_missing'],
});

export const popQueue = operation({
  operationId: 'popQueue',
  tag: 'Messages',
  summary: 'Pop from any partition of a queue',
  about: hold,
  place: Type.Object({ queue: Name }),
  parameters: Type.Object(popParameters),
  answers: popAnswers,
  refuses: popRefuses,
});

export const popPartition = operation({
  operationId: 'popPartition',
  tag: 'Messages',
  summary: 'Pop from one partition',
  about: hold,
  place: Type.Object({ queue: Name, partition: Name }),
  parameters: Type.Object(popParameters),
  answers: popAnswers,
  refuses: popRefuses,
});

/** An id that no push can have carried is unknown, not malformed. */
const AckedId = Type.String({
  maxLength: TRANSACTION_ID_BYTES_MAX,
  pattern: '^[^\\p{Cs}]*$',
  description: `At most ${TRANSACTION_ID_BYTES_MAX} bytes of UTF-8.`,
});
const ackFields = {
  transactionId: Maybe(AckedId),
  partitionId: Maybe(Text),
  leaseId: Maybe(Type.String({ description: 'Without one the ack is held against no lease.' })),
  status: Maybe(
    Type.String({
      default: 'completed',
      description:
        'completed (success, acked, ok): done, with every message before it in the partition. retry: again, at no cost. dlq: a dead letter now. failed and any other word: again, at the cost of one attempt.',
      examples: ['completed', 'failed', 'retry', 'dlq'],
    }),
  ),
  error: Maybe(Type.String({ description: 'Why; kept with a dead letter.' })),
};
const ackGroup = Maybe(Type.String({ ...Name, default: QUEUE_MODE_GROUP }));

/** Also of a transaction. */
export const ackMembers = { ...ackFields, consumerGroup: ackGroup };

const AckVerdict = Type.Object(
  {
    index: Count,
    transactionId: Text,
    success: Type.Boolean({ description: 'The instruction was carried out.' }),
    error: Nullable(Text),
    leaseReleased: Flag,
    dlq: Type.Boolean({ description: 'It is a dead letter now.' }),
    noop: Type.Boolean({ description: 'It was done before.' }),
    conflated: Type.Optional(Count),
    dropped: Type.Optional(Flag),
  },
  { title: 'AckVerdict' },
);
const verdicts = [
  {
    index: 0,
    transactionId: 'order-1',
    success: true,
    error: null,
    leaseReleased: true,
    dlq: false,
    noop: false,
  },
];
const ackAnswers = { 200: answers('What became of each, in order.', Type.Array(AckVerdict), verdicts) };
const acked = {
  transactionId: 'order-1',
  partitionId: '42',
  leaseId: '01a2c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a12',
  status: 'completed',
};

export const ack = operation({
  operationId: 'ack',
  tag: 'Messages',
  summary: 'Acknowledge one message',
  readBody: Type.Object(ackMembers, { title: 'Ack' }),
  bodyExample: { consumerGroup: 'billing', ...acked },
  answers: ackAnswers,
  refuses: ['bad_body'],
});

export const ackBatch = operation({
  operationId: 'ackBatch',
  tag: 'Messages',
  summary: 'Acknowledge many messages',
  readBody: Type.Object(
    {
      consumerGroup: ackGroup,
      acknowledgments: Type.Array(Type.Object(ackFields, { title: 'AckItem' })),
    },
    { title: 'AckBatch' },
  ),
  bodyExample: { consumerGroup: 'billing', acknowledgments: [acked] },
  answers: ackAnswers,
  refuses: ['bad_body'],
});

/** Without `seconds`. */
export const LEASE_SECONDS = 60;

export const extendLease = operation({
  operationId: 'extendLease',
  tag: 'Messages',
  summary: 'Extend a lease',
  about:
    'Never shortens it. All partitions of one pop are extended together. A body that is no object counts as none.',
  params: Type.Object({ leaseId: Type.String() }),
  body: Type.Object(
    {
      seconds: Maybe(
        Type.Integer({
          minimum: INT_MIN,
          maximum: INT_MAX,
          default: LEASE_SECONDS,
          description: 'From now. Below 1 counts as 1.',
          refusal: `must be an integer up to ${INT_MAX}`,
        }),
      ),
    },
    { title: 'LeaseExtension' },
  ),
  noBodyIsEmpty: true,
  bodyExample: { seconds: 60 },
  answers: {
    200: answers(
      'Also for a lease that is over: `success` tells.',
      Type.Object(
        {
          leaseId: Text,
          success: Flag,
          renewed: Type.Integer({ description: 'Partitions.' }),
          newExpiresAt: Nullable(Instant),
          expiresAt: Nullable(Instant),
          lease_expires_at: Nullable(Instant),
        },
        { title: 'LeaseExtended' },
      ),
    ),
  },
  refuses: ['bad_body'],
});
