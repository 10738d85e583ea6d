/** Two brokers on one database: any request may go to either. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';
import { Client, type Message } from './client.ts';

test('two brokers, one database', async (t) => {
  const database = await freshDatabase(t);
  const env = { DB_POOL_SIZE: '10' };
  const alone = 'each is spoken to by itself';
  const [a, b] = await Promise.all([
    startBroker({ database, env, alone }, t),
    startBroker({ database, env, alone }, t),
  ]);
  const left = new Client(a.url);
  const right = new Client(b.url);
  const item = (queue: string, transactionId: string, partition = 'Default') => ({
    queue,
    partition,
    transactionId,
    payload: transactionId,
  });

  await t.test('pushed on one, popped on the other, renewed and acked on the first', async () => {
    await left.push([item('cross', 'm1'), item('cross', 'm2')]);
    const batch = await right.pop('cross', { wait: true, timeout: 10_000 });
    assert.deepEqual(
      batch.map(({ data }) => data),
      ['m1', 'm2'],
    );
    const renewed = await left.call('POST', `/api/v1/lease/${batch[0]!.leaseId}/extend`, { seconds: 90 });
    assert.equal(renewed.body.renewed, 1);
    assert.deepEqual(await left.pop('cross'), [], 'the lease holds on both');
    const partial = await left.ack(batch[0]!);
    assert.ok(partial.success && !partial.leaseReleased, JSON.stringify(partial));
    const rest = await left.ack(batch[1]!);
    assert.ok(rest.success && rest.leaseReleased, JSON.stringify(rest));
    assert.deepEqual(await right.pop('cross'), []);
  });

  await t.test('a duplicate is one wherever it is sent, a hundred times at once', async () => {
    const pushes = Array.from({ length: 100 }, (_, i) => (i % 2 ? left : right).push([item('once', 'same')]));
    const results = (await Promise.all(pushes)).map(([result]) => result!);
    assert.equal(results.filter(({ status }) => status === 'queued').length, 1);
    assert.equal(results.filter(({ status }) => status === 'duplicate').length, 99);
    assert.equal(new Set(results.map(({ message_id }) => message_id)).size, 1);
  });

  await t.test('a pop that is parked on one is woken by a push on the other', async () => {
    const parked = right.pop('wake', { wait: true, timeout: 20_000, consumerGroup: 'g' });
    await sleep(500);
    const pushed = performance.now();
    await left.push([item('wake', 'ring')]);
    assert.deepEqual(
      (await parked).map(({ data }) => data),
      ['ring'],
    );
    assert.ok(performance.now() - pushed < 3_000);
  });

  await t.test('a queue that is deleted on one and made anew is a new queue on the other', async () => {
    for (let round = 0; round < 3; round++) {
      const [pusher, popper] = round % 2 ? [left, right] : [right, left];
      assert.equal((await pusher.push([item('reborn', 'same', 'p')]))[0]!.status, 'queued', `round ${round}`);
      const find = async (): Promise<Message[]> => popper.pop('reborn', { wait: true, timeout: 5_000 });
      const [message] = await find();
      assert.equal(message?.data, 'same', `round ${round}`);
      assert.equal((await popper.call('DELETE', '/api/v1/resources/queues/reborn')).body.deleted, true);
      const late = await pusher.ack(message!);
      assert.deepEqual([late.success, late.error], [false, 'consumer not found']);
    }
  });

  await t.test('options that are set on one are in force on the other', async () => {
    await left.configure('shared', { leaseTime: 1, retryLimit: 0 });
    await right.configure('shared', { retryDelay: 5 });
    const detail = await left.call('GET', '/api/v1/resources/queues/shared');
    const { leaseTime, retryLimit, retryDelay } = detail.body.options as Record<string, number>;
    assert.deepEqual([leaseTime, retryLimit, retryDelay], [1, 0, 5]);
    await left.push([item('shared', 'm')]);
    const [first] = await right.pop('shared', { wait: true, timeout: 5_000 });
    const verdict = await right.ack(first!, 'failed');
    assert.ok(verdict.dlq, JSON.stringify(verdict));
  });

  await t.test('the end of one hands everything to the other', async () => {
    await left.push([item('handover', 'm1'), item('handover', 'm2')]);
    const [held] = await left.pop('handover', { batch: 1, leaseSeconds: 1 });
    const parked = left.pop('nothing-here', { wait: true, timeout: 30_000 });
    await sleep(200);
    assert.equal((await a.stop()).code, 0);
    assert.deepEqual(await parked, [], 'a parked pop is answered before the end');
    const seen: Message[] = [];
    await until('the lease of the one that went away runs out', async () => {
      seen.push(...(await right.pop('handover', { wait: true, timeout: 2_000 })));
      return seen.length >= 2;
    });
    assert.deepEqual(
      seen.map(({ data }) => data),
      ['m1', 'm2'],
    );
    assert.equal(seen[0]!.deliveryAttempt, held!.deliveryAttempt + 1);
    assert.ok((await right.ackBatch(seen)).every(({ success }) => success));
  });

  for (const broker of [a, b]) assert.doesNotMatch(broker.logs(), /request failed|a bug/);
});
