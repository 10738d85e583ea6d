import assert from 'node:assert/strict';
import { test } from 'node:test';
import { broker, clientOf } from '../setup.ts';

/** A client that counts its pushes, and what was under way at once. */
async function counting(t: Parameters<typeof clientOf>[0]) {
  const seen = { pushes: 0, now: 0, most: 0, fail: 0 };
  const client = await clientOf(t, {
    urls: [(await broker()).url],
    retry: { retries: 0 },
    fetch: async (url, init) => {
      if (!String(url).endsWith('/push')) return fetch(url, init);
      seen.pushes++;
      seen.most = Math.max(seen.most, ++seen.now);
      try {
        if (seen.fail-- > 0) return new Response('{"error":"pool","code":"pool"}', { status: 500 });
        return await fetch(url, init);
      } finally {
        seen.now--;
      }
    },
  });
  return { client, seen };
}

test('what comes together goes together, in order within a partition', async (t) => {
  const { client, seen } = await counting(t);
  const producer = client.queue<number>('many').producer({ batch: 50, inFlight: 3, lingerMs: 5 });
  const sent: Promise<unknown>[] = [];
  for (let n = 0; n < 1_000; n++) sent.push(producer.send({ data: n, partition: `p${n % 7}` }));
  await Promise.all(sent);
  assert.ok(seen.pushes >= 20 && seen.pushes <= 200, `${seen.pushes} pushes`);
  assert.ok(seen.most <= 3);
  for (let p = 0; p < 7; p++) {
    const { records } = await client.messages.read<number>('many', `p${p}`, 0, { maxBytes: 8_000_000 });
    assert.deepEqual(
      records.map(({ payload }) => payload),
      Array.from({ length: 1_000 }, (_, n) => n).filter((n) => n % 7 === p),
    );
  }
});

test('a full buffer makes the caller wait; a flush and the end of the client lose nothing', async (t) => {
  const { client } = await counting(t);
  const producer = client.queue<number>('full').producer({ pending: 10, batch: 5, lingerMs: 60_000 });
  for (let n = 0; n < 33; n++) {
    await producer.add({ data: n });
    assert.ok(producer.pending <= 10);
  }
  await producer.flush();
  assert.equal(producer.pending, 0);
  await producer.add({ data: 33 });
  await client.close();
  await assert.rejects(producer.add({ data: 34 }), { code: 'closed' });
  const other = await clientOf(t);
  assert.equal((await other.messages.read('full', 'Default', 0)).highWatermark, 34);
});

test('what was not stored is told: to the sender, to onError, or by the flush', async (t) => {
  const { client, seen } = await counting(t);
  const queue = client.queue<number>('lossy');
  const producer = queue.producer({ lingerMs: 0 });
  seen.fail = 1;
  await assert.rejects(producer.send({ data: 1 }), { name: 'UnavailableError', code: 'pool' });
  seen.fail = 1;
  await producer.add({ data: 2 });
  await assert.rejects(producer.flush(), { code: 'pool' });
  await producer.flush();
  const lost: unknown[] = [];
  const other = queue.producer({ lingerMs: 0, onError: (_, { data }) => lost.push(data) });
  seen.fail = 1;
  await other.add({ data: 3 });
  await other.flush();
  assert.deepEqual(lost, [3]);
  await assert.rejects(other.send({ data: undefined as unknown as number }), TypeError);
  assert.throws(() => queue.producer({ inFlight: 0 }), RangeError);
  const controller = new AbortController();
  controller.abort();
  const small = queue.producer({ pending: 1, lingerMs: 60_000 });
  await small.add({ data: 4 });
  await assert.rejects(small.add({ data: 5 }, { signal: controller.signal }), { name: 'AbortedError' });
});

test('the bound of what waits holds for callers that do not wait for each other', async (t) => {
  const { client } = await counting(t);
  const producer = client.queue<number>('crowd').producer({ pending: 10, batch: 5, lingerMs: 1 });
  let most = 0;
  const look = () => {
    most = Math.max(most, producer.pending);
  };
  const controller = new AbortController();
  const sent = Array.from({ length: 60 }, (_, n) => {
    const { signal } = controller;
    return producer.send({ data: n }, n === 40 ? { signal } : {}).finally(look);
  });
  const watched = setInterval(look, 0);
  controller.abort();
  await assert.rejects(sent[40]!, { name: 'AbortedError' });
  // What was given before is stored by a flush, although it waited for room.
  await producer.flush();
  clearInterval(watched);
  assert.ok(most > 0 && most <= 10, `${most} at once`);
  assert.equal((await Promise.allSettled(sent)).filter(({ status }) => status === 'fulfilled').length, 59);
  const { records } = await client.messages.read<number>('crowd', 'Default', 0);
  assert.deepEqual(
    records.map(({ payload }) => payload),
    Array.from({ length: 60 }, (_, n) => n).filter((n) => n !== 40),
  );
});

test('a flush ends though others go on pushing, and a callback that throws breaks nothing', async (t) => {
  const { client, seen } = await counting(t);
  const producer = client.queue<number>('endless').producer({ lingerMs: 1, batch: 5, inFlight: 1 });
  let ended = false;
  const others = (async () => {
    for (let n = 0; !ended; n++) {
      await producer.add({ data: n });
      // Never an empty producer: the next one is there before the answer to this one.
      if (producer.pending > 20) await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  await producer.add({ data: -1 });
  await producer.flush({ signal: AbortSignal.timeout(30_000) });
  ended = true;
  await others;
  await producer.flush();

  const printed = t.mock.method(console, 'error', () => {});
  const careless = client.queue<number>('careless').producer({
    lingerMs: 0,
    onError: (_, { data }) => {
      if (data === 1) throw new Error('at once');
      return Promise.reject(new Error('later'));
    },
  });
  for (const data of [1, 2]) {
    seen.fail = 1;
    await careless.add({ data });
    await careless.flush();
  }
  assert.equal((await careless.send({ data: 3 })).status, 'queued');
  assert.equal(printed.mock.callCount(), 2);
  await assert.rejects(careless.add({ data: undefined as unknown as number }), TypeError);
});
