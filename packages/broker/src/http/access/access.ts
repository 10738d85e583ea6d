/** Who is calling, put together: token, roles against the route's level, tenant. */
import type { IncomingMessage } from 'node:http';
import { DEFAULT_TENANT } from '../../engine/types.ts';
import { Fault } from '../errors.ts';
import type { Access, Identify, Identity, Role } from '../identity.ts';
import { splitTarget } from '../target.ts';
import type { Claims } from './claims.ts';
import { satisfies } from './levels.ts';
import { tenantOf } from './tenant.ts';

export interface AccessControl {
  identify: Identify;
  /** Who the request's token names, whatever its route asks. Null: nobody is asked for one here. Rejects with a 401. */
  whoAmI(request: IncomingMessage): Promise<Identity | null>;
}

export interface AccessOptions {
  /** Null: every route is open. */
  verifier: { verify(token: string): Claims | Promise<Claims> } | null;
  /** Paths that need no token: exact ones, and prefixes that end in a slash. */
  skipPaths: readonly string[];
  /** The tenant is taken from the header. */
  tenancy: boolean;
}

const EVERYTHING: readonly Role[] = Object.freeze(['admin']);
const NOTHING: readonly Role[] = Object.freeze([]);
const OPEN: Identity = Object.freeze({ tenant: DEFAULT_TENANT, sub: null, roles: EVERYTHING });

/** Every route is open, but not to pages of other sites, and everything belongs to the default tenant. */
export const OPEN_ACCESS: AccessControl = {
  identify(request, access) {
    refuseForeignPage(request, access);
    return OPEN;
  },
  whoAmI: () => Promise.resolve(null),
};

/**
 * Without tokens nothing but this stands between a queue and any page that is open in a browser on this machine: it may send
 * GETs and simple POSTs to every address without asking, and what they do is done although it never sees the answer.
 * Browsers name the relation themselves, and no page can change what they say.
 */
function refuseForeignPage(request: IncomingMessage, { level }: Access): void {
  if (request.headers['sec-fetch-site'] === 'cross-site' && level !== 'public') throw new Fault('cross_site');
}

export function createAccess(options: AccessOptions): AccessControl {
  const { verifier, tenancy } = options;
  if (verifier === null && !tenancy) return OPEN_ACCESS;
  const skipped = skipRule(options.skipPaths);

  const tenant = (request: IncomingMessage, access: Access) =>
    tenancy && access.tenant ? tenantOf(request) : DEFAULT_TENANT;

  const admit = (request: IncomingMessage, access: Access, { sub, roles }: Claims): Identity => {
    if (!satisfies(roles, access.level)) throw new Fault('forbidden');
    return { tenant: tenant(request, access), sub, roles };
  };

  return {
    identify(request, access) {
      if (verifier === null) {
        refuseForeignPage(request, access);
        return { tenant: tenant(request, access), sub: null, roles: EVERYTHING };
      }
      if (access.level === 'public' || skipped(splitTarget(request.url!).path)) {
        return { tenant: tenant(request, access), sub: null, roles: NOTHING };
      }
      const claims = verifier.verify(tokenOf(request));
      return claims instanceof Promise
        ? claims.then((verified) => admit(request, access, verified))
        : admit(request, access, claims);
    },
    async whoAmI(request) {
      if (verifier === null) return null;
      const { sub, roles } = await verifier.verify(tokenOf(request));
      return { tenant: DEFAULT_TENANT, sub, roles };
    },
  };
}

/** `Bearer <token>` in any case, or the token alone. */
function tokenOf(request: IncomingMessage): string {
  const header = request.headers.authorization?.trim();
  if (header === undefined || header === '') throw new Fault('auth_required');
  return /^bearer\s/i.test(header) ? header.slice(7).trim() : header;
}

function skipRule(paths: readonly string[]): (path: string) => boolean {
  const exact = new Set(paths);
  const prefixes = paths.filter((path) => path.length > 1 && path.endsWith('/'));
  return (path) => exact.has(path) || prefixes.some((prefix) => path.startsWith(prefix));
}
