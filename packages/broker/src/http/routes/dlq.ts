/** Dead letters: /api/v1/dlq, and what is done to them by the address of their message. */
import type { DeadLetter, DeadLettersFace, Replayed, ReplayResult } from '../../engine/dlq/face.ts';
import { EngineError } from '../../engine/errors.ts';
import type { TenantId } from '../../engine/types.ts';
import { formatInstant } from '../../log/instants.ts';
import {
  DEAD_LETTERS_PAGE,
  deleteMessage,
  listDeadLetters,
  oneDeadLetter,
  purgeDeadLetters,
  replayDeadLetter,
  retryMessage,
} from '../api/dlq.ts';
import type { App } from '../app.ts';
import { Fault, faultOf } from '../errors.ts';
import { queryName } from '../names.ts';
import { queryOf } from '../query.ts';
import { type SplicedObject, sendSpliced, sendSplicedList } from '../raw_json.ts';

const NOT_FOUND = 'There is no dead letter of that message';
const lookup = { failed: (detail: string) => `dlq lookup failed: ${detail}` };

export function dlqRoutes(app: App, letters: DeadLettersFace): void {
  app.get(
    '/api/v1/dlq',
    { config: { level: 'read-only' }, schema: listDeadLetters },
    async (request, reply) => {
      const query = queryOf(request);
      const { limit, skip } = query.page(DEAD_LETTERS_PAGE);
      const { letters: rows, total } = await letters.list(request.identity.tenant, {
        queue: queryName(query, 'queue'),
        partition: queryName(query, 'partition'),
        group: queryName(query, 'consumerGroup'),
        fromMicros: query.instant('from'),
        toMicros: query.instant('to'),
        limit,
        skip,
        payloads: query.boolean('data') ?? true,
      });
      return sendSplicedList(reply, 'messages', rows.map(renderLetter), {
        pagination: { limit, offset: skip },
        total,
      });
    },
  );

  const one = { config: { level: 'read-only' }, schema: oneDeadLetter } as const;
  app.get('/api/v1/dlq/:id', one, async (request, reply) => {
    const letter = await letters.get(request.identity.tenant, request.params.id);
    if (letter === null)
      throw new Fault('message_not_found', { message: 'There is no dead letter of that id' });
    return sendSpliced(reply, renderLetter(letter));
  });

  app.delete('/api/v1/dlq', { config: { level: 'admin' }, schema: purgeDeadLetters }, async (request) => {
    const query = queryOf(request);
    const queue = queryName(query, 'queue');
    if (queue === null) throw new Fault('bad_query', { message: 'queue is required', field: 'queue' });
    const consumerGroup = queryName(query, 'consumerGroup');
    const deleted = await letters.purge(request.identity.tenant, queue, consumerGroup);
    return { success: true, deleted, queue, consumerGroup };
  });

  app.post(
    '/api/v1/dlq/:id/replay',
    { config: { level: 'read-write' }, schema: replayDeadLetter },
    async (request) => {
      const { id } = request.params;
      const { queue, partition } = request.body;
      const to = { queue: queue?.trim() ?? null, partition: partition?.trim() ?? null };
      const gone = { success: false, result: 'gone', dlqId: id, message: NOT_FOUND };
      return render(await replay(letters, request.identity.tenant, id, to), gone);
    },
  );

  app.delete(
    '/api/v1/messages/:partitionId/:transactionId',
    { config: { level: 'read-write' }, schema: deleteMessage },
    async (request) => {
      const { partitionId, transactionId } = request.params;
      const count = await letters.deleteMessage(request.identity.tenant, partitionId, transactionId);
      if (count === 0) {
        const extra = { success: false, partitionId, transactionId, message: NOT_FOUND };
        throw new Fault('message_not_found', { extra });
      }
      return { success: true, partitionId, transactionId, message: 'Message deleted successfully' };
    },
  );

  app.post(
    '/api/v1/messages/:partitionId/:transactionId/retry',
    {
      config: { level: 'read-write', lenientBody: true, wording: lookup },
      schema: retryMessage,
    },
    async (request) => {
      const { partitionId, transactionId } = request.params;
      const { tenant } = request.identity;
      const gone = { success: false, partitionId, transactionId, message: NOT_FOUND };
      const id = await letters.find(tenant, partitionId, transactionId);
      if (id === null) throw new Fault('message_not_found', { extra: gone });
      return render(await replay(letters, tenant, id, { queue: null, partition: null }), gone);
    },
  );
}

/** A failure tells whether the dead letter is still there; null: nobody knows. */
async function replay(
  letters: DeadLettersFace,
  tenant: TenantId,
  id: string,
  to: { queue: string | null; partition: string | null },
): Promise<ReplayResult> {
  try {
    return await letters.replay({ tenant, id, ...to });
  } catch (error) {
    const known = error instanceof EngineError && error.kind !== 'in_doubt';
    throw faultOf(error).with({ success: false, dlqRowRemoved: known ? false : null });
  }
}

function render(answer: ReplayResult, gone: Record<string, unknown>) {
  switch (answer.result) {
    case 'gone':
      throw new Fault('message_not_found', { extra: gone });
    case 'maintenance':
      throw new Fault('maintenance', {
        extra: { success: false, result: 'maintenance', dlqRowRemoved: false },
      });
    default:
      return renderReplayed(answer.result, answer);
  }
}

function renderReplayed(result: 'moved' | 'duplicate', answer: Replayed) {
  const { queue, partition, group, dlqId, originalTransactionId, messageId, transactionId, offset } = answer;
  return {
    success: true,
    result,
    queue,
    partition,
    consumerGroup: group,
    dlqId,
    originalTransactionId,
    replayedAs: {
      index: 0,
      message_id: messageId,
      transaction_id: transactionId,
      queueName: queue,
      status: result === 'moved' ? 'queued' : 'duplicate',
      offset,
    },
    dlqRowRemoved: result === 'moved',
  };
}

function renderLetter(letter: DeadLetter): SplicedObject {
  const failedAt = formatInstant(letter.failedAtMicros);
  return {
    plain: {
      id: letter.id,
      transactionId: letter.transactionId,
      partitionId: letter.partitionId,
      queue: letter.queue,
      partition: letter.partition,
      consumerGroup: letter.group,
      errorMessage: letter.error,
      retryCount: letter.retryCount,
      producerSub: null,
      createdAt: failedAt,
      failedAt,
      ...(letter.opened ? { isEncrypted: true } : {}),
      ...(letter.omitted ? { dataOmitted: true } : {}),
    },
    spliced: { data: letter.payload },
  };
}
