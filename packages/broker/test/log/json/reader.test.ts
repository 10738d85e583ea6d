import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { BodyFault } from '../../../src/log/json/fault.ts';
import { JSON_DEPTH_MAX } from '../../../src/log/json/grammar.ts';
import { JsonReader, KEYS_END, knownKeys } from '../../../src/log/json/reader.ts';
import { elementSpans, valueSpans } from '../../../src/log/json/spans.ts';
import { escapeSome, space, stringText, valueText } from './json_arbitrary.ts';

/** Whether the reader takes the bytes as one JSON text; anything but a BodyFault is a failure of the test. */
function accepts(bytes: Buffer): boolean {
  try {
    const reader = new JsonReader(bytes);
    reader.skip();
    reader.end();
    return true;
  } catch (error) {
    assert.ok(error instanceof BodyFault, String(error));
    return false;
  }
}

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const HARD_TEXTS = [
  ...[
    '',
    ' ',
    '0',
    '-',
    '-0',
    '00',
    '01',
    '-01',
    '1.',
    '.5',
    '1.5',
    '1e',
    '1e+',
    '1e5',
    '1E-5',
    '1e400',
    '+1',
    '0x1',
  ],
  ...[
    '-0.0e-0',
    '1.e1',
    '1e1.5',
    'Infinity',
    'NaN',
    '1 2',
    '1,',
    ' 1\t\n\r ',
    '\u00a01',
    '\ufeff1',
    '1\u2028',
    '\v1',
  ],
  ...['true', 'tru', 'truex', 'True', 'false', 'null', 'nul', 'nulll', 'undefined', 't', 'f', 'n'],
  ...[
    '""',
    '"',
    '"a',
    'a"',
    '"a"b',
    '"\\"',
    '"\\\\"',
    '"\\x"',
    '"\\u12"',
    '"\\u12g4"',
    '"\\u12345"',
    "'a'",
    '"\t"',
    '"\n"',
  ],
  ...[
    '"\u0000"',
    '"\u001f"',
    '"\u0020"',
    '"\u007f"',
    '"\ud83d\ude00"',
    '"\\ud800"',
    '"\\U0041"',
    '"\\',
    '"\\u',
    '"é',
  ],
  ...[
    '[',
    ']',
    '[]',
    '[ ]',
    '[,]',
    '[1,]',
    '[1 2]',
    '[1,2',
    '[[]',
    '[]]',
    '[1}',
    '{]',
    '[1,[2,{"a":[]}]]',
    '[1]1',
  ],
  ...[
    '{',
    '}',
    '{}',
    '{ }',
    '{,}',
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    '{"a":1 "b":2}',
    '{a:1}',
    '{"a":1,,"b":2}',
    '{1:2}',
  ],
  ...[
    '{"a":1}',
    '{"a" : 1 , "a" : 2}',
    '{"a":1',
    '{"a"',
    '{"',
    '{"a":1]',
    '{"__proto__":{}}',
    '{"a":{}}}',
    '/**/1',
    '1//',
  ],
];

test('hard texts are taken exactly when JSON.parse takes them', () => {
  for (const text of HARD_TEXTS) assert.equal(accepts(Buffer.from(text)), parses(text), JSON.stringify(text));
});

test('any JSON text is taken, and each way of damaging it is judged as JSON.parse does', () => {
  const damage = fc.record({
    at: fc.nat(),
    remove: fc.nat({ max: 3 }),
    put: fc.string({ unit: 'grapheme', maxLength: 2 }),
  });
  const structural = fc.record({
    at: fc.nat(),
    remove: fc.nat({ max: 1 }),
    put: fc.constantFrom(
      '"',
      '\\',
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '0',
      '-',
      '.',
      'e',
      '\n',
      '\u0001',
      'null',
      '',
    ),
  });
  let damagedAccepted = 0;
  let damagedRefused = 0;
  fc.assert(
    fc.property(
      valueText,
      space,
      fc.array(fc.oneof(damage, structural), { maxLength: 2 }),
      (value, around, steps) => {
        let text = around + value + around;
        assert.ok(accepts(Buffer.from(text)));
        for (const { at, remove, put } of steps) {
          const place = at % (text.length + 1);
          text = text.slice(0, place) + put + text.slice(place + remove);
        }
        const bytes = Buffer.from(text);
        const verdict = parses(bytes.toString());
        assert.equal(accepts(bytes), verdict, JSON.stringify(text));
        if (steps.length > 0) verdict ? damagedAccepted++ : damagedRefused++;
      },
    ),
    { numRuns: 3000 },
  );
  // Both verdicts must occur, or the comparison has shown little.
  assert.ok(
    damagedAccepted > 50 && damagedRefused > 50,
    `${damagedAccepted} taken, ${damagedRefused} refused`,
  );
});

