/**
 * A table, a queue, and its copy on another server, while everything in between is killed: after each settling the copies
 * are the originals. Beside them a sink adds one for each message to a number, which shows whatever comes twice or not at all.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { Upstream, type UpstreamDatabase } from '../kit/upstream.ts';
import { keyOf, type TableState } from './check_changes.ts';
import { KillsScene, killServer } from './kills_scene.ts';
import { drained } from './reading.ts';
import { type Chance, seeded } from './seed.ts';
import { kills } from './source_kills.ts';
import { loadTables, tableSql, UpstreamLoad } from './upstream_load.ts';

export interface RoundTripPlan {
  rounds: number;
  killsARound: number;
  tables: number;
  rows: number;
  brokers: number;
  settleMs: number;
}

const BUNDLE = 200;
const COUNTED = 'q.t0';
/** Of the sinks. */
const LEASE_SECONDS = 5;
const COUNTER = 'counter';
const TRUNCATED = { name: 'gone', queue: 'q.gone', key: ['id'], partitionBy: 'single' as const };

export async function roundTrip(
  t: Cleanup & { diagnostic(text: string): void },
  plan: RoundTripPlan,
): Promise<void> {
  const chance = seeded(t);
  const scene = await KillsScene.start(t, { brokers: plan.brokers, major: 17 });
  const target = await (await Upstream.start({ major: 18 }, t)).database();
  // The second table of the load shares a queue with the first one, and a copy wants a queue of its own.
  const tables = loadTables(plan.tables + 1).filter((_, i) => i !== 1);
  const load = new UpstreamLoad(scene.database, tables, plan.rows, chance.fork('load'));
  await load.prepare();
  await scene.database.sql(tableSql(TRUNCATED));
  await copies(scene, load, target);

  const nemesis = chance.fork('nemesis');
  for (let round = 1; round <= plan.rounds; round++) {
    load.start(t, 2, [5, 40]);
    const truncating = truncate(scene.database, t);
    await Promise.all([
      kills(scene, nemesis.fork(`round ${round}`), plan.killsARound),
      strikeTarget(target, nemesis.fork(`target ${round}`)),
    ]);
    await Promise.all([load.stop(), truncating.stop()]);
    await scene.settled(load, plan.settleMs);
    await assertCopies(scene, load, target, plan.settleMs);
  }
  // What was counted and not acknowledged comes again; when all is acknowledged nothing does any more.
  await allAcknowledged(scene, plan.settleMs);
  assert.equal(await countOf(target), (await scene.messages([COUNTED])).length);
  const messages = await scene.judge(load, { bundleMessages: BUNDLE });
  t.diagnostic(`${load.committed} transactions, ${messages.length} messages, ${plan.rounds} settlings`);
}

async function copies(scene: KillsScene, load: UpstreamLoad, target: UpstreamDatabase): Promise<void> {
  const source = { maxBundleMessages: BUNDLE, heartbeatSeconds: 1, snapshotChunkRows: 100 };
  const connection = scene.connection();
  const mapped = load.tables.map(({ name, queue, partitionBy }) => ({ table: name, queue, partitionBy }));
  const journal = { table: 'journal', queue: 'journal', partitionBy: 'single' };
  await scene.put('source', {
    kind: 'source',
    connection,
    source: { ...source, tables: [...mapped, journal] },
  });
  const { name, queue, partitionBy } = TRUNCATED;
  await scene.put('truncated', {
    kind: 'source',
    connection,
    source: { ...source, onTruncate: 'emit', tables: [{ table: name, queue, partitionBy }] },
  });
  const to = scene.connection(target);
  for (const table of [...load.tables, TRUNCATED]) {
    await target.sql(tableSql(table));
    const sink = {
      queue: table.queue,
      table: table.name,
      mode: 'cdc',
      leaseSeconds: LEASE_SECONDS,
      workers: 2,
    };
    await scene.put(`copy-${table.name}`, { kind: 'sink', connection: to, sink });
  }
  await target.sql('CREATE TABLE counted (n bigint NOT NULL); INSERT INTO counted VALUES (0)');
  const statement = 'UPDATE counted SET n = n + 1';
  const sink = {
    queue: COUNTED,
    table: 'counted',
    mode: 'sql',
    statement,
    params: [],
    leaseSeconds: LEASE_SECONDS,
    batch: 50,
  };
  await scene.put(COUNTER, { kind: 'sink', connection: to, sink });
}

/** Fills a table and empties it, over and over. */
function truncate(database: UpstreamDatabase, t: Cleanup): { stop(): Promise<void> } {
  let on = true;
  const sum = "'none'";
  const run = (async () => {
    for (let i = 0; on; i++) {
      await database
        .sql(
          i % 6 === 5
            ? `BEGIN; TRUNCATE gone; INSERT INTO gone (id, v, sum) VALUES (${i}, 1, ${sum}); COMMIT`
            : `INSERT INTO gone (id, v, sum) VALUES (${i % 50}, 1, ${sum}) ON CONFLICT (id) DO UPDATE SET id = gone.id + 1000, v = gone.v + 1`,
        )
        .catch(() => database.sql('ROLLBACK').catch(() => {}));
      await sleep(40);
    }
  })();
  const stop = (): Promise<void> => {
    on = false;
    return run;
  };
  atEnd(t, stop);
  return { stop };
}

async function strikeTarget(target: UpstreamDatabase, chance: Chance): Promise<void> {
  await sleep(chance.integer(0, 3_000));
  killServer(target.server.cluster, chance);
  await sleep(chance.integer(1_000, 3_000));
  await target.server
    .administer(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'queen-pg%'`,
    )
    .catch(() => {});
}

/** Waits until the copies are the originals; says where they differ when they do not become so. */
async function assertCopies(
  scene: KillsScene,
  load: UpstreamLoad,
  target: UpstreamDatabase,
  withinMs: number,
): Promise<void> {
  const all = new UpstreamLoad(scene.database, [...load.tables, TRUNCATED], 1, seededNever);
  const wanted = await all.read();
  const deadline = performance.now() + withinMs;
  for (;;) {
    const found = await all.read(target).catch(() => null);
    const faults =
      found === null ? ['the target is away'] : wanted.flatMap((state, i) => differences(state, found[i]!));
    if (faults.length === 0) return;
    if (performance.now() > deadline) {
      scene.keepLogs();
      assert.deepEqual(faults.slice(0, 20), [], `${faults.length} differences`);
    }
    await sleep(200);
  }
}

function differences(wanted: TableState, found: TableState): string[] {
  const rest = new Map(found.rows.map((row) => [keyOf(found, row), row]));
  const faults = wanted.rows.flatMap((row) => {
    const key = keyOf(wanted, row);
    const copy = rest.get(key);
    rest.delete(key);
    if (copy === undefined) return [`${wanted.table} ${key} is missing`];
    return wanted.columns
      .filter((column) => row.get(column) !== copy.get(column))
      .map((column) => `${wanted.table} ${key}: ${column} is ${copy.get(column)}, not ${row.get(column)}`);
  });
  return [...faults, ...[...rest.keys()].map((key) => `${wanted.table} ${key} is too many`)];
}

async function countOf(target: UpstreamDatabase): Promise<number> {
  return Number((await target.sql('SELECT n FROM counted'))[0]!.n);
}

async function allAcknowledged(scene: KillsScene, withinMs: number): Promise<void> {
  const db = await scene.openStore();
  try {
    await drained(db, [COUNTED], [`pg-${COUNTER}`], withinMs);
  } finally {
    await db.close();
  }
}

/** What only reads draws nothing. */
const seededNever = { fork: () => seededNever } as unknown as Chance;
