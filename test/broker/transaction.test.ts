/** Transactions and KV over the wire, in the shapes that the client libraries send and require. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { Client } from './client.ts';

interface Result {
  index: number;
  type: string;
  opIndex?: number;
  success?: boolean;
  transactionId?: string;
  messageId?: string;
  queueName?: string;
  duplicate?: boolean;
  error?: string | null;
  dlq?: boolean;
  noop?: boolean;
  op?: string;
  applied?: boolean;
  found?: boolean;
  key?: string;
  value?: unknown;
  version?: number;
  reason?: string;
}

interface Answer {
  transactionId: string;
  success: boolean;
  results: Result[];
  reason?: string;
  error?: string;
  code?: string;
  field?: string;
  ok?: boolean;
  failedIndex?: number;
  kvReason?: string;
  version?: number;
  value?: unknown;
}

type Body = Record<string, unknown>;

test('transactions and KV over the wire', async (t) => {
  const database = await freshDatabase(t);
  const env = { QUEEN_KV_READS_PER_SEC: '0', QUEEN_KV_WRITES_PER_SEC: '0' };
  const broker = await startBroker({ database, env }, t);
  const client = new Client(broker.url);
  const transact = (body: Body | string) => client.call<Answer>('POST', '/api/v1/transaction', body);
  const committed = async (body: Body) => {
    const { status, body: answer } = await transact({ operations: [], ...body });
    assert.deepEqual([status, answer.success], [200, true], JSON.stringify(answer));
    return answer;
  };
  const kv = async (...operations: Body[]) => {
    const { status, body } = await client.call<{ results: Result[] }>('POST', '/api/v1/kv', { operations });
    assert.equal(status, 200, JSON.stringify(body));
    return body.results;
  };

  await t.test('as the client library sends it: ack and push in one call', async () => {
    await client.push([{ queue: 'in', payload: { n: 1 }, transactionId: 'order-1' }]);
    const [message] = await client.pop('in', { consumerGroup: 'w', subscriptionMode: 'all' });
    const answer = await committed({
      operations: [
        {
          type: 'ack',
          transactionId: message!.transactionId,
          partitionId: message!.partitionId,
          status: 'completed',
          consumerGroup: 'w',
        },
        {
          type: 'push',
          items: [
            {
              queue: 'out',
              payload: { n: 2 },
              transactionId: 'order-1-out',
              partition: 'p',
              traceId: 'none',
            },
            { queue: 'out', data: [1.1], partition: 'p' },
            { queue: 'out', partition: 'p' },
          ],
        },
        { type: 'push', queue: 'flat', data: 'x' },
      ],
      requiredLeases: [message!.leaseId],
      kv: [{ op: 'put', ns: 'orders', key: 'a', value: 1, forever: true }],
      timers: null,
    });
    assert.match(answer.transactionId, /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
    assert.deepEqual(
      answer.results.map((result) => [result.index, result.type, result.success ?? result.applied]),
      [
        [0, 'ack', true],
        [1, 'push', true],
        [2, 'push', true],
        [3, 'push', true],
        [4, 'push', true],
        [5, 'kv', true],
      ],
    );
    const [ack, pushed] = answer.results;
    assert.deepEqual([ack!.transactionId, ack!.error, ack!.dlq], ['order-1', null, false]);
    assert.deepEqual([pushed!.transactionId, pushed!.queueName], ['order-1-out', 'out']);
    const put = answer.results[5]!;
    assert.deepEqual(
      [put.opIndex, put.op, put.key, put.value, typeof put.version],
      [0, 'put', 'a', 1, 'number'],
    );
    assert.equal('reason' in put, false);
    const out = await client.pop('out', { batch: 10 });
    assert.deepEqual(
      out.map((each) => each.data),
      [{ n: 2 }, [1.1], {}],
    );
    assert.equal((await client.pop('flat'))[0]!.data, 'x');
    assert.deepEqual(await client.pop('in', { consumerGroup: 'w' }), []);
  });

  await t.test('what the database decides against is 200, with a reason and the place', async () => {
    const body = { operations: [{ type: 'push', queue: 'd', transactionId: 't' }] };
    await committed(body);
    const { status, body: answer } = await transact({
      operations: [{ type: 'push', queue: 'other' }, ...body.operations],
    });
    assert.equal(status, 200);
    assert.deepEqual(
      [answer.success, answer.reason, answer.results, answer.failedIndex, typeof answer.error],
      [false, 'duplicate', [], 1, 'string'],
    );
    assert.deepEqual(await client.pop('other'), []);
    const twice = await committed({
      operations: [
        {
          type: 'push',
          items: [
            { queue: 'd', transactionId: 'u' },
            { queue: 'd', transactionId: 'u' },
          ],
        },
      ],
    });
    assert.deepEqual([twice.results[0]!.duplicate, twice.results[1]!.duplicate], [undefined, true]);
    assert.equal(twice.results[0]!.messageId, twice.results[1]!.messageId);

    const ghost = await transact({ operations: [{ type: 'ack', transactionId: 'x', partitionId: '1' }] });
    assert.deepEqual([ghost.status, ghost.body.success, ghost.body.reason], [200, false, 'ack_rejected']);

    await kv({ op: 'put', ns: 'n', key: 'gate', value: { by: 'x' }, forever: true });
    const lost = await transact({
      operations: [{ type: 'push', queue: 'other' }],
      kv: [{ op: 'putIfAbsent', ns: 'n', key: 'gate', value: 1, ttlSeconds: 5, required: true }],
    });
    assert.equal(lost.status, 200);
    const { transactionId: _, ...rest } = lost.body;
    assert.deepEqual(
      { ...rest, version: typeof rest.version },
      {
        success: false,
        ok: false,
        reason: 'kv_precondition',
        error: 'kv_precondition_failed',
        failedIndex: 1,
        kvReason: 'exists',
        version: 'number',
        value: { by: 'x' },
        results: [],
      },
    );
    await kv({ op: 'put', ns: 'n', key: 'gate', value: 'x'.repeat(4095), forever: true });
    const large = await transact({
      operations: [],
      kv: [{ op: 'putIfAbsent', ns: 'n', key: 'gate', value: 1, ttlSeconds: 5, required: true }],
    });
    assert.equal('value' in large.body, false);
  });

  await t.test('what is malformed is 400 in the same shape, and nothing is written', async () => {
    const push = { type: 'push', queue: 'never', payload: 1 };
    const put = { op: 'put', ns: 'n', key: 'never', value: 1, forever: true };
    const cases: [string, Body | string, string?][] = [
      ['not JSON', '{"operations":['],
      ['empty body', ''],
      ['no operations', { kv: [put] }],
      ['nothing at all', { operations: [] }],
      ['unknown type', { operations: [push, { type: 'kv', op: 'get' }] }],
      ['type missing', { operations: [push, {}] }],
      ['not an object', { operations: [push, 7] }],
      ['no queue', { operations: [push, { type: 'push', payload: 1 }] }],
      ['control character', { operations: [push, { type: 'push', queue: 'a\u001fb' }] }],
      ['long id', { operations: [push, { type: 'push', queue: 'q', transactionId: 'x'.repeat(65_536) }] }],
      ['items no array', { operations: [push, { type: 'push', items: {} }] }],
      ['ack status no text', { operations: [push, { type: 'ack', status: 1 }] }],
      ['leases no array', { operations: [push], requiredLeases: 'x' }],
      ['lease no text', { operations: [push], requiredLeases: [1] }],
      ['kv no array', { operations: [push], kv: {} }, 'kv_bad_body'],
      ['kv unknown', { operations: [push], kv: [{ op: 'x' }] }, 'kv_unknown_op'],
      ['kv life', { operations: [push], kv: [{ ...put, forever: false }] }, 'kv_expiry_not_specified'],
      [
        'kv prefix',
        { operations: [push], kv: [{ op: 'getPrefix', ns: 'n', prefix: 'a' }] },
        'kv_get_prefix_not_allowed_in_transaction',
      ],
      ['kv many', { operations: [push], kv: Array.from({ length: 65 }, () => put) }, 'kv_too_many_ops'],
      [
        'kv twice',
        { operations: [push], kv: [put, { ...put, op: 'putIfAbsent' }] },
        'kv_duplicate_key_in_call',
      ],
    ];
    for (const [name, body, code] of cases) {
      const { status, body: answer } = await transact(body);
      assert.deepEqual([status, answer.success, answer.reason], [400, false, 'bad_request'], name);
      assert.equal(typeof answer.error, 'string', name);
      assert.deepEqual(answer.results, [], name);
      if (code !== undefined) assert.equal(answer.code, code, name);
    }
    const reserved = await transact({ operations: [push], kv: [{ ...put, ns: 'queen-pg' }] });
    assert.deepEqual([reserved.status, reserved.body.error], [403, 'kv_reserved_namespace']);
    const value = await transact({ operations: [push], kv: [{ ...put, value: 'x'.repeat(65_535) }] });
    assert.deepEqual(
      [value.status, value.body.error, value.body.code],
      [413, 'payload_too_large', 'kv_value_too_large'],
    );
    assert.deepEqual(await client.pop('never'), []);
    assert.equal((await kv({ op: 'get', ns: 'n', key: 'never' }))[0]!.found, false);
  });

  await t.test('KV: the batch route', async () => {
    assert.deepEqual(await kv(), []);
    const results = await kv(
      { op: 'put', ns: 'c', key: 'k/1', value: null, ttlSeconds: 60 },
      { op: 'get', ns: 'c', key: 'k/1' },
      { op: 'incr', ns: 'c', key: 'n', delta: 0.1, forever: true },
      { op: 'getMany', ns: 'c', keys: ['n', 'x'] },
      { op: 'getPrefix', ns: 'c', prefix: 'k', keysOnly: true },
      { op: 'delete', ns: 'c', key: 'gone' },
    );
    assert.deepEqual(
      results.map((result) => [result.index, result.op]),
      [
        [0, 'put'],
        [1, 'get'],
        [2, 'incr'],
        [3, 'getMany'],
        [4, 'getPrefix'],
        [5, 'delete'],
      ],
    );
    const got = results[1] as Result & { expiresAt: string; updatedAt: string };
    assert.deepEqual([got.found, got.key, got.value], [true, 'k/1', null]);
    assert.match(got.expiresAt, /^\d{4}-.*\.\d{6}Z$/);
    assert.equal(results[2]!.value, 0.1);
    assert.deepEqual(results[5], {
      index: 5,
      op: 'delete',
      applied: false,
      key: 'gone',
      value: null,
      version: 0,
      reason: 'absent',
    });
    const raw = await fetch(`${broker.url}/api/v1/kv`, {
      method: 'POST',
      body: '{"operations":[{"op":"put","ns":"c","key":"digits","value":{"n":123456789012345678901234567890.10},"forever":true},{"op":"get","ns":"c","key":"digits"}]}',
    });
    assert.match(
      await raw.text(),
      /"value":\{"n":123456789012345678901234567890\.10\}.*"value":\{"n":123456789012345678901234567890\.10\}/,
    );
    const lost = await client.call('POST', '/api/v1/kv', {
      operations: [{ op: 'putIfAbsent', ns: 'c', key: 'n', value: 1, forever: true, required: true }],
    });
    assert.equal(lost.status, 200);
    assert.deepEqual(
      { ...lost.body, version: 0 },
      { ok: false, reason: 'kv_precondition', failedIndex: 0, kvReason: 'exists', version: 0, value: 0.1 },
    );
  });

  await t.test('KV: every refusal by its codes', async () => {
    const put = { op: 'put', ns: 'n', key: 'k', value: 1, forever: true };
    const { forever: _, ...lifeless } = put;
    const { value: __, ...valueless } = put;
    const cases: [number, string, string, unknown[] | string | Body][] = [
      [400, 'kv_bad_request', 'kv_bad_body', '{'],
      [400, 'kv_bad_request', 'kv_bad_body', {}],
      [400, 'kv_bad_request', 'kv_bad_body', { operations: {} }],
      [400, 'kv_bad_request', 'kv_bad_body', [7]],
      [400, 'kv_bad_request', 'kv_unknown_op', [{ op: 'GET', ns: 'n', key: 'k' }]],
      [400, 'kv_bad_request', 'kv_unknown_op', [{}]],
      [400, 'kv_bad_request', 'kv_bad_namespace', [{ ...put, ns: 'Upper' }]],
      [400, 'kv_bad_request', 'kv_bad_namespace', [{ ...put, ns: `a${'x'.repeat(64)}` }]],
      [400, 'kv_bad_request', 'kv_bad_namespace', [{ op: 'get', key: 'k' }]],
      [400, 'kv_bad_request', 'kv_bad_key', [{ ...put, key: '' }]],
      [400, 'kv_bad_request', 'kv_bad_key', [{ ...put, key: 'a\u0000b' }]],
      [400, 'kv_bad_request', 'kv_bad_key', [{ ...put, key: 7 }]],
      [400, 'kv_bad_request', 'kv_bad_key', [{ ...put, key: '\ud800' }]],
      [400, 'kv_bad_request', 'kv_bad_key', [{ op: 'getMany', ns: 'n', keys: [] }]],
      [400, 'kv_bad_request', 'kv_bad_key', [{ op: 'getMany', ns: 'n', keys: [1] }]],
      [400, 'kv_bad_request', 'kv_bad_ttl', [{ ...put, ttlSeconds: 5 }]],
      [400, 'kv_bad_request', 'kv_bad_ttl', [{ ...lifeless, ttlSeconds: 0 }]],
      [400, 'kv_bad_request', 'kv_bad_ttl', [{ ...lifeless, ttlSeconds: 1.5 }]],
      [400, 'kv_bad_request', 'kv_bad_ttl', [{ ...lifeless, ttlSeconds: '5' }]],
      [400, 'kv_bad_request', 'kv_expiry_not_specified', [lifeless]],
      [400, 'kv_bad_request', 'kv_expiry_not_specified', [{ ...put, forever: false }]],
      [400, 'kv_bad_request', 'kv_expiry_not_specified', [{ op: 'incr', ns: 'n', key: 'k', delta: 1 }]],
      [400, 'kv_bad_request', 'kv_bad_expect', [{ ...put, expect: null }]],
      [400, 'kv_bad_request', 'kv_bad_expect', [{ ...put, expect: '7' }]],
      [400, 'kv_bad_request', 'kv_bad_expect', [{ ...put, expect: -1 }]],
      [400, 'kv_bad_request', 'kv_bad_expect', [{ ...put, expect: 1.5 }]],
      [400, 'kv_bad_request', 'kv_bad_expect', [{ op: 'delete', ns: 'n', key: 'k', expect: null }]],
      [400, 'kv_bad_request', 'kv_bad_expect', [{ ...put, op: 'incr', delta: 1, expect: 0 }]],
      [400, 'kv_bad_request', 'kv_bad_delta', [{ op: 'incr', ns: 'n', key: 'k', forever: true }]],
      [400, 'kv_bad_request', 'kv_bad_delta', [{ op: 'incr', ns: 'n', key: 'k', delta: '1', forever: true }]],
      [400, 'kv_bad_request', 'kv_value_required', [valueless]],
      [400, 'kv_bad_request', 'kv_unknown_field', [{ ...put, ttl: 5 }]],
      [400, 'kv_bad_request', 'kv_tenant_not_an_input', [{ ...put, tenantId: 'x' }]],
      [400, 'kv_bad_request', 'kv_tenant_not_an_input', [{ ...put, tenant: 'x' }]],
      [400, 'kv_bad_request', 'kv_prefix_required', [{ op: 'getPrefix', ns: 'n', prefix: '' }]],
      [400, 'kv_bad_request', 'kv_prefix_required', [{ op: 'getPrefix', ns: 'n' }]],
      [
        400,
        'kv_bad_request',
        'kv_too_many_ops',
        Array.from({ length: 257 }, () => ({ op: 'get', ns: 'n', key: 'k' })),
      ],
      [
        400,
        'kv_bad_request',
        'kv_too_many_keys',
        [{ op: 'getMany', ns: 'n', keys: Array.from({ length: 1025 }, (_, i) => `k${i}`) }],
      ],
      [400, 'kv_bad_request', 'kv_duplicate_key_in_call', [put, { op: 'delete', ns: 'n', key: 'k' }]],
      [413, 'payload_too_large', 'kv_key_too_large', [{ ...put, key: 'é'.repeat(257) }]],
      [413, 'payload_too_large', 'kv_value_too_large', [{ ...put, value: 'x'.repeat(65_535) }]],
      [403, 'kv_reserved_namespace', 'kv_reserved_namespace', [{ ...put, ns: 'queen-pg' }]],
    ];
    for (const [status, error, reason, operations] of cases) {
      const body = Array.isArray(operations)
        ? { operations: [{ ...put, key: 'first' }, ...operations] }
        : operations;
      const over =
        reason === 'kv_too_many_ops' || typeof operations === 'string' || !Array.isArray(operations);
      const answer = await client.call(
        'POST',
        '/api/v1/kv',
        over && Array.isArray(operations) ? { operations } : body,
      );
      const seen = [answer.status, answer.body.error, answer.body.reason];
      assert.deepEqual(seen, [status, error, reason], JSON.stringify(operations).slice(0, 200));
    }
    const [first] = await kv({ op: 'get', ns: 'n', key: 'first' });
    assert.equal(first!.found, false, 'nothing of a refused call is applied');
    assert.equal((await kv({ op: 'get', ns: 'queen-pg', key: 'x' }))[0]!.found, false);
  });

  await t.test('KV: the path routes', async () => {
    const at = (path: string, init?: RequestInit) => fetch(`${broker.url}/api/v1/kv/${path}`, init);
    const missing = await at('paths/a%2Fb/c');
    assert.deepEqual([missing.status, missing.headers.get('etag')], [200, null]);
    assert.deepEqual(await missing.json(), { index: 0, op: 'get', found: false, key: 'a/b/c' });
    const put = await at('paths/a%2Fb/c', { method: 'PUT', body: '{"value":{"x":1.50},"ttlSeconds":60}' });
    const written = (await put.json()) as Result;
    assert.deepEqual([put.status, written.applied, written.key], [200, true, 'a/b/c']);
    const got = await at('paths/a/b/c');
    assert.equal(got.headers.get('etag'), `"${written.version}"`);
    assert.match(await got.text(), /"value":\{"x":1\.50\}/);
    // However the path is written that leads here, the key is what stands behind the namespace.
    const escaped = await fetch(`${broker.url}/api/v1/%6bv/paths/a/b/c`);
    assert.equal(((await escaped.json()) as Result).key, 'a/b/c');
    const other = await at('paths/a/b/c', { method: 'PUT', body: '{"value":2,"forever":true,"expect":1}' });
    assert.deepEqual([other.status, ((await other.json()) as Result).reason], [200, 'version']);
    for (const body of [
      '{"key":"x"}',
      '{"op":"get"}',
      '{"ns":"n"}',
      '{"namespace":"n"}',
      '{"tenant":"n"}',
      '{',
      '[]',
      '',
    ]) {
      const refused = await at('paths/k', { method: 'PUT', body });
      assert.deepEqual(
        [refused.status, ((await refused.json()) as Answer).error],
        [400, 'kv_bad_request'],
        body,
      );
    }
    for (const [method, path] of [
      ['GET', 'paths/k?x=1'],
      ['GET', 'paths/k?'],
      ['PUT', 'paths/k?x'],
      ['DELETE', 'paths/k?x'],
    ] as const) {
      const refused = await client.call(
        method,
        `/api/v1/kv/${path}`,
        method === 'PUT' ? '{"value":1,"forever":true}' : undefined,
      );
      if (path.endsWith('?')) continue;
      assert.deepEqual([refused.status, refused.body.reason], [400, 'kv_no_query_string'], path);
    }
    assert.equal((await at('paths/')).status, 400);
    assert.equal((await at('Bad/k')).status, 400);
    const gone = (await (await at('paths/a/b/c', { method: 'DELETE' })).json()) as Result;
    assert.deepEqual([gone.applied, gone.value, gone.version], [true, { x: 1.5 }, written.version]);
    const again = (await (
      await at('paths/a/b/c', { method: 'DELETE', body: '{"expect":7}' })
    ).json()) as Result;
    assert.deepEqual([again.applied, again.reason], [false, 'absent']);
  });

  await t.test('KV: console reads', async () => {
    await kv({ op: 'put', ns: 'zz', key: 'a', value: 'é', forever: true });
    const names = await client.call<{ namespaces: { namespace: string; keys: number }[] }>(
      'GET',
      '/api/v1/resources/kv/namespaces',
    );
    assert.deepEqual(names.body.namespaces.at(-1), { namespace: 'zz', keys: 1 });
    const list = (body: Body) => client.call('POST', '/api/v1/resources/kv/list', body);
    const page = await list({ namespace: 'zz' });
    assert.equal(page.status, 200);
    const rows = page.body.rows as Result[];
    assert.deepEqual(
      rows.map(({ key, value, version, ...rest }) => ({
        key,
        value,
        version: typeof version,
        ...rest,
        updatedAt: 0,
      })),
      [{ key: 'a', value: 'é', version: 'number', expiresAt: null, updatedAt: 0, expired: false }],
    );
    assert.deepEqual([page.body.truncated, page.body.nextAfter, page.body.bytes], [false, null, 4]);
    assert.equal((await list({ namespace: 'zz', keysOnly: true })).body.bytes, 0);
    assert.deepEqual((await list({ namespace: 'unknown' })).body.rows, []);
    assert.equal((await list({ namespace: 'NO' })).status, 400);
    assert.equal((await list({})).status, 400);
    assert.equal((await client.call('GET', '/api/v1/resources/kv/namespaces?x=1')).status, 400);
  });

  await t.test('KV: the switch of the cluster', async () => {
    const admin = await database.open();
    await admin.query({
      name: '',
      text: `INSERT INTO queen.system_state (key, value) VALUES ('kv_enabled', '{"enabled":false}')`,
    });
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    const get = { operations: [{ op: 'get', ns: 'n', key: 'k' }] };
    const off = await fetch(`${broker.url}/api/v1/kv`, { method: 'POST', body: JSON.stringify(get) });
    assert.deepEqual([off.status, ((await off.json()) as Answer).error], [503, 'kv_disabled']);
    assert.ok(Number(off.headers.get('retry-after')) > 0);
    const rider = await transact({ operations: [], kv: get.operations });
    assert.deepEqual([rider.status, rider.body.error, rider.body.success], [403, 'kv_disabled', false]);
    await committed({ operations: [{ type: 'push', queue: 'without-kv' }] });
    await admin.query({ name: '', text: 'DELETE FROM queen.system_state' });
    await admin.close();
  });
});
