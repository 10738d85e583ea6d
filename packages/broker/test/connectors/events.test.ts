import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseLsn } from '../../src/connectors/postgres/replication/lsn.ts';
import { CELL, type Relation, type Tuple } from '../../src/connectors/postgres/replication/pgoutput.ts';
import {
  EventPlace,
  RelationChanged,
  type RowEvent,
  TableEncoder,
} from '../../src/connectors/postgres/source/events.ts';
import { truncatePayload } from '../../src/connectors/postgres/source/truncate.ts';
import { EncodingFault } from '../../src/connectors/postgres/source/values.ts';
import { rowOf } from './row_of.ts';

const UNCHANGED = Symbol('unchanged');

function row(...values: (string | null | typeof UNCHANGED)[]): Tuple {
  const tuple = rowOf(values.map((value) => (value === UNCHANGED ? null : value)));
  values.forEach((value, i) => {
    if (value === UNCHANGED) tuple.kinds[i] = CELL.unchanged;
  });
  return tuple;
}

const TYPES: Record<string, number> = { int4: 23, text: 25, numeric: 1700 };

function encoder(key: string[], partitionBy: string[] | null, ...columns: string[]): TableEncoder {
  const relation: Relation = {
    kind: 'relation',
    oid: 1,
    schema: 'shop',
    name: 'Baskets',
    identity: 'd',
    columns: columns.map((column) => {
      const [name, type] = column.split(' ') as [string, string];
      return { name, key: key.includes(name), typeOid: TYPES[type]!, typeModifier: -1 };
    }),
  };
  const typeOf = (oid: number) => ({ oid, kind: 'b', element: null, delimiter: ',' });
  return new TableEncoder(relation, { key, partitionBy, typeOf });
}

const PLACE = new EventPlace(parseLsn('0/1AB')!, 77, 1_764_500_000_000_042);
const TAIL = '"lsn":"0/1AB","xid":77,"ts":"2025-11-30T10:53:20.000042Z","seq":';
const baskets = encoder(['id'], ['id'], 'id int4', 'owner text', 'total numeric', 'note text');
const show = (events: RowEvent[]) =>
  events.map(({ partition, suffix, payload }) => [partition, suffix, payload.toString()]);

test('an insert, an update, a delete', () => {
  assert.deepEqual(show(baskets.insert(PLACE, 0, row('7', 'A"da', '12.50', null))), [
    [
      '7',
      '',
      `{"op":"c","table":"shop.Baskets","key":{"id":7},"after":{"id":7,"owner":"A\\"da","total":12.50,"note":null},"before":null,${TAIL}0}`,
    ],
  ]);
  assert.deepEqual(show(baskets.update(PLACE, 1, null, null, row('7', 'Ada', 'NaN', UNCHANGED))), [
    [
      '7',
      '',
      `{"op":"u","table":"shop.Baskets","key":{"id":7},"after":{"id":7,"owner":"Ada","total":"NaN"},"before":null,"unchanged":["note"],${TAIL}1}`,
    ],
  ]);
  assert.deepEqual(show(baskets.delete(PLACE, 2, 'K', row('7', null, null, null))), [
    ['7', '', `{"op":"d","table":"shop.Baskets","key":{"id":7},"after":null,"before":{"id":7},${TAIL}2}`],
  ]);
});

test('a row that a snapshot read, and what fills one up, have no transaction', () => {
  const place = new EventPlace(0x1abn, null, 0);
  const tail = '"lsn":"0/1AB","ts":"1970-01-01T00:00:00.000000Z","seq":3}';
  const read = row('7', 'Ada', '1', 'long');
  assert.deepEqual(show([baskets.row(place, 3, read), baskets.fill(place, 3, read, [3])]), [
    [
      '7',
      '',
      `{"op":"r","table":"shop.Baskets","key":{"id":7},"after":{"id":7,"owner":"Ada","total":1,"note":"long"},"before":null,${tail}`,
    ],
    [
      '7',
      '',
      `{"op":"u","table":"shop.Baskets","key":{"id":7},"after":{"id":7,"note":"long"},"before":null,"unchanged":["owner","total"],${tail}`,
    ],
  ]);
});

test('a row that moves to another partition leaves the old one and is whole in the new one', () => {
  const before = row('7', null, null, null);
  const after = row('8', 'Ada', '1', UNCHANGED);
  assert.deepEqual(baskets.missing('K', before, after), { key: ['8'], columns: [3] });
  assert.equal(baskets.missing('K', row('8', null, null, null), after), null);
  assert.equal(baskets.missing(null, null, after), null);
  const moved = baskets.update(
    PLACE,
    4,
    'K',
    before,
    after,
    row(UNCHANGED, UNCHANGED, UNCHANGED, 'read back'),
  );
  assert.deepEqual(show(moved), [
    ['7', '', `{"op":"d","table":"shop.Baskets","key":{"id":7},"after":null,"before":{"id":7},${TAIL}4}`],
    [
      '8',
      '.1',
      `{"op":"c","table":"shop.Baskets","key":{"id":8},"after":{"id":8,"owner":"Ada","total":1,"note":"read back"},"before":null,${TAIL}4}`,
    ],
  ]);
  // Gone by the time it was read: what is not known stays so.
  const [, created] = baskets.update(PLACE, 4, 'K', before, after);
  assert.match(created!.payload.toString(), /"total":1\},"before":null,"unchanged":\["note"\]/);
});

