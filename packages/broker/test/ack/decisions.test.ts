import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AckVerdict } from '../../src/engine/types.ts';
import { ack, Bench, type ItemSpec } from './fixture.ts';

/**
 * One partition with ten older messages and the batch 10..14 (a to e). Each case says what is acked and what the row,
 * the verdicts and the dead letters are afterwards.
 */
interface Case {
  name: string;
  items: ItemSpec[];
  /** Before: failures charged so far, whether the lease is over, or there is none at all. */
  retries?: number;
  lease?: 'live' | 'expired' | 'none';
  deadLetters?: boolean;
  committed: number;
  released: boolean;
  retriesAfter: number;
  consumed: number;
  attempts: [number | null, number];
  verdicts: (Partial<AckVerdict> | true)[];
  dead?: number[];
}

const all = ['a', 'b', 'c', 'd', 'e'].map((txn) => ({ txn }));
const gone: Partial<AckVerdict> = { success: false, error: 'invalid or expired lease' };

const cases: Case[] = [
  {
    name: '1: the whole batch is completed',
    items: all,
    retries: 2,
    committed: 14,
    released: true,
    retriesAfter: 0,
    consumed: 5,
    attempts: [null, 0],
    verdicts: [true, true, true, true, true],
  },
  {
    name: '2: the last message implies the ones before it',
    items: [{ txn: 'e' }],
    committed: 14,
    released: true,
    retriesAfter: 0,
    consumed: 5,
    attempts: [null, 0],
    verdicts: [true],
  },
  {
    name: '3: a part keeps the lease of the rest',
    items: [{ txn: 'c' }],
    retries: 2,
    committed: 12,
    released: false,
    retriesAfter: 2,
    consumed: 3,
    attempts: [13, 1],
    verdicts: [true],
  },
  {
    name: '4: completions behind a failure are not applied',
    items: [{ txn: 'a' }, { txn: 'b', status: 'failed' }, { txn: 'c' }, { txn: 'd' }, { txn: 'e' }],
    committed: 10,
    released: true,
    retriesAfter: 1,
    consumed: 1,
    attempts: [11, 1],
    verdicts: [true, true, true, true, true],
  },
  {
    name: '5: the prefix ends at what was completed, not below the signal',
    items: [{ txn: 'a' }, { txn: 'c', status: 'retry' }],
    retries: 1,
    committed: 10,
    released: true,
    retriesAfter: 1,
    consumed: 1,
    attempts: [11, 1],
    verdicts: [true, true],
  },
  {
    name: '6: a failure does not complete what was not named',
    items: [{ txn: 'b', status: 'failed' }],
    committed: 9,
    released: true,
    retriesAfter: 1,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [true],
  },
  {
    name: '7: a failure with the budget spent is dead-lettered',
    items: [{ txn: 'c', status: 'failed', error: 'boom' }],
    retries: 3,
    committed: 12,
    released: true,
    retriesAfter: 0,
    consumed: 1,
    attempts: [null, 0],
    verdicts: [{ dlq: true }],
    dead: [12],
  },
  {
    name: '8: a dead letter passes what is before it',
    items: [{ txn: 'd', status: 'dlq' }, { txn: 'a' }],
    committed: 13,
    released: true,
    retriesAfter: 0,
    consumed: 2,
    attempts: [null, 0],
    verdicts: [{ dlq: true }, true],
    dead: [13],
  },
  {
    name: '9: the lowest signal counts',
    items: [
      { txn: 'b', status: 'failed' },
      { txn: 'd', status: 'dlq' },
    ],
    committed: 9,
    released: true,
    retriesAfter: 1,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [true, true],
  },
  {
    name: '10: completed below the cursor',
    items: [{ txn: 'm5' }],
    retries: 1,
    committed: 9,
    released: false,
    retriesAfter: 1,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [{ noop: true }],
  },
  {
    name: '11: failed below the cursor',
    items: [{ txn: 'm5', status: 'failed' }],
    retries: 1,
    committed: 9,
    released: false,
    retriesAfter: 1,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [
      { success: false, error: 'already committed: the cursor moved past this message before this ack' },
    ],
  },
  {
    name: '12: an unknown id does not hold the others up',
    items: [{ txn: 'ghost' }, ...all],
    committed: 14,
    released: true,
    retriesAfter: 0,
    consumed: 5,
    attempts: [null, 0],
    verdicts: [
      {
        success: false,
        error:
          'unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers',
      },
      true,
      true,
      true,
      true,
      true,
    ],
  },
  {
    name: '13a: a wrong lease id',
    items: all.map((one) => ({ ...one, lease: 'w2' })),
    retries: 1,
    committed: 9,
    released: false,
    retriesAfter: 1,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [gone, gone, gone, gone, gone],
  },
  {
    name: '13b: an expired lease id',
    items: all,
    lease: 'expired',
    committed: 9,
    released: false,
    retriesAfter: 0,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [gone, gone, gone, gone, gone],
  },
  {
    name: '14: lease-less on an expired batch',
    items: [{ txn: 'c', lease: null }],
    lease: 'expired',
    committed: 12,
    released: false,
    retriesAfter: 0,
    consumed: 3,
    attempts: [13, 1],
    verdicts: [true],
  },
  {
    name: '15: a lease-less signal without a batch',
    items: [{ txn: 'c', lease: '', status: 'failed' }],
    lease: 'none',
    retries: 1,
    committed: 9,
    released: false,
    retriesAfter: 1,
    consumed: 0,
    attempts: [null, 0],
    verdicts: [true],
  },
  {
    name: '16: a lease-less failure on an expired batch',
    items: [{ txn: 'b', lease: null, status: 'failed' }],
    lease: 'expired',
    committed: 9,
    released: true,
    retriesAfter: 1,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [true],
  },
  {
    name: 'branch 4: without dead letters the message is dropped',
    items: [{ txn: 'a' }, { txn: 'c', status: 'failed' }],
    retries: 3,
    deadLetters: false,
    committed: 12,
    released: true,
    retriesAfter: 0,
    consumed: 2,
    attempts: [null, 0],
    verdicts: [true, { dropped: true }],
  },
  {
    name: 'a dlq signal dead-letters with dead letters off',
    items: [{ txn: 'a', status: 'dlq' }],
    deadLetters: false,
    committed: 10,
    released: true,
    retriesAfter: 0,
    consumed: 1,
    attempts: [null, 0],
    verdicts: [{ dlq: true }],
    dead: [10],
  },
  {
    name: 'branch 8: nothing effective changes nothing',
    items: [{ txn: 'm9' }, { txn: 'm1', status: 'dlq' }],
    retries: 3,
    committed: 9,
    released: false,
    retriesAfter: 3,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [
      { noop: true },
      { success: false, error: 'already committed: the cursor moved past this message before this ack' },
    ],
  },
  {
    name: 'branch 9: without a batch completions move the cursor',
    items: [
      { txn: 'a', lease: null },
      { txn: 'c', lease: null },
      { txn: 'd', lease: null, status: 'dlq' },
    ],
    lease: 'none',
    retries: 2,
    committed: 12,
    released: false,
    retriesAfter: 0,
    consumed: 3,
    attempts: [null, 0],
    verdicts: [true, true, true],
  },
  {
    name: 'on one message dlq beats failed beats retry',
    items: [
      { txn: 'b', status: 'retry' },
      { txn: 'b', status: 'dlq', error: 'why' },
      { txn: 'b', status: 'failed' },
      { txn: 'b' },
    ],
    committed: 11,
    released: true,
    retriesAfter: 0,
    consumed: 1,
    attempts: [null, 0],
    verdicts: [{ dlq: true }, { dlq: true }, { dlq: true }, { dlq: true }],
    dead: [11],
  },
  {
    name: 'failed beats retry',
    items: [
      { txn: 'b', status: 'retry' },
      { txn: 'b', status: 'failed' },
    ],
    committed: 9,
    released: true,
    retriesAfter: 1,
    consumed: 0,
    attempts: [10, 1],
    verdicts: [true, true],
  },
  {
    name: 'a message above the batch is unresolved',
    items: [{ txn: 'f' }, { txn: 'a' }],
    committed: 10,
    released: false,
    retriesAfter: 0,
    consumed: 1,
    attempts: [11, 1],
    verdicts: [
      {
        success: false,
        error:
          'unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers',
      },
      true,
    ],
  },
  {
    name: 'by offset: effective, below, above',
    items: [{ offset: 12 }, { offset: 9 }, { offset: 15 }, { offset: 3, status: 'retry' }],
    committed: 12,
    released: false,
    retriesAfter: 0,
    consumed: 3,
    attempts: [13, 1],
    verdicts: [
      true,
      { noop: true },
      {
        success: false,
        error:
          'unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers',
      },
      { success: false, error: 'already committed: the cursor moved past this message before this ack' },
    ],
  },
  {
    name: 'by offset: a dead letter',
    items: [{ offset: 10 }, { offset: 11, status: 'dlq' }],
    committed: 11,
    released: true,
    retriesAfter: 0,
    consumed: 2,
    attempts: [null, 0],
    verdicts: [true, { dlq: true }],
    dead: [11],
  },
  {
    name: 'by offset without a batch: bounded by what exists',
    items: [
      { offset: 16, lease: null },
      { offset: 15, lease: null },
    ],
    lease: 'none',
    committed: 15,
    released: false,
    retriesAfter: 0,
    consumed: 6,
    attempts: [null, 0],
    verdicts: [
      {
        success: false,
        error:
          'unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers',
      },
      true,
    ],
  },
];

