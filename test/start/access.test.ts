import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { statement } from '../../packages/broker/src/store/database.ts';
import {
  edPair,
  jwk,
  jwksServer,
  rsaPair,
  SECRET,
  type Signer,
  sign,
} from '../../packages/broker/test/http/access/issuer.ts';
import { type BrokerProcess, spawnBroker, startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';

/** What the environment says about access, in real processes: who starts, where it listens, whom it lets in. */

const LOCAL = { QUEEN_BIND_ADDR: '127.0.0.1' };

test('a setup that would protect nothing, or keep everybody out, does not start', async (t) => {
  const cases: [Record<string, string>, RegExp][] = [
    [{ JWT_ENABLED: 'true' }, /^FATAL: JWT_ENABLED with JWT_ALGORITHM=HS256 needs a key: set JWT_SECRET,/m],
    [
      { JWT_ENABLED: 'true', JWT_ALGORITHM: 'RS256', JWT_SECRET: SECRET },
      /^FATAL: JWT_ENABLED with JWT_ALGORITHM=RS256 needs a key: set JWT_PUBLIC_KEY or JWT_JWKS_URL$/m,
    ],
    [
      { JWT_ENABLED: 'true', JWT_ALGORITHM: 'PS256', JWT_SECRET: SECRET },
      /^FATAL: JWT_ALGORITHM="PS256" is unknown/m,
    ],
    [{ JWT_ENABLED: 'maybe' }, /^FATAL: JWT_ENABLED="maybe" is not a boolean/m],
    [{ QUEEN_TENANCY_HEADER: 'true' }, /^FATAL: QUEEN_TENANCY_HEADER needs QUEEN_KV_TRUSTED_PROXY=true/m],
    [
      { QUEEN_TENANCY_HEADER: 'true', QUEEN_KV_TRUSTED_PROXY: 'no' },
      /^FATAL: QUEEN_TENANCY_HEADER needs QUEEN_KV_TRUSTED_PROXY=true/m,
    ],
    [
      { QUEEN_ENCRYPTION_KEY: 'hunter2' },
      /^FATAL: QUEEN_ENCRYPTION_KEY=\(not shown\) is not 64 hex digits$/m,
    ],
  ];
  for (const [env, expected] of cases) {
    const { code, logs } = await spawnBroker({ env: { ...LOCAL, ...env } }, t).ended;
    assert.equal(code, 1, logs);
    assert.match(logs, expected);
    assert.doesNotMatch(logs, /hunter2|listening/);
  }
});

test('without the key of an encrypted queue it does not start, with any it does', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  await db.query(
    statement(
      'seal',
      `INSERT INTO queen.queues (tenant_id, name, encryption_enabled)
       VALUES ('00000000-0000-4000-8000-00000000000a', 'secrets', true)`,
    ),
  );
  await db.close();
  const { code, logs } = await spawnBroker({ database, env: LOCAL }, t).ended;
  assert.equal(code, 1, logs);
  assert.match(
    logs,
    /^FATAL: queue "secrets" is encrypted: start with its QUEEN_ENCRYPTION_KEY \(64 hex digits\)$/m,
  );
  const keyed = await startBroker({ database, env: { ...LOCAL, QUEEN_ENCRYPTION_KEY: 'Ab'.repeat(32) } }, t);
  const health = (await (await fetch(`${keyed.url}/health`)).json()) as { encryption: unknown };
  assert.deepEqual(health.encryption, { key: true, unopened: 0 });
  assert.doesNotMatch(keyed.logs(), /AbAb/);
});

test('without tokens it listens on this machine alone and says that everybody may do everything', async (t) => {
  const database = await freshDatabase(t);
  const open = await startBroker({ database }, t);
  assert.match(open.url, /^http:\/\/127\.0\.0\.1:/);
  assert.match(open.logs(), /access +no authentication: whoever reaches the port may do everything/);
  const me = await fetch(`${open.url}/auth/me`);
  const body = (await me.json()) as Record<string, unknown>;
  assert.deepEqual([me.status, body.standalone, body.cluster, body.role], [200, true, 'local', 'admin']);
  // The tenant header means nothing here, whatever it holds.
  const answer = await fetch(`${open.url}/api/v1/resources/queues`, { headers: { 'x-queen-tenant': 'x' } });
  assert.equal(answer.status, 200);
  const everywhere = await startBroker({ database, env: { QUEEN_BIND_ADDR: '0.0.0.0' } }, t);
  assert.match(
    everywhere.logs(),
    /without authentication, whoever reaches 0\.0\.0\.0 can read and empty every queue/,
  );
});

