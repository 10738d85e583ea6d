/** The API of connectors over HTTP: every check of a PUT in its order, deletions, resyncs, tenants, and no password ever. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before as beforeAll, suite, test } from 'node:test';
import { openPassword } from '../../packages/broker/src/connectors/postgres/document/seal.ts';
import { type ApiDeps, ConnectorsApi } from '../../packages/broker/src/connectors/postgres/manager/api.ts';
import { createAccess } from '../../packages/broker/src/http/access/access.ts';
import type { ConnectorsFace } from '../../packages/broker/src/http/routes/connectors.ts';
import { parseSealingKey } from '../../packages/broker/src/log/envelope.ts';
import type { Queryable } from '../../packages/broker/src/store/database.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { type Live, openLive, sql } from './live.ts';

type Json = Record<string, unknown>;

const KEY = parseSealingKey('0123456789abcdef'.repeat(4))!;
const SECRET = 'hunter2-geheim';
const CONNECTION = { host: 'db.example.com', database: 'd', user: 'u' };
const SOURCE = { kind: 'source', connection: CONNECTION, source: { tables: [{ table: 't', queue: 'q' }] } };
const SINK = { kind: 'sink', connection: CONNECTION, sink: { queue: 'q', table: 't', mode: 'append' } };
const PATH = '/api/v1/connectors';

interface Api {
  /** The test's own, without a name of its own in what follows. */
  tenant: string;
  /** Runs before the n-th use of the database from now on. */
  before(n: number, work: () => Promise<unknown>): void;
  ask(method: string, path: string, body?: unknown, tenant?: string): Promise<{ status: number; body: Json }>;
  put(name: string, document: object, tenant?: string): Promise<Json>;
  get(name: string, tenant?: string): Promise<Json>;
  /** Asserts the refusal, and that it gives nothing away. */
  refused(
    method: string,
    path: string,
    body: unknown,
    status: number,
    code: string,
    says?: RegExp,
  ): Promise<Json>;
  /** The document as it is stored. */
  stored(name: string): Promise<string>;
}

let live: Live;
let stopLive: (() => Promise<void>)[] = [];
/** What the wire of this file talks to: each test has its own. */
let current: ConnectorsApi;

function openApi(over: Partial<ApiDeps> = {}): Api {
  const mine: string = randomUUID();
  let hook: { left: number; work: () => Promise<unknown> } | null = null;
  current = new ConnectorsApi({
    run: async <T>(work: (on: Queryable) => Promise<T>) => {
      if (hook !== null && --hook.left === 0) {
        const { work: interfere } = hook;
        hook = null;
        await interfere();
      }
      return work(live.broker.db);
    },
    sealingKey: KEY,
    allowPrivate: true,
    statusOf: () => null,
    overview: () => ({}),
    changed() {},
    ...over,
  });
  const ask = async (method: string, path: string, body?: unknown, tenant = mine) => {
    const answer = await live.ask<Json>(method, PATH + path, body, { 'x-queen-tenant': tenant });
    const text = JSON.stringify(answer);
    assert.ok(!text.includes(SECRET) && !text.includes('passwordSealed"'), text);
    return answer;
  };
  return {
    tenant: mine,
    ask,
    before: (left, work) => {
      hook = { left, work };
    },
    async put(name, document, tenant) {
      const { status, body } = await ask('PUT', `/${name}`, document, tenant);
      assert.equal(status, 200, JSON.stringify(body));
      return body;
    },
    async get(name, tenant) {
      const { status, body } = await ask('GET', `/${name}`, undefined, tenant);
      assert.equal(status, 200, JSON.stringify(body));
      return body;
    },
    async refused(method, path, body, status, code, says) {
      const answer = await ask(method, path, body);
      assert.deepEqual([answer.status, answer.body.code], [status, code], JSON.stringify(answer.body));
      assert.equal(typeof answer.body.error, 'string');
      if (says !== undefined) assert.match(answer.body.error as string, says);
      return answer.body;
    },
    async stored(name) {
      const text = 'SELECT document FROM queen.connectors WHERE tenant_id = $1::uuid AND name = $2';
      const [row] = await sql<{ document: string }>(live.broker.db, text, [mine, name]);
      return row!.document;
    },
  };
}

