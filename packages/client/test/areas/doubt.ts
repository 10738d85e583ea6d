import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AckInDoubtError, PushInDoubtError } from '../../src/index.ts';
import { behindProxy, clientOf, cutOff, until } from '../setup.ts';

const all = { subscriptionMode: 'all', batch: 10 } as const;
const forever = { forever: true } as const;

test('what must not happen twice is in doubt when its answer is cut off', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const ways = [
    () => client.kv<number>('cut').incr('n', 1),
    () =>
      client
        .transaction()
        .kv({ op: 'incr', ns: 'cut', key: 'n', delta: 1, ...forever })
        .commit(),
  ];
  for (const [nth, way] of ways.entries()) {
    // On a connection that was used before, where a client is tempted to send it again by itself.
    await client.kv('cut').get('n');
    const counted = async () => (await direct.kv<number>('cut').get('n'))?.value === nth + 1;
    await assert.rejects(cutOff(proxy, way, counted), { name: 'InDoubtError', code: 'network' });
  }
  assert.equal((await direct.kv<number>('cut').get('n'))?.value, 2);
});

test('an update whose answer is cut off is applied once, and in doubt', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const there = direct.kv<number>('doubt');
  for (const [nth, key] of ['new', 'old'].entries()) {
    if (key === 'old') await there.put(key, 1);
    let calls = 0;
    const update = client.kv<number>('doubt').update(key, (value) => {
      if (calls++ === 0) proxy.swallow('to_client');
      return (value ?? 0) + 1;
    });
    update.catch(() => {});
    await until(async () => (await there.get(key))?.value === nth + 1);
    proxy.heal();
    proxy.drop();
    await assert.rejects(update, { name: 'InDoubtError' });
    assert.deepEqual([(await there.get(key))?.value, calls], [nth + 1, 1]);
  }
});

test('a conditional write that meets itself says so, and does not call itself somebody else', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const there = direct.kv<string>('meets');
  const { version } = await there.put('put', 'before');
  const { version: removed } = await there.put('removed', 'before');
  await there.put('batch', 'before');
  const batched = (await there.get('batch'))!.version;
  const required = {
    op: 'put',
    ns: 'meets',
    key: 'batch',
    value: 'mine',
    expect: batched,
    required: true,
  } as const;
  const ways: [() => Promise<unknown>, () => Promise<boolean>, string][] = [
    [
      () => client.kv<string>('meets').put('put', 'mine', { expect: version }),
      async () => (await there.get('put'))?.value === 'mine',
      'version',
    ],
    [
      () => client.kv<string>('meets').delete('removed', { expect: removed }),
      async () => (await there.get('removed')) === null,
      'absent',
    ],
    [
      () => client.kvBatch([{ ...required, ...forever }]),
      async () => (await there.get('batch'))?.value === 'mine',
      'version',
    ],
  ];
  for (const [way, done, reason] of ways) {
    const facts = { name: 'InDoubtError', code: 'kv_precondition', reason };
    await assert.rejects(cutOff(proxy, way, done), facts);
  }
  const again = (await there.get('put'))!.version;
  const write = {
    op: 'put',
    ns: 'meets',
    key: 'put',
    value: 'once more',
    expect: again,
    ...forever,
  } as const;
  const commit = () => client.transaction().kv(write).commit();
  const committed = async () => (await there.get('put'))?.value === 'once more';
  await assert.rejects(cutOff(proxy, commit, committed), { name: 'InDoubtError', code: 'kv_precondition' });
});

test('what is to be written where nothing is is not written again after somebody has taken it away', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const there = direct.kv<string>('absent');
  const mine = client.kv<string>('absent');
  const ways = [() => mine.putIfAbsent('lock', 'mine'), () => mine.put('lock', 'mine', { expect: 0 })];
  for (const way of ways) {
    const taken = async () => (await there.get('lock')) !== null && (await there.delete('lock')).applied;
    await assert.rejects(cutOff(proxy, way, taken), { name: 'InDoubtError', code: 'network' });
    assert.equal(await there.get('lock'), null);
  }
});

test('an ack whose answer is cut off is done once, and in doubt', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const queue = direct.queue<number>('cut-ack').group('g');
  await queue.push([{ data: 1 }, { data: 2 }]);
  const [first] = await queue.pop({ ...all, batch: 1 });
  const done = async () => (await queue.depth()).pending === 1;
  await assert.rejects(
    cutOff(proxy, () => client.ack(first!), done),
    (error) => error instanceof AckInDoubtError && error.results[0]!.inDoubt === true,
  );
  const errors: { name?: string }[] = [];
  for await (const message of client
    .queue('cut-ack')
    .group('g')
    .messages({ waitMs: 1_000, onError: (error) => errors.push(error as { name?: string }) })) {
    const none = async () => (await queue.depth()).pending === 0;
    await assert.rejects(
      cutOff(proxy, () => message.ack(), none),
      { name: 'AckInDoubtError' },
    );
    break;
  }
  assert.equal((await queue.depth()).pending, 0);
});

test('an ack that is under way when the lease ends is in doubt', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  await direct.queue('cut-late').push({ data: 1 });
  const queue = client.queue('cut-late').group('g');
  for await (const message of queue.messages({ ...all, leaseSeconds: 1, onError: () => {} })) {
    proxy.swallow();
    await assert.rejects(message.ack(), { name: 'InDoubtError', code: 'lease_lost' });
    proxy.heal();
    proxy.drop();
    break;
  }
});

