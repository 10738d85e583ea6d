import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { suite, test } from 'node:test';
import { testServer } from '../../../../test/kit/postgres.ts';
import { administer } from '../../../../test/kit/server.ts';
import { Database, type DatabaseOptions } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import {
  applySchema,
  checkSchema,
  SCHEMA_VERSION,
  SchemaError,
  type SchemaFile,
} from '../../src/store/schema.ts';

interface Test {
  after(fn: () => Promise<void>): void;
}

/** A database without any schema, and a logger that remembers. */
async function emptyDatabase(t: Test) {
  const server = await testServer();
  const name = `schema_${process.pid}_${randomBytes(4).toString('hex')}`;
  await administer(server, `CREATE DATABASE ${name}`);
  const options: DatabaseOptions = {
    hosts: [{ host: server.host, port: server.port }],
    database: name,
    user: server.user,
    password: null,
    ssl: false,
    poolSize: 2,
    statementTimeoutMs: 10_000,
    applicationName: 'schema-test',
  };
  const db = await Database.open(options);
  const messages: string[] = [];
  const note = (facts: object, message: string) => messages.push(`${message} ${JSON.stringify(facts)}`);
  t.after(async () => {
    await db.close();
    await administer(server, `DROP DATABASE ${name} WITH (FORCE)`);
  });
  const run = async <Row extends object>(text: string) => db.query<Row>({ name: '', text });
  /** Files applied so far, by the log: `files` is their number at a first start, their names later. */
  const applied = () =>
    messages
      .filter((message) => message.startsWith('schema applied '))
      .map((message) => JSON.parse(message.slice('schema applied '.length)).files as number | string)
      .reduce<number>((sum, files) => sum + (typeof files === 'number' ? files : files.split(' ').length), 0);
  return { options, db, run, messages, applied, log: { info: note, warn: note, error: note }, server };
}

const file = (name: string, text: string): SchemaFile => ({ name, text });
const COUNTED = [
  file(
    '001_a.sql',
    `CREATE TABLE IF NOT EXISTS queen.runs (n int);
     CREATE OR REPLACE FUNCTION queen.f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END; $$;
     INSERT INTO queen.runs VALUES (1);`,
  ),
  file('002_b.sql', "-- nothing but a row\nINSERT INTO queen.runs VALUES (2); SELECT 'not; two';"),
];

