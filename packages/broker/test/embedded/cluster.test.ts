import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { atEnd } from '../../../../test/kit/cleanup.ts';
import { until } from '../../../../test/kit/until.ts';
import { EmbeddedError } from '../../src/store/embedded/failure.ts';
import { EmbeddedServer } from '../../src/store/embedded/server.ts';
import { recorder, sql, startServer, temporaryDirectory } from './setup.ts';

const root = process.getuid?.() === 0;

function failsWith(code: string, pattern: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof EmbeddedError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, pattern);
    return true;
  };
}

test('a start that was interrupted leaves nothing that the next one trips over', async (t) => {
  const directory = temporaryDirectory(t);
  const half = join(directory, 'postgres.half-abc');
  mkdirSync(join(half, 'global'), { recursive: true });
  writeFileSync(join(half, 'PG_VERSION'), '18\n');
  await startServer(t, directory);
  assert.deepEqual(
    readdirSync(directory).filter((name) => name.startsWith('postgres.half')),
    [],
  );
});

test('a directory of another major version, a foreign one and an empty one are named', async (t) => {
  const directory = temporaryDirectory(t);
  const start = () => EmbeddedServer.start({ directory, poolSize: 10, durable: false, log: recorder() });
  const cluster = join(directory, 'postgres');
  mkdirSync(cluster);
  await assert.rejects(start(), failsWith('not_a_cluster', /exists but is not a PostgreSQL database/));
  writeFileSync(join(cluster, 'PG_VERSION'), '17\n');
  await assert.rejects(
    start(),
    failsWith('other_major', /was made by PostgreSQL 17, and the bundled server is 18\./),
  );
  // The refusals let go of the directory.
  rmSync(cluster, { recursive: true });
  await startServer(t, directory);
});

test('a data directory that cannot be made', async (t) => {
  const file = join(temporaryDirectory(t), 'file');
  writeFileSync(file, '');
  await assert.rejects(
    EmbeddedServer.start({ directory: join(file, 'data'), poolSize: 10, log: recorder() }),
    failsWith('directory_unusable', /QUEEN_DATA_DIR/),
  );
});

test('a full disk is called by its name, at the first start and at a later one', {
  skip: !root,
}, async (t) => {
  const directory = temporaryDirectory(t);
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=10m', 'tmpfs', directory]);
  if (mounted.status !== 0) return t.skip('no right to mount');
  atEnd(t, () => void spawnSync('umount', ['-l', directory]));
  const start = () => EmbeddedServer.start({ directory, poolSize: 10, durable: false, log: recorder() });
  await assert.rejects(start(), failsWith('disk_full', /The disk that holds .* is full\. Free some space/));
  assert.deepEqual(
    readdirSync(directory).filter((name) => name.startsWith('postgres.')),
    ['postgres.log'].filter((name) => readdirSync(directory).includes(name)),
  );

  spawnSync('mount', ['-o', 'remount,size=200m', directory]);
  const server = await startServer(t, directory);
  await server.stop();
  const filler = join(directory, 'filler');
  spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=1M', 'count=300']);
  await assert.rejects(start(), failsWith('disk_full', /is full/));
  rmSync(filler);

  // And while it runs: writes are refused or the server goes down, and with room again all is as it was.
  const log = recorder();
  const running = await startServer(t, directory, { durable: true, log });
  await sql(running.connection, 'CREATE TABLE kept AS SELECT 42 AS answer');
  spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=1M', 'count=300']);
  await assert.rejects(
    sql(running.connection, "CREATE TABLE big AS SELECT repeat('x', 1000) FROM generate_series(1, 300000)"),
  );
  rmSync(filler);
  await until('what was committed is there', async () => {
    const rows = await sql(running.connection, 'SELECT answer FROM kept').catch(() => null);
    return rows?.[0]?.answer === 42;
  });
});
