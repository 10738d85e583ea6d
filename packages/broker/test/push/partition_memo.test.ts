/** What is remembered of places: for how long, how much, and what is dropped. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '../../src/engine/clock.ts';
import { PartitionMemo } from '../../src/engine/push/partition_memo.ts';
import type { Place } from '../../src/store/push.ts';

const place = (partitionId: number): Place => ({ partitionId }) as Place;

function memoOf(entriesMax: number) {
  let now = 0;
  const clock = { now: () => now } as Clock;
  return { memo: new PartitionMemo(clock, 1_000, entriesMax), pass: (ms: number) => (now += ms) };
}

test('a place is known until its time is over, counted from the last word', () => {
  const { memo, pass } = memoOf(10);
  memo.set('a', place(1));
  pass(999);
  assert.equal(memo.get('a')?.partitionId, 1);
  memo.set('a', place(2));
  pass(999);
  assert.equal(memo.get('a')?.partitionId, 2);
  pass(1);
  assert.equal(memo.get('a'), null);
});

test('never more than allowed, and what was set last is among it', () => {
  const { memo } = memoOf(100);
  for (let i = 0; i < 1_000; i++) {
    memo.set(`k${i}`, place(i));
    assert.ok(memo.size <= 100, `${memo.size} at ${i}`);
    for (let back = 0; back < Math.min(i + 1, 50); back++)
      assert.equal(memo.get(`k${i - back}`)?.partitionId, i - back);
  }
  assert.equal(memo.get('k0'), null);
});

test('what is dropped is gone from both generations', () => {
  const { memo } = memoOf(4);
  memo.set('a', place(1));
  memo.set('b', place(2));
  // A generation later it is set again: it lies in both.
  memo.set('c', place(3));
  memo.set('a', place(4));
  assert.equal(memo.get('a')?.partitionId, 4);
  memo.drop('a');
  assert.equal(memo.get('a'), null);
  assert.equal(memo.get('b')?.partitionId, 2);
});
