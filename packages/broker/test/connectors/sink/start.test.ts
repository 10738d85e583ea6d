/** What is checked before a sink works, and what it says. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { startPooler } from '../../../../../test/trials/transaction_pooler.ts';
import { SinkRig, sharedServer, until } from './rig.ts';

const server = sharedServer({ before, after }, 15);

async function fails(
  rig: SinkRig,
  sink: Record<string, unknown>,
  code: string,
  sentence: RegExp,
): Promise<void> {
  const fault = await rig.start(sink).failed();
  assert.equal(fault.code, code, fault.message);
  assert.match(fault.message, sentence);
}

suite('checks of a sink', () => {
  test('the table', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(
      'CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT * FROM t; CREATE MATERIALIZED VIEW m AS SELECT * FROM t; CREATE SEQUENCE s',
    );
    await fails(rig, { table: 'gone', mode: 'append' }, 'table_missing', /public\.gone does not exist/);
    await fails(rig, { table: 'v', mode: 'upsert' }, 'table_missing', /is not a table/);
    for (const table of ['m', 's'])
      await fails(rig, { table, mode: 'append' }, 'table_missing', /is not a table, view/);
  });

  test('the key', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(`CREATE TABLE t (a int, b int NOT NULL, c int, g int GENERATED ALWAYS AS (a) STORED, lower_b text);
      CREATE UNIQUE INDEX ON t (c) WHERE a > 0; CREATE UNIQUE INDEX ON t (lower(lower_b)); CREATE UNIQUE INDEX ON t (g);
      ALTER TABLE t ADD UNIQUE (a) DEFERRABLE; CREATE UNIQUE INDEX two ON t (b, a);
      CREATE TABLE pk (id int PRIMARY KEY DEFERRABLE); CREATE TABLE ri (x int NOT NULL);
      CREATE UNIQUE INDEX ri_x ON ri (x); ALTER TABLE ri REPLICA IDENTITY USING INDEX ri_x`);
    await fails(rig, { table: 't', mode: 'cdc' }, 'no_key', /has no primary key .* sink\.key/);
    await fails(rig, { table: 'pk', mode: 'upsert' }, 'no_key', /deferrable/);
    for (const column of ['a', 'b', 'c', 'g', 'lower_b', 'gone']) {
      await fails(
        rig,
        { table: 't', mode: 'upsert', key: [column] },
        'no_key',
        new RegExp(`exactly \\(${column}\\)`),
      );
    }
    for (const sink of [{ table: 't', key: ['a', 'b'] }, { table: 'ri' }]) {
      const running = rig.start({ ...sink, mode: 'upsert' });
      await until('it runs', () => running.status.phase === 'running');
      await running.stop();
      assert.equal(running.fault, null);
    }
  });

  test('columns for facts of the message', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (1) STORED)');
    for (const offset of ['gone', 'g']) {
      await fails(
        rig,
        { table: 't', mode: 'append', metadata: { offset } },
        'metadata_column',
        /sink\.metadata\.offset: column/,
      );
    }
    await fails(
      rig,
      { table: 't', mode: 'upsert', metadata: { offset: 'id' } },
      'metadata_column',
      /part of the key/,
    );
  });

  test('the statement', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int)');
    const check = (statement: string, params: string[], sentence: RegExp) =>
      fails(rig, { table: 't', mode: 'sql', statement, params }, 'statement', sentence);
    await check('INSERT INTO nowhere VALUES (1)', [], /does not prepare .*nowhere/);
    await check('SELEC 1', [], /syntax error/);
    await check('SELECT 1; SELECT 2', [], /does not prepare/);
    await check('INSERT INTO t VALUES ($1)', ['$'], /is of type integer but expression is of type text/);
    await check(
      'INSERT INTO t VALUES ($1::int + $2::int)',
      ['$'],
      /takes 2 parameters and sink\.params has 1/,
    );
    await check('INSERT INTO t VALUES ($1::int)', ['$', '@offset'], /does not use \$2/);
    await check('INSERT INTO t VALUES (1)', ['$'], /does not use \$1/);
    for (const statement of [
      ' commit',
      '-- x\nROLLBACK',
      '/* y */ begin',
      'start  transaction',
      'end',
      'savepoint a',
      'COPY t FROM STDIN',
    ]) {
      await check(statement, [], /cannot be the statement of a sink/);
    }
  });

  test('the progress table: made, found, shared, of another shape, not allowed', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(
      'CREATE TABLE t (id int); CREATE TABLE odd (sink text, partition_id int, partition text, last_offset bigint, updated_at timestamptz)',
    );
    const sql = { table: 't', mode: 'append' };
    await fails(
      rig,
      { ...sql, createProgressTable: false },
      'progress_table',
      /does not exist.*CREATE TABLE IF NOT EXISTS "queen"\."sink_progress"/,
    );
    await fails(
      rig,
      { ...sql, progressTable: 'public.odd' },
      'progress_table',
      /partition_id of type integer/,
    );
    await rig.sql('ALTER TABLE odd ALTER partition_id TYPE bigint');
    await fails(rig, { ...sql, progressTable: 'public.odd' }, 'progress_table', /no primary key/);
    await rig.sql('ALTER TABLE odd ADD UNIQUE (partition_id, sink); ALTER TABLE odd DROP updated_at');
    await fails(rig, { ...sql, progressTable: 'public.odd' }, 'progress_table', /no column updated_at/);
    await rig.sql('ALTER TABLE odd ADD updated_at timestamp');
    // Ten sinks that start at once make it once, and share it.
    await rig.push(Array.from({ length: 10 }, (_, id) => ['p', { id }]));
    const sinks = Array.from({ length: 10 }, (_, i) => rig.start(sql, { name: `s${i}` }));
    for (let i = 0; i < 10; i++) await rig.drained('q', `pg-s${i}`);
    for (const { fault } of sinks) assert.equal(fault, null);
    rig.start({ ...sql, progressTable: 'public.odd' }, { name: 'odd' });
    await rig.drained('q', 'pg-odd');
    assert.deepEqual(await rig.sql('SELECT count(*)::int AS n FROM t'), [{ n: 110 }]);
    assert.deepEqual(await rig.sql('SELECT count(*)::int AS n FROM queen.sink_progress'), [{ n: 10 }]);
  });

  test('a role without the right to create finds what was made for it', async (t) => {
    const rig = await SinkRig.open(t, server());
    const role = `sink_${process.pid}`;
    await rig.sql(`CREATE ROLE ${role} LOGIN; CREATE TABLE t (id int); GRANT INSERT ON t TO ${role}`);
    try {
      await rig.push([['p', { id: 1 }]]);
      const fault = await rig.start({ table: 't', mode: 'append' }, { user: role }).failed();
      assert.equal(fault.code, 'progress_table');
      assert.match(fault.message, /could not be created by this role/);
      await rig.sql(`CREATE SCHEMA queen; GRANT USAGE ON SCHEMA queen TO ${role};
        CREATE TABLE queen.sink_progress (sink text NOT NULL, partition_id bigint NOT NULL, partition text NOT NULL,
          last_offset bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (sink, partition_id));
        GRANT SELECT, INSERT ON queen.sink_progress TO ${role}`);
      const denied = await rig.start({ table: 't', mode: 'append' }, { user: role }).failed();
      assert.match(denied.message, /this role may not SELECT, INSERT and UPDATE it/);
      await rig.sql(`GRANT UPDATE ON queen.sink_progress TO ${role}`);
      rig.start({ table: 't', mode: 'append' }, { user: role });
      await rig.drained();
      assert.deepEqual(await rig.sql('SELECT * FROM t'), [{ id: 1 }]);
    } finally {
      await rig.sql(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  test('a pooler that lends a connection for a transaction is told from a database', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int)');
    const { host, port, user } = rig.target.server;
    const pooler = await startPooler(t, { host, port }, { user, database: rig.target.name });
    const fault = await rig.start({ table: 't', mode: 'append' }, { port: pooler.port }).failed();
    assert.equal(fault.code, 'postgres');
    assert.match(fault.message, /session pooling/);
  });
});
