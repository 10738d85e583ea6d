/** Dead letters. */
import { Type } from 'typebox';
import { NAME_CHARACTERS_MAX, nameFault } from '../../log/names.ts';
import { Address } from './lookup.ts';
import { answers, operation } from './operation.ts';
import {
  Count,
  Flag,
  Instant,
  Json,
  Maybe,
  NameFilter,
  Nullable,
  Pagination,
  PartitionId,
  pageParameters,
  RequiredName,
  spanParameters,
  Text,
  Uuid,
  Word,
} from './schemas.ts';

export const DEAD_LETTERS_PAGE = { limit: 100, most: 1_000 };

const DeadLetter = Type.Object(
  {
    id: Uuid,
    transactionId: Text,
    partitionId: PartitionId,
    queue: Text,
    partition: Text,
    consumerGroup: Text,
    errorMessage: Nullable(Text),
    retryCount: Count,
    producerSub: Type.Null(),
    createdAt: Instant,
    failedAt: Instant,
    isEncrypted: Type.Optional(Flag),
    dataOmitted: Type.Optional(
      Type.Boolean({ description: 'It had no room in this answer, or was not asked for.' }),
    ),
    data: Json,
  },
  { title: 'DeadLetter' },
);

export const listDeadLetters = operation({
  operationId: 'listDeadLetters',
  tag: 'Dead letters',
  summary: 'Dead letters, the newest first',
  parameters: Type.Object({
    queue: NameFilter,
    partition: NameFilter,
    consumerGroup: NameFilter,
    ...spanParameters,
    data: Type.Optional(Type.Boolean({ default: true, description: 'false: without the payloads.' })),
    ...pageParameters(DEAD_LETTERS_PAGE),
  }),
  answers: {
    200: answers(
      '`total` is how many there are in all.',
      Type.Object(
        {
          messages: Type.Array(DeadLetter),
          pagination: Pagination,
          total: Count,
        },
        { title: 'DeadLetterPage' },
      ),
    ),
  },
  refuses: ['bad_query'],
});

export const oneDeadLetter = operation({
  operationId: 'deadLetter',
  tag: 'Dead letters',
  summary: 'One dead letter',
  params: Type.Object({ id: Type.String() }),
  answers: { 200: answers('With its payload.', DeadLetter) },
  refuses: ['message_not_found'],
});

export const purgeDeadLetters = operation({
  operationId: 'purgeDeadLetters',
  tag: 'Dead letters',
  summary: 'Remove the dead letters of a queue',
  parameters: Type.Object({
    queue: RequiredName,
    consumerGroup: NameFilter,
  }),
  answers: {
    200: answers(
      'How many were removed.',
      Type.Object({ success: Flag, deleted: Count, queue: Text, consumerGroup: Nullable(Text) }),
    ),
  },
  refuses: ['bad_query'],
});

const INNER = '\\p{Cc}\\p{Cs}';

/** A name between blanks, which are cut off. */
const Destination = Type.String({
  pattern: `^\\s*[^\\s${INNER}]([^${INNER}]{0,${NAME_CHARACTERS_MAX - 2}}[^\\s${INNER}])?\\s*$`,
  refusal: (value: unknown, field: string) => {
    if (typeof value === 'string' && value.trim() === '') return `${field} must not be blank`;
    return nameFault(typeof value === 'string' ? value.trim() : value, field) ?? `${field} is not acceptable`;
  },
});

const Replayed = Type.Object(
  {
    success: Flag,
    result: Word(['moved', 'duplicate'], {
      description: 'duplicate: it was pushed again before, and is kept.',
    }),
    queue: Text,
    partition: Text,
    consumerGroup: Text,
    dlqId: Uuid,
    originalTransactionId: Text,
    replayedAs: Type.Object({
      index: Count,
      message_id: Uuid,
      transaction_id: Text,
      queueName: Text,
      status: Word(['queued', 'duplicate']),
      offset: Nullable(Count),
    }),
    dlqRowRemoved: Flag,
  },
  { title: 'Replayed' },
);

export const replayDeadLetter = operation({
  operationId: 'replayDeadLetter',
  tag: 'Dead letters',
  summary: 'Push a dead letter again',
  about: 'To the end of its own partition, or of the one that is named. All groups of the queue get it.',
  params: Type.Object({ id: Type.String() }),
  body: Type.Object({ queue: Maybe(Destination), partition: Maybe(Destination) }, { title: 'ReplayTo' }),
  noBodyIsEmpty: true,
  bodyExample: { queue: 'orders-again' },
  answers: { 200: answers('Pushed again.', Replayed) },
  refuses: ['bad_body', 'message_not_found', 'maintenance'],
});

export const retryMessage = operation({
  operationId: 'retryMessage',
  tag: 'Dead letters',
  summary: 'Push the newest dead letter of a message again',
  params: Address,
  answers: { 200: answers('Pushed again.', Replayed) },
  refuses: ['message_not_found', 'maintenance'],
});

export const deleteMessage = operation({
  operationId: 'deleteMessage',
  tag: 'Dead letters',
  summary: 'Remove the dead letters of a message',
  about: 'Of all groups. The log itself is never edited.',
  params: Address,
  answers: {
    200: answers(
      'Removed.',
      Type.Object({ success: Flag, partitionId: PartitionId, transactionId: Text, message: Text }),
    ),
  },
  refuses: ['message_not_found'],
});
