/** Messages as a person wants to see them, and the notes about them. */
import { Type } from 'typebox';
import type { MessageStatus } from '../../engine/reads/face.ts';
import { QUEUE_MODE_GROUP } from '../../engine/types.ts';
import { answers, operation } from './operation.ts';
import { QUEUE_OPTIONS } from './queues.ts';
import {
  Count,
  Flag,
  filterParameters,
  Instant,
  Json,
  limitParameter,
  NameFilter,
  Nullable,
  Pagination,
  PartitionId,
  pageParameters,
  spanParameters,
  Text,
  Uuid,
  Word,
} from './schemas.ts';

export const Address = Type.Object({ partitionId: Type.String(), transactionId: Type.String() });
export const FOUND = { limit: 50, most: 1_000 };
export const MESSAGES_PAGE = { limit: 200, most: 1_000 };
export const STATUSES: readonly MessageStatus[] = ['pending', 'processing', 'completed', 'dead_letter'];

const Mode = Type.Object(
  { hasQueueMode: Flag, busGroupsCount: Count, type: Word(['queue', 'bus', 'hybrid', 'none']) },
  { title: 'ConsumptionMode' },
);
const Status = Word(STATUSES);
const listed = {
  transactionId: Nullable(Text),
  partitionId: PartitionId,
  queuePath: Text,
  queue: Text,
  partition: Text,
  namespace: Text,
  task: Text,
  status: Status,
  traceId: Nullable(Uuid),
  producerSub: Nullable(Text),
  createdAt: Instant,
  leaseExpiresAt: Nullable(Instant),
  isEncrypted: Flag,
  data: Json,
  payload: Type.Unknown({ description: 'The same as data.' }),
};

export const listMessages = operation({
  operationId: 'listMessages',
  tag: 'Lookup',
  summary: 'Messages, the newest first',
  about:
    'From an hour ago to now unless told otherwise. A message is listed as long as its id is remembered.',
  parameters: Type.Object({
    ...filterParameters,
    partition: NameFilter,
    status: Type.Optional(Word([...STATUSES, ''])),
    ...spanParameters,
    ...pageParameters(MESSAGES_PAGE),
  }),
  answers: {
    200: answers(
      '`total` is the length of this page.',
      Type.Object(
        {
          messages: Type.Array(
            Type.Object(
              {
                id: Nullable(Uuid),
                ...listed,
                txnHash: Nullable(Text),
                queueStatus: Nullable(Status),
                busStatus: Type.Object({ consumedBy: Count, totalGroups: Count }),
                payloadAvailable: Flag,
                segment: Type.Object({ seq: Count, frameIdx: Count }),
                offset: Count,
                error: Type.Optional(Text),
              },
              { title: 'ListedMessage' },
            ),
          ),
          mode: Mode,
          total: Count,
        },
        { title: 'MessagePage' },
      ),
    ),
  },
  refuses: ['bad_query'],
});

export const findMessages = operation({
  operationId: 'findMessages',
  tag: 'Lookup',
  summary: 'Where a transactionId is',
  about:
    'In one queue or in all of them: stored, as long as the id is remembered, or kept by a dead letter. In an installation of many messages it takes a moment.',
  parameters: Type.Object({
    transactionId: Type.String({ minLength: 1 }),
    queue: NameFilter,
    ...limitParameter(FOUND),
  }),
  answers: {
    200: answers(
      'The newest first.',
      Type.Object({
        messages: Type.Array(
          Type.Object(
            {
              transactionId: Text,
              queue: Text,
              partition: Text,
              partitionId: PartitionId,
              offset: Count,
              createdAt: Instant,
              deadLetter: Flag,
            },
            { title: 'FoundMessage' },
          ),
        ),
      }),
    ),
  },
  refuses: ['bad_query'],
});

