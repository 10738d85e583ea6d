import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../../../../test/kit/until.ts';
import { AckFusion } from '../../src/engine/ack/fusion.ts';
import { AckRegistry, namesWholeBatch } from '../../src/engine/ack/registry.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { type Completion, completeBatches, type Settled } from '../../src/store/ack.ts';
import type { Queryable } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';
import { ack, Bench, GROUP, sql } from './fixture.ts';

function fakeClock() {
  let at = 0;
  return {
    now: () => at,
    after: () => ({ cancel() {} }),
    advance(ms: number) {
      at += ms;
    },
  };
}

function batch(worker: string, ids: string[], more: Partial<Parameters<AckRegistry['delivered']>[0]> = {}) {
  return {
    tenant: DEFAULT_TENANT,
    partitionId: 1,
    group: GROUP,
    worker,
    batchEnd: ids.length - 1,
    transactionIds: ids,
    leaseSeconds: 30,
    ...more,
  };
}

test('the registry tells a batch to its worker, once', () => {
  const registry = new AckRegistry({ clock: fakeClock() });
  registry.delivered(batch('w1', ['a', 'b']));
  assert.equal(registry.take(DEFAULT_TENANT, 1, GROUP, 'w2'), null);
  assert.equal(registry.take(DEFAULT_TENANT, 1, 'h', 'w1'), null);
  assert.equal(registry.take(DEFAULT_TENANT, 2, GROUP, 'w1'), null);
  assert.equal(registry.take('other', 1, GROUP, 'w1'), null);
  assert.equal(registry.take(DEFAULT_TENANT, 1, GROUP, 'w1')?.batchEnd, 1);
  assert.equal(registry.take(DEFAULT_TENANT, 1, GROUP, 'w1'), null);
});

test('an old ack leaves the entry of a newer lease', () => {
  const registry = new AckRegistry({ clock: fakeClock() });
  registry.delivered(batch('w1', ['a']));
  registry.delivered(batch('w2', ['a']));
  assert.equal(registry.take(DEFAULT_TENANT, 1, GROUP, 'w1'), null);
  assert.notEqual(registry.take(DEFAULT_TENANT, 1, GROUP, 'w2'), null);
});

test('a batch that holds an id twice is not registered, and displaces what was', () => {
  const registry = new AckRegistry({ clock: fakeClock() });
  registry.delivered(batch('w1', ['a', 'b']));
  registry.delivered(batch('w1', ['a', 'b', 'a']));
  assert.equal(registry.take(DEFAULT_TENANT, 1, GROUP, 'w1'), null);
  assert.deepEqual(registry.rowsOf(DEFAULT_TENANT, 'w1'), { partitionIds: [1], groups: [GROUP] });
});

test('entries live for the lease and ten seconds, and an extension counts', () => {
  const clock = fakeClock();
  const registry = new AckRegistry({ clock });
  registry.delivered(batch('w1', ['a']));
  registry.delivered(batch('w2', ['a'], { partitionId: 2 }));
  registry.delivered(batch('w3', ['a'], { partitionId: 3, leaseSeconds: 0 }));
  clock.advance(39_999);
  registry.extended(DEFAULT_TENANT, 'w2', 60);
  assert.notEqual(registry.take(DEFAULT_TENANT, 1, GROUP, 'w1'), null);
  clock.advance(10_000);
  assert.equal(registry.rowsOf(DEFAULT_TENANT, 'w1'), null);
  assert.notEqual(registry.take(DEFAULT_TENANT, 3, GROUP, 'w3'), null);
  clock.advance(10_001);
  registry.delivered(batch('w4', ['a'], { partitionId: 4 }));
  assert.notEqual(registry.take(DEFAULT_TENANT, 2, GROUP, 'w2'), null);
  clock.advance(200_000);
  registry.delivered(batch('w5', ['a'], { partitionId: 5 }));
  assert.deepEqual([registry.stats().batches, registry.stats().leases], [1, 1]);
});

