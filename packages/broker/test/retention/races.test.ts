/**
 * Retention, purge and cleanup of two brokers against producers and consumers on the same partitions. Cleanup is
 * told that everything is idle long enough, so partitions go and come back all the time.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { type Queryable, statement } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import { cleanupPartitions, maintenanceNow, retentionStep } from '../../src/store/retention.ts';
import { append, freshTxns, logState, partitionOf, queueWith, setCursor } from './log_fixture.ts';

const MEET = statement(
  'race_meet',
  `INSERT INTO queen.log_consumers (partition_id, consumer_group) VALUES ($1::bigint, $2::text) ON CONFLICT DO NOTHING`,
);
const LEASE = statement(
  'race_lease',
  `UPDATE queen.log_consumers c SET worker_id = 'w', lease_acquired_at = queen.clock(),
          lease_expires_at = queen.clock() + interval '1 minute', batch_end = p.last_offset
     FROM queen.log_partitions p
    WHERE p.id = c.partition_id AND c.partition_id = $1::bigint AND c.consumer_group = $2::text
      AND c.batch_end IS NULL AND p.last_offset > c.committed
   RETURNING c.batch_end`,
);
const ACK = statement(
  'race_ack',
  `UPDATE queen.log_consumers SET committed = batch_end, worker_id = NULL, batch_end = NULL, lease_expires_at = NULL,
          lease_acquired_at = NULL WHERE partition_id = $1::bigint AND consumer_group = $2::text RETURNING committed`,
);
const BROKEN = statement(
  'race_broken',
  `SELECT p.id, p.last_offset, c.committed FROM queen.log_partitions p JOIN queen.log_consumers c ON c.partition_id = p.id
    WHERE c.committed > p.last_offset`,
);
const LEFT_OVER = statement(
  'race_left_over',
  `SELECT (SELECT count(*) FROM queen.log_txns t WHERE NOT EXISTS (SELECT 1 FROM queen.log_partitions p WHERE p.id = t.partition_id))
        + (SELECT count(*) FROM queen.log_consumers c WHERE NOT EXISTS (SELECT 1 FROM queen.log_partitions p WHERE p.id = c.partition_id)) AS rows`,
);

async function setup(t: { after(fn: () => Promise<void>): void }) {
  const database = await freshDatabase(t);
  const db = await database.open({ poolSize: 12 });
  t.after(() => db.close());
  await queueWith(db, 'q', { maxWaitTimeSeconds: 1, retentionEnabled: true, dedupWindowSeconds: 0 });
  return { database, db };
}

test('no deadlock, no lost offset, no cursor ahead of its log', { timeout: 60_000 }, async (t) => {
  const { db } = await setup(t);
  const names = ['a', 'b', 'c'];
  const errors: unknown[] = [];
  const counts = { stored: 0, missing: 0, removed: 0, deleted: 0, acked: 0 };
  const next = new Map<number, number>();
  /** Which partitions may still be retained; the producer of a name tells. */
  const current = new Map<string, number>();
  // Two seconds, and longer on a slow machine until each thing has happened at least once.
  const begun = performance.now();
  const running = () => {
    const ms = performance.now() - begun;
    return errors.length === 0 && (ms < 2_000 || (ms < 30_000 && Object.values(counts).includes(0)));
  };
  const loop = (work: () => Promise<void>) => async () => {
    while (running()) await work().catch((error) => void errors.push(error));
  };

  const produce = (name: string) => {
    let id: number | null = null;
    return loop(async () => {
      id ??= await partitionOf(db, 'q', name);
      current.set(name, id);
      const result = await append(db, id, freshTxns(2));
      if (result.verdict === 'missing') {
        counts.missing++;
        id = null;
        return;
      }
      assert.ok(result.verdict === 'stored');
      counts.stored++;
      // Offsets of one id go on without a hole, and a new id starts at 0.
      assert.equal(result.base, next.get(id) ?? 0);
      next.set(id, result.base + 2);
      // Now and then idle long enough to be emptied and removed.
      if (result.base % 6 === 0) for (let i = 0; i < 20; i++) await maintenanceNow(db);
    });
  };
  const consume = (name: string, group: string) =>
    loop(async () => {
      const id = current.get(name);
      if (id === undefined) {
        await maintenanceNow(db);
        return;
      }
      try {
        await db.query(MEET, [id, group]);
      } catch (error) {
        // The partition went in the same instant: its foreign key says so.
        if (error instanceof StoreError && error.sqlState === '23503') return;
        throw error;
      }
      const leased = await db.query<{ batch_end: number }>(LEASE, [id, group]);
      if (leased.length === 0) return;
      // A live lease keeps the partition, whatever retention does to its segments.
      const acked = await db.query<{ committed: number }>(ACK, [id, group]);
      assert.deepEqual(acked, [{ committed: leased[0]!.batch_end }]);
      counts.acked++;
    });
  /** A broker's retention whose clock runs ahead: all data is old and every partition idle. */
  const retain = loop(async () => {
    const now = (await maintenanceNow(db)) + 2_000_000;
    for (const id of current.values()) {
      const step = await retentionStep(db, 'max_wait', id, now, 3);
      counts.deleted += step?.messages ?? 0;
      await retentionStep(db, 'segments', id, now, 3);
      await retentionStep(db, 'sidecar', id, now + 3_600_000_000, 3);
      const { removed } = await cleanupPartitions(db, now, now - 2_000_000, id - 1, 1, 10);
      counts.removed += removed.length;
    }
  });

  await Promise.all([
    ...names.map((name) => produce(name)()),
    consume('a', 'g')(),
    consume('b', 'g')(),
    consume('b', 'h')(),
    retain(),
    retain(),
  ]);
  if (errors.length > 0) throw errors[0];
  assert.deepEqual(await db.query(BROKEN), []);
  assert.deepEqual(await db.query(LEFT_OVER), [{ rows: 0 }]);
  for (const [what, count] of Object.entries(counts))
    assert.ok(count > 0, `no ${what}: ${JSON.stringify(counts)}`);
});

