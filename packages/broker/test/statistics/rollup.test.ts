/** The rollup against the live counters, which are counted another way, over random logs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { StatsRefresh } from '../../src/engine/statistics/refresh.ts';
import { type Database, type Queryable, statement } from '../../src/store/database.ts';
import { listGroups } from '../../src/store/groups.ts';
import { silentLog } from '../../src/store/log.ts';
import { listQueues } from '../../src/store/queues.ts';
import { refreshAge, standingQueues, standingTotals } from '../../src/store/rollup.ts';
import {
  admission,
  append,
  freshTxns,
  partitionOf,
  setCursor,
  setLease,
  TENANT,
} from '../retention/log_fixture.ts';

const EVERYTHING = { queue: null, namespace: null, task: null };
const ALL = { search: null, sort: 'name', descending: false, limit: 1_000, skip: 0 } as const;

function open(db: Database): StatsRefresh {
  const deps = { db, admission, clock: systemClock, log: silentLog, holder: 'test' };
  return new StatsRefresh(deps, { intervalMs: 10_000 });
}

const REGISTER = statement(
  'rollup_register',
  `INSERT INTO queen.consumer_groups_metadata (tenant_id, consumer_group, queue_id, subscription_mode, subscription_timestamp)
   SELECT q.tenant_id, $2::text, q.id, $3::text, queen.clock() FROM queen.queues q WHERE q.name = $1::text
   ON CONFLICT DO NOTHING`,
);
/** Whole segments from the front, as retention does it. */
const TRIM = statement(
  'rollup_trim',
  `WITH gone AS (
     DELETE FROM queen.log_segments s WHERE s.partition_id = $1::bigint AND s.end_offset < $2::bigint RETURNING s.end_offset
   ), start AS (SELECT max(g.end_offset) + 1 AS at FROM gone g)
   UPDATE queen.log_partitions p
      SET log_start = t.at, oldest_live_at = (SELECT min(s.created_at) FROM queen.log_segments s
                                               WHERE s.partition_id = p.id AND s.base_offset >= t.at)
     FROM start t WHERE p.id = $1::bigint AND t.at IS NOT NULL`,
);
const DEAD = statement(
  'rollup_dead',
  `INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", transaction_id) VALUES ($1::bigint, 'g', 0, 't')`,
);
const GROUPS = statement(
  'rollup_groups',
  `SELECT q.name::text AS queue, g.consumer_group AS "group", g.cursors, g.behind, g.lag, queen.micros(g.since) AS since
     FROM queen.stats_groups g JOIN queen.queues q ON q.id = g.queue_id ORDER BY 2, 1`,
);
const EMPTY = statement(
  'rollup_empty',
  `WITH a AS (DELETE FROM queen.log_dlq), b AS (DELETE FROM queen.log_segments), c AS (DELETE FROM queen.log_txns)
   DELETE FROM queen.queues`,
);

type Step =
  | { kind: 'append'; lane: number; count: number }
  | { kind: 'cursor'; lane: number; group: string; at: number }
  | { kind: 'lease'; lane: number; group: string; length: number }
  | { kind: 'register'; lane: number; group: string; mode: string }
  | { kind: 'trim'; lane: number; at: number }
  | { kind: 'dead'; lane: number };

const LANES = [
  ['q1', 'a'],
  ['q1', 'b'],
  ['q1', 'c'],
  ['q2', 'a'],
  ['q3', 'a'],
  ['q3', 'b'],
] as const;
const lane = fc.nat({ max: LANES.length - 1 });
const group = fc.constantFrom('g', 'h', '__QUEUE_MODE__');
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('append' as const), lane, count: fc.integer({ min: 1, max: 6 }) }),
  fc.record({ kind: fc.constant('cursor' as const), lane, group, at: fc.integer({ min: -1, max: 20 }) }),
  fc.record({ kind: fc.constant('lease' as const), lane, group, length: fc.integer({ min: 1, max: 5 }) }),
  fc.record({
    kind: fc.constant('register' as const),
    lane,
    group: fc.constantFrom('g', 'h', 'late'),
    mode: fc.constantFrom('all', 'new'),
  }),
  fc.record({ kind: fc.constant('trim' as const), lane, at: fc.integer({ min: 1, max: 12 }) }),
  fc.record({ kind: fc.constant('dead' as const), lane }),
);

async function take(db: Queryable, ids: readonly number[], ends: number[], wish: Step): Promise<void> {
  const id = ids[wish.lane]!;
  const end = ends[wish.lane]!;
  const held = (at: number) => Math.min(at, end);
  switch (wish.kind) {
    case 'append':
      await append(db, id, freshTxns(wish.count));
      ends[wish.lane] = end + wish.count;
      return;
    case 'cursor':
      return setCursor(db, id, wish.group, held(wish.at));
    case 'lease':
      await setCursor(db, id, wish.group, held(0));
      return setLease(db, id, wish.group, held(wish.length), 3_600);
    case 'register':
      await db.query(REGISTER, [LANES[wish.lane]![0], wish.group, wish.mode]);
      return;
    case 'trim':
      await db.query(TRIM, [id, Math.min(wish.at, end + 1)]);
      return;
    case 'dead':
      await db.query(DEAD, [id]);
  }
}