test('memory is bounded, and nothing that is counted leaks', () => {
  const registry = new AckRegistry({ clock: fakeClock(), bytesMax: 100_000 });
  for (let i = 0; i < 5_000; i++) {
    registry.delivered(batch(`w${i}`, ['a', 'b', 'c'], { partitionId: i }));
    assert.ok(registry.stats().bytes <= 100_000);
  }
  assert.ok(registry.stats().batches + registry.stats().leases > 0);
  registry.delivered(batch('huge', [...Array(3_000).keys()].map(String), { partitionId: 1 }));
  assert.equal(registry.take(DEFAULT_TENANT, 1, GROUP, 'huge'), null);
  for (let i = 0; i < 5_000; i++) {
    registry.take(DEFAULT_TENANT, i, GROUP, `w${i}`);
    registry.released(DEFAULT_TENANT, i, GROUP, `w${i}`);
  }
  registry.released(DEFAULT_TENANT, 1, GROUP, 'huge');
  assert.deepEqual(registry.stats(), { batches: 0, leases: 0, bytes: 0 });
});

test('a whole batch is the same set, in any order and with repetitions', () => {
  const entry = { worker: 'w', batchEnd: 2, transactionIds: ['a', 'b', 'c'], bytes: 0, expiresAt: 0 };
  for (const ids of [
    ['a', 'b', 'c'],
    ['c', 'a', 'b'],
    ['a', 'a', 'b', 'c', 'c'],
  ]) {
    assert.equal(namesWholeBatch(entry, ids), true, ids.join());
  }
  for (const ids of [[], ['a'], ['a', 'b'], ['a', 'b', 'd'], ['a', 'b', 'c', 'd'], ['a', 'b', 'b']]) {
    assert.equal(namesWholeBatch(entry, ids), false, ids.join());
  }
});

const completion: Completion = { partitionId: 8, group: GROUP, worker: 'w', first: 0, last: 1 };
const ONE_AT_A_TIME = { flightsMax: 1, holdMs: 3 };

/** What a flush answers: the last message as the cursor before, to be told apart. */
function settled({ last }: Completion): Settled {
  return { before: last, backlog: false };
}

test('fusion sends what one turn brought, and gathers the rest behind it', async () => {
  const flushes: (readonly Completion[])[] = [];
  const open: (() => void)[] = [];
  const fusion = new AckFusion(new FakeClock(), ONE_AT_A_TIME, async (completions) => {
    flushes.push(completions);
    await new Promise<void>((resolve) => open.push(resolve));
    return completions.map(settled);
  });
  const lanes = () => flushes.map((batch) => batch.map(({ partitionId }) => partitionId));
  const answers = [0, 1].map((partitionId) => fusion.submit({ ...completion, partitionId }));
  await until('the first leaves', () => flushes.length === 1);
  answers.push(fusion.submit({ ...completion, partitionId: 2 }), fusion.submit(completion));
  // The same worker folds to the highest position; another worker of the same row waits for the flush after.
  answers.push(fusion.submit({ ...completion, last: 5 }), fusion.submit({ ...completion, worker: 'x' }));
  assert.deepEqual(lanes(), [[0, 1]]);
  assert.equal(fusion.waiting, 3);
  open.shift()!();
  await until('the second leaves', () => flushes.length === 2);
  assert.deepEqual(lanes(), [
    [0, 1],
    [2, 8],
  ]);
  open.shift()!();
  assert.equal((await answers[3])?.before, 5);
  assert.equal((await answers[4])?.before, 5);
  await until('the third leaves', () => flushes.length === 3);
  assert.deepEqual(
    flushes[2]!.map(({ worker }) => worker),
    ['x'],
  );
  open.shift()!();
  await Promise.all(answers);
  assert.deepEqual(fusion.counters, { flushes: 3, items: 5 });
});

test('behind a slow flush the next one leaves after the hold', async () => {
  const clock = new FakeClock();
  const flushes: number[] = [];
  const open: (() => void)[] = [];
  const fusion = new AckFusion(clock, { flightsMax: 2, holdMs: 3 }, async (completions) => {
    flushes.push(completions.length);
    await new Promise<void>((resolve) => open.push(resolve));
    return completions.map(settled);
  });
  const submit = (partitionId: number) => fusion.submit({ ...completion, partitionId });
  const answers = [submit(0)];
  await until('the first leaves', () => flushes.length === 1);
  answers.push(submit(1), submit(2));
  await until('the hold runs', () => clock.pending === 1);
  clock.advance(2);
  assert.deepEqual(flushes, [1]);
  clock.advance(1);
  assert.deepEqual(flushes, [1, 2]);
  // No third one, however long it takes.
  answers.push(submit(3));
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(100);
  assert.deepEqual(flushes, [1, 2]);
  open.shift()!();
  await until('one has landed', () => flushes.length === 3);
  for (const go of open) go();
  await Promise.all(answers);
});

