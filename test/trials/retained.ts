/**
 * A queue that keeps its messages for some seconds, at full push rate: what is stored must not grow with what has passed,
 * neither rows nor files, and a consumer that is slower than the producers loses what is too old and never stalls.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../packages/broker/src/store/database.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { items, openRig, sql } from './rig.ts';

export interface RetainedPlan {
  /** What the queue is configured to, seconds of the database's clock. */
  keptSeconds: number;
  /** How many times as fast as the machine's clock the database's runs, from 1. */
  clockSpeed: number;
  /** From the moment that the first messages are old enough, ms. */
  forMs: number;
  /**
   * Most bytes in the last third of the time for each push of a stretch that two rounds of vacuum fit in, in those of the
   * first: files grow to what is written until a vacuum comes round, and no further. Null: too short for that.
   */
  files: number | null;
}

/** How late retention may be: its rhythm, and a pass on a machine that does other things too. */
const LATE_MS = 5_000;
/** Two rounds of autovacuum. */
const VACUUM_MS = 120_000;

const LANES = 20;
const PUSHERS = 4;
const BATCH = 50;
/** The consumer's rest after a pop: far longer than a push takes. */
const REST_MS = 150;
/** Hashes stay this long at least, whatever the queue says (050_retention.sql); seconds of the database's clock. */
const HASHES_SECONDS = 900;
const LOG = ['log_segments', 'log_partitions', 'log_consumers'];
const HASHES = ['log_txns'];

interface Size {
  at: number;
  segments: number;
  /** Pushes that were answered so shortly before that retention must still have them, or may. */
  recent: number;
  log: Files;
  hashes: Files;
}

interface Files {
  /** Pushes young enough for their rows to be kept, or gone for so short that no vacuum came round: the most so far. */
  written: number;
  /** Of the tables with their indexes and what they keep outside their rows. */
  bytes: number;
}

