/** Reads by offset: POST /api/v1/fetch, /api/v1/fetch/offsets, /api/v1/partitions/changed. */
import type { ServerResponse } from 'node:http';
import type {
  ChangedRequest,
  FetchedEntry,
  FetchRequest,
  OffsetsRequest,
  RecordsFace,
} from '../../engine/reads/face.ts';
import { DEFAULT_PARTITION } from '../../engine/types.ts';
import { nameFault, requiredNameFault } from '../../log/names.ts';
import type { App } from '../app.ts';
import { badBody } from '../errors.ts';
import { JsonBytes } from '../hot/json_bytes.ts';
import { formatMicros, formatMicrosOrNull, parseInstant, storableInstant } from '../instants.ts';
import { sendBytes } from '../raw_json.ts';

/** Who tells that a waiting client has gone. */
export interface Waits {
  wait(response: ServerResponse): AbortController;
  settled(response: ServerResponse, controller: AbortController): void;
}

const ENTRIES_MAX = 1_024;
const CHANGED_ENTRIES_MAX = 64;
const ENTRY_BYTES = 1024 * 1024;
const ENTRY_BYTES_MAX = 8 * 1024 * 1024;
const WAIT_MS_MAX = 30_000;
const PAGE = 1_000;
/** A thousand entries with the longest names. */
const BODY_BYTES_MAX = 8 * 1024 * 1024;
const config = { level: 'read-only', bodyBytesMax: BODY_BYTES_MAX } as const;

type Fields = Record<string, unknown>;

export function fetchRoutes(app: App, records: RecordsFace, waits: Waits): void {
  app.post('/api/v1/fetch', { config }, async (request, reply) => {
    const wish = readFetch(request.identity.tenant, request.body);
    if (wish.maxWaitMs === 0) return sendBytes(reply, renderFetched(await records.fetch(wish)));
    const wait = waits.wait(reply.raw);
    try {
      return sendBytes(reply, renderFetched(await records.fetch({ ...wish, signal: wait.signal })));
    } finally {
      waits.settled(reply.raw, wait);
    }
  });

  app.post('/api/v1/fetch/offsets', { config }, async (request) => {
    const found = await records.offsets(readOffsets(request.identity.tenant, request.body));
    return {
      entries: found.map(({ queue, partition, offset, atMicros, highWatermark, logStart, error }) => ({
        queue,
        partition,
        offset,
        ts: formatMicrosOrNull(atMicros),
        highWatermark,
        logStartOffset: logStart,
        ...(error === null ? {} : { error }),
      })),
    };
  });

  app.post('/api/v1/partitions/changed', { config }, async (request) => {
    const answer = await records.changed(readChanged(request.identity.tenant, request.body));
    return {
      safeTime: formatMicros(answer.safeTimeMicros),
      safeTimeDegraded: answer.degraded,
      entries: answer.entries.map(({ queue, partitions, next, error }) => {
        if (error !== null) return { queue, error };
        const page = partitions.map(({ lastWriteAtMicros, ...partition }) => ({
          ...partition,
          lastWriteAt: formatMicros(lastWriteAtMicros),
        }));
        return { queue, partitions: page, next };
      }),
    };
  });
}

function readFetch(tenant: string, body: unknown): FetchRequest {
  const fields = objectOf(body, '');
  return {
    tenant,
    entries: entriesOf(fields, ENTRIES_MAX).map((entry, i) => {
      const at = `entries[${i}].`;
      const offset = entry.offset;
      if (!Number.isSafeInteger(offset) || (offset as number) < 0) {
        throw badBody(`${at}offset must be an integer, at least 0`, `${at}offset`);
      }
      return {
        ...laneOf(entry, at),
        offset: offset as number,
        maxBytes: clamped(entry.maxBytes, `${at}maxBytes`, ENTRY_BYTES, 1, ENTRY_BYTES_MAX),
      };
    }),
    maxWaitMs: clamped(fields.maxWaitMs, 'maxWaitMs', 0, 0, WAIT_MS_MAX),
    minBytes: clamped(fields.minBytes, 'minBytes', 1, 1, Number.MAX_SAFE_INTEGER),
    signal: null,
  };
}

function readOffsets(tenant: string, body: unknown): OffsetsRequest {
  return {
    tenant,
    entries: entriesOf(objectOf(body, ''), ENTRIES_MAX).map((entry, i) => {
      const at = `entries[${i}].`;
      const atMicros = instantOf(entry.timestamp, `${at}timestamp`);
      if (atMicros === null) throw badBody(`${at}timestamp is missing`, `${at}timestamp`);
      return { ...laneOf(entry, at), atMicros };
    }),
  };
}

function readChanged(tenant: string, body: unknown): ChangedRequest {
  return {
    tenant,
    entries: entriesOf(objectOf(body, ''), CHANGED_ENTRIES_MAX).map((entry, i) => {
      const at = `entries[${i}].`;
      const after = entry.after ?? null;
      if (after !== null && typeof after !== 'string')
        throw badBody(`${at}after must be a string`, `${at}after`);
      return {
        queue: queueOf(entry.queue, `${at}queue`),
        sinceMicros: instantOf(entry.since, `${at}since`),
        after,
        limit: clamped(entry.limit, `${at}limit`, PAGE, 1, PAGE),
      };
    }),
  };
}

function objectOf(value: unknown, field: string): Fields {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields;
  throw badBody(`${field === '' ? 'the body' : field} must be an object`, field);
}

function entriesOf(fields: Fields, max: number): Fields[] {
  const { entries } = fields;
  if (!Array.isArray(entries)) throw badBody('entries must be an array', 'entries');
  if (entries.length > max) throw badBody(`entries must be at most ${max}`, 'entries');
  return entries.map((entry, i) => objectOf(entry, `entries[${i}]`));
}

function laneOf(entry: Fields, at: string): { queue: string; partition: string } {
  const given = entry.partition ?? DEFAULT_PARTITION;
  const partition = typeof given === 'number' ? String(given) : given;
  const fault = nameFault(partition, `${at}partition`);
  if (fault !== null) throw badBody(fault, `${at}partition`);
  return { queue: queueOf(entry.queue, `${at}queue`), partition: partition as string };
}

function queueOf(queue: unknown, field: string): string {
  const fault = requiredNameFault(queue, field);
  if (fault !== null) throw badBody(fault, field);
  return queue as string;
}

/** Held between `min` and `max`. */
function clamped(value: unknown, field: string, absent: number, min: number, max: number): number {
  if (value === undefined || value === null) return absent;
  if (typeof value !== 'number' || !Number.isInteger(value))
    throw badBody(`${field} must be an integer`, field);
  return Math.min(max, Math.max(min, value));
}

function instantOf(value: unknown, field: string): number | null {
  if (value === undefined || value === null) return null;
  const micros = typeof value === 'string' ? parseInstant(value) : null;
  if (micros === null) throw badBody(`${field} must be an ISO 8601 instant`, field);
  return storableInstant(micros);
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
      out.text(`,"ts":"${formatMicros(createdAtMicros)}"}`);
      separator = ',';
    }
    out.text(`],"highWatermark":${highWatermark},"logStartOffset":${logStart}`);
    out.text(error === null ? '}' : `,"error":"${error}"}`);
  }
  out.text(']}');
  return out;
}
