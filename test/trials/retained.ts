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
  keptSeconds: number;
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
const TABLES = ['log_segments', 'log_txns', 'log_partitions', 'log_consumers'];

interface Size {
  at: number;
  segments: number;
  /** Pushes that were answered so shortly before that retention must still have them, or may. */
  recent: number;
  /** The same with the time until a vacuum has come round: the most that there ever were. */
  written: number;
  /** Of the tables with their indexes and what they keep outside their rows, bytes. */
  bytes: number;
}

export async function retained(
  t: Cleanup & { diagnostic(text: string): void },
  plan: RetainedPlan,
): Promise<void> {
  const rig = await openRig(t, 1, { RETENTION_INTERVAL: '500' });
  const [client] = rig.clients as [(typeof rig.clients)[number]];
  await client.configure('kept', {
    retentionEnabled: true,
    retentionSeconds: plan.keptSeconds,
    dedupWindowSeconds: plan.keptSeconds,
  });
  const begun = performance.now();
  const until = begun + plan.keptSeconds * 1000 + plan.forMs;
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
      const oldest = performance.now() - plan.keptSeconds * 1000 - LATE_MS;
      const size = await sizeOf(rig.db);
      const since = (from: number) => answered.length - answered.findIndex((at) => at >= from) + PUSHERS;
      const written = Math.max(since(oldest - VACUUM_MS), sizes.at(-1)?.written ?? 0);
      sizes.push({ ...size, at: performance.now() - begun, recent: since(oldest), written });
    }
  };
  await Promise.all([...Array.from({ length: PUSHERS }, (_, worker) => push(worker)), consume(), watch()]);
  const settled = sizes.filter(({ at }) => at > plan.keptSeconds * 1000 + plan.forMs / 6);
  const third = settled.length / 3;
  const early = settled.slice(0, Math.ceil(third));
  const late = settled.slice(Math.floor(2 * third));
  // The rate of the pushes follows what else the machine does, so rows and bytes are held against the pushes of their time.
  const rows = Math.max(...settled.map(({ segments, recent }) => segments / recent));
  const bytesAPush = (list: Size[]) => Math.max(...list.map(({ bytes, written }) => bytes / written));
  const figures = (list: Size[]) => ({
    segments: Math.max(...list.map(({ segments }) => segments)),
    megabytes: Math.round(Math.max(...list.map(({ bytes }) => bytes)) / 2 ** 20),
    bytesAPush: Math.round(bytesAPush(list)),
  });
  t.diagnostic(
    JSON.stringify({
      pushed,
      delivered,
      longestMs: Math.round(longestMs),
      rowsAPushInTime: Number(rows.toFixed(2)),
      early: figures(early),
      late: figures(late),
      // Seconds, rows, megabytes.
      course: settled
        .filter((_, i) => i % Math.ceil(settled.length / 20) === 0)
        .map(({ at, segments, bytes }) => [at / 1000, segments, bytes / 2 ** 20].map(Math.round)),
    }),
  );
  assert.ok(rows <= 1, `${rows.toFixed(2)} rows for each push that is young enough`);
  if (plan.files !== null) assert.ok(bytesAPush(late) <= plan.files * bytesAPush(early), 'files');
  // The consumer is behind what is removed, and goes on there.
  assert.ok(delivered < pushed / 2, `${delivered} of ${pushed}: the consumer is not slow`);
  assert.equal(last.size, LANES, 'lanes that came to their turn');
}

/** Where a message stands in its lane, to which only one pusher sends: its push, and its place in that. */
function orderOf(transactionId: string): number {
  const [, n, i] = transactionId.split('-').map(Number) as [number, number, number];
  return n * BATCH + i;
}

async function sizeOf(db: Database): Promise<Pick<Size, 'segments' | 'bytes'>> {
  const [row] = await sql<{ segments: number; bytes: number }>(
    db,
    `SELECT (SELECT count(*) FROM queen.log_segments) AS segments,
            (SELECT sum(pg_total_relation_size(('queen.' || name)::regclass))::bigint
               FROM unnest(string_to_array('${TABLES.join()}', ',')) AS name) AS bytes`,
  );
  return row!;
}
