/**
 * What other sessions do to the tables while the broker works: one that holds its snapshot open, and a logical slot
 * that nobody reads. In short forms in bloat.test.ts, in their full forms in bloat.soak.test.ts.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { Database } from '../../packages/broker/src/store/database.ts';
import type { Client } from '../broker/client.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { until } from '../kit/until.ts';
import { items, names, openRig, type Rig, sql } from './rig.ts';
import { Traffic } from './traffic.ts';

type Trial = Cleanup & { diagnostic(text: string): void };

// ---- a snapshot

export interface SnapshotPlan {
  lanes: number;
  measureMs: number;
  /** How long the snapshot is held; the last `measureMs` of it are compared. */
  heldMs: number;
  /** From its end to the comparison. */
  recoverMs: number;
  /** Of the throughput before. */
  share: number;
  /** The best of so many looks counts: more than one where the machine has other things to do as well. */
  looks: number;
}

/** A reporting session that began and forgot to end, while the broker works at half load. */
export async function openSnapshot(t: Trial, plan: SnapshotPlan): Promise<void> {
  const rig = await openRig(t, 1, { RETENTION_INTERVAL: '500' });
  const traffic = new Traffic({
    clients: rig.clients,
    queue: 'held',
    lanes: plan.lanes,
    pushers: 3,
    consumers: 2,
    batch: 10,
    pauseMs: 0,
  }).start();
  await sleep(1_000);
  // As long a pause as a push takes: half of what these producers could do.
  traffic.pauseMs = traffic.medianMs(performance.now() - 1_000);
  const measure = async () => {
    const from = performance.now();
    await sleep(plan.measureMs);
    return traffic.rates(from);
  };
  const before = await measure();
  const enough = ({ pushed, settled }: typeof before) =>
    pushed >= plan.share * before.pushed && settled >= plan.share * before.settled;
  const compare = async () => {
    let rates = await measure();
    for (let look = 1; look < plan.looks && !enough(rates); look++) rates = await measure();
    return rates;
  };

  const { hosts, user, database } = rig.database.options;
  const [{ host, port }] = hosts as [{ host: string; port: number }];
  const reporter = new pg.Client({ host, port, user, database });
  reporter.on('error', () => {});
  await reporter.connect();
  atEnd(t, () => reporter.end());
  await reporter.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await reporter.query('SELECT count(*) FROM queen.log_partitions');
  await sleep(Math.max(0, plan.heldMs - plan.measureMs));
  const during = await compare();
  const kept = await deadRows(rig.db);
  await reporter.query('COMMIT');

  await sleep(plan.recoverMs);
  const after = await compare();
  const missing = await traffic.finish(30_000);
  t.diagnostic(JSON.stringify({ before, during, after, kept, stored: traffic.stored.size }));
  assert.deepEqual(missing, []);
  assert.ok(enough(during), 'while the snapshot is open');
  assert.ok(enough(after), 'after it');
  // Nothing of the broker itself holds old rows: with the snapshot gone a vacuum takes all of them.
  await until('a vacuum takes what the snapshot kept', async () => {
    for (const table of CHURNED) await sql(rig.db, `VACUUM queen.${table}`);
    return (await deadRows(rig.db)) < 200;
  });
}

/** Their few rows are rewritten by every push and every ack. */
const CHURNED = ['log_partitions', 'log_consumers'];

/** Dead row versions that lie in the tables, counted by looking. */
async function deadRows(db: Database): Promise<number> {
  await sql(db, 'CREATE EXTENSION IF NOT EXISTS pgstattuple');
  let dead = 0;
  for (const table of CHURNED) {
    const [row] = await sql<{ dead: number }>(
      db,
      `SELECT dead_tuple_count AS dead FROM pgstattuple('queen.${table}')`,
    );
    dead += row!.dead;
  }
  return dead;
}

// ---- the catalogs

export interface CatalogPlan {
  forMs: number;
  /** By how much the catalogs may grow, bytes: statistics of the planner are rows as well. */
  growthBytes: number;
}

