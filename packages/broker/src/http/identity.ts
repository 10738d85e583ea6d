/**
 * Who is calling. Authentication and tenants plug in here: an Identify function sees the request before its body is
 * read and answers with an identity, or throws a Fault (401, 403).
 */
import type { IncomingMessage } from 'node:http';
import { DEFAULT_TENANT, type TenantId } from '../engine/types.ts';

/** What a route asks of its caller. A set of roles satisfies a level; levels are not a ladder. */
export type Level = 'public' | 'read-only' | 'write-only' | 'read-write' | 'admin';

export interface Identity {
  tenant: TenantId;
  /** `sub` of the verified token; null without authentication. */
  sub: string | null;
  roles: readonly string[];
}

export type Identify = (request: IncomingMessage, level: Level) => Identity | Promise<Identity>;

const OPEN: Identity = Object.freeze({ tenant: DEFAULT_TENANT, sub: null, roles: Object.freeze(['admin']) });

/** Every route is open and everything belongs to the default tenant. */
export const identifyOpen: Identify = () => OPEN;
