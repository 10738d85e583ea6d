import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ack, Bench, flipByte, sql } from './fixture.ts';

const UNRESOLVABLE = /^unresolvable: transaction not in the ack window/;

async function laneWithoutWindow(bench: Bench): Promise<number> {
  const lane = await bench.lane();
  await sql(
    bench.db,
    `UPDATE queen.queues SET dedup_window_seconds = 0
      WHERE id = (SELECT queue_id FROM queen.log_partitions WHERE id = $1::bigint)`,
    [lane],
  );
  return lane;
}

test('an id that occurs several times is acked in order', async (t) => {
  const bench = await Bench.open(t);
  const lane = await laneWithoutWindow(bench);
  const path = bench.path();
  await bench.append(lane, ['t', 'x', 't']);
  await bench.append(lane, ['t']);
  await bench.consumer(lane, { batchEnd: 3 });
  for (const [cursor, released] of [
    [0, false],
    [2, false],
    [3, true],
  ] as const) {
    const [verdict] = await ack(path, lane, [{ txn: 't' }]);
    assert.deepEqual([verdict!.success, verdict!.noop, verdict!.leaseReleased], [true, false, released]);
    assert.equal((await bench.row(lane)).committed, cursor);
  }
  // Nothing is above the cursor any more: a repetition.
  const [last] = await ack(path, lane, [{ txn: 't', lease: null }]);
  assert.deepEqual([last!.success, last!.noop], [true, true]);
});

test('a failure names the lowest of several', async (t) => {
  const bench = await Bench.open(t);
  const lane = await laneWithoutWindow(bench);
  await bench.append(lane, ['t', 'x', 't']);
  await bench.consumer(lane, { committed: 0, batchEnd: 2 });
  const [verdict] = await ack(bench.path(), lane, [{ txn: 't', status: 'dlq' }]);
  assert.equal(verdict!.dlq, true);
  assert.equal((await bench.row(lane)).committed, 2);
});

test('the last message of a conflated batch stands for all of it', async (t) => {
  const bench = await Bench.open(t);
  const lane = await laneWithoutWindow(bench);
  await bench.append(lane, ['k', 'k', 'other']);
  await bench.append(lane, ['k', 'k']);
  await bench.append(lane, ['later']);
  const path = bench.path();
  await bench.consumer(lane, { batchEnd: 4, conflated: true });
  const [verdict] = await ack(path, lane, [{ txn: 'k' }]);
  assert.deepEqual(verdict, {
    success: true,
    error: null,
    leaseReleased: true,
    dlq: false,
    noop: false,
    conflated: 4,
  });
  const row = await bench.row(lane);
  assert.deepEqual([row.committed, row.lease_conflated, row.total_consumed], [4, false, 5]);

  // A failure of it charges the budget and skips nothing; a dead letter passes what it stood for.
  await bench.append(lane, ['k']);
  await bench.consumer(lane, { committed: 4, batchEnd: 6, conflated: true });
  const [failed] = await ack(path, lane, [{ txn: 'k', status: 'failed' }]);
  assert.deepEqual([failed!.leaseReleased, failed!.conflated], [true, 0]);
  await bench.consumer(lane, { committed: 4, batchEnd: 6, conflated: true });
  const [dead] = await ack(path, lane, [{ txn: 'k', status: 'dlq' }]);
  assert.deepEqual([dead!.dlq, dead!.conflated], [true, 1]);
  assert.equal((await bench.row(lane)).committed, 6);
});

test('without a batch an id is found however far above the cursor', async (t) => {
  const bench = await Bench.open(t);
  const lane = await bench.lane();
  // More rows than one step of the walk, in both directions.
  for (let i = 0; i < 80; i++) await bench.append(lane, [`a${i}`, `b${i}`]);
  await bench.consumer(lane, { committed: 4 });
  const path = bench.path();
  const first = await ack(path, lane, [
    { txn: 'b1', lease: null },
    { txn: 'a75', lease: null },
  ]);
  assert.deepEqual(
    first.map((verdict) => [verdict.success, verdict.noop]),
    [
      [true, true],
      [true, false],
    ],
  );
  assert.equal((await bench.row(lane)).committed, 150);
  const below = await ack(path, lane, [
    { txn: 'a0', lease: null },
    { txn: 'b75', lease: null },
    { txn: 'x', lease: null },
  ]);
  assert.deepEqual(
    below.map((verdict) => [verdict.success, verdict.noop]),
    [
      [true, true],
      [true, false],
      [false, false],
    ],
  );
  assert.match(below[2]!.error!, UNRESOLVABLE);
});

