import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AckError, type Delivery, type Queue } from '../../src/index.ts';
import { clientOf, until } from '../setup.ts';

const all = { subscriptionMode: 'all' } as const;
const numbers = (count: number) => Array.from({ length: count }, (_, n) => ({ data: n }));

test('a consumer handles each message once, in order, and acks', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('each').group('g');
  for (const partition of ['a', 'b', 'c']) await queue.partition(partition).push(numbers(20));
  const seen: Record<string, number[]> = { a: [], b: [], c: [] };
  const handler = ({ partition, data }: Delivery<number>) => void seen[partition]!.push(data);
  const consumer = queue.consume(handler, { ...all, batch: 7, concurrency: 3, waitMs: 1_000 });
  await until(() => Object.values(seen).flat().length === 60);
  await consumer.stop();
  const expected = numbers(20).map(({ data }) => data);
  assert.deepEqual(seen, { a: expected, b: expected, c: expected });
  assert.equal((await queue.depth()).pending, 0);
});

test('a handler that throws fails its message, and what it says counts', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<string>('outcomes').group('g');
  await queue.configure({ retryLimit: 1 });
  await queue.push(['fine', 'throws', 'retry', 'dlq', 'own', 'end'].map((data) => ({ data })));
  const attempts: Record<string, number> = {};
  const errors: unknown[] = [];
  const consumer = queue.consume(
    async (message) => {
      const nth = (attempts[message.data] ?? 0) + 1;
      attempts[message.data] = nth;
      if (message.data === 'throws') throw new Error('never works');
      if (message.data === 'retry' && nth === 1) return 'retry';
      if (message.data === 'dlq') return 'dlq';
      if (message.data === 'own') await message.deadLetter('said so');
      return undefined;
    },
    { ...all, waitMs: 1_000, onError: (error) => errors.push(error) },
  );
  await until(() => attempts.end === 1);
  await consumer.stop();
  assert.deepEqual(attempts, { fine: 1, throws: 2, retry: 2, dlq: 1, own: 1, end: 1 });
  assert.equal(errors.length, 2);
  const letters = (await queue.deadLetters.list()).map(({ data, errorMessage }) => [data, errorMessage]);
  assert.deepEqual(
    letters.map(([data]) => data),
    ['own', 'dlq', 'throws'],
  );
  assert.deepEqual([letters[0]![1], letters[2]![1]], ['said so', 'never works']);
  assert.equal((await queue.depth()).pending, 0);
});

test('the lease of a slow handler is kept, and nobody else gets its message', async (t) => {
  let extended = 0;
  const client = await clientOf(t, {
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      if (String(url).endsWith('/extend') && response.ok) extended++;
      return response;
    },
  });
  const queue = client.queue('slow').group('g');
  await queue.push({ data: 1 });
  let calls = 0;
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const errors: unknown[] = [];
  const consumer = queue.consume(
    async (_, { signal }) => {
      calls++;
      await finished;
      signal.throwIfAborted();
    },
    { ...all, leaseSeconds: 2, waitMs: 500, concurrency: 2, onError: (error) => errors.push(error) },
  );
  // Each a third of the lease after the one before: by then the first lease would be over.
  await until(() => extended >= 5);
  const stopped = consumer.stop();
  finish();
  await stopped;
  assert.deepEqual([calls, errors], [1, []]);
  assert.equal((await queue.depth()).pending, 0);
});

test('a handler is told when its lease is lost', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue('lost').group('g');
  await queue.push({ data: 1 });
  let told = false;
  let begun = false;
  const errors: { code?: string }[] = [];
  const consumer = queue.consume(
    (_, { signal }) => {
      begun = true;
      return new Promise<void>((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          told = true;
          reject(signal.reason);
        });
      });
    },
    { ...all, leaseSeconds: 1, waitMs: 500, onError: (error) => errors.push(error as { code?: string }) },
  );
  await until(() => begun);
  // A seek ends the lease.
  await client.groups.seek('g', 'lost', { to: 'end' });
  await until(() => told);
  await consumer.stop();
  assert.deepEqual(errors, []);
});

test('stop: what is begun is finished, what is not is given back at no cost', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('stop').group('g');
  await queue.push(numbers(10));
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const seen: number[] = [];
  const consumer = queue.consume(
    async ({ data }) => {
      seen.push(data);
      if (data === 3) await held;
    },
    { ...all, concurrency: 2 },
  );
  await until(() => seen.length === 4);
  const stopped = consumer.stop();
  release();
  await stopped;
  assert.deepEqual(seen, [0, 1, 2, 3]);
  const { pending, processing } = await queue.depth();
  assert.deepEqual([pending, processing], [6, 0]);
  const [next] = await queue.pop({ batch: 1 });
  assert.equal(next!.data, 4);
});

