import assert from 'node:assert/strict';
import { test } from 'node:test';
import { complete, range, setup, sql, texts } from './fixture.ts';

test('a leased pop delivers what is there and leaves the lease on the row', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', ['a', 'b', 'c']);
  const answer = await broker.pop();
  assert.deepEqual(texts(answer), { p: ['a', 'b', 'c'] });
  assert.match(answer.leaseId, /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  const [claim] = answer.claims;
  assert.equal(claim?.queue, 'q');
  assert.equal(claim?.partitionId, String(partitionId));
  assert.equal(claim?.lastOffset, 2);
  assert.equal(claim?.deliveryAttempt, 1);
  assert.deepEqual(
    claim?.messages.map((m) => [m.offset, m.transactionId, m.traceId, m.producerSub]),
    [
      [0, 'a', null, null],
      [1, 'b', null, null],
      [2, 'c', null, null],
    ],
  );
  const row = await rig.consumer(partitionId);
  assert.equal(row?.committed, -1);
  assert.equal(row?.batch_end, 2);
  assert.equal(row?.worker_id, answer.leaseId);
  assert.equal(row?.attempt_offset, 0);
  assert.equal(row?.attempt_count, 1);
  assert.deepEqual(
    broker.delivered.map((d) => [d.partitionId, d.batchEnd, d.worker, d.transactionIds]),
    [[partitionId, 2, answer.leaseId, ['a', 'b', 'c']]],
  );
  assert.deepEqual(texts(await broker.pop()), {}, 'a leased partition is invisible to its group');
  assert.deepEqual(texts(await broker.pop({ group: 'other' })), { p: ['a', 'b', 'c'] });
});

test('a batch is filled across segments and slices the last one', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  for (let i = 0; i < 40; i++) await rig.push('q', 'p', [`s${i}`]);
  await rig.push('q', 'p', range(50, 'long'));
  const first = await broker.pop({ batch: 45 });
  assert.deepEqual(texts(first).p, [...range(40, 's'), ...range(5, 'long')]);
  await complete(rig, first, '__QUEUE_MODE__', [broker]);
  const second = await broker.pop({ batch: 10 });
  assert.deepEqual(texts(second).p, range(15, 'long').slice(5));
});

test('the budget of a pop is spent over partitions, each contiguous', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  for (let p = 0; p < 5; p++) await rig.push('q', `p${p}`, range(100));
  const answer = await broker.pop({ batch: 10, partitions: 5 });
  assert.equal(
    answer.claims.reduce((n, c) => n + c.messages.length, 0),
    10,
  );
  const many = await broker.pop({ batch: 1000, partitions: 3, group: 'g' });
  assert.equal(many.claims.length, 3);
  for (const claim of many.claims)
    assert.deepEqual(
      claim.messages.map((m) => m.offset),
      [...Array(100).keys()],
    );
});

test('partitions of zero or less has no cap and gathers many small partitions', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  for (let p = 0; p < 150; p++) await rig.push('q', `p${p}`, [`m${p}`]);
  const answer = await broker.pop({ batch: 500, partitions: 0 });
  assert.equal(answer.claims.length, 150);
  assert.equal(new Set(answer.claims.map((c) => c.partitionId)).size, 150);
});

test('autoAck commits at delivery, leaves no lease and no attempt', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', range(5));
  const answer = await broker.pop({ autoAck: true, batch: 3 });
  assert.equal(answer.leaseId, '');
  assert.deepEqual(texts(answer).p, range(3));
  assert.equal(answer.claims[0]?.deliveryAttempt, 1);
  const row = await rig.consumer(partitionId);
  assert.deepEqual(
    [row?.committed, row?.batch_end, row?.worker_id, row?.total_consumed, row?.attempt_count],
    [2, null, null, 3, 0],
  );
  assert.equal(broker.delivered.length, 0);
  assert.deepEqual(texts(await broker.pop({ autoAck: true })).p, ['m3', 'm4']);
  assert.deepEqual(texts(await broker.pop({ autoAck: true })), {});
});

