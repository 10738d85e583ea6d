/**
 * Whatever comes in: a 4xx in JSON that names the field, never a 500, never a crash, and not a row written. The
 * corpus runs against a real broker; the tables are compared before and after.
 */
import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { deflateSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { type Database, statement } from '../../packages/broker/src/store/database.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { brokersWanted } from '../kit/round_robin.ts';
import { Client, type Verdict } from './client.ts';

const TABLES = [
  'queues',
  'log_partitions',
  'log_segments',
  'log_txns',
  'log_consumers',
  'log_dlq',
  'consumer_groups_metadata',
];

async function contents(db: Database): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const table of TABLES) {
    const text = `SELECT md5(coalesce(string_agg(r::text, '|' ORDER BY r::text), '')) AS sum, count(*)::int AS n FROM queen.${table} r`;
    const [row] = await db.query<{ sum: string; n: number }>(statement(`bad_input_${table}`, text), []);
    found[table] = `${row!.n} rows, ${row!.sum}`;
  }
  return found;
}

const LONG = 'x'.repeat(256);
const good = '{"queue":"good","payload":1}';
const items = (text: string) => `{"items":[${good},${text}]}`;
const acks = (text: string) => `{"acknowledgments":[${text}]}`;

/** Method, path, body, and what the answer's `field` must be (null: none is named, undefined: not checked). */
const REFUSED: [string, string, (string | Buffer | undefined)?, (string | null)?][] = [
  ...[
    '',
    '{',
    'null',
    '[]',
    '"x"',
    '{"items":[]',
    '{"items":[]}}',
    '\ufeff{"items":[]}',
    "{'items':[]}",
    '{"items":[,]}',
  ].map((body): [string, string, string, null] => ['POST', '/api/v1/push', body, null]),
  ['POST', '/api/v1/push', '{}', 'items'],
  ['POST', '/api/v1/push', '{"items":"x"}', 'items'],
  ['POST', '/api/v1/push', items('null'), 'items[1]'],
  ['POST', '/api/v1/push', items('{"payload":1}'), 'items[1].queue'],
  ['POST', '/api/v1/push', items('{"queue":null,"payload":1}'), 'items[1].queue'],
  ['POST', '/api/v1/push', items('{"queue":"q"}'), 'items[1].payload'],
  ['POST', '/api/v1/push', items('{"queue":"q","data":1}'), 'items[1].payload'],
  ['POST', '/api/v1/push', items('{"queue":["q"],"payload":1}'), 'items[1].queue'],
  ['POST', '/api/v1/push', items(`{"queue":"${LONG}","payload":1}`), 'items[1].queue'],
  ['POST', '/api/v1/push', items(`{"queue":"q","partition":"${LONG}","payload":1}`), 'items[1].partition'],
  ['POST', '/api/v1/push', items('{"queue":"q\\u0000","payload":1}'), 'items[1].queue'],
  ['POST', '/api/v1/push', items('{"queue":"q\\u001f","payload":1}'), 'items[1].queue'],
  ['POST', '/api/v1/push', items('{"queue":"q","partition":"\\n","payload":1}'), 'items[1].partition'],
  ['POST', '/api/v1/push', items('{"queue":"\\ud83d","payload":1}'), 'items[1].queue'],
  [
    'POST',
    '/api/v1/push',
    items('{"queue":"q","transactionId":"\\udc00","payload":1}'),
    'items[1].transactionId',
  ],
  [
    'POST',
    '/api/v1/push',
    items('{"queue":"q","transactionId":"\\u0000","payload":1}'),
    'items[1].transactionId',
  ],
  [
    'POST',
    '/api/v1/push',
    items(`{"queue":"q","transactionId":"${'x'.repeat(65_536)}","payload":1}`),
    'items[1].transactionId',
  ],
  [
    'POST',
    '/api/v1/push',
    items(`{"queue":"q","transactionId":"${'€'.repeat(21_846)}","payload":1}`),
    'items[1].transactionId',
  ],
  ['POST', '/api/v1/push', items('{"queue":"q","transactionId":5,"payload":1}'), 'items[1].transactionId'],
  ['POST', '/api/v1/push', items(`{"queue":"q","payload":${'['.repeat(100_000)}${']'.repeat(100_000)}}`)],
  ['POST', '/api/v1/push', items(`{"queue":"q","payload":${'{"a":'.repeat(100_000)}`)],
  [
    'POST',
    '/api/v1/push',
    Buffer.concat([
      Buffer.from('{"items":[{"queue":"q","payload":"'),
      Buffer.from([0xff, 0x22, 0x7d, 0x5d, 0x7d]),
    ]),
  ],
  ['POST', '/api/v1/push', Buffer.from([0xef, 0xbb])],
  ['POST', '/api/v1/push', Buffer.from('{"items":[]}', 'utf16le')],

  ['GET', '/api/v1/pop'],
  ['GET', '/api/v1/pop?namespace=&task='],
  ['GET', `/api/v1/pop?namespace=${LONG}`, undefined, 'namespace'],
  ['GET', '/api/v1/pop?task=%00', undefined, 'task'],
  ...['abc', '', '1.5', '1e3', '99999999999', '-99999999999', '%', 'true'].map(
    (value): [string, string, undefined, string] => [
      'GET',
      `/api/v1/pop/queue/fresh?batch=${value}`,
      undefined,
      'batch',
    ],
  ),
  ['GET', '/api/v1/pop/queue/fresh?partitions=x', undefined, 'partitions'],
  ['GET', '/api/v1/pop/queue/fresh?timeout=x&wait=true', undefined, 'timeout'],
  ['GET', '/api/v1/pop/queue/fresh?leaseSeconds=x', undefined, 'leaseSeconds'],
  ['GET', '/api/v1/pop/queue/fresh?wait=yes', undefined, 'wait'],
  ['GET', '/api/v1/pop/queue/fresh?autoAck=1', undefined, 'autoAck'],
  ['GET', '/api/v1/pop/queue/fresh?conflation=maybe', undefined, 'conflation'],
  ['GET', '/api/v1/pop/queue/fresh?conflation=true', undefined, 'consumerGroup'],
  ['GET', '/api/v1/pop/queue/fresh?conflation=true&consumerGroup=g&autoAck=true', undefined, 'autoAck'],
  ['GET', `/api/v1/pop/queue/fresh?consumerGroup=${LONG}`, undefined, 'consumerGroup'],
  ['GET', '/api/v1/pop/queue/fresh?consumerGroup=a%00b', undefined, 'consumerGroup'],
  ['GET', '/api/v1/pop/queue/fresh?consumerGroup=%ff', undefined, 'consumerGroup'],
  ['GET', '/api/v1/pop/queue/fresh?consumerGroup=%zz', undefined, 'consumerGroup'],
  ['GET', '/api/v1/pop/queue/%00', undefined, 'queue'],
  ['GET', '/api/v1/pop/queue/%zz', undefined, 'queue'],
  ['GET', '/api/v1/pop/queue/%c0%af', undefined, 'queue'],
  ['GET', `/api/v1/pop/queue/${LONG}`, undefined, 'queue'],
  ['GET', '/api/v1/pop/queue/fresh/partition/%1f', undefined, 'partition'],

  ['POST', '/api/v1/ack', ''],
  ['POST', '/api/v1/ack', '[]'],
  ['POST', '/api/v1/ack', '{"transactionId":7,"partitionId":"1"}', 'transactionId'],
  ['POST', '/api/v1/ack', '{"transactionId":"t","partitionId":1}', 'partitionId'],
  ['POST', '/api/v1/ack', '{"transactionId":"t","partitionId":"1","status":false}', 'status'],
  ['POST', '/api/v1/ack', '{"transactionId":"t","partitionId":"1","leaseId":7}', 'leaseId'],
  ['POST', '/api/v1/ack', '{"transactionId":"t","partitionId":"1","error":{}}', 'error'],
  [
    'POST',
    '/api/v1/ack',
    '{"transactionId":"t","partitionId":"1","consumerGroup":"\\u0000"}',
    'consumerGroup',
  ],
  [
    'POST',
    '/api/v1/ack',
    `{"transactionId":"t","partitionId":"1","consumerGroup":"${LONG}"}`,
    'consumerGroup',
  ],
  ['POST', '/api/v1/ack', '{"transactionId":"\\ud800","partitionId":"1"}', 'transactionId'],
  ['POST', '/api/v1/ack/batch', ''],
  ['POST', '/api/v1/ack/batch', '{}', 'acknowledgments'],
  ['POST', '/api/v1/ack/batch', '{"acknowledgments":{}}', 'acknowledgments'],
  ['POST', '/api/v1/ack/batch', acks('null'), 'acknowledgments[0]'],
  [
    'POST',
    '/api/v1/ack/batch',
    acks('{"transactionId":"t","partitionId":"1"},{"status":1}'),
    'acknowledgments[1].status',
  ],
  ['POST', '/api/v1/ack/batch', acks('['.repeat(100_000))],

  ['POST', '/api/v1/lease/0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11/extend', '{"seconds":"60"}', 'seconds'],
  ['POST', '/api/v1/lease/0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11/extend', '{"seconds":1e12}', 'seconds'],
  ['POST', '/api/v1/lease/%zz/extend', '{}'],

  ['POST', '/api/v1/configure', ''],
  ['POST', '/api/v1/configure', '{}', 'queue'],
  ['POST', '/api/v1/configure', '{"queue":7}', 'queue'],
  ['POST', '/api/v1/configure', `{"queue":"${LONG}"}`, 'queue'],
  ['POST', '/api/v1/configure', '{"queue":"\\u0000"}', 'queue'],
  ['POST', '/api/v1/configure', '{"queue":"q","mode":"upsert"}', 'mode'],
  ['POST', '/api/v1/configure', '{"queue":"q","options":7}', 'options'],
  ['POST', '/api/v1/configure', '{"queue":"q","options":{"leaseTime":"60"}}', 'options.leaseTime'],
  ['POST', '/api/v1/configure', '{"queue":"q","options":{"leaseTime":99999999999}}', 'options.leaseTime'],
  ['POST', '/api/v1/configure', '{"queue":"q","options":{"retentionEnabled":1}}', 'options.retentionEnabled'],
  [
    'POST',
    '/api/v1/configure',
    '{"queue":"q","options":{"retentionSinkHold":"/"}}',
    'options.retentionSinkHold',
  ],
  ['POST', '/api/v1/configure', '{"queue":"q","options":{"encryptionEnabled":true}}'],
  ['POST', '/api/v1/configure', `{"queue":"q","x":${'['.repeat(100_000)}`],

  ['GET', '/api/v1/resources/queues/%zz'],
  ['GET', '/api/v1/resources/queues/%00', undefined, 'queue'],
  ['GET', '/api/v1/resources/queues/q/depth?group=%00', undefined, 'group'],
  ['DELETE', '/api/v1/resources/queues/%00', undefined, 'queue'],
  ['DELETE', `/api/v1/resources/queues/${LONG}`, undefined, 'queue'],
];

