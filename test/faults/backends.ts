/**
 * One broker whose database connections are shot one after the other, while the database itself goes away and comes
 * back: the process lives, it is back soon, and nothing is lost. In a short form here, in its full form in the soak.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Database } from '../../packages/broker/src/store/database.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { assertHistory } from './checker.ts';
import { History } from './history.ts';
import { Load } from './load.ts';
import { OwnServer } from './outages.ts';
import { drained, readEverything, spoolsEmpty } from './reading.ts';
import { seeded } from './seed.ts';
import { SupervisedBroker } from './supervisor.ts';

const QUEUES = ['shot', 'shot.too'];
const GROUPS = ['one', 'other'];
/** After the database is back: until a push succeeds again. */
const BACK_MS = 5_000;

export interface BackendsPlan {
  /** A connection is shot so often, ms. */
  everyMs: number;
  shootingMs: number;
  /** How long the database is away, in the middle of it. */
  awayMs: number;
}

export async function shootBackends(
  t: Cleanup & { diagnostic(text: string): void },
  plan: BackendsPlan,
): Promise<void> {
  const chance = seeded(t);
  const server = await OwnServer.start(t);
  const broker = await SupervisedBroker.start(
    { name: 'shot', database: { url: server.url }, env: { DB_POOL_SIZE: '10' } },
    t,
  );
  const history = new History('backends', t);
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
    pauseMs: [10, 60],
    batchMax: 8,
    leaseMs: 2_000,
    mischief: 0.02,
  });
  load.start(t);

  let shots = 0;
  let back: number | null = null;
  const started = performance.now();
  const end = started + plan.shootingMs;
  const away = started + plan.shootingMs / 2;
  while (performance.now() < end) {
    await sleep(plan.everyMs);
    history.nemesis('a backend is shot');
    if (await server.shootOne()) shots++;
    if (back === null && performance.now() > away) back = await outage(server, load, history, plan.awayMs);
  }
  assert.ok(shots >= plan.shootingMs / plan.everyMs / 3, `${shots} shots`);
  assert.ok(back !== null && back < BACK_MS, `back after ${back} ms`);

  await load.stopProducers();
  const db = await Database.open(server.options);
  await spoolsEmpty([broker.url], 30_000);
  await drained(db, QUEUES, GROUPS, 30_000);
  await load.stopConsumers();
  history.reading(await readEverything(broker.url, db, QUEUES));
  await db.close();
  t.diagnostic(`${load.acknowledged} messages, ${shots} shots, back after ${Math.round(back)} ms`);
  assertHistory(history, { groups: GROUPS });
  assert.deepEqual(broker.unexpected, []);
  assert.equal(broker.starts, 1);
}

/** How long after the database's return the next push was stored, ms. */
async function outage(server: OwnServer, load: Load, history: History, awayMs: number): Promise<number> {
  history.nemesis('the database goes away');
  await server.stop();
  await sleep(awayMs);
  const before = load.stored;
  await server.resume();
  history.nemesis('the database is back');
  const since = performance.now();
  while (load.stored === before) {
    if (performance.now() - since > 60_000)
      throw new Error('no push for a minute after the database is back');
    await sleep(10);
  }
  return load.lastStoredAt - since;
}
