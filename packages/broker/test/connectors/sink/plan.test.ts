import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import type { Planned } from '../../../src/connectors/postgres/sink/operations.ts';
import { layeredRuns, strictRuns } from '../../../src/connectors/postgres/sink/plan.ts';

/** An operation of a model: what it does to a map of rows. */
interface Op extends Planned {
  readonly id: number;
  readonly value: number;
}

const KEYS = ['a', 'b', 'c', 'd'];
const key = fc.constantFrom(...KEYS);
const op = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constantFrom('upsert', 'partial', 'delete'), keys: key.map((k) => [k]) }),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(key, key)
      .filter(([to, from]) => to !== from)
      .map((keys) => ({ kind: 'move', keys: [...keys] })),
  },
  { weight: 1, arbitrary: fc.constant({ kind: 'truncate', keys: [] as string[] }) },
);
const ops: fc.Arbitrary<Op[]> = fc
  .array(fc.tuple(op, fc.constantFrom('x', 'y'), fc.integer({ min: 1, max: 5 })), { maxLength: 30 })
  .map((list) =>
    list.map(([{ kind, keys }, shape, bytes], id) => ({ id, value: id, kind, keys, shape, bytes }) as Op),
  );

type Rows = Map<string, string>;

/** Shapes write different columns, so that the order of writes to one row shows. */
function applyOne(rows: Rows, { kind, keys, shape, value }: Op): void {
  const write = (at: string, before: string) =>
    rows.set(at, `${before.replace(new RegExp(`${shape}\\d+`), '')}${shape}${value}`);
  if (kind === 'truncate') rows.clear();
  else if (kind === 'delete') rows.delete(keys[0]!);
  else if (kind === 'move') {
    const old = rows.get(keys[1]!);
    rows.delete(keys[1]!);
    write(keys[0]!, old ?? rows.get(keys[0]!) ?? '');
  } else write(keys[0]!, rows.get(keys[0]!) ?? '');
}

/** A run is applied as one statement does it: all of it from the state before. */
function applyRun(rows: Rows, run: readonly Op[]): void {
  const touched = run.flatMap(({ keys }) => keys);
  assert.equal(new Set(touched).size, touched.length, 'a key twice in one run');
  assert.ok(run.every(({ kind, shape }) => kind === run[0]!.kind && shape === run[0]!.shape));
  for (const one of run) applyOne(rows, one);
}

function folded(runs: readonly (readonly Op[])[]): Rows {
  const rows: Rows = new Map();
  for (const run of runs) applyRun(rows, run);
  return rows;
}

suite('runs of a batch', () => {
  for (const [name, plan] of [
    ['strict', strictRuns<Op>],
    ['layered', layeredRuns<Op>],
  ] as const) {
    test(`${name}: every operation once, and what the table holds is what one after the other would leave`, () => {
      fc.assert(
        fc.property(ops, fc.integer({ min: 5, max: 40 }), (list, bytesMax) => {
          const runs = plan(list, bytesMax);
          assert.deepEqual(
            runs
              .flat()
              .map(({ id }) => id)
              .sort((a, b) => a - b),
            list.map(({ id }) => id),
          );
          assert.ok(runs.every((run) => run.length > 0));
          for (const run of runs) {
            assert.ok(run.length === 1 || run.reduce((sum, { bytes }) => sum + bytes, 0) <= bytesMax);
          }
          const rows: Rows = new Map();
          for (const one of list) applyOne(rows, one);
          const sorted = (map: Rows) => [...map].sort();
          assert.deepEqual(sorted(folded(runs)), sorted(rows));
        }),
        { numRuns: 500 },
      );
    });
  }

  test('strict keeps the order of all operations', () => {
    fc.assert(
      fc.property(ops, (list) => {
        assert.deepEqual(
          strictRuns(list)
            .flat()
            .map(({ id }) => id),
          list.map(({ id }) => id),
        );
      }),
    );
  });

  test('layers make runs as long as the most frequent key allows', () => {
    const list = Array.from({ length: 300 }, (_, id): Op => {
      return {
        id,
        value: id,
        kind: 'upsert',
        shape: id % 2 === 0 ? 'x' : 'y',
        keys: [`k${id % 100}`],
        bytes: 1,
      };
    });
    assert.equal(layeredRuns(list).length, 3 * 2);
    assert.equal(strictRuns(list).length, 300);
  });

  test('within a layer rows stand in the order of their keys, inserts without a key in the order of their messages', () => {
    const of = (kind: Op['kind'], keys: string[], id: number): Op => ({
      id,
      value: id,
      kind,
      shape: '',
      keys,
      bytes: 1,
    });
    const upserts = ['c', 'a', 'b'].map((k, id) => of('upsert', [k], id));
    assert.deepEqual(
      layeredRuns(upserts).map((run) => run.map(({ keys }) => keys[0])),
      [['a', 'b', 'c']],
    );
    const inserts = [2, 0, 1].map((id) => of('append', [], id));
    assert.deepEqual(
      strictRuns(inserts).map((run) => run.map(({ id }) => id)),
      [[2, 0, 1]],
    );
  });
});