test('whatever happened, the rollup says what the live counters say', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const refresh = open(db);
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
      await db.query(EMPTY);
      const ids: number[] = [];
      for (const [queue, partition] of LANES) ids.push(await partitionOf(db, queue, partition));
      const ends = LANES.map(() => -1);
      for (const wish of steps) await take(db, ids, ends, wish);
      await refresh.refresh();

      const { queues } = await standingQueues(db, TENANT, EVERYTHING, ALL);
      const live = await listQueues(db, TENANT);
      const counts = ({ name, partitions, total, pending, processing }: (typeof live)[number]) => ({
        name,
        partitions,
        total,
        pending,
        processing,
      });
      assert.deepEqual(
        queues.map((queue) => counts({ ...queue, segments: 0 })),
        live.map(counts),
      );

      const groups = await db.query<{
        queue: string;
        group: string;
        cursors: number;
        behind: number;
        lag: number;
        since: number | null;
      }>(GROUPS);
      const now = Date.now() * 1000;
      const standing = await listGroups(db, TENANT);
      const lags = (
        rows: readonly { queue: string; group: string; cursors: number; behind: number; lag: number }[],
      ) =>
        rows.map(({ queue, group: name, cursors, behind, lag }) => ({ queue, name, cursors, behind, lag }));
      assert.deepEqual(lags(groups), lags(standing));
      for (const [i, { since }] of groups.entries()) {
        const { lagMicros, lag } = standing[i]!;
        assert.equal(since === null, lagMicros === 0 && lag === 0, JSON.stringify([groups[i], standing[i]]));
        if (since !== null) assert.ok(Math.abs(now - since - lagMicros) < 5_000_000);
      }

      const totals = await standingTotals(db, TENANT, EVERYTHING);
      const sum = (key: 'partitions' | 'total' | 'pending' | 'processing') =>
        live.reduce((all, queue) => all + queue[key], 0);
      assert.deepEqual(
        [totals.queues, totals.partitions, totals.total, totals.pending, totals.processing],
        [live.length, sum('partitions'), sum('total'), sum('pending'), sum('processing')],
      );
      assert.equal(totals.deadLetter, steps.filter(({ kind }) => kind === 'dead').length);
    }),
    { numRuns: 15 },
  );
});

test('queues that are gone leave nothing, and a refresh of nothing is one too', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const refresh = open(db);
  assert.equal(await refreshAge(db), null);
  assert.deepEqual({ ...(await refresh.refresh()), tookMs: 0 }, { queues: 0, partitions: 0, tookMs: 0 });
  assert.ok((await refreshAge(db)) !== null);
  await append(db, await partitionOf(db, 'q', 'p'), freshTxns(3));
  await setCursor(db, await partitionOf(db, 'q', 'p'), 'g', 1);
  await refresh.refresh();
  assert.equal((await db.query(GROUPS)).length, 1);
  await db.query(EMPTY);
  assert.equal((await standingTotals(db, TENANT, EVERYTHING)).total, 0, 'before the next refresh, too');
  await refresh.refresh();
  const left = statement(
    'rollup_left',
    'SELECT (SELECT count(*) FROM queen.stats) + (SELECT count(*) FROM queen.stats_groups) AS n',
  );
  assert.equal((await db.query<{ n: number }>(left))[0]!.n, 0);
});

test('a refresh that took long is followed by a rest, unless somebody asks', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const refresh = open(db);
  await partitionOf(db, 'q', 'p');
  await refresh.refresh();
  const slow = statement('rollup_slow', 'UPDATE queen.stats_refresh SET took_ms = 60000');
  await db.query(slow);
  const age = async () => (await refreshAge(db))!.tookMs;
  await refresh.pass();
  assert.equal(await age(), 60_000, 'not yet');
  await database.advanceClock(239);
  await refresh.pass();
  assert.equal(await age(), 60_000);
  await database.advanceClock(3);
  await refresh.pass();
  assert.ok((await age()) < 60_000);
  await db.query(slow);
  await refresh.refresh();
  assert.ok((await age()) < 60_000);
});

test('a refresh of what has not changed writes no row of a queue', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const refresh = open(db);
  const p = await partitionOf(db, 'q', 'p');
  await append(db, p, freshTxns(3));
  await setCursor(db, p, 'g', 1);
  await refresh.refresh();
  const versions = statement(
    'rollup_versions',
    `SELECT array_agg(x.v)::text[] AS v FROM (SELECT xmin::text AS v FROM queen.stats
       UNION ALL SELECT xmin::text FROM queen.stats_groups) AS x`,
  );
  const [before] = await db.query<{ v: string[] }>(versions);
  await refresh.refresh();
  assert.deepEqual((await db.query<{ v: string[] }>(versions))[0], before);
});
