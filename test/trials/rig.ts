/** Real brokers on one real database, the way the trials need them, and the words to look into its tables. */
import assert from 'node:assert/strict';
import type { Database, DatabaseOptions, Param } from '../../packages/broker/src/store/database.ts';
import { Client } from '../broker/client.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';

export interface Rig {
  database: TestDatabase;
  db: Database;
  brokers: BrokerProcess[];
  /** One a broker. */
  clients: Client[];
}

/** A small pool. */
export const FRUGAL = { DB_POOL_SIZE: '10' };

/**
 * So many brokers on a fresh database. When the test ends their logs are looked through: no trial may make a broker
 * meet something that it did not foresee.
 *
 * @param failures what requests may fail of in this trial, as the log names it.
 */
export async function openRig(
  t: Cleanup,
  count = 1,
  env: Record<string, string> = {},
  failures: RegExp = /(?!)/,
): Promise<Rig> {
  const database = await freshDatabase(t);
  const start = () => startBroker({ database, env: { ...FRUGAL, ...env } }, t);
  const brokers = await Promise.all(Array.from({ length: count }, start));
  atEnd(t, () => {
    const lines = brokers.flatMap((broker) => broker.logs().split('\n'));
    const suspect = lines.filter((line) => /request failed|a bug|InvariantError/.test(line));
    assert.deepEqual(
      suspect.filter((line) => !failures.test(line)),
      [],
    );
  });
  const db = await database.open({ poolSize: 2 });
  atEnd(t, () => db.close());
  return { database, db, brokers, clients: brokers.map(({ url }) => new Client(url)) };
}

/** Rows of any statement; it is not prepared. */
export function sql<Row extends object>(
  db: Database,
  text: string,
  params: readonly Param[] = [],
): Promise<Row[]> {
  return db.query<Row>({ name: '', text }, params);
}

export interface ConsumerRow {
  committed: number;
  batchEnd: number | null;
  worker: string | null;
  expires: number | null;
  acquired: number | null;
  retries: number;
  attempts: number;
  consumed: number;
}

/** The cursor of a group on a partition. */
export async function consumer(
  db: Database,
  partitionId: string,
  group = '__QUEUE_MODE__',
): Promise<ConsumerRow> {
  const rows = await sql<ConsumerRow>(
    db,
    `SELECT committed, batch_end AS "batchEnd", worker_id AS worker,
            queen.micros(lease_expires_at) AS expires, queen.micros(lease_acquired_at) AS acquired,
            batch_retry_count AS retries, attempt_count AS attempts, total_consumed AS consumed
       FROM queen.log_consumers WHERE partition_id = $1::bigint AND consumer_group = $2`,
    [partitionId, group],
  );
  assert.equal(rows.length, 1, `partition ${partitionId} has one row for ${group}`);
  return rows[0]!;
}

export interface DeadLetter {
  txn: string;
  group: string;
  error: string | null;
  payload: string | null;
  retries: number;
}

export function deadLetters(db: Database, partitionId: string): Promise<DeadLetter[]> {
  return sql<DeadLetter>(
    db,
    `SELECT transaction_id AS txn, consumer_group AS "group", error, retry_count AS retries,
            convert_from(payload, 'UTF8') AS payload
       FROM queen.log_dlq WHERE partition_id = $1::bigint ORDER BY "offset", consumer_group`,
    [partitionId],
  );
}

/**
 * A fingerprint of everything that messages consist of, row by row: equal before and after means that nothing was
 * written in between.
 */
export async function fingerprint(db: Database): Promise<Record<string, string>> {
  const tables = ['queues', 'log_partitions', 'log_segments', 'log_txns', 'log_consumers', 'log_dlq'];
  const found: Record<string, string> = {};
  for (const table of tables) {
    const [row] = await sql<{ hash: string }>(
      db,
      `SELECT coalesce(md5(string_agg(r::text, ';' ORDER BY r::text)), '') AS hash FROM queen.${table} r`,
    );
    found[table] = row!.hash;
  }
  return found;
}

/** Items for a push: `txns` of one lane, each with its own payload. */
export function items(queue: string, txns: readonly string[], partition = 'Default') {
  return txns.map((transactionId) => ({ queue, partition, transactionId, payload: { txn: transactionId } }));
}

export function names(prefix: string, count: number, from = 0): string[] {
  return Array.from({ length: count }, (_, i) => `${prefix}${from + i}`);
}

export function txnsOf(messages: readonly { transactionId: string }[]): string[] {
  return messages.map(({ transactionId }) => transactionId);
}

/** The samples of one metric family: label text (`{a="b"}` or '') to value. */
export async function metric(url: string, family: string): Promise<Map<string, number>> {
  const text = await (await fetch(`${url}/metrics/prometheus`)).text();
  const found = new Map<string, number>();
  for (const line of text.split('\n')) {
    const sample = /^(\w+)(\{.*\})? (\S+)$/.exec(line);
    if (sample?.[1] === family) found.set(sample[2] ?? '', Number(sample[3]));
  }
  return found;
}

/** The value of a family without labels. */
export async function counter(url: string, family: string): Promise<number> {
  const value = (await metric(url, family)).get('');
  assert.ok(value !== undefined, `${family} is exposed`);
  return value;
}

export function percentile(values: readonly number[], share: number): number {
  assert.ok(values.length > 0, 'a percentile of something');
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
}

/** `database` as a proxy sees it. */
export function serverOf(options: DatabaseOptions): { path: string } | { host: string; port: number } {
  const [{ host, port }] = options.hosts as [{ host: string; port: number }];
  return host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port };
}
