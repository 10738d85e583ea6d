import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELPER_ENTRIES_MAX } from '../../src/engine/dedup/memory_gate.ts';
import { ENTRY_BYTES, windowBytes } from '../../src/engine/dedup/partition_window.ts';
import { bench, hashesOf, range, row, rowsOf, settle } from './fakes.ts';

const P = 7;
const W = 60;
const SECOND = 1_000_000;

test('warm: what was hydrated and committed is vouched up to the newest offset', async () => {
  const { cache, source } = bench();
  assert.equal(cache.vouch(P, W, hashesOf([1])), -1);
  source.rows.set(P, rowsOf(1000));
  await cache.prepare(P, W);
  assert.equal(cache.vouch(P, W, hashesOf([5000, 5001])), 999);
  cache.committed(P, 1000, hashesOf([5000, 5001]), 0);
  assert.equal(cache.vouch(P, W, hashesOf([5002])), 1001);
  // A hit anywhere in the bundle is left to the database.
  for (const known of [0, 999, 5000, 5001]) assert.equal(cache.vouch(P, W, hashesOf([5002, known])), -1);
  for (let i = 0; i < 200; i++) {
    const ids = range(10_000 + i * 100, 100);
    assert.equal(cache.vouch(P, W, hashesOf(ids)), 1001 + i * 100);
    cache.committed(P, 1002 + i * 100, hashesOf(ids), i);
  }
  assert.equal(source.opened, 1);
  const stats = cache.stats();
  assert.equal(stats.hashes, 21_002);
  assert.equal(stats.vouchedTotal, 202);
  assert.equal(stats.localHitsTotal, 4);
});

test('prepare asks once, and nothing at all when there is nothing to do', async () => {
  const { cache, source } = bench();
  source.rows.set(P, rowsOf(10));
  await Promise.all([cache.prepare(P, W), cache.prepare(P, W), cache.prepare(P, W)]);
  await cache.prepare(P, W);
  await cache.prepare(P, 0);
  assert.equal(source.opened, 1);
  const off = bench({ enabled: false });
  await off.cache.prepare(P, W);
  off.cache.committed(P, 0, hashesOf([1]), 0);
  assert.equal(off.cache.vouch(P, W, hashesOf([2])), -1);
  assert.equal(off.source.opened, 0);
});

test('one statement serves all partitions that are prepared in one go', async () => {
  const { cache, source } = bench();
  const all = Promise.all(range(1, 16).map((id) => cache.prepare(id, W)));
  await settle();
  assert.equal(source.asked.length, 1);
  assert.equal(source.asked[0]!.requests.length, 16);
  source.asked[0]!.answer(range(1, 16).map((id) => (id === 3 ? null : source.start([row(0, [id])]))));
  await all;
  for (const id of range(1, 16)) assert.equal(cache.vouch(id, W, hashesOf([99])), id === 3 ? -1 : 0);
});

test('a partition that is known to be empty is complete without a question', async () => {
  const { cache, source } = bench();
  await cache.prepare(P, W, -1);
  cache.committed(P, 0, hashesOf([1, 2]), 0);
  assert.equal(cache.vouch(P, W, hashesOf([3])), 1);
  assert.equal(source.opened, 0);
  // One that is known not to be empty is read.
  source.rows.set(9, rowsOf(3));
  await cache.prepare(9, W, 2);
  assert.equal(cache.vouch(9, W, hashesOf([100])), 2);
  // The knowledge was stale: offsets 0..4 are another broker's.
  await cache.prepare(8, W, -1);
  cache.committed(8, 5, hashesOf([1, 2]), 0);
  assert.equal(cache.vouch(8, W, hashesOf([3])), -1);
  source.rows.set(8, rowsOf(7));
  await cache.prepare(8, W, -1);
  assert.equal(source.opened, 2);
  assert.equal(cache.vouch(8, W, hashesOf([100])), 6);
});

