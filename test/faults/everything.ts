/**
 * Everything at once: three brokers, each behind a network of its own to a database that is durable and mortal, and a
 * nemesis that draws one misfortune after the other from the seed. Then all is healed, and the history is judged.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Database } from '../../packages/broker/src/store/database.ts';
import { CLUSTER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { processesIn } from '../../packages/broker/src/store/embedded/processes.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { startProxy, type TcpProxy } from '../kit/proxy.ts';
import { assertHistory } from './checker.ts';
import { History } from './history.ts';
import { Load } from './load.ts';
import { OwnServer } from './outages.ts';
import { drained, readEverything, spoolsEmpty } from './reading.ts';
import { type Chance, seeded } from './seed.ts';
import { SupervisedBroker } from './supervisor.ts';

const QUEUES = ['all', 'all.more'];
const GROUPS = ['one', 'other'];
const LEASE_MS = 2_000;
const DRAIN_MS = 90_000;
const env = { DB_POOL_SIZE: '8', QUEEN_STMT_TIMEOUT_MS: '2000' };

export interface EverythingPlan {
  forMs: number;
  /** A producer's pause between two requests, ms: from and to. A long run keeps its history in memory. */
  pauseMs: [number, number];
}

interface World {
  server: OwnServer;
  brokers: SupervisedBroker[];
  networks: TcpProxy[];
  chance: Chance;
}

/** Each does its harm, and heals what does not heal by itself. */
const DEEDS: Record<string, (world: World) => Promise<void>> = {
  async 'kill a broker'({ brokers, chance }) {
    await chance.pick(brokers).kill('SIGKILL');
  },
  async 'stop a broker'({ brokers, chance }) {
    await chance.pick(brokers).kill('SIGTERM');
  },
  async 'freeze a broker past its leases'({ brokers, chance }) {
    const { pid } = chance.pick(brokers);
    signal(pid, 'SIGSTOP');
    await sleep(LEASE_MS * chance.integer(1, 2) + 500);
    signal(pid, 'SIGCONT');
  },
  async 'shoot backends'({ server, chance }) {
    for (let i = chance.integer(1, 8); i > 0; i--) {
      await server.shootOne();
      await sleep(chance.integer(0, 100));
    }
  },
  async 'kill the database'({ server, chance }) {
    const found = processesIn(join(server.directory, CLUSTER));
    const pids = new Set(found.map(({ pid }) => pid));
    const main = found.filter(({ parent }) => !pids.has(parent));
    for (const { pid } of chance.chance(0.5) ? main : [...main, ...found]) signal(pid, 'SIGKILL');
  },
  async 'take the database away'({ server, chance }) {
    await server.stop();
    await sleep(chance.integer(500, 4_000));
    await server.resume();
  },
  async 'cut a network'({ networks, chance }) {
    chance.pick(networks).drop();
  },
  async 'refuse connections'({ networks, chance }) {
    const network = chance.pick(networks);
    network.refuse();
    await sleep(chance.integer(500, 3_000));
    network.heal();
  },
  async 'swallow what is sent'({ networks, chance }) {
    const network = chance.pick(networks);
    network.swallow(chance.pick(['both', 'to_server', 'to_client'] as const));
    await sleep(chance.integer(500, 4_000));
    network.heal();
    network.drop();
  },
  async 'slow a network down'({ networks, chance }) {
    const network = chance.pick(networks);
    network.delay(chance.integer(20, 200));
    await sleep(chance.integer(500, 3_000));
    network.heal();
  },
};

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

export async function everythingAtOnce(
  t: Cleanup & { diagnostic(text: string): void },
  plan: EverythingPlan,
): Promise<void> {
  const chance = seeded(t);
  const world = await build(t, chance.fork('nemesis'));
  const { server, brokers, networks } = world;
  const history = new History('everything', t);
  for (const broker of brokers) history.keep(broker.name, () => broker.logs());
  const routes = chance.fork('routes');
  const load = new Load({
    history,
    chance,
    address: () => routes.pick(brokers).url,
    queues: QUEUES,
    partitions: 4,
    producers: 4,
    groups: GROUPS,
    consumersPerGroup: 2,
    pauseMs: plan.pauseMs,
    batchMax: 8,
    leaseMs: LEASE_MS,
    mischief: 0.05,
    timeoutMs: 8_000,
  });
  load.start(t);

  const done = new Map<string, number>();
  const until = performance.now() + plan.forMs;
  while (performance.now() < until) {
    await sleep(world.chance.integer(200, 2_000));
    const name = world.chance.pick(Object.keys(DEEDS));
    history.nemesis(`${name}, after ${load.acknowledged} messages`);
    done.set(name, (done.get(name) ?? 0) + 1);
    await DEEDS[name]!(world);
  }
  history.nemesis('all is healed');
  for (const network of networks) network.heal();
  await Promise.all(brokers.map((broker) => broker.settled()));
  await load.stopProducers();
  const db = await Database.open(server.options);
  atEnd(t, () => db.close());
  await spoolsEmpty(
    brokers.map(({ url }) => url),
    30_000,
  );
  await drained(db, QUEUES, GROUPS, DRAIN_MS);
  await load.stopConsumers();
  history.reading(await readEverything(brokers[0]!.url, db, QUEUES));
  await db.close();
  t.diagnostic(`${load.acknowledged} messages, starts ${brokers.map(({ starts }) => starts)}`);
  t.diagnostic([...done].map(([name, times]) => `${name} ${times}`).join(', '));
  assertHistory(history, { groups: GROUPS });
  assert.deepEqual(
    brokers.flatMap(({ unexpected }) => unexpected),
    [],
  );
}

async function build(t: Cleanup, chance: Chance): Promise<World> {
  const server = await OwnServer.start(t);
  const { hosts, user, database } = server.options;
  const brokers: SupervisedBroker[] = [];
  const networks: TcpProxy[] = [];
  for (const name of ['left', 'middle', 'right']) {
    const network = await startProxy({ path: `${hosts[0]!.host}/.s.PGSQL.${hosts[0]!.port}` });
    atEnd(t, () => network.close());
    networks.push(network);
    const url = `postgres://${user}@${network.host}:${network.port}/${database}`;
    brokers.push(await SupervisedBroker.start({ name, database: { url }, env }, t));
  }
  return { server, brokers, networks, chance };
}
