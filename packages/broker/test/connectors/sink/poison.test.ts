/** Messages that cannot be applied: each filed once, in order, and everything else applied. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { SinkRig, sharedServer, until } from './rig.ts';

const server = sharedServer({ before, after }, 17);

const TABLE = `
  CREATE TYPE mood AS ENUM ('fine');
  CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1);
  CREATE TABLE t (
    id int PRIMARY KEY, n int CHECK (n > 0), must text NOT NULL DEFAULT 'x', short varchar(3), other int UNIQUE, feel mood,
    parent int REFERENCES parent, late int REFERENCES parent DEFERRABLE INITIALLY DEFERRED,
    ratio int, inverse int GENERATED ALWAYS AS (100 / ratio) STORED, span int4range,
    EXCLUDE USING gist (span WITH &&));
  INSERT INTO t (id, other, span) VALUES (-1, 7, '[1,5)');
  CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN IF NEW.must = 'raise' THEN RAISE EXCEPTION 'not this one' USING DETAIL = 'because'; END IF; RETURN NEW; END $$;
  CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION refuse()`;

/** What makes a row bad, and what stands in the dead letter. */
const KINDS: readonly (readonly [string, Record<string, unknown>, RegExp])[] = [
  ['check', { n: -1 }, /^23514: new row for relation "t" violates check constraint .*\(Failing row contains/],
  ['not null', { must: null }, /^23502: /],
  ['too long', { short: 'long' }, /^22001: /],
  ['wrong type', { n: 'seven' }, /^22P02: invalid input syntax for type integer: "seven"/],
  ['out of range', { n: 1e10 }, /^22003: |^22P02: /],
  ['enum', { feel: 'odd' }, /^22P02: /],
  ['foreign key', { parent: 9 }, /^23503: /],
  ['foreign key checked late', { late: 9 }, /^23503: .*\(Key \(late\)=\(9\) is not present/],
  ['another unique index', { other: 7 }, /^23505: /],
  ['exclusion', { span: '[2,3)' }, /^23P01: /],
  ['generated column', { ratio: 0 }, /^22012: /],
  ['trigger', { must: 'raise' }, /^P0001: not this one \(because\)$/],
  ['NUL', { must: 'a\u0000b' }, /^22P05: |^payload: /],
];

function wrap(mode: 'append' | 'upsert' | 'cdc', row: Record<string, unknown>): Record<string, unknown> {
  return mode === 'cdc' ? { op: 'c', key: { id: row.id }, after: row, before: null } : row;
}

const KEPT = 'SELECT id FROM t WHERE id >= 0 ORDER BY id';
const range = (count: number, from = 0) => Array.from({ length: count }, (_, i) => i + from);

suite('poison', () => {
  for (const mode of ['append', 'upsert', 'cdc'] as const) {
    test(`${mode}: each kind first, in the middle and last of a batch`, async (t) => {
      const rig = await SinkRig.open(t, server());
      await rig.sql(TABLE);
      const bad = new Map<number, RegExp>();
      const rows: Record<string, unknown>[] = [];
      for (const [, fault, error] of KINDS) {
        for (const at of [0, 5, 9]) {
          const base = rows.length;
          for (const i of range(10)) rows.push({ id: base + i, n: 1, ...(i === at ? fault : {}) });
          bad.set(base + at, error);
        }
      }
      // Groups of ten rows share nothing; each row has its partition, but for each third group, which is one.
      await rig.push(
        rows.map((row, i) => [i % 30 < 10 ? `g${Math.floor(i / 10)}` : `r${i}`, wrap(mode, row)]),
      );
      const sink = rig.start({ table: 't', mode, maxAttempts: 2, batch: 150 });
      await rig.drained();
      await until('all letters are filed', () => sink.status.of('dlq') === bad.size);
      const letters = await rig.letters();
      assert.equal(letters.length, bad.size);
      for (const { payload, error } of letters) {
        const row = JSON.parse(payload) as { id?: number; after?: { id: number } };
        const id = (row.after ?? row).id!;
        assert.match(error, bad.get(id) ?? /none/, `row ${id}`);
      }
      const ids = rows.map(({ id }) => id as number).filter((id) => !bad.has(id));
      assert.deepEqual(
        (await rig.sql(KEPT)).map(({ id }) => id),
        ids,
      );
      assert.equal(sink.status.of('applied'), ids.length);
      assert.equal(sink.status.of('errors'), 0);
    });

    test(`${mode}: what has no column may hold what no column can`, async (t) => {
      const rig = await SinkRig.open(t, server());
      await rig.sql('CREATE TABLE t (id int PRIMARY KEY, v text, w text)');
      const odd = [{ other: { x: '\u0000' } }, { '\ud800': 1 }, { '\u0000': '\udc00', w: 'w' }];
      await rig.push(odd.map((more, id) => ['p', wrap(mode, { id, v: 'v', ...more })]));
      rig.start({ table: 't', mode });
      await rig.drained();
      assert.deepEqual(await rig.letters(), []);
      assert.deepEqual(await rig.sql('SELECT * FROM t ORDER BY id'), [
        { id: 0, v: 'v', w: null },
        { id: 1, v: 'v', w: null },
        { id: 2, v: 'v', w: 'w' },
      ]);
    });
  }

  test('two in one partition come in order, what is between and behind them is applied', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(TABLE);
    await rig.push(range(20).map((id) => ['p', { id, n: [3, 4, 11].includes(id) ? 0 : 1 }]));
    rig.start({ table: 't', mode: 'append', maxAttempts: 2 });
    await rig.drained();
    assert.deepEqual(
      (await rig.letters()).map(({ payload }) => JSON.parse(payload).id),
      [3, 4, 11],
    );
    assert.deepEqual(
      (await rig.sql(KEPT)).map(({ id }) => id),
      range(20).filter((id) => ![3, 4, 11].includes(id)),
    );
  });

  test('the good ones do not wait for the tries of the bad ones', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(TABLE);
    await rig.push(range(50).map((id) => [`p${id}`, { id, n: id === 25 ? 0 : 1 }]));
    rig.start({ table: 't', mode: 'append', maxAttempts: 20 });
    await until('49 rows', async () => (await rig.sql(KEPT)).length === 49);
    await until('all but one are acked', async () => {
      const depth = await rig.broker.queueDepth(rig.tenant, 'q', 'pg-copy');
      return depth!.partitions.filter(({ pending, processing }) => pending + processing > 0).length === 1;
    });
    assert.deepEqual(await rig.letters(), []);
  });

  test('one that becomes good meanwhile is applied, and so is what is behind it', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(TABLE);
    await rig.push([
      ['p', { id: 1, parent: 2 }],
      ['p', { id: 2 }],
    ]);
    const sink = rig.start({ table: 't', mode: 'append', maxAttempts: 50 });
    await until('it was tried', () => sink.status.of('batches') > 1);
    await rig.sql('INSERT INTO parent VALUES (2)');
    await rig.drained();
    assert.deepEqual(await rig.sql(KEPT), [{ id: 1 }, { id: 2 }]);
    assert.deepEqual(await rig.letters(), []);
  });

  test('a session that is lost between two tries is opened again', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(TABLE);
    await rig.push([['p', { id: 1, parent: 2 }]]);
    const sink = rig.start({ table: 't', mode: 'append', maxAttempts: 50 });
    for (let lost = 0; lost < 3; lost++) {
      const before = sink.status.of('batches');
      await until('it was tried again', () => sink.status.of('batches') > before);
      await rig.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE '%sink:%:1'`);
    }
    await rig.sql('INSERT INTO parent VALUES (2)');
    await rig.drained();
    assert.deepEqual(await rig.sql(KEPT), [{ id: 1 }]);
    assert.deepEqual(
      sink.status.errors.filter(({ code }) => code !== 'io' && code !== 'postgres'),
      [],
    );
  });

  test('what was popped ahead of one that is tried again and again is left to others', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(TABLE);
    const blocker = await rig.target.connect();
    await blocker.query('BEGIN; LOCK TABLE t IN SHARE MODE');
    await rig.push(range(10).map((id) => ['p', { id, n: id === 0 ? 0 : 1 }]));
    const bad = rig.start({ table: 't', mode: 'append', maxAttempts: 100, batch: 10 });
    await until('the first batch is held', async () => (await rig.held()) === 10);
    await rig.push(range(5, 10).map((id) => ['q', { id, n: 1 }]));
    await until('and the one behind it', async () => (await rig.held()) === 15);
    await blocker.query('COMMIT');
    await blocker.end();
    await until('only the first one is held', async () => (await rig.held()) === 10);
    assert.equal(bad.status.of('applied'), 0);
  });

  test('sql: each statement that fails', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(TABLE);
    const bad = new Set([0, 7, 8, 49]);
    await rig.push(range(50).map((id) => [`p${id % 3}`, { id, n: bad.has(id) ? -1 : 1 }]));
    const statement = 'INSERT INTO t (id, n) VALUES ($1::int, $2::int)';
    const sink = rig.start({ table: 't', mode: 'sql', statement, params: ['$.id', '$.n'], maxAttempts: 1 });
    await rig.drained();
    assert.deepEqual(
      (await rig.sql(KEPT)).map(({ id }) => id),
      range(50).filter((id) => !bad.has(id)),
    );
    const filed = (await rig.letters()).map(({ payload }) => JSON.parse(payload).id);
    assert.deepEqual(
      filed.sort((a, b) => a - b),
      [...bad],
    );
    assert.equal(sink.status.of('applied'), 46);
  });

  test('a payload that the mode cannot read; a parameter that no text can be', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(TABLE);
    await rig.push([
      ['a', '[1]'],
      ['b', '"x"'],
      ['c', '{"nothing":1}'],
      ['d', { id: 1 }],
      ['a', { id: 2 }],
    ]);
    await rig.push(
      [
        ['a', { v: 'a\u0000' }],
        ['a', { v: 'a\ud800b' }],
        ['a', { v: 'b' }],
      ],
      'q2',
    );
    rig.start({ table: 't', mode: 'append' });
    const statement = 'INSERT INTO t (id, must) VALUES (5, $1)';
    rig.start({ queue: 'q2', table: 't', mode: 'sql', statement, params: ['$.v'] }, { name: 'sql' });
    await rig.drained();
    await rig.drained('q2', 'pg-sql');
    assert.deepEqual(await rig.sql(KEPT), [{ id: 1 }, { id: 2 }, { id: 5 }]);
    const letters = await rig.letters();
    assert.deepEqual(
      letters.sort((x, y) => (x.partition < y.partition ? -1 : 1)).map(({ error }) => error),
      [
        'payload: not a JSON object (an array)',
        'payload: not a JSON object (a string)',
        'payload: it names no column of the table',
      ],
    );
    assert.deepEqual(
      (await rig.letters('q2')).map(({ error }) => error),
      ['\\u0000', 'half of a surrogate pair'].map(
        (odd) => `payload: the value of parameter 1 holds ${odd}, which no text of the database can`,
      ),
    );
  });

  test('all of 100 partitions poisoned: it ends, and others go on', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(TABLE);
    await rig.push(
      range(100).flatMap((id) => [[`p${id}`, { id, n: 0 }] as const, [`p${id}`, { id: id + 1000 }] as const]),
    );
    rig.start({ table: 't', mode: 'upsert', maxAttempts: 2 });
    await rig.drained();
    assert.equal((await rig.letters()).length, 100);
    assert.deepEqual(
      (await rig.sql(KEPT)).map(({ id }) => id),
      range(100, 1000),
    );
  });

  test('rows that only fit in the order of their messages are not blamed for a change of it', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(`CREATE TABLE t (id int PRIMARY KEY, slot int UNIQUE, note text)`);
    // The slot passes from row to row; in layers all of the first layer would collide with each other.
    await rig.push(
      range(30).flatMap((i) => [
        ['p', { op: 'c', key: { id: i }, after: { id: i, slot: 1, note: null }, before: null }] as const,
        [
          'p',
          { op: 'u', key: { id: i }, after: { id: i, slot: null, note: 'gave it back' }, before: null },
        ] as const,
      ]),
    );
    rig.start({ table: 't', mode: 'cdc' });
    await rig.drained();
    assert.deepEqual(await rig.letters(), []);
    assert.deepEqual(await rig.sql('SELECT count(*)::int AS n, count(slot)::int AS slots FROM t'), [
      { n: 30, slots: 0 },
    ]);
  });
});
