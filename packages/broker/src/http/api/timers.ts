/** Timers. Operations have a reader of their own; a test holds it against these. */
import { Type } from 'typebox';
import { OPERATIONS_MAX, PREFIX_BYTES_MAX, TIMER_KEY_BYTES_MAX } from '../../engine/timers/check.ts';
import { PAGE_DEFAULT, PAGE_MAX } from '../../engine/timers/timers.ts';
import { DEFAULT_PARTITION } from '../../engine/types.ts';
import { NAME_CHARACTERS_MAX } from '../../log/names.ts';
import { CodedRefusal } from './kv.ts';
import { answers, operation } from './operation.ts';
import {
  Count,
  Flag,
  HeldInteger,
  Instant,
  Maybe,
  Name,
  Nullable,
  RequiredName,
  Text,
  TransactionId,
  Uuid,
  Word,
} from './schemas.ts';

const Key = Type.String({
  minLength: 1,
  maxLength: TIMER_KEY_BYTES_MAX,
  pattern: '^[^\\u0000\\p{Cs}]*$',
  description: `At most ${TIMER_KEY_BYTES_MAX} bytes of UTF-8. At most one timer is pending for a queue and key.`,
  examples: ['remind-4711'],
});
const named = { queue: RequiredName, timerKey: Key };
const Schedule = Type.Object(
  {
    op: Word(['schedule', 'reschedule'], { description: 'The same: it replaces one that is pending.' }),
    ...named,
    delayMs: Type.Integer({
      minimum: Number.MIN_SAFE_INTEGER,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'Milliseconds from now; 0 and below: at once. At most QUEEN_TIMERS_MAX_HORIZON_S ahead.',
      examples: [3_600_000],
    }),
    txn: Type.String({
      ...TransactionId,
      description: 'transactionId of the message.',
      examples: ['remind-4711-1'],
    }),
    payload: Type.String({
      contentEncoding: 'base64',
      pattern: '^[A-Za-z0-9+/]*={0,2}$',
      description: 'base64 of its JSON text, at most QUEEN_TIMERS_MAX_PAYLOAD_BYTES.',
      examples: ['eyJpZCI6NDcxMX0='],
    }),
    partition: Maybe(Type.String({ ...Name, default: DEFAULT_PARTITION })),
    payloadZstd: Maybe(Type.Boolean({ default: false, description: 'The text is zstd compressed.' })),
    encrypted: Maybe(Type.Boolean({ default: false, description: 'The caller encrypted it.' })),
  },
  { title: 'TimerSchedule', additionalProperties: false },
);
/** What only a schedule has is read over. */
const { op: _op, queue: _queue, timerKey: _timerKey, txn: _txn, ...scheduled } = Schedule.properties;
const idle = Object.fromEntries(Object.keys(scheduled).map((name) => [name, Type.Optional(Type.Unknown())]));
const Cancel = Type.Object(
  { op: Type.Literal('cancel'), ...named, txn: Maybe(TransactionId), ...idle },
  { title: 'TimerCancel', additionalProperties: false },
);
export const TimerOperation = Type.Unsafe<unknown>({ oneOf: [Schedule, Cancel], title: 'TimerOperation' });

const status = Word(['scheduled', 'rescheduled', 'cancelled', 'absent', 'too_late'], {
  description: 'absent: nothing is pending, it may have fired. too_late: it is being fired.',
});
export const timerResultMembers = {
  ok: Flag,
  status,
  queue: Text,
  timerKey: Text,
  txn: Nullable(Text),
  messageId: Nullable(Uuid),
  deliverAt: Nullable(Instant),
};
const refuses = [
  'timers_bad_request',
  'rate_limited',
  'feature_gated',
  'timers_unavailable',
  'timers_failed',
] as const;
const common = { tag: 'Timers', refusal: CodedRefusal, memory: true } as const;

