import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { EngineError } from '../../src/engine/errors.ts';
import { readAckBatchBody, statusOf } from '../../src/http/hot/ack_body.ts';
import { openWire } from './wire.ts';

async function ack(url: string, path: string, body: string | Buffer) {
  const answer = await fetch(`${url}/api/v1/ack${path}`, { method: 'POST', body: body as string });
  return { status: answer.status, json: JSON.parse(await answer.text()) };
}

test('one item: what is absent has its default', async (t) => {
  const wire = await openWire(t);
  const { status, json } = await ack(wire.url, '', '{"transactionId":"a","partitionId":"42"}');
  assert.equal(status, 200);
  assert.deepEqual(json, [
    {
      index: 0,
      transactionId: 'a',
      success: true,
      error: null,
      leaseReleased: true,
      dlq: false,
      noop: false,
    },
  ]);
  assert.deepEqual(wire.broker.acks[0], {
    tenant: '00000000-0000-0000-0000-000000000001',
    group: '__QUEUE_MODE__',
    items: [{ transactionId: 'a', partitionId: '42', status: 'completed', leaseId: null, error: null }],
  });
  assert.equal(wire.traffic.ackUnfenced, 1);
});

test('a batch keeps its order; a group inside an item is ignored; nulls are absent', async (t) => {
  const wire = await openWire(t);
  const acknowledgments = [
    {
      transactionId: 'a',
      partitionId: '1',
      status: 'failed',
      error: 'bo\0om\ud800',
      leaseId: 'L',
      consumerGroup: 'x',
    },
    { transactionId: null, partitionId: null, status: null, leaseId: '', error: null, consumerGroup: null },
    { anything: [1, { deep: 2 }] },
  ];
  await ack(wire.url, '/batch', JSON.stringify({ acknowledgments, consumerGroup: 'workers' }));
  assert.equal(wire.broker.acks[0]!.group, 'workers');
  const empty = { transactionId: '', partitionId: '', status: 'completed', leaseId: null, error: null };
  assert.deepEqual(wire.broker.acks[0]!.items, [
    { transactionId: 'a', partitionId: '1', status: 'failed', leaseId: 'L', error: 'bo\ufffdom\ufffd' },
    empty,
    empty,
  ]);
  assert.deepEqual((await ack(wire.url, '/batch', '{"acknowledgments":[]}')).json, []);
  assert.equal(wire.broker.acks.length, 1);
});

test('verdicts come out with their optional keys', async (t) => {
  const wire = await openWire(t);
  const plain = { success: true, error: null, leaseReleased: false, dlq: false, noop: false };
  wire.broker.onAck = async () => [
    { ...plain, conflated: 3 },
    { ...plain, success: false, error: 'consumer "x" not found' },
    { ...plain, dropped: true },
  ];
  const items = ['a', 'b"', 'c'].map((transactionId) => ({ transactionId, partitionId: '1', leaseId: 'L' }));
  const { json } = await ack(wire.url, '/batch', JSON.stringify({ acknowledgments: items }));
  assert.deepEqual(json, [
    { index: 0, transactionId: 'a', ...plain, conflated: 3 },
    { index: 1, transactionId: 'b"', ...plain, success: false, error: 'consumer "x" not found' },
    { index: 2, transactionId: 'c', ...plain, dropped: true },
  ]);
  assert.equal(wire.traffic.ackFailed, 1);
  assert.equal(wire.traffic.ackUnfenced, 0);
});

test('status words', () => {
  for (const word of [null, 'completed', 'success', 'acked', 'ok']) assert.equal(statusOf(word), 'completed');
  assert.equal(statusOf('retry'), 'retry');
  assert.equal(statusOf('dlq'), 'dlq');
  for (const word of ['', 'nack', 'failed', 'Completed', 'OK', 'constructor', '__proto__']) {
    assert.equal(statusOf(word), 'failed', word);
  }
});

