import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { indented, parseKeeping, RawJson } from '../src/api/json_text.ts';

const RAW = new Set(['data']);
const json = fc.json({ maxDepth: 4, noUnicodeString: false });

/** Null prototypes and RawJson aside. */
function plain(value: unknown): unknown {
  if (value instanceof RawJson) return JSON.parse(value.text);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]));
}

test('it says what JSON.parse says', () => {
  fc.assert(
    fc.property(json, fc.constantFrom(undefined, 1, '\t'), (text, space) => {
      const spaced = JSON.stringify(JSON.parse(text), null, space);
      const expected = plain(JSON.parse(spaced));
      assert.deepEqual(plain(parseKeeping(spaced, RAW)), expected);
    }),
  );
});

test('a raw member is the text that was there, to the character', () => {
  fc.assert(
    fc.property(json, json, (payload, other) => {
      const answer = `{"messages": [{"id": ${other}, "data":  ${payload} , "x": 1}], "total":1}`;
      const { messages } = parseKeeping(answer, RAW) as { messages: { data: RawJson; x: number }[] };
      assert.equal(messages[0]!.data.text, payload.trimEnd());
      assert.equal(messages[0]!.x, 1);
    }),
  );
  const exact = '{"b":1e400,"10":-0.10,"2":12345678901234567890,"b":"\\u00e9\\"}{"}';
  const { data } = parseKeeping(`{"data":${exact}}`, RAW) as { data: RawJson };
  assert.equal(data.text, exact);
});

test('a string may be as long as a body', () => {
  const long = JSON.stringify('a\\"'.repeat(5_000_000));
  const { data } = parseKeeping(`{"data":${long}}`, RAW) as { data: RawJson };
  assert.ok(data.text === long);
  const tokens = indented(long);
  assert.equal(tokens.length, 1);
  assert.ok(tokens[0]!.text === long);
});

test('indenting changes space between tokens, and nothing else', () => {
  fc.assert(
    fc.property(json, (text) => {
      const tokens = indented(text);
      const joined = tokens.map((token) => token.text).join('');
      assert.equal(JSON.stringify(JSON.parse(joined)), JSON.stringify(JSON.parse(text)));
      const kept = tokens.filter(({ kind }) => kind !== 'mark').map((token) => token.text);
      const scalars = text.match(/"(?:[^"\\]|\\.)*"|[^\s,:[\]{}"]+/g) ?? [];
      assert.deepEqual(kept, scalars);
    }),
  );
  assert.equal(
    indented('{"a":[1,{}],"b":[]}')
      .map(({ text }) => text)
      .join(''),
    '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}',
  );
});
