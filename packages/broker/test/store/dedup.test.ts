import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { DedupCache } from '../../src/engine/dedup/cache.ts';
import { databaseWindows } from '../../src/engine/dedup/hydration.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { hashTransactionIds } from '../../src/log/hash.ts';
import { type Database, statement } from '../../src/store/database.ts';
import { nextWindowRows, openWindows, type WindowRow } from '../../src/store/dedup.ts';
import { append, provision, VERDICT } from '../../src/store/push.ts';

const W = 60;
const BLOB = Buffer.from('x');
const LAST_OFFSET = statement(
  'test_last_offset',
  'SELECT last_offset FROM queen.log_partitions WHERE id = $1',
);

interface Rig {
  test: TestDatabase;
  db: Database;
  partitionIds: number[];
}

async function setup(t: TestContext, partitions: number): Promise<Rig> {
  const fresh = await freshDatabase(t);
  const db = await fresh.open();
  t.after(() => db.close());
  const lanes = Array.from({ length: partitions }, (_, i) => ({ queue: 'q', partition: `p${i}` }));
  const places = await provision(db, DEFAULT_TENANT, lanes);
  return { test: fresh, db, partitionIds: places.map((place) => place.partitionId) };
}

/** Stores the transactionIds as one segment, probed in full unless vouched for. */
async function store(
  db: Database,
  partitionId: number,
  txns: string[],
  verifiedUpto = -1,
  windowSeconds = 3600,
) {
  const hashes = hashTransactionIds(txns);
  const segment = {
    partitionId,
    count: txns.length,
    verifiedUpto,
    windowSeconds,
    hashes,
    blob: BLOB,
    sealed: false,
  };
  const [verdict] = await append(db, [segment]);
  assert.ok(verdict !== undefined && verdict.verdict !== VERDICT.missing);
  return verdict;
}

async function stored(db: Database, partitionId: number, txns: string[], verifiedUpto = -1) {
  const verdict = await store(db, partitionId, txns, verifiedUpto);
  assert.ok(verdict.verdict === VERDICT.stored, 'stored');
  return verdict;
}

