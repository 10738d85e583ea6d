/** The package that is published, in a browser. What is asserted in a page is asserted here, by what the page returns. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { atEnd, type Cleanup } from '../../../../test/kit/cleanup.ts';
import { file } from '../../../../test/kit/end.ts';
import { startProxy } from '../../../../test/kit/proxy.ts';
import { open, useBrowser } from '../../../dashboard/test/browser.ts';
import { build } from '../../build.ts';
import type { ClientOptions, Consumer, Queen, Queue } from '../../src/index.ts';
import { behindProxy, cutOff, until } from '../setup.ts';
import { startOrigin } from './origin.ts';

declare global {
  /** In the page. */
  var published: typeof import('../../src/index.ts');
  var connect: (options?: Partial<ClientOptions>) => Queen;
  /** What a page keeps from one step of a test to the next. */
  var kept: { seen: number[]; consumer: Consumer<number>; queue: Queue<number>; finish?: () => void };
}

useBrowser();

let built: string | undefined;

/** A page that has the client, with networks that can be broken: to its origin, and from there to the broker. */
async function inPage(t: Cleanup) {
  if (built === undefined) {
    built = mkdtempSync(join(tmpdir(), 'queen-client-'));
    build(built);
    file.after(async () => rmSync(built!, { recursive: true, force: true }));
  }
  const { proxy, direct } = await behindProxy(t);
  const front = await startProxy(await startOrigin(t, built, proxy.port));
  atEnd(t, () => front.close());
  const { page, faults } = await open(t, `http://127.0.0.1:${front.port}`);
  await page.goto('/');
  await page.waitForFunction(() => globalThis.connect !== undefined);
  return { page, faults, front, proxy, direct };
}

test('push, pop, renew, ack, dead letters, a transaction and timers', async (t) => {
  const { page, faults } = await inPage(t);
  const seen = await page.evaluate(async () => {
    const { AckError } = globalThis.published;
    const client = globalThis.connect();
    const queue = client.queue<string>('page').partition('größe').group('g');
    const all = { subscriptionMode: 'all', batch: 10 } as const;
    const [stored] = await queue.push({ transactionId: 't-1', data: '☃' });
    const [again] = await queue.push({ transactionId: 't-1', data: '☃' });
    await queue.push(['b', 'c'].map((data) => ({ data })));
    const taken = await queue.pop(all);
    const renewed = await client.renew(taken[0]!, 120);
    await client.transaction().ack(taken[0]!).push('page-out', { data: 1 }).commit();
    await client.ack(taken.slice(1, 2));
    await client.ack(taken[2]!, 'dlq', { error: new Error('no good') });
    const refused = await client.ack(taken).catch((error: unknown) => error instanceof AckError);
    const [letter] = await queue.deadLetters.list();
    const { timers } = client.queue('page-later');
    await timers.schedule('k', { data: 'größer ☃', delayMs: 3_600_000 });
    const timer = await timers.get('k');
    const producer = client.queue<number>('page-many').producer({ lingerMs: 1, pending: 50 });
    await Promise.all(Array.from({ length: 200 }, (_, n) => producer.send({ data: n })));
    const many = await client
      .queue<number>('page-many')
      .group('g')
      .pop({ subscriptionMode: 'all', batch: 500 });
    await client.close();
    return {
      pushed: [stored!.status, again!.status],
      taken: taken.map(({ data }) => data),
      renewedMs: renewed!.getTime() - Date.now(),
      refused,
      letter: [letter!.data, letter!.errorMessage],
      timer: timer!.data,
      many: many.map(({ data }) => data),
    };
  });
  assert.ok(seen.renewedMs > 60_000);
  assert.deepEqual(
    { ...seen, renewedMs: 0, many: seen.many.length },
    {
      pushed: ['queued', 'duplicate'],
      taken: ['☃', 'b', 'c'],
      renewedMs: 0,
      refused: true,
      letter: ['c', 'no good'],
      timer: 'größer ☃',
      many: 200,
    },
  );
  assert.deepEqual(
    seen.many,
    Array.from({ length: 200 }, (_, n) => n),
  );
  assert.deepEqual(faults, []);
});

test('a consumer keeps the lease of what is worked on, and gives the rest back when it stops', async (t) => {
  const { page, direct } = await inPage(t);
  const queue = direct.queue<number>('page-lease').group('g');
  await queue.push([{ data: 1 }, { data: 2 }, { data: 3 }]);
  let extended = 0;
  page.on('response', (response) => {
    if (response.url().endsWith('/extend') && response.ok()) extended++;
  });
  await page.evaluate(() => {
    const client = globalThis.connect();
    const seen: number[] = [];
    let finish = () => {};
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const queue = client.queue<number>('page-lease').group('g');
    const consumer = queue.consume(
      async ({ data }, { signal }) => {
        seen.push(data);
        if (data === 2) await finished;
        signal.throwIfAborted();
      },
      { subscriptionMode: 'all', leaseSeconds: 2 },
    );
    globalThis.kept = { seen, consumer, queue, finish };
  });
  await page.waitForFunction(() => globalThis.kept.seen.length === 2);
  // Others ask all the time, and get nothing, until each third of the lease and more has been followed by an extension.
  while (extended < 5) assert.deepEqual(await queue.pop({ waitMs: 400 }), []);
  const seen = await page.evaluate(async () => {
    const { consumer, seen, finish } = globalThis.kept;
    const stopped = consumer.stop();
    finish!();
    await stopped;
    return seen;
  });
  assert.deepEqual(seen, [1, 2]);
  const rest = await queue.pop();
  assert.deepEqual(
    rest.map(({ data }) => data),
    [3],
  );
});

