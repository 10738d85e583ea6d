/** POST /api/v1/transaction. Its body has a reader of its own; a test holds it against this. */
import { Type } from 'typebox';
import { RIDING_OPERATIONS_MAX } from '../../engine/kv/kv.ts';
import { OPERATIONS_MAX as TIMER_OPERATIONS_MAX } from '../../engine/timers/check.ts';
import { DEFAULT_PARTITION } from '../../engine/types.ts';
import { kvResultMembers, preconditionMembers, RidingKvOperation } from './kv.ts';
import { ackMembers } from './messages.ts';
import { answers, operation } from './operation.ts';
import {
  Count,
  Flag,
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
import { TimerOperation, timerResultMembers } from './timers.ts';

const pushed = {
  queue: RequiredName,
  partition: Maybe(Type.String({ ...Name, default: DEFAULT_PARTITION })),
  payload: Type.Optional(Type.Unknown({ description: 'Any JSON; {} without one.' })),
  data: Type.Optional(Type.Unknown({ description: 'Another word for payload.' })),
  transactionId: Maybe(TransactionId),
  traceId: Type.Optional(Type.Unknown({ description: 'Kept when it is a UUID.' })),
};
const Operations = Type.Array(
  Type.Unsafe<unknown>({
    oneOf: [
      Type.Object(
        { type: Type.Literal('push'), items: Type.Array(Type.Object(pushed, { title: 'TransactionItem' })) },
        { title: 'TransactionPushes' },
      ),
      Type.Object(
        { type: Type.Literal('push'), ...pushed, items: Type.Optional(Type.Null()) },
        { title: 'TransactionPush' },
      ),
      Type.Object({ type: Type.Literal('ack'), ...ackMembers }, { title: 'TransactionAck' }),
    ],
  }),
);

const Result = Type.Object(
  {
    index: Type.Integer({ description: 'Over all of operations, then kv, then timers.' }),
    type: Word(['push', 'ack', 'kv', 'timer']),
    opIndex: Type.Optional(Type.Integer({ description: 'Of a kv or timer: in its own array.' })),
    success: Type.Optional(Flag),
    transactionId: Type.Optional(Text),
    messageId: Type.Optional(Nullable(Uuid)),
    queueName: Type.Optional(Text),
    partitionId: Type.Optional(PartitionId),
    offset: Type.Optional(Count),
    duplicate: Type.Optional(Type.Boolean({ description: 'An earlier push of this call has the same id.' })),
    error: Type.Optional(Nullable(Text)),
    dlq: Type.Optional(Flag),
    noop: Type.Optional(Flag),
    leaseReleased: Type.Optional(Flag),
    conflated: Type.Optional(Count),
    dropped: Type.Optional(Flag),
    ...kvResultMembers,
    op: Type.Optional(kvResultMembers.op),
    ok: Type.Optional(timerResultMembers.ok),
    status: Type.Optional(timerResultMembers.status),
    queue: Type.Optional(timerResultMembers.queue),
    timerKey: Type.Optional(timerResultMembers.timerKey),
    txn: Type.Optional(timerResultMembers.txn),
    deliverAt: Type.Optional(timerResultMembers.deliverAt),
  },
  { title: 'TransactionResult' },
);

const { reason: _reason, failedIndex: _failedIndex, ...precondition } = preconditionMembers;
const RolledBack = Type.Object(
  {
    transactionId: Uuid,
    success: Type.Literal(false),
    reason: Type.String({ description: 'A stable word.' }),
    error: Text,
    code: Type.Optional(Text),
    message: Type.Optional(Text),
    field: Type.Optional(Text),
    failedIndex: Type.Optional(Count),
    ok: Type.Optional(precondition.ok),
    kvReason: Type.Optional(precondition.kvReason),
    version: Type.Optional(precondition.version),
    value: precondition.value,
    results: Type.Array(Type.Unknown(), { maxItems: 0 }),
  },
  { title: 'TransactionRolledBack' },
);

export const transaction = operation({
  operationId: 'transaction',
  tag: 'Transactions',
  summary: 'Push, acknowledge, write keys and set timers, all or nothing',
  about: `Up to ${RIDING_OPERATIONS_MAX} KV operations and ${TIMER_OPERATIONS_MAX} timer operations. Without an answer repeat it with the same transaction ids: it happens once.`,
  readBody: Type.Object(
    {
      operations: Operations,
      requiredLeases: Maybe(Type.Array(Text, { description: 'Leases of the acks that name none.' })),
      kv: Maybe(Type.Array(RidingKvOperation, { maxItems: RIDING_OPERATIONS_MAX })),
      timers: Maybe(Type.Array(TimerOperation, { maxItems: TIMER_OPERATIONS_MAX })),
    },
    { title: 'Transaction' },
  ),
  bodyExample: {
    operations: [
      {
        type: 'ack',
        transactionId: 'order-1',
        partitionId: '42',
        leaseId: '01a2c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a12',
      },
      {
        type: 'push',
        items: [
          {
            queue: 'invoices',
            partition: 'customer-7',
            transactionId: 'invoice-1',
            payload: { for: 'order-1' },
          },
        ],
      },
    ],
    kv: [{ op: 'incr', ns: 'billing', key: 'invoices', delta: 1, forever: true }],
  },
  answers: {
    200: answers(
      'What was decided.',
      Type.Union([
        Type.Object(
          { transactionId: Uuid, success: Type.Literal(true), results: Type.Array(Result) },
          { title: 'TransactionDone' },
        ),
        RolledBack,
      ]),
    ),
  },
  refuses: [
    'bad_body',
    'overloaded',
    'payload_too_large',
    'kv_quota_exceeded',
    'feature_gated',
    'kv_reserved_namespace',
    'timers_quota_exceeded',
  ],
  refusal: RolledBack,
});
