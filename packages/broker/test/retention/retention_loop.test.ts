import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { RetentionLoop, type RetentionSettings } from '../../src/engine/retention/retention_loop.ts';
import { WatermarkWalk } from '../../src/engine/retention/watermark_walk.ts';
import { type Queryable, statement } from '../../src/store/database.ts';
import { silentLog } from '../../src/store/log.ts';
import {
  correctDrift,
  DUE_START,
  duePartitions,
  maintenanceNow,
  readDrift,
} from '../../src/store/retention.ts';
import {
  admission,
  append,
  freshTxns,
  logState,
  partitionOf,
  queueWith,
  setCursor,
  setLease,
} from './log_fixture.ts';

const DAY = 86_400;

async function setup(t: { after(fn: () => Promise<void>): void }, settings: Partial<RetentionSettings> = {}) {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const removed: number[] = [];
  const loop = new RetentionLoop(
    {
      db,
      admission,
      clock: systemClock,
      log: silentLog,
      holder: 'test',
      partitionsRemoved: (ids) => void removed.push(...ids),
    },
    settings,
  );
  return { database, db, loop, removed };
}

const IDLE = statement(
  'test_dead_letter',
  `INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", transaction_id) VALUES ($1::bigint, 'g', 0, 't')`,
);
const HISTORY = statement(
  'test_pass_history',
  'SELECT partition_id, retention_type FROM queen.retention_history ORDER BY id',
);

test('one pass applies every rule to every queue that is due and touches no other', async (t) => {
  const { database, db, loop } = await setup(t, { batchRows: 2, parallelism: 3 });
  await queueWith(db, 'aged', { retentionEnabled: true, retentionSeconds: 30, dedupWindowSeconds: 0 });
  await queueWith(db, 'evicted', { maxWaitTimeSeconds: 30 });
  await queueWith(db, 'kept', {});
  const ids: Record<string, number> = {};
  for (const queue of ['aged', 'evicted', 'kept']) {
    for (const name of ['a', 'b']) {
      const id = await partitionOf(db, queue, name);
      ids[`${queue} ${name}`] = id;
      for (let i = 0; i < 5; i++) await append(db, id, freshTxns(2));
    }
  }
  const quiet = await loop.pass();
  assert.deepEqual(
    [quiet.segments.partitions, quiet.maxWait.partitions, quiet.sidecar.partitions],
    [0, 0, 0],
  );
  await database.advanceClock(31);
  const fresh = await append(db, ids['aged a']!, freshTxns(1));
  const report = await loop.pass();
  assert.equal(report.segments.rows, 10);
  assert.equal(report.segments.messages, 20);
  assert.equal(report.maxWait.rows, 10);
  assert.equal(report.sidecar.rows, 0);
  assert.deepEqual((await logState(db, ids['aged a']!))?.segments.length, 1);
  assert.ok(fresh.verdict === 'stored' && fresh.base === 10);
  assert.equal((await logState(db, ids['evicted b']!))?.segments.length, 0);
  assert.equal((await logState(db, ids['kept a']!))?.segments.length, 5);
  // Only the queue without a window is past the minimum age of its hashes.
  await database.advanceClock(900);
  const purge = await loop.pass();
  assert.equal(purge.sidecar.rows, 11);
  assert.equal((await logState(db, ids['aged a']!))?.sidecar.length, 0);
  assert.equal((await logState(db, ids['kept a']!))?.sidecar.length, 5);
});

test('a partition that gives nothing is left alone for 8 cycles, then 16, unless its rules change', async (t) => {
  const { database, db, loop } = await setup(t);
  const rules = { retentionEnabled: true, completedRetentionSeconds: 10 };
  await queueWith(db, 'q', rules);
  const id = await partitionOf(db, 'q', 'p');
  await append(db, id, freshTxns(1));
  await database.advanceClock(11);
  const stepped: number[] = [];
  for (let cycle = 1; cycle <= 30; cycle++) {
    const { segments } = await loop.pass();
    assert.equal(segments.partitions + segments.backedOff, 1);
    if (segments.partitions === 1) stepped.push(cycle);
  }
  assert.deepEqual(stepped, [1, 9, 25]);
  await queueWith(db, 'q', { ...rules, completedRetentionSeconds: 9 });
  await setCursor(db, id, 'g', 0);
  assert.equal((await loop.pass()).segments.rows, 1);
});

