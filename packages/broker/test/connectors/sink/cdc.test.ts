/** A copy that follows the events of a source. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { SinkRig, sharedServer, until } from './rig.ts';

const server = sharedServer({ before, after });

const event = (fields: Record<string, unknown>) => ({
  table: 'public.t',
  key: null,
  after: null,
  before: null,
  lsn: '0/1',
  xid: 1,
  ts: '2026-10-03T06:15:03.583036Z',
  seq: 0,
  ...fields,
});

suite('cdc', () => {
  test('inserts, updates, deletes, in partitions of one row each and a batch for all', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(
      "CREATE TABLE t (id int PRIMARY KEY, v text, mine text DEFAULT 'own', g int GENERATED ALWAYS AS (id * 2) STORED)",
    );
    await rig.push([
      ['1', event({ op: 'r', key: { id: 1 }, after: { id: 1, v: 'a', g: 9, unknown: 5 } })],
      ['2', event({ op: 'c', key: { id: 2 }, after: { id: 2, v: 'b' } })],
      ['1', event({ op: 'u', key: { id: 1 }, after: { id: 1, v: 'aa' } })],
      ['2', event({ op: 'd', key: { id: 2 }, before: { id: 2 } })],
      ['3', event({ op: 'd', key: { id: 3 }, before: { id: 3 } })],
      ['2', event({ op: 'c', key: { id: 2 }, after: { id: 2, v: 'again' } })],
      ['1', event({ op: 'u', key: { id: 1 }, after: { id: 1, v: null }, before: { id: 1 } })],
    ]);
    rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    assert.deepEqual(await rig.sql('SELECT * FROM t ORDER BY id'), [
      { id: 1, v: null, mine: 'own', g: 2 },
      { id: 2, v: 'again', mine: 'own', g: 4 },
    ]);
    assert.deepEqual(await rig.letters(), []);
  });

  test('what a row holds beside its key is nothing to a deletion, or to a row that moves away', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(
      "CREATE TABLE t (id int PRIMARY KEY, doc json, v text); INSERT INTO t VALUES (1, NULL), (2, NULL), (3, '{}'), (4, NULL)",
    );
    const odd = { v: 'a\u0000', '\ud800': 1 };
    await rig.push([
      ['1', event({ op: 'd', before: { id: 1, doc: odd } })],
      ['2', event({ op: 'd', key: { id: 2, doc: odd }, before: { id: 2 } })],
      ['3', event({ op: 'u', key: { id: 5 }, after: { id: 5 }, before: { id: 3, doc: odd } })],
      // The key beside the row, and as many members in it as there are columns to fill.
      ['4', event({ op: 'u', key: { id: 4 }, after: { v: 'x', '\ud800': 1 } })],
    ]);
    rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    assert.deepEqual(await rig.letters(), []);
    assert.deepEqual(await rig.sql('SELECT * FROM t ORDER BY id'), [
      { id: 4, doc: null, v: 'x' },
      { id: 5, doc: {}, v: null },
    ]);
  });

  test('unchanged columns are kept, fills complete a row', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int PRIMARY KEY, big text NOT NULL, v int)');
    await rig.push([
      ['1', event({ op: 'c', key: { id: 1 }, after: { id: 1, big: 'BIG', v: 1 } })],
      ['1', event({ op: 'u', key: { id: 1 }, after: { id: 1, v: 2 }, unchanged: ['big'] })],
      ['1', event({ op: 'u', key: { id: 1 }, after: { id: 1, big: 'wrong', v: 3 }, unchanged: ['big'] })],
      // A fill holds the key beside the row.
      ['1', event({ op: 'u', key: { id: 1 }, after: { big: 'FILLED' }, unchanged: ['v'] })],
    ]);
    rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    assert.deepEqual(await rig.sql('SELECT * FROM t'), [{ id: 1, big: 'FILLED', v: 3 }]);
  });

  test('an update without its large columns, of a row that is not there yet, waits for the rest', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int PRIMARY KEY, big text NOT NULL, v int NOT NULL)');
    const partial = (id: number) => event({ op: 'u', key: { id }, after: { id, v: id }, unchanged: ['big'] });
    const fill = (id: number) => {
      const { xid: _, ...rest } = event({
        op: 'u',
        key: { id },
        after: { id, big: `B${id}` },
        unchanged: ['v'],
      });
      return rest;
    };
    await rig.push([
      ['1', partial(1)],
      ['1', event({ op: 'u', key: { id: 1 }, after: { id: 1, v: 10 }, unchanged: ['big'] })],
      ['1', fill(1)],
      ['2', partial(2)],
      ['2', event({ op: 'd', key: { id: 2 }, before: { id: 2 } })],
      ['3', partial(3)],
      ['4', event({ op: 'c', key: { id: 4 }, after: { id: 4, big: 'B4', v: 4 } })],
    ]);
    const sink = rig.start({ table: 't', mode: 'cdc', maxAttempts: 1 });
    const row = (id: number, v: number) => ({ id, big: `B${id}`, v });
    await until('what can be is applied', async () => sink.status.of('applied') >= 6);
    assert.deepEqual(await rig.sql('SELECT * FROM t ORDER BY id'), [row(1, 10), row(4, 4)]);
    await rig.push([['3', fill(3)]]);
    await rig.drained();
    assert.deepEqual(await rig.sql('SELECT * FROM t ORDER BY id'), [row(1, 10), row(3, 3), row(4, 4)]);
    assert.deepEqual(await rig.letters(), []);
  });

  test('key moves: to a free key, to one of a stale row, of a row that is not there, in a chain', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(`CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL, big text, mine text);
      INSERT INTO t VALUES (1, 'one', 'B1', 'm1'), (2, 'two', 'B2', 'm2'), (3, 'three', 'B3', 'm3'), (9, 'stale', 'B9', 'm9')`);
    const move = (from: number, to: number, v: string) =>
      event({ op: 'u', key: { id: to }, after: { id: to, v }, before: { id: from }, unchanged: ['big'] });
    await rig.push([
      ['all', move(1, 10, 'moved')],
      ['all', move(2, 9, 'over the stale one')],
      ['all', move(7, 8, 'was not there')],
      ['all', move(3, 4, 'chain')],
      ['all', move(4, 5, 'chain 2')],
      ['all', move(5, 3, 'back')],
    ]);
    rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    assert.deepEqual(await rig.letters(), []);
    assert.deepEqual(await rig.sql('SELECT * FROM t ORDER BY id'), [
      { id: 3, v: 'back', big: 'B3', mine: 'm3' },
      { id: 8, v: 'was not there', big: null, mine: null },
      { id: 9, v: 'over the stale one', big: 'B2', mine: 'm2' },
      { id: 10, v: 'moved', big: 'B1', mine: 'm1' },
    ]);
  });

  test('every key of a large table moves by one', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(
      "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 1000) i",
    );
    await rig.push(
      Array.from({ length: 1000 }, (_, i) => {
        const id = 1000 - i;
        return [
          'all',
          event({ op: 'u', key: { id: id + 1 }, after: { id: id + 1 }, before: { id }, unchanged: ['v'] }),
        ];
      }),
    );
    rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    assert.deepEqual(
      await rig.sql(
        "SELECT count(*)::int AS n, min(id) AS lo, max(id) AS hi, bool_and(v = 'v' || id - 1) AS kept FROM t",
      ),
      [{ n: 1000, lo: 2, hi: 1001, kept: true }],
    );
  });

  test('a key move of an identity that is always generated', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(`CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text, mine text, twice int GENERATED ALWAYS AS (1) STORED);
      INSERT INTO t (id, v, mine) OVERRIDING SYSTEM VALUE VALUES (1, 'a', 'm'), (6, 'stale', 's')`);
    await rig.push([
      ['all', event({ op: 'u', key: { id: 6 }, after: { id: 6, v: 'b' }, before: { id: 1 } })],
    ]);
    rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    assert.deepEqual(await rig.letters(), []);
    assert.deepEqual(await rig.sql('SELECT id, v, mine FROM t'), [{ id: 6, v: 'b', mine: 'm' }]);
  });

  test('truncates, also of a table that others refer to', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(`CREATE TABLE t (id int PRIMARY KEY, n serial); CREATE TABLE child (t int REFERENCES t);
      CREATE TABLE free (id int PRIMARY KEY, n serial)`);
    const events = [
      ['all', event({ op: 'c', key: { id: 1 }, after: { id: 1 } })],
      ['all', event({ op: 'c', key: { id: 2 }, after: { id: 2 } })],
      ['all', event({ op: 't', cascade: true, restartIdentity: true })],
      ['all', event({ op: 'c', key: { id: 3 }, after: { id: 3 } })],
    ] as const;
    await rig.push(events);
    rig.start({ table: 't', mode: 'cdc' });
    rig.start({ table: 'free', mode: 'cdc' }, { name: 'free' });
    await rig.drained();
    await rig.drained('q', 'pg-free');
    assert.deepEqual(await rig.sql('SELECT id FROM t'), [{ id: 3 }]);
    assert.deepEqual(await rig.sql('SELECT * FROM free'), [{ id: 3, n: 1 }]);
  });

  test('the characters of json columns, numbers as they are written', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int PRIMARY KEY, doc json, docs json[], n numeric, f float8, b jsonb)');
    const doc = '{ "b":1,  "a":1.0, "a":-0, "e":"\\u00e9\\/" }';
    await rig.push([
      [
        '1',
        `{"op":"c","key":{"id":1},"after":{"id":1,"doc":${doc},"docs":[{"x": 1}],"n":1.500,"f":-0,"b":{"z":1,"a":2}},"before":null}`,
      ],
      [
        '2',
        '{"op":"c","key":{"id":2},"after":{"id":2,"doc":"\\u00e9","n":"NaN","f":"-Infinity"},"before":null}',
      ],
      ['3', '{"op":"c","key":{"id":3},"after":{"id":3,"doc":null},"before":null}'],
    ]);
    rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    assert.deepEqual(await rig.letters(), []);
    assert.deepEqual(
      await rig.sql('SELECT doc::text, docs::text, n::text, f::text, b::text FROM t ORDER BY id'),
      [
        { doc, docs: '{"{\\"x\\": 1}"}', n: '1.500', f: '-0', b: '{"a": 2, "z": 1}' },
        { doc: '"\\u00e9"', docs: null, n: 'NaN', f: '-Infinity', b: null },
        { doc: null, docs: null, n: null, f: null, b: null },
      ],
    );
  });

  test('another key than the source has', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(
      "CREATE TABLE t (id int, code text UNIQUE NOT NULL, v int); INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0)",
    );
    await rig.push([
      [
        '1',
        event({
          op: 'u',
          key: { id: 1 },
          after: { id: 1, code: 'A', v: 1 },
          before: { id: 1, code: 'a', v: 0 },
        }),
      ],
      ['2', event({ op: 'd', key: { id: 2 }, before: { id: 2, code: 'b', v: 0 } })],
      ['3', event({ op: 'd', key: { id: 3 }, before: { id: 3 } })],
    ]);
    rig.start({ table: 't', mode: 'cdc', key: ['code'] });
    await rig.drained();
    assert.deepEqual(await rig.sql('SELECT * FROM t'), [{ id: 1, code: 'A', v: 1 }]);
    assert.deepEqual(await rig.letters(), [
      {
        partition: '3',
        error: 'payload: neither key nor before holds the key of the table (code)',
        payload: JSON.stringify(event({ op: 'd', key: { id: 3 }, before: { id: 3 } })),
      },
    ]);
  });

  test('what is no event says what is wrong with it', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int PRIMARY KEY)');
    const cases: [payload: string, error: string][] = [
      ['[]', 'not a JSON object (an array)'],
      ['{"id":1}', 'it has no op: not a change event'],
      ['{"op":7}', 'op is not a string (a number)'],
      ['{"op":"x"}', 'op is "x", not c, r, u, d or t'],
      ['{"op":"c","after":null}', 'after is missing'],
      ['{"op":"c","after":[1]}', 'after is not an object (an array)'],
      ['{"op":"c","after":{"v":1}}', 'key column id is missing'],
      ['{"op":"c","after":{"id":null}}', 'key column id is null'],
      ['{"op":"u","after":{"id":1},"before":"x"}', 'before is not an object (a string)'],
      ['{"op":"d","key":null,"before":null}', 'neither key nor before holds the key of the table (id)'],
    ];
    await rig.push(cases.map(([payload], i) => [`${i}`, payload]));
    const sink = rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    const letters = (await rig.letters()).sort((a, b) => Number(a.partition) - Number(b.partition));
    assert.deepEqual(
      letters.map(({ error }) => error),
      cases.map(([, error]) => `payload: ${error}`),
    );
    assert.equal(sink.status.of('dlq'), cases.length);
  });
});
