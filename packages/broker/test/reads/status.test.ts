import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Cursor,
  consumptionOf,
  leaseEnd,
  modeOf,
  statusFor,
  statusOf,
} from '../../src/engine/reads/status.ts';
import { QUEUE_MODE_GROUP } from '../../src/engine/types.ts';

const cursor = (group: string, committed: number, leaseUpto: number | null = null, end = 99): Cursor => ({
  group,
  committed,
  leaseUpto,
  leaseExpiresAtMicros: leaseUpto === null ? null : end,
});

test('the furthest behind of those who count decides', () => {
  const cursors = [cursor('a', 5), cursor('b', 2), cursor(QUEUE_MODE_GROUP, 0)];
  assert.equal(consumptionOf(cursors, true).done, 2);
  assert.equal(consumptionOf(cursors.slice(2), false).done, 0);
  assert.equal(consumptionOf(cursors.slice(2), true).done, null, 'a named group elsewhere on the queue');
  assert.equal(consumptionOf([], false).done, null);
});

test('status of a message, as a whole and for one group', () => {
  const cursors = [cursor('a', 5, 8), cursor('b', 3)];
  const facts = consumptionOf(cursors, true);
  const whole = [2, 3, 4, 6, 8, 9].map((offset) => statusOf(offset, facts, false));
  assert.deepEqual(whole, ['completed', 'completed', 'pending', 'processing', 'processing', 'pending']);
  assert.equal(statusOf(2, facts, true), 'dead_letter');
  assert.equal(statusOf(2, consumptionOf([], false), false), 'pending');
  assert.deepEqual(
    cursors.map((each) => statusFor(each, 4, false)),
    ['completed', 'pending'],
  );
  assert.equal(statusFor(cursors[0]!, 6, false), 'processing');
  assert.equal(statusFor(cursors[0]!, 4, true), 'dead_letter');
});

test('the first lease to end, and who consumes', () => {
  const cursors = [cursor('a', 5, 8, 30), cursor('b', 3, 6, 20), cursor(QUEUE_MODE_GROUP, 0)];
  assert.equal(leaseEnd(cursors, 6), 20);
  assert.equal(leaseEnd(cursors, 7), 30);
  assert.equal(leaseEnd(cursors, 9), null);
  assert.deepEqual(modeOf(cursors), { hasQueueMode: true, namedGroups: 2 });
  assert.deepEqual(modeOf([]), { hasQueueMode: false, namedGroups: 0 });
});
