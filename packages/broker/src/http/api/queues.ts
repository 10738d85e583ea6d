/** Queues: /api/v1/configure and /api/v1/resources. */
import { Type } from 'typebox';
import { SINK_HOLD_SECONDS, SINK_NAME } from '../../engine/queues/options.ts';
import type { QueueOptions } from '../../engine/types.ts';
import { Fault } from '../errors.ts';
import { answers, operation } from './operation.ts';
import {
  Count,
  Flag,
  GivenFlag,
  GivenInteger,
  Id,
  Instant,
  Maybe,
  Name,
  NameFilter,
  Nullable,
  Quantity,
  type Refusal,
  type Schema,
  Text,
  Word,
} from './schemas.ts';

/** These two have an answer of their own, which tools know. */
function refuseHold(name: keyof QueueOptions, detail: string): Refusal {
  return (_value, field) =>
    new Fault('bad_body', { message: `${field} ${detail}`, field, extra: { invalid: name } });
}

const seconds = (about: string, absent: number) =>
  GivenInteger({ default: absent, description: `Seconds. ${about}` });
const idle = (absent: number) => GivenInteger({ default: absent, description: 'Stored, without effect.' });
const flag = (about: string, absent: boolean) =>
  Type.Boolean({ ...GivenFlag, default: absent, description: about });

/** What each option accepts. Values are clamped by the engine where the product clamps. */
export const QUEUE_OPTIONS = {
  namespace: Type.String({ ...Name, default: '', description: 'For pops over several queues.' }),
  task: Type.String({ ...Name, default: '', description: 'For pops over several queues.' }),
  priority: idle(0),
  leaseTime: seconds('How long popped messages are hidden; 60 for a queue made by a push or pop.', 300),
  retryLimit: GivenInteger({ default: 3, description: 'Failures of a message that are forgiven.' }),
  retryDelay: idle(1000),
  maxSize: idle(0),
  ttl: idle(3600),
  deadLetterQueue: flag('Either of the two: what failed for good becomes a dead letter.', true),
  dlqAfterMaxRetries: flag('Either of the two: what failed for good becomes a dead letter.', true),
  delayedProcessing: seconds('Age at which a message becomes visible.', 0),
  windowBuffer: seconds('Quiet time of a partition before it is served.', 0),
  retentionEnabled: flag('Switches the two rules of retention on.', false),
  retentionSeconds: seconds('Delete what is older, consumed or not; 0: never.', 0),
  completedRetentionSeconds: seconds('Delete what is older and passed by every group; 0: never.', 0),
  maxWaitTimeSeconds: seconds('Delete what is older, even when leased; 0: never.', 0),
  minPopWaitTime: GivenInteger({
    default: 0,
    description: 'Milliseconds that a waiting pop waits for a fuller batch. Held between 0 and 60000.',
  }),
  encryptionEnabled: flag('Encrypt payloads at rest; the broker needs a key.', false),
  dedupWindowSeconds: seconds('How long a transactionId is refused as a duplicate; 0: not at all.', 3600),
  retentionSinkHold: Type.String({
    pattern: SINK_NAME.source,
    default: '',
    description: 'Name of a sink that retention waits for.',
    refusal: refuseHold(
      'retentionSinkHold',
      'must be at most 64 letters, digits, dots, underscores and dashes',
    ),
  }),
  retentionSinkHoldMaxSeconds: Type.Integer({
    minimum: SINK_HOLD_SECONDS.min,
    maximum: SINK_HOLD_SECONDS.max,
    default: 604_800,
    description: 'Seconds that it waits at most.',
    refusal: refuseHold(
      'retentionSinkHoldMaxSeconds',
      `must be an integer between ${SINK_HOLD_SECONDS.min} and ${SINK_HOLD_SECONDS.max}`,
    ),
  }),
} satisfies { readonly [K in keyof QueueOptions]: Schema };

