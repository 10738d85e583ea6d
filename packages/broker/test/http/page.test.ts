import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { createAccess } from '../../src/http/access/access.ts';
import { Fault } from '../../src/http/errors.ts';
import { Page } from '../../src/http/page.ts';
import { openWire } from './wire.ts';

const BROWSER = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
const PROGRAM = { accept: 'application/json' };
const SCRIPT = 'console.log("of the page")';

interface Cleanup {
  after(fn: () => unknown): void;
}

function built(t: Cleanup): string {
  const directory = mkdtempSync(join(tmpdir(), 'queen-test-page-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  mkdirSync(join(directory, 'assets'));
  writeFileSync(join(directory, 'index.html'), '<title>the page</title>');
  writeFileSync(join(directory, 'favicon.svg'), '<svg/>');
  writeFileSync(join(directory, 'assets/app-1a2b.js'), SCRIPT);
  writeFileSync(join(directory, 'assets/app-1a2b.js.gz'), gzipSync(SCRIPT));
  return directory;
}

test('the page is at the root, and at paths that no route answers', async (t) => {
  const wire = await openWire(t, { page: new Page(built(t)) });
  for (const path of ['/', '/queues/orders', '/index.html', '/a%2Fb/c?d=e']) {
    for (const headers of [BROWSER, undefined]) {
      const answer = await fetch(wire.url + path, headers === undefined ? {} : { headers });
      assert.equal(answer.status, 200, path);
      assert.match(await answer.text(), /the page/);
      assert.match(answer.headers.get('content-type')!, /^text\/html/);
      assert.match(answer.headers.get('content-security-policy')!, /default-src 'none'/);
      assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
      assert.equal(answer.headers.get('cache-control'), 'no-cache');
    }
    const head = await fetch(wire.url + path, { method: 'HEAD', headers: BROWSER });
    assert.deepEqual([head.status, await head.text()], [200, ''], path);
  }
});

test('what is not for the page keeps its answer', async (t) => {
  const wire = await openWire(t, { page: new Page(built(t)) });
  const missing: [string, string, object][] = [
    ['GET', '/api/v1/nothing', BROWSER],
    ['GET', '/auth/nothing', BROWSER],
    ['GET', '/assets/gone-3c4d.js', BROWSER],
    ['GET', '/favicon.ico', BROWSER],
    ['GET', '/internal/nothing', BROWSER],
    ['POST', '/queues/orders', BROWSER],
    ['GET', '/queues/orders', PROGRAM],
  ];
  for (const [method, path, headers] of missing) {
    const answer = await fetch(wire.url + path, { method, headers: headers as Record<string, string> });
    assert.equal(answer.status, 404, `${method} ${path}`);
    assert.deepEqual(await answer.json(), { error: 'Not Found', code: 'no_such_route' }, path);
  }
  const root = await fetch(wire.url, { headers: PROGRAM });
  assert.equal(((await root.json()) as { name: string }).name, 'Queen');
  assert.equal((await fetch(`${wire.url}/health/live`, { headers: BROWSER })).status, 200);
  const post = await fetch(wire.url, { method: 'POST', headers: BROWSER });
  assert.deepEqual([post.status, post.headers.get('allow')], [405, 'GET, HEAD']);
});

test('files go out compressed, and are kept for ever under their names', async (t) => {
  const wire = await openWire(t, { page: new Page(built(t)) });
  const script = await fetch(`${wire.url}/assets/app-1a2b.js`, { headers: { 'accept-encoding': 'gzip' } });
  assert.equal(script.headers.get('content-encoding'), 'gzip');
  assert.match(script.headers.get('content-type')!, /javascript/);
  assert.equal(script.headers.get('cache-control'), 'public, max-age=31536000, immutable');
  assert.equal(script.headers.get('x-content-type-options'), 'nosniff');
  assert.equal(await script.text(), SCRIPT);
  const plain = await fetch(`${wire.url}/assets/app-1a2b.js`, { headers: { 'accept-encoding': 'identity' } });
  assert.deepEqual([plain.headers.get('content-encoding'), await plain.text()], [null, SCRIPT]);
  const icon = await fetch(`${wire.url}/favicon.svg`);
  assert.deepEqual([icon.status, icon.headers.get('content-type')], [200, 'image/svg+xml']);
});

test('nothing outside of the files is served', async (t) => {
  const wire = await openWire(t, { page: new Page(built(t)) });
  const outside = [
    '..%2findex.html',
    '..%2f..%2findex.html',
    '..%5cindex.html',
    '%2e%2e%2findex.html',
    '%00',
    '',
    '/etc/passwd',
  ];
  for (const path of [...outside, 'a'.repeat(5_000)]) {
    const answer = await fetch(`${wire.url}/assets/${path}`, { headers: PROGRAM });
    assert.equal(answer.status, 404, path);
    assert.deepEqual(await answer.json(), { error: 'Not Found', code: 'no_such_route' }, path);
  }
});

test('a file is sent whole, whatever part is asked for', async (t) => {
  const wire = await openWire(t, { page: new Page(built(t)) });
  for (const range of ['bytes=0-3', 'bytes=5-1', 'bytes=100000-']) {
    for (const path of ['/assets/app-1a2b.js', '/favicon.svg']) {
      assert.equal((await fetch(wire.url + path, { headers: { range } })).status, 200, `${path} ${range}`);
    }
  }
});

test('a page that was not built says how to build it', async (t) => {
  const wire = await openWire(t, { page: new Page(join(tmpdir(), 'queen-test-no-such-directory')) });
  const answer = await fetch(wire.url, { headers: BROWSER });
  assert.equal(answer.status, 200);
  assert.match(await answer.text(), /npm run build -w packages\/dashboard/);
});

test('without a token a browser gets the page to give one with, and a program the refusal', async (t) => {
  const verifier = {
    verify(): never {
      throw new Fault('token_signature');
    },
  };
  const access = createAccess({ verifier, skipPaths: [], tenancy: false });
  const wire = await openWire(t, { page: new Page(built(t)), access });
  for (const path of ['/', '/assets/app-1a2b.js', '/favicon.svg']) {
    assert.equal((await fetch(wire.url + path, { headers: BROWSER })).status, 200, path);
  }
  const browser = await fetch(`${wire.url}/queues/orders`, { headers: BROWSER });
  assert.equal(browser.status, 401);
  assert.match(await browser.text(), /the page/);
  const program = await fetch(`${wire.url}/queues/orders`, { headers: PROGRAM });
  assert.equal(program.status, 401);
  assert.equal(((await program.json()) as { code: string }).code, 'auth_required');
  const api = await fetch(`${wire.url}/api/v1/status`, { headers: BROWSER });
  assert.equal(((await api.json()) as { code: string }).code, 'auth_required');
});
