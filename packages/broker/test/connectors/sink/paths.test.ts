import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { parsePath, spanText, valueAt } from '../../../src/connectors/postgres/sink/paths.ts';

function at(payload: string, path: string): string | null {
  const parsed = parsePath(path);
  if (typeof parsed === 'string' || 'fact' in parsed) assert.fail(`${path}: ${JSON.stringify(parsed)}`);
  return valueAt(Buffer.from(payload), parsed.steps);
}

suite('paths of parameters', () => {
  test('the grammar', () => {
    const good = [
      '$',
      '$.a',
      '$.a.b',
      '$.lines[0]',
      '$[0][12]',
      '$["a b"]',
      '$["a.b"].c',
      '$["\\u0041\\""]',
      '$.ä-b',
      '$[2147483647]',
    ];
    for (const path of [...good, '@partition', '@partitionId', '@offset', '@transactionId', '@createdAt']) {
      assert.equal(typeof parsePath(path), 'object', path);
    }
    const bad = [
      '',
      'a',
      '.a',
      '$a',
      '$.',
      '$..a',
      '$.a.',
      '$[',
      '$[]',
      '$[01]',
      '$[-1]',
      '$[1',
      '$[2147483648]',
      '$ .a',
      '$. a',
      '$.a b',
    ];
    for (const path of [
      ...bad,
      '$["a]',
      "$['a']",
      '$["\\x"]',
      '$["a\nb"]',
      '$.a"b',
      '@',
      '@other',
      '@offset ',
      ' $',
    ]) {
      assert.equal(typeof parsePath(path), 'string', path);
    }
  });

  test('values are text, in the characters that they were written in', () => {
    const payload =
      '{"n": 1.50e+400, "s":"\\u0041\\n", "t":true,"z":null,"e":"","o":{ "x" : [1 , 2] },"big":123456789012345678901234567890}';
    assert.equal(at(payload, '$.n'), '1.50e+400');
    assert.equal(at(payload, '$.s'), 'A\n');
    assert.equal(at(payload, '$.t'), 'true');
    assert.equal(at(payload, '$.z'), null);
    assert.equal(at(payload, '$.e'), '');
    assert.equal(at(payload, '$.o'), '{ "x" : [1 , 2] }');
    assert.equal(at(payload, '$.o.x[1]'), '2');
    assert.equal(at(payload, '$.big'), '123456789012345678901234567890');
    assert.equal(at(` ${payload}\n`, '$'), payload);
    assert.equal(at('"whole"', '$'), 'whole');
  });

  test('what is not there is NULL', () => {
    for (const path of ['$.b', '$.a.b', '$.a[0]', '$[0]', '$.l[3]', '$.l.x', '$.s.length']) {
      assert.equal(at('{"a":1,"l":[1,2,3],"s":"text"}', path), null, path);
    }
  });

  test('of a repeated key the last one counts, however it is written', () => {
    assert.equal(at('{"a":1,"\\u0061":2}', '$.a'), '2');
    assert.equal(at('{"a":{"b":1},"a":{"c":2}}', '$.a.b'), null);
  });

  test('agrees with JSON.parse', () => {
    const step = fc.oneof(fc.constantFrom('a', 'b c', 'ü"', ''), fc.nat(3));
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.array(step, { maxLength: 4 }), (value, steps) => {
        const path = `$${steps.map((s) => `[${JSON.stringify(s)}]`).join('')}`;
        let found: unknown = JSON.parse(JSON.stringify(value));
        for (const s of steps) {
          const fits =
            typeof s === 'number' ? Array.isArray(found) : typeof found === 'object' && !Array.isArray(found);
          found = fits && found !== null ? Object.getOwnPropertyDescriptor(found, s)?.value : undefined;
        }
        const expected =
          found === undefined || found === null
            ? null
            : typeof found === 'string'
              ? found
              : JSON.stringify(found);
        assert.equal(at(JSON.stringify(value), path), expected);
      }),
      { numRuns: 300 },
    );
  });

  test('a span as text', () => {
    assert.equal(spanText(Buffer.from('"a\\/b"')), 'a/b');
    assert.equal(spanText(Buffer.from('-0')), '-0');
    assert.equal(spanText(Buffer.from('null')), null);
  });
});
