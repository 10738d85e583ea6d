/** Reads by offset: POST /api/v1/fetch, /api/v1/fetch/offsets, /api/v1/partitions/changed. */
import type { ServerResponse } from 'node:http';
import type { Type } from 'typebox';
import type {
  ChangedRequest,
  FetchedEntry,
  FetchRequest,
  OffsetsRequest,
  RecordsFace,
} from '../../engine/reads/face.ts';
import { DEFAULT_PARTITION } from '../../engine/types.ts';
import { formatInstant, formatInstantOrNull } from '../../log/instants.ts';
import { changedPartitions, FETCH, fetchOffsets, fetchRecords } from '../api/records.ts';
import type { App } from '../app.ts';
import { JsonBytes } from '../hot/json_bytes.ts';
import { sendBytes } from '../raw_json.ts';
import { microsOf } from '../validation.ts';

/** Who tells that a waiting client has gone. */
export interface Waits {
  wait(response: ServerResponse): AbortController;
  settled(response: ServerResponse, controller: AbortController): void;
}

/** A thousand entries with the longest names. */
const BODY_BYTES_MAX = 8 * 1024 * 1024;
const config = { level: 'read-only', bodyBytesMax: BODY_BYTES_MAX } as const;

export function fetchRoutes(app: App, records: RecordsFace, waits: Waits): void {
  app.post('/api/v1/fetch', { config, schema: fetchRecords }, async (request, reply) => {
    const wish = readFetch(request.identity.tenant, request.body);
    if (wish.maxWaitMs === 0) return sendBytes(reply, renderFetched(await records.fetch(wish)));
    const wait = waits.wait(reply.raw);
    try {
      return sendBytes(reply, renderFetched(await records.fetch({ ...wish, signal: wait.signal })));
    } finally {
      waits.settled(reply.raw, wait);
    }
  });

  app.post('/api/v1/fetch/offsets', { config, schema: fetchOffsets }, async (request) => {
    const found = await records.offsets(readOffsets(request.identity.tenant, request.body));
    return {
      entries: found.map(({ queue, partition, offset, atMicros, highWatermark, logStart, error }) => ({
        queue,
        partition,
        offset,
        ts: formatInstantOrNull(atMicros),
        highWatermark,
        logStartOffset: logStart,
        ...(error === null ? {} : { error }),
      })),
    };
  });

  app.post('/api/v1/partitions/changed', { config, schema: changedPartitions }, async (request) => {
    const answer = await records.changed(readChanged(request.identity.tenant, request.body));
    return {
      safeTime: formatInstant(answer.safeTimeMicros),
      safeTimeDegraded: answer.degraded,
      entries: answer.entries.map(({ queue, partitions, next, error }) => {
        if (error !== null) return { queue, error };
        const page = partitions.map(({ lastWriteAtMicros, ...partition }) => ({
          ...partition,
          lastWriteAt: formatInstant(lastWriteAtMicros),
        }));
        return { queue, partitions: page, next };
      }),
    };
  });
}

function readFetch(tenant: string, body: Type.Static<typeof fetchRecords.body>): FetchRequest {
  return {
    tenant,
    entries: body.entries.map((entry) => ({
      ...laneOf(entry),
      offset: entry.offset,
      maxBytes: held(entry.maxBytes ?? FETCH.entryBytes, 1, FETCH.entryBytesMax),
    })),
    maxWaitMs: held(body.maxWaitMs ?? 0, 0, FETCH.waitMsMax),
    minBytes: held(body.minBytes ?? 1, 1, Number.MAX_SAFE_INTEGER),
    signal: null,
  };
}

function readOffsets(tenant: string, body: Type.Static<typeof fetchOffsets.body>): OffsetsRequest {
  return {
    tenant,
    entries: body.entries.map((entry) => ({ ...laneOf(entry), atMicros: microsOf(entry.timestamp) })),
  };
}

function readChanged(tenant: string, body: Type.Static<typeof changedPartitions.body>): ChangedRequest {
  return {
    tenant,
    entries: body.entries.map(({ queue, since, after, limit }) => ({
      queue,
      sinceMicros: since == null ? null : microsOf(since),
      after: after ?? null,
      limit: held(limit ?? FETCH.page, 1, FETCH.page),
    })),
  };
}

function laneOf(entry: { queue: string; partition?: string | number | null }): {
  queue: string;
  partition: string;
} {
  return { queue: entry.queue, partition: String(entry.partition ?? DEFAULT_PARTITION) };
}

function held(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}

/** Payloads are spliced in byte for byte. */
function renderFetched(entries: readonly FetchedEntry[]): JsonBytes {
  const out = new JsonBytes(16 * 1024);
  out.text('{"entries":[');
  let before = '';
  for (const { queue, partition, records, highWatermark, logStart, error } of entries) {
    const head = JSON.stringify({ queue, partition });
    out.text(`${before}${head.slice(0, -1)},"records":[`);
    before = ',';
    let separator = '';
    for (const { offset, transactionId, payload, createdAtMicros } of records) {
      const id = JSON.stringify(transactionId);
      out.text(`${separator}{"offset":${offset},"transactionId":${id},"payload":`);
      out.bytes(payload);
      out.text(`,"ts":"${formatInstant(createdAtMicros)}"}`);
      separator = ',';
    }
    out.text(`],"highWatermark":${highWatermark},"logStartOffset":${logStart}`);
    out.text(error === null ? '}' : `,"error":"${error}"}`);
  }
  out.text(']}');
  return out;
}
