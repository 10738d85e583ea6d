import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../../../test/kit/broker.ts';
import { atEnd } from '../../../test/kit/cleanup.ts';
import { startProxy } from '../../../test/kit/proxy.ts';
import { rank } from '../src/brokers/rank.ts';
import { broker, clientOf, until } from './setup.ts';

/** A proxy before the broker of this file, and a client that knows nothing else. */
async function behindProxy(t: Parameters<typeof clientOf>[0]) {
  const { port } = new URL((await broker()).url);
  const proxy = await startProxy({ host: '127.0.0.1', port: Number(port) });
  atEnd(t, () => proxy.close());
  const client = await clientOf(t, {
    urls: [`http://127.0.0.1:${proxy.port}`],
    retry: { baseMs: 20, retries: 20 },
  });
  return { proxy, client, direct: await clientOf(t) };
}

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
    proxy.swallow('to_client');
    const work = way();
    await until(stored(nth + 1));
    proxy.heal();
    proxy.drop();
    await work;
    await until(stored(nth + 1));
  }
  const { records } = await direct.messages.read<string>('cut', 'Default', 0);
  assert.deepEqual(
    records.map(({ payload }) => payload),
    ['push', 'producer', 'transaction'],
  );
});

test('what must not happen twice is in doubt when its answer is cut off', async (t) => {
  const { proxy, client, direct } = await behindProxy(t);
  const ways = [
    () => client.kv<number>('cut').incr('n', 1),
    () => client.transaction().kv({ op: 'incr', ns: 'cut', key: 'n', delta: 1, forever: true }).commit(),
  ];
  for (const [nth, way] of ways.entries()) {
    proxy.swallow('to_client');
    const work = assert.rejects(way(), { name: 'InDoubtError', code: 'network' });
    await until(async () => (await direct.kv<number>('cut').get('n'))?.value === nth + 1);
    proxy.heal();
    proxy.drop();
    await work;
  }
  assert.equal((await direct.kv<number>('cut').get('n'))?.value, 2);
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
  await until(() => new Set(seen).size === 200, 20_000);
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
