import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { partitionName } from '../../src/connectors/postgres/source/partition_name.ts';
import { nameFault } from '../../src/log/names.ts';

test('one column as it is, several escaped and joined', () => {
  assert.equal(partitionName(['42']), '42');
  assert.equal(partitionName(['a|b\\c']), 'a|b\\c');
  assert.equal(partitionName([null]), '\\N');
  assert.equal(partitionName(['']), '');
  assert.equal(partitionName(['eu', '42']), 'eu|42');
  assert.equal(partitionName(['a|b', 'c\\d']), 'a\\|b|c\\\\d');
  assert.equal(partitionName([null, '\\N', '']), '\\N|\\\\N|');
});

test('what is too long or holds what a name must not has a digest for a name', () => {
  assert.equal(partitionName(['0'.repeat(128)]), '0'.repeat(128));
  // printf '%0129d' 0 | sha256sum | head -c 32
  assert.equal(partitionName(['0'.repeat(129)]), '~beab3966389f2ad495c7db4f9dc029f1');
  // In bytes, not in characters.
  assert.match(partitionName(['é'.repeat(65)]), /^~/);
  assert.match(partitionName(['line\nbreak']), /^~/);
});

test('rows of several columns meet only if their values are the same, and every name is one', () => {
  const value = fc.option(fc.string({ unit: fc.constantFrom('a', '|', '\\', 'N', '\n', 'é') }));
  const rows = fc.array(value, { minLength: 2, maxLength: 3 });
  fc.assert(
    fc.property(rows, rows, (one, other) => {
      const same = one.length === other.length && one.every((text, i) => text === other[i]);
      if (one.length === other.length) assert.equal(partitionName(one) === partitionName(other), same);
      assert.equal(nameFault(partitionName(one), 'partition'), null);
    }),
    { numRuns: 2_000 },
  );
});
