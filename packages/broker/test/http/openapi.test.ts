/** The OpenAPI document against what is registered, against the table of levels, and against its own rules. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Validator } from '@seriousme/openapi-schema-validator';
import { WRITTEN_SCHEMA } from '../../src/connectors/postgres/document/parse.ts';
import { documentPath } from '../../src/http/api/document.ts';
import { allRoutes, routesPage } from '../../src/http/api/reference.ts';
import type { Route } from '../../src/http/app.ts';
import { AJV, buildValidator } from '../../src/http/validation.ts';
import { ADMITTED, ROUTES } from './access/route_table.ts';
import { OpenApi } from './open_api.ts';
import { get, openWire, RawClient } from './wire.ts';

const connectors = { documentSchema: WRITTEN_SCHEMA } as never;
/** What the broker serves to browsers is no part of the interface. */
const PAGES = ['/', '/assets/*', '/favicon.ico'];

async function documentOf(url: string): Promise<OpenApi> {
  const answer = await fetch(`${url}/openapi.json`);
  assert.equal(answer.status, 200);
  return new OpenApi((await answer.json()) as Record<string, unknown>);
}

test('every route is in the document and nothing else is', async (t) => {
  const wire = await openWire(t, { connectors });
  const api = await documentOf(wire.url);
  const served = allRoutes().filter(({ method, path }: Route) => method !== 'HEAD' && !PAGES.includes(path));
  const expected = served.map(({ method, path, operation }) => {
    assert.ok(operation !== undefined, `${method} ${path} has no schema: nobody can read about it`);
    return `${method} ${documentPath(path, operation)}`;
  });
  const shown = api.operations.map(({ method, path }) => `${method} ${path}`);
  assert.deepEqual(shown.toSorted(), expected.toSorted());
  assert.equal(new Set(expected).size, expected.length);
  assert.ok(expected.length > 75, `${expected.length}`);
  const ids = api.operations.map(({ operation }) => operation.operationId);
  assert.equal(new Set(ids).size, ids.length, 'each has a name of its own');
});

test('the server takes each operation at the path and the method that are shown', async (t) => {
  const asked: string[] = [];
  const access = {
    identify: () => {
      throw new Error('this far');
    },
    whoAmI: async () => null,
  };
  const wire = await openWire(t, { connectors, access });
  const plain = await openWire(t, { connectors });
  for (const { method, path } of (await documentOf(plain.url)).operations) {
    const client = await RawClient.open(wire.port, t);
    client.send(get(path.replaceAll(/\{\w+\}/g, 'x')).replace('GET', method));
    const answer = await client.answer();
    client.socket.destroy();
    // Who is calling is asked by a route that was found, and by those for strangers that none is.
    if (answer!.status === 500) asked.push(path);
    assert.ok(![404, 405].includes(answer!.status), `${method} ${path}: ${answer!.status}`);
  }
  assert.ok(asked.length > 60);
});

test('without connectors their routes are not shown', async (t) => {
  const api = await documentOf((await openWire(t)).url);
  assert.ok(api.operations.length > 70);
  assert.ok(!api.operations.some(({ path }) => path.includes('connectors')));
});

test('the document keeps the rules of OpenAPI 3.1, and its examples keep its own', async (t) => {
  const wire = await openWire(t, { connectors, version: '1.2.3' });
  const api = await documentOf(wire.url);
  assert.match(String(api.document.openapi), /^3\.1\./);
  assert.equal((api.document.info as { version: string }).version, '1.2.3');
  assert.deepEqual((api.document.servers as { url: string }[])[0]!.url, '/');
  const verdict = await new Validator().validate(structuredClone(api.document));
  assert.deepEqual(verdict.errors ?? [], []);
  assert.equal(verdict.valid, true);
  let examples = 0;
  for (const { method, path, operation } of api.operations) {
    const at = `${method} ${path}`;
    assert.ok(operation.summary.length > 3, at);
    const body = operation.requestBody?.content['application/json'];
    if (body?.example !== undefined) {
      assert.deepEqual(api.faultsOf(body.schema, body.example), [], `${at}: example of the body`);
      examples++;
    }
    assert.ok(
      Object.keys(operation.responses).some((status) => /^2|^3/.test(status)),
      at,
    );
    for (const [status, response] of Object.entries(operation.responses)) {
      for (const { schema, example } of Object.values(api.resolve(response).content ?? {})) {
        api.compile(schema);
        if (example === undefined) continue;
        assert.deepEqual(api.faultsOf(schema, example), [], `${at}: example of ${status}`);
        examples++;
      }
    }
  }
  assert.ok(examples > 25, `${examples}`);
});