test('bytes that are no UTF-8 are refused, wherever they stand', () => {
  const bad = [
    [0x80],
    [0xc3],
    [0xc0, 0xaf],
    [0xed, 0xa0, 0x80],
    [0xf5, 0x80, 0x80, 0x80],
    [0xff],
    [0xe2, 0x82],
  ];
  for (const bytes of bad) {
    for (const [before, after] of [
      ['"', '"'],
      ['{"a', '":1}'],
      ['[1', ']'],
      ['', '1'],
      ['1', ''],
    ] as const) {
      const body = Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(after)]);
      assert.throws(() => new JsonReader(body), /UTF-8/);
    }
  }
});

test('the depth limit holds for objects and arrays, and its sentence names it', () => {
  const nest = (open: string, close: string, levels: number): Buffer =>
    Buffer.from(open.repeat(levels) + '1'.repeat(1) + close.repeat(levels));
  for (const [open, close] of [
    ['[', ']'],
    ['{"a":', '}'],
  ] as const) {
    assert.ok(accepts(nest(open, close, JSON_DEPTH_MAX)));
    const deeper = nest(open, close, JSON_DEPTH_MAX + 1);
    assert.throws(() => new JsonReader(deeper).skip(), /deeper than 1000 levels/);
  }
  // A million levels are refused at once, with no recursion anywhere.
  assert.throws(() => new JsonReader(Buffer.alloc(1_000_000, '[')).skip(), /deeper than 1000/);
  // Many siblings are not deep.
  assert.ok(accepts(Buffer.from(`[${'[],'.repeat(5000)}[]]`)));
});

test('the depth of what the caller has entered counts too', () => {
  const body = Buffer.from(`[[${'['.repeat(JSON_DEPTH_MAX - 1)}${']'.repeat(JSON_DEPTH_MAX - 1)}]]`);
  const reader = new JsonReader(body);
  assert.ok(reader.firstElement() && reader.firstElement());
  assert.throws(() => reader.skip(), /deeper/);
});

test('strings decode as JSON.parse decodes them', () => {
  fc.assert(
    fc.property(stringText, stringText, (text, guess) => {
      const bytes = Buffer.from(text);
      const expected = JSON.parse(text) as string;
      const reader = new JsonReader(bytes);
      assert.equal(reader.string(), expected);
      assert.equal(reader.at, bytes.length);
      for (const like of [
        expected,
        JSON.parse(guess) as string,
        text.slice(1, -1),
        expected.slice(0, -1),
        '',
      ]) {
        const again = new JsonReader(bytes);
        assert.equal(again.stringLike(like), expected, JSON.stringify(like));
        assert.equal(again.at, bytes.length);
      }
    }),
    { numRuns: 1000 },
  );
});

test('elements and members are the exact bytes, found as JSON.parse finds them', () => {
  const names = ['a', 'payload', '__proto__', 'é', '', 'a"b'];
  const known = knownKeys(...names);
  const member = fc.tuple(fc.constantFrom(...names, 'b', 'payloa', 'payloadd'), fc.nat(), valueText, space);
  fc.assert(
    fc.property(fc.array(member, { maxLength: 8 }), (members) => {
      const values = new Map<string, string>();
      const object = members.map(([name, mask, value, s]) => {
        values.set(name, value);
        return `${s}${escapeSome(name, (i) => ((mask >> i) & 1) === 1)}${s}:${s}${value}${s}`;
      });
      const spans = valueSpans(Buffer.from(`{${object.join(',')}}`), known);
      assert.deepEqual(
        spans.map((span) => span?.toString() ?? null),
        names.map((name) => values.get(name) ?? null),
      );
      const list = members.map(([, , value, s]) => s + value + s);
      assert.deepEqual(
        elementSpans(Buffer.from(`[${list.join(',')}]`)).map(String),
        members.map(([, , value]) => value),
      );
    }),
    { numRuns: 500 },
  );
});

test('spans of something else are refused', () => {
  const known = knownKeys('a');
  for (const body of ['[]', '1', 'null', '"a"', ''])
    assert.throws(() => valueSpans(Buffer.from(body), known), BodyFault);
  for (const body of ['{}', '1', 'null', '"a"', ''])
    assert.throws(() => elementSpans(Buffer.from(body)), BodyFault);
  for (const body of ['{"a":1}x', '{"a":1', '{"a":1,"b":tru}']) {
    assert.throws(() => valueSpans(Buffer.from(body), known), BodyFault);
  }
});

test('a walk must be fed: entering what is not there is a fault, not an endless loop', () => {
  assert.throws(() => new JsonReader(Buffer.from('[1]')).firstKey(knownKeys()), BodyFault);
  assert.throws(() => new JsonReader(Buffer.from('{}')).firstElement(), BodyFault);
  assert.throws(() => new JsonReader(Buffer.from('1')).string(), BodyFault);
  assert.equal(new JsonReader(Buffer.from('{}')).firstKey(knownKeys()), KEYS_END);
  assert.equal(new JsonReader(Buffer.from('[ ]')).firstElement(), false);
});
