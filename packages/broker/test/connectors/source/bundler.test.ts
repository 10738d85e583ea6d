/** Bundles against a model: what each says of itself is what it holds, and any of them is a place to begin again. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  type Bundle,
  type BundleLimits,
  Bundler,
  messageBytes,
  type OutMessage,
} from '../../../src/connectors/postgres/source/bundler.ts';
import { ALL, RestartFilter } from '../../../src/connectors/postgres/source/filter.ts';
import type { Place } from '../../../src/connectors/postgres/source/pointer.ts';
import { firstState } from '../../../src/connectors/postgres/source/snapshot/state.ts';

/** Of a change, how many messages it makes and how long each is. */
type Change = readonly number[];
/** Changes of a transaction, bytes of other log before it, whether somebody flushes behind it. */
interface Step {
  readonly changes: readonly Change[];
  readonly gap: number;
  readonly after: 'nothing' | 'flush' | 'position' | 'positions';
}

const START: Place = { lsn: 1_000n, inTxn: null, snapshot: null };

interface Transaction extends Step {
  readonly commitLsn: bigint;
  readonly endLsn: bigint;
  readonly messages: readonly (readonly OutMessage[])[];
}

/** Lays the steps out in a log, the first one right at the start. */
function laidOut(steps: readonly Step[]): Transaction[] {
  let at = START.lsn;
  return steps.map((step, t) => {
    const commitLsn = at + BigInt(step.gap);
    at = commitLsn + 10n;
    const messages = step.changes.map((change, raw) =>
      change.map(
        (bytes, k): OutMessage => ({
          queue: 'q',
          partition: `p${(t + raw) % 3}`,
          payload: Buffer.alloc(bytes, 0x20),
          transactionId: `${commitLsn}:${raw}${k === 0 ? '' : `.${k}`}`,
        }),
      ),
    );
    return { ...step, commitLsn, endLsn: at, messages };
  });
}

/** As a stream that begins at `start` sends it: some of what is in comes again. */
function run(log: readonly Transaction[], start: Place, limits: BundleLimits): Bundle[] {
  const bundles: Bundle[] = [];
  const bundler = new Bundler(limits, start, (bundle) => bundles.push(bundle));
  const filter = new RestartFilter(start);
  for (const { commitLsn, endLsn, messages, after } of log) {
    const skip = filter.begin(commitLsn);
    if (skip !== ALL) bundler.begin(commitLsn);
    messages.forEach((change, raw) => {
      if (raw >= skip && change.length > 0) bundler.change(raw, change);
    });
    filter.commit(endLsn);
    if (skip !== ALL) bundler.commit(endLsn, 0);
    if (after === 'flush' || after === 'positions') bundler.flush(after === 'positions');
    if (after === 'position') bundler.position(endLsn);
  }
  bundler.flush(true);
  return bundles;
}

function idsOf(bundles: readonly Bundle[]): string[] {
  return bundles.flatMap(({ messages }) => messages.map(({ transactionId }) => transactionId));
}

/** What a place says is in the queues. */
function covered(log: readonly Transaction[], { lsn, inTxn }: Place): string[] {
  return log.flatMap(({ commitLsn, endLsn, messages }) =>
    messages.flatMap((change, raw) =>
      endLsn <= lsn || (inTxn?.commitLsn === commitLsn && raw < inTxn.done)
        ? change.map(({ transactionId }) => transactionId)
        : [],
    ),
  );
}

const step: fc.Arbitrary<Step> = fc.record({
  changes: fc.array(fc.array(fc.integer({ min: 0, max: 300 }), { maxLength: 2 }), { maxLength: 12 }),
  gap: fc.integer({ min: 0, max: 3 }),
  after: fc.constantFrom('nothing', 'flush', 'position', 'positions'),
});
const limits = fc.record({
  messagesMax: fc.integer({ min: 1, max: 8 }),
  bytesMax: fc.integer({ min: 100, max: 2_000 }),
});

test('every bundle says exactly what is in with it, and everything is in once, in order', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 12 }), limits, (steps, limits) => {
      const log = laidOut(steps);
      const bundles = run(log, START, limits);
      const all = log.flatMap(({ messages }) => messages.flat().map(({ transactionId }) => transactionId));
      assert.deepEqual(idsOf(bundles), all);
      bundles.forEach(({ place }, i) => {
        assert.deepEqual(idsOf(bundles.slice(0, i + 1)), covered(log, place));
      });
    }),
  );
});

test('begun again behind any bundle, the rest is what the rest was', () => {
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 8 }),
      limits,
      limits,
      fc.nat(8),
      (steps, limits, others, resent) => {
        const log = laidOut(steps);
        const bundles = run(log, START, limits);
        const all = idsOf(bundles);
        bundles.forEach(({ place }, i) => {
          const done = idsOf(bundles.slice(0, i + 1)).length;
          // The slot sends from somewhere at or before the place.
          const from = log.filter(({ endLsn }) => endLsn <= place.lsn).length;
          const again = run(log.slice(Math.max(0, from - resent)), place, others);
          assert.deepEqual(idsOf(again), all.slice(done));
        });
      },
    ),
  );
});

