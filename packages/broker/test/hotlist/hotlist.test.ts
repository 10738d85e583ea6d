import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HotList, type RingFacts } from '../../src/engine/hotlist/hotlist.ts';
import { FakeClock } from './fake_clock.ts';

const T = 'tenant';

function bench(idleSweepMs = 300_000) {
  const clock = new FakeClock();
  const hotlist = new HotList(clock, { windowBatch: 100, idleSweepMs });
  const ready: string[] = [];
  hotlist.onReady = (ring) => void ready.push(`${ring.queue}/${ring.group}`);
  const add = (over: Partial<RingFacts> = {}) =>
    hotlist.add({
      tenant: T,
      queue: 'q',
      group: 'g',
      queueId: 1,
      conflation: false,
      registered: true,
      minPopWaitMs: 0,
      ...over,
    });
  return { clock, hotlist, ready, add };
}

function draw(ring: ReturnType<ReturnType<typeof bench>['add']>): number[] {
  const out: number[] = [];
  ring.ring.draw(64, 1_000_000, out);
  return out;
}

test('a push marks the rings of all groups of its queue, and no other', () => {
  const { hotlist, ready, add } = bench();
  const rings = [add(), add({ group: 'h' }), add({ queue: 'r', queueId: 2 })];
  hotlist.mark(T, 'q', 7, 3);
  hotlist.mark(T, 'unknown', 8, 3);
  assert.deepEqual(
    rings.map((r) => r.ring.ready),
    [1, 1, 0],
  );
  assert.deepEqual(ready, ['q/g', 'q/h']);
});

test('the wheel returns parked partitions on a tick and stops when nothing is parked', () => {
  const { clock, hotlist, ready, add } = bench();
  const ring = add();
  hotlist.mark(T, 'q', 7, 3);
  draw(ring);
  ring.ring.skipped(7, clock.now());
  hotlist.settled(ring);
  ready.length = 0;
  clock.advance(249);
  assert.equal(ring.ring.ready, 0);
  clock.advance(51);
  assert.equal(ring.ring.ready, 1);
  assert.deepEqual(ready, ['q/g']);
  assert.equal(clock.pending, 0, 'no timer without parked partitions');
});

test('a released lease promotes its partition at once', () => {
  const { clock, hotlist, ready, add } = bench();
  const ring = add();
  add({ group: 'other' });
  hotlist.mark(T, 'q', 7, 3);
  draw(ring);
  ring.ring.took(7, 3, 3, 60_000, clock.now());
  hotlist.leasedHere(ring, 7);
  hotlist.settled(ring);
  ready.length = 0;
  hotlist.released(7, 'g', null);
  assert.deepEqual(ready, ['q/g']);
  assert.deepEqual(draw(ring), [7]);
  // Leased by another broker: found by the rings of the group.
  ring.ring.leased(7, 60_000, clock.now());
  hotlist.released(7, 'g', null);
  assert.deepEqual(draw(ring), [7]);
});

test('rings that nobody asks for go at the second look, with their timers', () => {
  const { clock, hotlist, add } = bench(1_000);
  const used = add();
  const idle = add({ group: 'idle' });
  for (let i = 0; i < 3; i++) {
    clock.advance(1_000);
    hotlist.find(T, 'q', 'g');
    hotlist.sweep();
  }
  assert.equal(used.dropped, false);
  assert.equal(idle.dropped, true);
  assert.equal(hotlist.find(T, 'q', 'idle'), null);
  assert.equal(hotlist.stats().rings, 1);
});

test('another queue id under the name drops all its rings', () => {
  const { hotlist, add } = bench();
  const [g, h] = [add(), add({ group: 'h' })];
  const fresh = add({ queueId: 2 });
  assert.deepEqual([g.dropped, h.dropped, fresh.dropped], [true, true, false]);
  assert.equal(hotlist.queueIdOf(T, 'q'), 2);
  assert.equal(
    add({ queueId: 2, conflation: true }),
    fresh,
    'the same ring, with what the registration says',
  );
  assert.equal(fresh.conflation, true);
});

test('a queue that is gone stays gone for its parked pops until somebody brings it back', () => {
  const { clock, hotlist, add } = bench();
  add();
  add({ group: 'asleep' });
  clock.advance(10_000);
  hotlist.find(T, 'q', 'g');
  hotlist.replaced(T, 'q', true);
  assert.equal(hotlist.isGone(T, 'q'), true);
  assert.equal(hotlist.hasQueue(T, 'q'), false);
  assert.equal(hotlist.back(T, 'q'), true);
  assert.equal(hotlist.isGone(T, 'q'), false);
  assert.equal(hotlist.takePresent(T, 'q', 'g'), true);
  assert.equal(hotlist.takePresent(T, 'q', 'g'), false);
  assert.equal(hotlist.takePresent(T, 'q', 'asleep'), false, 'it had not polled for long');
});

test('a jump of the database clock makes everything parked due', () => {
  const { clock, hotlist, ready, add } = bench();
  const ring = add();
  hotlist.mark(T, 'q', 7, 3);
  draw(ring);
  ring.ring.took(7, 3, 3, 600_000, clock.now());
  hotlist.settled(ring);
  ready.length = 0;
  hotlist.clockJumped();
  assert.deepEqual(ready, ['q/g']);
});