/** Two types and not `Maybe`: of 21 options, that stand in two places, a validator of choices takes twice as long to compile. */
const given = Object.fromEntries(
  Object.entries(QUEUE_OPTIONS).map(([name, schema]) => [
    name,
    Type.Optional(Type.Unsafe<unknown>({ ...schema, type: [schema.type, 'null'] })),
  ]),
);
const QueueOptionsShown = Type.Object(QUEUE_OPTIONS, { title: 'QueueOptions' });
const { namespace: _namespace, task: _task, ...beside } = QUEUE_OPTIONS;

const Mode = Word(['merge', 'replace'], {
  default: 'merge',
  refusal: (value: unknown) =>
    new Fault('bad_mode', {
      message: `mode must be "merge" or "replace", got ${JSON.stringify(value).slice(0, 100)}`,
      field: 'mode',
    }),
});

const head = { queue: Name, namespace: Maybe(Name), task: Maybe(Name), mode: Maybe(Mode) };

type GivenOptions = { [K in keyof QueueOptions]?: QueueOptions[K] | null };

export type ConfigureBody = {
  queue: string;
  mode?: 'merge' | 'replace' | null;
  options?: GivenOptions | null;
} & GivenOptions;

/** Without an object `options` the options stand at the top level. */
const Configure = Type.Unsafe<ConfigureBody>({
  ...Type.Object({ ...head, options: Maybe(Type.Object(given, { title: 'GivenQueueOptions' })) }),
  title: 'Configure',
  if: { required: ['options'], properties: { options: { type: 'object' } } },
  // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
  then: true,
  else: { properties: given },
});

/** The members of a body that are no options. */
export const CONFIGURE_MEMBERS: readonly string[] = [...Object.keys(head), 'options'];

const configured = {
  configured: true,
  queueId: '7',
  partitionId: null,
  queue: 'orders',
  namespace: '',
  task: '',
  storage: 'segments',
  options: Object.fromEntries(
    Object.entries(beside).map(([name, schema]) => [name, (schema as { default?: unknown }).default]),
  ),
  ignored: [],
};

export const configure = operation({
  operationId: 'configure',
  tag: 'Queues',
  summary: 'Make a queue or change its options',
  about:
    'Options that are not named keep their values (mode merge) or go back to their defaults (mode replace); null puts one back. Without `options` they are read from the top level.',
  body: Configure,
  bodyExample: { queue: 'orders', options: { leaseTime: 60, retryLimit: 5 } },
  answers: {
    200: answers(
      'Every option as it is now.',
      Type.Object(
        {
          configured: Flag,
          queueId: Id,
          partitionId: Type.Null(),
          queue: Text,
          namespace: Text,
          task: Text,
          storage: Text,
          options: Type.Object(beside),
          ignored: Type.Array(Type.String(), {
            description: 'Named options that have no effect, unknown ones among them.',
          }),
        },
        { title: 'Configured' },
      ),
      configured,
    ),
  },
  refuses: ['bad_body', 'bad_mode', 'encryption_required'],
});

const Contents = Type.Object({ total: Count, pending: Count, processing: Count });
const Segments = Type.Object({ segments: Count, messages: Count });
const Summary = Type.Object(
  {
    id: Id,
    name: Text,
    namespace: Text,
    task: Text,
    partitions: Count,
    retainedBytes: Count,
    segments: Segments,
    messages: Contents,
    createdAt: Instant,
  },
  { title: 'QueueSummary' },
);

export const listQueues = operation({
  operationId: 'listQueues',
  tag: 'Queues',
  summary: 'List queues',
  parameters: Type.Object({
    stats: Type.Optional(
      Type.String({
        description: '`cached`: from the statistics, some seconds old, instead of counting now.',
      }),
    ),
  }),
  answers: {
    200: answers(
      'All queues by name, and what is stored beside them.',
      Type.Object({ queues: Type.Array(Summary), kvRows: Count, kvBytes: Count, timerBytes: Count }),
    ),
  },
  refuses: ['bad_query'],
});

const Stats = Type.Object(
  {
    total: Count,
    pending: Count,
    processing: Count,
    completed: Count,
    failed: Type.Null({ description: 'Nothing is ever in a state of failure.' }),
    deadLetter: Count,
  },
  { title: 'LiveCounts' },
);
const OneQueue = Type.Object({ queue: Type.String() });