test('an expired lease is claimable again from the same start, one attempt later', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', range(3));
  const first = await broker.pop({ leaseSeconds: 5 });
  assert.equal(first.claims.length, 1);
  assert.deepEqual(texts(await broker.pop()), {});
  await rig.database.advanceClock(6);
  const second = await broker.pop();
  assert.deepEqual(texts(second).p, range(3));
  assert.equal(second.claims[0]?.deliveryAttempt, 2);
  assert.notEqual(second.leaseId, first.leaseId);
  const row = await rig.consumer(partitionId);
  assert.equal(row?.batch_retry_count, 0);
  assert.equal(row?.worker_id, second.leaseId);
});

test('a batch that starts elsewhere counts its attempts from one', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', range(4));
  const first = await broker.pop({ batch: 2, leaseSeconds: 5 });
  await rig.database.advanceClock(6);
  assert.equal((await broker.pop({ batch: 2 })).claims[0]?.deliveryAttempt, 2);
  await complete(rig, first, '__QUEUE_MODE__', [broker]);
  assert.equal((await broker.pop({ batch: 2 })).claims[0]?.deliveryAttempt, 1);
});

test('the lease is the one of the call, else of the queue, else a minute', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const seconds = async (partitionId: number) => {
    const rows = await sql<{ s: number }>(
      rig.db,
      `SELECT extract(epoch FROM lease_expires_at - lease_acquired_at)::int AS s FROM queen.log_consumers
        WHERE partition_id = $1::bigint`,
      [partitionId],
    );
    return rows[0]?.s;
  };
  const a = await rig.push('a', 'p', ['x']);
  const b = await rig.push('b', 'p', ['x']);
  const c = await rig.push('c', 'p', ['x']);
  await sql(rig.db, "UPDATE queen.queues SET lease_time = 7 WHERE name = 'b'");
  await sql(rig.db, "UPDATE queen.queues SET lease_time = 0 WHERE name = 'c'");
  await broker.pop({ queue: 'a', leaseSeconds: 3 });
  await broker.pop({ queue: 'b' });
  await broker.pop({ queue: 'c' });
  assert.equal(await seconds(a.partitionId), 3);
  assert.equal(await seconds(b.partitionId), 7);
  assert.equal(await seconds(c.partitionId), 60);
});

test('a hole that retention left is skipped, and an emptied partition is sealed', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', range(3, 'a'));
  await rig.push('q', 'p', range(3, 'b'));
  await sql(rig.db, 'DELETE FROM queen.log_segments WHERE partition_id = $1::bigint AND base_offset = 0', [
    partitionId,
  ]);
  await sql(rig.db, 'UPDATE queen.log_partitions SET log_start = 3 WHERE id = $1::bigint', [partitionId]);
  const answer = await broker.pop();
  assert.deepEqual(texts(answer).p, range(3, 'b'));
  assert.deepEqual(
    answer.claims[0]?.messages.map((m) => m.offset),
    [3, 4, 5],
  );
  const row = await rig.consumer(partitionId);
  assert.equal(row?.attempt_offset, 3);
  await sql(rig.db, 'DELETE FROM queen.log_segments WHERE partition_id = $1::bigint', [partitionId]);
  await sql(rig.db, 'UPDATE queen.log_partitions SET log_start = 6 WHERE id = $1::bigint', [partitionId]);
  assert.deepEqual(texts(await broker.pop({ group: 'g' })), {});
  assert.equal((await rig.consumer(partitionId, 'g'))?.committed, 5, 'sealed');
  await rig.push('q', 'p', ['c'], [broker]);
  assert.deepEqual(texts(await broker.pop({ group: 'g' })).p, ['c']);
});

test('a pop of an unknown queue makes the queue and finds nothing', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const answer = await broker.pop({ queue: 'orders.eu.x' });
  assert.deepEqual(answer.claims, []);
  assert.equal(answer.leaseId, '');
  const rows = await sql(rig.db, 'SELECT namespace, task, lease_time FROM queen.queues');
  assert.deepEqual(rows, [{ namespace: 'orders', task: 'eu', lease_time: 60 }]);
  assert.deepEqual((await broker.pop({ queue: 'other', partition: 'p' })).claims, []);
  assert.equal((await sql(rig.db, 'SELECT 1 AS one FROM queen.log_partitions')).length, 0);
});