test('an ack at the head does not read the sidecar above its batch', async (t) => {
  const bench = await Bench.open(t);
  const lane = await bench.lane();
  for (let i = 0; i < 300; i++) await bench.append(lane, [`t${i}`]);
  await bench.consumer(lane, { committed: 9, batchEnd: 12 });
  const reads = await bench.test.open({ poolSize: 1 });
  t.after(() => reads.close());
  await reads.transaction(async (tx) => {
    const stat = async (): Promise<number> => {
      const [row] = await sql<{ n: number }>(
        tx,
        `SELECT (seq_tup_read + idx_tup_fetch)::int AS n FROM pg_stat_xact_user_tables
          WHERE schemaname = 'queen' AND relname = 'log_txns'`,
      );
      return row!.n;
    };
    const before = await stat();
    const verdicts = await ack(bench.path({ db: tx }), lane, [{ txn: 't10' }, { txn: 't12' }]);
    assert.deepEqual(
      verdicts.map((verdict) => verdict.success),
      [true, true],
    );
    const after = await stat();
    assert.ok(after > before, 'nothing was counted');
    assert.ok(after - before <= 12, `${after - before} sidecar rows were read for a batch of three`);
  });
});

test('a message below the retention mark still resolves through the sidecar', async (t) => {
  const bench = await Bench.open(t);
  const lane = await bench.lane();
  await bench.append(lane, ['a', 'b']);
  await bench.append(lane, ['c', 'd']);
  await bench.consumer(lane, { batchEnd: 3 });
  await sql(bench.db, 'DELETE FROM queen.log_segments WHERE partition_id = $1::bigint AND base_offset = 0', [
    lane,
  ]);
  await sql(bench.db, 'UPDATE queen.log_partitions SET log_start = 2 WHERE id = $1::bigint', [lane]);
  const path = bench.path();
  const [a] = await ack(path, lane, [{ txn: 'a' }]);
  assert.deepEqual([a!.success, a!.noop], [true, false]);
  // The message is gone, the cursor passes it all the same, and the dead letter says what is known.
  const [b] = await ack(path, lane, [{ txn: 'b', status: 'dlq', error: 'bad' }]);
  assert.deepEqual([b!.success, b!.dlq], [true, true]);
  const [letter] = await bench.deadLetters(lane);
  assert.deepEqual(
    [letter!.offset, letter!.transaction_id, letter!.message_id, letter!.payload, letter!.error],
    [1, 'b', null, null, 'bad'],
  );
});

// Purged sidecars.

async function purged(bench: Bench): Promise<number> {
  const lane = await bench.lane();
  await bench.append(lane, ['m0', 'm1', 'a']);
  await bench.append(lane, ['b', 'c']);
  await bench.append(lane, ['d', 'e', 'f']);
  await bench.consumer(lane, { committed: 1, batchEnd: 6 });
  await bench.purge(lane, 5);
  return lane;
}

