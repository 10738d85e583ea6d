import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { type TcpProxy as FaultyProxy, startProxy } from '../../../../test/kit/proxy.ts';
import { until } from '../../../../test/kit/until.ts';
import { CANCEL_GRACE_MS } from '../../src/store/connection.ts';
import { type Database, type DatabaseOptions, statement } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';

const ONE = statement('faults_one', 'SELECT 1 AS one');
const PID = statement('faults_pid', 'SELECT pg_backend_pid() AS pid');
const SLEEP = statement('faults_sleep', 'SELECT pg_sleep($1::float8)');
const INSERT = statement('faults_insert', 'INSERT INTO notes (id) VALUES ($1)');
const INSERT_SLOWLY = statement(
  'faults_insert_slowly',
  'INSERT INTO notes (id) SELECT $1::int FROM pg_sleep($2::float8)',
);
const TERMINATE = statement('faults_terminate', 'SELECT pg_terminate_backend($1::int, 5000)');
const STATE = statement('faults_state', 'SELECT state, query FROM pg_stat_activity WHERE pid = $1::int');

interface Expected {
  kind: string;
  code: string;
  sqlState?: string | null;
}

function fails(expected: Expected) {
  return (error: unknown) => {
    assert.ok(error instanceof StoreError, String(error));
    const { kind, code, sqlState } = error;
    assert.deepEqual({ kind, code, sqlState }, { sqlState: null, ...expected }, error.message);
    return true;
  };
}