suite('the API of connectors', () => {
  beforeAll(async () => {
    const face: ConnectorsFace = {
      documentSchema: {},
      checkName: (name) => current.checkName(name),
      list: (tenant) => current.list(tenant),
      get: (tenant, name) => current.get(tenant, name),
      put: (tenant, name, body) => current.put(tenant, name, body),
      remove: (tenant, name, dropSlot) => current.remove(tenant, name, dropSlot),
      resync: (tenant, name) => current.resync(tenant, name),
      overview: () => current.overview(),
    };
    const access = createAccess({ verifier: null, skipPaths: [], tenancy: true });
    const cleanup = { after: (end: () => Promise<void>) => void stopLive.push(end) };
    const database = await freshDatabase(cleanup);
    live = await openLive(cleanup, { database, server: { connectors: face, access } });
  });
  after(async () => {
    for (const end of stopLive) await end();
    stopLive = [];
  });

  test('a document comes back as it was settled, without its password', async () => {
    const { put, get, ask, stored } = openApi();
    const written = await put('orders', { ...SOURCE, connection: { ...CONNECTION, password: SECRET } });
    assert.deepEqual(
      [written.name, written.kind, written.enabled, written.status, written.state],
      ['orders', 'source', true, undefined, undefined],
    );
    assert.match(written.updatedAt as string, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
    const shown = await get('orders');
    const expected: Json = {
      ...written,
      status: { phase: 'unknown' },
      state: { pointer: null, lease: null },
    };
    assert.deepEqual(shown, expected);
    assert.deepEqual(shown.connection, {
      ...CONNECTION,
      port: 5432,
      passwordSet: true,
      sslMode: 'prefer',
      connectTimeoutMs: 10_000,
    });
    assert.ok(!(await stored('orders')).includes(SECRET));

    await put('a-sink', SINK);
    const { body } = await ask('GET', '');
    assert.deepEqual(
      (body.connectors as Json[]).map(({ name }) => name),
      ['a-sink', 'orders'],
    );
    assert.equal((body.connectors as Json[])[0]!.state, null);
    assert.deepEqual((body.connectors as Json[])[1], shown);

    // What was read can be written, and means the same.
    const again = await put('orders', shown);
    assert.deepEqual({ ...again, updatedAt: 0 }, { ...written, updatedAt: 0 });
    assert.ok((again.updatedAt as string) > (written.updatedAt as string));
  });

  test('the password: kept unless it is given, removed by an empty one, by a URL too', async () => {
    const { put, stored } = openApi();
    const set = async (connection: object) =>
      ((await put('c', { ...SOURCE, connection })).connection as Json).passwordSet;
    const sealed = async () => JSON.parse(await stored('c')).connection.passwordSealed;
    assert.equal(await set(CONNECTION), false);
    assert.equal(await set({ ...CONNECTION, password: SECRET }), true);
    const first = await sealed();
    assert.equal(await set({ ...CONNECTION, host: 'other', user: 'v' }), true);
    assert.equal(await set({ ...CONNECTION, password: null, passwordSet: false }), true);
    assert.equal(await set({ url: 'postgres://u@h/d' }), true);
    assert.equal(await sealed(), first);
    assert.equal(await set({ url: `postgres://u:${SECRET}@h/d` }), true);
    assert.notEqual(await sealed(), first);
    assert.ok(!(await stored('c')).includes('postgres://'));
    assert.equal(await set({ url: 'postgres://u:@h/d' }), false);
    assert.equal(await set({ ...CONNECTION, password: SECRET }), true);
    assert.equal(await set({ ...CONNECTION, password: '' }), false);
  });

  test('the checks of a PUT, each before the next', async () => {
    const { refused, put, ask, before } = openApi({ lookup: undefined });
    const huge = JSON.stringify({ ...SOURCE, x: 'x'.repeat(300_000) });
    for (const name of ['', 'A', '-a', '_a', 'a.b', 'a%20b', 'a%2Fb', 'ü', 'x'.repeat(49)].slice(1)) {
      for (const body of [huge, '{', SOURCE]) {
        await refused('PUT', `/${name}`, body, 400, 'bad_connector_name', /lower-case/);
      }
      await refused('GET', `/${name}`, undefined, 400, 'bad_connector_name');
      await refused('DELETE', `/${name}`, undefined, 400, 'bad_connector_name');
      await refused('POST', `/${name}/resync`, undefined, 400, 'bad_connector_name');
    }
    for (const name of ['a', '0', 'a-_b', 'x'.repeat(48)]) await put(name, SINK);
    await refused('PUT', '/c', huge, 413, 'body_too_large');
    const padded = (bytes: number) => JSON.stringify(SINK).padEnd(bytes, ' ');
    await put('padded', JSON.parse(padded(10)));
    assert.equal((await ask('PUT', '/padded', padded(262_144))).status, 200);
    await refused('PUT', '/padded', padded(262_145), 413, 'body_too_large');
    for (const body of ['', '{', 'null', '[]', '"x"', '5', '{"a":1}x']) {
      await refused('PUT', '/c', body, 400, 'bad_body');
    }
    const wrong = await refused('PUT', '/c', { ...SOURCE, x: SECRET }, 400, 'invalid_connector', /^x: /);
    assert.equal(wrong.field, 'x');
    await refused(
      'PUT',
      '/c',
      { ...SOURCE, connection: { url: `postgres://u:${SECRET}@h/d?x=1` } },
      400,
      'invalid_connector',
      /^connection\.url: /,
    );
    assert.equal((await ask('GET', '/c')).status, 404);

    await put('c', SOURCE);
    await refused('PUT', '/c', { ...SINK, x: 1 }, 400, 'invalid_connector');
    await refused('PUT', '/c', SINK, 409, 'kind_change', /is a source/);
    await put('s', SINK);
    await refused('PUT', '/s', SOURCE, 409, 'kind_change');

    // The stored form has its defaults, and is larger than what was sent.
    const columns = (bytes: number) =>
      Array.from({ length: Math.floor(bytes / 12) }, (_, i) => `c${String(i).padStart(8, '0')}`);
    const wide = (bytes: number) => ({
      ...SOURCE,
      source: { slot: 'wide', tables: [{ table: 't', queue: 'q', partitionBy: columns(bytes) }] },
    });
    const fits = wide(250_000);
    await put('wide', fits);
    const over = wide(261_900);
    assert.ok(JSON.stringify(over).length <= 262_144);
    await refused('PUT', '/wide', over, 413, 'document_too_large');

    for (const [name, document, calls] of [
      ['c', SOURCE, 4],
      ['s', SINK, 3],
      ['new', { ...SINK }, 3],
    ] as const) {
      before(calls, () => put(name, document));
      await refused('PUT', `/${name}`, document, 409, 'conflict');
      await put(name, document);
    }
  });

  test('without a key a password is refused, and nothing else', async () => {
    const { refused, put } = openApi({ sealingKey: null });
    const secret = { ...SOURCE, connection: { ...CONNECTION, password: SECRET } };
    await refused('PUT', '/c', secret, 400, 'encryption_required', /QUEEN_ENCRYPTION_KEY/);
    await put('c', SOURCE);
    await put('c', { ...SOURCE, connection: { ...CONNECTION, password: '' } });
    await refused('PUT', '/c', { ...SINK, connection: secret.connection }, 409, 'kind_change');
  });

  test('a key that does not work', async () => {
    const { refused } = openApi({ sealingKey: { bytes: Buffer.alloc(5) } });
    const secret = { ...SOURCE, connection: { ...CONNECTION, password: SECRET } };
    await refused('PUT', '/c', secret, 500, 'seal_failed');
  });

  test('hosts on private networks, as they are written and as they resolve', async () => {
    const addresses: Record<string, string[]> = {
      good: ['8.8.8.8'],
      bad: ['8.8.8.8', '10.0.0.1'],
      odd: ['::ffff:127.0.0.1'],
    };
    const lookup = async (host: string) => {
      const found = addresses[host] ?? (/^[\d.:a-f]+$/.test(host) ? [host] : null);
      if (found === null) throw Object.assign(new Error(host), { code: 'ENOTFOUND' });
      return found.map((address) => ({
        address,
        family: address.includes(':') ? (6 as const) : (4 as const),
      }));
    };
    const { refused, put } = openApi({ allowPrivate: false, lookup });
    const at = (host: string, over: object = {}) => ({
      ...SOURCE,
      connection: { ...CONNECTION, host, ...over },
    });
    for (const host of ['127.0.0.1', '::1', '10.1.2.3', '169.254.169.254', 'bad', 'odd']) {
      await refused('PUT', '/c', at(host), 400, 'egress_refused', /private network/);
      await refused('PUT', '/c', { ...SINK, connection: { ...CONNECTION, host } }, 400, 'egress_refused');
    }
    for (const host of ['8.8.8.8', 'good', 'nobody-has-this-name']) await put('c', at(host));
    // What the document says comes first, then the network, then what is stored.
    await refused('PUT', '/c', at('127.0.0.1', { x: 1 }), 400, 'invalid_connector');
    await refused(
      'PUT',
      '/c',
      { ...SINK, connection: { ...CONNECTION, host: 'bad' } },
      400,
      'egress_refused',
    );
  });

  test('two sources of a tenant do not share a slot', async () => {
    const { refused, put } = openApi();
    await put('a-b', SOURCE);
    await refused(
      'PUT',
      '/a_b',
      SOURCE,
      400,
      'invalid_connector',
      /^source\.slot: queen_a_b is the slot of connector a-b/,
    );
    await put('a-b', SOURCE);
    await put('a_b', { ...SOURCE, connection: { ...CONNECTION, host: 'elsewhere' } });
    await put('a_b', { ...SOURCE, source: { ...SOURCE.source, slot: 'own' } });
    await put('a_b', { ...SOURCE, connection: { ...CONNECTION, database: 'other' } });
    await put('x', {
      ...SOURCE,
      source: { ...SOURCE.source, slot: 'queen_a_b' },
      connection: { ...CONNECTION, port: 1 },
    });
    await put('a_b', { ...SOURCE, connection: { ...CONNECTION, host: 'h2' } }, randomUUID());
    await put('c', SOURCE, randomUUID());
  });

  test('deletions: of a sink, of a source with its slot and without, once more, and taken back', async () => {
    const { refused, put, ask, get, tenant, before } = openApi();
    await refused('DELETE', '/none', undefined, 404, 'connector_not_found');
    await refused('DELETE', '/none?dropSlot=maybe', undefined, 400, 'bad_request', /true or false/);
    for (const query of ['', '?dropSlot=true', '?dropSlot=false']) {
      await put('s', SINK);
      assert.deepEqual(await ask('DELETE', `/s${query}`), {
        status: 200,
        body: { name: 's', deleted: true },
      });
      await refused('GET', '/s', undefined, 404, 'connector_not_found');
    }
    await put('c', SOURCE);
    const first = await ask('DELETE', '/c');
    assert.deepEqual([first.status, first.body.name, first.body.deleting], [202, 'c', true]);
    assert.match(first.body.detail as string, /queen_c/);
    const marked = await get('c');
    assert.equal((marked.deleting as Json).dropSlot, true);
    assert.deepEqual(await ask('DELETE', '/c?dropSlot=true'), first);
    assert.deepEqual(await get('c'), marked, 'a repeat changes nothing');
    await refused('POST', '/c/resync', undefined, 409, 'deleting');
    assert.equal((await put('c', marked)).deleting, undefined, 'a PUT brings it back');
    await put('c', { ...SOURCE, enabled: false });
    assert.equal((await ask('DELETE', '/c')).status, 202, 'of a disabled one too');

    // Its pointer and lease go with it.
    const { broker } = live;
    const kv = async (...ops: object[]) =>
      broker.kv({ tenant, origin: 'connector', operations: ops as never });
    const entry = (key: string, value: object) => ({
      op: 'put',
      ns: 'queen-pg',
      key,
      value: JSON.stringify(value),
      life: null,
      expect: null,
      required: false,
    });
    await kv(
      entry('src:c:pointer', { lsn: '0/1' }),
      entry('src:c:lease', { node: 'n1' }),
      entry('src:d:pointer', {}),
    );
    assert.deepEqual((await get('c')).state, { pointer: { lsn: '0/1' }, lease: { node: 'n1' } });
    const gone = await ask('DELETE', '/c?dropSlot=false');
    assert.deepEqual([gone.status, gone.body.deleted], [200, true]);
    assert.match(gone.body.warning as string, /queen_c/);
    const rows = await sql<{ key: string }>(
      live.broker.db,
      `SELECT key FROM queen.kv WHERE namespace = 'queen-pg' AND tenant_id = $1::uuid`,
      [tenant],
    );
    assert.deepEqual(
      rows.map(({ key }) => key),
      ['src:d:pointer'],
    );
    await refused('GET', '/c', undefined, 404, 'connector_not_found');

    // A write in between is not lost, nor is the deletion.
    await put('c', SOURCE);
    before(3, () => put('c', { ...SOURCE, enabled: false }));
    assert.equal((await ask('DELETE', '/c')).status, 202);
    const after = await get('c');
    assert.ok(after.enabled === false && after.deleting !== undefined);
  });

  test('resync: of a source, again, of a disabled one, of what is none', async () => {
    const { refused, put, ask, get } = openApi();
    await refused('POST', '/none/resync', undefined, 404, 'connector_not_found');
    await put('s', SINK);
    await refused('POST', '/s/resync', undefined, 400, 'not_a_source');
    await put('c', { ...SOURCE, enabled: false });
    const first = await ask('POST', '/c/resync');
    assert.equal(first.status, 202);
    assert.deepEqual(Object.keys(first.body), ['name', 'resyncRequestedAt']);
    assert.equal((await get('c')).resyncRequestedAt, first.body.resyncRequestedAt);
    const second = await ask('POST', '/c/resync', '{not json');
    assert.ok((second.body.resyncRequestedAt as string) > (first.body.resyncRequestedAt as string));
    assert.equal((await put('c', SOURCE)).resyncRequestedAt, second.body.resyncRequestedAt, 'a PUT keeps it');
  });

  test('a stored document that nobody understands any more', async () => {
    const { refused, put, ask, get, tenant } = openApi();
    const spoil = async () => {
      await put('c', { ...SOURCE, connection: { ...CONNECTION, password: SECRET } });
      await sql(
        live.broker.db,
        `UPDATE queen.connectors SET version = nextval('queen.connector_versions'),
              document = (document::jsonb || '{"future": {"password": "${SECRET}"}}')::json
        WHERE tenant_id = $1::uuid`,
        [tenant],
      );
    };
    await spoil();
    const shown = await get('c');
    assert.deepEqual([shown.name, shown.kind, (shown.connection as Json).passwordSet], ['c', 'source', true]);
    assert.equal(((await ask('GET', '')).body.connectors as Json[]).length, 1);
    await refused('POST', '/c/resync', undefined, 409, 'unreadable_document', /future/);
    await refused('PUT', '/c', SINK, 409, 'kind_change');
    assert.equal(
      ((await put('c', SOURCE)).connection as Json).passwordSet,
      true,
      'a PUT heals it and keeps the password',
    );
    for (const query of ['', '?dropSlot=false']) {
      await spoil();
      const gone = await ask('DELETE', `/c${query}`);
      assert.equal(gone.status, 200);
      assert.match(gone.body.warning as string, /slot/);
      await refused('GET', '/c', undefined, 404, 'connector_not_found');
    }
  });

  test('tenants see their own, under the same names', async () => {
    const { put, ask, get } = openApi();
    const [a, b] = [randomUUID(), randomUUID()];
    await put('c', SOURCE, a);
    await put('c', SINK, b);
    await put('only-b', SINK, b);
    assert.equal((await get('c', a)).kind, 'source');
    assert.equal((await get('c', b)).kind, 'sink');
    const names = async (tenant?: string) =>
      ((await ask('GET', '', undefined, tenant)).body.connectors as Json[]).map(({ name }) => name);
    assert.deepEqual([await names(a), await names(b), await names()], [['c'], ['c', 'only-b'], []]);
    for (const [method, path] of [
      ['GET', '/only-b'],
      ['DELETE', '/only-b'],
      ['POST', '/only-b/resync'],
    ] as const) {
      assert.equal((await ask(method, path, undefined, a)).status, 404);
    }
    await ask('DELETE', '/c?dropSlot=false', undefined, a);
    assert.deepEqual(await names(b), ['c', 'only-b']);
  });

  test('a sealed password of another connector or tenant is not taken over', async () => {
    const { put, stored, tenant } = openApi();
    await put('c', { ...SOURCE, connection: { ...CONNECTION, password: SECRET } });
    const { connection } = JSON.parse(await stored('c'));
    assert.equal(openPassword(KEY, { tenant, name: 'c' }, connection.passwordSealed), SECRET);
    assert.throws(() => openPassword(KEY, { tenant, name: 'd' }, connection.passwordSealed), {
      code: 'unseal',
    });
  });
});
