/** Payloads come back byte for byte, over the real wire and the real store. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';

const CORPUS = [
  'null',
  'true',
  '""',
  '[]',
  '{}',
  '0',
  '-0',
  '1.0',
  '1e400',
  '-1E-400',
  '0.1000000000000000055511151231257827',
  '123456789012345678901234567890',
  '-123456789012345678901234567890.123456789012345678901234567890e+30',
  '{"b":1,"a":2,"b":3}',
  '{"":"","__proto__":{"x":1},"constructor":null}',
  '"\\ud800"',
  '"\\udfff\\ud800"',
  '"\\u0000\\u001f\\u007f"',
  '"\\u0041\\/\\"\\\\\\b\\f\\n\\r\\t"',
  '"\u007f\u0080\u2028\u2029\ufeff\ufffd\uffff"',
  '"e\u0301 \u00e9 \u{1f468}\u200d\u{1f469} \u{10ffff}"',
  '{ "a" :\t[ 1 ,\r\n 2 ] , "b" : { } }',
  '[[[[[[[[[[[[]]]]]]]]]]]]',
  '{"queue":"q","payload":{"items":[{"payload":1}]},"transactionId":"x"}',
  '{"encrypted":"eA==","iv":"AAAAAAAAAAAAAAAAAAAAAA==","authTag":"AAAAAAAAAAAAAAAAAAAAAA=="}',
  '"]}],\\"data\\":1,{["',
  `"${'x'.repeat(1 << 20)}"`,
  `"${'\\u00e9'.repeat(50_000)}"`,
  `[${'0,'.repeat(100_000)}0]`,
  `${'['.repeat(900)}${']'.repeat(900)}`,
];

test('payloads', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t) }, t);
  let batch = 0;

  /** Pushes the texts in one request and takes them back; the raw bytes of each `data`. */
  async function roundTrip(texts: string[]): Promise<string[]> {
    const queue = `payloads-${batch++}`;
    const items = texts.map((text, i) => `{"transactionId":"t${i}","payload":${text} , "queue":"${queue}"}`);
    const pushed = await fetch(`${broker.url}/api/v1/push`, {
      method: 'POST',
      body: `{"items":[${items.join(',')}]}`,
    });
    const statuses = (await pushed.json()) as { status: string }[];
    assert.ok(
      statuses.every(({ status }) => status === 'queued'),
      JSON.stringify(statuses),
    );
    const popped = await fetch(`${broker.url}/api/v1/pop/queue/${queue}?autoAck=true&batch=${texts.length}`);
    assert.equal(popped.status, 200);
    return dataOf(Buffer.from(await popped.arrayBuffer()).toString('utf8'));
  }

  await t.test('the corpus', async () => {
    assert.deepEqual(await roundTrip(CORPUS), CORPUS);
  });

  await t.test('any JSON, however it is written', async () => {
    const text = fc
      .tuple(fc.json({ maxDepth: 4 }), fc.constantFrom('', ' ', '\n\t'))
      .map(([json, blank]) => (blank === '' ? json : JSON.stringify(JSON.parse(json), null, blank)));
    await fc.assert(
      fc.asyncProperty(fc.array(text, { minLength: 1, maxLength: 30 }), async (texts) => {
        assert.deepEqual(await roundTrip(texts), texts);
      }),
      { numRuns: 20 },
    );
  });

  await t.test('names that need escaping come back as names', async () => {
    const names = [
      'a/b',
      'a b',
      'ü€😀',
      'a%2Fb',
      '"quoted\\"',
      "it's",
      '__proto__',
      'a?b#c&d=e',
      '..',
      '+',
      '\u00a0',
    ];
    for (const name of names) {
      const item = { queue: name, partition: name, transactionId: name, payload: name };
      const body = JSON.stringify({ items: [item] }).replaceAll('&', '\\u0026');
      const pushed = await fetch(`${broker.url}/api/v1/push`, { method: 'POST', body });
      const [result] = (await pushed.json()) as {
        status: string;
        queueName: string;
        transaction_id: string;
      }[];
      assert.deepEqual([result!.status, result!.queueName, result!.transaction_id], ['queued', name, name]);
      // fetch resolves dot segments away, encoded or not: no client can address such a queue by path.
      if (name === '..') continue;
      const encoded = encodeURIComponent(name);
      const path = `/api/v1/pop/queue/${encoded}/partition/${encoded}?consumerGroup=${encoded}&subscriptionMode=all`;
      const popped = await fetch(broker.url + path);
      assert.equal(popped.status, 200, name);
      const { queue, consumerGroup, messages } = (await popped.json()) as {
        queue: string;
        consumerGroup: string;
        messages: { partition: string; transactionId: string; data: string }[];
      };
      const [message] = messages;
      assert.deepEqual(
        [queue, consumerGroup, message!.partition, message!.transactionId, message!.data],
        [name, name, name, name, name],
      );
    }
  });

  await t.test('transaction ids that look alike are different', async () => {
    const ids = [
      'A',
      'a',
      'a ',
      ' a',
      'e\u0301',
      '\u00e9',
      '__proto__',
      'ﬁ',
      'fi',
      'x'.repeat(65_535),
      'x'.repeat(65_534),
    ];
    const items = ids.map((transactionId) => ({ queue: 'alike', transactionId, payload: 1 }));
    const pushed = await fetch(`${broker.url}/api/v1/push`, {
      method: 'POST',
      body: JSON.stringify({ items }),
    });
    const results = (await pushed.json()) as { status: string }[];
    assert.ok(results.every(({ status }) => status === 'queued'));
    const popped = await fetch(`${broker.url}/api/v1/pop/queue/alike?batch=100`);
    const { messages } = (await popped.json()) as {
      messages: { transactionId: string; partitionId: string }[];
    };
    assert.deepEqual(
      messages.map(({ transactionId }) => transactionId),
      ids,
    );
  });
});

/** The bytes of every message's `data`, cut out by the keys around them: parsing would lose what is tested. */
function dataOf(answer: string): string[] {
  const found: string[] = [];
  const head = /\{"id":"[0-9a-f-]{36}","transactionId":"t\d+","traceId":null,"data":/g;
  const tail = /,"producerSub":null,"createdAt":"[^"]+","partitionId":"\d+","partition":"Default",/g;
  for (;;) {
    const start = head.exec(answer);
    if (start === null) return found;
    tail.lastIndex = head.lastIndex;
    const end = tail.exec(answer);
    assert.ok(end !== null);
    found.push(answer.slice(head.lastIndex, end.index));
    head.lastIndex = tail.lastIndex;
  }
}
