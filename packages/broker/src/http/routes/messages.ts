/** GET /api/v1/messages and one message in detail. */
import { EngineError } from '../../engine/errors.ts';
import type {
  ConsumptionMode,
  ListedMessage,
  MessageDetail,
  MessageStatus,
  MessagesFace,
} from '../../engine/reads/face.ts';
import { formatInstant, formatInstantOrNull } from '../../log/instants.ts';
import { transactionIdFault } from '../../log/names.ts';
import { FOUND, findMessages, inspectMessage, listMessages, MESSAGES_PAGE, STATUSES } from '../api/lookup.ts';
import type { App } from '../app.ts';
import { badQuery, Fault } from '../errors.ts';
import { queryName } from '../names.ts';
import { type Query, queryOf } from '../query.ts';
import { type SplicedObject, sendSpliced, sendSplicedList } from '../raw_json.ts';

const MINUTE_MICROS = 60_000_000;

export function messageRoutes(app: App, messages: MessagesFace): void {
  app.get(
    '/api/v1/messages',
    { config: { level: 'read-only' }, schema: listMessages },
    async (request, reply) => {
      const query = queryOf(request);
      const { limit, skip } = query.page(MESSAGES_PAGE);
      const to = query.instant('to');
      const { messages: rows, mode } = await messages.list(request.identity.tenant, {
        queue: queryName(query, 'queue'),
        partition: queryName(query, 'partition'),
        namespace: queryName(query, 'namespace') ?? queryName(query, 'ns'),
        task: queryName(query, 'task'),
        status: readStatus(query),
        fromMicros: query.instant('from'),
        toMicros: to === null ? null : (Math.floor(to / MINUTE_MICROS) + 1) * MINUTE_MICROS,
        limit,
        skip,
      });
      return sendSplicedList(reply, 'messages', rows.map(renderListed), {
        mode: renderMode(mode),
        total: rows.length,
      });
    },
  );

  app.get(
    '/api/v1/messages/find',
    { config: { level: 'read-only' }, schema: findMessages },
    async (request) => {
      const query = queryOf(request);
      const transactionId = query.text('transactionId') ?? '';
      const fault = transactionIdFault(transactionId, 'transactionId');
      if (fault !== null) throw badQuery('transactionId', fault);
      const limit = query.limit(FOUND);
      const queue = queryName(query, 'queue');
      const found = await messages.find(request.identity.tenant, queue, transactionId, limit);
      return {
        messages: found.map(({ atMicros, dead, ...place }) => ({
          transactionId,
          ...place,
          createdAt: formatInstant(atMicros),
          deadLetter: dead,
        })),
      };
    },
  );

  app.get(
    '/api/v1/messages/:partitionId/:transactionId',
    { config: { level: 'read-only' }, schema: inspectMessage },
    async (request, reply) => {
      const { partitionId, transactionId } = request.params;
      const found = await get(messages, request.identity.tenant, partitionId, transactionId);
      if (found === null) throw new Fault('message_not_found');
      return sendSpliced(reply, renderDetail(found));
    },
  );
}

async function get(
  messages: MessagesFace,
  tenant: string,
  partitionId: string,
  transactionId: string,
): Promise<MessageDetail | null> {
  try {
    return await messages.get(tenant, partitionId, transactionId);
  } catch (error) {
    if (!(error instanceof EngineError) || error.code !== 'corrupt_segment') throw error;
    throw new Fault('frame_decode_failed', { cause: error });
  }
}

function readStatus(query: Query): MessageStatus | null {
  const text = query.text('status');
  if (text === null || text === '') return null;
  const status = STATUSES.find((known) => known === text);
  if (status === undefined) throw badQuery('status', `must be one of ${STATUSES.join(', ')}`);
  return status;
}

function renderMode({ hasQueueMode, namedGroups }: ConsumptionMode) {
  const type = namedGroups === 0 ? (hasQueueMode ? 'queue' : 'none') : hasQueueMode ? 'hybrid' : 'bus';
  return { hasQueueMode, busGroupsCount: namedGroups, type };
}

function renderListed(message: ListedMessage): SplicedObject {
  const { content, queue, partition } = message;
  const payload = content?.payload ?? null;
  return {
    plain: {
      id: content?.id ?? null,
      transactionId: content?.transactionId ?? null,
      txnHash: content?.transactionHash.toString('hex') ?? null,
      partitionId: message.partitionId,
      queuePath: `${queue}/${partition}`,
      queue,
      partition,
      namespace: message.namespace,
      task: message.task,
      status: message.status,
      queueStatus: message.queueStatus,
      busStatus: { consumedBy: message.consumedBy, totalGroups: message.totalGroups },
      traceId: content?.traceId ?? null,
      producerSub: content?.producerSub ?? null,
      payloadAvailable: payload !== null,
      segment: { seq: message.segmentBase, frameIdx: message.offset - message.segmentBase },
      offset: message.offset,
      createdAt: formatInstant(message.createdAtMicros),
      leaseExpiresAt: formatInstantOrNull(message.leaseExpiresAtMicros),
      isEncrypted: content?.sealed ?? false,
      ...(content === null ? { error: 'frame decode failed' } : {}),
    },
    spliced: { data: payload, payload },
  };
}

function renderDetail(message: MessageDetail): SplicedObject {
  const { queue, partition, namespace, task, options } = message;
  return {
    plain: {
      id: message.id,
      transactionId: message.transactionId,
      traceId: message.traceId,
      producerSub: message.producerSub,
      createdAt: formatInstant(message.createdAtMicros),
      offset: message.offset,
      partitionId: message.partitionId,
      partition,
      isEncrypted: message.sealed,
      queue,
      queuePath: `${queue}/${partition}`,
      namespace,
      task,
      status: message.status,
      errorMessage: message.error,
      retryCount: message.retryCount,
      leaseExpiresAt: formatInstantOrNull(message.leaseExpiresAtMicros),
      consumerGroups: message.groups.map(({ group, status, leaseExpiresAtMicros }) => ({
        name: group,
        group,
        consumed: status === 'completed' || status === 'dead_letter',
        status,
        leaseExpiresAt: formatInstantOrNull(leaseExpiresAtMicros),
      })),
      mode: renderMode(message.mode),
      queueConfig: options,
    },
    spliced: { data: message.payload, payload: message.payload },
  };
}
