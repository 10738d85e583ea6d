import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ChunkBase } from '../../../src/connectors/postgres/source/snapshot/base.ts';
import {
  baseOf,
  DELIVERED_MAX,
  firstState,
  parseSnapshotState,
} from '../../../src/connectors/postgres/source/snapshot/state.ts';
import {
  parseVisibility,
  printVisibility,
  Visibility,
} from '../../../src/connectors/postgres/source/snapshot/visibility.ts';

const visibility = fc
  .record({
    xmin: fc.bigInt({ min: 3n, max: 3n * 2n ** 32n }),
    span: fc.bigInt({ min: 0n, max: 40n }),
    running: fc.uniqueArray(fc.bigInt({ min: 0n, max: 39n })),
  })
  .map(({ xmin, span, running }) => {
    const within = running.filter((offset) => offset < span).map((offset) => xmin + offset);
    return new Visibility(xmin, xmin + span, within);
  });

test('a snapshot of the upstream is read as it was printed', () => {
  fc.assert(
    fc.property(visibility, (one) => {
      const again = parseVisibility(printVisibility(one))!;
      assert.deepEqual([again.xmin, again.xmax, again.running], [one.xmin, one.xmax, one.running]);
    }),
  );
  for (const text of ['', '1:2', '2:1:', '1:2:3,', '1:2:x', 'a:2:', '1:2: 3', '-1:2:']) {
    assert.equal(parseVisibility(text), null, text);
  }
});

test('a transaction is known by the lower half of its number', () => {
  fc.assert(
    fc.property(visibility, fc.bigInt({ min: -60n, max: 60n }), (one, distance) => {
      const xid = one.xmax + distance;
      if (xid < 0n) return;
      const low = Number(BigInt.asUintN(32, xid));
      assert.equal(one.widen(low), xid);
      assert.equal(one.seesLow(low), one.sees(xid));
    }),
  );
});

test('one snapshot covers another one if it sees all that the other one sees', () => {
  fc.assert(
    fc.property(visibility, fc.bigInt({ min: -30n, max: 30n }), visibility, (one, shift, shape) => {
      // Near each other, since far apart is easy.
      const xmin = one.xmin + shift < 3n ? 3n : one.xmin + shift;
      const moved = shape.running.map((xid) => xid - shape.xmin + xmin);
      const other = new Visibility(xmin, xmin + (shape.xmax - shape.xmin), moved);
      let all = true;
      for (let xid = 0n > one.xmin - 100n ? 0n : one.xmin - 100n; xid < one.xmax + 100n; xid++) {
        if (other.sees(xid) && !one.sees(xid)) all = false;
      }
      assert.equal(one.covers(other), all);
    }),
  );
});

test('the state of a snapshot is read as it was stored', () => {
  const state = firstState(['public.a', 'public.b'], baseOf('10:12:10,11'))!;
  const stored = { ...state, after: ['1', 'x'], rows: 3 };
  assert.deepEqual(parseSnapshotState(JSON.parse(JSON.stringify(stored))), stored);
  assert.deepEqual(parseSnapshotState({ ...state, base: null }).base, null);
  const many = { sees: '10:12:', delivered: null };
  assert.deepEqual(parseSnapshotState({ ...state, base: many }).base, many);
  assert.equal(firstState([], null), null);

  const wrong: [Record<string, unknown> | unknown[] | null, RegExp][] = [
    [null, /snapshot is not an object/],
    [[], /snapshot is not an object/],
    [{ ...state, more: 1 }, /snapshot\.more/],
    [{ ...state, tables: [] }, /snapshot\.tables is empty/],
    [{ ...state, tables: 'public.a' }, /snapshot\.tables is not a list/],
    [{ ...state, table: 'public.b' }, /snapshot\.table is not the first/],
    [{ ...state, after: [] }, /snapshot\.after is empty/],
    [{ ...state, after: [1] }, /snapshot\.after is not a list/],
    [{ ...state, after: undefined }, /snapshot\.after is not a list/],
    [{ ...state, rows: -1 }, /snapshot\.rows/],
    [{ ...state, rows: 0.5 }, /snapshot\.rows/],
    [{ ...state, base: 'x' }, /snapshot\.base is not an object/],
    [{ ...state, base: { sees: 'x', delivered: [] } }, /snapshot\.base\.sees/],
    [{ ...state, base: { sees: '1:2:', delivered: ['x'] } }, /snapshot\.base\.delivered/],
    [{ ...state, base: { sees: '1:2:', delivered: [1] } }, /snapshot\.base\.delivered/],
  ];
  for (const [value, sentence] of wrong) assert.throws(() => parseSnapshotState(value), sentence);
  assert.throws(() => baseOf('no snapshot'), /not a snapshot/);
});

test('who takes over must see what was delivered; of too many it knows only that', () => {
  const base = new ChunkBase(baseOf('100:100:'));
  assert.ok(base.known && !base.settled);
  base.carried(101);
  base.carried(101);
  base.carried(103);
  assert.deepEqual(base.print(), { sees: '100:100:', delivered: ['101', '103'] });
  const next = new ChunkBase(base.print());
  assert.equal(next.admits(parseVisibility('103:104:103')!), false);
  assert.equal(next.admits(parseVisibility('100:102:100')!), false);
  assert.equal(next.admits(parseVisibility('102:105:102')!), true);

  base.saw(parseVisibility('103:104:103')!);
  assert.deepEqual(base.print(), { sees: '103:103:', delivered: ['103'] });
  assert.ok(base.settled);
  for (let xid = 104; xid < 104 + DELIVERED_MAX; xid++) base.carried(xid);
  assert.equal(base.print()!.delivered, null);
  const stranger = new ChunkBase(base.print());
  assert.ok(!stranger.known);
  assert.equal(stranger.admits(parseVisibility('9000:9000:')!), false);
  assert.deepEqual(stranger.print(), base.print());
  // Not all of them are visible: the list would still lack some.
  base.saw(parseVisibility('1100:1200:1100')!);
  assert.equal(base.print()!.delivered, null);
  base.saw(parseVisibility('1200:1200:')!);
  assert.deepEqual(base.print()!.delivered, []);
});
