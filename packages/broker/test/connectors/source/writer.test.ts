/** When bundles leave, and what the upstream is told, by a clock that is moved by hand. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { type Bundle, Bundler } from '../../../src/connectors/postgres/source/bundler.ts';
import { Confirmation } from '../../../src/connectors/postgres/source/confirmation.ts';
import { BundleWriter } from '../../../src/connectors/postgres/source/writer.ts';
import { FakeClock } from '../../hotlist/fake_clock.ts';

function scene(lingerMs: number, messagesMax = 3) {
  const clock = new FakeClock();
  const begun: Bundle[] = [];
  const prepared: Bundle[] = [];
  const errors: unknown[] = [];
  let answer: { resolve: () => void; reject: (error: unknown) => void } | null = null;
  const start = { lsn: 0n, inTxn: null, snapshot: null };
  const bundler: Bundler = new Bundler({ messagesMax, bytesMax: 100_000 }, start, (bundle) =>
    writer.add(bundle),
  );
  const committed: Bundle[] = [];
  const writer: BundleWriter = new BundleWriter({
    bundler,
    lingerMs,
    clock,
    commit: (bundle) => {
      begun.push(bundle);
      return new Promise<void>((resolve, reject) => {
        answer = { resolve, reject };
      });
    },
    prepare: (bundle) => prepared.push(bundle),
    committed: (bundle) => committed.push(bundle),
    failed: (error) => errors.push(error),
  });
  let n = 0;
  const transaction = (messages = 1) => {
    const commitLsn = BigInt(++n * 16);
    bundler.begin(commitLsn);
    for (let raw = 0; raw < messages; raw++) {
      const transactionId = `${n}:${raw}`;
      bundler.change(raw, [{ queue: 'q', partition: 'p', payload: Buffer.alloc(10), transactionId }]);
    }
    bundler.commit(commitLsn + 8n, clock.now());
    writer.gathered();
  };
  const settle = async () => {
    for (let i = 0; i < 8; i++) await Promise.resolve();
  };
  const done = async () => {
    answer!.resolve();
    await settle();
  };
  const ids = (bundles: readonly Bundle[]) =>
    bundles.map(({ messages }) => messages.map(({ transactionId }) => transactionId).join(' '));
  return {
    clock,
    writer,
    transaction,
    begun,
    prepared,
    committed,
    errors,
    settle,
    done,
    ids,
    fail: (e: unknown) => answer!.reject(e),
  };
}

suite('a bundle leaves', () => {
  test('when its first transaction has waited long enough', () => {
    const { clock, transaction, begun, ids } = scene(20);
    transaction();
    clock.advance(15);
    transaction();
    assert.equal(begun.length, 0);
    clock.advance(5);
    assert.deepEqual(ids(begun), ['1:0 2:0']);
  });

  test('when it is full, without waiting', () => {
    const { transaction, begun, ids, writer } = scene(1_000);
    transaction(2);
    assert.equal(begun.length, 0);
    transaction(2);
    // The second one did not fit into the first one's.
    assert.deepEqual(ids(begun), ['1:0 1:1']);
    transaction(1);
    assert.equal(writer.waiting, 1);
    assert.ok(!writer.full);
    transaction(3);
    assert.equal(writer.waiting, 2);
    assert.ok(writer.full);
  });

  test('behind the one under way, for which it was prepared when it was full', async () => {
    const { transaction, begun, prepared, ids, done } = scene(1_000);
    transaction(3);
    assert.deepEqual([ids(begun), ids(prepared)], [['1:0 1:1 1:2'], []]);
    transaction(3);
    assert.deepEqual([ids(begun).length, ids(prepared)], [1, ['2:0 2:1 2:2']]);
    transaction(3);
    await done();
    assert.deepEqual(ids(begun).at(-1), '2:0 2:1 2:2');
    assert.deepEqual(ids(prepared).at(-1), '3:0 3:1 3:2');
  });

  test('behind the one under way as soon as that is in, if it is due by then', async () => {
    const { clock, transaction, begun, ids, done } = scene(20);
    transaction();
    clock.advance(20);
    transaction();
    clock.advance(100);
    transaction();
    assert.equal(begun.length, 1);
    await done();
    assert.deepEqual(ids(begun), ['1:0', '2:0 3:0']);
    await done();
    transaction();
    assert.equal(begun.length, 2);
    clock.advance(20);
    assert.equal(begun.length, 3);
  });

  test('at once without any linger, with what came in the same read', async () => {
    const { transaction, begun, ids } = scene(0);
    transaction();
    transaction();
    assert.equal(begun.length, 0);
    await new Promise<void>((resolve) => setImmediate(resolve));
    assert.deepEqual(ids(begun), ['1:0 2:0']);
  });

  test('never after a failure, or a stop', async () => {
    const { clock, transaction, begun, errors, fail, settle } = scene(20);
    transaction();
    clock.advance(20);
    fail(new Error('no'));
    await settle();
    assert.equal(errors.length, 1);
    transaction();
    clock.advance(100);
    assert.equal(begun.length, 1);
    const other = scene(20);
    other.transaction();
    other.clock.advance(20);
    other.transaction();
    const stopped = other.writer.stop(1_000);
    await other.done();
    await stopped;
    other.clock.advance(100);
    assert.deepEqual([other.begun.length, other.committed.length], [1, 1]);
    const hanging = scene(0, 1);
    hanging.transaction();
    let ended = false;
    void hanging.writer.stop(1_000).then(() => {
      ended = true;
    });
    hanging.clock.advance(1_000);
    await hanging.settle();
    assert.ok(ended);
  });
});

test('the upstream is told regularly, after commits once a second, and when it asks', () => {
  const clock = new FakeClock();
  const told: [number, bigint, bigint][] = [];
  let received = 10n;
  const confirm = (got: bigint, safe: bigint) => void told.push([clock.now(), got, safe]);
  const confirmation = new Confirmation({ confirm }, clock, {
    safe: 5n,
    received: () => received,
    everyMs: 5_000,
  });
  confirmation.tell();
  confirmation.moved(8n);
  clock.advance(400);
  received = 20n;
  confirmation.moved(12n);
  // Never back.
  confirmation.moved(3n);
  clock.advance(600);
  clock.advance(3_999);
  clock.advance(1);
  confirmation.asked();
  confirmation.asked();
  clock.advance(20);
  confirmation.moved(15n, true);
  assert.deepEqual(told, [
    [0, 10n, 5n],
    [1_000, 20n, 12n],
    [5_000, 20n, 12n],
    [5_020, 20n, 12n],
    [5_020, 20n, 15n],
  ]);
  confirmation.stop();
  clock.advance(50_000);
  assert.equal(told.length, 5);
});