test('partitions that give nothing do not crowd out the others', async (t) => {
  const { database, db, loop } = await setup(t, { dueCap: 3 });
  await queueWith(db, 'blocked', { retentionEnabled: true, completedRetentionSeconds: 10 });
  await queueWith(db, 'free', { retentionEnabled: true, retentionSeconds: 10 });
  for (let i = 0; i < 7; i++) await append(db, await partitionOf(db, 'blocked', `p${i}`), freshTxns(1));
  const free = await partitionOf(db, 'free', 'p');
  await append(db, free, freshTxns(1));
  await database.advanceClock(11);
  const rows = [];
  for (let cycle = 0; cycle < 3; cycle++) rows.push((await loop.pass()).segments.rows);
  assert.deepEqual(rows, [0, 0, 1]);
  assert.equal((await logState(db, free))?.segments.length, 0);
});

test('the due list covers each due partition once, whatever its page', async (t) => {
  const { database, db } = await setup(t);
  const all: number[] = [];
  for (const queue of ['a', 'b', 'c']) {
    await queueWith(db, queue, { maxWaitTimeSeconds: 10 });
    for (let i = 0; i < 4; i++) {
      const id = await partitionOf(db, queue, `p${i}`);
      await append(db, id, freshTxns(1));
      all.push(id);
    }
  }
  // Equal ages inside one queue: the id decides.
  await db.query(
    statement('test_same_age', "UPDATE queen.log_partitions SET oldest_live_at = timestamptz '2001-01-01'"),
  );
  await database.advanceClock(11);
  const now = await maintenanceNow(db);
  for (const limit of [1, 2, 3, 5, 12, 100]) {
    const seen: number[] = [];
    let position: typeof DUE_START | null = DUE_START;
    while (position !== null) {
      const page: Awaited<ReturnType<typeof duePartitions>> = await duePartitions(
        db,
        'max_wait',
        now,
        position,
        limit,
      );
      assert.ok(page.due.length <= limit);
      seen.push(...page.due.map((due) => due.partitionId));
      position = page.next;
    }
    assert.deepEqual(seen, all, `pages of ${limit}`);
  }
});

test('cleanup removes what is empty, idle and unused, and nothing else', async (t) => {
  const { database, db, loop, removed } = await setup(t, { partitionCleanupDays: 1 });
  await queueWith(db, 'q', { maxWaitTimeSeconds: 1 });
  await queueWith(db, 'keeps', {});
  await queueWith(db, 'remembers', { maxWaitTimeSeconds: 1, dedupWindowSeconds: 3 * DAY });
  const ids: Record<string, number> = {};
  const make = async (queue: string, name: string, pushed = true) => {
    ids[name] = await partitionOf(db, queue, name);
    if (pushed) await append(db, ids[name]!, freshTxns(2));
  };
  for (const name of ['plain', 'dead', 'leased', 'met', 'consumed']) await make('q', name);
  await make('q', 'never', false);
  await make('keeps', 'holds data');
  await make('remembers', 'in window');
  await db.query(IDLE, [ids.dead!]);
  await setCursor(db, ids.consumed!, 'g', 1);
  await setCursor(db, ids.leased!, 'g', -1);
  await database.advanceClock(60);
  await loop.pass();
  await database.advanceClock(2 * DAY);
  await setLease(db, ids.leased!, 'g', 1, 60);
  await setCursor(db, ids.met!, 'g', -1);
  await make('q', 'young', false);
  const report = await loop.pass();
  assert.deepEqual(
    report.removedPartitions.sort((a, b) => a - b),
    [ids.plain, ids.consumed, ids.never].sort((a, b) => a! - b!),
  );
  assert.deepEqual(removed, report.removedPartitions);
  for (const id of removed) assert.equal(await logState(db, id), null);
  const types = await db.query<{ partition_id: number; retention_type: string }>(HISTORY);
  assert.equal(types.filter((row) => row.retention_type === '__partition_deleted__').length, 3);

  // A name that comes back is another partition, from offset 0 on.
  const again = await partitionOf(db, 'q', 'plain');
  assert.notEqual(again, ids.plain);
  const first = await append(db, again, freshTxns(1));
  assert.ok(first.verdict === 'stored' && first.base === 0);

  // Not before a minute has passed.
  await make('q', 'later', false);
  assert.deepEqual((await loop.pass()).removedPartitions, []);
  await database.advanceClock(2 * DAY);
  const later = (await loop.pass()).removedPartitions.sort((a, b) => a - b);
  const old = [ids.leased, ids.met, ids['in window'], ids.young, ids.later, again];
  assert.deepEqual(
    later,
    old.sort((a, b) => a! - b!),
  );
});

