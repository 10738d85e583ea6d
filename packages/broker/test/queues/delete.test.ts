import assert from 'node:assert/strict';
import { test } from 'node:test';
import { atEnd } from '../../../../test/kit/cleanup.ts';
import { openBroker } from '../../../../test/kit/engine.ts';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { Queues } from '../../src/engine/queues/queues.ts';
import { type Queryable, statement } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import { garbageStep } from '../../src/store/retention.ts';
import {
  admission,
  append,
  freshTxns,
  logState,
  partitionOf,
  queueWith,
  setCursor,
  TENANT,
} from '../retention/log_fixture.ts';

async function setup(t: { after(fn: () => Promise<void>): void }) {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const deleted: string[] = [];
  const queues = new Queues({
    db,
    admission,
    announcer: { queueDeleted: (tenant, queue) => void deleted.push(`${tenant} ${queue}`) },
    deleted() {},
    canEncrypt: false,
  });
  return { database, db, queues, deleted };
}

const DEAD = statement(
  'test_delete_dead',
  `INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", transaction_id) VALUES ($1::bigint, 'g', 0, 't')`,
);
const LEFT = statement(
  'test_left',
  `SELECT (SELECT count(*) FROM queen.log_segments) + (SELECT count(*) FROM queen.log_txns)
        + (SELECT count(*) FROM queen.log_dlq) + (SELECT count(*) FROM queen.log_consumers)
        + (SELECT count(*) FROM queen.log_partitions) + (SELECT count(*) FROM queen.consumer_groups_metadata)
        + (SELECT count(*) FROM queen.consumer_watermarks) + (SELECT count(*) FROM queen.queue_retained)
        + (SELECT count(*) FROM queen.log_garbage) + (SELECT count(*) FROM queen.queues) AS rows`,
);
/** Rows that are left when what deletions put aside is gone too. */
const left = async (db: Queryable) => {
  while ((await garbageStep(db, 1_000)).more);
  return visible(db);
};
const visible = async (db: Queryable) => (await db.query<{ rows: number }>(LEFT))[0]!.rows;

test('nothing of a deleted queue is left, everything of its neighbours is', async (t) => {
  const { db, queues, deleted } = await setup(t);
  const fill = async (queue: string) => {
    const queueId = await queueWith(db, queue, {});
    for (const name of ['a', 'b']) {
      const id = await partitionOf(db, queue, name);
      await append(db, id, freshTxns(3));
      await setCursor(db, id, 'g', 1);
      await setCursor(db, id, 'h', -1);
      await db.query(DEAD, [id]);
    }
    await db.query(
      statement(
        'test_meta',
        "INSERT INTO queen.consumer_groups_metadata (consumer_group, queue_id, subscription_mode) VALUES ('g', $1::bigint, 'new')",
      ),
      [queueId],
    );
    await db.query(
      statement(
        'test_watermark',
        "INSERT INTO queen.consumer_watermarks (queue_id, consumer_group) VALUES ($1::bigint, 'g')",
      ),
      [queueId],
    );
  };
  await fill('keep');
  const before = await left(db);
  await fill('gone');
  assert.equal(await left(db), before * 2);
  assert.equal(await queues.deleteQueue(TENANT, 'gone'), true);
  assert.equal(await left(db), before);
  assert.deepEqual(deleted, [`${TENANT} gone`]);
  assert.equal(await queues.deleteQueue(TENANT, 'gone'), false);
  assert.equal(await queues.deleteQueue('00000000-0000-0000-0000-000000000002', 'keep'), false);
  assert.equal(await queues.deleteQueue(TENANT, 'nul\u0000'), false);
  assert.deepEqual(deleted, [`${TENANT} gone`]);
  assert.equal(await left(db), before);
});

const LOG_ROWS = statement(
  'test_log_rows',
  'SELECT (SELECT count(*) FROM queen.log_segments) AS segments, (SELECT count(*) FROM queen.log_txns) AS hashes',
);
const logRows = async (db: Queryable) => (await db.query<{ segments: number; hashes: number }>(LOG_ROWS))[0]!;

test('a deletion touches no segment; they go in steps of the size that was asked for', async (t) => {
  const { db, queues } = await setup(t);
  const sizes = [7, 0, 1, 30];
  for (const [n, segments] of sizes.entries()) {
    const id = await partitionOf(db, 'gone', `p${n}`);
    for (let i = 0; i < segments; i++) await append(db, id, freshTxns(2));
  }
  const kept = await partitionOf(db, 'kept', 'p');
  await append(db, kept, freshTxns(2));
  // A partition whose hashes outlived its segments, and one whose segments outlived their hashes.
  await db.query(
    statement('test_uneven', 'DELETE FROM queen.log_segments WHERE base_offset BETWEEN 20 AND 39'),
  );
  await db.query(statement('test_uneven2', 'DELETE FROM queen.log_txns WHERE base_offset BETWEEN 2 AND 9'));
  const before = await logRows(db);

  assert.equal(await queues.deleteQueue(TENANT, 'gone'), true);
  assert.deepEqual(await logRows(db), before);
  let removed = 0;
  for (let more = true; more; ) {
    const step = await garbageStep(db, 4);
    assert.ok(step.rows <= 8, `a step of 4 took ${step.rows} rows`);
    removed += step.rows;
    more = step.more;
  }
  assert.deepEqual(await logRows(db), { segments: 1, hashes: 1 });
  assert.equal(removed, before.segments + before.hashes - 2);
});

