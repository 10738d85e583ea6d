import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import type { Frame } from '../../src/log/frame.ts';
import { hashTransactionIds } from '../../src/log/hash.ts';
import { packSegment } from '../../src/log/segment.ts';
import { mintUuidV7 } from '../../src/log/uuid.ts';
import { byteaArray, int4Array, int8Array } from '../../src/store/arrays.ts';
import { type Append, type AppendVerdict, append, provision, VERDICT } from '../../src/store/push.ts';
import { cache, pushIds, QUEUE, Rig, sql } from './fixture.ts';

const T0 = 1_800_000_000_000_000;
const SECOND = 1_000_000;

async function segment(
  partitionId: number,
  ids: readonly string[],
  over: Partial<Append> = {},
): Promise<Append> {
  const frames = ids.map((transactionId): Frame => {
    const payload = Buffer.from(JSON.stringify(transactionId));
    return {
      messageId: mintUuidV7(Date.now()),
      traceId: null,
      transactionId,
      producerSub: null,
      encrypted: false,
      payload,
    };
  });
  return {
    partitionId,
    count: ids.length,
    verifiedUpto: -1,
    windowSeconds: 60,
    hashes: hashTransactionIds(ids),
    blob: await packSegment(frames, 1),
    sealed: false,
    ...over,
  };
}

async function lanes(rig: Rig, window: number, ...names: string[]): Promise<number[]> {
  await rig.window(window);
  const places = await provision(
    rig.db,
    DEFAULT_TENANT,
    names.map((partition) => ({ queue: QUEUE, partition })),
  );
  return places.map((place) => place.partitionId);
}

async function one(rig: Rig, part: Append): Promise<AppendVerdict> {
  return (await append(rig.db, [part]))[0]!;
}

test('a misaligned bundle is refused whole', async (t) => {
  const rig = await Rig.open(t);
  const [a, b] = (await lanes(rig, 60, 'a', 'b')) as [number, number];
  const good = await segment(a, ['x']);
  const bad: [string, Partial<Append>][] = [
    ['too few hashes', { count: 2 }],
    ['too many hashes', { hashes: Buffer.alloc(32) }],
    ['half a hash', { hashes: Buffer.alloc(24) }],
    ['no frames', { count: 0, hashes: Buffer.alloc(0) }],
    ['a negative count', { count: -1 }],
    ['no blob', { blob: Buffer.alloc(0) }],
    ['a watermark below -1', { verifiedUpto: -2 }],
  ];
  for (const [what, fault] of bad) {
    const damaged = await segment(b, ['y'], fault);
    await assert.rejects(append(rig.db, [good, damaged]), { kind: 'refused', sqlState: '22023' }, what);
  }
  await assert.rejects(append(rig.db, [good, await segment(a, ['y'])]), {
    kind: 'refused',
    sqlState: '23505',
  });
  // Arrays of different lengths, one parameter after the other.
  const params = () => [
    int8Array([a]),
    int4Array([1]),
    int8Array([-1]),
    int4Array([60]),
    byteaArray([good.hashes]),
    byteaArray([good.blob]),
  ];
  const longer = [
    int8Array([a, b]),
    int4Array([1, 1]),
    int8Array([-1, -1]),
    int4Array([60, 60]),
    byteaArray([good.hashes, good.hashes]),
    byteaArray([good.blob, good.blob]),
  ];
  const text =
    'SELECT verdicts FROM queen.log_push($1::bigint[], $2::int[], $3::bigint[], $4::int[], $5::bytea[], $6::bytea[])';
  for (let i = 0; i < 6; i++) {
    const mixed = params();
    mixed[i] = longer[i]!;
    await assert.rejects(sql(rig.db, text, mixed), { kind: 'refused', sqlState: '22023' }, `parameter ${i}`);
    await assert.rejects(sql(rig.db, text, [...params().slice(0, i), null, ...params().slice(i + 1)]), {
      kind: 'refused',
    });
  }
  assert.equal((await rig.partition('a')).last_offset, -1);
  assert.equal((await one(rig, good)).verdict, VERDICT.stored);
  assert.deepEqual(await append(rig.db, []), []);
  await assertLogInvariants(rig.db);
});

