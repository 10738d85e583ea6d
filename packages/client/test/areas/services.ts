import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PushError, RefusedError } from '../../src/index.ts';
import { broker, clientOf, until } from '../setup.ts';

interface Order {
  n: number;
}

const all = { subscriptionMode: 'all', batch: 10 } as const;

test('push, pop, ack: once each, in order, with types', async (t) => {
  const client = await clientOf(t);
  const orders = client.queue<Order>('basic').partition('c-1');
  const [first] = await orders.push([{ transactionId: 'o-1', data: { n: 1 } }]);
  const [again] = await orders.push({ transactionId: 'o-1', data: { n: 1 } });
  assert.deepEqual([first!.status, again!.status], ['queued', 'duplicate']);
  assert.equal(again!.messageId, first!.messageId);
  await orders.push([{ data: { n: 2 } }, { data: { n: 3 }, partition: 'c-2' }]);
  const taken = await orders.group('g').pop(all);
  assert.deepEqual(
    taken.map(({ data }) => data.n),
    [1, 2],
  );
  const { queue, partition, consumerGroup, offset, deliveryAttempt } = taken[0]!;
  assert.deepEqual([queue, partition, consumerGroup, offset, deliveryAttempt], ['basic', 'c-1', 'g', 0, 1]);
  assert.ok((await client.renew(taken[0]!, 120))! > new Date(Date.now() + 60_000));
  const acked = await client.ack(taken);
  assert.deepEqual(
    acked.map(({ success }) => success),
    [true, true],
  );
  assert.equal(await client.renew(taken[0]!), null);
  assert.deepEqual(await orders.group('g').pop(), []);
  assert.deepEqual(await orders.push([]), []);
  await assert.rejects(orders.push({} as { data: Order }), TypeError);
  await assert.rejects(orders.push({ data: { n: 1 }, transactionId: 'a\u0000' }), RefusedError);
});

test('several queues by namespace; autoAck leaves nothing to ack', async (t) => {
  const client = await clientOf(t);
  await client.queue('shop.mail').push({ data: 1 });
  await client.queue('shop.print').push({ data: 2 });
  const shop = client.queues<number>({ namespace: 'shop', group: 'g' });
  const seen = new Set<number>();
  await until(async () => {
    for (const { data, leaseId } of await shop.pop({ ...all, partitions: 0, autoAck: true })) {
      assert.equal(leaseId, '');
      seen.add(data);
    }
    return seen.size === 2;
  });
  assert.throws(() => client.queues({ group: 'g' }), TypeError);
});

test('queues: configure, inspect, depth, delete', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue('made');
  const { options, ignored } = await queue.configure({ leaseTime: 7, retryLimit: 1, priority: 4 });
  assert.deepEqual([options.leaseTime, options.retryLimit, ignored], [7, 1, ['priority']]);
  const replaced = await queue.configure({ retryLimit: 2 }, { replace: true });
  assert.equal(replaced.options.leaseTime, 300);
  await queue.push([{ data: 1 }, { data: 2 }]);
  assert.equal((await queue.inspect()).totals.pending, 2);
  assert.equal((await queue.group('g').depth()).pending, 2);
  assert.ok((await client.admin.queues()).some(({ name }) => name === 'made'));
  assert.equal(await queue.delete(), true);
  assert.equal(await queue.delete(), false);
  await assert.rejects(queue.inspect(), { name: 'RefusedError', code: 'queue_not_found', status: 404 });
  await assert.rejects(queue.configure({ leaseTime: 'x' as unknown as number }), RefusedError);
});

test('dead letters: list, inspect, retry, replay, delete, clear', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<Order>('bad').group('g');
  await queue.push([1, 2, 3, 4].map((n) => ({ transactionId: `t-${n}`, data: { n } })));
  for (let n = 1; n <= 4; n++) {
    const [message] = await queue.pop({ subscriptionMode: 'all', batch: 1 });
    const [result] = await client.ack(message!, 'dlq', { error: new Error(`bad ${n}`) });
    assert.equal(result!.dlq, true);
  }
  const letters = await queue.deadLetters.list();
  assert.deepEqual(
    letters.map(({ errorMessage }) => errorMessage),
    ['bad 4', 'bad 3', 'bad 2', 'bad 1'],
  );
  assert.equal(await queue.deadLetters.count(), 4);
  assert.equal((await client.messages.get<Order>(letters[0]!))?.status, 'dead_letter');
  assert.equal((await queue.deadLetters.replay(letters[3]!)).result, 'moved');
  assert.equal((await queue.deadLetters.retry(letters[2]!)).result, 'moved');
  await assert.rejects(queue.deadLetters.replay(letters[3]!), { code: 'message_not_found' });
  await queue.deadLetters.delete(letters[1]!);
  assert.equal(await queue.deadLetters.replayAll(), 1);
  assert.equal(await queue.deadLetters.clear(), 0);
  assert.deepEqual(
    (await queue.pop(all)).map(({ data }) => data.n),
    [1, 2, 4],
  );
});