test('with one partition for the table a moved row is one update that names the old key', () => {
  const single = encoder(['id'], null, 'id int4', 'owner text');
  assert.deepEqual(show(single.update(PLACE, 0, 'K', row('7', null), row('8', 'Ada'))), [
    [
      'all',
      '',
      `{"op":"u","table":"shop.Baskets","key":{"id":8},"after":{"id":8,"owner":"Ada"},"before":{"id":7},${TAIL}0}`,
    ],
  ]);
  assert.deepEqual(single.missing('K', row('7', null), row('8', UNCHANGED)), { key: ['8'], columns: [1] });
});

test('the whole old row under full identity', () => {
  const byOwner = encoder(['id'], ['owner'], 'id int4', 'owner text', 'note text');
  const old = row('7', 'Ada', 'long');
  assert.deepEqual(show(byOwner.update(PLACE, 0, 'O', old, row('7', 'Ada', UNCHANGED))), [
    [
      'Ada',
      '',
      `{"op":"u","table":"shop.Baskets","key":{"id":7},"after":{"id":7,"owner":"Ada","note":"long"},"before":{"id":7,"owner":"Ada","note":"long"},${TAIL}0}`,
    ],
  ]);
  const moved = byOwner.update(PLACE, 1, 'O', old, row('7', null, UNCHANGED));
  assert.deepEqual(
    moved.map(({ partition, suffix }) => [partition, suffix]),
    [
      ['Ada', ''],
      ['\\N', '.1'],
    ],
  );
  assert.match(moved[0]!.payload.toString(), /"op":"d".*"before":\{"id":7,"owner":"Ada","note":"long"\}/);
  assert.match(moved[1]!.payload.toString(), /"after":\{"id":7,"owner":null,"note":"long"\},"before":null/);
  assert.equal(byOwner.missing('O', old, row('8', 'Ada', UNCHANGED)), null);
  assert.match(
    show(byOwner.delete(PLACE, 2, 'O', old))[0]![2]!,
    /"key":\{"id":7\},"after":null,"before":\{"id":7,"owner"/,
  );
});

test('keys of several columns stand in the order of the key, a value of the old key fills a new row', () => {
  const composite = encoder(['b', 'a'], ['b', 'a'], 'a text', 'b text', 'c int4');
  const [event] = composite.insert(PLACE, 0, row('x|y', 'z', '1'));
  assert.equal(event!.partition, 'z|x\\|y');
  assert.match(
    event!.payload.toString(),
    /"key":\{"b":"z","a":"x\|y"\},"after":\{"a":"x\|y","b":"z","c":1\}/,
  );
  const kept = composite.update(PLACE, 1, 'K', row('long', 'z', null), row(UNCHANGED, 'z', '2'));
  assert.equal(kept.length, 1);
  assert.match(kept[0]!.payload.toString(), /"op":"u".*"key":\{"b":"z","a":"long"\}.*"before":null,"lsn"/);
});

test('a relation without the key, or without a column that names partitions', () => {
  assert.throws(() => encoder(['id'], null, 'other int4'), RelationChanged);
  assert.throws(() => encoder(['id'], ['owner'], 'id int4'), /"owner"/);
});

test('a truncate', () => {
  const event = { table: 'shop.Baskets', cascade: true, restartIdentity: false };
  assert.equal(
    truncatePayload(PLACE, 6, event).toString(),
    `{"op":"t","table":"shop.Baskets","key":null,"after":null,"before":null,${TAIL}6,"cascade":true,"restartIdentity":false}`,
  );
});

test('an event that cannot be written leaves nothing in the next one', () => {
  const bad = row('7', 'x', '1', null);
  bad.bytes[bad.starts[1]!] = 0xff;
  assert.throws(() => baskets.insert(PLACE, 0, bad), EncodingFault);
  const [event] = baskets.insert(PLACE, 0, row('7', 'y', '1', null));
  assert.equal(JSON.parse(event!.payload.toString()).after.owner, 'y');
});

test('events stand on their own, whatever their lengths', () => {
  const table = encoder(['k'], null, 'k text', 'v text');
  const lengths = fc.oneof(fc.nat(2_000), fc.constantFrom(16_000, 65_000, 70_000, 200_000));
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.constantFrom('a', '"', '\u0001', 'é'), lengths), { maxLength: 40 }),
      (list) => {
        const values = list.map(([character, length]) => character.repeat(length));
        const events = values.map((value, i) => table.insert(PLACE, i, row(String(i), value))[0]!);
        events.forEach(({ payload }, i) => {
          assert.equal(JSON.parse(payload.toString()).after.v, values[i]);
        });
      },
    ),
    { numRuns: 60 },
  );
});

test('payloads are JSON that holds the row, whatever is in it', () => {
  const cell = fc.option(fc.string({ unit: 'binary' }).filter((text) => text.isWellFormed()));
  const table = encoder(['k'], ['k'], 'k text', 'v text', 'w text');
  fc.assert(
    fc.property(cell, cell, cell, (k, v, w) => {
      const [event] = table.insert(PLACE, 5, row(k, v, w));
      const parsed = JSON.parse(event!.payload.toString());
      assert.deepEqual(parsed.after, { k, v, w });
      assert.deepEqual([parsed.key, parsed.seq], [{ k }, 5]);
    }),
  );
});