test('what requests are validated with are schemas, which a start does not look at', () => {
  const strict = { ...AJV, customOptions: { ...AJV.customOptions, meta: true, validateSchema: true } };
  const build = buildValidator({}, strict);
  let compiled = 0;
  for (const { method, path, operation } of allRoutes()) {
    if (method === 'HEAD') continue;
    for (const schema of [operation?.params, operation?.body]) {
      if (schema === undefined) continue;
      assert.doesNotThrow(() => build({ schema, method, url: path })(null), `${method} ${path}`);
      compiled++;
    }
  }
  assert.ok(compiled > 30, `${compiled}`);
});

test('each operation says which roles it takes, as the table of levels has it', async (t) => {
  const api = await documentOf((await openWire(t, { connectors })).url);
  const table = new Map(
    ROUTES.map(({ method, path, level, tenant }) => [
      `${method} ${path.replaceAll(/:\w+|\*/g, '{}')}`,
      { level, tenant },
    ]),
  );
  for (const { method, path, operation } of api.operations) {
    const at = `${method} ${path.replaceAll(/\{\w+\}/g, '{}')}`;
    const { level, tenant } = table.get(at)!;
    assert.equal(operation['x-queen-access'], level, at);
    assert.deepEqual(
      operation['x-queen-roles'].toSorted(),
      level === 'public' ? [] : ADMITTED[level].toSorted(),
      at,
    );
    assert.deepEqual(operation.security, level === 'public' ? [] : undefined, at);
    assert.equal('401' in operation.responses, level !== 'public' || path === '/auth/me', at);
    assert.equal(
      operation.parameters?.some(({ $ref }) => $ref === '#/components/parameters/Tenant') ?? false,
      tenant,
      at,
    );
  }
});

test('the document is small on the way, is asked for again in vain, and never without need', async (t) => {
  const wire = await openWire(t, { connectors });
  const ask = async (headers: string) => {
    const client = await RawClient.open(wire.port, t);
    client.send(`GET /openapi.json HTTP/1.1\r\nHost: x\r\n${headers}\r\n`);
    return (await client.answer())!;
  };
  const plain = await ask('');
  assert.equal(plain.headers['content-encoding'], undefined);
  assert.equal(plain.headers['x-content-type-options'], 'nosniff');
  assert.ok(Number(plain.headers['content-length']) > 50_000);
  const zipped = await fetch(`${wire.url}/openapi.json`, { headers: { 'accept-encoding': 'gzip' } });
  assert.equal(zipped.headers.get('content-encoding'), 'gzip');
  assert.ok(Number(zipped.headers.get('content-length')) < 40_000);
  assert.equal(await zipped.text(), plain.body);
  assert.equal((await ask('Accept-Encoding: gzip;q=0\r\n')).headers['content-encoding'], undefined);
  const again = await ask(`If-None-Match: ${plain.headers.etag}\r\n`);
  assert.deepEqual([again.status, again.body], [304, '']);
  assert.equal((await ask('If-None-Match: W/"another"\r\n')).status, 200);
});

test('docs/routes.md is what the broker registers: npm run docs', () => {
  const page = readFileSync(new URL('../../../../docs/routes.md', import.meta.url), 'utf8');
  assert.equal(page, routesPage(allRoutes()));
});