test('a gap mutes the entry until a full hydration', async () => {
  const { cache, source } = bench();
  source.rows.set(P, rowsOf(10));
  await cache.prepare(P, W);
  cache.committed(P, 12, hashesOf([50]), 0);
  assert.equal(cache.vouch(P, W, hashesOf([60])), -1);
  cache.committed(P, 13, hashesOf([51]), 0);
  assert.equal(cache.vouch(P, W, hashesOf([60])), -1);
  source.rows.set(P, [...rowsOf(10), row(10, [40, 41]), row(12, [50]), row(13, [51])]);
  await cache.prepare(P, W);
  assert.equal(cache.vouch(P, W, hashesOf([60])), 13);
  assert.equal(cache.vouch(P, W, hashesOf([40])), -1);
  assert.equal(cache.stats().gapsTotal, 1);
});

test('brokers that keep interleaving wait longer and longer before they read the window again', async () => {
  const { cache, source, clock } = bench();
  source.rows.set(P, rowsOf(10));
  let end = 9;
  let hydrations = 0;
  for (let i = 0; i < 600; i++) {
    await cache.prepare(P, W);
    cache.committed(P, end + 2, hashesOf([1000 + i]), 0);
    end += 2;
    source.rows.set(P, rowsOf(end + 1));
    clock.advance(50);
    hydrations = source.opened;
  }
  // 30 seconds, 600 flushes, each after a foreign one.
  assert.ok(hydrations >= 4 && hydrations <= 12, `${hydrations} hydrations`);
  // Left in peace, it warms up again.
  clock.advance(30_000);
  await cache.prepare(P, W);
  assert.equal(cache.vouch(P, W, hashesOf([900_000])), end);
  clock.advance(11_000);
  cache.committed(P, end + 5, hashesOf([1]), 0);
  await cache.prepare(P, W);
  assert.equal(source.opened, hydrations + 2);
});

test('an overlap, impossible as it is, mutes the entry', async () => {
  const { cache, source } = bench();
  source.rows.set(P, rowsOf(10));
  await cache.prepare(P, W);
  cache.committed(P, 10, hashesOf([100]), 0);
  cache.committed(P, 10, hashesOf([101]), 0);
  assert.equal(cache.vouch(P, W, hashesOf([102])), -1);
});

test('hashes that are no multiple of 16 bytes are not vouched for, and mute the entry when committed', async () => {
  const { cache, source } = bench();
  source.rows.set(P, rowsOf(10));
  await cache.prepare(P, W);
  assert.equal(cache.vouch(P, W, Buffer.alloc(17)), -1);
  assert.equal(cache.vouch(P, W, hashesOf([100])), 9);
  cache.committed(P, 10, Buffer.alloc(0), 0);
  assert.equal(cache.vouch(P, W, hashesOf([100])), 9);
  cache.committed(P, 10, Buffer.alloc(15), 0);
  assert.equal(cache.vouch(P, W, hashesOf([100])), -1);
  cache.committed(8, Number.NaN, hashesOf([1]), Number.NaN);
});

test('another window is another entry: mute until a full hydration under it succeeds', async () => {
  const { cache, source, clock } = bench();
  source.rows.set(P, rowsOf(10));
  await cache.prepare(P, W);
  assert.equal(cache.vouch(P, 3600, hashesOf([100])), -1);
  source.rows.delete(P);
  for (let attempt = 0; attempt < 3; attempt++) {
    const waiting = cache.prepare(P, 3600);
    await settle();
    assert.equal(source.asked.length, attempt + 1);
    source.asked[attempt]!.fail(new Error('away'));
    await waiting;
    assert.equal(cache.vouch(P, 3600, hashesOf([100])), -1);
    clock.advance(1_000);
  }
  source.rows.set(P, rowsOf(30));
  await cache.prepare(P, 3600);
  assert.equal(cache.vouch(P, 3600, hashesOf([100])), 29);
  assert.equal(cache.vouch(P, W, hashesOf([100])), -1);
});

test('a failed hydration leaves nothing behind, is logged once a minute and not repeated at once', async () => {
  const { cache, source, clock, warnings } = bench();
  for (let i = 0; i < 5; i++) {
    const waiting = cache.prepare(P, W);
    await settle();
    source.asked[i]?.fail(new Error('away'));
    await waiting;
    await cache.prepare(P, W);
    assert.equal(source.opened, i + 1);
    assert.equal(cache.vouch(P, W, hashesOf([1])), -1);
    clock.advance(1_000);
  }
  assert.equal(cache.stats().residentPartitions, 0);
  assert.equal(cache.stats().bytes, 0);
  assert.equal(cache.stats().hydrations.failed, 5);
  assert.equal(warnings.length, 1);
  assert.equal(clock.pending, 0);
  clock.advance(60_000);
  const waiting = cache.prepare(P, W);
  await settle();
  source.asked[5]!.fail(new Error('away'));
  await waiting;
  assert.equal(warnings.length, 2);
});