test('brokers that remove the same log share the work', async (t) => {
  const { database, db, queues } = await setup(t);
  const other = await database.open();
  t.after(() => other.close());
  for (let n = 0; n < 10; n++) {
    const id = await partitionOf(db, 'gone', `p${n}`);
    for (let i = 0; i < 5; i++) await append(db, id, freshTxns(1));
  }
  await queues.deleteQueue(TENANT, 'gone');
  const remove = async (on: Queryable) => {
    let rows = 0;
    for (let more = true; more; ) {
      const step = await garbageStep(on, 3);
      rows += step.rows;
      more = step.more;
    }
    return rows;
  };
  const [one, two] = await Promise.all([remove(db), remove(other)]);
  // Whoever found everything taken has stopped; what the other one still had is gone with its own last step.
  assert.equal(one + two, 100);
  assert.equal(await left(db), 0);
});

test('the broker that deletes removes the log at once', async (t) => {
  const database = await freshDatabase(t);
  const broker = await openBroker(database);
  atEnd(t, () => broker.stop());
  const id = await partitionOf(broker.db, 'gone', 'p');
  for (let i = 0; i < 5; i++) await append(broker.db, id, freshTxns(1));
  await broker.deleteQueue(TENANT, 'gone');
  while ((await logRows(broker.db)).segments > 0);
});

test('a queue that comes back is a new one, from offset 0 and without memory of its hashes', async (t) => {
  const { db, queues } = await setup(t);
  const old = await partitionOf(db, 'q', 'p');
  assert.deepEqual((await append(db, old, ['same'])).verdict, 'stored');
  assert.deepEqual(await append(db, old, ['same']), { verdict: 'duplicate', offsets: [0] });
  await queues.deleteQueue(TENANT, 'q');
  assert.deepEqual(await append(db, old, ['same']), { verdict: 'missing' });
  const fresh = await partitionOf(db, 'q', 'p');
  assert.notEqual(fresh, old);
  const again = await append(db, fresh, ['same']);
  assert.ok(again.verdict === 'stored' && again.base === 0);
});

test('deletions, pushes, cursor moves and provisioning in parallel: no deadlock, nothing left over', async (t) => {
  const { database, queues, db } = await setup(t);
  const others = await Promise.all([database.open(), database.open()]);
  t.after(async () => {
    for (const other of others) await other.close();
  });
  const cursor = statement(
    'test_cursor_pair',
    `UPDATE queen.log_consumers c SET committed = c.committed + 1 FROM (
       SELECT partition_id, consumer_group FROM queen.log_consumers ORDER BY partition_id, consumer_group FOR UPDATE
     ) AS l WHERE (c.partition_id, c.consumer_group) = (l.partition_id, l.consumer_group)`,
  );
  const errors: unknown[] = [];
  let stop = false;
  const producer = async (other: Queryable, names: string[]) => {
    while (!stop) {
      try {
        for (const name of names) {
          const id = await partitionOf(other, 'q', name);
          const done = await append(other, id, freshTxns(2));
          if (done.verdict === 'stored') await setCursor(other, id, 'g', done.base);
        }
        await other.query(cursor);
      } catch (error) {
        // A cursor of a partition that has gone meanwhile cannot be created; nothing else may fail.
        if (!(error instanceof StoreError && error.sqlState === '23503')) errors.push(error);
      }
    }
  };
  const producers = [producer(others[0]!, ['a', 'b', 'c']), producer(others[1]!, ['c', 'b', 'a'])];
  let deletions = 0;
  const begun = performance.now();
  while (deletions < 25 && errors.length === 0 && performance.now() - begun < 20_000) {
    if (await queues.deleteQueue(TENANT, 'q')) deletions++;
  }
  stop = true;
  await Promise.all(producers);
  assert.deepEqual(errors, []);
  assert.equal(deletions, 25);
  await queues.deleteQueue(TENANT, 'q');
  assert.equal(await left(db), 0);
});

test('a push that waits behind the deletion finds its partition gone', async (t) => {
  const { database, db } = await setup(t);
  const id = await partitionOf(db, 'q', 'p');
  await append(db, id, ['a']);
  const other = await database.open();
  t.after(() => other.close());
  let waiting: Promise<unknown> = Promise.resolve();
  await db.transaction(async (tx) => {
    await tx.query(
      statement('test_delete_inside', 'SELECT queen.queue_delete($1::uuid, $2::text) AS deleted'),
      [TENANT, 'q'],
    );
    waiting = append(other, id, ['b']);
    await blocked(db, 1);
  });
  assert.deepEqual(await waiting, { verdict: 'missing' });
  assert.equal(await left(db), 0);
  assert.equal(await logState(db, id), null);
});

const BLOCKED = statement(
  'test_blocked',
  "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
);
/** Resolves when so many sessions wait for a lock. */
async function blocked(db: Queryable, sessions: number): Promise<void> {
  for (;;) {
    const rows = await db.query<{ n: number }>(BLOCKED);
    if (rows[0]!.n >= sessions) return;
  }
}
