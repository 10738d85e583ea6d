import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { formatInstant, parseInstant } from '../../src/connectors/postgres/instants.ts';

test('times to the microsecond', () => {
  fc.assert(
    fc.property(fc.maxSafeInteger(), (micros) => {
      const text = formatInstant(micros);
      assert.match(text, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
      const fraction = ((micros % 1_000_000) + 1_000_000) % 1_000_000;
      assert.equal(Number(text.slice(20, 26)), fraction);
      assert.equal(Date.parse(`${text.slice(0, 19)}Z`), (micros - fraction) / 1_000);
      assert.equal(parseInstant(text), micros);
    }),
  );
});