export const inspectQueue = operation({
  operationId: 'inspectQueue',
  tag: 'Queues',
  summary: 'One queue with its partitions',
  params: OneQueue,
  answers: {
    200: answers(
      'Counted now.',
      Type.Object(
        {
          id: Id,
          name: Text,
          namespace: Text,
          task: Text,
          createdAt: Instant,
          options: QueueOptionsShown,
          partitions: Type.Array(
            Type.Object({
              id: Id,
              name: Text,
              createdAt: Instant,
              stats: Stats,
              oldestMessage: Nullable(Instant),
              newestMessage: Nullable(Instant),
            }),
          ),
          totals: Stats,
          retainedBytes: Count,
          segments: Segments,
        },
        { title: 'QueueDetail' },
      ),
    ),
  },
  refuses: ['bad_name', 'queue_not_found'],
});

const depths = { pending: Count, processing: Count, ready: Count };

export const queueDepth = operation({
  operationId: 'queueDepth',
  tag: 'Queues',
  summary: 'How much work waits',
  about:
    'For autoscalers. With `group` what that group has before it, else what the one that is furthest behind has.',
  params: OneQueue,
  parameters: Type.Object({ group: NameFilter }),
  answers: {
    200: answers(
      'Counted now.',
      Type.Object(
        {
          queue: Text,
          group: Nullable(Text),
          ...depths,
          partitionsPending: Count,
          partitionsReady: Count,
          conflation: Flag,
          effectivePending: Type.Integer({
            description: 'Calls to come: partitions for a conflating group.',
          }),
          effectiveReady: Count,
          partitions: Type.Array(Type.Object({ partition: Text, ...depths })),
        },
        { title: 'QueueDepth' },
      ),
    ),
  },
  refuses: ['bad_name', 'bad_query', 'queue_not_found'],
});

export const deleteQueue = operation({
  operationId: 'deleteQueue',
  tag: 'Queues',
  summary: 'Delete a queue',
  about: 'With its partitions, messages, groups and dead letters. Traces, keys and timers stay.',
  params: OneQueue,
  answers: {
    200: answers(
      'Also when there was none.',
      Type.Object(
        { deleted: Flag, queue: Text, existed: Flag, message: Type.Optional(Text) },
        { title: 'QueueDeleted' },
      ),
      { deleted: true, queue: 'orders', existed: true },
    ),
  },
  refuses: ['bad_name'],
});

const grouped = {
  queues: Count,
  partitions: Count,
  messages: Type.Object({ total: Count, pending: Count }),
};

export const listNamespaces = operation({
  operationId: 'listNamespaces',
  tag: 'Queues',
  summary: 'Namespaces and what is in them',
  answers: {
    200: answers(
      'By name.',
      Type.Object({ namespaces: Type.Array(Type.Object({ namespace: Text, ...grouped })) }),
    ),
  },
});

export const listTasks = operation({
  operationId: 'listTasks',
  tag: 'Queues',
  summary: 'Tasks and what is in them',
  answers: {
    200: answers('By name.', Type.Object({ tasks: Type.Array(Type.Object({ task: Text, ...grouped })) })),
  },
});

const lagBounds = Type.Object({ avg: Quantity, median: Quantity, min: Quantity, max: Quantity });

export const overview = operation({
  operationId: 'overview',
  tag: 'Statistics',
  summary: 'One tenant in one page',
  answers: {
    200: answers(
      'As of `statsAge` seconds ago; -1: never counted.',
      Type.Object(
        {
          queues: Count,
          partitions: Count,
          namespaces: Count,
          tasks: Count,
          messages: Type.Object({
            ...Contents.properties,
            completed: Count,
            failed: Count,
            deadLetter: Count,
          }),
          lag: Type.Object({ time: lagBounds, offset: lagBounds }, { description: 'Seconds, and messages.' }),
          throughput: Type.Object({ ingestedPerSecond: Quantity, processedPerSecond: Quantity }),
          timestamp: Instant,
          statsAge: Quantity,
        },
        { title: 'Overview' },
      ),
    ),
  },
});