test('a window of which a later page fails, or a row is damaged, is not born', async () => {
  const { cache, source, clock } = bench();
  source.pageRows = 3;
  source.rows.set(P, rowsOf(100, 10));
  const next = source.next.bind(source);
  source.next = (...args) => (source.pages >= 2 ? Promise.reject(new Error('away')) : next(...args));
  await cache.prepare(P, W);
  assert.equal(cache.vouch(P, W, hashesOf([500])), -1);
  source.next = next;
  clock.advance(1_000);
  const damaged = rowsOf(100, 10);
  damaged[7]!.hashes = damaged[7]!.hashes.subarray(1);
  source.rows.set(P, damaged);
  await cache.prepare(P, W);
  assert.equal(cache.vouch(P, W, hashesOf([500])), -1);
  assert.equal(cache.stats().bytes, 0);
  clock.advance(1_000);
  source.rows.set(P, rowsOf(100, 10));
  await cache.prepare(P, W);
  assert.equal(cache.vouch(P, W, hashesOf([500])), 99);
  for (const id of range(0, 100)) assert.equal(cache.vouch(P, W, hashesOf([id])), -1);
});

test('a push waits a quarter of a second for a slow hydration, which goes on without it', async () => {
  const { cache, source, clock } = bench();
  let waited = false;
  const waiting = cache.prepare(P, W).then(() => {
    waited = true;
  });
  await settle();
  clock.advance(249);
  await settle();
  assert.equal(waited, false);
  clock.advance(1);
  await waiting;
  assert.equal(cache.vouch(P, W, hashesOf([1])), -1);
  await cache.prepare(P, W);
  assert.equal(source.opened, 1);
  source.asked[0]!.answer([source.start(rowsOf(10))]);
  await settle();
  assert.equal(cache.vouch(P, W, hashesOf([100])), 9);
});

test('commits that land during a hydration: contained, following, or with a gap', async () => {
  const cases: [string, [number, number[]][], number][] = [
    ['in the answer already', [[8, [8, 9]]], 9],
    [
      'following',
      [
        [10, [100]],
        [11, [101, 102]],
      ],
      12,
    ],
    [
      'one contained, one following',
      [
        [8, [8, 9]],
        [10, [100]],
      ],
      10,
    ],
    [
      'reported out of order',
      [
        [11, [101]],
        [10, [100]],
      ],
      11,
    ],
    ['behind a foreign commit', [[12, [100]]], -1],
    ['an offset given twice', [[9, [100, 101]]], -1],
  ];
  for (const [name, commits, expected] of cases) {
    const { cache, source } = bench();
    const waiting = cache.prepare(P, W);
    await settle();
    for (const [base, ids] of commits) cache.committed(P, base, hashesOf(ids), 0);
    source.asked[0]!.answer([source.start(rowsOf(10))]);
    await waiting;
    assert.equal(cache.vouch(P, W, hashesOf([500])), expected, name);
    if (expected >= 0)
      for (const [, ids] of commits) assert.equal(cache.vouch(P, W, hashesOf(ids)), -1, name);
  }
});

test('a commit in the answer, reported after the landing, is recognised', async () => {
  const { cache, source } = bench();
  source.rows.set(P, rowsOf(10));
  await cache.prepare(P, W);
  cache.committed(P, 8, hashesOf([8, 9]), 0);
  assert.equal(cache.vouch(P, W, hashesOf([500])), 9);
  cache.committed(P, 8, hashesOf([8, 99]), 0);
  assert.equal(cache.vouch(P, W, hashesOf([500])), -1);
});

test('a hydration that is forgotten between two pages does not land', async () => {
  const { cache, source } = bench();
  source.pageRows = 3;
  source.rows.set(P, rowsOf(100, 10));
  const next = source.next.bind(source);
  source.next = (...args) => {
    cache.forget(P);
    return next(...args);
  };
  await cache.prepare(P, W);
  await settle();
  assert.equal(cache.stats().residentPartitions, 0);
  assert.equal(cache.stats().bytes, 0);
});

