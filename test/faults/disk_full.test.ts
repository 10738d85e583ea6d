/**
 * The disk of the database, and of the spool, fills up under load, stays full for a while, and is freed. Pushes are refused, nothing is
 * half written, and when there is room again all goes on by itself, also when the database had to start anew.
 *
 * The disk is a small file system in memory, which only root can mount.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Database, statement } from '../../packages/broker/src/store/database.ts';
import { CLUSTER, DATABASE, USER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { StoreError } from '../../packages/broker/src/store/errors.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { until } from '../kit/until.ts';
import { assertHistory } from './checker.ts';
import { History } from './history.ts';
import { Load } from './load.ts';
import { drained, readEverything, spoolsEmpty } from './reading.ts';
import { seeded } from './seed.ts';
import { SupervisedBroker } from './supervisor.ts';

const DISK = '400m';
const FULL_MS = 4_000;
const QUEUES = ['full'];
const GROUPS = ['one', 'other'];

/** The mount point, or why there is none. */
function smallDisk(t: Cleanup): string | { reason: string } {
  const at = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK},mode=755`, 'queen-test', at]);
  atEnd(t, () => {
    if (mounted.status === 0) spawnSync('umount', ['--lazy', at]);
    rmSync(at, { recursive: true, force: true });
  });
  if (mounted.status === 0) return at;
  return { reason: `no small disk: ${mounted.stderr?.toString().trim() ?? mounted.error?.message}` };
}

/** Takes all that is left. */
function fill(disk: string): string {
  const file = join(disk, 'ballast');
  const fd = openSync(file, 'a');
  const chunk = Buffer.alloc(64 * 1024, 1);
  try {
    for (;;) writeSync(fd, chunk);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    closeSync(fd);
  }
  return file;
}

test('the disk is full, and is freed', { timeout: 200_000 }, async (t) => {
  const disk = smallDisk(t);
  if (typeof disk !== 'string') return t.skip(disk.reason);
  const chance = seeded(t);
  const dataDir = join(disk, 'data');
  const broker = await SupervisedBroker.start({ name: 'full', dataDir, spoolDir: join(disk, 'buffers') }, t);
  const history = new History('full', t);
  history.keep(broker.name, () => broker.logs());
  const load = new Load({
    history,
    chance,
    address: () => broker.url,
    queues: QUEUES,
    partitions: 3,
    producers: 4,
    groups: GROUPS,
    consumersPerGroup: 2,
    pauseMs: [10, 50],
    batchMax: 8,
    leaseMs: 2_000,
    mischief: 0,
  });
  load.start(t);
  await until('some messages are stored', async () => load.acknowledged > 50, 60_000);

  // Now, while a server still has room for what it writes when somebody connects.
  const early = await directConnection(dataDir);
  atEnd(t, () => early.close());
  for (let round = 1; round <= 2; round++) {
    history.nemesis('the disk is full');
    const ballast = fill(disk);
    // What was allotted before may still be used up, then nothing goes on.
    await standstill(load, disk);
    assert.equal((await fetch(`${broker.url}/health/live`)).status, 200, 'the broker lives');
    // The second time there is no room for the database's own log either, without which it cannot run.
    if (round === 2) await exhaustLog(early);
    await sleep(FULL_MS);
    const before = load.stored;
    rmSync(ballast);
    history.nemesis('there is room again');
    const freed = performance.now();
    await until('pushes are stored again', async () => load.stored > before, 60_000);
    t.diagnostic(`round ${round}: back after ${Math.round(load.lastStoredAt - freed)} ms`);
  }

  await load.stopProducers();
  const db = await directConnection(dataDir);
  atEnd(t, () => db.close());
  await spoolsEmpty([broker.url], 30_000);
  await drained(db, QUEUES, GROUPS, 60_000);
  await load.stopConsumers();
  history.reading(await readEverything(broker.url, db, QUEUES));
  await db.close();
  assert.ok(
    history.events.some(
      (e) => e.type === 'ok' && e.f === 'push' && e.results.some((r) => r.status === 'failed'),
    ),
    'no push was refused',
  );
  assertHistory(history, { groups: GROUPS });
  assert.deepEqual(broker.unexpected, []);
  assert.equal(broker.starts, 1);
  assert.match(broker.process.logs(), /the embedded PostgreSQL is back/);
});

function directConnection(dataDir: string): Promise<Database> {
  return Database.open({
    hosts: [{ host: join(dataDir, CLUSTER), port: 5432 }],
    database: DATABASE,
    user: USER,
    password: null,
    ssl: false,
    poolSize: 2,
    statementTimeoutMs: 20_000,
    applicationName: 'disk-test',
  });
}

const SWITCH = statement(
  'disk_switch',
  `SELECT pg_logical_emit_message(false, 'x', 'x')::text, pg_switch_wal()::text`,
);

/** Begins one segment of the log after the other, until that brings the server down. */
async function exhaustLog(db: Database): Promise<void> {
  try {
    for (let i = 0; i < 100; i++) await db.query(SWITCH);
    assert.fail('the log grows although there is no room');
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
  } finally {
    await db.close();
  }
}

/** Settles when the disk is full and nothing has been stored for a second. */
async function standstill(load: Load, disk: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    const before = load.acknowledged;
    await sleep(1_000);
    // What the database gives back meanwhile is taken as well.
    fill(disk);
    const { bavail } = statfsSync(disk);
    if (load.acknowledged === before && bavail < 16) return;
    if (performance.now() > deadline) throw new Error('it goes on and on, without a disk');
  }
}
