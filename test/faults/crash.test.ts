/**
 * The crash test: a durable database in a directory of its own, producers and two groups of consumers at work, and the
 * broker and its PostgreSQL each killed with kill -9 twenty times, at any moment: also while they start, recover or
 * drain. Nothing that was acknowledged is lost or doubled, every group gets everything in order, and the next start
 * never needs a hand.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Database } from '../../packages/broker/src/store/database.ts';
import { CLUSTER, DATABASE, USER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { processesIn } from '../../packages/broker/src/store/embedded/processes.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { assertHistory } from './checker.ts';
import { History } from './history.ts';
import { Load } from './load.ts';
import { drained, readEverything, spoolsEmpty } from './reading.ts';
import { type Chance, seeded } from './seed.ts';
import { SupervisedBroker } from './supervisor.ts';

const KILLS = 20;
const QUEUES = ['crash', 'crash.second'];
const GROUPS = ['billing', 'audit-trail'];
const LEASE_MS = 2_000;
/** From the last kill on. */
const DRAIN_MS = 60_000;

type Victim = 'broker' | 'postmaster' | 'postgres' | 'both';

test('twenty times kill -9 of the broker, and of its database', { timeout: 290_000 }, async (t) => {
  const chance = seeded(t);
  const dataDir = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  atEnd(t, () => rmSync(dataDir, { recursive: true, force: true }));
  const broker = await SupervisedBroker.start({ name: 'crash', dataDir }, t);
  const history = new History('crash', t);
  history.keep(broker.name, () => broker.logs());
  const load = new Load({
    history,
    chance,
    address: () => broker.url,
    queues: QUEUES,
    partitions: 3,
    producers: 6,
    groups: GROUPS,
    consumersPerGroup: 2,
    pauseMs: [5, 40],
    batchMax: 8,
    leaseMs: LEASE_MS,
    mischief: 0.02,
  });
  load.start(t);

  let killedAndStored = 0;
  for (const victim of schedule(chance.fork('nemesis'))) {
    // Most kills wait until the one before has healed, so that there is load to meet; some hit the recovery.
    const before = load.stored;
    if (chance.chance(0.7)) await healed(load, before);
    await sleep(chance.integer(0, 400));
    history.nemesis(`kill -9 ${victim} after ${load.acknowledged} messages`);
    if (load.stored > before) killedAndStored++;
    await kill(victim, broker, dataDir);
  }
  assert.ok(killedAndStored > KILLS / 2, `only ${killedAndStored} kills met a broker at work`);

  await broker.settled();
  const healthyFrom = load.stored;
  await healed(load, healthyFrom);
  await load.stopProducers();
  const db = await directConnection(dataDir, t);
  await spoolsEmpty([broker.url], 30_000);
  await drained(db, QUEUES, GROUPS, DRAIN_MS);
  await load.stopConsumers();
  history.reading(await readEverything(broker.url, db, QUEUES));
  await db.close();
  t.diagnostic(`${load.acknowledged} messages, ${broker.starts} starts`);
  assertHistory(history, { groups: GROUPS });
  assert.deepEqual(broker.unexpected, []);
  await broker.halt('SIGTERM');
});

/** Twenty of each; when both are killed at once it counts for both. */
function schedule(chance: Chance): Victim[] {
  const both = chance.integer(4, 8);
  const alone = KILLS - both;
  return chance.shuffled([
    ...Array.from({ length: both }, () => 'both' as const),
    ...Array.from({ length: alone }, () => 'broker' as const),
    // The first process alone, whose backends go on to the end of what they are at, or all of them.
    ...Array.from({ length: alone }, () =>
      chance.chance(0.5) ? ('postmaster' as const) : ('postgres' as const),
    ),
  ]);
}

async function kill(victim: Victim, broker: SupervisedBroker, dataDir: string): Promise<void> {
  if (victim !== 'broker') {
    const found = processesIn(join(dataDir, CLUSTER));
    const pids = new Set(found.map(({ pid }) => pid));
    const main = found.filter(({ parent }) => !pids.has(parent));
    // The first process first: it would start the others again.
    for (const { pid } of victim === 'postmaster' ? main : [...main, ...found]) killHard(pid);
  }
  if (victim === 'broker' || victim === 'both') await broker.kill('SIGKILL');
}

function killHard(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Settles when something was stored since. */
async function healed(load: Load, since: number): Promise<void> {
  const deadline = performance.now() + DRAIN_MS;
  while (load.stored === since) {
    if (performance.now() > deadline) throw new Error(`no push succeeded within ${DRAIN_MS} ms`);
    await sleep(20);
  }
}

async function directConnection(dataDir: string, t: Cleanup): Promise<Database> {
  const db = await Database.open({
    hosts: [{ host: join(dataDir, CLUSTER), port: 5432 }],
    database: DATABASE,
    user: USER,
    password: null,
    ssl: false,
    poolSize: 2,
    statementTimeoutMs: 20_000,
    applicationName: 'crash-test',
  });
  atEnd(t, () => db.close());
  return db;
}
