/** /auth/*: who the dashboard's user is. The broker issues no tokens and keeps no sessions. */
import type { AccessControl } from '../access/access.ts';
import { LOGIN_PAGE, LOGIN_PAGE_POLICY } from '../access/login_page.ts';
import { loginPage, logout, whoAmI } from '../api/system.ts';
import type { App } from '../app.ts';
import { Fault, faultOf } from '../errors.ts';
import type { Identity, Role } from '../identity.ts';

const open = { level: 'public' } as const;
/** The first that a caller has is the one that the page shows. */
const BY_POWER: readonly Role[] = ['admin', 'read-write', 'write-only', 'read-only'];

export function authRoutes(app: App, access: AccessControl): void {
  app.get('/auth/me', { config: open, schema: whoAmI }, async (request, reply) => {
    reply.header('Cache-Control', 'no-store');
    return renderIdentity(await identityOf(access, request.raw));
  });

  app.get('/auth/login', { config: open, schema: loginPage }, async (_request, reply) => {
    reply.header('Content-Security-Policy', LOGIN_PAGE_POLICY).type('text/html; charset=utf-8');
    return LOGIN_PAGE;
  });

  // A token is good until it expires; what a page has to forget, it forgets itself.
  app.post('/auth/logout', { config: { ...open, lenientBody: true }, schema: logout }, async () => ({
    success: true,
  }));
}

/** Whatever is wrong with the token, the page only has to know that one is needed. */
async function identityOf(
  access: AccessControl,
  request: Parameters<AccessControl['whoAmI']>[0],
): Promise<Identity | null> {
  try {
    return await access.whoAmI(request);
  } catch (error) {
    const fault = faultOf(error);
    if (fault.status === 401) throw new Fault('auth_required', { message: fault.message });
    throw fault;
  }
}

function renderIdentity(identity: Identity | null) {
  if (identity === null) {
    const user = { id: 'local', name: 'local', role: 'admin' };
    return { standalone: true, cluster: 'local', role: 'admin', roles: ['admin'], user };
  }
  const { sub, roles } = identity;
  const role = BY_POWER.find((each) => roles.includes(each)) ?? null;
  return { standalone: false, cluster: 'local', role, roles, user: { id: sub, name: sub, role } };
}
