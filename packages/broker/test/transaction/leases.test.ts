import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ack, push, QUEUE, Rig, verdictOf } from './fixture.ts';

async function leased(rig: Rig, ids: string[], queue = QUEUE) {
  await rig.push(ids, queue);
  const popped = await rig.pop({ queue });
  return { leaseId: popped.leaseId, partitionId: popped.claims[0]!.partitionId };
}

const EXPIRED = 'invalid or expired lease';

test('a lease on the ack itself is the one that counts', async (t) => {
  const rig = await Rig.open(t);
  const { leaseId, partitionId } = await leased(rig, ['a', 'b']);
  const wrong = await rig.refused([ack(partitionId, 'a', { leaseId: 'no-such-lease' })], {
    requiredLeases: [leaseId],
  });
  assert.deepEqual([wrong.reason, wrong.error, wrong.failedIndex], ['ack_rejected', EXPIRED, 0]);
  const right = await rig.done([ack(partitionId, 'a', { leaseId })], { requiredLeases: ['another'] });
  assert.equal(verdictOf(right.results[0]).success, true);
  await rig.test.advanceClock(61);
  const late = await rig.refused([push('x', 'q2'), ack(partitionId, 'b', { leaseId })]);
  assert.deepEqual([late.reason, late.error], ['ack_rejected', EXPIRED]);
  assert.deepEqual(await rig.stored('q2'), []);
});

test('a list of leases: each row is held against its live one, which must be in it', async (t) => {
  const rig = await Rig.open(t);
  const one = await leased(rig, ['a'], 'q1');
  const two = await leased(rig, ['b'], 'q2');
  const both = await rig.done([ack(two.partitionId, 'b'), ack(one.partitionId, 'a')], {
    requiredLeases: [one.leaseId, two.leaseId, one.leaseId, ''],
  });
  assert.deepEqual(
    both.results.map((result) => verdictOf(result).leaseReleased),
    [true, true],
  );
});

test('a stale worker cannot complete what somebody else has claimed since', async (t) => {
  const rig = await Rig.open(t);
  const stale = await leased(rig, ['a', 'b']);
  const other = await leased(rig, ['c'], 'q2');
  await rig.test.advanceClock(61);
  const current = await rig.pop();
  assert.deepEqual(current.ids, ['a', 'b']);
  for (const requiredLeases of [[stale.leaseId], [stale.leaseId, other.leaseId]]) {
    const refusal = await rig.refused([push('x', 'q3'), ack(stale.partitionId, 'a')], { requiredLeases });
    assert.deepEqual([refusal.reason, refusal.error, refusal.failedIndex], ['ack_rejected', EXPIRED, 1]);
  }
  assert.deepEqual(await rig.stored('q3'), []);
  await rig.done([ack(stale.partitionId, 'b')], { requiredLeases: [other.leaseId, current.leaseId] });
});

test('nobody holds the row: the only lease of the list counts, several leave the ack without one', async (t) => {
  const rig = await Rig.open(t);
  const { leaseId, partitionId } = await leased(rig, ['a', 'b', 'c']);
  await rig.test.advanceClock(61);
  const refusal = await rig.refused([ack(partitionId, 'a')], { requiredLeases: [leaseId, leaseId] });
  assert.equal(refusal.error, EXPIRED);
  await rig.done([ack(partitionId, 'a')], { requiredLeases: [leaseId, 'another'] });
  await rig.done([ack(partitionId, 'b')]);
  assert.deepEqual((await rig.pop()).ids, ['c']);
});

test('without any lease an ack acts on whatever the row holds, as on its own route', async (t) => {
  const rig = await Rig.open(t);
  const { partitionId } = await leased(rig, ['a', 'b']);
  const answer = await rig.done([ack(partitionId, 'b')]);
  assert.equal(verdictOf(answer.results[0]).leaseReleased, true);
  const nobody = await rig.refused([ack(partitionId, 'b', { group: 'unknown' })], { requiredLeases: ['x'] });
  assert.equal(nobody.error, 'consumer not found');
});

test('acks of one row with and without a lease are one decision when they mean the same lease', async (t) => {
  const rig = await Rig.open(t);
  const { leaseId, partitionId } = await leased(rig, ['a', 'b', 'c', 'd']);
  // Alone, the completion of d would pass the failed b.
  const answer = await rig.done(
    [
      ack(partitionId, 'd', { leaseId }),
      ack(partitionId, 'b', { status: 'failed' }),
      ack(partitionId, 'a', { leaseId }),
    ],
    { requiredLeases: [leaseId] },
  );
  assert.deepEqual(
    answer.results.map((result) => verdictOf(result).success),
    [true, true, true],
  );
  assert.deepEqual((await rig.pop()).ids, ['b', 'c', 'd']);
});

test('two leases on one row: the second one is judged after the first', async (t) => {
  const rig = await Rig.open(t);
  const { leaseId, partitionId } = await leased(rig, ['a', 'b']);
  const refusal = await rig.refused([
    ack(partitionId, 'a', { leaseId }),
    ack(partitionId, 'b', { leaseId: 'another' }),
  ]);
  assert.deepEqual([refusal.error, refusal.failedIndex], [EXPIRED, 1]);
  // The first releases the row, the lease-less second one acts on what is left.
  const answer = await rig.done([ack(partitionId, 'a', { leaseId, status: 'retry' }), ack(partitionId, 'a')]);
  assert.deepEqual(
    answer.results.map((result) => verdictOf(result).success),
    [true, true],
  );
  assert.deepEqual((await rig.pop()).ids, ['b']);
});

test('an acked batch is forgotten by the registry, an untouched one is not', async (t) => {
  const rig = await Rig.open(t);
  const { leaseId, partitionId } = await leased(rig, ['a', 'b']);
  assert.equal(rig.broker.registry.stats().batches, 1);
  await rig.done([push('x', 'q2')]);
  assert.equal(rig.broker.registry.stats().batches, 1);
  await rig.done([ack(partitionId, 'a', { leaseId })]);
  assert.equal(rig.broker.registry.stats().batches, 0);
});

test('ids whose hashes were purged are found in the leased messages', async (t) => {
  const rig = await Rig.open(t);
  const { leaseId, partitionId } = await leased(rig, ['a', 'b', 'c']);
  await rig.broker.db.query({ name: '', text: 'DELETE FROM queen.log_txns' });
  await rig.broker.db.query({
    name: '',
    text: 'UPDATE queen.log_partitions SET txns_start = last_offset + 1',
  });
  const answer = await rig.done([ack(partitionId, 'b', { leaseId }), push('x', 'q2')]);
  assert.equal(verdictOf(answer.results[0]).success, true);
  const refusal = await rig.refused([ack(partitionId, 'ghost', { leaseId })]);
  assert.match(refusal.error, /unknown transactionId/);
  await rig.done([ack(partitionId, 'c', { leaseId, status: 'dlq' })]);
});

test('acks by offset, for callers inside the process', async (t) => {
  const rig = await Rig.open(t);
  const { leaseId, partitionId } = await leased(rig, ['a', 'b', 'c']);
  await rig.done([ack(partitionId, '', { leaseId, offset: 1 })], { origin: 'connector' });
  const refusal = await rig.refused([ack(partitionId, '', { leaseId, offset: 3 })], { origin: 'connector' });
  assert.equal(refusal.reason, 'ack_rejected');
});
