import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import pg from 'pg';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { startProxy } from '../../../../test/kit/proxy.ts';
import type { DatabaseOptions } from '../../src/store/database.ts';
import { ServerRequirementError } from '../../src/store/errors.ts';
import { silentLog } from '../../src/store/log.ts';
import { applySchema } from '../../src/store/schema.ts';
import { judgeServer } from '../../src/store/server.ts';

interface Test {
  after(fn: () => Promise<void>): void;
}

const PGBOUNCER = spawnSync('pgbouncer', ['--version']).status === 0;

suite('what a server must be', () => {
  test('older than 15, or not in UTF8: refused in a sentence', () => {
    judgeServer({ version: 150_000, version_text: '15.0', encoding: 'UTF8' });
    assert.throws(
      () => judgeServer({ version: 140_011, version_text: '14.11 (Debian)', encoding: 'UTF8' }),
      (error) =>
        error instanceof ServerRequirementError &&
        error.requirement === 'server_too_old' &&
        error.message === 'PostgreSQL 14.11 (Debian) is too old for Queen: version 15 or newer is needed',
    );
    assert.throws(
      () => judgeServer({ version: 180_000, version_text: '18', encoding: 'SQL_ASCII' }),
      (error) => error instanceof ServerRequirementError && error.requirement === 'server_encoding',
    );
  });

  test('synchronous_commit = off is warned of once', async (t) => {
    const fixture = await freshDatabase(t);
    const warnings: string[] = [];
    const log = { ...silentLog, warn: (_: object, message: string) => warnings.push(message) };
    const admin = await fixture.open({ poolSize: 1 });
    const set = (value: string) =>
      admin.query({
        name: '',
        text: `ALTER DATABASE ${fixture.options.database} SET synchronous_commit = ${value}`,
      });
    await set('local');
    await (await fixture.open({ log })).close();
    assert.deepEqual(warnings, []);
    await set('off');
    const db = await fixture.open({ poolSize: 3, log });
    const sleep = { name: '', text: 'SELECT pg_sleep(0.05)' };
    await Promise.all([db.query(sleep), db.query(sleep), db.query(sleep)]);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0]!, /synchronous_commit = off/);
    await db.close();
    await admin.close();
  });
});

suite('through pgbouncer', { skip: PGBOUNCER ? false : 'pgbouncer is not installed' }, () => {
  async function bouncer(
    t: Test,
    fixture: TestDatabase,
    mode: string,
    settings = '',
  ): Promise<DatabaseOptions> {
    const directory = mkdtempSync(join(tmpdir(), 'queen-pgbouncer-'));
    const [{ host, port }] = fixture.options.hosts as [{ host: string; port: number }];
    // The socket lies in a directory that pgbouncer's account cannot enter.
    const proxy = await startProxy({ path: `${host}/.s.PGSQL.${port}` });
    t.after(() => proxy.close());
    const listen = await freePort();
    writeFileSync(join(directory, 'users.txt'), `"${fixture.options.user}" ""\n`);
    writeFileSync(
      join(directory, 'pgbouncer.ini'),
      `[databases]
${fixture.options.database} = host=${proxy.host} port=${proxy.port} user=${fixture.options.user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${listen}
unix_socket_dir =
auth_type = any
auth_file = ${directory}/users.txt
pool_mode = ${mode}
${settings}
`,
    );
    // It refuses to run as root.
    const account = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
    chmodSync(directory, 0o755);
    const child: ChildProcess = spawn('pgbouncer', [join(directory, 'pgbouncer.ini')], {
      ...account,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    t.after(async () => {
      child.kill('SIGKILL');
      rmSync(directory, { recursive: true, force: true });
    });
    let log = '';
    await new Promise<void>((resolve, reject) => {
      child.stderr!.on('data', (chunk) => {
        log += chunk;
        if (/process up/.test(log)) resolve();
      });
      child.once('exit', () => reject(new Error(log)));
    });
    return { ...fixture.options, hosts: [{ host: '127.0.0.1', port: listen }] };
  }

  for (const [mode, settings] of [
    ['transaction', ''],
    ['transaction', 'server_round_robin = 1'],
    ['statement', ''],
  ] as const) {
    test(`${mode} mode ${settings} is refused, precisely and without a trace`, async (t) => {
      const fixture = await freshDatabase(t);
      const options = await bouncer(t, fixture, mode, settings);
      const isRefusal = (error: unknown) => {
        assert.ok(error instanceof ServerRequirementError, String(error));
        assert.match(
          error.message,
          new RegExp(`pooler in ${mode} mode.*advisory locks, LISTEN, prepared statements`),
        );
        return error.requirement === 'pooler_mode';
      };
      await assert.rejects(fixture.open({ hosts: options.hosts }), isRefusal);
      await assert.rejects(applySchema(options, silentLog), isRefusal);
      // The settings of Queen's sessions were not left on the pooler's connections.
      const trace = "SELECT current_setting('statement_timeout') AS ms";
      const client = new pg.Client({
        host: '127.0.0.1',
        port: options.hosts[0]!.port,
        user: options.user,
        database: options.database,
      });
      await client.connect();
      assert.deepEqual((await client.query(trace)).rows, [{ ms: '0' }]);
      await client.end();
    });
  }

  test('session mode works: settings, LISTEN, timeouts that cancel', async (t) => {
    const fixture = await freshDatabase(t);
    const options = await bouncer(t, fixture, 'session');
    await applySchema(options, silentLog);
    const db = await fixture.open({ hosts: options.hosts, poolSize: 2 });
    const setting = { name: '', text: "SELECT current_setting('statement_timeout') AS ms" };
    assert.deepEqual(await db.query(setting), [{ ms: '15s' }]);
    const session = await db.session();
    const heard = new Promise((resolve) => session.onNotification((channel) => resolve(channel)));
    await session.query({ name: '', text: 'LISTEN here' });
    await db.query({ name: '', text: 'NOTIFY here' });
    assert.equal(await heard, 'here');
    await assert.rejects(db.query({ name: '', text: 'SELECT pg_sleep(20)' }, [], { timeoutMs: 100 }), {
      kind: 'unavailable',
      sqlState: '57014',
    });
    await session.close();
    await db.close();
  });
});

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as { port: number };
  await new Promise<void>((resolve) => probe.close(() => resolve()));
  return port;
}
