import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PartitionTable } from '../../src/engine/hotlist/partition_table.ts';

test('the table does what a Map does', () => {
  // Few ids, so that they collide and are removed from the middle of a run; some beyond 32 bits.
  const id = fc.oneof(
    fc.nat(60),
    fc.nat(60).map((n) => n * 4_294_967_296 + 7),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), id), { maxLength: 300 }), (ops) => {
      const table = new PartitionTable(new Float64Array(300));
      const map = new Map<number, number>();
      ops.forEach(([add, key], i) => {
        if (add && !map.has(key)) {
          table.ids[i] = key;
          table.add(i);
          map.set(key, i);
        } else if (!add) {
          table.remove(key);
          map.delete(key);
        }
        assert.equal(table.size, map.size);
      });
      for (const [, key] of ops) assert.equal(table.get(key), map.get(key) ?? -1);
    }),
    { numRuns: 300 },
  );
});