const BLOCKED = statement(
  'race_blocked',
  "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
);
async function blocked(db: Queryable): Promise<void> {
  for (;;) {
    const rows = await db.query<{ n: number }>(BLOCKED);
    if (rows[0]!.n > 0) return;
  }
}

const LOCK = statement('race_lock', 'SELECT 1 FROM queen.log_partitions WHERE id = $1::bigint FOR UPDATE');

test('a push in progress keeps its partition from cleanup', async (t) => {
  const { database, db } = await setup(t);
  const busy = await partitionOf(db, 'q', 'busy');
  const idle = await partitionOf(db, 'q', 'idle');
  await database.advanceClock(10);
  const now = await maintenanceNow(db);
  await db.transaction(async (tx) => {
    await tx.query(LOCK, [busy]);
    const { removed } = await cleanupPartitions(db, now, now, 0, 100, 10);
    assert.deepEqual(removed, [idle]);
    assert.equal((await append(tx, busy, freshTxns(1))).verdict, 'stored');
  });
  assert.deepEqual((await cleanupPartitions(db, now + 1e9, now, 0, 100, 10)).removed, []);
});

test('a push that waits for cleanup finds the partition missing', async (t) => {
  const { database, db } = await setup(t);
  const id = await partitionOf(db, 'q', 'p');
  await database.advanceClock(10);
  const now = await maintenanceNow(db);
  let waiting: Promise<unknown> = Promise.resolve();
  await db.transaction(async (tx) => {
    assert.deepEqual((await cleanupPartitions(tx, now, now, 0, 100, 10)).removed, [id]);
    waiting = append(db, id, freshTxns(1));
    await blocked(db);
  });
  assert.deepEqual(await waiting, { verdict: 'missing' });
});

test('completion sees a group that meets the partition in the same instant', async (t) => {
  const { database, db } = await setup(t);
  await queueWith(db, 'q', { retentionEnabled: true, completedRetentionSeconds: 1 });
  const id = await partitionOf(db, 'q', 'p');
  await append(db, id, freshTxns(3));
  await setCursor(db, id, 'g', 2);
  await database.advanceClock(10);
  const now = await maintenanceNow(db);
  let step: Promise<unknown> = Promise.resolve();
  await db.transaction(async (tx) => {
    await tx.query(MEET, [id, 'h']);
    step = retentionStep(db, 'segments', id, now, 10);
    await blocked(db);
  });
  assert.deepEqual(await step, { rows: 0, messages: 0, more: false, rule: null });
  assert.equal((await logState(db, id))?.logStart, 0);
});

test('two cleanups at once do not wait for each other', async (t) => {
  const { database, db } = await setup(t);
  const id = await partitionOf(db, 'q', 'p');
  await database.advanceClock(10);
  const now = await maintenanceNow(db);
  await db.transaction(async (tx) => {
    assert.deepEqual((await cleanupPartitions(tx, now, now, 0, 100, 10)).removed, [id]);
    assert.deepEqual((await cleanupPartitions(db, now, now, 0, 100, 10)).removed, []);
  });
  assert.equal(await logState(db, id), null);
});
