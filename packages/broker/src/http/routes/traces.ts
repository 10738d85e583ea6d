/** /api/v1/traces: notes that consumers attach to messages. */
import { EngineError } from '../../engine/errors.ts';
import type { NamedTrace, Trace, TraceNote, TracesFace } from '../../engine/traces/face.ts';
import { QUEUE_MODE_GROUP, type TenantId } from '../../engine/types.ts';
import { formatInstant } from '../../log/instants.ts';
import { knownKeys } from '../../log/json/reader.ts';
import { valueSpans } from '../../log/json/spans.ts';
import {
  TRACE_NAMES_PAGE,
  TRACES_PAGE,
  traceNames,
  tracesByName,
  tracesOfMessage,
  writeTrace,
} from '../api/lookup.ts';
import type { App } from '../app.ts';
import { Fault } from '../errors.ts';
import { MANAGEMENT_BODY_BYTES_MAX, parseJsonBody } from '../json_body.ts';
import { queryOf } from '../query.ts';
import { withRawBody } from '../raw_body.ts';
import { type SplicedObject, sendSplicedList } from '../raw_json.ts';

const read = { level: 'read-only' } as const;
const DATA_KEY = knownKeys('data');
const failed = (detail: string) => `trace failed: ${detail}`;

export function traceRoutes(app: App, traces: TracesFace): void {
  app.post(
    '/api/v1/traces',
    {
      schema: writeTrace,
      config: {
        level: 'read-write',
        wording: { failed },
        rawBody: true,
        bodyBytesMax: MANAGEMENT_BODY_BYTES_MAX,
      },
    },
    (request, reply) =>
      withRawBody(request, async (bytes) => {
        const traceId = await write(traces, readNote(request.identity.tenant, bytes));
        if (traceId === null) throw new Fault('message_not_found', { extra: { success: false } });
        reply.code(201);
        return { success: true, traceId };
      }),
  );

  app.get('/api/v1/traces/names', { config: read, schema: traceNames }, async (request) => {
    const { limit, skip } = queryOf(request).page(TRACE_NAMES_PAGE);
    const { names, total } = await traces.names(request.identity.tenant, limit, skip);
    return {
      trace_names: names.map((each) => ({
        trace_name: each.name,
        trace_count: each.traces,
        message_count: each.messages,
        last_seen: formatInstant(each.lastSeenMicros),
      })),
      total,
      pagination: { limit, offset: skip },
    };
  });

  app.get('/api/v1/traces/by-name/:name', { config: read, schema: tracesByName }, async (request, reply) => {
    const { limit, skip } = queryOf(request).page(TRACES_PAGE);
    const { name } = request.params;
    const { traces: rows, total } = await traces.byName(request.identity.tenant, name, limit, skip);
    const pagination = { limit, offset: skip };
    return sendSplicedList(reply, 'traces', rows.map(renderNamed), { total, pagination });
  });

  app.get(
    '/api/v1/traces/:partitionId/:transactionId',
    { config: read, schema: tracesOfMessage },
    async (request, reply) => {
      const { partitionId, transactionId } = request.params;
      const rows = await traces.ofMessage(request.identity.tenant, partitionId, transactionId);
      return sendSplicedList(reply, 'traces', rows.map(renderTrace), {});
    },
  );
}

async function write(traces: TracesFace, note: TraceNote): Promise<string | null> {
  try {
    return await traces.write(note);
  } catch (error) {
    // What cannot be an id is this route's failure and not its caller's.
    if (!(error instanceof EngineError) || error.code !== 'bad_trace') throw error;
    throw new Fault('internal', { message: failed(error.message), field: error.field, cause: error });
  }
}

/** `data` is taken as its text: read and written again, the digits of a long number would be others. */
function readNote(tenant: TenantId, bytes: Buffer): TraceNote {
  const body = parseJsonBody(bytes);
  const fields = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>;
  const { transactionId, partitionId, data, consumerGroup, eventType, traceNames } = fields;
  if (
    typeof transactionId !== 'string' ||
    transactionId === '' ||
    typeof partitionId !== 'string' ||
    partitionId === ''
  ) {
    throw new Fault('bad_body', { message: 'transactionId and partitionId are required' });
  }
  if (data === undefined || data === null) {
    throw new Fault('bad_body', { message: 'data is required', field: 'data' });
  }
  return {
    tenant,
    partitionId,
    transactionId,
    group: text(consumerGroup) ?? QUEUE_MODE_GROUP,
    eventType: text(eventType) ?? 'info',
    data: valueSpans(bytes, DATA_KEY)[0]!.toString('utf8'),
    names: [traceNames].flat().filter((name) => typeof name === 'string' && name !== '') as string[],
  };
}

/** Null: not sent, sent empty, or no text. */
function text(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

function renderTrace(trace: Trace): SplicedObject {
  return {
    plain: {
      id: trace.id,
      event_type: trace.eventType,
      consumer_group: trace.group,
      worker_id: trace.worker,
      created_at: formatInstant(trace.createdAtMicros),
      trace_names: trace.names,
      ...(trace.omitted ? { dataOmitted: true } : {}),
    },
    spliced: { data: trace.data },
  };
}

function renderNamed(trace: NamedTrace): SplicedObject {
  const { plain, spliced } = renderTrace(trace);
  return {
    plain: {
      ...plain,
      transaction_id: trace.transactionId,
      partition_id: trace.partitionId,
      queue_name: trace.queue,
      partition_name: trace.partition,
      message_payload: null,
    },
    spliced,
  };
}