test('a failed flush fails its own acks, and the next goes on', async () => {
  let fail = true;
  const fusion = new AckFusion(new FakeClock(), ONE_AT_A_TIME, (completions) =>
    fail ? Promise.reject(new Error('down')) : Promise.resolve(completions.map(settled)),
  );
  await assert.rejects(fusion.submit(completion), /down/);
  fail = false;
  assert.equal((await fusion.submit(completion))?.before, 1);
});

test('a row that the database refuses costs the others of its flush nothing', async () => {
  const flushes: number[] = [];
  const fusion = new AckFusion(new FakeClock(), ONE_AT_A_TIME, async (completions) => {
    flushes.push(completions.length);
    if (completions.some(({ partitionId }) => partitionId === 2)) {
      throw new StoreError('refused', 'sql', 'invalid page', { sqlState: 'XX001' });
    }
    return completions.map(settled);
  });
  const answers = [1, 2, 3].map((partitionId) => fusion.submit({ ...completion, partitionId }));
  const outcomes = await Promise.allSettled(answers);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled'],
  );
  assert.deepEqual(flushes, [3, 1, 1, 1]);
});

async function laneWithEntry(bench: Bench, registry: AckRegistry): Promise<number> {
  const lane = await bench.lane();
  await bench.append(lane, ['a', 'b', 'c']);
  await bench.append(lane, ['d', 'e']);
  await bench.consumer(lane, { batchEnd: 3, retries: 2 });
  registry.delivered(batch('w1', ['a', 'b', 'c', 'd'], { partitionId: lane }));
  return lane;
}

test('a whole batch is completed without the sidecar, and the row is left as by any completion', async (t) => {
  const bench = await Bench.open(t);
  for (const fusion of [true, false]) {
    const registry = new AckRegistry({ clock: systemClock });
    const path = bench.path({ registry, settings: { fusion } });
    const lane = await laneWithEntry(bench, registry);
    await sql(bench.db, 'DELETE FROM queen.log_txns WHERE partition_id = $1::bigint', [lane]);
    const verdicts = await ack(
      path,
      lane,
      ['d', 'a', 'b', 'c'].map((txn) => ({ txn })),
    );
    assert.deepEqual(
      verdicts,
      verdicts.map(() => ({ success: true, error: null, leaseReleased: true, dlq: false, noop: false })),
    );
    const row = await bench.row(lane);
    assert.deepEqual(
      [row.committed, row.batch_end, row.worker_id, row.lease_expires_at, row.lease_acquired_at],
      [3, null, null, null, null],
    );
    assert.deepEqual(
      [row.batch_retry_count, row.attempt_offset, row.attempt_count, row.total_consumed],
      [0, null, 0, 4],
    );
    assert.deepEqual(bench.releases.splice(0), [`${lane}/${GROUP}`]);
    assert.deepEqual([path.stats().registryHits, path.stats().hashGroups], [1, 0]);
  }
});

test('the offset of the last message completes a whole batch, any other offset takes the long way', async (t) => {
  const bench = await Bench.open(t);
  const registry = new AckRegistry({ clock: systemClock });
  const path = bench.path({ registry, settings: { fusion: true } });
  const byOffset = (lane: number, offset: number) =>
    path.ack({
      tenant: DEFAULT_TENANT,
      group: GROUP,
      items: [
        {
          partitionId: String(lane),
          leaseId: 'w1',
          status: 'completed',
          error: null,
          transactionId: '',
          offset,
        },
      ],
    });
  const whole = await laneWithEntry(bench, registry);
  const done = { success: true, error: null, leaseReleased: true, dlq: false, noop: false };
  assert.deepEqual(await byOffset(whole, 3), [done]);
  assert.equal((await bench.row(whole)).committed, 3);
  assert.deepEqual([path.stats().registryHits, path.stats().hashGroups], [1, 0]);
  for (const [offset, committed, released] of [
    [2, 2, false],
    [4, -1, false],
  ] as const) {
    const lane = await laneWithEntry(bench, registry);
    const [verdict] = await byOffset(lane, offset);
    assert.deepEqual([(await bench.row(lane)).committed, verdict!.leaseReleased], [committed, released]);
  }
  assert.deepEqual([path.stats().registryHits, path.stats().hashGroups], [1, 2]);
});

