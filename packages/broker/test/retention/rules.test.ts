import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { statement } from '../../src/store/database.ts';
import { maintenanceNow, retentionStep } from '../../src/store/retention.ts';
import {
  append,
  freshTxns,
  logState,
  partitionOf,
  queueWith,
  setCursor,
  setLease,
  TENANT,
} from './log_fixture.ts';

async function setup(t: { after(fn: () => Promise<void>): void }, options: Record<string, unknown>) {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  await queueWith(db, 'q', options);
  const id = await partitionOf(db, 'q', 'p');
  /** One segment every ten seconds, `sizes[i]` messages each; the clock stands ten seconds after the last. */
  const fill = async (sizes: number[]) => {
    for (const size of sizes) {
      await append(db, id, freshTxns(size));
      await database.advanceClock(10);
    }
  };
  const step = async (phase: 'segments' | 'max_wait' | 'sidecar', rows = 100) =>
    retentionStep(db, phase, id, await maintenanceNow(db), rows);
  const bases = async () => (await logState(db, id))!.segments.map((segment) => segment.base);
  const history = async () =>
    db.query<{ messages: number; type: string }>(
      statement(
        'test_history',
        'SELECT messages_deleted AS messages, retention_type AS type FROM queen.retention_history ORDER BY id',
      ),
    );
  return { database, db, id, fill, step, bases, history };
}

test('rule 1: whole segments older than retentionSeconds go, consumed or not', async (t) => {
  const { db, id, fill, step, bases, history } = await setup(t, {
    retentionEnabled: true,
    retentionSeconds: 25,
  });
  await fill([3, 1, 2, 4]); // ages 40, 30, 20, 10
  await setCursor(db, id, 'g', -1);
  assert.deepEqual(await step('segments'), { rows: 2, messages: 4, more: false, rule: 'retention' });
  assert.deepEqual(await bases(), [4, 6]);
  const state = (await logState(db, id))!;
  assert.equal(state.logStart, 4);
  assert.equal(state.oldestLiveAt, state.segments[0]!.at);
  assert.equal(state.txnsStart, 0);
  assert.equal(state.sidecar.length, 4);
  assert.deepEqual(await history(), [{ messages: 4, type: 'retention' }]);
  assert.deepEqual(await step('segments'), { rows: 0, messages: 0, more: false, rule: null });
  assert.equal((await history()).length, 1);
});

test('rules 1 and 2 are off while retention is not enabled, and a rule of 0 seconds is off', async (t) => {
  const { db, id, fill, step } = await setup(t, { retentionSeconds: 1, completedRetentionSeconds: 1 });
  await fill([1, 1]);
  await setCursor(db, id, 'g', 1);
  assert.equal((await step('segments'))?.rows, 0);
  await queueWith(db, 'q', { retentionEnabled: true });
  assert.equal((await step('segments'))?.rows, 0);
  assert.equal((await step('max_wait'))?.rows, 0);
  await queueWith(db, 'q', { retentionEnabled: true, retentionSeconds: -5, maxWaitTimeSeconds: -5 });
  assert.equal((await step('segments'))?.rows, 0);
  assert.equal((await step('max_wait'))?.rows, 0);
});

test('rule 2: only what every group has passed as a whole segment, and nothing without a group', async (t) => {
  const { db, id, fill, step, bases, history } = await setup(t, {
    retentionEnabled: true,
    completedRetentionSeconds: 15,
  });
  await fill([3, 3, 3, 3]); // ages 40, 30, 20, 10
  assert.equal((await step('segments'))?.rows, 0);
  await setCursor(db, id, 'g', 11);
  await setCursor(db, id, 'h', 4);
  assert.deepEqual(await step('segments'), {
    rows: 1,
    messages: 3,
    more: false,
    rule: 'completed_retention',
  });
  assert.deepEqual(await bases(), [3, 6, 9]);
  await setCursor(db, id, 'h', 5);
  assert.equal((await step('segments'))?.rows, 1);
  await setCursor(db, id, 'h', 11);
  // The last one is passed by all and too young.
  assert.equal((await step('segments'))?.rows, 1);
  assert.deepEqual(await bases(), [9]);
  assert.deepEqual(
    (await history()).map((row) => row.type),
    ['completed_retention', 'completed_retention', 'completed_retention'],
  );
});

