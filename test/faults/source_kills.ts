/**
 * A source under kills: applications write while the snapshot goes on, and owner, store and upstream are killed at any
 * moment. In the end the queues are the tables.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cleanup } from '../kit/cleanup.ts';
import { clusterOf, KillsScene, killServer } from './kills_scene.ts';
import { type Chance, seeded } from './seed.ts';
import { loadTables, UpstreamLoad } from './upstream_load.ts';

export interface KillsPlan {
  tables: number;
  rows: number;
  brokers: number;
  kills: number;
  writers: number;
  /** A writer's pause between two transactions, ms: from and to. */
  pauseMs: [number, number];
  settleMs: number;
}

const BUNDLE = 200;

export const VICTIMS = ['owner', 'store', 'upstream', 'any broker', 'sessions'] as const;
export type Victim = (typeof VICTIMS)[number];

export async function sourceUnderKills(
  t: Cleanup & { diagnostic(text: string): void },
  plan: KillsPlan,
): Promise<void> {
  const chance = seeded(t);
  const scene = await KillsScene.start(t, { brokers: plan.brokers, major: chance.pick([17, 18] as const) });
  const load = new UpstreamLoad(scene.database, loadTables(plan.tables), plan.rows, chance.fork('load'));
  await load.prepare();
  load.start(t, plan.writers, plan.pauseMs);
  const tables = load.tables.map(({ name, queue, partitionBy }) => ({ table: name, queue, partitionBy }));
  await scene.put('source', {
    kind: 'source',
    connection: scene.connection(),
    source: {
      tables: [...tables, { table: 'journal', queue: 'journal', partitionBy: 'single' }],
      snapshotChunkRows: 100,
      maxBundleMessages: BUNDLE,
      heartbeatSeconds: 1,
    },
  });
  scene.watch('queen_source');
  const done = await kills(scene, chance.fork('nemesis'), plan.kills);
  await load.stop();
  const from = performance.now();
  await scene.settled(load, plan.settleMs);
  const settledMs = Math.round(performance.now() - from);
  const messages = await scene.judge(load, { bundleMessages: BUNDLE });
  const count = (op: string) => messages.filter(({ text }) => text.startsWith(`{"op":"${op}"`)).length;
  t.diagnostic(
    `${load.committed} transactions, ${messages.length} messages (${count('r')} copied), settled in ${settledMs} ms`,
  );
  t.diagnostic(
    `kills: ${[...done].map(([name, times]) => `${name} ${times}`).join(', ')}; owners seen: ${scene.owners.size}; starts ${scene.brokers.map(({ starts }) => starts)}`,
  );
}

/** One after the other; most wait until messages have come since the one before. */
export async function kills(
  scene: KillsScene,
  chance: Chance,
  times: number,
  name = 'source',
): Promise<Map<Victim, number>> {
  const done = new Map<Victim, number>();
  // Each of the three that matter has its turn.
  const order: Victim[] = ['owner', 'store', 'upstream'];
  while (order.length < times) order.push(chance.pick(VICTIMS));
  for (const victim of chance.shuffled(order.slice(0, times))) {
    if (chance.chance(0.7)) await moved(scene, name);
    await sleep(chance.integer(0, 500));
    await strike(scene, chance, victim, name);
    done.set(victim, (done.get(victim) ?? 0) + 1);
  }
  return done;
}

async function strike(scene: KillsScene, chance: Chance, victim: Victim, name: string): Promise<void> {
  switch (victim) {
    case 'owner':
      await ((await scene.owner(name).catch(() => null)) ?? chance.pick(scene.brokers)).kill();
      return;
    case 'any broker':
      await chance.pick(scene.brokers).kill(chance.pick(['SIGKILL', 'SIGTERM'] as const));
      return;
    case 'store':
      killServer(clusterOf(scene.store), chance);
      return;
    case 'upstream':
      killServer(scene.upstream.cluster, chance);
      return;
    case 'sessions':
      await scene.upstream
        .administer(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'queen-pg%'`,
        )
        .catch(() => {});
  }
}

const MOVED_MS = 60_000;

/** The pointer has moved: somebody is at work again. */
async function moved(scene: KillsScene, name: string): Promise<void> {
  const deadline = performance.now() + MOVED_MS;
  let first: string | null = null;
  for (;;) {
    const view = await scene.look(name).catch(() => null);
    const pointer = view?.state?.pointer;
    if (pointer) {
      const place = JSON.stringify([pointer.lsn, pointer.snapshot, pointer.inTxn]);
      first ??= place;
      if (place !== first) return;
    }
    if (performance.now() > deadline) {
      throw new Error(`the source has not moved for ${MOVED_MS} ms: ${JSON.stringify(view)}`);
    }
    await sleep(50);
  }
}
