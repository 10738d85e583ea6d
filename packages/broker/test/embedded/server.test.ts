import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { atEnd } from '../../../../test/kit/cleanup.ts';
import { until } from '../../../../test/kit/until.ts';
import { EmbeddedError } from '../../src/store/embedded/failure.ts';
import { EmbeddedServer } from '../../src/store/embedded/server.ts';
import { recorder, sql, startServer, temporaryDirectory } from './setup.ts';

const HOLDER = join(import.meta.dirname, 'holder.ts');

function hold(directory: string, ...prefix: string[]): Promise<{ child: ChildProcess; said: string }> {
  const [program, ...args] = [...prefix, process.execPath, HOLDER, directory];
  const child = spawn(program!, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  return new Promise((resolve) => {
    child.stdout!.once('data', (chunk: Buffer) => resolve({ child, said: chunk.toString().trim() }));
  });
}

const ROLE = { user: 'postgres', database: 'postgres', maxConnections: 100 };

/** A zombie, left where nobody reaps orphans, is not running. */
function isRunning(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

test('the first start makes a database that keeps its promises, the second finds its data', async (t) => {
  const directory = temporaryDirectory(t);
  const first = await startServer(t, directory, { durable: true });
  const settings = await sql(
    first.connection,
    `SELECT name, setting FROM pg_settings WHERE name IN
       ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'listen_addresses', 'data_checksums')`,
  );
  assert.deepEqual(Object.fromEntries(settings.map((row) => [row.name, row.setting])), {
    fsync: 'on',
    synchronous_commit: 'on',
    full_page_writes: 'on',
    wal_level: 'logical',
    listen_addresses: '',
    data_checksums: 'on',
  });
  await sql(first.connection, 'CREATE TABLE kept AS SELECT 42 AS answer');
  await first.stop();

  const second = await startServer(t, directory);
  assert.deepEqual(await sql(second.connection, 'SELECT answer FROM kept'), [{ answer: 42 }]);
});

test('a server whose process is killed comes back by itself, with what was committed', async (t) => {
  const log = recorder();
  const server = await startServer(t, temporaryDirectory(t), { log, durable: true });
  await sql(server.connection, 'CREATE TABLE kept AS SELECT 42 AS answer');
  for (const round of [1, 2]) {
    process.kill(server.pid!, 'SIGKILL');
    await until('the server is back', () => server.restarts === round && server.pid !== null);
    assert.deepEqual(await sql(server.connection, 'SELECT answer FROM kept'), [{ answer: 42 }]);
  }
  assert.ok(log.lines.includes('error the embedded PostgreSQL died: restarting it'));
});

test('a stop during the restart ends it', async (t) => {
  const server = await startServer(t, temporaryDirectory(t));
  process.kill(server.pid!, 'SIGKILL');
  await until('the death is noticed', () => server.pid === null);
  await server.stop();
  assert.equal(server.pid, null);
});

test('a server that outlived its broker is stopped, and the next one starts', async (t) => {
  const directory = temporaryDirectory(t);
  const { child, said } = await hold(directory);
  const orphan = Number(/^up (\d+)$/.exec(said)![1]);
  child.kill('SIGKILL');
  await new Promise((resolve) => child.once('exit', resolve));
  assert.equal(isRunning(orphan), true);

  const log = recorder();
  const server = await startServer(t, directory, { log });
  assert.equal(isRunning(orphan), false);
  assert.ok(log.lines.some((line) => line.startsWith('warn processes of an earlier PostgreSQL still run')));
  assert.notEqual(server.pid, orphan);
});

test('an orphan without its pid file, and broker and server both killed', async (t) => {
  const directory = temporaryDirectory(t);
  for (const damage of ['pid file', 'both killed'] as const) {
    const { child, said } = await hold(directory);
    const orphan = Number(/^up (\d+)$/.exec(said)![1]);
    child.kill('SIGKILL');
    await new Promise((resolve) => child.once('exit', resolve));
    if (damage === 'pid file') rmSync(join(directory, 'postgres', 'postmaster.pid'));
    else process.kill(orphan, 'SIGKILL');
    const server = await startServer(t, directory);
    assert.deepEqual(await sql(server.connection, 'SELECT 1 AS one'), [{ one: 1 }]);
    await server.stop();
  }
});

test('one broker a directory, and the second is told who has it', async (t) => {
  const directory = temporaryDirectory(t);
  const { child, said } = await hold(directory);
  atEnd(t, () => void child.kill('SIGKILL'));
  assert.match(said, /^up /);
  await assert.rejects(EmbeddedServer.start({ directory, poolSize: 10, log: recorder() }), (error) => {
    assert.ok(error instanceof EmbeddedError);
    assert.equal(error.code, 'directory_in_use');
    assert.match(error.message, new RegExp(`in use by the broker with pid ${child.pid}\\b`));
    return true;
  });
});

test('of several brokers that start at once exactly one gets the directory', async (t) => {
  const directory = temporaryDirectory(t);
  const all = await Promise.all(Array.from({ length: 4 }, () => hold(directory)));
  atEnd(t, () => {
    for (const { child } of all) child.kill('SIGKILL');
  });
  const outcomes = all.map(({ said }) => said.replace(/\d+/, '').trim()).sort();
  assert.deepEqual(outcomes, [...Array.from({ length: 3 }, () => 'directory_in_use'), 'up']);
});

test('a path that is too long for a socket', async (t) => {
  const directory = join(temporaryDirectory(t), 'a'.repeat(100), 'b'.repeat(100));
  mkdirSync(directory, { recursive: true });
  const server = await startServer(t, directory);
  assert.deepEqual(await sql(server.connection, 'SELECT 1 AS one'), [{ one: 1 }]);
  await server.stop();
});

/** Its own network, as a container has it: abstract socket names do not reach across. */
const ELSEWHERE = ['unshare', '--net', '--'];
const isolable = spawnSync(ELSEWHERE[0]!, [...ELSEWHERE.slice(1), 'true']).status === 0;

test('two containers on one volume', { skip: isolable ? false : 'no right to unshare' }, async (t) => {
  const directory = temporaryDirectory(t);
  const first = await hold(directory, ...ELSEWHERE);
  atEnd(t, () => void first.child.kill('SIGKILL'));
  assert.match(first.said, /^up /);
  const second = await hold(directory);
  assert.equal(second.said, 'directory_in_use');
  await sql({ hosts: [{ host: join(directory, 'postgres'), port: 5432 }], ...ROLE }, 'SELECT 1');
});

test('a process that exits without a stop takes its server with it', async (t) => {
  const directory = temporaryDirectory(t);
  const { child, said } = await hold(directory);
  const server = Number(/^up (\d+)$/.exec(said)![1]);
  // The holder ends by process.exit when it is told so.
  child.kill('SIGUSR2');
  await until('the server is gone', () => !isRunning(server));
});