test('groups: list, lag, seek, delete', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue('seek').group('s');
  await queue.push([{ data: 0 }, { data: 1 }, { data: 2 }]);
  await client.ack(await queue.pop(all));
  assert.equal(await client.groups.lag('s'), 0);
  assert.equal(await client.groups.seek('s', 'seek', { to: 'beginning' }), 1);
  assert.equal(await client.groups.lag('s', { queue: 'seek' }), 3);
  assert.equal(await client.groups.seek('s', 'seek', { to: 2 }, { partition: 'Default' }), 1);
  assert.deepEqual(
    (await queue.pop(all)).map(({ data }) => data),
    [2],
  );
  await client.groups.seek('s', 'seek', { to: new Date(0) });
  await client.groups.seek('s', 'seek', { to: 'end' });
  assert.equal(await client.groups.lag('s'), 0);
  assert.ok((await client.groups.list()).some(({ name, queueName }) => name === 's' && queueName === 'seek'));
  assert.deepEqual(await client.groups.lagging({ minLagSeconds: 3600 }), []);
  assert.equal(await client.groups.startFrom('s', new Date()), 1);
  assert.equal(await client.groups.delete('s', { queue: 'seek' }), 1);
  assert.deepEqual(await client.groups.inspect('s'), {});
  await assert.rejects(client.groups.seek('s', 'nowhere', { to: 'end' }), { code: 'queue_not_found' });
});

test('keys: life, versions, prefixes, counters, updates that meet', async (t) => {
  const client = await clientOf(t);
  const kv = client.kv('test');
  const put = await kv.put('a', { x: 1 }, { ttlSeconds: 60 });
  const got = await kv.get<{ x: number }>('a');
  assert.deepEqual([got?.value, got?.version], [{ x: 1 }, put.version]);
  assert.notEqual(got?.expiresAt, null);
  assert.equal(await kv.get('none'), null);
  const lost = await kv.put('a', { x: 2 }, { expect: put.version + 1_000 });
  assert.deepEqual([lost.applied, lost.reason, lost.value], [false, 'version', { x: 1 }]);
  assert.equal((await kv.putIfAbsent('a', 1)).reason, 'exists');
  assert.equal((await kv.incr('n', 5, { max: 6 })).value, 5);
  assert.equal((await kv.incr('n', 5, { max: 6 })).reason, 'limit');
  const counts = client.kv<number>('counts');
  await Promise.all(Array.from({ length: 8 }, () => counts.update('u', (old) => (old ?? 0) + 1)));
  assert.equal((await counts.get('u'))?.value, 8);
  await client.kvBatch(
    Array.from(
      { length: 60 },
      (_, n) => ({ op: 'put', ns: 'page', key: `k-${n}`, value: n, forever: true }) as const,
    ),
  );
  let rows = 0;
  for await (const { value } of client.kv<number>('page').list('k-')) rows += value >= 0 ? 1 : 0;
  assert.equal(rows, 60);
  assert.deepEqual([...(await client.kv('page').getMany(['k-1', 'k-2', 'x'])).keys()], ['k-1', 'k-2']);
  assert.equal((await kv.delete('a')).applied, true);
  const required = {
    op: 'put',
    ns: 'test',
    key: 'n',
    value: 1,
    forever: true,
    expect: 0,
    required: true,
  } as const;
  await assert.rejects(client.kvBatch([required]), { code: 'kv_precondition', reason: 'exists' });
});

test('timers: after a while, at an instant, replaced, taken back', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<{ text: string }>('later');
  const far = await queue.timers.schedule('far', {
    data: { text: 'größer ☃' },
    at: new Date(Date.now() + 3_600_000),
  });
  assert.equal(far.status, 'scheduled');
  assert.ok(Math.abs(Date.parse(far.deliverAt!) - Date.now() - 3_600_000) < 10_000);
  assert.equal((await queue.timers.get('far'))?.data.text, 'größer ☃');
  assert.equal(
    (await queue.timers.schedule('far', { data: { text: 'b' }, delayMs: 7_200_000 })).status,
    'rescheduled',
  );
  const keys: string[] = [];
  for await (const { key } of queue.timers.list()) keys.push(key);
  assert.deepEqual([keys, await queue.timers.count('fa')], [['far'], 1]);
  assert.equal((await queue.timers.cancel('far')).status, 'cancelled');
  assert.equal((await queue.timers.cancel('far')).status, 'absent');
  assert.equal(await queue.timers.get('far'), null);
  await queue
    .partition('p')
    .timers.schedule('soon', { data: { text: 'now' }, delayMs: 1, transactionId: 'soon-1' });
  const [fired] = await queue.group('g').pop({ ...all, waitMs: 10_000 });
  assert.deepEqual([fired!.data.text, fired!.partition, fired!.transactionId], ['now', 'p', 'soon-1']);
  await assert.rejects(queue.timers.schedule('x', { data: { text: '' }, at: 'never' }), RangeError);
});