export const inspectMessage = operation({
  operationId: 'inspectMessage',
  tag: 'Lookup',
  summary: 'One message, with its status for each group',
  params: Address,
  answers: {
    200: answers(
      'The newest of that transactionId.',
      Type.Object(
        {
          id: Uuid,
          ...listed,
          offset: Count,
          errorMessage: Nullable(Text),
          retryCount: Count,
          consumerGroups: Type.Array(
            Type.Object({
              name: Text,
              group: Text,
              consumed: Flag,
              status: Status,
              leaseExpiresAt: Nullable(Instant),
            }),
          ),
          mode: Mode,
          queueConfig: Type.Object(QUEUE_OPTIONS),
        },
        { title: 'MessageDetail' },
      ),
    ),
  },
  refuses: ['message_not_found', 'frame_decode_failed'],
});

// ---- traces -----------------------------------------------------------------------------------------

export const TRACES_PAGE = { limit: 100, most: 1_000 };
export const TRACE_NAMES_PAGE = { limit: 50, most: 1_000 };

const noted = {
  id: Uuid,
  event_type: Text,
  consumer_group: Nullable(Text),
  worker_id: Nullable(Text),
  created_at: Instant,
  trace_names: Type.Array(Text),
  dataOmitted: Type.Optional(Type.Boolean({ description: 'It had no room in this answer.' })),
  data: Json,
};

export const writeTrace = operation({
  operationId: 'writeTrace',
  tag: 'Lookup',
  summary: 'Leave a note about a message',
  about: 'Whether the message exists is not looked at, and nothing removes a note.',
  readBody: Type.Object(
    {
      partitionId: Type.String({ minLength: 1 }),
      transactionId: Type.String({ minLength: 1 }),
      data: Type.Unsafe<unknown>({
        type: ['object', 'array', 'string', 'number', 'boolean'],
        description: 'Any JSON but null.',
      }),
      consumerGroup: Type.Optional(Type.Unknown({ default: QUEUE_MODE_GROUP, description: 'A string.' })),
      eventType: Type.Optional(Type.Unknown({ default: 'info', description: 'A string.' })),
      traceNames: Type.Optional(
        Type.Unknown({
          description: 'A string or several, by which the note is found. What is none is ignored.',
        }),
      ),
    },
    { title: 'TraceNote' },
  ),
  bodyExample: {
    partitionId: '42',
    transactionId: 'order-1',
    consumerGroup: 'billing',
    traceNames: ['customer-7'],
    eventType: 'info',
    data: { text: 'billed' },
  },
  answers: { 201: answers('Written.', Type.Object({ success: Flag, traceId: Uuid })) },
  refuses: ['bad_body', 'message_not_found'],
});

export const traceNames = operation({
  operationId: 'traceNames',
  tag: 'Lookup',
  summary: 'Names of notes, the latest first',
  parameters: Type.Object(pageParameters(TRACE_NAMES_PAGE)),
  answers: {
    200: answers(
      'One page.',
      Type.Object({
        trace_names: Type.Array(
          Type.Object({ trace_name: Text, trace_count: Count, message_count: Count, last_seen: Instant }),
        ),
        total: Count,
        pagination: Pagination,
      }),
    ),
  },
  refuses: ['bad_query'],
});

export const tracesByName = operation({
  operationId: 'tracesByName',
  tag: 'Lookup',
  summary: 'Notes under a name, over all queues',
  params: Type.Object({ name: Type.String() }),
  parameters: Type.Object(pageParameters(TRACES_PAGE)),
  answers: {
    200: answers(
      'The oldest first.',
      Type.Object({
        traces: Type.Array(
          Type.Object(
            {
              ...noted,
              transaction_id: Text,
              partition_id: PartitionId,
              queue_name: Nullable(Text),
              partition_name: Nullable(Text),
              message_payload: Type.Null(),
            },
            { title: 'NamedTrace' },
          ),
        ),
        total: Count,
        pagination: Pagination,
      }),
    ),
  },
  refuses: ['bad_query'],
});

export const tracesOfMessage = operation({
  operationId: 'tracesOfMessage',
  tag: 'Lookup',
  summary: 'Notes about a message',
  params: Address,
  answers: {
    200: answers(
      'The oldest first.',
      Type.Object({ traces: Type.Array(Type.Object(noted, { title: 'Trace' })) }),
    ),
  },
});
