import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { BodyFault } from '../../../src/log/json/fault.ts';
import {
  type PushBodyItem,
  parsePushBody,
  parsePushBodyInTurns,
  TURN_BYTES,
} from '../../../src/log/json/push_body.ts';
import { nameFault, requiredNameFault, transactionIdFault } from '../../../src/log/names.ts';
import { escapeSome, space, stringText, valueText } from './json_arbitrary.ts';

function parse(text: string | Buffer): PushBodyItem[] {
  return parsePushBody(Buffer.from(text)).items;
}

function fault(text: string | Buffer): BodyFault {
  try {
    parse(text);
  } catch (error) {
    assert.ok(error instanceof BodyFault, String(error));
    return error;
  }
  throw new Error(`taken: ${text}`);
}

const payloadOf = (written: string): string =>
  parse(`{"items":[{"queue":"q","payload":${written}}]}`)[0]!.payload.toString();

test('payloads come back byte for byte', () => {
  const hard = [
    '123456789012345678901234567890',
    '0.1000000000000000055511151231257827021181583404541015625',
    '1e400',
    '-1E-400',
    '-0',
    '-0.0e+10',
    '1.0',
    '{"a":1,"a":2,"b":3,"a":{}}',
    '"\\ud800"',
    '["\\udc00\\ud800", "\\uD83D\\uDE00", "😀"]',
    '"\\u0000\\/\\u002f"',
    `"${'x'.repeat(1024 * 1024)}"`,
    `"${'\\"'.repeat(500_000)}"`,
    '{ \t"z" :\r\n 1 , "a":[ ] }',
    '"payload"',
    '{"payload":{"payload":null},"items":[{"queue":1}]}',
    'null',
    'false',
    '{"__proto__":{"polluted":true}}',
    '"}]\\\\"',
  ];
  for (const written of hard) assert.ok(payloadOf(written) === written, written.slice(0, 80));
  for (const around of [' ', '\n\t ', '\r\n'])
    assert.equal(payloadOf(`${around}[1 , 2]${around}`), '[1 , 2]');
});

test('absent, null and default members', () => {
  const item = '"queue":"q","payload":null';
  for (const more of [
    '',
    ',"partition":null',
    ',"transactionId":null',
    ',"traceId":[1],"producerSub":7,"x":{}',
  ]) {
    const [only] = parse(`{"items":[{${item}${more}}]}`);
    assert.deepEqual(
      { ...only, payload: String(only!.payload) },
      { queue: 'q', partition: 'Default', transactionId: null, payload: 'null' },
    );
  }
  assert.equal(parse(`{"items":[{${item},"partition":""}]}`)[0]!.partition, '');
  assert.deepEqual(parse('{"items":[]}'), []);
  assert.deepEqual(parse(' { "other" : [ ] , "items" : [ ] } '), []);
});

test('of repeated keys the last one counts, also where an earlier one is at fault', () => {
  const [item] = parse(
    '{"items":[{"queue":7,"payload":1,"queue":"q","transactionId":"\\u0001","payload":2,"transactionId":"t"}]}',
  );
  assert.deepEqual([item!.queue, item!.transactionId, String(item!.payload)], ['q', 't', '2']);
  assert.equal(parse('{"items":[{"queue":""},5],"items":[{"queue":"q","payload":1}]}').length, 1);
  assert.equal(parse('{"items":7,"items":[]}').length, 0);
  assert.equal(fault('{"items":[{"queue":"q","payload":1}],"items":null}').field, 'items');
  assert.equal(fault('{"items":[{"queue":"q","payload":1,"queue":null}]}').field, 'items[0].queue');
  // A syntax fault counts wherever it is.
  assert.match(fault('{"items":[{"queue":01}],"items":[]}').message, /not JSON/);
});

test('keys and names may be written with escapes', () => {
  const text =
    '{"it\\u0065ms":[{"\\u0071ueue":"a\\u0026b\\/\\"\\\\","p\\u0061yload":[1 ],"partitio\\u006E":"\\u00e9"}]}';
  const [item] = parse(text);
  assert.deepEqual([item!.queue, item!.partition, String(item!.payload)], ['a&b/"\\', 'é', '[1 ]']);
  // The same name, written plainly and with an escape, one after the other.
  const names = parse(
    '{"items":[{"queue":"ab","payload":1},{"queue":"\\u0061b","payload":1},{"queue":"ab","payload":1}]}',
  );
  assert.deepEqual(
    names.map((i) => i.queue),
    ['ab', 'ab', 'ab'],
  );
});

