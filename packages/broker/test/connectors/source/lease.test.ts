/** The lease against a store that answers, loses answers, or lets somebody else be faster. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Lease, LeaseKeeper } from '../../../src/connectors/postgres/source/lease.ts';
import { leaseKey, SourceState } from '../../../src/connectors/postgres/source/state.ts';
import { DEFAULT_TENANT } from '../../../src/engine/types.ts';
import { FakeClock } from '../../hotlist/fake_clock.ts';
import { FakeStore } from './fake_store.ts';

const KEY = leaseKey('s');
const TTL_MS = 9_000;

function scene() {
  const store = new FakeStore();
  const clock = new FakeClock();
  const state = new SourceState(store, DEFAULT_TENANT);
  const lease = (node: string, incarnation = `${node}-1`) =>
    new Lease({ state, key: KEY, node, incarnation, ttlMs: TTL_MS, clock });
  return { store, clock, lease };
}

const holder = (store: FakeStore) => JSON.parse(store.entries.get(KEY)!.value) as { incarnation: string };

suite('a lease', () => {
  test('the first one has it, the second one is told who', async () => {
    const { store, lease } = scene();
    const [one, two] = [lease('a'), lease('b')];
    assert.deepEqual(await one.claim(), { held: true });
    assert.deepEqual(await two.claim(), { held: false, owner: 'a', retryMs: TTL_MS / 2 });
    const before = store.entries.get(KEY)!.version;
    assert.equal(await one.refresh(), true);
    assert.notEqual(store.entries.get(KEY)!.version, before);
    await one.release();
    assert.deepEqual(await two.claim(), { held: true });
    assert.equal(await one.refresh(), false);
  });

  test('a lost answer: what was written is found, what was not is tried again', async () => {
    const { store, lease } = scene();
    const one = lease('a');
    store.accidents = ['in_doubt_applied'];
    assert.deepEqual(await one.claim(), { held: true });
    store.accidents = ['in_doubt_applied'];
    assert.equal(await one.refresh(), true);
    assert.equal(await one.refresh(), true);
    store.accidents = ['in_doubt_not_applied'];
    // Still ours, but nobody has renewed it: to be tried again soon.
    await assert.rejects(one.refresh(), { code: 'queen' });
    assert.equal(await one.refresh(), true);
    store.accidents = ['unavailable'];
    await assert.rejects(one.refresh(), { code: 'queen' });
    assert.equal(await one.refresh(), true);
    const two = lease('b');
    store.accidents = ['in_doubt_not_applied'];
    await assert.rejects(two.claim(), { code: 'queen' });
    assert.equal(await two.refresh(), false);
  });

  test('gone or taken by somebody else: lost, whatever the answer', async () => {
    const { store, lease } = scene();
    const one = lease('a');
    await one.claim();
    store.entries.delete(KEY);
    assert.equal(await one.refresh(), false);
    await one.claim();
    store.set(KEY, JSON.stringify({ node: 'b', incarnation: 'b-1' }));
    store.accidents = ['in_doubt_not_applied'];
    await assert.rejects(one.refresh());
    assert.equal(await one.refresh(), false);
    await one.release();
    assert.equal(holder(store).incarnation, 'b-1');
  });

  test('of an earlier life of the node: taken over when nobody renews it', async () => {
    const { store, clock, lease } = scene();
    await lease('a', 'a-1').claim();
    const next = lease('a', 'a-2');
    assert.deepEqual(await next.claim(), { held: false, owner: 'a', retryMs: TTL_MS / 3 });
    clock.advance(TTL_MS / 3);
    assert.deepEqual(await next.claim(), { held: true });
    assert.equal(holder(store).incarnation, 'a-2');
  });

  test('two processes of one name do not steal from each other', async () => {
    const { store, clock, lease } = scene();
    const first = lease('a', 'a-1');
    await first.claim();
    const second = lease('a', 'a-2');
    for (let i = 0; i < 5; i++) {
      const claim = await second.claim();
      assert.equal(claim.held, false);
      clock.advance(TTL_MS / 3);
      assert.equal(await first.refresh(), true);
    }
    assert.equal(holder(store).incarnation, 'a-1');
  });

  test('it is kept until it is lost; an outage of the store is waited through', async () => {
    const { store, clock, lease } = scene();
    const one = lease('a');
    await one.claim();
    let lost = 0;
    const keeper = new LeaseKeeper(one, clock, () => lost++);
    const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
    const step = async (ms: number) => {
      clock.advance(ms);
      await settle();
      await settle();
    };
    const version = () => store.entries.get(KEY)!.version;
    let before = version();
    await step(TTL_MS / 3);
    assert.ok(version() > before);
    before = version();
    store.accidents = ['unavailable', 'unavailable'];
    await step(TTL_MS / 3);
    await step(1_000);
    await step(1_000);
    assert.equal(lost, 0);
    await step(TTL_MS / 3);
    assert.ok(version() > before);
    store.set(KEY, JSON.stringify({ node: 'b', incarnation: 'b-1' }));
    await step(TTL_MS / 3);
    assert.equal(lost, 1);
    keeper.stop();
  });
});