test('stop with a limit, a signal, and the end of the client give back what is being handled', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('limit').group('g');
  await queue.push(numbers(2));
  const handler = (_: unknown, { signal }: { signal: AbortSignal }) =>
    new Promise<void>((resolve) => {
      running++;
      signal.addEventListener('abort', () => fired++, { once: true });
      void resolve;
    });
  let running = 0;
  let fired = 0;
  const controller = new AbortController();
  const ends = [
    (consumer: { stop(o: { timeoutMs: number }): Promise<void> }) => consumer.stop({ timeoutMs: 20 }),
    async (consumer: { done: Promise<void> }) => {
      controller.abort();
      await consumer.done;
    },
    () => client.close({ timeoutMs: 20 }),
  ];
  const watcher = await clientOf(t);
  for (const [nth, end] of ends.entries()) {
    const consumer = queue.consume(handler, {
      ...all,
      signal: controller.signal.aborted ? undefined : controller.signal,
    });
    await until(() => running === nth + 1);
    await end(consumer);
    assert.equal(fired, nth + 1);
    const { pending, processing } = await watcher.queue('limit').group('g').depth();
    assert.deepEqual([pending, processing], [2, 0]);
  }
  await assert.rejects(queue.pop(), { name: 'AbortedError', code: 'closed' });
});

test('an idle consumer stops at once, and leaves nothing leased', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('idle').group('g');
  await queue.pop(all);
  for (let round = 0; round < 8; round++) {
    const seen: number[] = [];
    const consumer = queue.consume(({ data }) => void seen.push(data), { concurrency: 2 });
    if (round % 2 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    const pushed = queue.push({ data: round });
    const begun = performance.now();
    await consumer.stop();
    assert.ok(performance.now() - begun < 10_000);
    await pushed;
    const { pending, processing } = await queue.depth();
    assert.equal(processing, 0, 'something is still leased');
    // Whatever was not handled is there for the next one at once.
    const rest = await queue.pop({ batch: 10 });
    assert.equal(rest.length, pending);
    await client.ack(rest);
  }
});

test('a long poll ends with its signal, at once', async (t) => {
  const client = await clientOf(t);
  const controller = new AbortController();
  const poll = client.queue('poll').group('g').pop({ waitMs: 30_000, signal: controller.signal });
  setTimeout(() => controller.abort(new Error('no more')), 100);
  const begun = performance.now();
  await assert.rejects(
    poll,
    (error: Error) => error.name === 'AbortedError' && (error.cause as Error).message === 'no more',
  );
  assert.ok(performance.now() - begun < 10_000);
  await client.queue('poll').push({ data: 1 });
  assert.equal((await client.queue('poll').group('g').pop(all)).length, 1, 'it was given to nobody');
});

test('for await: the next message completes the one before, a break gives back', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('loop').group('g');
  await queue.push(numbers(6));
  const first: number[] = [];
  for await (const message of queue.messages({ ...all, batch: 4 })) {
    first.push(message.data);
    if (message.data === 2) break;
  }
  assert.equal((await queue.depth()).pending, 4);
  const second: number[] = [];
  for await (const message of queue.messages()) {
    second.push(message.data);
    if (message.data === 4) {
      await message.ack();
      break;
    }
  }
  const third: number[][] = [];
  for await (const messages of queue.batches()) {
    third.push(messages.map(({ data }) => data));
    await messages.at(-1)!.ack();
    break;
  }
  assert.deepEqual([first, second, third], [[0, 1, 2], [2, 3, 4], [[5]]]);
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 50);
  for await (const _ of queue.messages({ signal: controller.signal })) assert.fail('there is nothing');
  assert.equal((await queue.depth()).pending, 0);
});

test('whole batches; a consumer of what is refused fails', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('whole').group('g');
  await queue.push(numbers(9));
  let sum = 0;
  const consumer = queue.consumeBatches(
    (messages) => {
      for (const { data } of messages) sum += data;
    },
    { ...all, batch: 5 },
  );
  await until(() => sum === 36);
  await consumer.stop();
  assert.equal((await queue.depth()).pending, 0);
  const errors: { status?: number }[] = [];
  const refused = client
    .queue('x'.repeat(300))
    .group('g')
    .consume(() => {}, { concurrency: 3, onError: (error) => errors.push(error as { status?: number }) });
  await assert.rejects(refused.done, { name: 'RefusedError', status: 400 });
  assert.deepEqual(
    errors.map(({ status }) => status),
    [400],
    'who does not look at done has to hear of it',
  );
  assert.throws(() => queue.consume(() => {}, { concurrency: 0 }), RangeError);
});

