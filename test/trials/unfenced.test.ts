/** Acks that nobody can fence off: taken, counted, and a hazard. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Client, Message, Verdict } from '../broker/client.ts';
import { consumer, counter, items, names, openRig } from './rig.ts';

test('acks without a lease id are counted, each of them, and are not fenced', async (t) => {
  const rig = await openRig(t, 1);
  const [client] = rig.clients as [Client];
  const { url } = rig.brokers[0]!;
  const unfenced = () => counter(url, 'queen_ack_unfenced_total');
  let expected = await unfenced();
  assert.equal(expected, 0);

  const raw = async (message: Message, more: Record<string, unknown>): Promise<Verdict> => {
    const { transactionId, partitionId } = message;
    const answer = await client.call<Verdict[]>('POST', '/api/v1/ack', {
      transactionId,
      partitionId,
      ...more,
    });
    return answer.body[0]!;
  };
  const held = async (queue: string, count: number) => {
    await client.push(items(queue, names('m', count)));
    return client.pop(queue, { batch: count });
  };

  await t.test('singly, in every spelling of "none", whatever the ack says', async () => {
    for (const spelling of [{}, { leaseId: null }, { leaseId: '' }]) {
      for (const status of ['completed', 'retry', 'failed', 'dlq']) {
        const [message] = (await held(`single ${JSON.stringify(spelling)} ${status}`, 1)) as [Message];
        assert.ok((await raw(message, { status, ...spelling })).success);
        expected++;
        assert.equal(await unfenced(), expected, `${JSON.stringify(spelling)} ${status}`);
      }
    }
  });
  await t.test('in a batch, those of it that have none; also those that fail', async () => {
    const batch = await held('batch', 5);
    const acknowledgments = batch.map(({ transactionId, partitionId, leaseId }, i) => ({
      transactionId,
      partitionId,
      ...(i % 2 === 0 ? { leaseId } : {}),
    }));
    acknowledgments.push({ transactionId: 'nobody', partitionId: batch[0]!.partitionId });
    acknowledgments.push({ transactionId: 'm0', partitionId: '999999999' });
    const { body } = await client.call<Verdict[]>('POST', '/api/v1/ack/batch', { acknowledgments });
    assert.equal(body.length, 7);
    expected += 4;
    assert.equal(await unfenced(), expected);
  });
  await t.test('those with a lease id are not', async () => {
    const batch = await held('fenced', 3);
    assert.ok((await client.ack(batch[0]!)).success);
    assert.ok((await client.ackBatch(batch.slice(1))).every(({ success }) => success));
    const wrong = await raw(batch[0]!, { leaseId: '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11' });
    assert.equal(wrong.success, false);
    assert.equal(await unfenced(), expected);
  });
  await t.test('and this is why: it settles what somebody else holds', async () => {
    const [first] = (await held('hazard', 1)) as [Message];
    await rig.database.advanceClock(3600);
    const [second] = (await client.pop('hazard', { wait: true, timeout: 5_000 })) as [Message];
    assert.equal((await client.ack(first)).error, 'invalid or expired lease');
    assert.ok((await raw(first, { status: 'completed' })).success);
    assert.equal((await consumer(rig.db, second.partitionId)).committed, 0);
    assert.equal((await client.ack(second)).success, false);
    assert.equal(await unfenced(), expected + 1);
  });
});