test('to send a dead letter again is not repeated: it would be the next one', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const queue = direct.queue('cut-letters');
  await queue.push({ data: 1 });
  for (const group of ['g', 'h']) await direct.ack(await queue.group(group).pop(all), 'dlq');
  const [letter] = await queue.deadLetters.list();
  const done = async () => (await queue.deadLetters.count()) === 1;
  const retry = () => client.queue('cut-letters').deadLetters.retry(letter!);
  await assert.rejects(cutOff(proxy, retry, done), { name: 'InDoubtError', code: 'network' });
  assert.equal(await queue.deadLetters.count(), 1);
});

test('a timer that was taken back by a lost answer is not called absent', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const { timers } = direct.queue('cancel');
  await timers.schedule('t', { data: 1, delayMs: 3_600_000 });
  const done = async () => (await timers.get('t')) === null;
  const cancel = () => client.queue('cancel').timers.cancel('t');
  await assert.rejects(cutOff(proxy, cancel, done), { name: 'InDoubtError', code: 'timer_absent' });
});

test('an ack that the broker could not write is sent again, alone, and in doubt only if it may have been written', async (t) => {
  const sent: string[][] = [];
  const faults: string[] = [];
  const client = await clientOf(t, {
    retry: { retries: 2, baseMs: 1 },
    // A broker whose database is away for the last of the messages.
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      if (!String(url).endsWith('/ack/batch')) return response;
      const { acknowledgments } = JSON.parse(String(init!.body)) as {
        acknowledgments: { transactionId: string }[];
      };
      sent.push(acknowledgments.map(({ transactionId }) => transactionId));
      const results = (await response.json()) as Record<string, unknown>[];
      const error = faults.shift();
      if (error !== undefined) Object.assign(results.at(-1)!, { success: false, error });
      return new Response(JSON.stringify(results), { status: 200 });
    },
  });
  const queue = client.queue('unwritten').group('g');
  for (const partition of ['a', 'b', 'c']) {
    await queue.push({ data: 1, partition, transactionId: partition });
    await queue.push({ data: 1, partition, transactionId: `${partition}2` });
  }
  const taken = await queue.pop({ ...all, partitions: 3 });
  const [a, b, c] = ['a', 'b', 'c'].map((id) => taken.find(({ transactionId }) => transactionId === id)!);
  faults.push('pool');
  const results = await client.ack([a!, b!]);
  assert.deepEqual(
    [results.map(({ success }) => success), sent],
    [
      [true, true],
      [['a', 'b'], ['b']],
    ],
  );
  faults.push('ack flush failed; lease will expire and redeliver');
  await assert.rejects(client.ack(taken.find(({ transactionId }) => transactionId === 'c2')!), {
    name: 'AckInDoubtError',
    message: /invalid or expired lease/,
  });
  await assert.rejects(client.ack(c!), { name: 'AckError' });
});

test('messages that are perhaps stored by a later try of a push are not called failed', async (t) => {
  let pushes = 0;
  const client = await clientOf(t, {
    retry: { retries: 1, baseMs: 1 },
    // A broker that could not write to its disk, and then one whose answers do not arrive.
    fetch: async (url, init) => {
      if (!String(url).endsWith('/push')) return fetch(url, init);
      const { items } = JSON.parse(String(init!.body)) as { items: { transactionId: string }[] };
      if (pushes++ > 0) {
        await (await fetch(url, init)).text();
        throw new TypeError('fetch failed');
      }
      const results = items.map(({ transactionId }, index) => ({
        index,
        message_id: '00000000-0000-7000-8000-000000000000',
        transaction_id: transactionId,
        queueName: 'later-try',
        status: index === 0 ? 'queued' : 'failed',
        error: index === 0 ? undefined : 'no room on the disk',
      }));
      return new Response(JSON.stringify(results), { status: 500 });
    },
  });
  const queue = client.queue<number>('later-try');
  const two = [{ data: 1 }, { data: 2 }];
  await assert.rejects(queue.push(two), (error) => {
    assert.ok(error instanceof PushInDoubtError && error.kind === 'in_doubt');
    assert.deepEqual(
      error.results.map(({ status }) => status),
      ['queued', 'in_doubt'],
    );
    return true;
  });
  pushes = 0;
  const producer = queue.producer({ lingerMs: 5 });
  const [one, other] = await Promise.allSettled(two.map((message) => producer.send(message)));
  assert.equal(one!.status, 'fulfilled');
  assert.equal((other as PromiseRejectedResult).reason.name, 'PushInDoubtError');
  const { records } = await client.messages.read<number>('later-try', 'Default', 0);
  assert.deepEqual(
    records.map(({ payload }) => payload),
    [2, 2],
  );
});

test('a handler hears in time that its lease cannot be kept', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  await direct.queue('cut-lease').push({ data: 1 });
  let begun = 0;
  let lost = 0;
  const consumer = client
    .queue('cut-lease')
    .group('g')
    .consume(
      (_, { signal }) => {
        begun = performance.now();
        return new Promise<void>((resolve) => {
          signal.addEventListener('abort', () => {
            lost = performance.now();
            resolve();
          });
        });
      },
      { ...all, leaseSeconds: 2, onError: () => {} },
    );
  await until(() => begun > 0);
  proxy.swallow();
  await until(() => lost > 0);
  assert.ok(lost - begun < 5_000, `${lost - begun} ms`);
  proxy.heal();
  proxy.drop();
  await consumer.stop();
});
