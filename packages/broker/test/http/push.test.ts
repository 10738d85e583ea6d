import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EngineError } from '../../src/engine/errors.ts';
import { openWire } from './wire.ts';

async function push(url: string, body: string | Buffer) {
  const answer = await fetch(`${url}/api/v1/push`, { method: 'POST', body: body as string });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, json: text === '' ? null : JSON.parse(text) };
}

test('payloads reach the engine byte for byte, names unescaped', async (t) => {
  const wire = await openWire(t);
  const payloads = [
    '123456789012345678901234567890.123456789012345678901234567890',
    '1e400',
    '-0',
    '1.0',
    '{"b":1,"a":2,"b":3}',
    '"\\ud800"',
    '"\\u0041\\/\\u0000"',
    '{ "a" : [ 1 , 2 ]\n}',
    'null',
    `"${'x'.repeat(1 << 20)}"`,
    '"ü€😀"',
  ];
  const items = payloads.map(
    (payload) => `{"payload":${payload},"queue":"a\\u0026\\/\\"b","tr\\u0061nsactionId":"t"}`,
  );
  const { status, json } = await push(wire.url, `{"items":[${items.join(',')}]}`);
  assert.equal(status, 201);
  assert.equal(json.length, payloads.length);
  const taken = wire.broker.pushes[0]!.items;
  assert.deepEqual(
    taken.map((item) => item.payload.toString()),
    payloads,
  );
  for (const item of taken) {
    assert.equal(item.queue, 'a&/"b');
    assert.equal(item.partition, 'Default');
    assert.equal(item.transactionId, 't');
  }
  assert.equal(wire.broker.pushes[0]!.producerSub, null);
});

test('the answer has one element an item, in order, with the keys of the wire', async (t) => {
  const wire = await openWire(t);
  wire.broker.onPush = async () => [
    { status: 'queued', messageId: 'm1', transactionId: 'a"b', partitionId: '4', offset: 12, error: null },
    { status: 'duplicate', messageId: 'm0', transactionId: 'c', partitionId: '4', offset: 3, error: null },
    {
      status: 'failed',
      messageId: 'm2',
      transactionId: 'd',
      partitionId: null,
      offset: null,
      error: 'disk "full"',
    },
  ];
  const items = ['q1', 'q"2', 'q3'].map((queue) => ({ queue, payload: 1 }));
  const { status, json } = await push(wire.url, JSON.stringify({ items }));
  assert.equal(status, 201);
  assert.deepEqual(json, [
    { index: 0, message_id: 'm1', transaction_id: 'a"b', queueName: 'q1', status: 'queued', offset: 12 },
    { index: 1, message_id: 'm0', transaction_id: 'c', queueName: 'q"2', status: 'duplicate', offset: 3 },
    {
      index: 2,
      message_id: 'm2',
      transaction_id: 'd',
      queueName: 'q3',
      status: 'failed',
      error: 'disk "full"',
    },
  ]);
  assert.deepEqual({ ...wire.traffic.pushResults }, { queued: 1, duplicate: 1, buffered: 0, failed: 1 });
});

test('no items: 201 with an empty array, and nobody is bothered', async (t) => {
  const wire = await openWire(t);
  assert.deepEqual((await push(wire.url, '{"items":[]}')).json, []);
  assert.equal(wire.broker.pushes.length, 0);
});

test('bad bodies are 400 with the field, and nothing of them is taken', async (t) => {
  const wire = await openWire(t);
  const item = (text: string) => `{"items":[{"queue":"good","payload":1},{${text}}]}`;
  const cases: [string | Buffer, string | undefined][] = [
    ['', undefined],
    ['{', undefined],
    ['[]', undefined],
    ['null', undefined],
    ['{"items":[]', undefined],
    ['{"items":[]} x', undefined],
    ['{}', 'items'],
    ['{"items":{}}', 'items'],
    ['{"items":[1]}', 'items[0]'],
    [item('"payload":1'), 'items[1].queue'],
    [item('"queue":"q"'), 'items[1].payload'],
    [item('"queue":"q","data":1'), 'items[1].payload'],
    [item('"queue":7,"payload":1'), 'items[1].queue'],
    [item('"queue":"q","payload":1,"partition":7'), 'items[1].partition'],
    [item('"queue":"q","payload":1,"transactionId":{}'), 'items[1].transactionId'],
    [item('"queue":"a\\u0000","payload":1'), 'items[1].queue'],
    [item('"queue":"\\ud800","payload":1'), 'items[1].queue'],
    [item(`"queue":"${'x'.repeat(256)}","payload":1`), 'items[1].queue'],
    [item(`"queue":"q","payload":1,"transactionId":"${'x'.repeat(65_536)}"`), 'items[1].transactionId'],
    [item('"queue":"q","payload":1,"transactionId":"\\u001f"'), 'items[1].transactionId'],
    [item(`"queue":"q","payload":${'['.repeat(100_000)}${']'.repeat(100_000)}`), undefined],
    [Buffer.from([0x7b, 0xff, 0x7d]), undefined],
    [
      Buffer.concat([
        Buffer.from('{"items":[{"queue":"q","payload":"'),
        Buffer.from([0xc3]),
        Buffer.from('"}]}'),
      ]),
      undefined,
    ],
  ];
  for (const [body, field] of cases) {
    const { status, json } = await push(wire.url, body);
    const shown = body.toString().slice(0, 100);
    assert.equal(status, 400, shown);
    assert.ok(json.error.startsWith('bad body: '), `${shown}: ${json.error}`);
    assert.equal(json.field, field, `${shown}: ${json.error}`);
    assert.equal(json.code, 'bad_body');
  }
  assert.equal(wire.broker.pushes.length, 0);
});

test('a body of a hundred thousand items is one request', { timeout: 30_000 }, async (t) => {
  const wire = await openWire(t);
  const items = Array.from({ length: 100_000 }, (_, i) => ({ queue: 'q', payload: i }));
  const { status, json } = await push(wire.url, JSON.stringify({ items }));
  assert.equal(status, 201);
  assert.equal(json.length, 100_000);
  assert.equal(wire.broker.pushes[0]!.items[99_999]!.payload.toString(), '99999');
});

test('failures of the engine have their status', async (t) => {
  const wire = await openWire(t);
  const body = '{"items":[{"queue":"q","payload":1}]}';
  wire.broker.onPush = async () => {
    throw new EngineError('overloaded', 'overloaded', 'too many bytes in flight', { retryAfterSeconds: 2 });
  };
  const overloaded = await push(wire.url, body);
  assert.equal(overloaded.status, 429);
  assert.equal(overloaded.headers.get('retry-after'), '2');
  assert.equal(overloaded.json.code, 'overloaded');
  wire.broker.onPush = async () => {
    throw new EngineError('unavailable', 'pool', 'no connection');
  };
  const down = await push(wire.url, body);
  assert.deepEqual([down.status, down.json.error], [500, 'pool']);
  wire.broker.onPush = async () => {
    throw new EngineError('refused', 'encryption_required', 'no key', { field: 'items[0]' });
  };
  const refused = await push(wire.url, body);
  assert.deepEqual(
    [refused.status, refused.json.code, refused.json.field],
    [400, 'encryption_required', 'items[0]'],
  );
  wire.broker.onPush = async () => {
    throw new TypeError('a mistake of ours');
  };
  const mistake = await push(wire.url, body);
  assert.deepEqual([mistake.status, mistake.json], [500, { error: 'internal error', code: 'internal' }]);
});
