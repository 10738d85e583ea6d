import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { Queues } from '../../src/engine/queues/queues.ts';
import { RetainedBytes } from '../../src/engine/retention/retained_bytes.ts';
import { type Queryable, statement } from '../../src/store/database.ts';
import { silentLog } from '../../src/store/log.ts';
import { retentionStep } from '../../src/store/retention.ts';
import {
  admission,
  append,
  freshTxns,
  partitionOf,
  queueWith,
  setCursor,
  setLease,
  TENANT,
} from '../retention/log_fixture.ts';

const QUEUE_MODE = '__QUEUE_MODE__';
const OTHER_TENANT = '00000000-0000-0000-0000-000000000002';

async function setup(t: { after(fn: () => Promise<void>): void }) {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const queues = new Queues({
    db,
    admission,
    announcer: { queueDeleted() {} },
    deleted() {},
    canEncrypt: false,
  });
  /** A partition with `count` messages in segments of five. */
  const filled = async (queue: string, partition: string, count: number): Promise<number> => {
    const id = await partitionOf(db, queue, partition);
    for (let left = count; left > 0; left -= 5) await append(db, id, freshTxns(Math.min(5, left)));
    return id;
  };
  const stats = async (queue: string) => {
    const detail = await queues.inspectQueue(TENANT, queue);
    return Object.fromEntries(detail!.partitions.map(({ name, stats }) => [name, stats]));
  };
  return { database, db, queues, filled, stats };
}

const DEAD = statement(
  'test_dead',
  `INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", transaction_id) VALUES ($1::bigint, 'g', $2::bigint, 't')`,
);
const dead = (db: Queryable, partition: number, offset: number) => db.query(DEAD, [partition, offset]);

test('the furthest-behind group decides, and leases of counted groups are processing', async (t) => {
  const { db, filled, stats, queues } = await setup(t);
  const a = await filled('q', 'a', 20);
  const b = await filled('q', 'b', 10);
  assert.deepEqual(await stats('q'), {
    a: { total: 20, pending: 20, processing: 0, completed: 0, deadLetter: 0 },
    b: { total: 10, pending: 10, processing: 0, completed: 0, deadLetter: 0 },
  });

  await setCursor(db, a, 'fast', 19);
  await setCursor(db, a, 'slow', 4);
  await setLease(db, a, 'slow', 9, 60);
  await dead(db, a, 3);
  assert.deepEqual(await stats('q'), {
    a: { total: 20, pending: 15, processing: 5, completed: 4, deadLetter: 1 },
    b: { total: 10, pending: 10, processing: 0, completed: 0, deadLetter: 0 },
  });
  const detail = await queues.inspectQueue(TENANT, 'q');
  assert.deepEqual(detail?.totals, { total: 30, pending: 25, processing: 5, completed: 4, deadLetter: 1 });
  const [listed] = await queues.listQueues(TENANT);
  assert.deepEqual(listed?.messages, { total: 30, pending: 25, processing: 5 });
  assert.equal(listed?.partitions, 2);
  assert.equal(b, Number(detail?.partitions[1]?.id));
});

test('queue mode counts only where the queue has no named group', async (t) => {
  const { db, filled, stats } = await setup(t);
  const a = await filled('q', 'a', 10);
  const b = await filled('q', 'b', 10);
  await setCursor(db, a, QUEUE_MODE, 9);
  await setCursor(db, b, QUEUE_MODE, 4);
  let seen = await stats('q');
  assert.deepEqual([seen.a?.pending, seen.b?.pending], [0, 5]);
  // The first named group, on one partition: on the other it owes everything.
  await setCursor(db, a, 'g', 7);
  seen = await stats('q');
  assert.deepEqual([seen.a?.pending, seen.b?.pending], [2, 10]);
});

test('an expired lease is not processing, and processing is never above pending', async (t) => {
  const { database, db, filled, stats } = await setup(t);
  const a = await filled('q', 'a', 10);
  await setCursor(db, a, 'g', 4);
  await setCursor(db, a, 'h', -1);
  await setLease(db, a, 'h', 9, 60);
  assert.deepEqual((await stats('q')).a, {
    total: 10,
    pending: 10,
    processing: 10,
    completed: 0,
    deadLetter: 0,
  });
  await database.advanceClock(61);
  assert.equal((await stats('q')).a?.processing, 0);
});

test('after retention the counters hold over what is left, also for a cursor that is behind it', async (t) => {
  const { database, db, filled, stats, queues } = await setup(t);
  await queueWith(db, 'q', { maxWaitTimeSeconds: 100 });
  const a = await filled('q', 'a', 10);
  await setCursor(db, a, 'g', 1);
  await setLease(db, a, 'g', 3, 1000);
  await database.advanceClock(101);
  const now = statement('test_now', 'SELECT queen.clock() AS now');
  const moment = (await db.query<{ now: number }>(now))[0]!.now;
  await retentionStep(db, 'max_wait', a, moment, 1);
  assert.deepEqual((await stats('q')).a, {
    total: 5,
    pending: 5,
    processing: 0,
    completed: 0,
    deadLetter: 0,
  });
  await retentionStep(db, 'max_wait', a, moment, 10);
  assert.deepEqual((await stats('q')).a, {
    total: 0,
    pending: 0,
    processing: 0,
    completed: 0,
    deadLetter: 0,
  });
  const detail = await queues.inspectQueue(TENANT, 'q');
  assert.equal(detail?.partitions[0]?.oldestMessageMicros, null);
  assert.equal(detail?.partitions[0]?.newestMessageMicros, null);
});