suite('when the database does not answer as it should', () => {
  let fixture: TestDatabase;
  /** Looks at the server past the proxy. */
  let watcher: Database;
  const open: Database[] = [];
  const proxies: FaultyProxy[] = [];

  before(async () => {
    fixture = await freshDatabase();
    watcher = await fixture.open({ poolSize: 2, applicationName: 'watcher' });
    await watcher.query({ name: '', text: 'CREATE TABLE notes (id int PRIMARY KEY)' });
  });
  after(async () => {
    for (const database of open) await database.close();
    for (const proxy of proxies) await proxy.close();
    await watcher.close();
    await fixture.drop();
  });

  async function database(overrides: Partial<DatabaseOptions> = {}): Promise<Database> {
    const opened = await fixture.open({ poolSize: 1, ...overrides });
    open.push(opened);
    return opened;
  }

  async function behindProxy(
    overrides: Partial<DatabaseOptions> = {},
  ): Promise<{ db: Database; proxy: FaultyProxy }> {
    const [{ host, port }] = fixture.options.hosts as [{ host: string; port: number }];
    const proxy = await startProxy({ path: `${host}/.s.PGSQL.${port}` });
    proxies.push(proxy);
    const db = await database({ hosts: [{ host: proxy.host, port: proxy.port }], ...overrides });
    return { db, proxy };
  }

  const pidOf = async (db: Database) => (await db.query<{ pid: number }>(PID))[0]!.pid;
  const stored = async (id: number) =>
    (await watcher.query({ name: '', text: `SELECT FROM notes WHERE id = ${id}` })).length === 1;
  const running = async (pid: number) => {
    const [row] = await watcher.query<{ state: string; query: string }>(STATE, [pid]);
    return row?.state === 'active' && /pg_sleep/.test(row.query);
  };
  const gone = async (pid: number) => (await watcher.query(STATE, [pid])).length === 0;

  test('a statement whose time is up is cancelled on the server, and nothing is written', async () => {
    const db = await database();
    const pid = await pidOf(db);
    const started = performance.now();
    await assert.rejects(
      db.query(INSERT_SLOWLY, [1, 60], { timeoutMs: 100 }),
      fails({ kind: 'unavailable', code: 'timeout', sqlState: '57014' }),
    );
    assert.ok(performance.now() - started < 100 + CANCEL_GRACE_MS);
    await until('the backend is gone', () => gone(pid));
    assert.equal(await stored(1), false);
    assert.notEqual(await pidOf(db), pid);
  });

  test('inside a transaction too: everything of it is rolled back', async () => {
    const db = await database();
    await assert.rejects(
      db.transaction(async (tx) => {
        await tx.query(INSERT, [2]);
        await tx.query(SLEEP, [60], { timeoutMs: 100 });
      }),
      fails({ kind: 'unavailable', code: 'timeout', sqlState: '57014' }),
    );
    assert.equal(await stored(2), false);
    assert.deepEqual(await db.query(ONE), [{ one: 1 }]);
  });

  test('an answer that comes while the cancellation is on its way is taken as the answer', async () => {
    const { db, proxy } = await behindProxy({ statementTimeoutMs: 150 });
    proxy.delay(120);
    assert.deepEqual(await db.query(INSERT, [3]), []);
    proxy.heal();
    assert.equal(await stored(3), true);
  });

  test('a longer limit for one statement is not cut short by the limit of the session', async () => {
    const db = await database({ statementTimeoutMs: 50 });
    const timeoutOf = async () =>
      (
        await db.query<{ ms: string }>({
          name: '',
          text: "SELECT current_setting('statement_timeout') AS ms",
        })
      )[0]!.ms;
    assert.equal(await timeoutOf(), '5050ms');
    await db.query(SLEEP, [0.1], { timeoutMs: 60_000 });
    assert.equal(await timeoutOf(), '65s');
    await assert.rejects(
      db.transaction(async (tx) => {
        await tx.query(ONE);
        await tx.query(SLEEP, [0.1], { timeoutMs: 120_000 });
        await tx.query({ name: '', text: 'SELECT 1 / 0' });
      }),
      fails({ kind: 'refused', code: 'sql', sqlState: '22012' }),
    );
    assert.equal(await timeoutOf(), '65s');
  });

  test('half-open: the caller is answered in time, the pool gets a new connection', async () => {
    const { db, proxy } = await behindProxy({ acquireTimeoutMs: 10_000 });
    await db.query(ONE);
    proxy.swallow();
    const started = performance.now();
    await assert.rejects(
      db.query(INSERT, [4], { timeoutMs: 100 }),
      fails({ kind: 'in_doubt', code: 'timeout' }),
    );
    assert.ok(performance.now() - started < 100 + CANCEL_GRACE_MS + 500);
    proxy.heal();
    assert.deepEqual(await db.query(ONE), [{ one: 1 }]);
  });

  test('half-open: one silent connection makes the pool distrust those that are idle', async () => {
    const { db, proxy } = await behindProxy({ poolSize: 4, acquireTimeoutMs: 10_000 });
    await Promise.all([0, 0, 0, 0].map(() => db.query(SLEEP, [0.05])));
    assert.equal(db.stats().size, 4);
    proxy.swallow();
    await assert.rejects(
      db.query(ONE, [], { timeoutMs: 50, readOnly: true }),
      fails({ kind: 'unavailable', code: 'timeout' }),
    );
    assert.equal(db.stats().idle, 0);
    proxy.heal();
    assert.deepEqual(await db.query(ONE), [{ one: 1 }]);
  });

  test('the answer is lost after the commit: in doubt, and indeed written', async () => {
    const { db, proxy } = await behindProxy();
    proxy.swallow('to_client');
    const asked = db.query(INSERT, [5]);
    const verdict = assert.rejects(asked, fails({ kind: 'in_doubt', code: 'connection' }));
    await until('the row is there', () => stored(5));
    proxy.drop();
    await verdict;
    proxy.heal();
    assert.deepEqual(await db.query(ONE), [{ one: 1 }]);
  });

  test('the answer to COMMIT is lost: in doubt; to a statement before it: unavailable', async () => {
    const { db, proxy } = await behindProxy();
    const commit = db.transaction(async (tx) => {
      await tx.query(INSERT, [6]);
      proxy.swallow('to_client');
    });
    const verdict = assert.rejects(commit, fails({ kind: 'in_doubt', code: 'connection' }));
    await until('the row is there', () => stored(6));
    proxy.drop();
    await verdict;
    proxy.heal();
    await assert.rejects(
      db.transaction(async (tx) => {
        await tx.query(INSERT, [7]);
        proxy.drop();
        await tx.query(INSERT, [8]);
      }),
      fails({ kind: 'unavailable', code: 'connection' }),
    );
    assert.equal(await stored(7), false);
  });

  test('a backend that is ended in the middle of a statement leaves it in doubt', async () => {
    const db = await database();
    const pid = await pidOf(db);
    const asked = db.query(INSERT_SLOWLY, [9, 60]);
    const verdict = assert.rejects(asked, fails({ kind: 'in_doubt', code: 'connection', sqlState: '57P01' }));
    await until('it runs', () => running(pid));
    await watcher.query(TERMINATE, [pid]);
    await verdict;
    assert.deepEqual(await db.query(ONE), [{ one: 1 }]);
  });

  test('a backend that is ended in the middle of a transaction leaves nothing in doubt', async () => {
    const db = await database();
    await assert.rejects(
      db.transaction(async (tx) => {
        const [row] = await tx.query<{ pid: number }>(PID);
        await tx.query(INSERT, [10]);
        await watcher.query(TERMINATE, [row!.pid]);
        await tx.query(INSERT, [11]);
      }),
      (error) => error instanceof StoreError && error.kind === 'unavailable' && error.code === 'connection',
    );
    assert.equal(await stored(10), false);
    assert.deepEqual(await db.query(ONE), [{ one: 1 }]);
  });

  test('backends that are ended while idle are not noticed by callers', async () => {
    const db = await database({ poolSize: 2 });
    for (let n = 0; n < 20; n++) {
      const pid = await pidOf(db);
      await watcher.query(TERMINATE, [pid]);
      // With and without a moment for the news to arrive.
      if (n % 2 === 0) await sleep(2);
      await db.query(INSERT, [100 + n]);
    }
    assert.deepEqual(db.errors, { refused: 0, unavailable: 0, in_doubt: 0 });
  });

  test('backends are ended all the time: no caller hangs, what is acknowledged is there', async () => {
    const db = await database({ poolSize: 4 });
    let stop = false;
    const storm = (async () => {
      while (!stop) {
        await watcher.query({
          name: '',
          text: `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'queen-test' ORDER BY random() LIMIT 1`,
        });
        await sleep(30);
      }
    })();
    const acknowledged: number[] = [];
    const kinds = new Set<string>();
    await Promise.all(
      [0, 1, 2, 3, 4, 5].map(async (lane) => {
        for (let n = 0; n < 60; n++) {
          const id = 1_000 + lane * 100 + n;
          try {
            await db.query(INSERT_SLOWLY, [id, 0.005]);
            acknowledged.push(id);
          } catch (error) {
            assert.ok(error instanceof StoreError);
            kinds.add(error.kind);
          }
        }
      }),
    );
    stop = true;
    await storm;
    assert.ok(acknowledged.length > 0);
    assert.ok(kinds.has('in_doubt') && !kinds.has('refused'), [...kinds].join());
    const rows = await watcher.query<{ ids: number[] }>({
      name: '',
      text: 'SELECT array_agg(id) AS ids FROM notes WHERE id >= 1000',
    });
    const there = new Set(rows[0]!.ids);
    assert.deepEqual(
      acknowledged.filter((id) => !there.has(id)),
      [],
    );
  });

  test('a transaction that waits for its broker is ended by the server and frees its locks', async () => {
    const db = await database({ idleInTransactionMs: 100 });
    await assert.rejects(
      db.transaction(async (tx) => {
        const [row] = await tx.query<{ pid: number }>(PID);
        await tx.query(INSERT, [12]);
        await until('the server ended it', () => gone(row!.pid));
        await tx.query(INSERT, [13]);
      }),
      (error) => error instanceof StoreError && error.kind === 'unavailable',
    );
    assert.equal(await stored(12), false);
  });

  test('a session whose peer went silent is closed by its heartbeat', { timeout: 30_000 }, async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const { db, proxy } = await behindProxy({ statementTimeoutMs: 100 });
    const session = await db.session();
    const closed = new Promise<void>((resolve) => session.onClose(resolve));
    proxy.swallow();
    t.mock.timers.tick(10_000);
    t.mock.timers.reset();
    await closed;
    await assert.rejects(session.query(ONE), fails({ kind: 'unavailable', code: 'connection' }));
  });

  test('the server is away: callers wait, fail in time, and are served as soon as it is back', async () => {
    const { db, proxy } = await behindProxy({ poolSize: 3, acquireTimeoutMs: 2_000 });
    proxy.refuse();
    await until('the loss is noticed', () => db.stats().size === 0);
    const started = performance.now();
    await assert.rejects(db.query(ONE), (error) => {
      assert.ok(error instanceof StoreError);
      assert.match(error.message, /no database connection within 2000 ms \(.*(ECONNRESET|unexpectedly)/);
      return error.kind === 'unavailable' && error.code === 'pool';
    });
    assert.ok(performance.now() - started < 10_000);
    const waiting = Promise.all([0, 0, 0, 0, 0].map(() => db.query(ONE)));
    proxy.heal();
    assert.equal((await waiting).length, 5);
    assert.deepEqual(db.stats(), { ...db.stats(), active: 0, waiting: 0 });
  });
});