test('a transaction: all of it or nothing', async (t) => {
  const client = await clientOf(t);
  const input = client.queue<Order>('in').group('g');
  await input.push([{ data: { n: 1 } }, { data: { n: 2 } }]);
  const [first, second] = await input.pop(all);
  const { results } = await client
    .transaction()
    .ack(first!)
    .push<Order>('out', { data: { n: 10 }, partition: 'p', transactionId: 'out-1' })
    .kv({ op: 'incr', ns: 'tx', key: 'done', delta: 1, forever: true })
    .schedule('out', 'remind', { data: { n: 11 }, delayMs: 3_600_000 })
    .commit();
  assert.deepEqual(
    results.map(({ type }) => type),
    ['push', 'ack', 'kv', 'timer'],
  );
  const twice = client
    .transaction()
    .push<Order>('out', { data: { n: 10 }, partition: 'p', transactionId: 'out-1' })
    .ack(second!);
  await assert.rejects(twice.commit(), { name: 'RefusedError', code: 'duplicate' });
  await assert.rejects(twice.commit(), { code: 'committed' });
  const stale = client.transaction().ack({ ...second!, leaseId: '00000000-0000-7000-8000-000000000000' });
  await assert.rejects(stale.commit(), { code: 'ack_rejected' });
  const required = {
    op: 'put',
    ns: 'tx',
    key: 'done',
    value: 0,
    forever: true,
    expect: 0,
    required: true,
  } as const;
  await assert.rejects(client.transaction().ack(second!).kv(required).commit(), { code: 'kv_precondition' });
  assert.equal((await client.queue('out').group('g').depth()).pending, 1);
  await client.transaction().ack(second!).cancel('out', 'remind').commit();
  assert.equal(await client.groups.lag('g', { queue: 'in' }), 0);
});

test('operators: health, maintenance, switches, statistics', async (t) => {
  const client = await clientOf(t);
  assert.deepEqual([(await client.admin.health()).healthy], [true]);
  assert.equal((await client.admin.setMaintenance(true)).maintenanceMode, true);
  const [held] = await client.queue('held').push({ data: 1 });
  assert.equal(held!.status, 'buffered');
  assert.equal((await client.admin.setMaintenance(false)).maintenanceMode, false);
  const [message] = await client.queue('held').pop({ waitMs: 10_000 });
  assert.equal(message!.id, held!.messageId);
  await client.admin.setPopMaintenance(true);
  assert.equal((await client.admin.maintenance()).popMaintenanceMode, true);
  await client.admin.setPopMaintenance(false);
  assert.equal((await client.admin.setSwitches({ timersFire: true })).timersFireEnabled, true);
  assert.equal((await client.admin.switches()).kvEnabled, true);
  await client.admin.refreshStatistics();
  assert.equal(typeof (await client.admin.overview()).queues, 'number');
  assert.ok((await client.admin.status({ queue: 'held' })).timeRange);
  assert.ok(Array.isArray(await client.admin.namespaces()) && Array.isArray(await client.admin.tasks()));
  assert.equal((await client.admin.buffers()).dbHealthy, true);
});

test('messages are looked at without being taken, and remarked upon', async (t) => {
  const client = await clientOf(t);
  await client.queue('look').push([{ transactionId: 'l-1', data: 1 }, { data: 2 }]);
  const { records, highWatermark } = await client.messages.read<number>('look', 'Default', 0);
  assert.deepEqual([records.map(({ payload }) => payload), highWatermark], [[1, 2], 2]);
  await assert.rejects(client.messages.read('nowhere', 'Default', 0), { code: 'UNKNOWN_TOPIC_OR_PARTITION' });
  const [newest] = await client.messages.list<number>({ queue: 'look', limit: 1 });
  assert.equal(newest!.data, 2);
  assert.equal(await client.messages.get({ ...newest!, transactionId: 'none' }), null);
  assert.ok(await client.messages.trace(newest!, { text: 'seen' }, { names: ['mine'] }));
  assert.equal((await client.messages.traces(newest!)).length, 1);
});