test('depth: a group owes the whole retained range where it has no cursor', async (t) => {
  const { db, filled, queues } = await setup(t);
  const a = await filled('q', 'a', 10);
  await filled('q', 'b', 5);
  await partitionOf(db, 'q', 'empty');
  await setCursor(db, a, 'g', 9);
  await setCursor(db, a, 'h', 2);
  await setLease(db, a, 'h', 4, 60);
  assert.deepEqual(await queues.queueDepth(TENANT, 'q', 'g'), {
    conflation: false,
    partitions: [
      { partition: 'a', pending: 0, processing: 0 },
      { partition: 'b', pending: 5, processing: 0 },
      { partition: 'empty', pending: 0, processing: 0 },
    ],
  });
  assert.deepEqual((await queues.queueDepth(TENANT, 'q', null))?.partitions[0], {
    partition: 'a',
    pending: 7,
    processing: 2,
  });
  assert.equal((await queues.queueDepth(TENANT, 'q', 'nobody'))?.partitions[0]?.pending, 10);
  assert.equal(await queues.queueDepth(TENANT, 'other', null), null);
  assert.equal(await queues.inspectQueue(TENANT, 'q\u0000'), null);
  await assert.rejects(queues.queueDepth(TENANT, 'q', 'g\u0000'), { code: 'bad_name' });
});

test('depth reports the conflation of a group registered on the queue or on its namespace', async (t) => {
  const { db, queues } = await setup(t);
  const id = await queueWith(db, 'q', { namespace: 'n', task: 't' });
  const register = statement(
    'test_register',
    `INSERT INTO queen.consumer_groups_metadata (consumer_group, queue_id, partition_name, namespace, task, subscription_mode, conflation)
     VALUES ($1::text, $2::bigint, $3::text, $4::text, $5::text, 'all', $6::boolean)`,
  );
  await db.query(register, ['direct', id, '', '', '', true]);
  await db.query(register, ['scoped', null, '', 'n', '', true]);
  await db.query(register, ['elsewhere', null, '', 'n', 'other', true]);
  await db.query(register, ['plain', id, '', '', '', false]);
  await db.query(register, ['pinned', id, 'p', '', '', true]);
  const conflates = async (group: string) => (await queues.queueDepth(TENANT, 'q', group))?.conflation;
  assert.deepEqual(
    await Promise.all(['direct', 'scoped', 'elsewhere', 'plain', 'pinned', 'unknown'].map(conflates)),
    [true, true, false, false, false, false],
  );
});

test('groupings add up the queues that name them, and tenants do not see each other', async (t) => {
  const { db, filled, queues } = await setup(t);
  await filled('n1.t1', 'p', 5);
  await filled('n1.t2', 'p', 10);
  await filled('n2.t1', 'p', 5);
  await filled('plain', 'p', 5);
  await queueWith(db, 'n2.empty', { namespace: 'n2' });
  assert.deepEqual(await queues.namespaces(TENANT), [
    { name: 'n1', queues: 2, partitions: 2, messages: { total: 15, pending: 15 } },
    { name: 'n2', queues: 2, partitions: 1, messages: { total: 5, pending: 5 } },
  ]);
  assert.deepEqual(
    (await queues.tasks(TENANT)).map(({ name, queues: count }) => [name, count]),
    [
      ['t1', 2],
      ['t2', 1],
    ],
  );
  assert.deepEqual(await queues.listQueues(OTHER_TENANT), []);
  assert.deepEqual(await queues.namespaces(OTHER_TENANT), []);
  assert.equal(await queues.inspectQueue(OTHER_TENANT, 'plain'), null);
  assert.equal(await queues.queueDepth(OTHER_TENANT, 'plain', null), null);
});

test('bytes and segments are as of the last refresh', async (t) => {
  const { db, filled, queues } = await setup(t);
  const a = await filled('q', 'a', 10);
  await filled('empty', 'a', 0);
  const retained = new RetainedBytes({ db, admission, clock: systemClock, log: silentLog, holder: 'test' });
  assert.equal(await retained.pass(), 2);
  const bytes = statement(
    'test_bytes',
    'SELECT sum(length(blob))::bigint AS bytes FROM queen.log_segments WHERE partition_id = $1::bigint',
  );
  const expected = (await db.query<{ bytes: number }>(bytes, [a]))[0]!.bytes;
  assert.ok(expected > 0);
  const [empty, listed] = await queues.listQueues(TENANT);
  assert.deepEqual([listed?.retainedBytes, listed?.segments], [expected, { segments: 2, messages: 10 }]);
  assert.deepEqual([empty?.retainedBytes, empty?.segments], [0, { segments: 0, messages: 0 }]);
  assert.equal((await queues.inspectQueue(TENANT, 'q'))?.retainedBytes, expected);
  await queues.deleteQueue(TENANT, 'q');
  assert.equal(await retained.pass(), 1);
});
