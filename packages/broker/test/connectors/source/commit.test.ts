/** Bundles into a store that answers, loses answers, or is written by somebody else: once each, or fenced. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import type { Bundle } from '../../../src/connectors/postgres/source/bundler.ts';
import { Committer } from '../../../src/connectors/postgres/source/commit.ts';
import {
  type Pointer,
  parsePointer,
  pointerFault,
  renderPointer,
  samePlace,
} from '../../../src/connectors/postgres/source/pointer.ts';
import { pointerKey, SourceState } from '../../../src/connectors/postgres/source/state.ts';
import { DEFAULT_TENANT } from '../../../src/engine/types.ts';
import { FakeClock } from '../../hotlist/fake_clock.ts';
import { type Accident, FakeStore } from './fake_store.ts';

const KEY = pointerKey('s');
const SYSTEM = { systemId: '7', timeline: 1 };
const FIRST: Pointer = {
  epoch: '0badcafe',
  ...SYSTEM,
  slot: 'queen_s',
  lsn: 0x100n,
  inTxn: null,
  snapshot: { tables: ['public.a'], table: 'public.a', after: ['1', 'x'], rows: 5, base: null },
  resyncedAt: null,
  updatedAt: '2026-01-01T00:00:00.000000Z',
};

function scene() {
  const store = new FakeStore();
  const clock = new FakeClock();
  const version = store.set(KEY, renderPointer(FIRST));
  const waits: number[] = [];
  const owner = () =>
    new Committer(
      {
        broker: store,
        state: new SourceState(store, DEFAULT_TENANT),
        tenant: DEFAULT_TENANT,
        key: KEY,
        clock,
        pause: (ms) => {
          waits.push(ms);
          clock.advance(ms);
          return Promise.resolve();
        },
        system: SYSTEM,
      },
      FIRST,
      version,
    );
  return { store, clock, owner, waits, stored: () => parsePointer(store.entries.get(KEY)!.value) };
}

function bundle(n: number): Bundle {
  const lsn = FIRST.lsn + BigInt(16 * n);
  const message = { queue: 'q', partition: 'p', payload: Buffer.from('{}'), transactionId: `m${n}` };
  return {
    messages: [message],
    bytes: 100,
    transactions: 1,
    snapshotRows: 0,
    place: { lsn, inTxn: null, snapshot: null },
  };
}

suite('a bundle is committed', () => {
  test('with its pointer, and the next one under the condition of its version', async () => {
    const { store, owner, stored } = scene();
    const one = owner();
    await one.commit(bundle(1));
    await one.commit(bundle(2));
    assert.deepEqual(store.messages, ['m1', 'm2']);
    assert.equal(stored().lsn, bundle(2).place.lsn);
    assert.ok(samePlace(stored(), one.pointer));
  });

  test('once each, whatever becomes of the answers', async () => {
    const accident = fc.constantFrom<Accident | null>(
      null,
      'in_doubt_applied',
      'in_doubt_not_applied',
      'unavailable',
      'overloaded',
    );
    await fc.assert(
      fc.asyncProperty(fc.array(accident, { maxLength: 12 }), fc.boolean(), async (accidents, ahead) => {
        const { store, owner, stored } = scene();
        const one = owner();
        store.accidents = [...accidents];
        const bundles = [1, 2, 3, 4].map(bundle);
        for (const [i, each] of bundles.entries()) {
          const done = one.commit(each);
          if (ahead && i < 3) one.prepare(bundles[i + 1]!);
          await done;
        }
        assert.deepEqual(store.messages, ['m1', 'm2', 'm3', 'm4']);
        assert.equal(stored().lsn, bundle(4).place.lsn);
      }),
    );
  });

  test('only when it is its turn, whatever was prepared', async () => {
    const { store, owner, stored } = scene();
    const one = owner();
    const [first, second] = [bundle(1), bundle(2)];
    const done = one.commit(first);
    one.prepare(second);
    await done;
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([store.messages, stored().lsn], [['m1'], first.place.lsn]);
    one.forget();
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(store.messages, ['m1']);
    await one.commit(second);
    assert.deepEqual([store.messages, stored().lsn], [['m1', 'm2'], second.place.lsn]);
  });

  test('by one of two owners alone', async () => {
    const accident = fc.constantFrom<Accident | null>(null, 'in_doubt_applied', 'in_doubt_not_applied');
    await fc.assert(
      fc.asyncProperty(
        fc.array(accident, { maxLength: 8 }),
        fc.array(fc.boolean(), { minLength: 6, maxLength: 6 }),
        async (accidents, turns) => {
          const { store, owner } = scene();
          const owners = [owner(), owner()];
          const next = [1, 1];
          const fenced = [false, false];
          store.accidents = [...accidents];
          for (const turn of turns) {
            const who = turn ? 1 : 0;
            if (fenced[who]) continue;
            try {
              await owners[who]!.commit(bundle(next[who]!));
              next[who]!++;
            } catch (error) {
              assert.equal((error as { code: string }).code, 'fenced');
              fenced[who] = true;
            }
          }
          // No message twice, and no hole.
          assert.deepEqual(
            store.messages,
            store.messages.map((_, i) => `m${i + 1}`),
          );
        },
      ),
    );
  });

  test('or another owner has moved the pointer', async () => {
    const { store, owner } = scene();
    const one = owner();
    store.set(KEY, renderPointer({ ...FIRST, lsn: 0x900n }));
    await assert.rejects(one.commit(bundle(1)), { code: 'fenced' });
    assert.deepEqual(store.messages, []);
    store.entries.delete(KEY);
    await assert.rejects(one.commit(bundle(1)), { code: 'fenced' });
  });

  test('or a message of it is there although the pointer is not', async () => {
    const { store, owner } = scene();
    store.messages.push('m1');
    await assert.rejects(owner().commit(bundle(1)), { code: 'duplicate', message: /m1/ });
  });

  test('or the store is away for a minute', async () => {
    const { store, owner, waits } = scene();
    store.accidents = Array<Accident>(1_000).fill('unavailable');
    await assert.rejects(owner().commit(bundle(1)), { code: 'queen' });
    const waited = waits.reduce((sum, ms) => sum + ms, 0);
    assert.ok(waited > 50_000 && waited <= 60_000, `${waited} ms`);
  });

  test('or its place would go back', async () => {
    const { owner } = scene();
    const back = { ...bundle(1), place: { lsn: 0x10n, inTxn: null, snapshot: null } };
    await assert.rejects(owner().commit(back), { code: 'pointer_corrupt' });
  });
});

suite('a pointer', () => {
  test('is what was written', () => {
    const split: Pointer = { ...FIRST, inTxn: { commitLsn: 0x200n, done: 7 }, resyncedAt: 'x' };
    for (const pointer of [FIRST, split]) {
      assert.deepEqual(parsePointer(renderPointer(pointer)), pointer);
      assert.ok(samePlace(parsePointer(renderPointer(pointer)), pointer));
    }
    assert.ok(!samePlace(FIRST, split));
    assert.ok(!samePlace(FIRST, { ...FIRST, snapshot: null }));
  });

  test('is refused when it is none, newer, or contradicts itself', () => {
    const good = JSON.parse(renderPointer(FIRST)) as Record<string, unknown>;
    const bad: [Record<string, unknown>, RegExp][] = [
      [{ v: 2 }, /newer broker/],
      [{ v: '1' }, /v is not 1/],
      [{ epoch: 'XYZ' }, /epoch/],
      [{ lsn: 'there' }, /lsn is not a position/],
      [{ timeline: -1 }, /timeline/],
      [{ inTxn: { commitLsn: '0/1', done: 1 } }, /before lsn/],
      [{ inTxn: { commitLsn: '0/200', done: 0 } }, /done/],
      [{ snapshot: { tables: [], table: 'a', after: null, rows: 0, base: null } }, /snapshot/],
    ];
    for (const [change, why] of bad) {
      assert.throws(() => parsePointer(JSON.stringify({ ...good, ...change })), {
        code: 'pointer_corrupt',
        message: why,
      });
    }
    assert.throws(() => parsePointer('{'), { code: 'pointer_corrupt' });
    assert.equal(pointerFault(FIRST), null);
  });
});