test('a signal ends a long poll at once, and what comes then is given to others', async (t) => {
  const { page, direct } = await inPage(t);
  await direct.queue('page-poll').group('g').pop({ subscriptionMode: 'all' });
  const seen = await page.evaluate(async () => {
    const { AbortedError } = globalThis.published;
    const client = globalThis.connect();
    const controller = new AbortController();
    const queue = client.queue('page-poll').group('g');
    const poll = queue.pop({ waitMs: 30_000, signal: controller.signal });
    setTimeout(() => controller.abort(new Error('no more')), 100);
    const begun = performance.now();
    const error = await poll.catch((thrown: unknown) => thrown);
    const tookMs = performance.now() - begun;
    const late = await queue
      .pop({ waitMs: 30_000, signal: AbortSignal.timeout(50) })
      .catch((thrown: unknown) => (thrown as Error).name);
    return {
      tookMs,
      late,
      cause: error instanceof AbortedError ? (error.cause as Error).message : String(error),
    };
  });
  assert.ok(seen.tookMs < 5_000, `${seen.tookMs} ms`);
  assert.deepEqual([seen.cause, seen.late], ['no more', 'AbortedError']);
  await direct.queue('page-poll').push({ data: 1 });
  const taken = await direct.queue('page-poll').group('g').pop({ waitMs: 5_000 });
  assert.equal(taken.length, 1);
});

test('keys: versions, updates that meet, and doubt when an answer is cut off', async (t) => {
  const { page, proxy, direct } = await inPage(t);
  const seen = await page.evaluate(async () => {
    const kv = globalThis.connect().kv<number>('page');
    const { version } = await kv.put('a', 1, { ttlSeconds: 60 });
    const lost = await kv.put('a', 2, { expect: version + 1_000 });
    await Promise.all(Array.from({ length: 5 }, () => kv.update('n', (old) => (old ?? 0) + 1)));
    const keys: string[] = [];
    for await (const { key } of kv.list('a')) keys.push(key);
    return { reason: lost.reason, n: (await kv.get('n'))?.value, keys, none: await kv.get('none') };
  });
  assert.deepEqual(seen, { reason: 'version', n: 5, keys: ['a'], none: null });

  const there = direct.kv<number>('page');
  const incremented = async () => (await there.get('n'))?.value === 6;
  const work = () =>
    page.evaluate(() => {
      const kv = globalThis.connect().kv<number>('page');
      return kv.incr('n', 1).catch((error: unknown) => (error as Error).name);
    });
  assert.equal(await cutOff(proxy, work, incremented), 'InDoubtError');
  assert.equal((await there.get('n'))?.value, 6);
});

test('a consumer survives connections that break and a broker that is away, and each push is stored once', async (t) => {
  const { page, proxy, direct } = await inPage(t);
  await page.evaluate(() => {
    const client = globalThis.connect({ retry: { baseMs: 20, retries: 20 } });
    const seen: number[] = [];
    const queue = client.queue<number>('page-shaky').group('g');
    const consumer = queue.consume(({ data }) => void seen.push(data), {
      subscriptionMode: 'all',
      leaseSeconds: 5,
      onError: () => {},
    });
    globalThis.kept = { seen, consumer, queue };
  });
  const push = (data: number) =>
    page.evaluate(async (value) => {
      await globalThis.kept.queue.push({ data: value });
    }, data);
  const saw = (data: number) => page.waitForFunction((value) => globalThis.kept.seen.includes(value), data);
  await push(0);
  await saw(0);
  proxy.drop();
  await push(1);
  await saw(1);
  const { highWatermark } = await direct.messages.read('page-shaky', 'Default', 0);
  const stored = async () =>
    (await direct.messages.read('page-shaky', 'Default', 0)).highWatermark === highWatermark + 1;
  await cutOff(proxy, () => push(2), stored);
  await saw(2);
  proxy.refuse();
  const pushed = push(3);
  proxy.heal();
  await pushed;
  await saw(3);
  await page.evaluate(() => globalThis.kept.consumer.stop());
  const { records } = await direct.messages.read<number>('page-shaky', 'Default', 0);
  assert.deepEqual(
    records.map(({ payload }) => payload),
    [0, 1, 2, 3],
  );
  await until(async () => (await direct.queue('page-shaky').group('g').depth()).pending === 0);
});

test('a request that the browser sends again by itself happens once if it is a transaction that pushes', async (t) => {
  const { page, front, direct } = await inPage(t);
  const there = direct.kv<number>('page-again');
  let requests = 0;
  page.on('request', () => requests++);
  // They do so on a connection that was used before.
  await page.evaluate(() => globalThis.connect().admin.queues());
  const commit = () =>
    page.evaluate(async () => {
      const client = globalThis.connect({ retry: { retries: 0 } });
      const write = { op: 'incr', ns: 'page-again', key: 'n', delta: 1, forever: true } as const;
      await client.transaction().push('page-again', { data: 1 }).kv(write).commit();
    });
  await cutOff(front, commit, async () => (await there.get('n')) !== null);
  assert.equal((await there.get('n'))?.value, 1);
  const { records } = await direct.messages.read('page-again', 'Default', 0);
  assert.deepEqual([records.length, requests], [1, 2]);
});
