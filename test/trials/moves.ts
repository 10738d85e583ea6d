/**
 * Every key of a table moves onto its neighbour in one statement, while a sink keeps a copy: in between no key is free, and
 * some rows have large values that are not sent with it. With the stream alone, and while the table is being copied.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Upstream, type UpstreamDatabase } from '../kit/upstream.ts';
import { Connected, type Trial } from './connected.ts';

export interface MovesPlan {
  rows: number;
  /** One row of so many has a value that is kept apart from it. */
  largeEvery: number;
  partitionBy: 'key' | 'single';
  /** `copy`: while the snapshot is under way, and in the middle of its chunks. */
  during: 'stream' | 'copy';
  /** All keys move so often. */
  rounds: number;
  settleMs: number;
}

const COLUMNS = 'id int PRIMARY KEY, n int NOT NULL, v text NOT NULL, big text';

export async function movingKeys(t: Trial, plan: MovesPlan): Promise<void> {
  const server = await Upstream.start({ major: 18 }, t);
  const scene = await Connected.open(t, server);
  const { upstream } = scene;
  const target = await server.database(t);
  // Highest first: a key is free when the next lower one moves onto it.
  await upstream.sql(`CREATE TABLE t (${COLUMNS}); ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
    CREATE INDEX backwards ON t (id DESC);
    INSERT INTO t SELECT g, g, 'v', CASE WHEN g % ${plan.largeEvery} = 0 THEN repeat(md5(g::text), 100) END
      FROM generate_series(${plan.rows}, 1, -1) g`);
  await target.sql(`CREATE TABLE t (${COLUMNS})`);
  const broker = await scene.broker();
  await scene.source(broker, {
    tables: [{ table: 't', queue: 'q', partitionBy: plan.partitionBy }],
    snapshotChunkRows: 100,
  });
  await scene.put(broker, 'copy', {
    kind: 'sink',
    connection: scene.connection(target),
    sink: { queue: 'q', table: 't', mode: 'cdc', workers: 4 },
  });
  const times: number[] = [];
  if (plan.during === 'stream') {
    await scene.reaches(broker, 'streaming', plan.settleMs);
    await alike(scene, target, plan.settleMs);
  }
  for (let round = 1; round <= plan.rounds; round++) {
    if (plan.during === 'copy') {
      // Some chunks are in, some are not, and one of them is on its way.
      const from = await scene.stored();
      while ((await scene.stored()) < from + plan.rows / 20) await sleep(10);
    }
    // What was written since the last round stands behind the rest of the table.
    if (round > 1) await upstream.sql('CLUSTER t USING backwards');
    await upstream.sql('BEGIN');
    const before = await scene.view(broker);
    await upstream.sql('UPDATE t SET id = id + 1');
    // Large values are left alone with the key, and without it.
    await upstream.sql(`UPDATE t SET v = v || '.' WHERE id % 3 = 0`);
    await upstream.sql('COMMIT');
    assert.equal(
      before.state?.pointer?.snapshot != null,
      plan.during === 'copy',
      JSON.stringify(before.state?.pointer),
    );
    const moved = performance.now();
    if (plan.during === 'stream') await alike(scene, target, plan.settleMs);
    await upstream.sql(`UPDATE t SET v = v || '!' WHERE id % 5 = 0`);
    times.push(Math.round(performance.now() - moved));
  }
  const from = performance.now();
  await scene.reaches(broker, 'streaming', plan.settleMs);
  await alike(scene, target, plan.settleMs);
  t.diagnostic(
    `${await scene.stored()} messages of ${plan.rows} rows; each round ${times} ms, then ${Math.round(performance.now() - from)} ms`,
  );
  assert.deepEqual(await scene.letters(), []);
  assert.equal(await scene.errors(broker), 0);
  const [row] = await target.sql(
    'SELECT min(id)::int AS min, max(id)::int AS max, count(big)::int AS large FROM t',
  );
  assert.deepEqual(row, {
    min: 1 + plan.rounds,
    max: plan.rows + plan.rounds,
    large: Math.floor(plan.rows / plan.largeEvery),
  });
  assert.equal((await broker.stop()).code, 0);
}

/** Waits until the copy is the original. */
async function alike(scene: Connected, target: UpstreamDatabase, withinMs: number): Promise<void> {
  const SUM = `SELECT count(*)::int AS rows, md5(string_agg(t::text, ',' ORDER BY id)) AS sum FROM t`;
  const [wanted] = await scene.upstream.sql(SUM);
  const deadline = performance.now() + withinMs;
  for (;;) {
    const [found] = await target.sql(SUM);
    if (found!.sum === wanted!.sum && found!.rows === wanted!.rows) return;
    if (performance.now() > deadline) {
      const rows = (database: UpstreamDatabase) =>
        database.sql('SELECT id, n, v, left(big, 20) AS big FROM t ORDER BY id');
      const there = new Set((await rows(target)).map((row) => JSON.stringify(row)));
      const missing = (await rows(scene.upstream))
        .map((row) => JSON.stringify(row))
        .filter((row) => !there.has(row));
      const letters = await scene.letters();
      assert.fail(
        `${found!.rows} of ${wanted!.rows} rows, ${missing.length} differ: ${missing.slice(0, 5)}; ${letters.length} letters: ${JSON.stringify(letters.slice(0, 3))}`,
      );
    }
    await sleep(200);
  }
}
