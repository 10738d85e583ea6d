/**
 * Who is calling. An Identify function sees a request before its body is read and answers with an identity, or throws
 * a Fault (400, 401, 403). What each route asks stands in access/levels.ts.
 */
import type { IncomingMessage } from 'node:http';
import type { TenantId } from '../engine/types.ts';

/** What a token's role may be, by our own names for them. */
export type Role = 'admin' | 'read-write' | 'read-only' | 'write-only';

/** What a route asks of its caller. A set of roles satisfies a level; levels are not a ladder. */
export type Level = 'public' | 'read-only' | 'write-only' | 'read-write' | 'admin';

export interface Access {
  level: Level;
  /** The route is about one tenant's data. */
  tenant: boolean;
}

export interface Identity {
  tenant: TenantId;
  /** `sub` of the verified token; null without authentication. */
  sub: string | null;
  roles: readonly Role[];
}

export type Identify = (request: IncomingMessage, access: Access) => Identity | Promise<Identity>;
