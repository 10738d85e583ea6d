/** One transaction that is far larger than the memory of the broker that reads it. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { unpackSegment } from '../../packages/broker/src/log/segment.ts';
import type { Database } from '../../packages/broker/src/store/database.ts';
import { Upstream } from '../kit/upstream.ts';
import { Connected, type Trial } from './connected.ts';
import { sql } from './rig.ts';

export interface HugePlan {
  rows: number;
  heapMb: number;
  withinMs: number;
}

export async function hugeTransaction(t: Trial, plan: HugePlan): Promise<void> {
  const scene = await Connected.open(t, await Upstream.start({ major: 18 }, t));
  await scene.upstream.sql('CREATE TABLE t (id int PRIMARY KEY, pad text NOT NULL)');
  const broker = await scene.broker({ NODE_OPTIONS: `--max-old-space-size=${plan.heapMb}` });
  await scene.source(broker, {
    tables: [{ table: 't', queue: 'q', partitionBy: 'single' }],
    snapshot: 'never',
  });
  await scene.reaches(broker, 'streaming');
  await scene.upstream.sql(
    `INSERT INTO t SELECT g, repeat(md5(g::text), 32) FROM generate_series(1, ${plan.rows}) g`,
  );
  const from = performance.now();
  await scene.arrived(broker, plan.rows, plan.withinMs);
  const seconds = (performance.now() - from) / 1_000;
  const resident = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${broker.pid}/status`, 'utf8'))?.[1];
  t.diagnostic(
    `${plan.rows} rows in ${seconds.toFixed(1)} s, ${Math.round(plan.rows / seconds)} a second; ${Math.round(Number(resident) / 1024)} MiB resident at most, heap of ${plan.heapMb} MB`,
  );
  await assertInOrder(scene.db, plan.rows);
  await scene.shows(broker, 'the transaction is over', ({ state }) => state?.pointer?.inTxn === null);
  assert.equal((await scene.view(broker)).status.phase, 'streaming');
  assert.equal(await scene.errors(broker), 0);
  // It goes on as if nothing had been.
  await scene.upstream.sql(`INSERT INTO t VALUES (${plan.rows + 1}, 'next')`);
  await scene.arrived(broker, plan.rows + 1, 30_000);
  assert.equal((await broker.stop()).code, 0);
}

/** Every row once, by its number and by the id of its message. Read in small portions: all of it fits nowhere. */
async function assertInOrder(db: Database, rows: number): Promise<void> {
  let next = 0;
  while (next < rows) {
    const segments = await sql<{ base: number; end: number; blob: Buffer }>(
      db,
      `SELECT base_offset AS base, end_offset AS "end", blob FROM queen.log_segments
        WHERE base_offset >= $1::bigint ORDER BY base_offset LIMIT 50`,
      [next],
    );
    assert.ok(segments.length > 0, `nothing behind ${next} of ${rows}`);
    for (const { base, end, blob } of segments) {
      assert.equal(base, next);
      for (const { transactionId, payload } of await unpackSegment(blob, end - base + 1)) {
        const text = payload.toString('utf8');
        const id = /"after":\{"id":(\d+),"pad":"[0-9a-f]{1024}"\}/.exec(text)?.[1];
        assert.equal(Number(id), next + 1, text.slice(0, 200));
        assert.equal(transactionId.slice(transactionId.lastIndexOf(':') + 1), String(next), transactionId);
        next++;
      }
    }
  }
}
