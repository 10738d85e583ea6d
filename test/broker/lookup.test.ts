/** What a person looks for among many: queues and partitions by a part of their name and in an order, a message by its id. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Counted, type Json, openCounted } from './counted.ts';

async function push(live: Counted, items: [queue: string, partition: string, transactionId: string][]) {
  const { status, body } = await live.ask('POST', '/api/v1/push', {
    items: items.map(([queue, partition, transactionId]) => ({
      queue,
      partition,
      transactionId,
      payload: 1,
    })),
  });
  assert.equal(status, 201, JSON.stringify(body));
}

async function names(live: Counted, path: string): Promise<string[]> {
  const page = await live.get(path);
  return (page.partitions ?? page.queues).map(({ name }: Json) => name);
}

test('queues by a part of their name, and by each of their figures', async (t) => {
  const live = await openCounted(t);
  await push(live, [
    ['Shop.Orders', 'a', '1'],
    ['shop.mail', 'a', '1'],
    ['shop.mail', 'b', '1'],
    ['audit_%', 'a', '1'],
    ['audit_%', 'a', '2'],
    ['audit_%', 'a', '3'],
  ]);
  await live.ask('POST', '/api/v1/stats/refresh');
  const at = '/api/v1/status/queues';
  assert.deepEqual(await names(live, at), ['Shop.Orders', 'audit_%', 'shop.mail']);
  assert.deepEqual(await names(live, `${at}?order=desc`), ['shop.mail', 'audit_%', 'Shop.Orders']);
  assert.deepEqual(await names(live, `${at}?search=SHOP`), ['Shop.Orders', 'shop.mail']);
  assert.deepEqual(await names(live, `${at}?search=%25`), ['audit_%'], 'no pattern');
  assert.deepEqual(await names(live, `${at}?search=&sort=`), ['Shop.Orders', 'audit_%', 'shop.mail']);
  assert.deepEqual(await names(live, `${at}?sort=partitions&order=desc`), [
    'shop.mail',
    'Shop.Orders',
    'audit_%',
  ]);
  for (const sort of ['total', 'pending']) {
    assert.deepEqual(await names(live, `${at}?sort=${sort}&order=desc&limit=1`), ['audit_%'], sort);
    assert.deepEqual(await names(live, `${at}?sort=${sort}&offset=1`), ['shop.mail', 'audit_%'], sort);
  }
  for (const sort of ['processing', 'deadLetter', 'retainedBytes']) {
    assert.equal((await names(live, `${at}?sort=${sort}&order=desc`)).length, 3, sort);
  }
  const page = await live.get(`${at}?search=shop&limit=1`);
  assert.deepEqual(page.pagination, { limit: 1, offset: 0, total: 2 });
  assert.equal(page.queues[0].retainedBytes, 0);
});

test('partitions by a part of their name, by their backlog, by their last write', async (t) => {
  const live = await openCounted(t);
  for (const partition of ['Eu-1', 'us-1', 'eu-2', '']) await push(live, [['q', partition, '1']]);
  await live.database.advanceClock(60);
  await push(live, [
    ['q', 'us-1', '2'],
    ['other', 'eu-9', '1'],
  ]);
  await live.client.pop(
    'q',
    {
      consumerGroup: 'g',
      subscriptionMode: 'all',
      autoAck: true,
    },
    'eu-2',
  );
  const at = '/api/v1/status/queues/q';
  assert.deepEqual(await names(live, at), ['', 'Eu-1', 'eu-2', 'us-1']);
  assert.deepEqual(await names(live, `${at}?order=desc&limit=2`), ['us-1', 'eu-2']);
  assert.deepEqual(await names(live, `${at}?search=EU`), ['Eu-1', 'eu-2']);
  assert.deepEqual(await names(live, `${at}?sort=pending`), ['eu-2', '', 'Eu-1', 'us-1']);
  assert.deepEqual(await names(live, `${at}?sort=pending&order=desc&search=-1`), ['us-1', 'Eu-1']);
  assert.deepEqual(await names(live, `${at}?sort=lastActivity&order=desc&limit=1`), ['us-1']);
  assert.equal((await names(live, `${at}?sort=lastActivity`)).at(-1), 'us-1');
  const page = await live.get(`${at}?search=eu&offset=1`);
  assert.deepEqual(page.pagination, { limit: 1000, offset: 1, total: 2 });
  assert.deepEqual(page.totals.partitions, 4, 'of the whole queue');
  assert.equal(page.queue.options.retentionEnabled, false);
});

test('one partition, with everybody who consumes it', async (t) => {
  const live = await openCounted(t);
  await push(live, [
    ['q', 'a/b', '1'],
    ['q', 'a/b', '2'],
    ['q', 'a/b', '3'],
    ['q', '', '1'],
  ]);
  const some = { subscriptionMode: 'all' };
  await live.client.pop('q', { ...some, consumerGroup: 'done', autoAck: true }, 'a/b');
  const [leased] = await live.client.pop('q', { ...some, consumerGroup: 'busy', batch: 2 }, 'a/b');
  const path = '/api/v1/status/queues/q/partitions/a%2Fb';
  const { groups, ...rest } = await live.get(path);
  assert.equal(rest.queue, 'q');
  assert.equal(rest.name, 'a/b');
  assert.deepEqual([rest.logStartOffset, rest.nextOffset], [0, 3]);
  assert.deepEqual(rest.messages, {
    total: 3,
    pending: 3,
    processing: 2,
    completed: 0,
    failed: null,
    deadLetter: 0,
  });
  const [busy, done] = groups;
  assert.deepEqual(done, {
    group: 'done',
    nextOffset: 3,
    offsetLag: 0,
    totalConsumed: 3,
    leaseActive: false,
    leaseUpToOffset: null,
    leaseExpiresAt: null,
    workerId: null,
  });
  assert.deepEqual(
    [busy.group, busy.nextOffset, busy.offsetLag, busy.leaseActive, busy.leaseUpToOffset, busy.workerId],
    ['busy', 0, 3, true, 1, leased!.leaseId],
  );
  assert.equal((await live.get('/api/v1/status/queues/q/partitions/')).name, '', 'an empty name is one');
  for (const missing of ['q/partitions/none', 'none/partitions/a%2Fb']) {
    const { status, body } = await live.ask<Json>('GET', `/api/v1/status/queues/${missing}`);
    assert.deepEqual([status, body.code], [404, 'partition_not_found'], missing);
  }
});

test('a message is found by its id, wherever it is', async (t) => {
  const live = await openCounted(t);
  await live.client.configure('q', { dedupWindowSeconds: 0 });
  await push(live, [
    ['q', 'a', 'twice'],
    ['q', 'b', 'other'],
    ['r', 'c', 'twice'],
  ]);
  await live.database.advanceClock(60);
  await push(live, [['q', 'a', 'twice']]);
  const find = async (query: Record<string, string>) => {
    const { messages } = await live.get(`/api/v1/messages/find?${new URLSearchParams(query)}`);
    return messages.map(({ queue, partition, offset, deadLetter }: Json) => [
      queue,
      partition,
      offset,
      deadLetter,
    ]);
  };
  const all = [
    ['q', 'a', 1, false],
    ['q', 'a', 0, false],
    ['r', 'c', 0, false],
  ];
  const byPlace = (rows: unknown[]) => rows.map((row) => JSON.stringify(row)).sort();
  const found = await find({ transactionId: 'twice' });
  assert.deepEqual(found[0], all[0], 'the newest first');
  assert.deepEqual(byPlace(found), byPlace(all));
  assert.deepEqual(await find({ transactionId: 'twice', queue: 'r' }), [['r', 'c', 0, false]]);
  assert.deepEqual(await find({ transactionId: 'twice', limit: '1' }), [all[0]]);
  assert.deepEqual(await find({ transactionId: 'never' }), []);
  assert.deepEqual(await find({ transactionId: 'twice', queue: 'none' }), []);

  const [message] = await live.client.pop(
    'q',
    {
      consumerGroup: 'g',
      subscriptionMode: 'all',
    },
    'b',
  );
  await live.client.ack(message!, 'dlq', { error: 'no good' });
  assert.deepEqual(await find({ transactionId: 'other' }), [['q', 'b', 0, true]]);
  // What retention has taken from the log is found where a dead letter keeps it.
  await live.client.configure('q', { retentionEnabled: true, retentionSeconds: 1 });
  await live.database.advanceClock(8 * 86_400);
  await live.broker.retention.pass();
  assert.deepEqual(await find({ transactionId: 'other' }), [['q', 'b', 0, true]]);
  const { partitionId } = message!;
  const detail = await live.get(`/api/v1/messages/${partitionId}/other`);
  assert.deepEqual([detail.offset, detail.status], [0, 'dead_letter']);

  const stranger = '00000000-0000-0000-0000-0000000000aa';
  assert.deepEqual(await live.broker.messages.find(stranger, null, 'other', 10), []);
});

test('what cannot be read is refused by name', async (t) => {
  const live = await openCounted(t);
  const cases: [string, string][] = [
    ['/api/v1/status/queues?sort=size', 'sort'],
    ['/api/v1/status/queues?order=up', 'order'],
    [`/api/v1/status/queues?search=${'x'.repeat(256)}`, 'search'],
    ['/api/v1/status/queues?search=%00', 'search'],
    ['/api/v1/status/queues?search=a&search=b', 'search'],
    ['/api/v1/status/queues/q?sort=total', 'sort'],
    ['/api/v1/messages/find', 'transactionId'],
    ['/api/v1/messages/find?transactionId=', 'transactionId'],
    ['/api/v1/messages/find?transactionId=%00', 'transactionId'],
    ['/api/v1/messages/find?transactionId=a&limit=x', 'limit'],
  ];
  for (const [path, field] of cases) {
    const { status, body } = await live.ask<Json>('GET', path);
    assert.deepEqual([status, body.code, body.field], [400, 'bad_query', field], path);
  }
});