test('what the registry cannot vouch for takes the hash path', async (t) => {
  const bench = await Bench.open(t);
  const registry = new AckRegistry({ clock: systemClock });
  const path = bench.path({ registry, settings: { fusion: true } });
  const whole = ['a', 'b', 'c', 'd'].map((txn) => ({ txn }));

  // A part discards the entry; so does a signal.
  const parts = await laneWithEntry(bench, registry);
  await ack(path, parts, [{ txn: 'a' }]);
  assert.equal((await bench.row(parts)).committed, 0);
  const rest = await ack(path, parts, whole);
  assert.deepEqual(
    rest.map((verdict) => verdict.noop),
    [true, false, false, false],
  );
  const signalled = await laneWithEntry(bench, registry);
  await ack(path, signalled, [...whole.slice(0, 3), { txn: 'd', status: 'retry' }]);
  assert.deepEqual([(await bench.row(signalled)).committed, path.stats().registryHits], [2, 0]);

  // A lease-less ack moved the cursor into the batch: the repetition must still be told.
  const moved = await laneWithEntry(bench, registry);
  await ack(path, moved, [{ txn: 'b', lease: null }]);
  const after = await ack(path, moved, whole);
  assert.deepEqual(
    after.map((verdict) => [verdict.success, verdict.noop]),
    [
      [true, true],
      [true, true],
      [true, false],
      [true, false],
    ],
  );
  assert.equal((await bench.row(moved)).committed, 3);

  // The lease is over: the hash path says so.
  const late = await laneWithEntry(bench, registry);
  await bench.consumer(late, { batchEnd: 3, leaseSeconds: 0 });
  const refused = await ack(path, late, whole);
  assert.ok(refused.every((verdict) => verdict.error === 'invalid or expired lease'));
  assert.equal((await bench.row(late)).committed, -1);
  assert.deepEqual([path.stats().registryHits, path.stats().positionsRejected], [2, 2]);
});

test('only a batch that is exactly as described is completed; every other row stays as it is', async (t) => {
  const bench = await Bench.open(t);
  const lane = async (row: Parameters<Bench['consumer']>[1]) => {
    const id = await bench.lane();
    await bench.append(id, ['a', 'b', 'c', 'd', 'e']);
    await bench.consumer(id, row);
    return id;
  };
  const lanes = {
    whole: await lane({ batchEnd: 3, retries: 2 }),
    all: await lane({ batchEnd: 4 }),
    behindAPrefix: await lane({ batchEnd: 3, committed: 1 }),
    foreign: await lane({ batchEnd: 3, worker: 'w2' }),
    expired: await lane({ batchEnd: 3, leaseSeconds: -1 }),
    longer: await lane({ batchEnd: 4 }),
    passed: await lane({ batchEnd: 3, committed: 0 }),
    free: await lane({}),
    conflated: await lane({ batchEnd: 3, conflated: true }),
  };
  const ids = Object.values(lanes);
  const before = await Promise.all(ids.map((id) => bench.row(id)));
  const answers = await completeBatches(bench.db, [
    // Not in the order of the locks.
    ...Object.entries(lanes)
      .map(([name, partitionId]) => ({
        partitionId,
        group: GROUP,
        worker: 'w1',
        first: name === 'behindAPrefix' ? 2 : 0,
        last: name === 'all' ? 4 : 3,
      }))
      .reverse(),
    { partitionId: 999_999, group: GROUP, worker: 'w1', first: 0, last: 3 },
    { partitionId: lanes.whole, group: 'another', worker: 'w1', first: 0, last: 3 },
  ]);
  const done = new Map(Object.keys(lanes).map((name, i) => [name, answers[ids.length - 1 - i]]));
  assert.deepEqual(answers.slice(ids.length), [null, null]);
  assert.deepEqual(done.get('whole'), { before: -1, backlog: true });
  assert.deepEqual(done.get('all'), { before: -1, backlog: false });
  assert.deepEqual(done.get('behindAPrefix'), { before: 1, backlog: true });
  for (const [i, name] of Object.keys(lanes).entries()) {
    if (['whole', 'all', 'behindAPrefix'].includes(name)) {
      const row = await bench.row(ids[i]!);
      const last = name === 'all' ? 4 : 3;
      assert.deepEqual(
        [
          row.committed,
          row.batch_end,
          row.worker_id,
          row.batch_retry_count,
          row.attempt_offset,
          row.attempt_count,
        ],
        [last, null, null, 0, null, 0],
        name,
      );
      assert.equal(row.total_consumed, last - before[i]!.committed + before[i]!.total_consumed, name);
    } else {
      assert.equal(done.get(name), null, name);
      assert.deepEqual(await bench.row(ids[i]!), before[i], name);
    }
  }
});