test('cleanup walks all pages and can be switched off', async (t) => {
  const { database, db, loop } = await setup(t, { partitionCleanupDays: 1 });
  const off = new RetentionLoop(
    { db, admission, clock: systemClock, log: silentLog, holder: 'off' },
    { partitionCleanup: false },
  );
  await db.query(
    statement(
      'test_many',
      `WITH q AS (INSERT INTO queen.queues (name) VALUES ('q') RETURNING id)
       INSERT INTO queen.log_partitions (queue_id, name) SELECT q.id, 'p' || i FROM q, generate_series(1, 350) i`,
    ),
  );
  await database.advanceClock(2 * DAY);
  assert.deepEqual((await off.pass()).removedPartitions, []);
  const { removedPartitions } = await loop.pass();
  assert.equal(new Set(removedPartitions).size, 350);
});

test('old history goes', async (t) => {
  const { database, db, loop } = await setup(t, { historyDays: 2 });
  await queueWith(db, 'q', { maxWaitTimeSeconds: 10 });
  await append(db, await partitionOf(db, 'q', 'p'), freshTxns(1));
  await database.advanceClock(61);
  assert.equal((await loop.pass()).maxWait.rows, 1);
  await database.advanceClock(DAY);
  assert.equal((await loop.pass()).historyPruned, 0);
  await database.advanceClock(DAY);
  assert.equal((await loop.pass()).historyPruned, 1);
  assert.deepEqual(await db.query(HISTORY), []);
});

const SPOIL = statement(
  'test_spoil_ages',
  `UPDATE queen.log_partitions SET oldest_live_at = $2::timestamptz, oldest_txn_at = $2::timestamptz WHERE id = $1::bigint`,
);
const ages = async (db: Queryable, id: number) => {
  const state = (await logState(db, id))!;
  return [state.oldestLiveAt, state.oldestTxnAt];
};

test('the walk corrects ages that are wrong, unless the partition moved meanwhile', async (t) => {
  const { db } = await setup(t);
  const lost = await partitionOf(db, 'q', 'lost');
  const wrong = await partitionOf(db, 'q', 'wrong');
  const empty = await partitionOf(db, 'q', 'empty');
  const right = await partitionOf(db, 'q', 'right');
  for (const id of [lost, wrong, right]) for (let i = 0; i < 2; i++) await append(db, id, freshTxns(1));
  await db.query(SPOIL, [lost, null]);
  await db.query(SPOIL, [wrong, '2001-01-01']);
  await db.query(SPOIL, [empty, '2001-01-01']);
  const { drifted, lastId } = await readDrift(db, 0, 5000);
  assert.deepEqual(
    drifted.map((row) => row.id),
    [lost, wrong, empty],
  );
  assert.equal(lastId, null);
  await append(db, wrong, freshTxns(1));
  assert.equal(await correctDrift(db, drifted[1]!), false);
  const walk = new WatermarkWalk({ db, admission, clock: systemClock, log: silentLog, holder: 'test' });
  assert.deepEqual(await walk.pass(), { drifted: 3, corrected: 3 });
  for (const id of [lost, wrong, right]) {
    const state = (await logState(db, id))!;
    assert.deepEqual(await ages(db, id), [state.segments[0]!.at, state.sidecar[0]!.at]);
  }
  assert.deepEqual(await ages(db, empty), [null, null]);
  assert.deepEqual(await walk.pass(), { drifted: 0, corrected: 0 });
  const pages: number[] = [];
  let after: number | null = 0;
  while (after !== null) {
    pages.push(after);
    after = (await readDrift(db, after, 2)).lastId;
  }
  assert.equal(pages.length, 3);
});

test('a pass gives way to its signal between two steps', async (t) => {
  const { database, db, loop } = await setup(t);
  await queueWith(db, 'q', { maxWaitTimeSeconds: 1 });
  await append(db, await partitionOf(db, 'q', 'p'), freshTxns(1));
  await database.advanceClock(2);
  const abort = new AbortController();
  abort.abort();
  const report = await loop.pass(abort.signal);
  assert.equal(report.maxWait.rows, 0);
  assert.equal((await loop.pass()).maxWait.rows, 1);
});
