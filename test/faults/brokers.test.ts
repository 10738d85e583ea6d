/**
 * Three brokers on one database. One of them is killed every few seconds, or told to stop; clients go to another one,
 * and repeat what they do not know the outcome of. One broker's clock is five minutes ahead, one's is five minutes off
 * in either direction by turns: the database's clock is the one that counts.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { freshDatabase } from '../kit/postgres.ts';
import { assertHistory } from './checker.ts';
import { History } from './history.ts';
import { Load } from './load.ts';
import { drained, readEverything, spoolsEmpty } from './reading.ts';
import { seeded } from './seed.ts';
import { SupervisedBroker } from './supervisor.ts';

const QUEUES = ['several', 'several.more'];
const GROUPS = ['one', 'other'];
const ENDS = 8;
const CLOCK_HOOK = join(import.meta.dirname, 'clock_hook.ts');

test('three brokers, one of them killed or stopped again and again', { timeout: 200_000 }, async (t) => {
  const chance = seeded(t);
  const database = await freshDatabase(t);
  const common = { DB_POOL_SIZE: '8' };
  const skewed = { ...common, NODE_OPTIONS: `--import ${CLOCK_HOOK}`, QUEEN_TEST_SKEW_MS: '300000' };
  const brokers = await Promise.all([
    SupervisedBroker.start({ name: 'right', database, env: common }, t),
    SupervisedBroker.start({ name: 'ahead', database, env: skewed }, t),
    SupervisedBroker.start({ name: 'strobing', database, env: { ...skewed, QUEEN_TEST_STROBE: '1' } }, t),
  ]);
  const history = new History('brokers', t);
  for (const broker of brokers) history.keep(broker.name, () => broker.logs());
  const routes = chance.fork('routes');
  const load = new Load({
    history,
    chance,
    address: () => routes.pick(brokers).url,
    queues: QUEUES,
    partitions: 4,
    producers: 6,
    groups: GROUPS,
    consumersPerGroup: 2,
    pauseMs: [10, 80],
    batchMax: 8,
    leaseMs: 2_000,
    mischief: 0.05,
  });
  load.start(t);

  const nemesis = chance.fork('nemesis');
  for (let end = 0; end < ENDS; end++) {
    const before = load.stored;
    const pause = sleep(nemesis.integer(500, 2_500));
    await stored(load, before);
    await pause;
    const victim = nemesis.pick(brokers);
    const signal = nemesis.chance(0.7) ? 'SIGKILL' : 'SIGTERM';
    history.nemesis(`${signal} ${victim.name} after ${load.acknowledged} messages`);
    await victim.kill(signal);
  }
  await Promise.all(brokers.map((broker) => broker.settled()));
  await load.stopProducers();
  const db = await database.open({ poolSize: 2 });
  await spoolsEmpty(
    brokers.map(({ url }) => url),
    30_000,
  );
  await drained(db, QUEUES, GROUPS, 30_000);
  await load.stopConsumers();
  history.reading(await readEverything(brokers[0]!.url, db, QUEUES));
  await db.close();
  t.diagnostic(`${load.acknowledged} messages, starts ${brokers.map(({ starts }) => starts)}`);
  assertHistory(history, { groups: GROUPS });
  assert.deepEqual(
    brokers.flatMap(({ unexpected }) => unexpected),
    [],
  );
});

/** Settles when something was stored since. */
async function stored(load: Load, since: number): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (load.stored === since) {
    if (performance.now() > deadline) throw new Error('no push succeeded within 60 s');
    await sleep(20);
  }
}
