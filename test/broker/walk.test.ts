/** One broker, the way its users walk: push, pop, ack, nack, renew, groups, dead letters, queues. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { statement } from '../../packages/broker/src/store/database.ts';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { brokersWanted } from '../kit/round_robin.ts';
import { Client, type Message } from './client.ts';

const DEAD = statement(
  'walk_dead_letters',
  `SELECT d.transaction_id AS txn, d.error, convert_from(d.payload, 'UTF8') AS payload
     FROM queen.log_dlq d ORDER BY d.transaction_id`,
);

test('the walk', async (t) => {
  const database = await freshDatabase(t);
  const broker = await startBroker({ database }, t);
  const client = new Client(broker.url);
  const db = await database.open({ poolSize: 1 });
  t.after(() => db.close());

  const ids = (messages: Message[]) => messages.map(({ transactionId }) => transactionId);
  const items = (queue: string, txns: string[], partition = 'Default') =>
    txns.map((transactionId) => ({ queue, partition, transactionId, payload: { txn: transactionId } }));

  await t.test('what is pushed is popped in order, acked once, and gone for its group', async () => {
    const pushed = await client.push(items('orders', ['a', 'b', 'c']));
    assert.deepEqual(
      pushed.map(({ index, status, queueName, transaction_id }) => [
        index,
        status,
        queueName,
        transaction_id,
      ]),
      [
        [0, 'queued', 'orders', 'a'],
        [1, 'queued', 'orders', 'b'],
        [2, 'queued', 'orders', 'c'],
      ],
    );
    const batch = await client.pop('orders');
    assert.deepEqual(ids(batch), ['a', 'b', 'c']);
    assert.deepEqual(
      batch.map(({ id }) => id),
      pushed.map(({ message_id }) => message_id),
    );
    for (const message of batch) {
      assert.match(message.partitionId, /^\d+$/);
      assert.match(message.leaseId, /^[0-9a-f-]{36}$/);
      assert.match(message.createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
      assert.equal(message.consumerGroup, '__QUEUE_MODE__');
      assert.equal(message.deliveryAttempt, 1);
      assert.equal(message.partition, 'Default');
    }
    assert.deepEqual(await client.pop('orders'), [], 'leased messages are invisible');
    const verdicts = await client.ackBatch(batch);
    assert.ok(verdicts.every(({ success, error, noop }) => success && error === null && !noop));
    assert.ok(verdicts.at(-1)!.leaseReleased);
    assert.deepEqual(await client.pop('orders'), []);
    const repeated = await client.ackBatch(batch);
    assert.ok(
      repeated.every(({ success, noop }) => !success || noop),
      JSON.stringify(repeated),
    );
  });

  await t.test('a repeated push is a duplicate with the first id and changes nothing', async () => {
    const [first] = await client.push(items('dedup', ['x']));
    const again = await client.push([
      { queue: 'dedup', transactionId: 'x', payload: 'another' },
      { queue: 'dedup', transactionId: 'y', payload: 1 },
      { queue: 'dedup', transactionId: 'y', payload: 2 },
    ]);
    assert.deepEqual(
      again.map(({ status }) => status),
      ['duplicate', 'queued', 'duplicate'],
    );
    assert.equal(again[0]!.message_id, first!.message_id);
    assert.equal(again[2]!.message_id, again[1]!.message_id);
    const batch = await client.pop('dedup', { autoAck: true });
    assert.deepEqual(
      batch.map(({ data }) => data),
      [{ txn: 'x' }, 1],
    );
    assert.equal(batch[0]!.leaseId, '');
    assert.deepEqual(await client.pop('dedup', { autoAck: true }), []);
  });

  await t.test('a nack redelivers from there with one more attempt, a retry costs nothing', async () => {
    await client.push(items('nack', ['a', 'b', 'c']));
    const first = await client.pop('nack');
    const mixed = await client.ackBatch(first, ['completed', 'failed', 'completed']);
    assert.ok(
      mixed.every(({ success, leaseReleased, dlq }) => success && leaseReleased && !dlq),
      JSON.stringify(mixed),
    );
    const second = await client.pop('nack');
    assert.deepEqual(
      ids(second),
      ['b', 'c'],
      'what lies below the signal is committed, the rest comes again',
    );
    const retried = await client.ack(second[0]!, 'retry');
    assert.ok(retried.success && retried.leaseReleased);
    const third = await client.pop('nack');
    assert.deepEqual(ids(third), ['b', 'c']);
    assert.ok(third[0]!.deliveryAttempt > second[0]!.deliveryAttempt);
    assert.ok((await client.ackBatch(third)).every(({ success }) => success));
  });

  await t.test('the budget ends in a dead letter, and the next message follows', async () => {
    await client.configure('poison', { retryLimit: 2, leaseTime: 60 });
    await client.push(items('poison', ['bad', 'good']));
    for (let failure = 1; failure <= 3; failure++) {
      const [head] = await client.pop('poison', { batch: 1 });
      assert.equal(head!.transactionId, 'bad', `failure ${failure}`);
      const verdict = await client.ack(head!, 'failed', { error: `boom ${failure}` });
      assert.equal(verdict.dlq, failure === 3, JSON.stringify(verdict));
    }
    const [next] = await client.pop('poison');
    assert.equal(next!.transactionId, 'good');
    const sent = await client.ack(next!, 'dlq', { error: 'on purpose\0' });
    assert.ok(sent.success && sent.dlq);
    const letters = await db.query<{ txn: string; error: string; payload: string }>(DEAD, []);
    assert.deepEqual(letters, [
      { txn: 'bad', error: 'boom 3', payload: '{"txn":"bad"}' },
      { txn: 'good', error: 'on purpose\ufffd', payload: '{"txn":"good"}' },
    ]);
    assert.deepEqual(await client.pop('poison'), []);
  });

  await t.test('a lease runs out, or is renewed in time; an old lease is refused', async () => {
    await client.push(items('lease', ['a']));
    const [first] = await client.pop('lease', { leaseSeconds: 1 });
    const renewed = await client.call('POST', `/api/v1/lease/${first!.leaseId}/extend`, { seconds: 3 });
    assert.deepEqual([renewed.body.success, renewed.body.renewed], [true, 1]);
    const until = Date.parse(renewed.body.newExpiresAt as string);
    assert.equal(renewed.body.expiresAt, renewed.body.newExpiresAt);
    await sleep(1_300);
    assert.deepEqual(await client.pop('lease'), [], 'the renewal holds');
    const [second] = await client.pop('lease', { wait: true, timeout: 10_000 });
    assert.ok(Date.now() >= until - 100, 'not before the lease ran out');
    assert.equal(second!.deliveryAttempt, 2);
    const late = await client.ack(first!);
    assert.deepEqual([late.success, late.error], [false, 'invalid or expired lease']);
    const gone = await client.call('POST', `/api/v1/lease/${first!.leaseId}/extend`, {});
    assert.deepEqual([gone.status, gone.body.success, gone.body.renewed], [200, false, 0]);
    assert.ok((await client.ack(second!)).success);
  });

  await t.test('groups are independent; new starts behind what is there, all before it', async () => {
    await client.push(items('groups', ['old']));
    assert.deepEqual(await client.pop('groups', { consumerGroup: 'late' }), []);
    await client.push(items('groups', ['fresh']));
    await client.push(items('groups', ['elsewhere'], 'p2'));
    const late = await client.pop('groups', {
      consumerGroup: 'late',
      partitions: 0,
      wait: true,
      timeout: 5000,
    });
    const rest = await client.pop('groups', { consumerGroup: 'late', partitions: 0 });
    assert.deepEqual(ids([...late, ...rest]).sort(), ['elsewhere', 'fresh']);
    const all = await client.pop('groups', { consumerGroup: 'all', subscriptionMode: 'all', partitions: 0 });
    assert.deepEqual(ids(all).sort(), ['elsewhere', 'fresh', 'old']);
    assert.equal(new Set(all.map(({ leaseId }) => leaseId)).size, 1, 'one lease for the whole answer');
    assert.ok((await client.ackBatch(all)).every(({ success }) => success));
    const since = await client.pop('groups', {
      consumerGroup: 'since',
      subscriptionFrom: all.find(({ transactionId }) => transactionId === 'fresh')!.createdAt,
      partitions: 0,
    });
    assert.deepEqual(ids(since).sort(), ['elsewhere', 'fresh']);
  });

  await t.test('a parked pop is woken by a push, pinned, by queue and by namespace', async () => {
    await client.configure('wake.me', { namespace: 'wake', task: 'me' });
    const wait = { wait: true, timeout: 20_000 };
    const begin = performance.now();
    const parked = [
      client.pop('wake.me', { ...wait, consumerGroup: 'by-queue' }),
      client.pop('wake.me', { ...wait, consumerGroup: 'by-partition' }, 'p'),
      client.popAt('/api/v1/pop', { ...wait, namespace: 'wake', task: 'me', consumerGroup: 'by-scope' }),
    ];
    // Their first contact comes before the push: a group that starts at "new" must not miss it.
    await sleep(500);
    await client.push(items('wake.me', ['ring'], 'p'));
    for (const messages of await Promise.all(parked)) assert.deepEqual(ids(messages), ['ring']);
    assert.ok(performance.now() - begin < 10_000);
    const empty = performance.now();
    assert.deepEqual(
      await client.pop('wake.me', { wait: true, timeout: 300, consumerGroup: 'by-queue' }),
      [],
    );
    const took = performance.now() - empty;
    assert.ok(took >= 290 && took < 3_000, `${took} ms`);
  });

  await t.test('a batch is filled over segments and split over partitions', async () => {
    for (let i = 0; i < 20; i++) await client.push(items('fill', [`a${i}`], 'a'));
    for (let i = 0; i < 3; i++) await client.push(items('fill', [`b${i}`, `c${i}`], 'b'));
    const ten = await client.pop('fill', { batch: 10, consumerGroup: 'g', subscriptionMode: 'all' }, 'a');
    assert.deepEqual(
      ids(ten),
      Array.from({ length: 10 }, (_, i) => `a${i}`),
    );
    await client.ackBatch(ten);
    const both = await client.pop('fill', {
      batch: 100,
      partitions: 2,
      consumerGroup: 'g',
      subscriptionMode: 'all',
    });
    assert.equal(both.length, 16);
    await client.ackBatch(both);
    assert.deepEqual(await client.pop('fill', { consumerGroup: 'g', partitions: 0 }), []);
  });

  await t.test('queues are configured, listed, inspected, measured', async () => {
    const configured = await client.configure('shop.orders', {
      leaseTime: 7,
      priority: 5,
      namespace: 'shop',
    });
    assert.equal((configured.options as Record<string, number>).leaseTime, 7);
    assert.equal((configured.options as Record<string, number>).retryLimit, 3);
    assert.deepEqual(
      [configured.namespace, configured.storage, configured.ignored],
      ['shop', 'segments', ['priority']],
    );
    await client.configure('shop.orders', { retryLimit: 9 });
    await client.push(items('shop.orders', ['a', 'b', 'c'], 'eu'));
    await client.pop('shop.orders', { batch: 1 });
    const detail = await client.call('GET', '/api/v1/resources/queues/shop.orders');
    const options = detail.body.options as Record<string, unknown>;
    assert.deepEqual([options.leaseTime, options.retryLimit, options.namespace], [7, 9, 'shop']);
    assert.deepEqual(detail.body.totals, {
      total: 3,
      pending: 3,
      processing: 1,
      completed: 0,
      failed: null,
      deadLetter: 0,
    });
    const depth = (await client.call('GET', '/api/v1/resources/queues/shop.orders/depth')).body;
    assert.deepEqual([depth.pending, depth.processing, depth.ready], [3, 1, 2]);
    const list = (await client.call<{ queues: { name: string }[] }>('GET', '/api/v1/resources/queues')).body
      .queues;
    assert.ok(list.some(({ name }) => name === 'shop.orders'));
    const namespaces = await client.call<{ namespaces: { namespace: string }[] }>(
      'GET',
      '/api/v1/resources/namespaces',
    );
    assert.ok(namespaces.body.namespaces.some(({ namespace }) => namespace === 'shop'));
    await client.configure('shop.orders', { leaseTime: null });
    const replaced = await client.call('POST', '/api/v1/configure', {
      queue: 'shop.orders',
      mode: 'replace',
    });
    assert.deepEqual(
      [(replaced.body.options as Record<string, number>).retryLimit, replaced.body.namespace],
      [3, ''],
      'replace puts what is absent back to its default',
    );
  });

  await t.test('a queue that is deleted and pushed to again at once is a new queue', async () => {
    for (let round = 0; round < 5; round++) {
      const pushed = await client.push(items('reborn', ['same']));
      assert.equal(pushed[0]!.status, 'queued', `round ${round}: no dedup hash of the old queue`);
      const [message] = await client.pop('reborn', { consumerGroup: 'g', subscriptionMode: 'all' });
      assert.equal(message?.transactionId, 'same', `round ${round}: no cursor and no lease of the old queue`);
      assert.equal(message!.deliveryAttempt, 1);
      const deleted = await client.call('DELETE', '/api/v1/resources/queues/reborn');
      assert.deepEqual(deleted.body, { deleted: true, queue: 'reborn', existed: true });
      const late = await client.ack(message!);
      assert.deepEqual([late.success, late.error], [false, 'consumer not found']);
    }
    const again = await client.call('DELETE', '/api/v1/resources/queues/reborn');
    assert.deepEqual([again.status, again.body.deleted, again.body.existed], [200, false, false]);
    const missing = await client.call('GET', '/api/v1/resources/queues/reborn');
    assert.deepEqual([missing.status, missing.body.error], [404, 'Queue not found']);
  });

  await t.test('a consumer that hangs up holds nothing', async () => {
    await client.push(items('hangup', ['a']));
    const held = await client.pop('hangup', { consumerGroup: 'g', subscriptionMode: 'all' });
    const impatient = new AbortController();
    const poll = fetch(`${broker.url}/api/v1/pop/queue/hangup?consumerGroup=g&wait=true&timeout=30000`, {
      signal: impatient.signal,
    });
    await sleep(200);
    impatient.abort();
    await assert.rejects(poll);
    await client.ack(held[0]!, 'retry');
    const [again] = await client.pop('hangup', { consumerGroup: 'g', wait: true, timeout: 5_000 });
    assert.equal(again?.transactionId, 'a', 'the message did not go to the caller that had left');
    assert.ok((await client.ack(again!)).success);
  });

  const numbers = { skip: brokersWanted() > 1 && 'the numbers are one process’s' };
  await t.test('the numbers say what happened', numbers, async () => {
    const text = await (await fetch(`${broker.url}/metrics/prometheus`)).text();
    const value = (name: string) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]);
    assert.ok(value('queen_process_push_messages_total') > 50);
    assert.ok(value('queen_process_pop_messages_total') > 50);
    assert.ok(value('queen_process_ack_messages_total') > 20);
    assert.ok(value('queen_db_pool_size') > 0);
    assert.equal(value('queen_corrupt_segments_total'), 0);
    assert.equal((await client.call('GET', '/health')).status, 200);
    assert.doesNotMatch(broker.logs(), /request failed|a bug/);
  });

  assert.equal((await broker.stop()).code, 0);
});
