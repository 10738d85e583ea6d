/** Connectors: documents that say which tables become queues and which queues become tables, and how it goes. */

import type { FastifyRequest } from 'fastify';
import type { Type } from 'typebox';
import { EngineError } from '../../engine/errors.ts';
import type { TenantId } from '../../engine/types.ts';
import {
  deleteConnector,
  getConnector,
  listConnectors,
  putConnector,
  resyncConnector,
} from '../api/connectors.ts';
import type { App } from '../app.ts';
import { ClientGone } from '../body.ts';
import { badBody, Fault, type FaultCode } from '../errors.ts';
import { queryOf } from '../query.ts';

/** What these routes ask of the connectors. Refusals are EngineErrors by the codes below. */
export interface ConnectorsFace {
  /** JSON Schema of what `put` takes. */
  readonly documentSchema: object;
  /** Throws unless a connector may have this name. */
  checkName(name: string): void;
  list(tenant: TenantId): Promise<object[]>;
  get(tenant: TenantId, name: string): Promise<object>;
  /** @param body any JSON object */
  put(tenant: TenantId, name: string, body: object): Promise<object>;
  /** `pending`: it is gone when its owner has taken down what it has at the upstream. */
  remove(tenant: TenantId, name: string, dropSlot: boolean): Promise<{ pending: boolean; answer: object }>;
  resync(tenant: TenantId, name: string): Promise<object>;
  /** This broker's view of all of them, for `/status`; from memory. */
  overview(): object;
}

const CONNECTOR_BODY_BYTES_MAX = 256 * 1024;

const CODES: ReadonlySet<string> = new Set<FaultCode>([
  'bad_connector_name',
  'invalid_connector',
  'egress_refused',
  'kind_change',
  'encryption_required',
  'seal_failed',
  'document_too_large',
  'conflict',
  'connector_not_found',
  'not_a_source',
  'deleting',
  'unreadable_document',
]);

export function connectorRoutes(app: App, connectors: ConnectorsFace): void {
  const read = { level: 'read-only' } as const;
  const write = { level: 'admin', lenientBody: true, envelopeAlways: true } as const;
  const one = '/api/v1/connectors/:name';
  // Before the body is read: a wrong name is told first.
  const onRequest = async (request: FastifyRequest) =>
    answered(async () => connectors.checkName(nameOf(request)));

  app.get('/api/v1/connectors', { config: read, schema: listConnectors }, ({ identity }) =>
    answered(async () => ({ connectors: await connectors.list(identity.tenant) })),
  );

  app.get(one, { config: read, schema: getConnector, onRequest }, (request) =>
    answered(() => connectors.get(request.identity.tenant, nameOf(request))),
  );

  const put = { level: 'admin', bodyBytesMax: CONNECTOR_BODY_BYTES_MAX, envelopeAlways: true } as const;
  const written = putConnector(connectors.documentSchema as Type.TSchema);
  app.put(one, { config: put, schema: written, onRequest }, (request) =>
    answered(() => {
      const { body } = request;
      if (typeof body !== 'object' || body === null || Array.isArray(body)) {
        throw badBody('the body must be a connector document, a JSON object');
      }
      return connectors.put(request.identity.tenant, nameOf(request), body);
    }),
  );

  app.delete(one, { config: write, schema: deleteConnector, onRequest }, (request, reply) =>
    answered(async () => {
      const dropSlot = dropSlotOf(request);
      const { pending, answer } = await connectors.remove(request.identity.tenant, nameOf(request), dropSlot);
      reply.code(pending ? 202 : 200);
      return answer;
    }),
  );

  app.post(`${one}/resync`, { config: write, schema: resyncConnector, onRequest }, (request, reply) =>
    answered(async () => {
      const answer = await connectors.resync(request.identity.tenant, nameOf(request));
      reply.code(202);
      return answer;
    }),
  );
}

function nameOf(request: FastifyRequest): string {
  return (request.params as { name: string }).name;
}

function dropSlotOf(request: FastifyRequest): boolean {
  const text = queryOf(request).text('dropSlot');
  if (text === null || text === 'true') return true;
  if (text === 'false') return false;
  throw new Fault('bad_request', { message: 'dropSlot must be true or false', field: 'dropSlot' });
}

/** What `work` throws is worded as these routes word it. */
async function answered<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ClientGone || !(error instanceof EngineError) || !CODES.has(error.code)) throw error;
    const { code, message, field, cause } = error;
    throw new Fault(code as FaultCode, { message, field, cause });
  }
}