test('the window is exact at its edge', async (t) => {
  const rig = await Rig.open(t);
  const [a] = (await lanes(rig, 60, 'a')) as [number];
  await rig.stopClock(T0);
  assert.deepEqual(await one(rig, await segment(a, ['x'])), {
    verdict: VERDICT.stored,
    base: 0,
    createdAtMicros: T0,
    queue: { windowSeconds: 60, encrypts: false },
  });
  for (const [micros, verdict] of [
    [T0 + 59 * SECOND, VERDICT.duplicates],
    [T0 + 60 * SECOND - 1, VERDICT.duplicates],
    [T0 + 60 * SECOND, VERDICT.duplicates],
    [T0 + 60 * SECOND + 1, VERDICT.stored],
    [T0 + 120 * SECOND + 1, VERDICT.duplicates],
    [T0 + 120 * SECOND + 2, VERDICT.stored],
  ] as const) {
    await rig.stopClock(micros);
    assert.equal((await one(rig, await segment(a, ['x']))).verdict, verdict, `at ${micros - T0}`);
  }
  await assertLogInvariants(rig.db, { windowsNeverRaised: true });
});

test('each duplicate names its index and the smallest offset', async (t) => {
  const rig = await Rig.open(t);
  const [a, b, c] = (await lanes(rig, 0, 'a', 'b', 'c')) as [number, number, number];
  const open = { windowSeconds: 0 };
  await append(rig.db, [await segment(a, ['p', 'x'], open), await segment(b, ['q'], open)]);
  await append(rig.db, [await segment(a, ['x', 'y'], open)]);
  await rig.window(60);
  const verdicts = await append(rig.db, [
    await segment(a, ['n', 'y', 'm', 'x']),
    await segment(b, ['r']),
    await segment(c, ['x']),
    await segment(c + 1000, ['x']),
  ]);
  assert.deepEqual(
    verdicts.map((v) => v.verdict),
    [VERDICT.duplicates, VERDICT.stored, VERDICT.stored, VERDICT.missing],
  );
  assert.deepEqual((verdicts[0] as { duplicates: object[] }).duplicates, [
    { index: 1, offset: 3 },
    { index: 3, offset: 1 },
  ]);
  assert.equal((await rig.partition('a')).last_offset, 3);
  await assertLogInvariants(rig.db);
});

test('the probe looks exactly above what was vouched', async (t) => {
  const rig = await Rig.open(t);
  const [a] = (await lanes(rig, 60, 'a')) as [number];
  await one(rig, await segment(a, ['x', 'y']));
  await one(rig, await segment(a, ['z']));
  const hits = async (ids: string[], over: Partial<Append>) => {
    const verdict = await one(rig, await segment(a, ids, over));
    return verdict.verdict === VERDICT.duplicates ? verdict.duplicates.map((d) => d.offset) : verdict.verdict;
  };
  assert.deepEqual(await hits(['x', 'y', 'z'], { verifiedUpto: -1 }), [0, 1, 2]);
  // Inside a segment: what lies in a row that ends above the watermark is looked at.
  assert.deepEqual(await hits(['z', 'n1'], { verifiedUpto: 0 }), [2]);
  assert.deepEqual(await hits(['z', 'n1'], { verifiedUpto: 1 }), [2]);
  // A false vouch is believed: the broker answers for it.
  assert.equal(await hits(['z'], { verifiedUpto: 2 }), VERDICT.stored);
  // A vouch for a shorter window than the one in force is not.
  assert.deepEqual(await hits(['y'], { verifiedUpto: 3, windowSeconds: 30 }), [1]);
  assert.equal(await hits(['y'], { verifiedUpto: 3, windowSeconds: 90 }), VERDICT.stored);
  // Below the start of the sidecar there is nothing to look at.
  await sql(rig.db, 'UPDATE queen.log_partitions SET txns_start = 2 WHERE id = $1::bigint', [a]);
  assert.equal(await hits(['x'], { verifiedUpto: -1 }), VERDICT.stored);
});

test('few and many hashes against short and long rows; bytes that straddle two hashes are no match', async (t) => {
  const rig = await Rig.open(t);
  const [a] = (await lanes(rig, 60, 'a')) as [number];
  const many = Array.from({ length: 1_000 }, (_, i) => `m${i}`);
  const short = hashTransactionIds(['x', 'y']);
  await one(rig, await segment(a, ['x', 'y']));
  await one(rig, await segment(a, many));
  const offsets = async (hashes: Buffer) => {
    const count = hashes.length / 16;
    const verdict = await one(rig, await segment(a, Array(count).fill('-'), { hashes }));
    return verdict.verdict === VERDICT.duplicates ? verdict.duplicates.map((d) => d.offset) : verdict.verdict;
  };
  const straddling = short.subarray(8, 24);
  assert.deepEqual(await offsets(Buffer.concat([straddling, hashTransactionIds(['m7', 'y'])])), [9, 1]);
  assert.deepEqual(
    await offsets(hashTransactionIds(many.slice(100, 108))),
    many.slice(102, 110).map((_, i) => 102 + i),
  );
  assert.deepEqual(
    await offsets(hashTransactionIds(many)),
    many.map((_, i) => 2 + i),
  );
  assert.deepEqual(
    await offsets(hashTransactionIds([...many.slice(0, 9), 'n'])),
    many.slice(0, 9).map((_, i) => 2 + i),
  );
  assert.equal(await offsets(straddling), VERDICT.stored);
});

