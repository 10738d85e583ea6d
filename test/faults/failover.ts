/**
 * The server that accepts writes is killed under load, and its synchronous standby takes over. Two brokers that were given
 * both addresses find it by themselves. What was acknowledged is there, once; what was in doubt, or could not be stored
 * meanwhile, is told apart and comes in its order.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Database } from '../../packages/broker/src/store/database.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { until } from '../kit/until.ts';
import { assertHistory } from './checker.ts';
import { History } from './history.ts';
import { Load } from './load.ts';
import { Node, urlOf } from './nodes.ts';
import { drained, readEverything, spoolsEmpty } from './reading.ts';
import { seeded } from './seed.ts';
import { SupervisedBroker } from './supervisor.ts';

const QUEUES = ['failover', 'failover.too'];
const GROUPS = ['one', 'other'];
const env = { DB_POOL_SIZE: '8', QUEEN_STMT_TIMEOUT_MS: '3000' };

export interface FailoverPlan {
  /** How often; each time the new one gets a standby of its own first. */
  rounds: number;
  /** Messages that have to be stored between two of them. */
  messages: number;
}

export async function failover(
  t: Cleanup & { diagnostic(text: string): void },
  plan: FailoverPlan,
): Promise<void> {
  const chance = seeded(t);
  let primary = await Node.first(t);
  const nodes = [primary];
  for (let round = 0; round < plan.rounds; round++) nodes.push(await Node.reserved(t));
  const database = { url: urlOf(nodes) };
  const brokers = await Promise.all([
    SupervisedBroker.start({ name: 'left', database, env }, t),
    SupervisedBroker.start({ name: 'right', database, env }, t),
  ]);
  const history = new History('failover', t);
  for (const broker of brokers) history.keep(broker.name, () => broker.logs());
  nodes.forEach((node, i) => {
    history.keep(`postgres-${i}`, () => node.log());
  });
  // Each client has its broker, as behind a balancer that keeps sessions together.
  const homes = new Map<string, string>();
  const load = new Load({
    history,
    chance,
    address: (client) => {
      const home = homes.get(client) ?? brokers[homes.size % brokers.length]!.url;
      homes.set(client, home);
      return home;
    },
    queues: QUEUES,
    partitions: 3,
    producers: 4,
    groups: GROUPS,
    consumersPerGroup: 2,
    pauseMs: [5, 40],
    batchMax: 8,
    leaseMs: 2_000,
    mischief: 0.02,
    timeoutMs: 15_000,
  });
  load.start(t);
  for (const heir of nodes.slice(1)) {
    await primary.feed(heir);
    const before = load.stored;
    await until('it is at work', async () => load.stored > before + plan.messages, 60_000);
    history.nemesis('the server that accepts writes is killed');
    await primary.kill();
    await sleep(chance.integer(0, 500));
    history.nemesis('its standby takes over');
    const since = performance.now();
    const stored = load.stored;
    await heir.promote();
    await until('pushes are stored again', async () => load.stored > stored, 60_000);
    t.diagnostic(`back ${Math.round(load.lastStoredAt - since)} ms after the promotion began`);
    primary = heir;
  }
  const before = load.stored;
  await until('it is at work', async () => load.stored > before + plan.messages, 60_000);

  await load.stopProducers();
  const db = await Database.open(primary.options);
  await spoolsEmpty(
    brokers.map(({ url }) => url),
    60_000,
  );
  await drained(db, QUEUES, GROUPS, 60_000);
  await load.stopConsumers();
  history.reading(await readEverything(brokers[0]!.url, db, QUEUES));
  await db.close();
  const buffered = history.events.reduce(
    (sum, e) =>
      sum + (e.type === 'ok' && e.f === 'push' ? e.results.filter((r) => r.status === 'buffered').length : 0),
    0,
  );
  t.diagnostic(`${load.acknowledged} messages acknowledged, ${buffered} of them from the disk`);
  assertHistory(history, { groups: GROUPS });
  for (const broker of brokers) {
    assert.deepEqual(broker.unexpected, []);
    assert.equal(broker.starts, 1);
    assert.match(broker.logs(), /another server has taken over/);
  }
}
