/** Pages of other sites, which a browser lets send requests to a broker on its own machine. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createAccess } from '../../../src/http/access/access.ts';
import { Page } from '../../../src/http/page.ts';
import { openWire } from '../wire.ts';
import { ROUTES } from './route_table.ts';

const FOREIGN = { 'sec-fetch-site': 'cross-site' };

async function codeOf(answer: Response): Promise<unknown> {
  return ((await answer.json()) as { code: unknown }).code;
}

test('without tokens they reach what is public and nothing else', async (t) => {
  const wire = await openWire(t);
  const closed = ROUTES.filter(({ level }) => level !== 'public');
  assert.ok(closed.some(({ path }) => path === '/api/v1/push'));
  for (const { method, path } of closed) {
    const filled = path.replaceAll(/:\w+/g, 'x').replace('*', 'y');
    const body = method === 'GET' || method === 'HEAD' ? {} : { body: '{}' };
    const headers = { ...FOREIGN, 'content-type': 'text/plain' };
    const answer = await fetch(wire.url + filled, { method, headers, ...body });
    assert.equal(answer.status, 403, `${method} ${filled}`);
    if (method !== 'HEAD') assert.equal(await codeOf(answer), 'cross_site', `${method} ${filled}`);
  }
  assert.equal((await fetch(`${wire.url}/health/live`, { headers: FOREIGN })).status, 200);
});

test('nor do they where tenants are told apart by a header alone', async (t) => {
  const access = createAccess({ verifier: null, skipPaths: ['/api/v1/'], tenancy: true });
  const wire = await openWire(t, { access });
  const pop = `${wire.url}/api/v1/pop/queue/q?autoAck=true`;
  assert.equal(await codeOf(await fetch(pop, { headers: FOREIGN })), 'cross_site');
  assert.notEqual((await fetch(pop)).status, 403);
});

test('the page’s own requests, those of a bookmark and those of programs are taken', async (t) => {
  const wire = await openWire(t);
  for (const headers of [
    {},
    { 'sec-fetch-site': 'same-origin' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
  ]) {
    const answer = await fetch(`${wire.url}/api/v1/pop/queue/q`, { headers });
    assert.notEqual(answer.status, 403, JSON.stringify(headers));
  }
});

test('a link from another site still opens the page', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'queen-test-page-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  writeFileSync(join(directory, 'index.html'), '<title>the page</title>');
  const wire = await openWire(t, { page: new Page(directory) });
  const headers = { ...FOREIGN, accept: 'text/html' };
  for (const path of ['/', '/queues/orders']) {
    const answer = await fetch(wire.url + path, { headers });
    assert.equal(answer.status, 200);
    assert.match(await answer.text(), /the page/);
  }
  assert.equal(await codeOf(await fetch(`${wire.url}/api/v1/status`, { headers })), 'cross_site');
});

test('with tokens it is the token that counts', async (t) => {
  const verifier = { verify: () => ({ sub: null, roles: ['read-write'] as const }) };
  const access = createAccess({ verifier: verifier as never, skipPaths: [], tenancy: false });
  const wire = await openWire(t, { access });
  const path = `${wire.url}/api/v1/pop/queue/q`;
  assert.equal((await fetch(path, { headers: FOREIGN })).status, 401);
  assert.notEqual((await fetch(path, { headers: { ...FOREIGN, authorization: 'x' } })).status, 403);
});