test('bad input', async (t) => {
  const database = await freshDatabase(t);
  const broker = await startBroker({ database, env: { QUEEN_MAX_BODY_BYTES: '8388608' } }, t);
  const client = new Client(broker.url);
  const db = await database.open({ poolSize: 1 });
  t.after(() => db.close());
  await client.push([{ queue: 'held', transactionId: 'a', payload: 1 }]);
  const [held] = await client.pop('held', {
    consumerGroup: 'g',
    subscriptionMode: 'all',
    leaseSeconds: 3600,
  });
  const before = await contents(db);

  async function untouched(): Promise<void> {
    assert.deepEqual(await contents(db), before);
    assert.equal((await client.call('GET', '/health')).status, 200);
    assert.doesNotMatch(broker.logs(), /request failed|a bug/);
  }

  await t.test('the corpus is refused with a sentence', async () => {
    for (const [method, path, body, field] of REFUSED) {
      const shown = `${method} ${path.slice(0, 90)} ${body?.toString().slice(0, 90) ?? ''}`;
      const answer = await fetch(
        broker.url + path,
        body === undefined ? { method } : { method, body: body as string },
      );
      const text = await answer.text();
      assert.equal(answer.status, 400, `${shown}: ${answer.status} ${text}`);
      assert.match(answer.headers.get('content-type')!, /^application\/json/);
      const envelope = JSON.parse(text) as { error: string; code: string; field?: string };
      assert.ok(envelope.error.length > 5 && envelope.code.length > 0, `${shown}: ${text}`);
      if (field === null) assert.equal(envelope.field, undefined, `${shown}: ${text}`);
      else if (field !== undefined) assert.equal(envelope.field, field, `${shown}: ${text}`);
    }
    await untouched();
  });

  await t.test('acks of nonsense fail item by item and move nothing', async () => {
    const base = { transactionId: 'a', partitionId: held!.partitionId, leaseId: held!.leaseId };
    const nonsense: Record<string, unknown>[] = [
      {},
      { ...base, partitionId: '' },
      { ...base, partitionId: null },
      ...[
        'x',
        '-1',
        '0',
        '1.5',
        ' 1',
        '1e3',
        '0x1',
        '\0',
        '99999999999999999999999',
        '9223372036854775807',
        '9007199254740993',
      ].map((partitionId) => ({ ...base, partitionId })),
      ...['x', '\0', "';--", '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11', 'x'.repeat(100_000), '\ud800', 'ü'].map(
        (leaseId) => ({
          ...base,
          leaseId,
        }),
      ),
      ...['', 'nope', '\0', 'a\0', 'A', 'x'.repeat(65_535)].map((transactionId) => ({
        ...base,
        transactionId,
      })),
      { ...base, transactionId: 'nope', status: 'failed' },
      { ...base, transactionId: 'nope', status: 'dlq', error: '\0'.repeat(1000) },
    ];
    for (const item of nonsense) {
      const shown = JSON.stringify(item).slice(0, 200);
      const single = await client.call<Verdict[]>('POST', '/api/v1/ack', { ...item, consumerGroup: 'g' });
      assert.equal(single.status, 200, `${shown} ${JSON.stringify(single.body)}`);
      assert.equal(single.body[0]!.success, false, `${shown} ${JSON.stringify(single.body)}`);
      assert.ok(single.body[0]!.error !== null);
    }
    const batch = { acknowledgments: nonsense, consumerGroup: 'g' };
    const together = await client.call<Verdict[]>('POST', '/api/v1/ack/batch', batch);
    assert.equal(together.status, 200, JSON.stringify(together.body).slice(0, 300));
    assert.equal(together.body.length, nonsense.length);
    together.body.forEach((verdict, i) => {
      assert.equal(
        verdict.success,
        false,
        `${JSON.stringify(nonsense[i]).slice(0, 200)} ${JSON.stringify(verdict)}`,
      );
    });
    for (const group of ['', 'nobody', '__QUEUE_MODE__']) {
      const other = await client.call<Verdict[]>('POST', '/api/v1/ack', { ...base, consumerGroup: group });
      assert.deepEqual([other.status, other.body[0]!.success], [200, false], group);
    }
    for (const lease of ['x', '%00', 'a%2Fb', "'", '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11', LONG.repeat(10)]) {
      const extended = await client.call('POST', `/api/v1/lease/${lease}/extend`, { seconds: 5 });
      assert.deepEqual(
        [extended.status, extended.body.success, extended.body.renewed],
        [200, false, 0],
        lease,
      );
    }
    await untouched();
  });

  await t.test('any body at all', async () => {
    const paths = ['/api/v1/push', '/api/v1/ack', '/api/v1/ack/batch', '/api/v1/configure'];
    const key = fc.constantFrom(
      'items',
      'acknowledgments',
      'queue',
      'payload',
      'transactionId',
      'options',
      'mode',
      'leaseTime',
    );
    const leaf = fc.constantFrom(null, true, 0, -1, 1e300, '', '\0', '\ud800', 'x', LONG);
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        leaf,
        fc.array(tie('value'), { maxLength: 3 }),
        fc.dictionary(key, tie('value'), { maxKeys: 4 }),
      ),
    }));
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 60 }).map((array) => Buffer.from(array)),
      value.map((any) => Buffer.from(JSON.stringify(any))),
      value.chain((any) => {
        const text = JSON.stringify(any);
        return fc.nat({ max: text.length }).map((cut) => Buffer.from(text.slice(0, cut)));
      }),
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...paths), bytes, async (path, body) => {
        const answer = await fetch(broker.url + path, { method: 'POST', body: body as unknown as string });
        const text = await answer.text();
        assert.ok(answer.status < 500, `${path} ${body}: ${answer.status} ${text}`);
        JSON.parse(text);
      }),
      { numRuns: 200 },
    );
    assert.equal((await client.call('GET', '/health')).status, 200);
    assert.doesNotMatch(broker.logs(), /request failed|a bug/);
    // Some of them were right by accident.
    Object.assign(before, await contents(db));
  });

  const transport = { skip: brokersWanted() > 1 && 'the connection is the round-robin’s' };
  await t.test('too large, compressed, unknown: each its own status', transport, async () => {
    const large = 'x'.repeat(8 * 1024 * 1024 + 1);
    for (const path of ['/api/v1/push', '/api/v1/ack/batch']) {
      const answer = await fetch(broker.url + path, { method: 'POST', body: large });
      assert.equal(answer.status, 413);
      assert.match(answer.headers.get('content-type')!, /^text\/plain/);
      await answer.text();
    }
    const bomb = gzipSync(Buffer.alloc(200 << 20));
    for (const [encoding, body] of [
      ['gzip', bomb],
      ['deflate', deflateSync(items(good))],
      ['br', Buffer.from('x')],
    ] as const) {
      const answer = await fetch(`${broker.url}/api/v1/push`, {
        method: 'POST',
        body: body as unknown as string,
        headers: { 'Content-Encoding': encoding },
      });
      assert.equal(answer.status, 415, encoding);
      await answer.text();
    }
    for (const [method, path] of [
      ['GET', '/api/v1/resources/partitions'],
      ['DELETE', '/api/v1/queues/q/clear'],
      ['POST', '/api/v1/messages/1/t/dlq'],
    ] as const) {
      const answer = await client.call(method, path);
      assert.deepEqual([answer.status, answer.body], [404, { error: 'Not Found', code: 'no_such_route' }]);
    }
    for (const method of ['OPTIONS', 'PUT']) {
      const answer = await client.call<{ code: string }>(method, '/api/v1/push');
      assert.deepEqual([answer.status, answer.body.code], [405, 'method_not_allowed']);
    }
    await untouched();
  });

  await t.test('clients that stop in the middle', async () => {
    const head = 'POST /api/v1/push HTTP/1.1\r\nHost: x\r\n';
    const body = items(good);
    const cut = [
      `${head}Content-Length: ${body.length}\r\n\r\n${body.slice(0, -1)}`,
      `${head}Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n`,
      `${head}Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\nzz\r\n`,
      `${head}Content-Length: 5\r\n`,
      `${head}Content-Length: ${body.length}\r\nContent-Length: 2\r\n\r\n${body}`,
      `${head}Content-Length: ${body.length}\r\nTransfer-Encoding: chunked\r\n\r\n${body}`,
      '\x16\x03\x01\x02\x00',
      'GET /api/v1/pop/queue/held/partition/none?wait=true&timeout=60000 HTTP/1.1\r\nHost: x\r\n\r\n',
    ];
    for (const bytes of cut) {
      for (const ending of ['reset', 'half-close'] as const) {
        const socket = connect({ port: broker.port, host: '127.0.0.1', allowHalfOpen: true });
        const closed = new Promise((resolve) => socket.on('close', resolve));
        socket.on('error', () => {});
        socket.resume();
        await new Promise((resolve) => socket.write(bytes, resolve));
        await sleep(20);
        if (ending === 'reset') socket.resetAndDestroy();
        else socket.end();
        await closed;
      }
    }
    await untouched();
  });

  await t.test('many large bodies at once stay within bounds, and others are served meanwhile', async () => {
    const rss = () => memoryOf(broker);
    const start = await rss();
    const sending = Array.from({ length: 40 }, () => sendHalf(broker.port, 8 * 1024 * 1024 - 100));
    await Promise.all(sending.map(({ sent }) => sent));
    assert.equal((await client.call('GET', '/health/live')).status, 200);
    const held = (await rss()) - start;
    for (const { destroy } of sending) destroy();
    assert.ok(held < 700 * 1024 * 1024, `${Math.round(held / 1048576)} MiB`);
    await untouched();
  });

  await t.test('what is right is still taken', async () => {
    const verdict = await client.ack(held!);
    assert.ok(verdict.success && verdict.leaseReleased, JSON.stringify(verdict));
    const big = Array.from({ length: 100_000 }, (_, i) => ({ queue: 'many', payload: i }));
    const pushed = await client.push(big);
    assert.equal(pushed.length, 100_000);
    assert.ok(pushed.every(({ status, index }, i) => status === 'queued' && index === i));
    assert.equal((await broker.stop()).code, 0);
  });
});

async function memoryOf(broker: BrokerProcess): Promise<number> {
  const metrics = (await (await fetch(`${broker.url}/metrics`)).json()) as { memory: { rss: number } };
  return metrics.memory.rss;
}

/** Sends the most of a push body and then nothing more. */
function sendHalf(port: number, bytes: number): { sent: Promise<void>; destroy: () => void } {
  const request = httpRequest({ port, host: '127.0.0.1', method: 'POST', path: '/api/v1/push' });
  request.setHeader('Content-Length', bytes + 50);
  const sent = new Promise<void>((resolve) => {
    request.on('error', () => resolve());
    request.on('response', (response) => {
      response.resume();
      resolve();
    });
    request.write(Buffer.alloc(bytes, 0x20), () => resolve());
    setTimeout(resolve, 5_000).unref();
  });
  return { sent, destroy: () => request.destroy() };
}
