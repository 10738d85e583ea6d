/** The table of levels against a second copy of it, against what is registered, and against ways around it. */
import assert from 'node:assert/strict';
import { createServer as createHttpServer } from 'node:http';
import { test } from 'node:test';
import fc from 'fast-check';
import { createAccess } from '../../../src/http/access/access.ts';
import { accessOf, satisfies } from '../../../src/http/access/levels.ts';
import { allRoutes } from '../../../src/http/api/reference.ts';
import { Fault } from '../../../src/http/errors.ts';
import type { Role } from '../../../src/http/identity.ts';
import { silentLog } from '../../../src/observability/log.ts';
import { get, openWire, RawClient } from '../wire.ts';
import { ADMITTED, ROLES, ROUTES } from './route_table.ts';

test('every route of the wire asks what is written down for it', () => {
  for (const { method, path, level, tenant } of ROUTES) {
    assert.deepEqual(accessOf(method, path), { level, tenant }, `${method} ${path}`);
    // Whatever the parameters are.
    const filled = path.replaceAll(/:\w+/g, 'x').replace('*', 'y/z');
    assert.deepEqual(accessOf(method, filled), { level, tenant }, `${method} ${filled}`);
    if (method === 'GET') assert.equal(accessOf('HEAD', path).level, level, `HEAD ${path}`);
  }
});

test('every registered route is written down', () => {
  const routes = allRoutes();
  const known = new Set(ROUTES.map(({ method, path }) => `${method} ${path}`));
  const strangers = routes
    .filter(({ method }) => method !== 'HEAD')
    .map(({ method, path }) => `${method} ${path}`)
    .filter((route) => !known.has(route));
  assert.deepEqual(strangers, []);
  assert.ok(routes.length >= 17);
});

test('what no rule names needs a role that may read and write, in every method', () => {
  for (const path of ['/x', '/api/v2/push', '/api/v1/pushy', '/api/v1/', '/streams/v1/x', '/healthy', '//']) {
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'BREW']) {
      assert.deepEqual(accessOf(method, path), { level: 'read-write', tenant: true }, `${method} ${path}`);
    }
  }
  for (const method of ['POST', 'PUT', 'PATCH', 'BREW']) {
    assert.equal(accessOf(method, '/api/v1/connectors/x').level, 'admin');
    assert.equal(accessOf(method, '/api/v1/kv/ns/key').level, 'read-write');
  }
});

test('roles are sets: any one that is enough is enough', () => {
  const levels = Object.keys(ADMITTED) as (keyof typeof ADMITTED)[];
  fc.assert(
    fc.property(fc.subarray([...ROLES]), fc.constantFrom(...levels), (roles: Role[], level) => {
      const enough = level === 'public' || roles.some((role) => ADMITTED[level].includes(role));
      assert.equal(satisfies(roles, level), enough);
    }),
  );
});

test('paths that need no token: exact ones, and those below a slash', async () => {
  const access = createAccess({
    verifier: {
      verify: () => {
        throw new Fault('token_header');
      },
    },
    skipPaths: ['/', '/status', '/api/v1/analytics/', '/x'],
    tenancy: false,
  });
  const outcome = (url: string) => {
    try {
      void access.identify({ url, headers: {} } as never, { level: 'admin', tenant: false });
      return 'open';
    } catch (error) {
      return (error as Fault).code;
    }
  };
  for (const url of [
    '/',
    '/?a',
    '/status',
    '/status?x=/y',
    '/api/v1/analytics/',
    '/api/v1/analytics/a/b',
    '/x',
  ]) {
    assert.equal(outcome(url), 'open', url);
  }
  for (const url of [
    '/status/',
    '/statu',
    '/STATUS',
    '/%73tatus',
    '/api/v1/analytics',
    '/api/v1/analyticsx',
    '/x/y',
    '/y?/status',
    '/y#/status',
    '//',
  ]) {
    assert.equal(outcome(url), 'auth_required', url);
  }
});

test('an escaped or absolute target leads to the level of the handler that it reaches', async (t) => {
  const asked: string[] = [];
  const wire = await openWire(t, {
    access: {
      identify(_request, { level }) {
        asked.push(level);
        throw new Fault('forbidden');
      },
      whoAmI: async () => null,
    },
  });
  const level = async (method: string, target: string) => {
    const client = await RawClient.open(wire.port, t);
    client.send(get(target).replace('GET', method));
    const answer = await client.answer();
    assert.equal(answer?.status, 403, target);
    return asked.at(-1);
  };
  assert.equal(await level('DELETE', '/api/v1/resources/queues/x'), 'admin');
  assert.equal(await level('DELETE', '/%61pi/v1/%72esources/queues/x'), 'admin');
  assert.equal(await level('DELETE', 'http://elsewhere/api/v1/resources/queues/x?y'), 'admin');
  assert.equal(await level('DELETE', '/api/v1/resources/queues/a%2Fb'), 'admin');
  assert.equal(await level('GET', '/api/v1/resources/queues/x#/health'), 'read-only');
  assert.equal((await fetch(`${wire.url}/api/v1/resources/queues`, { method: 'HEAD' })).status, 403);
  assert.equal(asked.at(-1), 'read-only');
  assert.equal(await level('GET', '/api/v1/push'), 'read-write');
  assert.equal(await level('GET', '/api/v1/analytics/none'), 'read-only');
  assert.equal(await level('GET', '/api/v1/pop/queue/x/partition'), 'read-write');
});

test('a route that claims another level than the table does not get registered', async () => {
  const { createApp } = await import('../../../src/http/app.ts');
  const app = createApp({
    identify: () => ({ tenant: '', sub: null, roles: [] }),
    bodies: null as never,
    traffic: null as never,
    log: silentLog,
    serverFactory: (handler) => createHttpServer(handler),
    parseError: () => {},
    methodsOf: () => null,
    onRoute: () => {},
  });
  assert.throws(
    () => app.get('/api/v1/system/x', { config: { level: 'public' } }, async () => ({})),
    /is for public, but the table of levels says admin/,
  );
});