test('more commits during a hydration than are noted cost a gap, not a wrong vouch', async () => {
  const { cache, source } = bench();
  const waiting = cache.prepare(P, W);
  await settle();
  for (let i = 0; i < 20; i++) cache.committed(P, 10 + i * 4096, hashesOf(range(1000 + i * 4096, 4096)), 0);
  source.asked[0]!.answer([source.start(rowsOf(10))]);
  await waiting;
  assert.ok(cache.vouch(P, W, hashesOf([1000 + 5])) < 10);
});

test('what is forgotten or wanted otherwise during a hydration does not land', async () => {
  const { cache, source, clock } = bench();
  const first = cache.prepare(P, W);
  await settle();
  cache.forget(P);
  await first;
  source.asked[0]!.answer([source.start(rowsOf(10))]);
  await settle();
  assert.equal(cache.vouch(P, W, hashesOf([100])), -1);

  const second = cache.prepare(P, W);
  await settle();
  const third = cache.prepare(P, 3600);
  await second;
  await settle();
  source.asked[1]!.answer([source.start(rowsOf(10))]);
  source.asked[2]!.answer([source.start(rowsOf(20))]);
  await third;
  await settle();
  assert.equal(cache.vouch(P, W, hashesOf([100])), -1);
  assert.equal(cache.vouch(P, 3600, hashesOf([100])), 19);
  cache.clear();
  assert.equal(cache.vouch(P, 3600, hashesOf([100])), -1);
  assert.equal(cache.stats().bytes, 0);
  assert.equal(cache.stats().hydrations.dropped, 2);
  assert.equal(clock.pending, 0);
});

test('expiry drops what is wholly before the window, judged by the newest created_at', async () => {
  const { cache, source, clock } = bench();
  await cache.prepare(P, W, -1);
  let base = 0;
  for (let second = 0; second < 300; second++) {
    cache.committed(P, base, hashesOf(range(base, 200)), second * SECOND);
    base += 200;
    // The oldest that is still inside, however the blocks happen to be cut.
    const oldest = Math.max(0, second - 60) * 200;
    assert.equal(cache.vouch(P, W, hashesOf([oldest])), -1, `second ${second}`);
  }
  const { hashes } = cache.stats();
  // 61 seconds at 200 a second, and at most a block more at each end.
  assert.ok(hashes >= 61 * 200 && hashes <= 61 * 200 + 2 * 4096, `${hashes} hashes`);
  for (const id of range((300 - 61) * 200, 61 * 200)) assert.equal(cache.vouch(P, W, hashesOf([id])), -1);
  assert.equal(cache.vouch(P, W, hashesOf([0])), base - 1);
  // The broker's own clock has no say.
  clock.advance(3_600_000);
  assert.equal(cache.vouch(P, W, hashesOf([base - 1])), -1);
  assert.equal(source.opened, 0);
});

test('every hash is known at once, at each fill of the buffer, the blocks and the filters', async () => {
  const { cache } = bench();
  await cache.prepare(P, W, -1);
  let base = 0;
  // Around the first filter, the first block, and the second generation of filters.
  for (const edge of [32, 4096, 8192, 4096 + 32_768]) {
    const bulk = range(base, edge - 5 - base);
    cache.committed(P, base, hashesOf(bulk), 0);
    base += bulk.length;
    for (let i = 0; i < 10; i++) {
      assert.equal(cache.vouch(P, W, hashesOf([base])), base - 1);
      cache.committed(P, base, hashesOf([base]), 0);
      assert.equal(cache.vouch(P, W, hashesOf([base])), -1, `hash ${base}`);
      base++;
    }
    for (let id = base - 40; id < base; id++) {
      if (id >= 0) assert.equal(cache.vouch(P, W, hashesOf([id])), -1, `hash ${id}`);
    }
  }
});