test('__proto__ is an ordinary key and an ordinary value', () => {
  assert.equal(fault('{"__proto__":{"items":[]}}').field, 'items');
  assert.equal(fault('{"items":[{"__proto__":{"queue":"q"},"payload":1}]}').field, 'items[0].queue');
  const [item] = parse(
    '{"items":[{"queue":"__proto__","partition":"constructor","transactionId":"__proto__","payload":1,"__proto__":2}]}',
  );
  assert.deepEqual(
    [item!.queue, item!.partition, item!.transactionId],
    ['__proto__', 'constructor', '__proto__'],
  );
  assert.equal(({} as { queue?: string }).queue, undefined);
});

test('each fault names its field', () => {
  const ok = '{"queue":"q","payload":1}';
  const cases: [string, string, RegExp][] = [
    ['', '', /empty/],
    ['   ', '', /not JSON/],
    ['nonsense', '', /not JSON: unexpected/],
    ['[]', '', /object with "items"/],
    ['null', '', /object with "items"/],
    ['"items"', '', /object/],
    ['{}', 'items', /missing/],
    ['{"items":null}', 'items', /array, not null/],
    ['{"items":{}}', 'items', /array, not object/],
    [`{"items":[${ok},7]}`, 'items[1]', /object, not number/],
    [`{"items":[${ok},[]]}`, 'items[1]', /object, not array/],
    [`{"items":[${ok},null]}`, 'items[1]', /object, not null/],
    [`{"items":[${ok},{"payload":1}]}`, 'items[1].queue', /queue is missing/],
    ['{"items":[{"queue":null,"payload":1}]}', 'items[0].queue', /missing/],
    ['{"items":[{"queue":1,"payload":1}]}', 'items[0].queue', /string/],
    ['{"items":[{"queue":"","payload":1}]}', 'items[0].queue', /empty/],
    ['{"items":[{"queue":"q"}]}', 'items[0].payload', /payload is missing/],
    ['{"items":[{"queue":"q","data":1}]}', 'items[0].payload', /missing/],
    ['{"items":[{"queue":"a\\u001fb","payload":1}]}', 'items[0].queue', /control/],
    ['{"items":[{"queue":"q","partition":"\\n","payload":1}]}', 'items[0].partition', /control/],
    ['{"items":[{"queue":"q","partition":["p"],"payload":1}]}', 'items[0].partition', /string/],
    ['{"items":[{"queue":"q","transactionId":"\\u0000","payload":1}]}', 'items[0].transactionId', /control/],
    [
      '{"items":[{"queue":"q","transactionId":"\\ud800","payload":1}]}',
      'items[0].transactionId',
      /surrogate/,
    ],
    ['{"items":[{"queue":"q","transactionId":9,"payload":1}]}', 'items[0].transactionId', /string/],
    ['{"items":[{"queue":"q","transactionId":"","payload":1}]}', 'items[0].transactionId', /empty/],
    [`{"items":[{"queue":"${'x'.repeat(256)}","payload":1}]}`, 'items[0].queue', /255/],
    [
      `{"items":[{"queue":"q","transactionId":"${'x'.repeat(65_536)}","payload":1}]}`,
      'items[0].transactionId',
      /65535/,
    ],
    [`{"items":[{"queue":"q","payload":${'['.repeat(2000)}${']'.repeat(2000)}}]}`, '', /deeper than 1000/],
    [`{"items":[${ok}]} x`, '', /not JSON/],
    [`{"items":[${ok}`, '', /too early/],
  ];
  for (const [text, field, message] of cases) {
    const found = fault(text);
    assert.equal(found.field, field, text.slice(0, 60));
    assert.match(found.message, message);
  }
  assert.match(fault(Buffer.from([0x7b, 0xff, 0x7d])).message, /UTF-8/);
});

/** What the body means, by way of JSON.parse; null where it must be refused. */
function model(
  text: string,
): { queue: string; partition: string; transactionId: string | null; payload: unknown }[] | null {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body) || !Object.hasOwn(body, 'items'))
    return null;
  const items = (body as { items: unknown }).items;
  if (!Array.isArray(items)) return null;
  const out = [];
  for (const item of items as unknown[]) {
    if (typeof item !== 'object' || item === null || Array.isArray(item)) return null;
    const own = (name: string): unknown =>
      Object.hasOwn(item, name) ? (item as Record<string, unknown>)[name] : undefined;
    const partition = own('partition') ?? 'Default';
    const transactionId = own('transactionId') ?? null;
    if (requiredNameFault(own('queue'), '') !== null || nameFault(partition, '') !== null) return null;
    if (transactionId !== null && transactionIdFault(transactionId, '') !== null) return null;
    if (!Object.hasOwn(item, 'payload')) return null;
    out.push({
      queue: own('queue') as string,
      partition: partition as string,
      transactionId: transactionId as string | null,
      payload: own('payload'),
    });
  }
  return out;
}

