import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { decodeNews, encodeNews, isFrom, type Outgoing } from '../../src/engine/wake/payload.ts';

const OTHER = '11111111-2222-3333-4444-555555555555';

function all(payloads: string[]) {
  const news = payloads.map((payload) => {
    const decoded = decodeNews(payload);
    assert.ok(decoded !== null);
    assert.equal(decoded.sender, 'me');
    assert.equal(isFrom('me', payload), true);
    assert.equal(isFrom('m', payload), false);
    return decoded;
  });
  const pairs = new Map<string, number[]>();
  for (const { tenant, queue, pairs: some } of news.flatMap((n) => n.appended)) {
    const key = JSON.stringify([tenant, queue]);
    pairs.set(key, [...(pairs.get(key) ?? []), ...some]);
  }
  return {
    pairs,
    released: news.flatMap((n) => n.released),
    deleted: news.flatMap((n) => n.deleted),
    repairs: news.some((n) => n.repairs),
    timers: news.some((n) => n.timers),
  };
}

test('whatever is sent arrives, in payloads that PostgreSQL takes', () => {
  const name = fc.oneof(
    fc.string({ minLength: 1, maxLength: 30 }),
    fc.constant('ü'.repeat(255)),
    fc.constant('"\\'),
  );
  const tenant = fc.constantFrom(DEFAULT_TENANT, OTHER);
  const id = fc.nat(2 ** 31);
  fc.assert(
    fc.property(
      fc.record({
        appended: fc.array(
          fc.record({
            tenant,
            queue: name,
            pairs: fc.array(fc.tuple(id, id), { maxLength: 900 }).map((list) => list.flat()),
          }),
          { maxLength: 6 },
        ),
        released: fc.array(fc.record({ group: name, partitionId: id, committed: fc.option(id) }), {
          maxLength: 300,
        }),
        deleted: fc.array(fc.record({ tenant, queue: name }), { maxLength: 3 }),
        repairs: fc.boolean(),
        timers: fc.boolean(),
      }),
      (news: Outgoing) => {
        const payloads = encodeNews('me', news);
        for (const payload of payloads) assert.ok(Buffer.byteLength(payload) < 8_000);
        const got = all(payloads);
        const sent = new Map<string, number[]>();
        for (const { tenant: t, queue, pairs } of news.appended) {
          const key = JSON.stringify([t, queue]);
          sent.set(key, [...(sent.get(key) ?? []), ...pairs]);
        }
        assert.deepEqual(got.pairs, sent);
        assert.deepEqual(
          got.released,
          news.released.map((r) => ({ ...r })),
        );
        assert.deepEqual(
          got.deleted,
          news.deleted.map((d) => ({ ...d })),
        );
        assert.equal(got.repairs, news.repairs);
      },
    ),
    { numRuns: 200 },
  );
});

test('payloads are filled: a thousand partitions take few', () => {
  const pairs = Array.from({ length: 2_000 }, (_, i) => 1_000_000 + i);
  const payloads = encodeNews('me', {
    appended: [{ tenant: DEFAULT_TENANT, queue: 'q', pairs }],
    released: [],
    deleted: [],
    repairs: false,
    timers: false,
  });
  assert.ok(payloads.length <= 3, `${payloads.length}`);
  assert.deepEqual(
    encodeNews('me', { appended: [], released: [], deleted: [], repairs: false, timers: false }),
    [],
  );
});

test('what is not ours is nothing', () => {
  for (const text of ['', 'x', '[]', '{}', '{"b":1}', 'null', '{"b":"o","q":[1,[2],["",3]],"r":7}']) {
    const news = decodeNews(text);
    if (news !== null) assert.deepEqual([news.appended, news.released, news.deleted], [[], [], []]);
  }
});
