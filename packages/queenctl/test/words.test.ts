import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parse } from 'yaml';
import { changesBetween, lineOf } from '../src/apply/changes.ts';
import { documentsOf } from '../src/apply/documents.ts';
import { Latencies } from '../src/bench/latencies.ts';
import { at, durationMs, durationSeconds, instant, integer, moment, size } from '../src/input/values.ts';
import { digitsOf, jsonText, parseExact } from '../src/output/exact_json.ts';
import { table } from '../src/output/table.ts';
import { bytes, duration, harmless, nearest } from '../src/output/text.ts';
import { yamlOf } from '../src/output/yaml.ts';

test('times, instants, sizes and numbers as they are typed', () => {
  assert.deepEqual(
    ['500ms', '30s', '1h30m', '2d', '1.5s', '7'].map(durationMs),
    [500, 30_000, 5_400_000, 172_800_000, 1_500, 7_000],
  );
  for (const bad of ['', 's', '-1s', '1w', '1h 3m', '1e3'])
    assert.throws(() => durationMs(bad), /a time like/, bad);
  assert.throws(() => durationSeconds('1500ms'), /whole seconds/);
  assert.equal(instant('2026-01-31'), '2026-01-31T00:00:00Z');
  assert.equal(instant('2026-01-31T10:00:00'), '2026-01-31T10:00:00Z');
  assert.equal(instant('2026-01-31T10:00:00.123456+02:00'), '2026-01-31T10:00:00.123456+02:00');
  const ago = Date.now() - Date.parse(instant('15m'));
  assert.ok(ago >= 900_000 && ago < 960_000, String(ago));
  for (const bad of ['tomorrow', '2026-13-01', '10:00'])
    assert.throws(() => instant(bad), /an instant like/, bad);
  // What is to come is no time ago.
  assert.throws(() => moment('15m'), /an instant like/);
  assert.deepEqual(['100', '1KiB', '2mib'].map(size), [100, 1_024, 2_097_152]);
  assert.throws(() => size('1KB'), /a size like/);
  assert.equal(integer(0, 5)('5'), 5);
  for (const bad of ['6', '-1', '1.5', '', 'x']) assert.throws(() => integer(0, 5)(bad), /from 0 to 5/, bad);
  assert.equal(at({ a: { b: 1 } }, 'a.b'), 1);
  assert.equal(at({ a: 'text' }, 'a.length'), undefined);
});

test('JSON keeps every digit, and is the same JSON otherwise', () => {
  const text = '{"a":12.50,"b":123456789012345678901234567890,"c":-0,"d":1e3,"e":[1,0.1,"12.50"],"f":null}';
  assert.equal(JSON.stringify(parseExact(text)), text);
  assert.equal(digitsOf((parseExact(text) as { a: unknown }).a), '12.50');
  assert.equal(yamlOf(parseExact('{"a":12.50,"b":[1e400]}')), 'a: 12.50\nb:\n  - 1e400\n');
  fc.assert(
    fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
      const written = JSON.stringify(value);
      assert.equal(JSON.stringify(parseExact(written)), written);
    }),
  );
});

test('documents are the same and steer no terminal', () => {
  const value = { 'k\u009b': '\u009b2J\u001b[2J\u007f\u202e', plain: 'é\u00a0 \u2066', n: 'a\nb' };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
  const steering = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/;
  const json = jsonText(value, 2);
  assert.deepEqual(JSON.parse(json), value);
  assert.doesNotMatch(json, /[\u202a-\u202e\u2066-\u2069]/);
  const yaml = yamlOf(value);
  assert.deepEqual(parse(yaml), value);
  for (const text of [json, yaml]) assert.doesNotMatch(text, steering);
});

test('a manifest that grows without end is refused by its place', () => {
  const levels = 'abcdefgh'.split('').map((name, i, all) => {
    const of = i === 0 ? 'x' : `*${all[i - 1]}`;
    return `${name}: &${name} [${new Array(9).fill(of).join(', ')}]`;
  });
  assert.throws(
    () => documentsOf(`kind: Queue\n---\n${levels.join('\n')}`, 'm.yaml'),
    /^Failure: m\.yaml, line 3: /,
  );
});

test('words for people', () => {
  assert.deepEqual([0, 0.34, 12, 200, 18_000, 187_200, 90].map(duration), [
    '0s',
    '340ms',
    '12s',
    '3m20s',
    '5h',
    '2d4h',
    '1m30s',
  ]);
  assert.deepEqual([0, 1023, 1536, 10 * 1024 ** 3].map(bytes), ['0 B', '1023 B', '1.5 KiB', '10 GiB']);
  assert.equal(harmless('a\u001b[31m\nb\u202e\u0085'), 'a\\u001b[31m\\nb\\u202e\\u0085');
  assert.equal(nearest('ordrs', ['orders', 'payments']), 'orders');
  assert.equal(nearest('x', ['orders']), null);
  const columns = [
    { title: 'NAME', of: ({ name }: { name: string }) => name },
    { title: 'N', of: ({ name }: { name: string }) => name.length, right: true },
    { title: 'TEXT', of: ({ name }: { name: string }) => name.repeat(9), cut: true },
  ];
  assert.equal(
    table([{ name: 'aé' }, { name: 'abcdefghijklm' }], columns, 40),
    'NAME            N  TEXT\naé              2  aéaéaéaéaéaéaéaéaé\nabcdefghijklm  13  abcdefghijklmabcdefg…\n',
  );
});

test('what differs between documents', () => {
  const before = { a: 1, b: { c: [1, 2], d: 'x' }, gone: true };
  const after = { a: 1, b: { c: [1, 3, 4], d: 'x' }, come: null };
  assert.deepEqual(changesBetween(before, after).map(lineOf), [
    '  ~ b.c[1]: 2 -> 3',
    '  + b.c[2]: 4',
    '  - gone: true',
    '  + come: null',
  ]);
  fc.assert(
    fc.property(fc.jsonValue(), (value) =>
      assert.deepEqual(changesBetween(value, structuredClone(value)), []),
    ),
  );
});

test('quantiles are right to within a bucket', () => {
  assert.equal(new Latencies().quantile(0.5), null);
  fc.assert(
    fc.property(
      fc.array(fc.double({ min: 0.02, max: 100_000, noNaN: true }), { minLength: 1 }),
      fc.double({ min: 0.01, max: 1, noNaN: true }),
      (values, share) => {
        const latencies = new Latencies();
        for (const value of values) latencies.add(value);
        const exact = values.sort((one, other) => one - other)[
          Math.max(1, Math.ceil(share * values.length)) - 1
        ]!;
        const told = latencies.quantile(share)!;
        assert.ok(told >= exact * 0.999 && told <= exact * 1.0906, `${told} for ${exact}`);
      },
    ),
  );
});