/** Everything that the broker does all day, beside an idle logical slot: no DDL, no temporary tables. */
export async function steadyCatalogs(t: Trial, plan: CatalogPlan): Promise<void> {
  const rig = await openRig(t, 1, { RETENTION_INTERVAL: '200' });
  await sql(
    rig.db,
    "SELECT slot_name::text FROM pg_create_logical_replication_slot('idle_' || pg_backend_pid(), 'pgoutput')",
  );
  atEnd(t, async () => {
    await sql(
      rig.db,
      `SELECT count(pg_drop_replication_slot(slot_name))::int AS dropped FROM pg_replication_slots
        WHERE database = current_database()`,
    );
  });
  // Whatever is made once, at the first use, is made now.
  await allDay(rig, 0);
  const before = await catalogs(rig.db);

  const traffic = new Traffic({
    clients: rig.clients,
    queue: 'steady',
    lanes: 8,
    pushers: 2,
    consumers: 2,
    batch: 5,
    pauseMs: 5,
  }).start();
  const end = performance.now() + plan.forMs;
  let rounds = 0;
  while (performance.now() < end) await allDay(rig, ++rounds);
  assert.deepEqual(await traffic.finish(30_000), []);
  await sleep(1_100);
  // Every session hands in what it has counted when it next does something.
  await allDay(rig, ++rounds);
  const expected = await segmentsWritten(rig.db);
  await until(
    'the statistics are complete',
    async () => (await catalogs(rig.db)).segments >= expected,
    60_000,
  );
  const after = await catalogs(rig.db);

  t.diagnostic(`${rounds} rounds, ${traffic.stored.size} messages, ${after.bytes - before.bytes} bytes`);
  assert.deepEqual(after.changes, before.changes, 'rows of the catalogs were written');
  assert.deepEqual(after.relations, before.relations);
  assert.deepEqual([after.temporarySchemas, after.temporaryFiles], [0, before.temporaryFiles]);
  assert.ok(
    after.bytes - before.bytes <= plan.growthBytes,
    `the catalogs grew by ${after.bytes - before.bytes} bytes`,
  );
}

/** One of each: new queues and lanes, every kind of pop and ack, leases, options, groups, deletions. */
async function allDay(rig: Rig, round: number): Promise<void> {
  const [client] = rig.clients as [Client];
  const queue = `day.q${round}`;
  await client.configure(queue, { retryLimit: 0, retentionEnabled: true, retentionSeconds: 1 });
  const lanes = names('lane', 5);
  await client.push(lanes.flatMap((lane) => items(queue, names('m', 4), lane)));
  await client.push(items(queue, names('m', 4), 'lane0'));
  const group = { consumerGroup: 'g', subscriptionMode: 'all' };
  const held = await client.pop(queue, { ...group, partitions: 3 });
  await client.call('POST', `/api/v1/lease/${held[0]!.leaseId}/extend`, { seconds: 30 });
  await client.ackBatch(
    held,
    held.map((_, i) => ['completed', 'failed', 'dlq', 'retry'][i % 4]!),
  );
  await client.pop(queue, { ...group, autoAck: true }, 'lane4');
  await client.popAt('/api/v1/pop', { namespace: 'day', task: `q${round}`, consumerGroup: 'h' });
  await client.pop(queue, { consumerGroup: 'latest', conflation: true, subscriptionMode: 'all' });
  await client.call('GET', '/api/v1/resources/queues');
  await client.call('GET', `/api/v1/resources/queues/${queue}/depth?group=g`);
  await client.call('GET', '/health');
  if (round % 2 === 1) await client.call('DELETE', `/api/v1/resources/queues/${queue}`);
}

interface Catalogs {
  /** Rows written since the database was made, by catalog. */
  changes: Record<string, number>;
  relations: number;
  temporarySchemas: number;
  temporaryFiles: number;
  bytes: number;
  /** Rows that were inserted into the log, as far as they were handed in. */
  segments: number;
}

/** Catalogs of this database alone: the shared ones are written by whoever makes another database. */
const OWN = "c.relnamespace = 'pg_catalog'::regnamespace AND NOT c.relisshared";
/**
 * Left out: what a vacuum or an analyze of the tables writes, which is theirs and comes in its own time. They change
 * rows of pg_class in place, which is not counted as a write.
 */
const PLANNERS = ['pg_statistic', 'pg_statistic_ext_data'];

async function catalogs(db: Database): Promise<Catalogs> {
  const changes = await sql<{ name: string; writes: number }>(
    db,
    `SELECT c.relname AS name, (s.n_tup_ins + s.n_tup_upd + s.n_tup_del) AS writes
       FROM pg_stat_sys_tables s JOIN pg_class c ON c.oid = s.relid
      WHERE ${OWN} AND c.relname NOT IN ('${PLANNERS.join("', '")}') ORDER BY c.relname`,
  );
  const [row] = await sql<Omit<Catalogs, 'changes'>>(
    db,
    `SELECT (SELECT count(*)::int FROM pg_class) AS relations,
            (SELECT count(*)::int FROM pg_namespace WHERE nspname LIKE 'pg\\_temp\\_%') AS "temporarySchemas",
            (SELECT temp_files::int FROM pg_stat_database WHERE datname = current_database()) AS "temporaryFiles",
            (SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
              WHERE ${OWN} AND c.relkind = 'r') AS bytes,
            (SELECT n_tup_ins::bigint FROM pg_stat_user_tables WHERE relname = 'log_segments') AS segments`,
  );
  return { changes: Object.fromEntries(changes.map(({ name, writes }) => [name, writes])), ...row! };
}

/** Segments that there are, and those that retention and deletions took. At least. */
async function segmentsWritten(db: Database): Promise<number> {
  const [row] = await sql<{ n: number }>(db, 'SELECT count(*)::bigint AS n FROM queen.log_segments');
  return row!.n;
}
