import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { HashIndex } from '../../src/engine/push/hash_index.ts';

test('finds the first equal hash, like a map of strings', () => {
  const index = new HashIndex();
  // Few different bytes at few places: equal hashes, and ones that differ in one word only.
  const hash = fc
    .tuple(...Array.from({ length: 4 }, () => fc.constantFrom(0, 1, 0x7fffffff)))
    .map((words) => {
      const bytes = Buffer.alloc(16);
      words.forEach((word, i) => {
        bytes.writeInt32LE(word, 4 * i);
      });
      return bytes;
    });
  const hashes = fc.tuple(fc.array(hash, { maxLength: 300 }), fc.integer({ min: 0, max: 7 }));
  fc.assert(
    fc.property(hashes, ([list, shift]) => {
      const buffer = Buffer.concat([Buffer.alloc(shift), ...list]).subarray(shift);
      index.reset(buffer);
      const first = new Map<string, number>();
      list.forEach((bytes, i) => {
        const key = bytes.toString('hex');
        assert.equal(index.add(i), first.get(key) ?? -1);
        if (!first.has(key)) first.set(key, i);
      });
    }),
  );
});