function agrees(characters: string): boolean {
  // Damage may leave half of a surrogate pair, which has no bytes: both sides judge what can be sent.
  const text = characters.toWellFormed();
  const expected = model(text);
  if (expected === null) {
    fault(text);
    return false;
  }
  const items = parse(text);
  assert.deepEqual(
    items.map((item) => ({ ...item, payload: JSON.parse(item.payload.toString()) as unknown })),
    expected,
  );
  return true;
}

const name = fc.oneof(
  fc.constantFrom('"q"', '"orders.eu"', '"\\u0071"', 'null', '""', '"a\\tb"', '"\\ud800"', '5'),
  stringText,
);
const member = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(fc.constant('queue'), fc.constantFrom('"q"', '"r"', '"\\u0071"')) },
  { weight: 4, arbitrary: fc.tuple(fc.constant('payload'), valueText) },
  fc.tuple(fc.constantFrom('queue', 'partition', 'transactionId'), name),
  fc.tuple(fc.constantFrom('data', '__proto__', 'traceId', 'Queue', ''), valueText),
);
const object = (members: fc.Arbitrary<[string, string]>, maxLength: number): fc.Arbitrary<string> =>
  fc.array(fc.tuple(members, fc.nat(), space), { maxLength }).map((list) => {
    const parts = list.map(([[key, value], mask, s]) => {
      const written = mask % 4 === 0 ? escapeSome(key, (i) => ((mask >> i) & 1) === 1) : `"${key}"`;
      return `${s}${written}${s}:${s}${value}${s}`;
    });
    return `{${parts.join(',')}}`;
  });
const itemText = fc.oneof({ weight: 12, arbitrary: object(member, 6) }, { weight: 1, arbitrary: valueText });
const itemsText = fc.oneof(
  { weight: 8, arbitrary: fc.array(itemText, { maxLength: 3 }).map((list) => `[${list.join(',')}]`) },
  { weight: 1, arbitrary: valueText },
);
const bodyText = object(
  fc.oneof(
    { weight: 4, arbitrary: fc.tuple(fc.constant('items'), itemsText) },
    fc.tuple(fc.constantFrom('other', '__proto__'), valueText),
  ),
  3,
);

test('any body means what JSON.parse makes of it', () => {
  let taken = 0;
  fc.assert(
    fc.property(bodyText, (text) => {
      if (agrees(text)) taken++;
    }),
    { numRuns: 3000 },
  );
  assert.ok(taken > 100, `only ${taken} bodies were taken`);
});

test('a body damaged anywhere is judged as JSON.parse judges it', () => {
  fc.assert(
    fc.property(
      bodyText,
      fc.nat(),
      fc.constantFrom('', '"', '\\', '{', '}', '[', ']', ',', ':', ' ', '1'),
      (text, at, put) => {
        const place = at % (text.length + 1);
        agrees(text.slice(0, place) + put + text.slice(place + 1));
      },
    ),
    { numRuns: 2000 },
  );
});

test('payload spans are the written text', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(valueText, space), { maxLength: 5 }), (payloads) => {
      const items = payloads.map(([value, s]) => `${s}{"payload":${s}${value}${s},"queue":"q"}${s}`);
      assert.deepEqual(
        parse(`{"items":[${items.join(',')}]}`).map((item) => item.payload.toString()),
        payloads.map(([value]) => value),
      );
    }),
    { numRuns: 500 },
  );
});

test('a large body is read in turns, with the same result', async () => {
  const item = (i: number): string => `{"queue":"q","transactionId":"t${i}","payload":"${'x'.repeat(1000)}"}`;
  const body = Buffer.from(`{"items":[${Array.from({ length: 5000 }, (_, i) => item(i)).join(',')}]}`);
  let turns = 0;
  const parsed = await parsePushBodyInTurns(body, async () => {
    turns++;
    // Another body in between: nothing of the reading may be shared.
    assert.equal(parse('{"items":[{"queue":"other","payload":[[[1]]]}]}').length, 1);
  });
  assert.equal(turns, Math.floor(body.length / TURN_BYTES));
  assert.deepEqual(parsed, parsePushBody(body));
  const turn = async (): Promise<void> => {};
  await assert.rejects(parsePushBodyInTurns(body.subarray(0, -1), turn), BodyFault);
  await assert.rejects(parsePushBodyInTurns(Buffer.alloc(0), turn), BodyFault);
});