test('a hundred acks of one batch at once count once', async (t) => {
  const bench = await Bench.open(t);
  const registry = new AckRegistry({ clock: systemClock });
  const brokers = [
    bench.path({ registry, settings: { fusion: true } }),
    bench.path({ registry: new AckRegistry({ clock: systemClock }), settings: { fusion: true } }),
  ];
  const lane = await laneWithEntry(bench, registry);
  const all = await Promise.all(
    Array.from({ length: 100 }, (_, i) =>
      ack(
        brokers[i % 2]!,
        lane,
        ['a', 'b', 'c', 'd'].map((txn) => ({ txn })),
      ),
    ),
  );
  const won = all.filter((verdicts) => verdicts.every((verdict) => verdict.success && !verdict.noop));
  assert.equal(won.length, 1);
  for (const verdicts of all) {
    if (verdicts === won[0]) continue;
    assert.ok(verdicts.every((verdict) => verdict.error === 'invalid or expired lease'));
  }
  const row = await bench.row(lane);
  assert.deepEqual([row.committed, row.total_consumed], [3, 4]);
});

test('many lanes at once share commits, and each gets its own verdict', async (t) => {
  const bench = await Bench.open(t);
  const registry = new AckRegistry({ clock: systemClock });
  const path = bench.path({ registry, settings: { fusion: true, fusionShards: 2 } });
  const ids: number[] = [];
  for (let i = 0; i < 40; i++) ids.push(await laneWithEntry(bench, registry));
  // One of them lost its lease meanwhile.
  await bench.consumer(ids[7]!, { batchEnd: 3, worker: 'w2' });
  const answers = await Promise.all(
    ids.map((lane) =>
      ack(
        path,
        lane,
        ['a', 'b', 'c', 'd'].map((txn) => ({ txn })),
      ),
    ),
  );
  answers.forEach((verdicts, i) => {
    assert.ok(verdicts.every((verdict) => verdict.success === (i !== 7)));
  });
  const { flushes, flushedItems } = path.stats();
  assert.equal(flushedItems, 40);
  assert.ok(flushes <= 10, `${flushes} flushes for 40 acks, two at a time`);
});

test('a flush that fails tells its acks, and the lease is left to expire', async (t) => {
  const bench = await Bench.open(t);
  const registry = new AckRegistry({ clock: systemClock });
  const lane = await laneWithEntry(bench, registry);
  const down: Queryable = {
    query: () => Promise.reject(new StoreError('unavailable', 'connection', 'down')),
  };
  const path = bench.path({ registry, db: down, settings: { fusion: true } });
  const verdicts = await ack(
    path,
    lane,
    ['a', 'b', 'c', 'd'].map((txn) => ({ txn })),
  );
  assert.ok(
    verdicts.every((v) => !v.success && v.error === 'ack flush failed; lease will expire and redeliver'),
  );
  // Once the database is back the same ack goes through, by hash: the entry has had its use.
  const again = await ack(
    bench.path({ registry, settings: { fusion: true } }),
    lane,
    ['a', 'b', 'c', 'd'].map((txn) => ({ txn })),
  );
  assert.ok(again.every((verdict) => verdict.success && verdict.leaseReleased));
});

test('drain waits for the acks that were taken', async (t) => {
  const bench = await Bench.open(t);
  const registry = new AckRegistry({ clock: systemClock });
  const lane = await laneWithEntry(bench, registry);
  const path = bench.path({ registry, settings: { fusion: true } });
  let answered = false;
  void ack(
    path,
    lane,
    ['a', 'b', 'c', 'd'].map((txn) => ({ txn })),
  ).then(() => {
    answered = true;
  });
  await path.drain();
  assert.equal(answered, true);
});
