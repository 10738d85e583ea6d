import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Parking, type Wish } from '../../src/engine/wake/parking.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';

interface Bay {
  ready: number;
  looks: number;
}

function wish(bay: Bay, key = 'k', group = 'g'): Wish {
  return {
    keys: [key],
    group,
    ready: () => bay.ready,
    wants: () => {
      bay.looks++;
      return bay.ready > 0;
    },
  };
}

async function settled<T>(promise: Promise<T>): Promise<T | 'pending'> {
  return Promise.race([promise, new Promise<'pending'>((r) => setImmediate(() => r('pending')))]);
}

test('a signal wakes as many as there is work for, first come first served, after one tick', async () => {
  const clock = new FakeClock();
  const parking = new Parking(clock);
  const bay = { ready: 0, looks: 0 };
  const pops = [1, 2, 3].map(() => parking.park(wish(bay), 10_000, null));
  bay.ready = 2;
  for (let i = 0; i < 100; i++) parking.signal('k');
  assert.equal(await settled(pops[0]!), 'pending');
  clock.advance(5);
  assert.deepEqual(await Promise.all(pops.map(settled)), ['woken', 'woken', 'pending']);
  assert.equal(parking.parked, 1);
});

test('groups do not share, other queues are not disturbed', async () => {
  const clock = new FakeClock();
  const parking = new Parking(clock);
  const [a, b] = [
    { ready: 0, looks: 0 },
    { ready: 0, looks: 0 },
  ];
  const pops = [
    parking.park(wish(a), 10_000, null),
    parking.park(wish(b, 'k', 'h'), 10_000, null),
    parking.park(wish(a, 'other'), 10_000, null),
  ];
  b.ready = 1;
  parking.signal('k');
  clock.advance(5);
  assert.deepEqual(await Promise.all(pops.map(settled)), ['pending', 'woken', 'pending']);
});

test('the back-off looks at memory: three times after 100 ms, then doubling to a second', () => {
  const clock = new FakeClock();
  const parking = new Parking(clock);
  const bay = { ready: 0, looks: 0 };
  void parking.park(wish(bay), 60_000, null);
  const times: number[] = [];
  let seen = bay.looks;
  for (let at = 1; at <= 5_000; at++) {
    clock.advance(1);
    if (bay.looks > seen) times.push(at);
    seen = bay.looks;
  }
  // A little early rather than late, so that many looks fall into one.
  assert.deepEqual(times, [100, 200, 300, 500, 900, 1_600, 2_500, 3_500, 4_500]);
});

test('a lost signal costs the back-off, not the message', async () => {
  const clock = new FakeClock();
  const parking = new Parking(clock);
  const bay = { ready: 0, looks: 0 };
  const pop = parking.park(wish(bay), 60_000, null);
  bay.ready = 1;
  clock.advance(99);
  assert.equal(await settled(pop), 'pending');
  clock.advance(1);
  assert.equal(await pop, 'woken');
});

test('the deadline is kept, and nothing is left behind', async () => {
  const clock = new FakeClock();
  const parking = new Parking(clock);
  const pop = parking.park(wish({ ready: 0, looks: 0 }), 250, null);
  clock.advance(249);
  assert.equal(await settled(pop), 'pending');
  clock.advance(1);
  assert.equal(await pop, 'timeout');
  assert.equal(parking.parked, 0);
  assert.equal(clock.pending, 0);
  assert.deepEqual([...parking.keys()], []);
});

test('who wants already, is gone already, or is late already does not park', async () => {
  const parking = new Parking(new FakeClock());
  assert.equal(await parking.park(wish({ ready: 1, looks: 0 }), 100, null), 'woken');
  assert.equal(await parking.park(wish({ ready: 1, looks: 0 }), 100, AbortSignal.abort()), 'aborted');
  assert.equal(await parking.park(wish({ ready: 1, looks: 0 }), 0, null), 'timeout');
});

test('an abort removes the seat at once', async () => {
  const clock = new FakeClock();
  const parking = new Parking(clock);
  const controller = new AbortController();
  const bay = { ready: 0, looks: 0 };
  const gone = parking.park(wish(bay), 10_000, controller.signal);
  const stays = parking.park(wish(bay), 10_000, null);
  controller.abort();
  assert.equal(await gone, 'aborted');
  bay.ready = 1;
  parking.signal('k');
  clock.advance(5);
  assert.equal(await stays, 'woken', 'the share of the one that left goes to the next');
});

test('stop answers everybody and lets nobody in', async () => {
  const clock = new FakeClock();
  const parking = new Parking(clock);
  const pops = [1, 2].map(() => parking.park(wish({ ready: 0, looks: 0 }), 10_000, null));
  parking.stop();
  assert.deepEqual(await Promise.all(pops), ['stopped', 'stopped']);
  assert.equal(await parking.park(wish({ ready: 0, looks: 0 }), 10_000, null), 'stopped');
  assert.equal(clock.pending, 0);
});
