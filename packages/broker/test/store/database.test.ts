import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { fromStore } from '../../src/engine/errors.ts';
import { type Database, statement } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import { InvariantError } from '../../src/store/invariant.ts';

const ONE = statement('database_one', 'SELECT 1 AS one');
const INSERT = statement('database_insert', 'INSERT INTO notes (id, text) VALUES ($1, $2) RETURNING id');
const ALL = statement('database_all', 'SELECT id FROM notes ORDER BY id');
const SLEEP = statement('database_sleep', 'SELECT pg_sleep($1::float8)');

function storeError(kind: string, sqlState: string | null = null) {
  return (error: unknown) => {
    assert.ok(error instanceof StoreError, String(error));
    assert.deepEqual({ kind: error.kind, sqlState: error.sqlState }, { kind, sqlState }, error.message);
    return true;
  };
}

suite('the door to PostgreSQL', () => {
  let fixture: TestDatabase;
  let db: Database;
  const ids = async () => (await db.query<{ id: number }>(ALL)).map((row) => row.id);
  before(async () => {
    fixture = await freshDatabase();
    db = await fixture.open({ poolSize: 3 });
    await db.query({ name: '', text: 'CREATE TABLE notes (id int PRIMARY KEY DEFERRABLE, text text)' });
  });
  after(async () => {
    await db.close();
    await fixture.drop();
  });

  test('every session has the settings that the broker relies on', async () => {
    const names = [
      'statement_timeout',
      'idle_in_transaction_session_timeout',
      'lock_timeout',
      'default_transaction_isolation',
      'TimeZone',
      'client_connection_check_interval',
      'application_name',
    ];
    const session = await db.session();
    for (const queryable of [db, session]) {
      const [row] = await queryable.query<{ settings: string[] }>({
        name: '',
        text: `SELECT array_agg(current_setting(n)) AS settings FROM unnest('{${names.join(',')}}'::text[]) AS n`,
      });
      assert.deepEqual(row!.settings, ['15s', '10s', '0', 'read committed', 'UTC', '5s', 'queen-test']);
    }
    await session.close();
  });

  test('a transaction commits as a whole', async () => {
    const value = await db.transaction(async (tx) => {
      await tx.query(INSERT, [1, 'a']);
      const rows = await tx.query<{ id: number }>(INSERT, [2, 'b']);
      assert.deepEqual(await ids(), []);
      return rows[0]!.id;
    });
    assert.equal(value, 2);
    assert.deepEqual(await ids(), [1, 2]);
  });

  test('what throws is rolled back and passed on', async () => {
    const mine = new Error('mine');
    await assert.rejects(
      db.transaction(async (tx) => {
        await tx.query(INSERT, [3, 'c']);
        throw mine;
      }),
      mine,
    );
    assert.deepEqual(await ids(), [1, 2]);
  });

  test("a statement's error ends the transaction, also when it was swallowed", async () => {
    let second: unknown;
    await assert.rejects(
      db.transaction(async (tx) => {
        await tx.query(INSERT, [3, 'c']);
        await tx.query(INSERT, [1, 'again']).catch(() => {});
        second = await tx.query(ONE).catch((error) => error);
      }),
      storeError('refused', '23505'),
    );
    storeError('refused', '23505')(second);
    assert.deepEqual(await ids(), [1, 2]);
  });

  test('an error at commit is an error of the transaction, and of a lone statement', async () => {
    await db.query({
      name: '',
      text: 'ALTER TABLE notes ADD CONSTRAINT later UNIQUE (text) DEFERRABLE INITIALLY DEFERRED',
    });
    await assert.rejects(
      db.transaction((tx) => tx.query(INSERT, [4, 'a'])),
      storeError('refused', '23505'),
    );
    await assert.rejects(db.query(INSERT, [4, 'a']), storeError('refused', '23505'));
    assert.deepEqual(await ids(), [1, 2]);
  });

  test('statements of one transaction that are started together run one after the other', async () => {
    const rows = await db.transaction((tx) =>
      Promise.all([5, 6, 7].map((id) => tx.query<{ id: number }>(INSERT, [id, `t${id}`]))),
    );
    assert.deepEqual(rows.flat(), [{ id: 5 }, { id: 6 }, { id: 7 }]);
  });

  test('a transaction that asked for nothing sends nothing; one that is over refuses', async () => {
    const before = db.statementsTotal;
    const tx = await db.transaction(async (transaction) => transaction);
    assert.equal(db.statementsTotal, before);
    await assert.rejects(tx.query(ONE), /transaction is over/);
  });

  test('a connection is as good as new after an error, a rollback, a broken value', async () => {
    const single = await fixture.open({ poolSize: 1 });
    const backend = { name: '', text: 'SELECT pg_backend_pid() AS pid' };
    const [first] = await single.query(backend);
    await assert.rejects(single.query({ name: '', text: 'SELECT 1 / 0' }), storeError('refused', '22012'));
    await assert.rejects(single.query({ name: '', text: 'SELEKT' }), storeError('refused', '42601'));
    await assert.rejects(
      single.query(statement('database_bad', 'SELECT nope')),
      storeError('refused', '42703'),
    );
    await assert.rejects(single.query(INSERT, ['x', null]), storeError('refused', '22P02'));
    await assert.rejects(single.query(ONE, ['too', 'many']), storeError('refused', '08P01'));
    await assert.rejects(single.query({ name: '', text: 'SELECT 1.5' }), InvariantError);
    await assert.rejects(
      single.transaction((tx) => tx.query({ name: '', text: 'SELECT 1 / 0' })),
      storeError('refused', '22012'),
    );
    assert.deepEqual(await single.query(INSERT, [8, 'h']), [{ id: 8 }]);
    assert.deepEqual(await single.query(backend), [first]);
    assert.deepEqual(single.errors, { refused: 6, unavailable: 0, in_doubt: 0 });
    await single.close();
  });

  test('a prepared statement outlives a change of what it returns', async () => {
    const star = statement('database_star', 'SELECT * FROM starred');
    await db.query({ name: '', text: 'CREATE TABLE starred (a int)' });
    await db.query({ name: '', text: 'INSERT INTO starred VALUES (1)' });
    assert.deepEqual(await db.query(star), [{ a: 1 }]);
    await db.query({ name: '', text: "ALTER TABLE starred ADD b text DEFAULT 'x'" });
    assert.deepEqual(await db.query(star), [{ a: 1, b: 'x' }]);
  });

  test('a name stands for one text', () => {
    statement('database_one', 'SELECT 1 AS one');
    assert.throws(() => statement('database_one', 'SELECT 2'), InvariantError);
    assert.throws(() => statement('x'.repeat(64), 'SELECT 2'), InvariantError);
  });

  test('the pool serves in the order in which callers came', async () => {
    const single = await fixture.open({ poolSize: 1 });
    const order: number[] = [];
    await Promise.all([1, 2, 3, 4, 5].map((n) => single.query(ONE).then(() => order.push(n))));
    assert.deepEqual(order, [1, 2, 3, 4, 5]);
    await single.close();
  });

  test('the pool: no more connections than its size, everyone is served', async () => {
    const small = await fixture.open({ poolSize: 2 });
    await Promise.all(
      [1, 2, 3, 4, 5, 6].map(async () => {
        await small.query(SLEEP, [0.02]);
        assert.ok(small.stats().size <= 2);
      }),
    );
    assert.deepEqual(small.stats(), { size: 2, idle: 2, active: 0, waiting: 0 });
    assert.equal(small.statementsTotal, 6);
    await small.close();
  });

  test('who gets no connection in time is told so, and nothing was sent', async () => {
    const small = await fixture.open({ poolSize: 1, acquireTimeoutMs: 50 });
    const busy = small.query(SLEEP, [0.3]);
    await assert.rejects(small.query(ONE), (error) => {
      assert.ok(error instanceof StoreError);
      assert.equal(fromStore(error).code, 'pool');
      return error.kind === 'unavailable' && error.code === 'pool';
    });
    await busy;
    assert.deepEqual(await small.query(ONE), [{ one: 1 }]);
    await small.close();
  });

  test('close waits for what runs and refuses what comes', async () => {
    const closing = await fixture.open({ poolSize: 1 });
    const running = closing.query(statement('database_slow', 'SELECT 1 AS one FROM pg_sleep(0.1)'));
    const waiting = closing.query(ONE);
    const closed = closing.close();
    await assert.rejects(closing.query(ONE), /closed/);
    await assert.rejects(waiting, /closed/);
    assert.deepEqual(await running, [{ one: 1 }]);
    await closed;
    assert.equal(closing.stats().size, 0);
  });

  test('a session hears notifications and keeps what is its own', async () => {
    const session = await db.session();
    const heard = new Promise<string[]>((resolve) =>
      session.onNotification((channel, payload) => resolve([channel, payload])),
    );
    await session.query({ name: '', text: 'LISTEN here' });
    await session.query({ name: '', text: 'SELECT pg_advisory_lock(42)' });
    await db.query({ name: '', text: "SELECT pg_notify('here', 'ü')" });
    assert.deepEqual(await heard, ['here', 'ü']);
    const free = { name: '', text: 'SELECT pg_try_advisory_lock(42) AS free' };
    assert.deepEqual(await db.query(free), [{ free: false }]);
    const closed = new Promise<void>((resolve) => session.onClose(resolve));
    await session.close();
    await closed;
    await assert.rejects(session.query(ONE), storeError('unavailable'));
  });

  test('a password that is wrong or a database that is missing fails at once and says so', async () => {
    await assert.rejects(
      fixture.open({ database: 'no_such_database', acquireTimeoutMs: 60_000 }),
      (error) => {
        storeError('unavailable', '3D000')(error);
        return /no_such_database/.test(String(error));
      },
    );
  });
});