test('bad bodies are 400 with the field, and nothing of them is taken', async (t) => {
  const wire = await openWire(t);
  const item = (text: string) => `{"acknowledgments":[{"transactionId":"ok","partitionId":"1"},{${text}}]}`;
  const batch: [string | Buffer, string | undefined][] = [
    ['', undefined],
    ['nonsense', undefined],
    ['[]', undefined],
    ['7', undefined],
    ['{}', 'acknowledgments'],
    ['{"acknowledgments":{}}', 'acknowledgments'],
    ['{"acknowledgments":null}', 'acknowledgments'],
    ['{"acknowledgments":[7]}', 'acknowledgments[0]'],
    ['{"acknowledgments":[],"consumerGroup":7}', 'consumerGroup'],
    ['{"acknowledgments":[],"consumerGroup":"\\u0000"}', 'consumerGroup'],
    ['{"acknowledgments":[],"consumerGroup":"\\udc00"}', 'consumerGroup'],
    [`{"acknowledgments":[],"consumerGroup":"${'x'.repeat(256)}"}`, 'consumerGroup'],
    [item('"transactionId":7'), 'acknowledgments[1].transactionId'],
    [item('"transactionId":"\\ud800"'), 'acknowledgments[1].transactionId'],
    [item(`"transactionId":"${'ü'.repeat(32_768)}"`), 'acknowledgments[1].transactionId'],
    [item('"partitionId":42'), 'acknowledgments[1].partitionId'],
    [item('"status":true'), 'acknowledgments[1].status'],
    [item('"leaseId":[]'), 'acknowledgments[1].leaseId'],
    [item('"error":{"message":"x"}'), 'acknowledgments[1].error'],
    [item(`"x":${'['.repeat(50_000)}`), undefined],
    [Buffer.from([0x22, 0xfe, 0x22]), undefined],
  ];
  for (const [body, field] of batch) {
    const { status, json } = await ack(wire.url, '/batch', body);
    const shown = body.toString().slice(0, 90);
    assert.equal(status, 400, shown);
    assert.ok(json.error.startsWith('bad body: '), `${shown}: ${json.error}`);
    assert.equal(json.field, field, `${shown}: ${json.error}`);
  }
  const single: [string, string | undefined][] = [
    ['', undefined],
    ['[]', undefined],
    ['{"transactionId":1}', 'transactionId'],
    ['{"status":1}', 'status'],
    ['{"consumerGroup":[]}', 'consumerGroup'],
  ];
  for (const [body, field] of single) {
    const { status, json } = await ack(wire.url, '', body);
    assert.deepEqual([status, json.field], [400, field], body);
  }
  assert.equal(wire.broker.acks.length, 0);
});

test('the pulled reading of a batch means what JSON.parse means', () => {
  const text = fc.option(fc.string({ unit: 'grapheme', maxLength: 8 }), { nil: null });
  const item = fc.record(
    { transactionId: text, partitionId: text, leaseId: text, status: text, extra: fc.jsonValue() },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.array(item, { maxLength: 5 }), fc.boolean(), (acknowledgments, pretty) => {
      const body = JSON.stringify({ noise: [1, { a: null }], acknowledgments }, null, pretty ? 2 : 0);
      const { items } = readAckBatchBody(Buffer.from(body));
      assert.deepEqual(
        items.map(({ transactionId, partitionId, leaseId }) => [transactionId, partitionId, leaseId]),
        acknowledgments.map((each) => [
          each.transactionId ?? '',
          each.partitionId ?? '',
          each.leaseId || null,
        ]),
      );
    }),
  );
});

test('failures of the engine are never a 429', async (t) => {
  const wire = await openWire(t);
  const body = '{"transactionId":"a","partitionId":"1"}';
  wire.broker.onAck = async () => {
    throw new EngineError('unavailable', 'pool', 'no connection');
  };
  assert.deepEqual((await ack(wire.url, '', body)).json.error, 'pool');
  wire.broker.onAck = async () => {
    throw new EngineError('in_doubt', 'connection', 'lost');
  };
  const lost = await ack(wire.url, '', body);
  assert.deepEqual(
    [lost.status, lost.json.error],
    [500, 'ack flush failed; lease will expire and redeliver'],
  );
});
