import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { JsonWriter } from '../../src/log/json/writer.ts';

test('strings and integers as JSON.stringify writes them, from any capacity on', () => {
  const text = fc.oneof(fc.string({ maxLength: 200 }), fc.string({ unit: 'binary', maxLength: 200 }));
  const integer = fc.oneof(
    fc.nat(),
    fc.maxSafeNat(),
    fc.constantFrom(0, 9, 10, 99, 100, 2 ** 31 - 1, 2 ** 31),
  );
  fc.assert(
    fc.property(fc.array(fc.oneof(text, integer)), fc.nat(300), (values, capacity) => {
      const writer = new JsonWriter(capacity);
      values.forEach((value, i) => {
        writer.ascii(i === 0 ? '[' : ',');
        if (typeof value === 'string') writer.string(value);
        else writer.integer(value);
      });
      writer.text(values.length === 0 ? '[]' : ',"ü😀"]');
      const expected = values.length === 0 ? '[]' : JSON.stringify([...values, 'ü😀']);
      assert.equal(writer.bytes().toString(), expected);
    }),
    { numRuns: 300 },
  );
});