function names(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${prefix}${i}`);
}

/** The rows must be those of `segments`, in order, with consecutive offsets from `base`. */
function assertRows(rows: WindowRow[], segments: string[][], base: number): void {
  assert.equal(rows.length, segments.length);
  let next = base;
  for (const [i, { baseOffset, endOffset, hashes }] of rows.entries()) {
    assert.equal(baseOffset, next);
    assert.equal(endOffset, next + segments[i]!.length - 1);
    assert.deepEqual(hashes, hashTransactionIds(segments[i]!));
    next = endOffset + 1;
  }
}

test('the beginnings of several windows, in the order of the requests', async (t) => {
  const { db, partitionIds } = await setup(t, 4);
  const [a, b, c, d] = partitionIds as [number, number, number, number];
  const first = await stored(db, a, ['1', '2', '3']);
  await stored(db, a, ['4']);
  await stored(db, c, ['1']);
  const starts = await openWindows(db, [
    { partitionId: c, windowSeconds: W },
    { partitionId: a, windowSeconds: W },
    { partitionId: d + 1000, windowSeconds: W },
    { partitionId: b, windowSeconds: W },
    { partitionId: d, windowSeconds: W },
  ]);
  assert.equal(starts[2], null);
  assert.deepEqual(starts[3], { lastOffset: -1, hashes: 0, rows: [] });
  assert.deepEqual(starts[4], { lastOffset: -1, hashes: 0, rows: [] });
  assert.equal(starts[1]!.lastOffset, 3);
  assert.equal(starts[1]!.hashes, 4);
  assert.equal(starts[1]!.rows[0]!.createdAtMicros, first.createdAtMicros);
  assertRows(starts[1]!.rows, [['1', '2', '3'], ['4']], 0);
  assertRows(starts[0]!.rows, [['1']], 0);
  assert.deepEqual(await openWindows(db, []), []);
});

test('the window ends before the newest segment, whatever the clock says now', async (t) => {
  const { test: database, db, partitionIds } = await setup(t, 1);
  const [p] = partitionIds as [number];
  const open = async () => (await openWindows(db, [{ partitionId: p, windowSeconds: W }]))[0]!;
  await stored(db, p, ['old']);
  await database.advanceClock(W + 10);
  await stored(db, p, ['a', 'b']);
  await database.advanceClock(W - 20);
  await stored(db, p, ['c']);
  assertRows((await open()).rows, [['a', 'b'], ['c']], 1);
  assert.equal((await open()).hashes, 3);
  // Long after, or with the clock set back by an hour, nothing that a probe could look at is missing.
  await database.advanceClock(1000);
  assertRows((await open()).rows, [['a', 'b'], ['c']], 1);
  await database.advanceClock(-5000);
  assertRows((await open()).rows, [['a', 'b'], ['c']], 1);
  assert.deepEqual(await store(db, p, ['a']), {
    verdict: VERDICT.duplicates,
    queue: { windowSeconds: 3600, encrypts: false },
    duplicates: [{ index: 0, offset: 1 }],
  });
});

test('a large window comes in pages that leave nothing out and stop at the first snapshot', async (t) => {
  const { db, partitionIds } = await setup(t, 1);
  const [p] = partitionIds as [number];
  const segments = Array.from({ length: 24 }, (_, i) => names(`${i}-`, i % 2 === 0 ? 3000 : 7));
  let total = 0;
  for (const segment of segments) {
    await stored(db, p, segment, total - 1);
    total += segment.length;
  }
  const [start] = await openWindows(db, [{ partitionId: p, windowSeconds: W }]);
  assert.equal(start!.hashes, total);
  assert.equal(start!.lastOffset, total - 1);
  assert.ok(start!.rows.length < segments.length);
  await stored(db, p, ['later'], total - 1);
  const rows = [...start!.rows];
  for (let pages = 0; ; pages++) {
    const page = await nextWindowRows(db, p, rows.at(-1)!.baseOffset, start!.lastOffset);
    if (page.length === 0) break;
    assert.ok(pages < 10);
    rows.push(...page);
  }
  assertRows(rows, segments, 0);
  // One segment alone may exceed a page.
  await stored(db, p, names('big-', 20_000), total);
  const big = await nextWindowRows(db, p, total, total + 20_000);
  assertRows(big, [names('big-', 20_000)], total + 1);
});

test('the offset and the rows are of one snapshot, while others commit', async (t) => {
  const { db, partitionIds } = await setup(t, 1);
  const [p] = partitionIds as [number];
  let done = false;
  const writing = (async () => {
    for (let i = 0; i < 150; i++) await stored(db, p, [`t${i}`, `u${i}`]);
    done = true;
  })();
  let last = -1;
  let moved = 0;
  while (!done) {
    const [start] = await openWindows(db, [{ partitionId: p, windowSeconds: W }]);
    const end = start!.rows.at(-1)?.endOffset ?? -1;
    assert.equal(end, start!.lastOffset);
    assert.equal(start!.hashes, start!.lastOffset + 1);
    if (end > last) moved++;
    last = end;
  }
  await writing;
  assert.ok(moved > 5, `only ${moved} different snapshots were seen`);
});

test('the warm path: the vouched watermark is the last offset, and the database probes nothing', async (t) => {
  const { db, partitionIds } = await setup(t, 1);
  const [p] = partitionIds as [number];
  await stored(db, p, names('before-', 50));
  const hydrate = databaseWindows(db);
  const cache = new DedupCache({ enabled: true, maxBytes: 1e8, hydrate, clock: systemClock, log: console });
  await cache.prepare(p, 3600, 49);
  for (let i = 0; i < 5; i++) {
    const txns = names(`${i}-`, 20);
    const hashes = hashTransactionIds(txns);
    const vouched = cache.vouch(p, 3600, hashes);
    const [row] = await db.query<{ last_offset: number }>(LAST_OFFSET, [p]);
    assert.equal(vouched, row!.last_offset);
    const verdict = await store(db, p, txns, vouched);
    assert.ok(verdict.verdict === VERDICT.stored);
    cache.committed(p, verdict.base, hashes, verdict.createdAtMicros);
  }
  assert.equal(cache.vouch(p, 3600, hashTransactionIds(['before-7'])), -1);
  assert.equal(cache.vouch(p, 3600, hashTransactionIds(['3-19'])), -1);
  assert.equal(cache.stats().hydrations.loaded, 1);
});

test('a database that is away costs the vouch and nothing else', async (t) => {
  const { db, partitionIds } = await setup(t, 1);
  const [p] = partitionIds as [number];
  await db.close();
  const warnings: string[] = [];
  const cache = new DedupCache({
    enabled: true,
    maxBytes: 1e8,
    hydrate: databaseWindows(db),
    clock: systemClock,
    log: { warn: (_, message) => warnings.push(message) },
  });
  await cache.prepare(p, 3600, 10);
  assert.equal(cache.vouch(p, 3600, hashTransactionIds(['a'])), -1);
  assert.equal(warnings.length, 1);
});
