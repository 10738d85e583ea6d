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
  /** Most rows in the last third of the time, in those of the first. */
  rows: number;
  /** The same of the files. Null: too short for a vacuum to have come round. */
  files: number | null;
}

const LANES = 20;
const PUSHERS = 4;
const BATCH = 50;
/** The consumer's rest after a pop: far longer than a push takes. */
const REST_MS = 150;
const TABLES = ['log_segments', 'log_txns', 'log_partitions', 'log_consumers'];

interface Size {
  at: number;
  segments: number;
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
  const push = async (worker: number) => {
    for (let n = 0; performance.now() < until; n++) {
      const ids = Array.from({ length: BATCH }, (_, i) => `${worker}-${n}-${i}`);
      const answers = await client.push(items('kept', ids, `lane${(n * PUSHERS + worker) % LANES}`));
      assert.ok(answers.every(({ status }) => status === 'queued'));
      pushed += BATCH;
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
      sizes.push(await sizeOf(rig.db, performance.now() - begun));
    }
  };
  await Promise.all([...Array.from({ length: PUSHERS }, (_, worker) => push(worker)), consume(), watch()]);
  const settled = sizes.filter(({ at }) => at > plan.keptSeconds * 1000 + plan.forMs / 6);
  const third = settled.length / 3;
  const most = (list: Size[], what: 'segments' | 'bytes') => Math.max(...list.map((size) => size[what]));
  const early = settled.slice(0, Math.ceil(third));
  const late = settled.slice(Math.floor(2 * third));
  t.diagnostic(
    JSON.stringify({
      pushed,
      delivered,
      longestMs: Math.round(longestMs),
      segments: [most(early, 'segments'), most(late, 'segments')],
      megabytes: [most(early, 'bytes'), most(late, 'bytes')].map((bytes) => Math.round(bytes / 2 ** 20)),
    }),
  );
  assert.ok(most(late, 'segments') <= plan.rows * most(early, 'segments'), 'rows');
  if (plan.files !== null) assert.ok(most(late, 'bytes') <= plan.files * most(early, 'bytes'), 'files');
  // The consumer is behind what is removed, and goes on there.
  assert.ok(delivered < pushed / 2, `${delivered} of ${pushed}: the consumer is not slow`);
  assert.equal(last.size, LANES, 'lanes that came to their turn');
}

/** Where a message stands in its lane, to which only one pusher sends: its push, and its place in that. */
function orderOf(transactionId: string): number {
  const [, n, i] = transactionId.split('-').map(Number) as [number, number, number];
  return n * BATCH + i;
}

async function sizeOf(db: Database, at: number): Promise<Size> {
  const [row] = await sql<{ segments: number; bytes: number }>(
    db,
    `SELECT (SELECT count(*) FROM queen.log_segments) AS segments,
            (SELECT sum(pg_total_relation_size(('queen.' || name)::regclass))::bigint
               FROM unnest(string_to_array('${TABLES.join()}', ',')) AS name) AS bytes`,
  );
  return { at, ...row! };
}
