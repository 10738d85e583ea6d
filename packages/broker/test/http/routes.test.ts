/** Lease, configure, resources, probes and metrics. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EngineError, refused } from '../../src/engine/errors.ts';
import { OPTIONS } from './fake_broker.ts';
import { openWire } from './wire.ts';

const LEASE = '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11';

async function call(url: string, method: string, path: string, body?: string) {
  const answer = await fetch(url + path, body === undefined ? { method } : { method, body });
  return { status: answer.status, json: JSON.parse(await answer.text()) };
}

test('extend: seconds default to 60 and are at least 1', async (t) => {
  const wire = await openWire(t);
  const seconds = async (body?: string) => {
    const { status } = await call(wire.url, 'POST', `/api/v1/lease/${LEASE}/extend`, body);
    assert.equal(status, 200, body);
    return wire.broker.extensions.at(-1)![2];
  };
  assert.equal(await seconds(), 60);
  for (const body of ['', '{}', 'nonsense', '{"seconds":', '{"seconds":null}', '[]', 'null', '7']) {
    assert.equal(await seconds(body), 60, body);
  }
  assert.equal(await seconds('{"seconds":5}'), 5);
  assert.equal(await seconds('{"seconds":0}'), 1);
  assert.equal(await seconds('{"seconds":-7}'), 1);
  for (const body of ['{"seconds":"5"}', '{"seconds":1.5}', '{"seconds":3000000000}', '{"seconds":true}']) {
    const { status, json } = await call(wire.url, 'POST', `/api/v1/lease/${LEASE}/extend`, body);
    assert.deepEqual([status, json.field], [400, 'seconds'], body);
  }
});

test('extend: the answer, an id that was never minted, a failure', async (t) => {
  const wire = await openWire(t);
  wire.broker.onExtend = async () => ({ renewed: 2, expiresAtMicros: 1_785_409_364_512_873 });
  const at = '2026-07-30T11:02:44.512873Z';
  assert.deepEqual((await call(wire.url, 'POST', `/api/v1/lease/${LEASE}/extend`)).json, {
    leaseId: LEASE,
    success: true,
    renewed: 2,
    newExpiresAt: at,
    expiresAt: at,
    lease_expires_at: at,
  });
  const before = wire.broker.extensions.length;
  for (const id of ['x', '%00', 'a%2Fb', 'ü']) {
    const { status, json } = await call(wire.url, 'POST', `/api/v1/lease/${id}/extend`);
    assert.equal(status, 200);
    assert.deepEqual([json.success, json.renewed, json.newExpiresAt], [false, 0, null]);
  }
  assert.equal(wire.broker.extensions.length, before);
  wire.broker.onExtend = async () => {
    throw new EngineError('unavailable', 'timeout', 'canceled');
  };
  const failed = await call(wire.url, 'POST', `/api/v1/lease/${LEASE}/extend`);
  assert.deepEqual([failed.status, failed.json.error], [500, 'renew failed: canceled']);
});

test('configure: the body of the client, its answer', async (t) => {
  const wire = await openWire(t);
  const body = {
    queue: 'orders',
    namespace: null,
    task: null,
    options: { leaseTime: 300, retryLimit: 3, unknown: [1] },
  };
  const { status, json } = await call(wire.url, 'POST', '/api/v1/configure', JSON.stringify(body));
  assert.equal(status, 200);
  const { tenant: _tenant, ...wish } = wire.broker.configures[0]!;
  assert.deepEqual(wish, { queue: 'orders', mode: 'merge', options: { leaseTime: 300, retryLimit: 3 } });
  const { namespace: _n, task: _t, ...rest } = OPTIONS;
  assert.deepEqual(json, {
    configured: true,
    queueId: '7',
    partitionId: null,
    queue: 'orders',
    namespace: '',
    task: '',
    storage: 'segments',
    options: rest,
    // Most likely a misspelling: it did nothing, and the answer says so.
    ignored: ['unknown'],
  });
  assert.equal(Object.keys(json.options).length, 19);
});

test('configure: where options are read from', async (t) => {
  const wire = await openWire(t);
  const options = async (body: unknown) => {
    const { status, json } = await call(wire.url, 'POST', '/api/v1/configure', JSON.stringify(body));
    assert.equal(status, 200, json.error);
    return wire.broker.configures.at(-1)!.options;
  };
  assert.deepEqual(await options({ queue: 'q', leaseTime: 5, ttl: null }), { leaseTime: 5, ttl: null });
  assert.deepEqual(await options({ queue: 'q', options: null, leaseTime: 5 }), { leaseTime: 5 });
  assert.deepEqual(await options({ queue: 'q', options: {}, leaseTime: 5 }), {});
  assert.deepEqual(await options({ queue: 'q', namespace: '', task: 't' }), { task: 't' });
  assert.deepEqual(await options({ queue: 'q', namespace: 'n', options: { namespace: 'm', task: '' } }), {
    namespace: 'n',
    task: '',
  });
  assert.deepEqual(await options({ queue: 'q', options: { replace: true, mode: 'x', namespace: null } }), {
    namespace: null,
  });
  assert.deepEqual(await options({ queue: '', mode: null }), {});
  const hostile = '{"queue":"q","options":{"__proto__":{"leaseTime":1},"constructor":1}}';
  await call(wire.url, 'POST', '/api/v1/configure', hostile);
  assert.deepEqual(wire.broker.configures.at(-1)!.options, {});
  await options({ queue: 'q', mode: 'replace' });
  assert.equal(wire.broker.configures.at(-1)!.mode, 'replace');
});

test('configure: bad bodies are 400 with the field and what is allowed', async (t) => {
  const wire = await openWire(t);
  const cases: [string, string | undefined, RegExp][] = [
    ['', undefined, /object/],
    ['{', undefined, /bad body/],
    ['[]', undefined, /object/],
    ['{}', 'queue', /missing/],
    ['{"queue":7}', 'queue', /string/],
    ['{"queue":null}', 'queue', /string/],
    ['{"queue":"\\u0000"}', 'queue', /control/],
    ['{"queue":"\\ud800"}', 'queue', /surrogate/],
    [`{"queue":"${'x'.repeat(256)}"}`, 'queue', /255/],
    ['{"queue":"q","mode":"patch"}', 'mode', /mode must be "merge" or "replace", got "patch"/],
    ['{"queue":"q","mode":7}', 'mode', /mode must be "merge" or "replace", got 7/],
    ['{"queue":"q","options":[]}', 'options', /object/],
    ['{"queue":"q","options":"x"}', 'options', /object/],
    ['{"queue":"q","namespace":7}', 'namespace', /string/],
    ['{"queue":"q","options":{"leaseTime":"5"}}', 'options.leaseTime', /integer between/],
    ['{"queue":"q","options":{"leaseTime":1.5}}', 'options.leaseTime', /integer between/],
    ['{"queue":"q","options":{"leaseTime":1e400}}', 'options.leaseTime', /integer between/],
    ['{"queue":"q","retryLimit":99999999999}', 'retryLimit', /integer between/],
    ['{"queue":"q","options":{"deadLetterQueue":"true"}}', 'options.deadLetterQueue', /true or false/],
    ['{"queue":"q","options":{"task":"\\u001f"}}', 'options.task', /control/],
    ['{"queue":"q","options":{"retentionSinkHold":"a b"}}', 'options.retentionSinkHold', /letters/],
    [
      '{"queue":"q","options":{"retentionSinkHoldMaxSeconds":59}}',
      'options.retentionSinkHoldMaxSeconds',
      /60/,
    ],
    [`{"queue":"q","x":${'['.repeat(5000)}`, undefined, /deeper/],
  ];
  for (const [body, field, message] of cases) {
    const { status, json } = await call(wire.url, 'POST', '/api/v1/configure', body);
    assert.equal(status, 400, body.slice(0, 90));
    assert.equal(json.field, field, `${body.slice(0, 90)}: ${json.error}`);
    assert.match(json.error, message);
    if (field?.includes('retentionSink')) assert.equal(json.invalid, field.slice('options.'.length));
  }
  assert.equal(wire.broker.configures.length, 0);
  wire.broker.onConfigure = async () => {
    throw refused('encryption_required', 'no key');
  };
  const refusal = await call(wire.url, 'POST', '/api/v1/configure', '{"queue":"q"}');
  assert.deepEqual([refusal.status, refusal.json.code], [400, 'encryption_required']);
  wire.broker.onConfigure = async () => {
    throw new EngineError('in_doubt', 'connection', 'lost');
  };
  const failed = await call(wire.url, 'POST', '/api/v1/configure', '{"queue":"q"}');
  assert.deepEqual([failed.status, failed.json.error], [500, 'configure failed: lost']);
});

test('resources: list, inspect, depth, delete, groupings', async (t) => {
  const wire = await openWire(t);
  const { broker, url } = wire;
  const list = await call(url, 'GET', '/api/v1/resources/queues?namespace=x');
  assert.deepEqual([list.json.kvRows, list.json.kvBytes, list.json.timerBytes], [1, 2, 3]);
  assert.deepEqual(list.json.queues[0], {
    id: '7',
    name: 'orders',
    namespace: 'n',
    task: 't',
    createdAt: '2026-07-30T11:02:44.512873Z',
    partitions: 2,
    retainedBytes: 10,
    segments: { segments: 1, messages: 3 },
    messages: { total: 3, pending: 2, processing: 1 },
  });
  for (const path of ['/api/v1/resources/queues/q', '/api/v1/resources/queues/q/depth']) {
    const missing = await call(url, 'GET', path);
    assert.deepEqual([missing.status, missing.json.error], [404, 'Queue not found']);
  }
  const stats = { total: 3, pending: 2, processing: 1, completed: 1, deadLetter: 0 };
  broker.detail = {
    id: '7',
    name: 'orders',
    createdAtMicros: 0,
    options: { ...OPTIONS, namespace: 'n' },
    partitions: [
      { id: '42', name: 'eu', createdAtMicros: 0, stats, oldestMessageMicros: 1, newestMessageMicros: null },
    ],
    totals: stats,
    retainedBytes: 5,
    segments: { segments: 1, messages: 3 },
  };
  const detail = (await call(url, 'GET', '/api/v1/resources/queues/orders')).json;
  assert.deepEqual(Object.keys(detail.options).length, 21);
  assert.deepEqual(detail.totals, { ...stats, failed: null });
  assert.deepEqual([detail.namespace, detail.task], ['n', '']);
  assert.deepEqual(detail.partitions[0], {
    id: '42',
    name: 'eu',
    createdAt: '1970-01-01T00:00:00.000000Z',
    stats: { ...stats, failed: null },
    oldestMessage: '1970-01-01T00:00:00.000001Z',
    newestMessage: null,
  });
  broker.depth = {
    conflation: true,
    partitions: [
      { partition: 'a', pending: 5, processing: 2 },
      { partition: 'b', pending: 1, processing: 1 },
      { partition: 'c', pending: 0, processing: 0 },
    ],
  };
  assert.deepEqual((await call(url, 'GET', '/api/v1/resources/queues/orders/depth?group=g%20h')).json, {
    queue: 'orders',
    group: 'g h',
    pending: 6,
    processing: 3,
    ready: 3,
    partitionsPending: 2,
    partitionsReady: 1,
    conflation: true,
    effectivePending: 2,
    effectiveReady: 1,
    partitions: [
      { partition: 'a', pending: 5, processing: 2, ready: 3 },
      { partition: 'b', pending: 1, processing: 1, ready: 0 },
      { partition: 'c', pending: 0, processing: 0, ready: 0 },
    ],
  });
  await call(url, 'GET', '/api/v1/resources/queues/orders/depth?group=');
  assert.deepEqual(broker.depthGroups, [null, 'g h', null]);
  assert.deepEqual(await call(url, 'DELETE', '/api/v1/resources/queues/orders'), {
    status: 200,
    json: { deleted: true, queue: 'orders', existed: true },
  });
  assert.deepEqual(await call(url, 'DELETE', '/api/v1/resources/queues/none'), {
    status: 200,
    json: { deleted: false, queue: 'none', existed: false, message: 'Queue not found, nothing was deleted' },
  });
  const grouping = { queues: 1, partitions: 2, messages: { total: 3, pending: 2 } };
  assert.deepEqual((await call(url, 'GET', '/api/v1/resources/namespaces')).json, {
    namespaces: [{ namespace: 'n', ...grouping }],
  });
  assert.deepEqual((await call(url, 'GET', '/api/v1/resources/tasks')).json, {
    tasks: [{ task: 't', ...grouping }],
  });
});

test('probes: liveness never asks the database, readiness says 503 without it', async (t) => {
  const wire = await openWire(t);
  const healthy = await call(wire.url, 'GET', '/health');
  assert.deepEqual(
    [healthy.status, healthy.json.status, healthy.json.database],
    [200, 'healthy', 'connected'],
  );
  for (const onHealthy of [async () => false, () => Promise.reject(new Error('down'))]) {
    wire.broker.onHealthy = onHealthy;
    const down = await call(wire.url, 'GET', '/health');
    assert.deepEqual([down.status, down.json.status, down.json.database], [503, 'unhealthy', 'disconnected']);
    assert.equal((await call(wire.url, 'GET', '/health/live')).status, 200);
    assert.equal((await call(wire.url, 'GET', '/status')).json.status, 'ok');
    assert.equal((await fetch(`${wire.url}/metrics/prometheus`)).status, 200);
  }
});

test('metrics: JSON and the text format, whatever a source does', async (t) => {
  const wire = await openWire(t, { pool: () => ({ size: 4, idle: 3, waiting: 2 }) });
  await fetch(`${wire.url}/api/v1/push`, { method: 'POST', body: '{"items":[{"queue":"q","payload":1}]}' });
  const { json } = await call(wire.url, 'GET', '/metrics');
  assert.deepEqual(json.database, { poolSize: 4, idleConnections: 3, waitingRequests: 2 });
  assert.equal(json.requests.total, 1);
  assert.ok(json.memory.rss > 0 && json.uptime > 0);
  wire.metrics.sources({
    queen_db_pool_size: () => {
      throw new Error('no database');
    },
    queen_db_pool_idle: () => Promise.reject(new Error('no database')),
    queen_parked_long_polls: () => [{ labels: { queue: 'a"b\\c\nd' }, value: 2 }],
    queen_dedup_suppressed_partitions: async () => 3,
  });
  const answer = await fetch(`${wire.url}/metrics/prometheus`);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
  assert.equal(answer.headers.get('cache-control'), 'no-cache');
  const text = await answer.text();
  assert.match(
    text,
    /^# TYPE queen_process_push_messages_total counter\nqueen_process_push_messages_total 1$/m,
  );
  assert.match(text, /^queen_parked_long_polls\{queue="a\\"b\\\\c\\nd"\} 2$/m);
  assert.match(text, /^queen_dedup_suppressed_partitions 3$/m);
  assert.doesNotMatch(text, /queen_db_pool/);
});