const REGISTER = statement(
  'test_register',
  'SELECT inserted FROM queen.log_pop_register($1::uuid, $2::text, $3::text, $4::text, NULL, false)',
);
const REGISTER_SCOPE = statement(
  'test_register_scope',
  'SELECT inserted FROM queen.log_pop_register_scope($1::uuid, $2::text, $3::text, $4::text, $5::text, NULL, false)',
);

test('rule 2: a registered group holds what it would get of a partition that it has not met', async (t) => {
  const options = { retentionEnabled: true, completedRetentionSeconds: 15, namespace: 'ns' };
  const { database, db } = await setup(t, options);
  const left = async (partition: string) => {
    const id = await partitionOf(db, 'q', partition);
    await retentionStep(db, 'segments', id, await maintenanceNow(db), 100);
    return (await logState(db, id))!.segments.map((segment) => segment.base);
  };
  /** A partition of three messages that a fast group has consumed. */
  const consumed = async (partition: string) => {
    const id = await partitionOf(db, 'q', partition);
    for (let n = 0; n < 3; n++) {
      await append(db, id, freshTxns(1));
      await database.advanceClock(10);
    }
    await setCursor(db, id, 'fast', 2);
    await database.advanceClock(100);
    return id;
  };

  await consumed('before');
  assert.deepEqual(await left('before'), []);
  await db.query(REGISTER, [TENANT, 'q', 'slow', 'new']);
  const after = await consumed('after');
  assert.deepEqual(await left('after'), [0, 1, 2]);
  await setCursor(db, after, 'slow', 1);
  assert.deepEqual(await left('after'), [2]);

  await db.query(REGISTER_SCOPE, [TENANT, 'ns', '', 'wide', 'new']);
  const scoped = await consumed('scoped');
  await setCursor(db, scoped, 'slow', 2);
  assert.deepEqual(await left('scoped'), [0, 1, 2]);
  await setCursor(db, scoped, 'wide', 2);
  assert.deepEqual(await left('scoped'), []);

  // Somebody waited for one partition and never came again: nobody sees that, so it holds nothing.
  await db.query(
    statement(
      'test_wait_for',
      `INSERT INTO queen.consumer_groups_metadata (consumer_group, queue_id, partition_name, subscription_mode)
       SELECT 'gone', q.id, 'pinned', 'all' FROM queen.queues q WHERE q.name = 'q'`,
    ),
  );
  const pinned = await consumed('pinned');
  await setCursor(db, pinned, 'slow', 2);
  await setCursor(db, pinned, 'wide', 2);
  assert.deepEqual(await left('pinned'), []);
});

test('rule 2: a registration that starts later holds nothing older', async (t) => {
  const { database, db, id, fill, step, bases } = await setup(t, {
    retentionEnabled: true,
    completedRetentionSeconds: 15,
  });
  await fill([1, 1]);
  await db.query(REGISTER, [TENANT, 'q', 'late', 'new']);
  await fill([1, 1]);
  await setCursor(db, id, 'fast', 3);
  await database.advanceClock(100);
  // Its cursor is gone, and its registration says where it will start again.
  await db.query(statement('test_forget', `DELETE FROM queen.log_consumers WHERE consumer_group = 'late'`));
  assert.equal((await step('segments'))?.rows, 2);
  assert.deepEqual(await bases(), [2, 3]);
});

test('rules 1 and 2 together: the further one decides', async (t) => {
  const { db, id, fill, step, bases } = await setup(t, {
    retentionEnabled: true,
    retentionSeconds: 35,
    completedRetentionSeconds: 15,
  });
  await fill([1, 1, 1, 1]);
  assert.equal((await step('segments'))?.rows, 1);
  await setCursor(db, id, 'g', 1);
  assert.equal((await step('segments'))?.rows, 1);
  assert.deepEqual(await bases(), [2, 3]);
});