export async function retained(
  t: Cleanup & { diagnostic(text: string): void },
  plan: RetainedPlan,
): Promise<void> {
  const rig = await openRig(t, 1, { RETENTION_INTERVAL: '500' });
  const [client] = rig.clients as [(typeof rig.clients)[number]];
  if (plan.clockSpeed !== 1) await hasten(rig.db, plan.clockSpeed);
  const keptMs = (plan.keptSeconds * 1000) / plan.clockSpeed;
  const hashesMs = (Math.max(plan.keptSeconds, HASHES_SECONDS) * 1000) / plan.clockSpeed;
  await client.configure('kept', {
    retentionEnabled: true,
    retentionSeconds: plan.keptSeconds,
    dedupWindowSeconds: plan.keptSeconds,
  });
  const begun = performance.now();
  const until = begun + keptMs + plan.forMs;
  let pushed = 0;
  const answered: number[] = [];
  const push = async (worker: number) => {
    for (let n = 0; performance.now() < until; n++) {
      const ids = Array.from({ length: BATCH }, (_, i) => `${worker}-${n}-${i}`);
      const answers = await client.push(items('kept', ids, `lane${(n * PUSHERS + worker) % LANES}`));
      assert.ok(answers.every(({ status }) => status === 'queued'));
      pushed += BATCH;
      answered.push(performance.now());
    }
  };
  // Every pop must answer at once as long as there are messages, and each lane must go forward.
  let delivered = 0;
  let longestMs = 0;
  const last = new Map<string, number>();
  const consume = async () => {
    while (performance.now() < until) {
      const from = performance.now();
      const query = { consumerGroup: 'slow', subscriptionMode: 'all', partitions: 2, batch: 20 };
      const batch = await client.pop('kept', query);
      if (delivered > 0) {
        longestMs = Math.max(longestMs, performance.now() - from);
        assert.ok(batch.length > 0, 'there is a backlog all the time');
      }
      for (const { partition, transactionId } of batch) {
        const at = orderOf(transactionId);
        assert.ok(at > (last.get(partition) ?? -1), `${partition}: ${at} after ${last.get(partition)}`);
        last.set(partition, at);
      }
      delivered += batch.length;
      // What retention took meanwhile is answered as such; nothing else may be refused.
      for (const { error } of await client.ackBatch(batch)) assert.equal(error ?? null, null);
      await sleep(batch.length === 0 ? 20 : REST_MS);
    }
  };
  const sizes: Size[] = [];
  const watch = async () => {
    while (performance.now() < until) {
      await sleep(Math.max(250, plan.forMs / 60));
      const now = performance.now();
      const { segments, log, hashes } = await sizeOf(rig.db);
      const pushesOf = (ms: number) =>
        answered.length - answered.findIndex((at) => at >= now - ms - LATE_MS) + PUSHERS;
      const files = (bytes: number, ms: number, before: Files | undefined): Files => ({
        written: Math.max(pushesOf(ms + VACUUM_MS), before?.written ?? 0),
        bytes,
      });
      sizes.push({
        at: now - begun,
        segments,
        recent: pushesOf(keptMs),
        log: files(log, keptMs, sizes.at(-1)?.log),
        hashes: files(hashes, hashesMs, sizes.at(-1)?.hashes),
      });
    }
  };
  await Promise.all([...Array.from({ length: PUSHERS }, (_, worker) => push(worker)), consume(), watch()]);
  const settled = sizes.filter(({ at }) => at > keptMs + plan.forMs / 6);
  const third = settled.length / 3;
  const early = settled.slice(0, Math.ceil(third));
  const late = settled.slice(Math.floor(2 * third));
  // The rate of the pushes follows what else the machine does, so rows and bytes are held against the pushes of their time.
  const rows = Math.max(...settled.map(({ segments, recent }) => segments / recent));
  const bytesAPush = (list: Size[], part: 'log' | 'hashes') =>
    Math.max(...list.map(({ [part]: { bytes, written } }) => bytes / written));
  const figures = (list: Size[]) => ({
    segments: Math.max(...list.map(({ segments }) => segments)),
    logMegabytes: Math.max(...list.map(({ log }) => megabytes(log.bytes))),
    logBytesAPush: Math.round(bytesAPush(list, 'log')),
    hashesMegabytes: Math.max(...list.map(({ hashes }) => megabytes(hashes.bytes))),
    hashesBytesAPush: Math.round(bytesAPush(list, 'hashes')),
  });
  t.diagnostic(
    JSON.stringify({
      pushed,
      delivered,
      longestMs: Math.round(longestMs),
      rowsAPushInTime: Number(rows.toFixed(2)),
      early: figures(early),
      late: figures(late),
      // Seconds, rows, megabytes of the log, megabytes of the hashes.
      course: settled
        .filter((_, i) => i % Math.ceil(settled.length / 20) === 0)
        .map(({ at, segments, log, hashes }) => [
          Math.round(at / 1000),
          segments,
          megabytes(log.bytes),
          megabytes(hashes.bytes),
        ]),
    }),
  );
  assert.ok(rows <= 1, `${rows.toFixed(2)} rows for each push that is young enough`);
  for (const part of ['log', 'hashes'] as const) {
    if (plan.files !== null) assert.ok(bytesAPush(late, part) <= plan.files * bytesAPush(early, part), part);
  }
  // The consumer is behind what is removed, and goes on there.
  assert.ok(delivered < pushed / 2, `${delivered} of ${pushed}: the consumer is not slow`);
  assert.equal(last.size, LANES, 'lanes that came to their turn');
}

/** Where a message stands in its lane, to which only one pusher sends: its push, and its place in that. */
function orderOf(transactionId: string): number {
  const [, n, i] = transactionId.split('-').map(Number) as [number, number, number];
  return n * BATCH + i;
}

async function sizeOf(db: Database): Promise<{ segments: number; log: number; hashes: number }> {
  const bytes = (tables: string[]) =>
    `(SELECT sum(pg_total_relation_size(('queen.' || name)::regclass))::bigint
        FROM unnest(string_to_array('${tables.join()}', ',')) AS name)`;
  const [row] = await sql<{ segments: number; log: number; hashes: number }>(
    db,
    `SELECT (SELECT count(*) FROM queen.log_segments) AS segments, ${bytes(LOG)} AS log, ${bytes(HASHES)} AS hashes`,
  );
  return row!;
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 2 ** 20);
}

/** From now on the database's clock, by which everything is kept and removed, runs so many times as fast. */
async function hasten(db: Database, speed: number): Promise<void> {
  await sql(
    db,
    `DO $$ BEGIN EXECUTE format(
       'CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
        AS $f$ SELECT %L::timestamptz + (clock_timestamp() - %1$L::timestamptz) * ${speed} $f$', clock_timestamp());
     END $$`,
  );
}
