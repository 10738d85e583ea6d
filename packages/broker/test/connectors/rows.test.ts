import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { CELL, type Tuple } from '../../src/connectors/postgres/replication/pgoutput.ts';
import {
  cellText,
  filled,
  isUnchanged,
  rowOfBytes,
  sameCell,
} from '../../src/connectors/postgres/source/rows.ts';
import { rowOf } from './row_of.ts';

const UNCHANGED = 'unchanged';
type Cell = string | null | typeof UNCHANGED;

/** As the stream has it: somewhere in a larger piece of memory. */
function received(cells: readonly Cell[]): Tuple {
  const row = rowOf(cells.map((cell) => (cell === UNCHANGED ? null : cell)));
  const around = Buffer.concat([Buffer.from('before'), row.bytes, Buffer.from('behind')]);
  const kinds = row.kinds.slice();
  cells.forEach((cell, i) => {
    if (cell === UNCHANGED) kinds[i] = CELL.unchanged;
  });
  return { bytes: around, kinds, starts: row.starts.map((at) => at + 6), ends: row.ends.map((at) => at + 6) };
}

function shown(row: Tuple): Cell[] {
  return [...row.kinds].map((_, i) => (isUnchanged(row, i) ? UNCHANGED : cellText(row, i)));
}

const cell = fc.oneof(fc.string({ maxLength: 9 }), fc.constantFrom(null, UNCHANGED, ''));

test('what one row lacks is taken from the other one', () => {
  const pair = fc.nat(6).chain((width) => {
    const cells = fc.array(cell, { minLength: width, maxLength: width });
    return fc.tuple(cells, cells, fc.array(fc.boolean(), { minLength: width, maxLength: width }));
  });
  fc.assert(
    fc.property(pair, ([cells, others, wanted]) => {
      const columns = wanted.flatMap((yes, i) => (yes ? [i] : []));
      const row = filled(received(cells), received(others), columns);
      assert.deepEqual(
        shown(row),
        cells.map((own, i) => (own === UNCHANGED && wanted[i] ? others[i] : own)),
      );
    }),
  );
});

test('values of one answer are not copied', () => {
  const answer = Buffer.from('xabcde');
  const together = rowOfBytes([answer.subarray(1, 3), null, answer.subarray(3, 6), answer.subarray(6)]);
  assert.deepEqual(shown(together), ['ab', null, 'cde', '']);
  assert.equal(together.bytes.buffer, answer.buffer);
  assert.throws(() => rowOfBytes([Buffer.alloc(9_000), Buffer.alloc(9_000)]), { code: 'row_in_one_piece' });
  assert.deepEqual(shown(rowOfBytes([null])), [null]);
  assert.deepEqual(shown(rowOfBytes([])), []);
});

test('cells are the same if they print the same', () => {
  fc.assert(
    fc.property(cell, cell, (one, other) => {
      assert.equal(sameCell(received([one]), received([other]), 0), one === other);
    }),
  );
});