test('the gate: admitted below 90 % of the cap, suppressed above, asked again after 30 seconds', async () => {
  const size = 40_000;
  const each = windowBytes(size);
  const { cache, source, clock, warnings } = bench({ maxBytes: Math.ceil((each * 3) / 0.9) + 1 });
  for (const id of range(1, 5)) source.rows.set(id, rowsOf(size, 4000));
  for (const id of range(1, 5)) {
    await cache.prepare(id, W);
    cache.vouch(id, W, hashesOf([-1]));
  }
  let stats = cache.stats();
  assert.equal(stats.residentPartitions, 3);
  assert.equal(stats.suppressedPartitions, 2);
  assert.ok(stats.bytes <= stats.maxBytes * 0.9);
  assert.equal(cache.vouch(4, W, hashesOf([-1])), -1);
  assert.equal(warnings.length, 1);
  // While it cools down nothing is read for it.
  const { opened } = source;
  for (let i = 0; i < 29; i++) {
    clock.advance(1_000);
    await cache.prepare(4, W);
    for (const id of [1, 2, 3]) assert.equal(cache.vouch(id, W, hashesOf([-1])), size - 1);
  }
  assert.equal(source.opened, opened);
  // Then it is judged by the size it had: still no room, and still no statement.
  clock.advance(1_000);
  await cache.prepare(4, W);
  assert.equal(source.opened, opened);
  assert.equal(cache.stats().residentPartitions, 3);
  // Pressure eases: one goes.
  clock.advance(30_000);
  for (const id of [1, 2]) cache.vouch(id, W, hashesOf([-1]));
  cache.forget(3);
  await cache.prepare(4, W);
  assert.equal(cache.vouch(4, W, hashesOf([-1])), size - 1);
  stats = cache.stats();
  assert.equal(stats.residentPartitions, 3);
  assert.equal(stats.suppressedPartitions, 0);
});

test('a window that is halved is expected to be half as large', async () => {
  const size = 40_000;
  const { cache, source, clock } = bench({ maxBytes: windowBytes(size) });
  source.rows.set(1, rowsOf(size, 4000));
  source.rows.set(2, rowsOf(size / 4, 4000));
  await cache.prepare(1, W);
  assert.equal(cache.vouch(1, W, hashesOf([-1])), -1);
  clock.advance(30_000);
  source.rows.set(1, rowsOf(size / 4, 4000));
  await cache.prepare(1, W);
  assert.equal(cache.vouch(1, W, hashesOf([-1])), -1, 'judged by what it was');
  clock.advance(30_000);
  await cache.prepare(1, W / 4);
  assert.equal(cache.vouch(1, W / 4, hashesOf([-1])), size / 4 - 1);
});

test('an entry in use is not evicted for another, one unused for 5 seconds is for a partition never met', async () => {
  const size = 40_000;
  const { cache, source, clock } = bench({ maxBytes: Math.ceil(windowBytes(size) / 0.9) + ENTRY_BYTES });
  for (const id of range(1, 3)) source.rows.set(id, rowsOf(size, 4000));
  await cache.prepare(1, W);
  cache.vouch(1, W, hashesOf([-1]));
  clock.advance(4_999);
  await cache.prepare(2, W);
  assert.equal(cache.vouch(2, W, hashesOf([-1])), -1);
  assert.equal(cache.vouch(1, W, hashesOf([-1])), size - 1);
  clock.advance(5_000);
  await cache.prepare(3, W);
  assert.equal(cache.vouch(3, W, hashesOf([-1])), size - 1);
  assert.equal(cache.vouch(1, W, hashesOf([-1])), -1);
  assert.equal(cache.stats().evictionsTotal, 1);
  // The evicted one does not push its way back every five seconds, only into 30 unused ones.
  clock.advance(6_000);
  await cache.prepare(1, W);
  assert.equal(cache.vouch(1, W, hashesOf([-1])), -1);
  assert.equal(cache.vouch(3, W, hashesOf([-1])), size - 1);
  clock.advance(30_000);
  await cache.prepare(1, W);
  assert.equal(cache.vouch(1, W, hashesOf([-1])), size - 1);
});

test('two partitions that do not fit together do not thrash', async () => {
  const size = 40_000;
  const { cache, source, clock } = bench({ maxBytes: Math.ceil(windowBytes(size) * 1.5) });
  for (const id of [1, 2]) source.rows.set(id, rowsOf(size, 4000));
  let vouched = 0;
  for (let i = 0; i < 600; i++) {
    clock.advance(500);
    for (const id of [1, 2]) {
      await cache.prepare(id, W);
      if (cache.vouch(id, W, hashesOf([-1])) >= 0) vouched++;
    }
  }
  assert.equal(vouched, 600, 'one of them is always warm');
  assert.equal(source.opened, 2, 'and the other was read once in five minutes');
});