test('rule 3: regardless of retention, leases and groups; the emptied partition reads as empty', async (t) => {
  const { db, id, fill, step, history } = await setup(t, { maxWaitTimeSeconds: 5 });
  await fill([2, 2]);
  await setCursor(db, id, 'g', -1);
  await setLease(db, id, 'g', 3, 1000);
  assert.equal((await step('segments'))?.rows, 0);
  assert.deepEqual(await step('max_wait'), { rows: 2, messages: 4, more: false, rule: 'max_wait' });
  const state = (await logState(db, id))!;
  assert.equal(state.logStart, 4);
  assert.equal(state.lastOffset, 3);
  assert.equal(state.oldestLiveAt, null);
  assert.deepEqual(await history(), [{ messages: 4, type: 'max_wait' }]);
  const next = await append(db, id, freshTxns(1));
  assert.ok(next.verdict === 'stored' && next.base === 4);
  assert.equal((await logState(db, id))!.oldestLiveAt, next.createdAtMicros);
});

test('a step is bounded by its rows and says that there is more', async (t) => {
  const { fill, step, bases } = await setup(t, { maxWaitTimeSeconds: 5 });
  await fill([1, 1, 1, 1, 1]);
  assert.deepEqual(await step('max_wait', 2), { rows: 2, messages: 2, more: true, rule: 'max_wait' });
  assert.deepEqual(await step('max_wait', 2), { rows: 2, messages: 2, more: true, rule: 'max_wait' });
  assert.deepEqual(await step('max_wait', 2), { rows: 1, messages: 1, more: false, rule: 'max_wait' });
  assert.deepEqual(await bases(), []);
});

test('a step ends with the segment that takes it past 32 MiB', async (t) => {
  const { db, fill, step, bases } = await setup(t, { maxWaitTimeSeconds: 5 });
  await fill([1, 1, 1, 1, 1]);
  await db.query(
    statement(
      'test_large',
      "UPDATE queen.log_segments SET blob = convert_to(repeat('x', 12 * 1024 * 1024), 'UTF8')",
    ),
  );
  assert.deepEqual(await step('max_wait'), { rows: 3, messages: 3, more: true, rule: 'max_wait' });
  assert.deepEqual(await bases(), [3, 4]);
  assert.deepEqual(await step('max_wait'), { rows: 2, messages: 2, more: false, rule: 'max_wait' });
});

test('a limit that was lifted since the cycle began deletes nothing', async (t) => {
  const { db, id, fill } = await setup(t, { maxWaitTimeSeconds: 5 });
  await fill([1]);
  const now = await maintenanceNow(db);
  await queueWith(db, 'q', {});
  assert.equal((await retentionStep(db, 'max_wait', id, now, 100))?.rows, 0);
});

test('a partition that is gone', async (t) => {
  const { db } = await setup(t, {});
  assert.equal(await retentionStep(db, 'segments', 999, 0, 100), null);
  assert.equal(await retentionStep(db, 'sidecar', 999, 0, 100), null);
});

test('the sidecar lives the longest of window, completed retention and a quarter of an hour', async (t) => {
  const { database, db, id, fill, step } = await setup(t, { dedupWindowSeconds: 0 });
  await fill([1, 1]);
  await database.advanceClock(870); // ages 890, 880
  assert.equal((await step('sidecar'))?.rows, 0);
  await database.advanceClock(15); // 905, 895
  await queueWith(db, 'q', { dedupWindowSeconds: 0, completedRetentionSeconds: 1000 });
  assert.equal((await step('sidecar'))?.rows, 0);
  await queueWith(db, 'q', { dedupWindowSeconds: 1000 });
  assert.equal((await step('sidecar'))?.rows, 0);
  await queueWith(db, 'q', { dedupWindowSeconds: 1, completedRetentionSeconds: 1 });
  assert.deepEqual(await step('sidecar'), { rows: 1, messages: 0, more: false, rule: null });
  const state = (await logState(db, id))!;
  assert.equal(state.txnsStart, 1);
  assert.equal(state.oldestTxnAt, state.sidecar[0]!.at);
  assert.deepEqual(
    state.segments.map((segment) => segment.base),
    [0, 1],
  );
  await database.advanceClock(20);
  assert.equal((await step('sidecar', 1))?.more, true);
  const empty = (await logState(db, id))!;
  assert.deepEqual([empty.txnsStart, empty.oldestTxnAt, empty.sidecar.length], [2, null, 0]);
  assert.equal((await step('sidecar', 1))?.rows, 0);
});

