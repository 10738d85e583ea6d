/** What existing client libraries do on the wire, quirks included, against a real broker. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { brokersWanted } from '../kit/round_robin.ts';
import { Client, type Message, type Pushed, type Verdict } from './client.ts';

const CREATE_DEFAULTS = {
  leaseTime: 300,
  retryLimit: 3,
  priority: 0,
  delayedProcessing: 0,
  windowBuffer: 0,
  maxSize: 0,
  retentionSeconds: 0,
  completedRetentionSeconds: 0,
  encryptionEnabled: false,
};

test('habits of clients', async (t) => {
  const broker = await startBroker({ database: await freshDatabase(t) }, t);
  const { url } = broker;
  const client = new Client(url);
  const json = { 'Content-Type': 'application/json' };

  await t.test('create sends its nine defaults and no mode', async () => {
    const body = { queue: 'tasks', namespace: null, task: null, options: CREATE_DEFAULTS };
    const { status, body: answer } = await client.call('POST', '/api/v1/configure', body);
    assert.equal(status, 200);
    assert.ok(answer.configured);
    assert.equal(answer.error, undefined);
    const options = answer.options as Record<string, unknown>;
    for (const [name, value] of Object.entries(CREATE_DEFAULTS)) assert.equal(options[name], value, name);
    assert.deepEqual([...(answer.ignored as string[])].sort(), ['maxSize', 'priority']);
  });

  await t.test('a push names its partition and its ids, and a trace id that means nothing here', async () => {
    const traceId = '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11';
    const items = [
      {
        queue: 'tasks',
        partition: 'Default',
        payload: { a: 1 },
        transactionId: '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a12',
        traceId,
      },
      {
        queue: 'tasks',
        partition: 'Default',
        payload: null,
        transactionId: 't2',
        producerSub: 'forged',
        extra: true,
      },
    ];
    const { status, body } = await client.call<Pushed[]>('POST', '/api/v1/push', { items });
    assert.equal(status, 201);
    assert.ok(Array.isArray(body) && body.every(({ status: each }) => each === 'queued'));
    const [first, second] = await client.pop('tasks', { autoAck: true });
    assert.deepEqual(
      [first, second].map((message) => [
        (message as unknown as { traceId: null }).traceId,
        (message as unknown as { producerSub: null }).producerSub,
      ]),
      [
        [null, null],
        [null, null],
      ],
    );
    assert.equal(second!.data, null);
  });

  await t.test('a missing transaction id is minted and equals the message id', async () => {
    const [pushed] = await client.push([{ queue: 'minted', payload: 1 }]);
    assert.match(pushed!.message_id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.equal(pushed!.transaction_id, pushed!.message_id);
    const [message] = await client.pop('minted');
    assert.deepEqual([message!.id, message!.transactionId], [pushed!.message_id, pushed!.message_id]);
    assert.ok((await client.ack(message!)).success);
  });

  await t.test('a consumer: every parameter, in its order; names as fetch leaves them', async () => {
    const queue = 'café & co';
    await client.push([{ queue, partition: 'küche', payload: 1, transactionId: 'x' }]);
    const parameters = 'autopilot=true&wait=true&timeout=30000&consumerGroup=bar&subscriptionMode=all';
    // The library puts pop names into the path as they are; only what fetch must encode gets encoded.
    const response = await fetch(`${url}/api/v1/pop/queue/${queue}?${parameters}&namespace=x&task=y`, {
      headers: json,
    });
    assert.equal(response.status, 200);
    assert.match(response.headers.get('content-type')!, /application\/json/);
    assert.notEqual(response.headers.get('content-length'), '0');
    const answer = (await response.json()) as { messages: Message[]; autopilot?: unknown; success: boolean };
    const [message] = answer.messages;
    for (const key of [
      'transactionId',
      'partitionId',
      'partition',
      'data',
      'leaseId',
      'consumerGroup',
      'id',
      'createdAt',
    ]) {
      assert.ok(key in message!, key);
    }
    assert.deepEqual([message!.partition, message!.consumerGroup], ['küche', 'bar']);
    const done = {
      ...pick(message!),
      status: 'completed',
      error: null,
      consumerGroup: message!.consumerGroup,
    };
    const acked = await client.call<Verdict[]>('POST', '/api/v1/ack', done);
    assert.deepEqual([acked.body.length, acked.body[0]!.success], [1, true]);
  });

  await t.test('a consumer that stops gives back what it has not started', async () => {
    await client.push(
      ['a', 'b', 'c'].map((transactionId) => ({ queue: 'giveback', transactionId, payload: 1 })),
    );
    const held = await client.pop('giveback', { batch: 3 });
    assert.ok((await client.ack(held[0]!)).success);
    const acknowledgments = held
      .slice(1)
      .map((message) => ({ ...pick(message), status: 'retry', error: null }));
    const back = await client.call<Verdict[]>('POST', '/api/v1/ack/batch', {
      acknowledgments,
      consumerGroup: null,
    });
    assert.ok(
      back.body.every(({ success }) => success),
      JSON.stringify(back.body),
    );
    const again = await client.pop('giveback', { batch: 3 });
    assert.deepEqual(
      again.map(({ transactionId }) => transactionId),
      ['b', 'c'],
    );
    await client.ackBatch(again);
  });

  const counted = { skip: brokersWanted() > 1 && 'the counter is one process’s' };
  await t.test('an ack without a lease id is taken and counted', counted, async () => {
    const unfenced = async () => {
      const text = await (await fetch(`${url}/metrics/prometheus`)).text();
      return Number(/^queen_ack_unfenced_total (\d+)$/m.exec(text)![1]);
    };
    await client.push([{ queue: 'leaseless', transactionId: 'a', payload: 1 }]);
    const [message] = await client.pop('leaseless');
    const before = await unfenced();
    const { leaseId: _leaseId, ...bare } = pick(message!);
    const acked = await client.call<Verdict[]>('POST', '/api/v1/ack', { ...bare, status: 'completed' });
    assert.ok(acked.body[0]!.success);
    assert.equal(await unfenced(), before + 1);
  });

  await t.test('renew posts an empty object, delete has a type and no body', async () => {
    await client.push([{ queue: 'renewed', payload: 1 }]);
    const [message] = await client.pop('renewed');
    const renew = await fetch(`${url}/api/v1/lease/${message!.leaseId}/extend`, {
      method: 'POST',
      body: '{}',
      headers: json,
    });
    const renewed = (await renew.json()) as { success: boolean; renewed: number; newExpiresAt: string };
    assert.deepEqual([renewed.success, renewed.renewed], [true, 1]);
    assert.ok(Date.parse(renewed.newExpiresAt) > Date.now());
    const removed = await fetch(`${url}/api/v1/resources/queues/${encodeURIComponent('renewed')}`, {
      method: 'DELETE',
      headers: json,
    });
    assert.equal(((await removed.json()) as { deleted: boolean }).deleted, true);
  });

  await t.test('a push whose answer was lost is repeated and doubles nothing', async () => {
    const items = [1, 2, 3].map((n) => ({ queue: 'repeated', transactionId: `t${n}`, payload: n }));
    const first = await client.push(items);
    const second = await client.push(items);
    assert.ok(second.every(({ status }) => status === 'duplicate'));
    assert.deepEqual(
      second.map(({ message_id }) => message_id),
      first.map(({ message_id }) => message_id),
    );
    assert.equal((await client.pop('repeated', { batch: 10 })).length, 3);
  });

  await t.test('clients before 2.0: autoAck, and status words of every kind', async () => {
    await client.push(['a', 'b'].map((transactionId) => ({ queue: 'old', transactionId, payload: 1 })));
    const [first] = await client.pop('old', { autoAck: true, batch: 1 });
    assert.deepEqual([first!.transactionId, first!.leaseId, first!.deliveryAttempt], ['a', '', 1]);
    for (const word of ['nack', 'FAILED', 'Completed']) {
      const [message] = await client.pop('old', { batch: 1 });
      assert.equal(message?.transactionId, 'b', word);
      const verdict = await client.ack(message!, word);
      assert.ok(verdict.success && verdict.leaseReleased, word);
    }
    for (const word of ['ok']) {
      const [message] = await client.pop('old', { batch: 1 });
      assert.ok((await client.ack(message!, word)).success);
    }
    assert.deepEqual(await client.pop('old'), []);
  });

  await t.test('a conflating group: the newest of each partition, a body when there is nothing', async () => {
    const conflated = { consumerGroup: 'latest', conflation: true, subscriptionMode: 'all', batch: 10 };
    for (let n = 1; n <= 3; n++) {
      await client.push(
        ['eu', 'us'].map((partition) => ({
          queue: 'prices',
          partition,
          payload: n,
          transactionId: `${partition}${n}`,
        })),
      );
    }
    const latest = await client.pop('prices', conflated);
    assert.deepEqual(latest.map(({ transactionId }) => transactionId).sort(), ['eu3', 'us3']);
    const verdicts = (await client.ackBatch(latest)) as (Verdict & { conflated?: number })[];
    assert.deepEqual(
      verdicts.map(({ success, conflated: skipped }) => [success, skipped]),
      [
        [true, 2],
        [true, 2],
      ],
    );
    const empty = await client.call('GET', '/api/v1/pop/queue/prices?consumerGroup=latest&conflation=true');
    assert.deepEqual([empty.status, empty.body.messages, empty.body.conflation], [200, [], true]);
    const silent = await client.call('GET', '/api/v1/pop/queue/prices?consumerGroup=latest');
    assert.deepEqual([silent.status, silent.body.messages, silent.body.conflation], [200, [], true]);
  });

  await t.test('probes and numbers', async () => {
    const health = await client.call('GET', '/health');
    assert.deepEqual(
      [health.status, health.body.status, health.body.database],
      [200, 'healthy', 'connected'],
    );
    assert.equal((await client.call('GET', '/health/live')).status, 200);
    assert.equal((await client.call('GET', '/status')).body.status, 'ok');
    const metrics = await client.call('GET', '/metrics');
    for (const key of ['uptime', 'requests', 'messages', 'database', 'memory', 'cpu'])
      assert.ok(key in metrics.body, key);
  });

  assert.doesNotMatch(broker.logs(), /request failed|a bug/);
});

function pick({ transactionId, partitionId, leaseId }: Message) {
  return { transactionId, partitionId, leaseId };
}