test('growth beyond the cap evicts the unused, else suppresses what grew; the cap holds throughout', async () => {
  const { cache, clock } = bench({ maxBytes: 2_000_000 });
  await cache.prepare(1, W, -1);
  await cache.prepare(2, W, -1);
  await cache.prepare(3, W, -1);
  cache.committed(1, 0, hashesOf(range(0, 20_000)), 0);
  const bases = new Map([
    [2, 0],
    [3, 0],
  ]);
  let evictedAt = -1;
  for (let i = 0; i < 400; i++) {
    clock.advance(100);
    for (const id of [2, 3]) {
      const base = bases.get(id)!;
      cache.committed(id, base, hashesOf(range(base, 200)), 0);
      bases.set(id, base + 200);
      const stats = cache.stats();
      assert.ok(stats.bytes <= stats.maxBytes, `${stats.bytes} bytes`);
      if (evictedAt < 0 && stats.evictionsTotal > 0) evictedAt = i;
    }
  }
  assert.ok(evictedAt > 50, `evicted at ${evictedAt}`);
  const stats = cache.stats();
  assert.equal(stats.evictionsTotal, 1);
  assert.equal(stats.suppressionsTotal, 1);
  assert.equal(stats.residentPartitions, 1);
});

test('a hydration that is under way has its room reserved', async () => {
  const size = 40_000;
  const { cache, source } = bench({ maxBytes: Math.ceil((windowBytes(size) * 1.5) / 0.9) });
  source.pageRows = 2;
  const rows = rowsOf(size, 4000);
  const waiting = [cache.prepare(1, W), cache.prepare(2, W)];
  await settle();
  const { promise, resolve } = Promise.withResolvers<void>();
  source.next = async (_, afterBase) => {
    await promise;
    return rows.filter((r) => r.baseOffset > afterBase).slice(0, 2);
  };
  source.asked[0]!.answer(
    [source.start(rows, size - 1), source.start(rows, size - 1)].map((s) => ({ ...s, hashes: size })),
  );
  await settle();
  assert.equal(cache.stats().suppressedPartitions, 1);
  resolve();
  await Promise.all(waiting);
  assert.equal(cache.vouch(1, W, hashesOf([-1])), size - 1);
  assert.equal(cache.vouch(2, W, hashesOf([-1])), -1);
  assert.ok(cache.stats().bytes <= cache.stats().maxBytes * 0.9);
});

test('one warning a minute however many are suppressed, and the helper maps are bounded', async () => {
  const { cache, source, clock, warnings } = bench({ maxBytes: 4 * ENTRY_BYTES });
  const many = HELPER_ENTRIES_MAX + 500;
  const rows = rowsOf(600);
  source.open = (requests) => Promise.resolve(requests.map(() => source.start(rows)));
  for (let id = 0; id < many; id += 64) {
    await Promise.all(range(id, Math.min(64, many - id)).map((partition) => cache.prepare(partition, W)));
  }
  assert.equal(cache.stats().suppressedPartitions, HELPER_ENTRIES_MAX);
  assert.equal(warnings.length, 1);
  clock.advance(60_000);
  await cache.prepare(many + 1, W);
  assert.equal(warnings.length, 2);
  assert.equal((warnings[1]!.facts as { suppressions: number }).suppressions, many);
  assert.equal(cache.stats().suppressedPartitions, 1);
});

test('a cache without any memory vouches for nothing and breaks nothing', async () => {
  const { cache, source } = bench({ maxBytes: 0 });
  source.rows.set(P, rowsOf(10));
  await cache.prepare(P, W);
  await cache.prepare(8, W, -1);
  cache.committed(P, 10, hashesOf([100]), 0);
  cache.committed(8, 0, hashesOf([100]), 0);
  assert.equal(cache.vouch(P, W, hashesOf([500])), -1);
  assert.equal(cache.vouch(8, W, hashesOf([500])), -1);
  assert.equal(cache.stats().bytes, 0);
});
