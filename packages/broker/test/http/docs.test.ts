/** The page of the interface: all of it is inside, its policy lets nothing else run, and nobody is asked who they are. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { createAccess } from '../../src/http/access/access.ts';
import { html, prose } from '../../src/http/docs/html.ts';
import { Fault } from '../../src/http/errors.ts';
import { OpenApi } from './open_api.ts';
import { openWire } from './wire.ts';

test('the page has every route, and loads nothing from anywhere', async (t) => {
  const wire = await openWire(t);
  const answer = await fetch(`${wire.url}/docs`);
  assert.equal(answer.headers.get('content-type'), 'text/html; charset=utf-8');
  const page = await answer.text();
  const api = new OpenApi(
    (await (await fetch(`${wire.url}/openapi.json`)).json()) as Record<string, unknown>,
  );
  for (const { method, path, operation } of api.operations) {
    const head = `<details class="route" id="${operation.operationId}" data-method="${method}" data-path="${path}">`;
    assert.ok(page.includes(head), `${method} ${path}`);
  }
  // References lead to something on the page.
  const ids = new Set([...page.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id));
  const links = [...page.matchAll(/ href="#([^"]+)"/g)].map(([, id]) => id!);
  assert.ok(links.length > 200);
  assert.deepEqual(
    links.filter((id) => !ids.has(id)),
    [],
  );
  assert.deepEqual([...page.matchAll(/<[^>]+ (src|href)="(?!#|\/)[^"]*"/g)], []);
  const policy = answer.headers.get('content-security-policy')!;
  for (const name of ['script', 'style']) {
    const inside = new RegExp(`<${name}>(.*?)</${name}>`, 's').exec(page)![1]!;
    const hash = createHash('sha256').update(inside).digest('base64');
    assert.ok(policy.includes(`${name}-src 'sha256-${hash}'`), policy);
    assert.equal(page.split(`<${name}`).length, 2, `one ${name}`);
  }
  assert.match(policy, /^default-src 'none';.*frame-ancestors 'none'/);
  assert.doesNotMatch(page, /\son\w+=/, 'no handler in an attribute');
  assert.doesNotMatch(page, /\sstyle=/);
});

test('both load without a token where one is asked for, and the rest does not', async (t) => {
  const access = createAccess({
    verifier: {
      verify: () => {
        throw new Fault('token_header');
      },
    },
    skipPaths: [],
    tenancy: true,
  });
  const wire = await openWire(t, { access });
  const status = async (path: string) =>
    (await fetch(wire.url + path, { headers: { 'x-queen-tenant': 'none at all' } })).status;
  assert.equal(await status('/docs'), 200);
  assert.equal(await status('/openapi.json'), 200);
  assert.equal((await fetch(`${wire.url}/docs`, { method: 'HEAD' })).status, 200);
  assert.equal(await status('/openapi.jsonx'), 401);
  assert.equal(await status('/docs/x'), 401);
  assert.equal(await status('/api/v1/resources/queues'), 401);
});

test('what is put into the page is text', () => {
  const evil = `<script>"'&`;
  const text = '&lt;script&gt;&quot;&#39;&amp;';
  assert.equal(
    html`<p title="${evil}">${[evil, null, false, 1]}</p>`.text,
    `<p title="${text}">${text}1</p>`,
  );
  assert.equal(prose(`a \`${evil}\`\n\nb`).text, `<p>a <code>${text}</code></p><p>b</p>`);
});