test('partitions: their heads, their records from many places at once, their pages', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('heads');
  await queue.push([1, 2, 3].map((data) => ({ data, partition: data === 3 ? 'b' : 'a' })));
  const first = await client.log.changed('heads', { limit: 1 });
  assert.deepEqual(
    first.partitions.map(({ name, lastOffset, logStart }) => [name, lastOffset, logStart]),
    [['a', 1, 0]],
  );
  const rest = await client.log.changed('heads', { limit: 1, after: first.next! });
  assert.equal(rest.partitions[0]?.name, 'b');
  await assert.rejects(client.log.changed('nowhere'), { code: 'UNKNOWN_TOPIC_OR_PARTITION' });
  const places = [
    { queue: 'heads', partition: 'a', offset: 1 },
    { queue: 'heads', partition: 'b', offset: 0 },
    { queue: 'heads', partition: 'c', offset: 0 },
  ];
  const parts = await client.log.read<number>(places);
  assert.deepEqual(
    parts.map(({ records, error }) => error ?? records.map(({ payload }) => payload)),
    [[2], [3], 'UNKNOWN_TOPIC_OR_PARTITION'],
  );
  const long = '2000-01-01T00:00:00Z';
  assert.deepEqual(await client.log.offsetsAt('heads', ['a', 'b'], long), [0, 0]);
  assert.deepEqual(await client.log.offsetsAt('heads', ['a'], new Date(Date.now() + 3_600_000)), [null]);
  const { total, messages, partitions } = await queue.partitions({ limit: 1, offset: 1 });
  assert.deepEqual([total, messages.total, partitions[0]?.name], [2, 3, 'b']);
});

test('keys are listed without a prefix; answers are read as the caller wants them', async (t) => {
  const client = await clientOf(t);
  const keys = client.kv('listed');
  await keys.put('a', 1);
  await keys.put('b', 2);
  assert.deepEqual(
    (await client.admin.kvNamespaces()).filter(({ namespace }) => namespace === 'listed'),
    [{ namespace: 'listed', keys: 2 }],
  );
  const listed: unknown[] = [];
  for await (const { key, value } of client.admin.kvKeys('listed', { keysOnly: true }))
    listed.push([key, value]);
  assert.deepEqual(listed, [
    ['a', undefined],
    ['b', undefined],
  ]);
  const exact = await clientOf(t, {
    parse: (text) => JSON.parse(text, (_key, value, { source }: { source?: string } = {}) => source ?? value),
  });
  await client.queue('digits').push({ data: 1.5 });
  assert.equal((await exact.messages.read('digits', 'Default', 0)).records[0]?.payload, '1.5');
});

test('connectors: put, get, list, resync, delete', async (t) => {
  const client = await clientOf(t);
  const { connectors } = client;
  assert.equal(await connectors.get('copy'), null);
  const connection = { host: '127.0.0.1', port: 1, database: 'x', user: 'x', password: 'secret' };
  const made = await connectors.put('copy', {
    kind: 'source',
    enabled: false,
    connection,
    source: { tables: [{ table: 'public.orders', queue: 'orders' }] },
  });
  assert.equal(made.connection.passwordSet, true);
  assert.equal((await connectors.get('copy'))?.kind, 'source');
  assert.deepEqual(
    (await connectors.list()).map(({ name }) => name),
    ['copy'],
  );
  await connectors.resync('copy');
  assert.equal(await connectors.delete('copy', { dropSlot: false }), true);
  await assert.rejects(connectors.resync('copy'), { code: 'connector_not_found' });
});

test('messages that are not stored are an error that tells which', async (t) => {
  const { url } = await broker();
  let calls = 0;
  // The first answer says of one message that it was not stored; the second try goes to the broker.
  const client = await clientOf(t, {
    urls: [url],
    retry: { retries: 0 },
    fetch: async (...given) => {
      const response = await fetch(...given);
      if (calls++ > 0) return response;
      const results = (await response.json()) as { status: string; error?: string }[];
      Object.assign(results[1]!, { status: 'failed', error: 'the disk is full' });
      return new Response(JSON.stringify(results), { status: 500 });
    },
  });
  const messages = [1, 2, 3].map((n) => ({ transactionId: `f-${n}`, data: n }));
  const error = await client
    .queue('failing')
    .push(messages)
    .catch((thrown: unknown) => thrown);
  assert.ok(error instanceof PushError);
  assert.deepEqual(
    error.results.map(({ status }) => status),
    ['queued', 'failed', 'queued'],
  );
  assert.match(error.message, /1 of 3 .* the disk is full/);
  calls = 0;
  const patient = await clientOf(t, { urls: [url], retry: { retries: 2, baseMs: 1 } });
  assert.equal((await patient.queue('failing').push(messages)).length, 3);
});

test('a token is asked for before each request', async (t) => {
  const seen: (string | null)[] = [];
  const client = await clientOf(t, {
    token: async () => `token-${seen.length}`,
    headers: { 'x-mine': '1' },
    fetch: (url, init) => {
      seen.push(new Headers(init?.headers).get('authorization'));
      return fetch(url, init);
    },
  });
  await client.admin.health();
  await client.admin.health();
  assert.deepEqual(seen, ['Bearer token-0', 'Bearer token-1']);
});
