/**
 * KV: the batch route, the routes of one key, and two for people who look. The status of an answer says how the call went, never
 * how a condition went: a lost race and a missing key are 200.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { kvFault } from '../../engine/kv/faults.ts';
import type { KvFace, KvOperation } from '../../engine/kv/operations.ts';
import { kvBatch, kvDelete, kvGet, kvList, kvNamespaces, kvPut } from '../api/kv.ts';
import type { App } from '../app.ts';
import { kvMembers, preconditionMembers, renderListing } from '../kv_answer.ts';
import { readDeleteBody, readKvBody, readListBody, readPutBody } from '../kv_body.ts';
import { kvFaults } from '../kv_faults.ts';
import { turn } from '../operations_body.ts';
import { withRawBody } from '../raw_body.ts';
import { decodeSegment, splitTarget } from '../target.ts';

/** Of `/api/v1/kv/`: an empty one and three names. Counted, not measured: a letter of them may come escaped. */
const SEGMENTS_BEFORE = 4;
/** Of a body about one key, or none: twice the largest value that any setting allows. */
const ONE_BODY_BYTES_MAX = 2 * 1024 * 1024;

export function kvRoutes(app: App, broker: KvFace): void {
  const raw = { rawBody: true } as const;
  const small = { rawBody: true, bodyBytesMax: ONE_BODY_BYTES_MAX } as const;

  app.post('/api/v1/kv', { config: raw, schema: kvBatch }, (request, reply) =>
    answer(reply, () =>
      withRawBody(request, async (bytes) => {
        const operations = await readKvBody(bytes, turn);
        const { tenant } = request.identity;
        const outcome = await broker.kv({ tenant, origin: 'client', operations });
        if (!outcome.ok) {
          const { precondition } = outcome;
          return `{"ok":false,"reason":"kv_precondition","failedIndex":${precondition.failedIndex},${preconditionMembers(precondition)}}`;
        }
        const list = outcome.results.map((result, index) => `{"index":${index},${kvMembers(result)}}`);
        return `{"results":[${list.join(',')}]}`;
      }),
    ),
  );

  const one = '/api/v1/kv/:ns/*';
  app.get(one, { schema: kvGet }, (request, reply) =>
    answer(reply, () => {
      const { ns, key } = keyOf(request);
      return single(broker, request, reply, { op: 'get', ns, key });
    }),
  );
  app.put(one, { config: small, schema: kvPut }, (request, reply) =>
    answer(reply, () =>
      withRawBody(request, async (bytes) => {
        const { ns, key } = keyOf(request);
        return single(broker, request, reply, readPutBody(bytes, ns, key));
      }),
    ),
  );
  app.delete(one, { config: small, schema: kvDelete }, (request, reply) =>
    answer(reply, () =>
      withRawBody(request, async (bytes) => {
        const { ns, key } = keyOf(request);
        return single(broker, request, reply, readDeleteBody(bytes, ns, key));
      }),
    ),
  );

  app.get('/api/v1/resources/kv/namespaces', { schema: kvNamespaces }, (request, reply) =>
    answer(reply, async () => {
      refuseQuery(request);
      return JSON.stringify({ namespaces: await broker.kvNamespaces(request.identity.tenant) });
    }),
  );
  app.post('/api/v1/resources/kv/list', { config: small, schema: kvList }, (request, reply) =>
    answer(reply, () =>
      withRawBody(request, async (bytes) => {
        refuseQuery(request);
        return renderListing(await broker.kvList(readListBody(bytes, request.identity.tenant)));
      }),
    ),
  );
}

/** Sends the JSON text that `work` makes; what it throws is worded as KV words it. */
async function answer(reply: FastifyReply, work: () => Promise<string>): Promise<FastifyReply> {
  try {
    return reply.type('application/json').send(await work());
  } catch (error) {
    throw kvFaults.of(error);
  }
}

async function single(
  broker: KvFace,
  request: FastifyRequest,
  reply: FastifyReply,
  operation: KvOperation,
): Promise<string> {
  const { tenant } = request.identity;
  const outcome = await broker.kv({ tenant, origin: 'client', operations: [operation] });
  // No operation of a path route is `required`.
  if (!outcome.ok) throw kvFault('kv_bad_body', 'a condition was lost');
  const result = outcome.results[0]!;
  if (result.op === 'get' && result.entry !== null) reply.header('ETag', `"${result.entry.version}"`);
  return `{"index":0,${kvMembers(result)}}`;
}

/** Read off the target as it was sent: an escaped slash belongs to the key as a plain one does. */
function keyOf(request: FastifyRequest): { ns: string; key: string } {
  refuseQuery(request);
  const [ns = '', ...key] = splitTarget(request.raw.url!).path.split('/').slice(SEGMENTS_BEFORE);
  return { ns: decodeSegment(ns, 'ns'), key: decodeSegment(key.join('/'), 'key') };
}

/** Keys are opaque: a stray question mark must not shorten one unnoticed. */
function refuseQuery(request: FastifyRequest): void {
  if (!/[?#]/.test(request.raw.url!)) return;
  throw kvFault('kv_no_query_string', 'this route takes no query string: escape a "?" in a key as %3F');
}