test('a segment that was built without a window is not stored under one', async (t) => {
  const rig = await Rig.open(t);
  const [a] = (await lanes(rig, 60, 'a')) as [number];
  const twice = await segment(a, ['x', 'x'], { windowSeconds: 0 });
  assert.deepEqual(await one(rig, twice), {
    verdict: VERDICT.windowChanged,
    queue: { windowSeconds: 60, encrypts: false },
  });
  assert.equal((await rig.partition('a')).last_offset, -1);
  await rig.window(0);
  assert.equal((await one(rig, twice)).verdict, VERDICT.stored);
  // NULL: whoever calls does not depend on the window (a timer's fire).
  await rig.window(60);
  const rows = await sql<{ verdict: number; base: number; dup: number[] | null }>(
    rig.db,
    `SELECT verdict, base_offset AS base, dup_indexes AS dup
       FROM queen.log_append($1::bigint, 1, $2::bigint, NULL, $3::bytea, $4::bytea)`,
    [a, 1, hashTransactionIds(['x']), twice.blob],
  );
  assert.deepEqual(rows, [{ verdict: VERDICT.stored, base: 2, dup: null }]);
});

test('a segment in the clear is not stored in a queue that encrypts', async (t) => {
  const rig = await Rig.open(t);
  const [a, b] = (await lanes(rig, 60, 'a', 'b')) as [number, number];
  const encrypt = (on: boolean) => sql(rig.db, `UPDATE queen.queues SET encryption_enabled = ${on}`);
  await encrypt(true);
  const queue = { windowSeconds: 60, encrypts: true };
  assert.deepEqual(await one(rig, await segment(a, ['x'])), { verdict: VERDICT.windowChanged, queue });
  assert.equal((await rig.partition('a')).last_offset, -1);
  // Its neighbour in the bundle is not concerned.
  const bundle = [await segment(a, ['x']), await segment(b, ['y'], { sealed: true })];
  assert.deepEqual(
    (await append(rig.db, bundle)).map((each) => each.verdict),
    [VERDICT.windowChanged, VERDICT.stored],
  );
  assert.equal((await rig.partition('a')).last_offset, -1);
  assert.equal((await one(rig, await segment(a, ['x'], { sealed: true }))).verdict, VERDICT.stored);
  // What is sealed already may be stored anywhere: its frames say so themselves.
  await encrypt(false);
  assert.equal((await one(rig, await segment(a, ['z'], { sealed: true }))).verdict, VERDICT.stored);
  assert.equal((await one(rig, await segment(a, ['w']))).verdict, VERDICT.stored);
  await assertLogInvariants(rig.db);
});

test('created_at never goes back when the clock does', async (t) => {
  const rig = await Rig.open(t);
  const [a] = (await lanes(rig, 60, 'a')) as [number];
  const times: number[] = [];
  for (const [i, micros] of [T0, T0 - 3600 * SECOND, T0 + SECOND, T0 - SECOND].entries()) {
    await rig.stopClock(micros);
    const verdict = await one(rig, await segment(a, [`m${i}`]));
    assert.equal(verdict.verdict, VERDICT.stored);
    times.push((verdict as { createdAtMicros: number }).createdAtMicros - T0);
  }
  assert.deepEqual(times, [0, 0, SECOND, SECOND]);
  // The window is measured from the same time: it does not move back either.
  await rig.stopClock(T0 + 62 * SECOND);
  await one(rig, await segment(a, ['new']));
  await rig.stopClock(T0);
  assert.equal((await one(rig, await segment(a, ['m3']))).verdict, VERDICT.stored);
  assert.equal((await one(rig, await segment(a, ['new']))).verdict, VERDICT.duplicates);
  await assertLogInvariants(rig.db);
});

test('new lanes cost the same beside many, also when the plans were made for a few', async (t) => {
  const rig = await Rig.open(t);
  await lanes(rig, 60, ...Array.from({ length: 10 }, (_, i) => `first${i}`));
  await sql(rig.db, 'ANALYZE queen.log_partitions');
  const read = await rig.db.transaction(async (tx) => {
    for (let round = 0; round < 10; round++) {
      const names = Array.from({ length: 100 }, (_, i) => ({ queue: QUEUE, partition: `p${round}.${i}` }));
      await provision(tx, DEFAULT_TENANT, names);
    }
    const [row] = await sql<{ entries: number }>(
      tx,
      `SELECT sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::bigint AS entries
         FROM pg_index i WHERE i.indrelid = 'queen.log_partitions'::regclass`,
    );
    return row!.entries;
  });
  // Looked for twice, and once more by the insert.
  assert.ok(read <= 4 * 1_000, `${read} entries of indexes were read for 1,000 lanes`);
});