test('every row of the decision table', async (t) => {
  const bench = await Bench.open(t);
  const path = bench.path();
  for (const one of cases) {
    await t.test(one.name, async () => {
      const lane = await bench.lane({ deadLetters: one.deadLetters ?? true });
      await bench.append(lane, ['m0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6']);
      const frames = [
        ...(await bench.append(lane, ['m7', 'm8', 'm9', 'a', 'b', 'c'])),
        ...(await bench.append(lane, ['d', 'e', 'f'])),
      ];
      const mode = one.lease ?? 'live';
      await bench.consumer(lane, {
        committed: 9,
        batchEnd: mode === 'none' ? null : 14,
        leaseSeconds: mode === 'expired' ? 0 : 60,
        retries: one.retries ?? 0,
      });
      const before = await bench.row(lane);
      bench.releases.length = 0;
      const verdicts = await ack(path, lane, one.items);
      const row = await bench.row(lane);
      assert.equal(row.committed, one.committed);
      assert.equal(row.batch_retry_count, one.retriesAfter);
      assert.equal(row.total_consumed, one.consumed);
      assert.deepEqual([row.attempt_offset, row.attempt_count], one.attempts);
      if (one.released) {
        assert.deepEqual(
          [row.batch_end, row.worker_id, row.lease_expires_at, row.lease_acquired_at],
          [null, null, null, null],
        );
        // f is always left.
        assert.deepEqual(bench.releases, [`${lane}/g`]);
      } else {
        assert.deepEqual(
          [row.batch_end, row.worker_id, row.lease_expires_at, row.lease_acquired_at],
          [before.batch_end, before.worker_id, before.lease_expires_at, before.lease_acquired_at],
        );
        assert.deepEqual(bench.releases, []);
      }
      assert.deepEqual(
        verdicts,
        one.verdicts.map((expected) => ({
          success: true,
          error: null,
          leaseReleased: one.released,
          dlq: false,
          noop: false,
          ...(expected === true ? {} : expected),
        })),
      );
      const dead = await bench.deadLetters(lane);
      assert.deepEqual(
        dead.map((letter) => letter.offset),
        one.dead ?? [],
      );
      for (const letter of dead) {
        const frame = frames[letter.offset - 7]!;
        assert.equal(letter.transaction_id, frame.transactionId);
        assert.deepEqual(letter.payload, frame.payload);
        assert.equal(letter.message_id?.replaceAll('-', ''), frame.messageId.toString('hex'));
        assert.equal(letter.retry_count, one.retries ?? 0);
        assert.equal(letter.error, one.items.find((item) => item.error)?.error ?? 'Retries exhausted');
      }
    });
  }
});
