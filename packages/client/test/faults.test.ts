import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../../../test/kit/broker.ts';
import { rank } from '../src/brokers/rank.ts';
import { behindProxy, broker, clientOf, cutOff, until } from './setup.ts';

test('a push whose answer is cut off is stored once, also through a producer and in a transaction', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const stored = (count: number) => async () => {
    const { records } = await direct.messages.read('cut', 'Default', 0).catch(() => ({ records: [] }));
    return records.length === count;
  };
  const producer = client.queue('cut').producer({ lingerMs: 0 });
  const ways = [
    () => client.queue('cut').push({ data: 'push' }),
    () => producer.send({ data: 'producer' }),
    () => client.transaction().push('cut', { data: 'transaction' }).commit(),
  ];
  for (const [nth, way] of ways.entries()) {
    await cutOff(proxy, way, stored(nth + 1));
    await until(stored(nth + 1));
  }
  const { records } = await direct.messages.read<string>('cut', 'Default', 0);
  assert.deepEqual(
    records.map(({ payload }) => payload),
    ['push', 'producer', 'transaction'],
  );
});

test('a consumer survives connections that break and a broker that is away', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const queue = client.queue<number>('shaky').group('g');
  const seen: number[] = [];
  const errors: unknown[] = [];
  const consumer = queue.consume(({ data }) => void seen.push(data), {
    subscriptionMode: 'all',
    leaseSeconds: 5,
    onError: (error) => errors.push(error),
  });
  for (let n = 0; n < 6; n++) {
    if (n === 3) proxy.refuse();
    else if (n === 4) proxy.heal();
    else proxy.drop();
    await direct.queue('shaky').push({ data: n });
    if (n !== 3) await until(() => seen.includes(n));
  }
  await consumer.stop();
  assert.deepEqual([...new Set(seen)], [0, 1, 2, 3, 4, 5]);
  await until(async () => (await direct.queue('shaky').group('g').depth()).pending === 0);
});

test('a broker that is killed while it is used: another one takes over, and nothing is lost', async (t) => {
  const { database, url } = await broker();
  const other = await startBroker({ database, alone: 'it is killed' }, t);
  const urls = [url, other.url];
  // Names for which the one that dies comes first.
  const mine = (key: (name: string) => string) =>
    Array.from({ length: 64 }, (_, n) => `dies${n}`).find((name) => rank(urls, key(name))[0] === other.url)!;
  const name = mine((queue) => `push:${queue}`);
  const group = mine((each) => `${name}:*:${each}`);
  const client = await clientOf(t, { urls, retry: { baseMs: 20 } });
  const queue = client.queue<number>(name).group(group);
  const seen: number[] = [];
  const consumer = queue.consume(({ data }) => void seen.push(data), {
    subscriptionMode: 'all',
    leaseSeconds: 3,
    batch: 5,
    concurrency: 2,
    onError: () => {},
  });
  const producer = queue.producer({ lingerMs: 1, batch: 10 });
  const sent: Promise<unknown>[] = [];
  for (let n = 0; n < 200; n++) {
    sent.push(producer.send({ data: n, partition: `p${n % 4}` }));
    if (n === 100) {
      await until(() => seen.length > 0);
      await other.kill('SIGKILL');
    }
  }
  await Promise.all(sent);
  await until(() => new Set(seen).size === 200);
  await consumer.stop();
  for (let p = 0; p < 4; p++) {
    const { records } = await client.messages.read<number>(name, `p${p}`, 0);
    const expected = Array.from({ length: 50 }, (_, n) => n * 4 + p);
    assert.deepEqual(
      records.map(({ payload }) => payload),
      expected,
      'each is stored once, in order',
    );
  }
  assert.equal((await queue.depth()).pending, 0);
});