test('sink hold: a name that nobody resolves holds rules 1 and 2 for the maximum, never rule 3', async (t) => {
  const hold = { retentionSinkHold: 'sink', retentionSinkHoldMaxSeconds: 100 };
  const { database, db, id, fill, step, bases } = await setup(t, {
    retentionEnabled: true,
    retentionSeconds: 5,
    completedRetentionSeconds: 5,
    ...hold,
  });
  await fill([1, 1, 1]);
  await setCursor(db, id, 'g', 2);
  assert.equal((await step('segments'))?.rows, 0);
  await database.advanceClock(75); // ages 105, 95, 85
  assert.equal((await step('segments'))?.rows, 1);
  assert.deepEqual(await bases(), [1, 2]);
  await queueWith(db, 'q', { maxWaitTimeSeconds: 90, ...hold });
  assert.equal((await step('max_wait'))?.rows, 1);
  assert.deepEqual(await bases(), [2]);
});

test('sink hold: a sink that resolves holds from its point on, by time or by offset', async (t) => {
  const { database, db, fill, step, bases } = await setup(t, {
    retentionEnabled: true,
    retentionSeconds: 5,
    retentionSinkHold: 'sink',
    retentionSinkHoldMaxSeconds: 1000,
  });
  const point = (at: string, offset: string) =>
    db.query({
      name: `test_point_${at.length}_${offset}`,
      text: `CREATE OR REPLACE FUNCTION queen.retention_sink_point(p_tenant uuid, p_sink text, p_partition bigint)
             RETURNS TABLE (committed_at timestamptz, committed_offset bigint) LANGUAGE sql STABLE
             AS $$ SELECT ${at}, ${offset}::bigint WHERE p_sink = 'sink' $$`,
    });
  await fill([1, 1, 1, 1, 1]);
  await database.advanceClock(50); // ages 100, 90, 80, 70, 60
  await point('NULL::timestamptz', '1');
  assert.equal((await step('segments'))?.rows, 2);
  // Stored up to 25 seconds ago, less the margin of a minute: only what is older than 85 seconds may go.
  await point("queen.clock() - interval '25 seconds'", 'NULL');
  assert.equal((await step('segments'))?.rows, 0);
  await database.advanceClock(10); // ages 90, 80, 70
  assert.equal((await step('segments'))?.rows, 1);
  assert.deepEqual(await bases(), [3, 4]);
});

test('sink hold: a connector holds what its group has not passed, by its own name for it or by the default', async (t) => {
  for (const [settings, group] of [
    ['{"queue":"q"}', 'pg-copy'],
    ['{"queue":"q","consumerGroup":"own"}', 'own'],
  ] as const) {
    const { database, db, id, fill, step, bases } = await setup(t, {
      retentionEnabled: true,
      retentionSeconds: 5,
      retentionSinkHold: 'copy',
      retentionSinkHoldMaxSeconds: 1000,
    });
    await fill([1, 1, 1]);
    await database.advanceClock(50);
    const put = (kind: string) =>
      db.query(
        statement(
          'test_connector',
          `INSERT INTO queen.connectors (tenant_id, name, document, version) VALUES ($1::uuid, 'copy', $2::text::json, 1)
           ON CONFLICT (tenant_id, name) DO UPDATE SET document = EXCLUDED.document`,
        ),
        [DEFAULT_TENANT, `{"kind":"${kind}","sink":${settings}}`],
      );
    await setCursor(db, id, group, 1);
    // A source of that name is no sink, and nobody can tell.
    await put('source');
    assert.equal((await step('segments'))?.rows, 0);
    await put('sink');
    assert.equal((await step('segments'))?.rows, 2);
    assert.deepEqual(await bases(), [2]);
  }
});

test('a step puts a wrong recorded age right', async (t) => {
  const { db, id, fill, step } = await setup(t, { retentionEnabled: true, retentionSeconds: 1000 });
  await fill([1, 1]);
  await db.query(
    statement(
      'test_spoil',
      "UPDATE queen.log_partitions SET oldest_live_at = timestamptz '2001-01-01', oldest_txn_at = NULL WHERE id = $1::bigint",
    ),
    [id],
  );
  await step('segments');
  await step('sidecar');
  const state = (await logState(db, id))!;
  assert.equal(state.oldestLiveAt, state.segments[0]!.at);
  assert.equal(state.oldestTxnAt, state.sidecar[0]!.at);
});