export const applyTimers = operation({
  operationId: 'timers',
  ...common,
  summary: 'Schedule, reschedule and cancel',
  about: `Up to ${OPERATIONS_MAX} operations, each key once; all of them commit together, or none.`,
  readBody: Type.Object(
    { operations: Type.Array(TimerOperation, { maxItems: OPERATIONS_MAX }) },
    { title: 'TimerBatch' },
  ),
  bodyExample: {
    operations: [
      {
        op: 'schedule',
        queue: 'orders',
        timerKey: 'remind-4711',
        delayMs: 3_600_000,
        txn: 'remind-4711-1',
        payload: 'eyJpZCI6NDcxMX0=',
      },
      { op: 'cancel', queue: 'orders', timerKey: 'remind-4712' },
    ],
  },
  answers: {
    200: answers(
      'One result an operation, in order.',
      Type.Object(
        { results: Type.Array(Type.Object(timerResultMembers, { title: 'TimerResult' })) },
        { title: 'TimerResults' },
      ),
    ),
  },
  refuses: [
    ...refuses,
    'payload_too_large',
    'timer_horizon_exceeded',
    'timers_quota_exceeded',
    'timers_disabled',
  ],
});

const place = Type.Object({
  queue: RequiredName,
  timerKey: Type.String({ ...Key, description: 'The rest of the path, slashes included.' }),
});
const kept = {
  queue: Text,
  timerKey: Text,
  partition: Text,
  deliverAt: Instant,
  txn: Text,
  messageId: Uuid,
  payloadZstd: Flag,
  encrypted: Flag,
  producerSub: Nullable(Text),
  attempts: Count,
  lastError: Nullable(Text),
  claimed: Type.Boolean({ description: 'It is being fired.' }),
  createdAt: Instant,
  updatedAt: Instant,
};

export const peekTimer = operation({
  operationId: 'timer',
  ...common,
  summary: 'Look at a timer',
  place,
  answers: {
    200: answers(
      'What is pending, or that nothing is.',
      Type.Union([
        Type.Object(
          { found: Type.Literal(true), ...kept, payload: Type.String({ contentEncoding: 'base64' }) },
          { title: 'PendingTimer' },
        ),
        Type.Object({ found: Type.Literal(false), queue: Text, timerKey: Text }, { title: 'NoTimer' }),
      ]),
    ),
  },
  refuses,
});

export const cancelTimer = operation({
  operationId: 'cancelTimer',
  ...common,
  summary: 'Cancel a timer',
  place,
  parameters: Type.Object({
    txn: Type.Optional(Type.String({ ...TransactionId, minLength: 0, description: 'Echoed.' })),
  }),
  answers: {
    200: answers(
      'What became of it.',
      Type.Object(
        { ok: Flag, status, queue: Text, timerKey: Text, txn: Nullable(Text) },
        { title: 'TimerCancelled' },
      ),
    ),
  },
  refuses,
});

export const timerQueues = operation({
  operationId: 'timerQueues',
  ...common,
  summary: 'Queues that have pending timers',
  parameters: Type.Object({
    after: Type.Optional(Type.String({ maxLength: NAME_CHARACTERS_MAX, pattern: '^[^\\u0000]*$' })),
    limit: Type.Optional(HeldInteger({ least: 1, most: PAGE_MAX, absent: PAGE_DEFAULT })),
  }),
  answers: {
    200: answers(
      'Their names in byte order, also of queues that are not made yet.',
      Type.Object({ queues: Type.Array(Text), nextAfter: Nullable(Text) }, { title: 'TimerQueues' }),
    ),
  },
  refuses,
});

export const listTimers = operation({
  operationId: 'listTimers',
  ...common,
  summary: 'Timers of a queue',
  place: Type.Object({ queue: RequiredName }),
  parameters: Type.Object({
    mode: Type.Optional(Word(['list', 'count', ''], { default: 'list' })),
    prefix: Type.Optional(
      Type.String({
        maxLength: PREFIX_BYTES_MAX,
        pattern: '^[^\\u0000]*$',
        description: `Keys that begin with it; needed with mode=count. At most ${PREFIX_BYTES_MAX} bytes.`,
      }),
    ),
    after: Type.Optional(
      Type.String({
        maxLength: TIMER_KEY_BYTES_MAX,
        pattern: '^[^\\u0000]*$',
        description: 'Not with mode=count.',
      }),
    ),
    limit: Type.Optional(
      HeldInteger({ least: 1, most: PAGE_MAX, absent: PAGE_DEFAULT }, 'Not with mode=count.'),
    ),
  }),
  answers: {
    200: answers(
      'One page by key, or with mode=count how many.',
      Type.Union([
        Type.Object(
          {
            rows: Type.Array(Type.Object(kept, { title: 'TimerRow' })),
            truncated: Flag,
            nextAfter: Nullable(Text),
          },
          { title: 'TimerPage' },
        ),
        Type.Object({ count: Count }, { title: 'TimerCount' }),
      ]),
    ),
  },
  refuses,
});