test('an ack that the broker does not carry out rejects', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('unacked').group('g');
  await queue.push(numbers(3));
  const stale = await queue.pop({ ...all, batch: 2 });
  await client.groups.seek('g', 'unacked', { to: 'beginning' });
  await assert.rejects(client.ack(stale), (error) => {
    assert.ok(error instanceof AckError && error.code === 'ack_refused');
    return error.results.length === 2 && error.results.every(({ success, inDoubt }) => !success && !inDoubt);
  });
  for await (const [first, second, third] of queue.batches({ onError: () => {} })) {
    await first!.ack();
    await second!.retry();
    await assert.rejects(second!.ack(), { name: 'RefusedError', code: 'settled' });
    await assert.rejects(third!.ack(), { name: 'RefusedError', code: 'lease_lost' });
    await first!.ack();
    break;
  }
  for await (const [first, second] of queue.batches({ onError: () => {} })) {
    assert.deepEqual([first!.data, second!.data], [1, 2]);
    await client.groups.seek('g', 'unacked', { to: 'end' });
    await assert.rejects(second!.ack(), { name: 'AckError' });
    break;
  }
});

test('what is sent back comes again after a pause that grows, however it is said', async (t) => {
  const client = await clientOf(t);
  const options = { ...all, waitMs: 0 };
  const ways = {
    returned(queue: Queue<number>, seen: () => void) {
      const consumer = queue.consume(() => {
        seen();
        return 'retry';
      }, options);
      return () => consumer.stop();
    },
    said(queue: Queue<number>, seen: () => void) {
      const consumer = queue.consume(async (message) => {
        seen();
        await message.retry();
      }, options);
      return () => consumer.stop();
    },
    looped(queue: Queue<number>, seen: () => void) {
      const controller = new AbortController();
      const loop = (async () => {
        for await (const message of queue.messages({ ...options, signal: controller.signal })) {
          seen();
          await message.retry();
        }
      })();
      return () => {
        controller.abort();
        return loop;
      };
    },
  };
  for (const [way, begin] of Object.entries(ways)) {
    const queue = client.queue<number>(`back-${way}`).group('g');
    await queue.push({ data: 1 });
    let times = 0;
    const begun = performance.now();
    const end = begin(queue, () => times++);
    await until(() => times >= 4);
    // At least half of 100, 200 and 400 ms.
    assert.ok(performance.now() - begun >= 340, `${way}: ${performance.now() - begun} ms`);
    await end();
  }
});

test('who stops does not wait longer than the lease lasts for a broker that takes no acks', async (t) => {
  const client = await clientOf(t, {
    retry: { retries: 0 },
    fetch: async (url, init) =>
      String(url).endsWith('/ack/batch') ? new Response('', { status: 503 }) : fetch(url, init),
  });
  const stopped = async (ackEveryMs: number) => {
    const queue = client.queue<number>(`no-acks-${ackEveryMs}`).group('g');
    await queue.push(numbers(2));
    const errors: { code?: string }[] = [];
    const seen: number[] = [];
    const consumer = queue.consume(({ data }) => void seen.push(data), {
      ...all,
      ackEveryMs,
      leaseSeconds: 1,
      onError: (error) => errors.push(error as { code?: string }),
    });
    await until(() => seen.length > 0);
    const begun = performance.now();
    await consumer.stop({ timeoutMs: 100 });
    assert.ok(performance.now() - begun < 10_000, `${performance.now() - begun} ms`);
    assert.ok(errors.some(({ code }) => code === 'lease_lost'));
  };
  // While it acks what was handled, and when it gives back the rest.
  await Promise.all([stopped(0), stopped(10_000)]);
});

test('an empty queue is not asked without a pause, though nothing is waited for', async (t) => {
  let pops = 0;
  const client = await clientOf(t, {
    fetch: (url, init) => {
      if (String(url).includes('/pop/')) pops++;
      return fetch(url, init);
    },
  });
  const begun = performance.now();
  const consumer = client
    .queue('nothing')
    .group('g')
    .consume(() => {}, { waitMs: 0 });
  await until(() => pops >= 6);
  assert.ok(performance.now() - begun >= 240, `${performance.now() - begun} ms`);
  await consumer.stop();
});

test('the end of the client gives back what the poll of a loop brings at that moment', async (t) => {
  let open = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  let arrived = false;
  const client = await clientOf(t, {
    // The head of an answer with messages is there, its body not yet.
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      if (response.status !== 200 || !String(url).includes('/pop/')) return response;
      const text = await response.text();
      const body = new ReadableStream({
        async start(controller) {
          arrived = true;
          await gate;
          controller.enqueue(new TextEncoder().encode(text));
          controller.close();
        },
      });
      return new Response(body, { status: 200, headers: response.headers });
    },
  });
  const queue = client.queue('ending').group('g');
  await queue.push({ data: 1 });
  const loop = (async () => {
    for await (const _ of queue.messages(all)) assert.fail('it has ended');
  })();
  await until(() => arrived);
  const closing = client.close();
  open();
  await closing;
  await loop;
  const { pending, processing } = await (await clientOf(t)).queue('ending').group('g').depth();
  assert.deepEqual([pending, processing], [1, 0]);
});
