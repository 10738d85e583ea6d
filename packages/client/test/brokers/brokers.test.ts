import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Brokers } from '../../src/brokers/brokers.ts';
import { rank } from '../../src/brokers/rank.ts';

const BROKERS = ['http://a:6632', 'http://b:6632', 'http://c:6632'];

test('keys spread over the brokers, and only those of a lost one move', () => {
  const firsts = new Map<string, number>();
  for (let key = 0; key < 3_000; key++) {
    const before = rank(BROKERS, `orders:*:group-${key}`);
    assert.deepEqual(rank([...BROKERS].reverse(), `orders:*:group-${key}`), before);
    firsts.set(before[0]!, (firsts.get(before[0]!) ?? 0) + 1);
    const left = rank(BROKERS.slice(0, 2), `orders:*:group-${key}`);
    assert.deepEqual(
      left,
      before.filter((broker) => broker !== BROKERS[2]),
    );
  }
  for (const broker of BROKERS)
    assert.ok(Math.abs(firsts.get(broker)! - 1_000) < 150, `${firsts.get(broker)}`);
});

test('a broker that failed is asked last for five seconds, or until it answers', () => {
  let now = 0;
  const brokers = new Brokers(BROKERS, () => now);
  const order = brokers.order('key');
  brokers.failed(order[0]!);
  assert.deepEqual(brokers.order('key'), [order[1], order[2], order[0]]);
  now = 5_000;
  assert.deepEqual(brokers.order('key'), order);
  brokers.failed(order[0]!);
  brokers.answered(order[0]!);
  assert.deepEqual(brokers.order('key'), order);
});

test('URLs: a path and no slash at the end, each once, and nothing that is none', () => {
  const { urls } = new Brokers(['http://a:1/', 'http://a:1', 'https://b/queen/']);
  assert.deepEqual(urls, ['http://a:1', 'https://b/queen']);
  for (const bad of [[], ['a:6632'], ['ftp://a'], ['nothing'], ['http://user:secret@a']]) {
    assert.throws(() => new Brokers(bad), TypeError, String(bad));
  }
});