test('limits: no bundle is larger, unless one change alone is', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 12 }), limits, (steps, limits) => {
      const log = laidOut(steps);
      const changes = new Map(
        log.flatMap(({ messages }) => messages.map((change) => [change[0]?.transactionId, change.length])),
      );
      for (const { messages, bytes } of run(log, START, limits)) {
        assert.equal(
          bytes,
          messages.reduce((sum, message) => sum + messageBytes(message), 0),
        );
        const alone = messages.length > 0 && changes.get(messages[0]!.transactionId) === messages.length;
        assert.ok(alone || (messages.length <= limits.messagesMax && bytes <= limits.bytesMax));
      }
    }),
  );
});

test('transactions that fit are whole, and small ones before a large one do not go into its pieces', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 10 }), limits, (steps, limits) => {
      const log = laidOut(steps);
      const bundles = run(log, START, limits);
      for (const { messages } of log) {
        const list = messages.flat();
        const bytes = list.reduce((sum, message) => sum + messageBytes(message), 0);
        const ids = new Set(list.map(({ transactionId }) => transactionId));
        const holding = bundles.filter((bundle) =>
          bundle.messages.some(({ transactionId }) => ids.has(transactionId)),
        );
        if (list.length <= limits.messagesMax && bytes <= limits.bytesMax) assert.ok(holding.length <= 1);
        else {
          const [first] = holding;
          assert.ok(first === undefined || ids.has(first.messages[0]!.transactionId));
        }
      }
    }),
  );
});

const message = (transactionId: string, bytes = 10): OutMessage => ({
  queue: 'q',
  partition: 'p',
  payload: Buffer.alloc(bytes),
  transactionId,
});

function collecting(limits: BundleLimits, start = START) {
  const bundles: Bundle[] = [];
  return { bundles, bundler: new Bundler(limits, start, (bundle) => bundles.push(bundle)) };
}

test('what has gathered tells since when it waits; positions ride along and cost no bundle', () => {
  const { bundler, bundles } = collecting({ messagesMax: 10, bytesMax: 100_000 });
  bundler.begin(1_010n);
  bundler.commit(1_020n, 5);
  assert.equal(bundler.waitingSinceMs, null);
  bundler.flush();
  assert.equal(bundles.length, 0);
  assert.ok(bundler.moved && bundler.idle);
  bundler.begin(1_030n);
  bundler.change(3, [message('a')]);
  assert.ok(!bundler.idle);
  bundler.commit(1_040n, 7);
  bundler.begin(1_050n);
  bundler.change(0, [message('b')]);
  bundler.commit(1_060n, 9);
  assert.equal(bundler.waitingSinceMs, 7);
  bundler.position(1_070n);
  bundler.flush();
  assert.equal(bundler.waitingSinceMs, null);
  assert.deepEqual(idsOf(bundles), ['a', 'b']);
  assert.deepEqual(
    bundles.map(({ place, transactions }) => [place.lsn, transactions]),
    [[1_070n, 2]],
  );
  assert.ok(!bundler.moved);
});

test('a position does not pass a transaction whose pieces are in, unless its end is behind it', () => {
  const start: Place = { lsn: 1_000n, inTxn: { commitLsn: 2_000n, done: 3 }, snapshot: null };
  const { bundler, bundles } = collecting({ messagesMax: 10, bytesMax: 100_000 }, start);
  bundler.position(1_500n);
  bundler.flush(true);
  assert.equal(bundles.length, 0);
  assert.ok(!bundler.idle);
  // Nothing of it is published any more: it is never sent.
  bundler.position(2_100n);
  bundler.flush(true);
  assert.deepEqual(
    bundles.map(({ place }) => place),
    [{ lsn: 2_100n, inTxn: null, snapshot: null }],
  );
});

test('rows of a chunk carry where the snapshot is with them; its end is written even without any', () => {
  const first = firstState(['public.a', 'public.b'], null)!;
  const { bundler, bundles } = collecting(
    { messagesMax: 2, bytesMax: 100_000 },
    { lsn: 1_000n, inTxn: null, snapshot: first },
  );
  const after = (key: string) => ({ ...first, after: [key], rows: Number(key) });
  const second = firstState(['public.b'], null)!;
  for (const key of ['1', '2', '3']) bundler.row(message(key), 1_100n, after(key), 0);
  bundler.chunkEnd(1_100n, second);
  bundler.chunkEnd(1_200n, null);
  assert.deepEqual(
    bundles.map(({ messages, place, snapshotRows }) => [
      messages.length,
      snapshotRows,
      place.lsn,
      place.snapshot,
    ]),
    [
      [2, 2, 1_100n, after('2')],
      [1, 1, 1_100n, second],
      [0, 0, 1_200n, null],
    ],
  );
});
