/**
 * The tenant of a request: a header that the proxy in front sets. It is no secret and proves nothing, which is why
 * the broker only starts with it when the operator says that such a proxy is there.
 */
import type { IncomingMessage } from 'node:http';
import { DEFAULT_TENANT, type TenantId } from '../../engine/types.ts';
import { Fault } from '../errors.ts';

export const TENANT_HEADER = 'x-queen-tenant';
const CANONICAL = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** A header sent twice arrives joined by a comma and so is malformed: nobody guesses which one was meant. */
export function tenantOf(request: IncomingMessage): TenantId {
  const header = request.headers[TENANT_HEADER];
  if (header === undefined) return DEFAULT_TENANT;
  const text = String(header).trim();
  if (text === '') return DEFAULT_TENANT;
  if (!CANONICAL.test(text)) throw new Fault('bad_tenant');
  return text.toLowerCase();
}
