import assert from 'node:assert/strict';
import { test } from 'node:test';
import { claim, undo } from '../../src/store/pop.ts';
import { type Rig, range, setup, sql } from './fixture.ts';

const WORKER = 'cost';

function options(candidates: number[], over: object = {}) {
  return {
    group: '__QUEUE_MODE__',
    candidates,
    queues: candidates.map(() => 0),
    worker: WORKER,
    batch: 1_000,
    partitions: 0,
    bytesMax: 32 * 1024 * 1024,
    leaseSeconds: 0,
    conflate: false,
    windowBatch: 100,
    ...over,
  };
}

/** Milliseconds of one claim, the median of `rounds`; each claim is undone. */
async function timed(rig: Rig, ids: number[], over: object = {}, rounds = 25): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const started = performance.now();
    const rows = await claim(rig.db, options(ids, over));
    times.push(performance.now() - started);
    const claimed = rows.filter((row) => row.verdict === 0);
    await undo(rig.db, '__QUEUE_MODE__', WORKER, claimed);
  }
  return times.sort((a, b) => a - b)[rounds >> 1]!;
}

test('a draw of 64 costs far less than 64 claims of one', async (t) => {
  const rig = await setup(t);
  const ids: number[] = [];
  for (let p = 0; p < 64; p++) ids.push((await rig.push('q', `p${p}`, ['a'])).partitionId);
  await sql(
    rig.db,
    "INSERT INTO queen.log_consumers (partition_id, consumer_group) SELECT id, '__QUEUE_MODE__' FROM queen.log_partitions",
  );
  const one = await timed(rig, ids.slice(0, 1));
  const all = await timed(rig, ids);
  const single = await timed(rig, ids, { partitions: 1 });
  t.diagnostic(
    `one of one ${one.toFixed(2)} ms, one of 64 ${single.toFixed(2)} ms, 64 of 64 ${all.toFixed(2)} ms`,
  );
  assert.ok(all < 64 * one * 0.5, `${all} against ${one}`);
});

test('a batch costs the same at the head of a long log as at its end', async (t) => {
  const rig = await setup(t);
  const { partitionId } = await rig.push('q', 'p', ['a']);
  await sql(
    rig.db,
    `INSERT INTO queen.log_segments
     SELECT partition_id, i, i, created_at, blob FROM queen.log_segments, generate_series(1, 50000) i`,
  );
  await sql(rig.db, 'UPDATE queen.log_partitions SET last_offset = 50000');
  await sql(
    rig.db,
    "INSERT INTO queen.log_consumers (partition_id, consumer_group) VALUES ($1::bigint, '__QUEUE_MODE__')",
    [partitionId],
  );
  const head = await timed(rig, [partitionId], { batch: 10 });
  await sql(rig.db, 'UPDATE queen.log_consumers SET committed = 49000');
  const tail = await timed(rig, [partitionId], { batch: 10 });
  const conflated = await timed(rig, [partitionId], { conflate: true });
  t.diagnostic(
    `head ${head.toFixed(2)} ms, tail ${tail.toFixed(2)} ms, conflated ${conflated.toFixed(2)} ms`,
  );
  assert.ok(tail < head * 5 + 5, `${tail} against ${head}`);
  assert.ok(conflated < head * 5 + 5, `${conflated} against ${head}`);
});

test('a claim locks only as many rows as it may claim partitions', async (t) => {
  const rig = await setup(t);
  const ids: number[] = [];
  for (let p = 0; p < 4; p++) ids.push((await rig.push('q', `p${p}`, range(3))).partitionId);
  await sql(
    rig.db,
    "INSERT INTO queen.log_consumers (partition_id, consumer_group) SELECT id, '__QUEUE_MODE__' FROM queen.log_partitions",
  );
  await rig.db.transaction(async (tx) => {
    const rows = await claim(tx, options(ids, { partitions: 1 }));
    assert.deepEqual(
      rows.map((row) => [row.partitionId, row.verdict]),
      [[ids[0], 0]],
    );
    // Another broker at the same moment: the first is taken, the second is free.
    const others = await claim(rig.db, options(ids, { partitions: 1, worker: 'other' }));
    assert.deepEqual(
      others.map((row) => [row.partitionId, row.verdict]),
      [
        [ids[0], 3],
        [ids[1], 0],
      ],
    );
  });
});