test('under a live lease what the sidecar has lost is found in the leased segments', async (t) => {
  const bench = await Bench.open(t);
  const path = bench.path();
  const whole = await purged(bench);
  const all = await ack(
    path,
    whole,
    ['a', 'b', 'c', 'd', 'e'].map((txn) => ({ txn })),
  );
  assert.ok(all.every((verdict) => verdict.success && verdict.leaseReleased && !verdict.noop));
  assert.equal((await bench.row(whole)).committed, 6);
  assert.deepEqual([path.stats().segmentHits, path.stats().segmentMisses], [3, 0]);

  // A failure whose hash is gone is not overtaken by completions whose hashes are there.
  const partial = await purged(bench);
  const mixed = await ack(path, partial, [
    { txn: 'a' },
    { txn: 'b', status: 'failed' },
    { txn: 'd' },
    { txn: 'e' },
  ]);
  assert.ok(mixed.every((verdict) => verdict.success && verdict.leaseReleased));
  assert.deepEqual(
    [(await bench.row(partial)).committed, (await bench.row(partial)).batch_retry_count],
    [2, 1],
  );

  const dead = await purged(bench);
  const verdicts = await ack(path, dead, [
    { txn: 'c', status: 'dlq' },
    { txn: 'ghost' },
    { txn: 'f' },
    { txn: 'm0' },
  ]);
  assert.deepEqual(
    verdicts.map((verdict) => [verdict.success, verdict.dlq]),
    [
      [true, true],
      [false, false],
      [false, false],
      [false, false],
    ],
  );
  for (const verdict of verdicts.slice(1)) assert.match(verdict.error!, UNRESOLVABLE);
  assert.equal((await bench.row(dead)).committed, 4);
});

test('without a live lease a lost hash is unresolvable and nothing is lost', async (t) => {
  const bench = await Bench.open(t);
  const path = bench.path();
  const lane = await purged(bench);
  const verdicts = await ack(path, lane, [
    { txn: 'a', lease: null },
    { txn: 'd', lease: null, status: 'failed' },
  ]);
  assert.match(verdicts[0]!.error!, UNRESOLVABLE);
  assert.equal(verdicts[1]!.success, true);
  assert.deepEqual([(await bench.row(lane)).committed, path.stats().segmentHits], [1, 0]);
});

test('a conflated batch whose hashes are gone resolves to its last message', async (t) => {
  const bench = await Bench.open(t);
  const lane = await laneWithoutWindow(bench);
  await bench.append(lane, ['k', 'k', 'k']);
  await bench.consumer(lane, { batchEnd: 2, conflated: true });
  await bench.purge(lane, 3);
  const [verdict] = await ack(bench.path(), lane, [{ txn: 'k' }]);
  assert.deepEqual([verdict!.success, verdict!.leaseReleased, verdict!.conflated], [true, true, 2]);
});

test('a sidecar row that was damaged costs a look into the segments', async (t) => {
  const bench = await Bench.open(t);
  const lane = await bench.lane();
  await bench.append(lane, ['a', 'b', 'c']);
  await bench.consumer(lane, { batchEnd: 2 });
  await sql(
    bench.db,
    `UPDATE queen.log_txns SET hashes = substring(set_byte(hashes, 3, get_byte(hashes, 3) # 255) FROM 1 FOR 39)
      WHERE partition_id = $1::bigint`,
    [lane],
  );
  const verdicts = await ack(
    bench.path(),
    lane,
    ['a', 'b', 'c'].map((txn) => ({ txn })),
  );
  assert.ok(verdicts.every((verdict) => verdict.success && verdict.leaseReleased));
});

test('a segment that cannot be read is an error of its partition only', async (t) => {
  const bench = await Bench.open(t);
  const path = bench.path();
  const [bad, good] = [await purged(bench), await purged(bench)];
  await flipByte(bench, bad, 3);
  const verdicts = await path.ack({
    tenant: '00000000-0000-0000-0000-000000000001',
    group: 'g',
    items: [bad, good].flatMap((lane) =>
      ['a', 'b'].map((transactionId) => {
        return {
          partitionId: String(lane),
          leaseId: 'w1',
          status: 'completed',
          error: null,
          transactionId,
        } as const;
      }),
    ),
  });
  assert.deepEqual(
    verdicts.map((verdict) => verdict.success),
    [false, false, true, true],
  );
  assert.match(verdicts[0]!.error!, new RegExp(`^segment of partition ${bad} at offsets 3 to 4 is corrupt`));
  assert.deepEqual([(await bench.row(bad)).committed, (await bench.row(good)).committed], [1, 3]);
});