test('a push is a HOT update, and changes the indexed columns at most once a second', async (t) => {
  const rig = await Rig.open(t, { poolSize: 1 });
  const [a] = (await lanes(rig, 60, 'a')) as [number];
  const updates = async () => {
    await sql(rig.db, 'SELECT pg_stat_force_next_flush()');
    const rows = await sql<{ all: number; hot: number }>(
      rig.db,
      `SELECT n_tup_upd AS all, n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE relname = 'log_partitions'`,
    );
    return rows[0]!;
  };
  let micros = T0;
  const run = async (count: number, stepMicros: number) => {
    for (let i = 0; i < count; i++) {
      micros += stepMicros;
      await rig.stopClock(micros);
      await one(rig, await segment(a, [`m${micros}.${i}`]));
    }
  };
  const start = await updates();
  await run(1, 0);
  await run(40, 10_000);
  const first = await updates();
  // The first push fills the oldest_* columns and sets last_write_at.
  assert.deepEqual({ all: first.all - start.all, hot: first.hot - start.hot }, { all: 41, hot: 40 });
  await run(10, 2 * SECOND);
  const second = await updates();
  assert.deepEqual({ all: second.all - first.all, hot: second.hot - first.hot }, { all: 10, hot: 0 });
  const [row] = await sql<{ written: number; oldest: number; oldest_txn: number }>(
    rig.db,
    `SELECT queen.micros(last_write_at) AS written, queen.micros(oldest_live_at) AS oldest,
            queen.micros(oldest_txn_at) AS oldest_txn FROM queen.log_partitions WHERE id = $1::bigint`,
    [a],
  );
  assert.deepEqual(row, { written: micros, oldest: T0, oldest_txn: T0 });
});

test('a warm push is one statement, and does not look at the sidecar', async (t) => {
  const rig = await Rig.open(t, { poolSize: 1 });
  const path = rig.path({ dedup: cache(rig.db) });
  for (let i = 0; i < 3; i++) await pushIds(path, [`warm${i}`]);
  const scans = async () => {
    await sql(rig.db, 'SELECT pg_stat_force_next_flush()');
    const rows = await sql<{ scans: number }>(
      rig.db,
      `SELECT idx_scan + seq_scan AS scans FROM pg_stat_user_tables WHERE relname = 'log_txns'`,
    );
    return rows[0]!.scans;
  };
  const scansBefore = await scans();
  const before = rig.db.statementsTotal;
  for (let i = 0; i < 10; i++) await pushIds(path, [`a${i}`, `b${i}`]);
  assert.equal(rig.db.statementsTotal - before, 10);
  assert.equal(await scans(), scansBefore);
});

test('provisioning creates what is missing, once, however many do it', async (t) => {
  const rig = await Rig.open(t);
  const wanted = (from: number) =>
    Array.from({ length: 40 }, (_, i) => ({
      queue: `q${(from + i) % 7}`,
      partition: `p${(from * 3 + i * 7) % 20}`,
    }));
  const found = await Promise.all(
    Array.from({ length: 8 }, (_, i) => provision(rig.db, DEFAULT_TENANT, wanted(i))),
  );
  const ids = new Map<string, number>();
  let created = 0;
  found.forEach((places, i) => {
    wanted(i).forEach((lane, j) => {
      const key = `${lane.queue}/${lane.partition}`;
      const id = ids.get(key) ?? places[j]!.partitionId;
      ids.set(key, id);
      assert.equal(places[j]!.partitionId, id, key);
      const { created: made, ...place } = places[j]!;
      assert.deepEqual(place, { partitionId: id, lastOffset: -1, windowSeconds: 3600, encrypts: false });
      if (made) created++;
    });
  });
  assert.equal(new Set(ids.values()).size, ids.size);
  const rows = await sql<{ n: number }>(rig.db, 'SELECT count(*) AS n FROM queen.log_partitions');
  assert.equal(rows[0]!.n, ids.size);
  assert.equal(created, ids.size, 'each was made by one of them');
  // Tenants do not share names.
  const other = await provision(rig.db, '00000000-0000-0000-0000-000000000002', [
    { queue: 'q0', partition: 'p0' },
  ]);
  assert.ok(![...ids.values()].includes(other[0]!.partitionId));
});