suite('applying the schema', () => {
  test("the broker's own schema, then again at once", async (t) => {
    const { options, run, applied, log } = await emptyDatabase(t);
    await applySchema(options, log);
    const files = applied();
    assert.ok(files > 0);
    const before = await run(
      "SELECT oid, xmin::text AS version FROM pg_class WHERE relnamespace = 'queen'::regnamespace ORDER BY oid",
    );
    await applySchema(options, log);
    assert.equal(applied(), files);
    assert.deepEqual(
      await run(
        "SELECT oid, xmin::text AS version FROM pg_class WHERE relnamespace = 'queen'::regnamespace ORDER BY oid",
      ),
      before,
    );
    await checkSchema(options, log);
    const [row] = await run<{ version: number }>('SELECT max(version) AS version FROM queen.schema_version');
    assert.equal(row!.version, SCHEMA_VERSION.version);
  });

  test('ten brokers at once: every file is applied once', async (t) => {
    const { options, run, log } = await emptyDatabase(t);
    await Promise.all(Array.from({ length: 10 }, () => applySchema(options, log, { files: COUNTED })));
    assert.deepEqual(await run('SELECT n, count(*) AS runs FROM queen.runs GROUP BY n ORDER BY n'), [
      { n: 1, runs: 1 },
      { n: 2, runs: 1 },
    ]);
  });

  test('ten brokers at once with the real schema, twice the same result', async (t) => {
    const { options, run, log, applied } = await emptyDatabase(t);
    await Promise.all(Array.from({ length: 10 }, () => applySchema(options, log)));
    const [row] = await run<{ files: number }>('SELECT count(*) AS files FROM queen.schema_files');
    assert.equal(applied(), row!.files);
  });

  test('only a file whose text has changed is applied again', async (t) => {
    const { options, run, log } = await emptyDatabase(t);
    await applySchema(options, log, { files: COUNTED });
    const changed = [COUNTED[0]!, file('002_b.sql', 'INSERT INTO queen.runs VALUES (3)')];
    await applySchema(options, log, { files: changed });
    assert.deepEqual(await run('SELECT n FROM queen.runs ORDER BY n'), [{ n: 1 }, { n: 2 }, { n: 3 }]);
  });

  test('a file that failed in the middle is applied from its start next time, and the place is named', async (t) => {
    const { options, run, log } = await emptyDatabase(t);
    const broken = [file('001_a.sql', 'CREATE TABLE queen.t (a int);\n\nSELECT nope;')];
    await assert.rejects(applySchema(options, log, { files: broken }), (error) => {
      assert.ok(error instanceof StoreError);
      assert.match(error.message, /001_a\.sql:3: column "nope" does not exist/);
      return error.kind === 'refused';
    });
    assert.deepEqual(await run('SELECT name FROM queen.schema_files'), []);
    await applySchema(options, log, {
      files: [file('001_a.sql', 'CREATE TABLE IF NOT EXISTS queen.t (a int)')],
    });
    assert.deepEqual(await run('SELECT a FROM queen.t'), []);
  });

  test('a schema that is newer is left alone; a newer and breaking one refuses this broker', async (t) => {
    const { options, run, log, messages } = await emptyDatabase(t);
    await applySchema(options, log, { files: COUNTED, version: { version: 7, breaking: false } });
    await applySchema(options, log, {
      files: [file('001_a.sql', 'DROP TABLE queen.runs')],
      version: { version: 6, breaking: false },
    });
    assert.equal((await run('SELECT n FROM queen.runs')).length, 2);
    assert.ok(messages.some((message) => /newer broker/.test(message)));
    await applySchema(options, log, { files: COUNTED, version: { version: 8, breaking: true } });
    await applySchema(options, log, { files: COUNTED, version: { version: 9, breaking: false } });
    for (const refused of [
      () => applySchema(options, log, { files: COUNTED, version: { version: 7, breaking: false } }),
      () => checkSchema(options, log),
    ]) {
      await assert.rejects(refused(), (error) => {
        assert.ok(error instanceof SchemaError);
        assert.match(error.message, /schema version 8/);
        return error.code === 'schema_too_new';
      });
    }
    await applySchema(options, log, { files: COUNTED, version: { version: 8, breaking: true } });
  });

  test('without a schema and without the permission to apply it, the sentence says so', async (t) => {
    const { options, log } = await emptyDatabase(t);
    await assert.rejects(checkSchema(options, log), /no Queen schema/);
  });

  test('a table that is in use is waited for in short steps, and the blocker is named at the end', async (t) => {
    const { options, db, log, run, messages } = await emptyDatabase(t);
    await applySchema(options, log, { files: COUNTED });
    const change = [
      COUNTED[0]!,
      file('002_b.sql', 'ALTER TABLE queen.runs ADD COLUMN IF NOT EXISTS extra int'),
    ];
    const session = await db.session();
    await session.query({ name: '', text: 'BEGIN' });
    await session.query({ name: '', text: 'SELECT n FROM queen.runs' });
    await assert.rejects(applySchema(options, log, { files: change, statementRetryMs: 2_500 }), (error) => {
      assert.ok(error instanceof StoreError);
      assert.equal(error.sqlState, '55P03');
      assert.match(
        error.message,
        new RegExp(`002_b.sql:1: .*blocked by pid ${session.processId} \\(.*schema-test`),
      );
      return true;
    });
    assert.ok(messages.some((message) => /waits for a lock/.test(message)));
    const again = applySchema(options, log, { files: change, statementRetryMs: 30_000 });
    await session.query({ name: '', text: 'COMMIT' });
    await again;
    assert.deepEqual(await run('SELECT extra FROM queen.runs WHERE n = 1'), [{ extra: null }]);
    await session.close();
  });

  test('a lock that nobody gives back ends the wait with a sentence', async (t) => {
    const { options, db, log } = await emptyDatabase(t);
    const session = await db.session();
    await session.query({ name: '', text: 'SELECT pg_advisory_lock(778120010)' });
    await assert.rejects(
      applySchema(options, log, { files: COUNTED, lockWaitMs: 300 }),
      (error) => error instanceof SchemaError && error.code === 'schema_locked',
    );
    await session.close();
    await applySchema(options, log, { files: COUNTED });
  });

  test('a role that may not create schemas can use one that was made for it', async (t) => {
    const { options, run, log, server } = await emptyDatabase(t);
    const role = `limited_${randomBytes(4).toString('hex')}`;
    await run(`CREATE ROLE ${role} LOGIN`);
    t.after(() => administer(server, `DROP ROLE ${role}`));
    await assert.rejects(applySchema({ ...options, user: role }, log), /permission denied/);
    await run(`CREATE SCHEMA queen AUTHORIZATION ${role}`);
    await applySchema({ ...options, user: role }, log);
  });

  test('an index whose building was interrupted is built anew', async (t) => {
    const { options, run, log } = await emptyDatabase(t);
    await applySchema(options, log, { files: COUNTED });
    await run('INSERT INTO queen.runs VALUES (1)');
    const text = 'CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS runs_n ON queen.runs (n)';
    await assert.rejects(
      applySchema(options, log, { files: [...COUNTED, file('003_c.sql', text)] }),
      /duplicate|unique/,
    );
    await run('DELETE FROM queen.runs');
    await applySchema(options, log, { files: [...COUNTED, file('003_c.sql', text)] });
    assert.deepEqual(
      await run("SELECT indisvalid FROM pg_index WHERE indexrelid = 'queen.runs_n'::regclass"),
      [{ indisvalid: true }],
    );
  });
});