async function status(broker: BrokerProcess, path: string, token?: string): Promise<number> {
  const headers = token === undefined ? {} : { authorization: token };
  const response = await fetch(`http://127.0.0.1:${broker.port}${path}`, { headers });
  await response.text();
  return response.status;
}

test('with tokens it listens everywhere, and takes them in every spelling of the header', async (t) => {
  const database = await freshDatabase(t);
  const env = { JWT_ENABLED: '1', JWT_SECRET: SECRET, JWT_ROLE_ADMIN: 'boss', JWT_SKIP_PATHS: '/status' };
  const broker = await startBroker({ database, env }, t);
  assert.match(broker.url, /^http:\/\/0\.0\.0\.0:/);
  assert.match(broker.logs(), /access +tokens \(HS256\)/);
  assert.doesNotMatch(broker.logs(), new RegExp(SECRET));
  const queues = '/api/v1/resources/queues';
  assert.equal(await status(broker, queues), 401);
  assert.equal(await status(broker, '/status'), 200);
  assert.equal(await status(broker, '/health'), 200);
  const token = await sign('HS256', SECRET, { role: 'boss', sub: 'alice' });
  for (const header of [`Bearer ${token}`, `bearer ${token}`, `BEARER   ${token}`, token]) {
    assert.equal(await status(broker, queues, header), 200, header.slice(0, 9));
  }
  for (const header of ['Bearer', `Basic ${token}`, `Bearer ${token}x`, 'x']) {
    assert.equal(await status(broker, queues, header), 401, header.slice(0, 9));
  }
  assert.equal(await status(broker, queues, await sign('HS256', SECRET, { role: 'admin' })), 403);
  const anonymous = await fetch(`http://127.0.0.1:${broker.port}/auth/me`);
  assert.equal(anonymous.status, 401);
  assert.equal(((await anonymous.json()) as { code: string }).code, 'auth_required');
  const me = await fetch(`http://127.0.0.1:${broker.port}/auth/me`, { headers: { authorization: token } });
  const { role, user } = (await me.json()) as { role: string; user: { id: string } };
  assert.deepEqual([me.status, role, user.id], [200, 'admin', 'alice']);
  const login = await fetch(`http://127.0.0.1:${broker.port}/auth/login`);
  assert.match(login.headers.get('content-type') ?? '', /text\/html/);
  assert.match(await login.text(), /token/);
  const logout = await fetch(`http://127.0.0.1:${broker.port}/auth/logout`, { method: 'POST' });
  assert.equal(logout.status, 200);
  assert.equal((await broker.stop()).code, 0);
});

test('keys from an issuer: it starts while that one is away, and follows a rotation', async (t) => {
  const database = await freshDatabase(t);
  const issuer = await jwksServer(t);
  issuer.publish((_request, response) => void response.writeHead(503).end());
  const env = {
    ...LOCAL,
    JWT_ENABLED: '1',
    JWT_ALGORITHM: 'auto',
    JWT_JWKS_URL: issuer.url,
    JWT_JWKS_REFRESH_INTERVAL: '1',
    JWT_JWKS_TIMEOUT_MS: '1000',
  };
  const broker = await startBroker({ database, env }, t);
  await broker.logged(/the JWKS could not be fetched/);
  const [rsa, ed] = [rsaPair(), edPair()];
  const ask = async (alg: string, signer: Signer, kid: string) =>
    status(broker, '/api/v1/resources/queues', await sign(alg, signer, { roles: ['read-only'] }, { kid }));
  assert.equal(await ask('RS256', rsa, 'r'), 401);
  issuer.publish([jwk(rsa, 'r')]);
  await broker.logged(/keys of the JWKS loaded/);
  assert.equal(await ask('RS256', rsa, 'r'), 200);
  issuer.publish([jwk(ed, 'e')]);
  const deadline = performance.now() + 20_000;
  while ((await ask('RS256', rsa, 'r')) !== 401) assert.ok(performance.now() < deadline, 'the old key went');
  assert.equal(await ask('EdDSA', ed, 'e'), 200);
  assert.equal(await ask('HS256', SECRET, 'e'), 500, 'no secret is configured');
});

test('an issuer that never answers does not hold up the start', async (t) => {
  const database = await freshDatabase(t);
  const silent = createServer(() => {});
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    silent.closeAllConnections();
    silent.close();
  });
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`;
  const env = {
    ...LOCAL,
    JWT_ENABLED: '1',
    JWT_ALGORITHM: 'RS256',
    JWT_JWKS_URL: url,
    JWT_JWKS_TIMEOUT_MS: '60000',
  };
  const broker = await startBroker({ database, env, readyWithinMs: 30_000 }, t);
  assert.equal(await status(broker, '/health'), 200);
  assert.equal((await broker.stop()).code, 0);
});
