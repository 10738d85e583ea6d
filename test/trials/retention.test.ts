/** Retention removes what somebody has leased and not acked: the ack answers clearly, and the next pop goes on behind. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Client, Message, Verdict } from '../broker/client.ts';
import { until } from '../kit/until.ts';
import { consumer, deadLetters, items, openRig, type Rig, sql, txnsOf } from './rig.ts';

const OLD = ['a0', 'a1', 'a2'];
const YOUNG = ['b0', 'b1'];
const LATER = ['c0'];
const KEPT_SECONDS = 1000;
/** Taken at half the time that messages are kept; the removal comes a tenth after the whole of it. */
const STUCK_SECONDS = 700;

interface Case {
  name: string;
  /** Which rule removes: by age of kept messages, or by the longest wait. */
  rule: 'retention' | 'maxWait';
  /** A part of the batch is young enough to stay. */
  partly: boolean;
  /** The hashes by which an ack finds its message are gone as well. */
  hashesGone?: boolean;
  /** Default: far longer than anything here takes. */
  leaseSeconds?: number;
  /** What the worker says, call by call: txn and status. */
  says: [string, string][][];
  /** In the order of what was said: success, and the error if there is one. */
  hears: (true | RegExp)[];
  /** What the next pop delivers. */
  next: string[];
  dead?: string[];
  /** No ack can end the lease. */
  stuck?: boolean;
}

const done = (...txns: string[]): [string, string][] => txns.map((txn) => [txn, 'completed']);
const yes = (count: number): true[] => Array.from({ length: count }, () => true);

const CASES: Case[] = [
  {
    name: 'all of it done',
    rule: 'retention',
    partly: true,
    says: [done(...OLD, ...YOUNG)],
    hears: yes(5),
    next: LATER,
  },
  {
    name: 'all of it done, by the longest wait',
    rule: 'maxWait',
    partly: true,
    says: [done(...OLD, ...YOUNG)],
    hears: yes(5),
    next: LATER,
  },
  {
    name: 'one by one',
    rule: 'maxWait',
    partly: true,
    says: [...OLD, ...YOUNG].map((txn) => done(txn)),
    hears: yes(5),
    next: LATER,
  },
  {
    name: 'only what is gone is done',
    rule: 'retention',
    partly: true,
    says: [done(...OLD), [['b0', 'retry']]],
    hears: yes(4),
    next: [...YOUNG, ...LATER],
  },
  {
    name: 'a failure of what is gone',
    rule: 'retention',
    partly: true,
    says: [
      [
        ['a0', 'completed'],
        ['a1', 'failed'],
      ],
    ],
    hears: yes(2),
    next: [...YOUNG, ...LATER],
  },
  {
    name: 'given back',
    rule: 'maxWait',
    partly: true,
    says: [
      [
        ['a0', 'retry'],
        ['a1', 'retry'],
      ],
    ],
    hears: yes(2),
    next: [...YOUNG, ...LATER],
  },
  {
    name: 'a dead letter that is gone',
    rule: 'retention',
    partly: true,
    says: [[['a1', 'dlq']]],
    hears: yes(1),
    next: [...YOUNG, ...LATER],
    dead: ['a1'],
  },
  {
    name: 'too late as well',
    rule: 'retention',
    partly: true,
    leaseSeconds: 60,
    says: [done(...OLD)],
    hears: [/invalid or expired lease/, /invalid or expired lease/, /invalid or expired lease/],
    next: [...YOUNG, ...LATER],
  },
  {
    name: 'all of the batch is gone, and done',
    rule: 'retention',
    partly: false,
    says: [done(...OLD, ...YOUNG)],
    hears: yes(5),
    next: LATER,
  },
  {
    name: 'all of the batch is gone, and failed',
    rule: 'maxWait',
    partly: false,
    says: [[['a0', 'failed']]],
    hears: yes(1),
    next: LATER,
  },
  {
    name: 'its hashes are gone too',
    rule: 'retention',
    partly: true,
    hashesGone: true,
    says: [[...done(...OLD), ['b0', 'completed']], done('b1')],
    hears: [/unresolvable/, /unresolvable/, /unresolvable/, true, true],
    next: LATER,
  },
  {
    name: 'all of it is gone with its hashes',
    rule: 'maxWait',
    partly: false,
    hashesGone: true,
    says: [[['a2', 'failed'], ...done('b1')]],
    hears: [/unresolvable/, /unresolvable/],
    next: LATER,
    stuck: true,
    leaseSeconds: STUCK_SECONDS,
  },
];

test('retention overtakes a lease', async (t) => {
  const rig = await openRig(t, 2, { RETENTION_INTERVAL: '100' });
  const held = await overtake(rig);
  await t.test('a duplicate of what is gone is one, without the id that nobody knows any more', async () => {
    const queue = CASES[0]!.name;
    const [result] = await rig.clients[1]!.push([{ queue, transactionId: 'a0', payload: 'again' }]);
    assert.deepEqual(
      [result!.status, result!.message_id],
      ['duplicate', '00000000-0000-0000-0000-000000000000'],
    );
  });
  for (const each of CASES) await t.test(each.name, () => settle(rig, each, held.get(each.name)!));
});

/** All cases at once, since they share the clock: leased, and then removed under the lease. */
async function overtake(rig: Rig): Promise<Map<string, Message[]>> {
  const [client] = rig.clients as [Client];
  for (const { name: queue, rule, hashesGone } of CASES) {
    await client.configure(queue, {
      ...(rule === 'retention'
        ? { retentionEnabled: true, retentionSeconds: KEPT_SECONDS }
        : { maxWaitTimeSeconds: KEPT_SECONDS }),
      ...(hashesGone === true ? { dedupWindowSeconds: 0 } : {}),
    });
    await client.push(items(queue, OLD));
  }
  const young = async (partly: boolean) => {
    for (const each of CASES) if (each.partly === partly) await client.push(items(each.name, YOUNG));
  };
  await young(false);
  await rig.database.advanceClock(KEPT_SECONDS / 2);
  await young(true);
  const held = new Map<string, Message[]>();
  for (const { name: queue, leaseSeconds = 10 * KEPT_SECONDS } of CASES) {
    const batch = await client.pop(queue, { batch: 5, leaseSeconds });
    assert.deepEqual(txnsOf(batch), [...OLD, ...YOUNG], queue);
    held.set(queue, batch);
  }
  await rig.database.advanceClock(KEPT_SECONDS / 2 + 100);
  for (const { name: queue, partly, hashesGone } of CASES) {
    const start = partly ? OLD.length : OLD.length + YOUNG.length;
    await until(`${queue}: removed up to ${start}`, async () => {
      const [row] = await sql<{ log: number; txns: number }>(
        rig.db,
        `SELECT p.log_start AS log, p.txns_start AS txns FROM queen.log_partitions p
           JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1`,
        [queue],
      );
      return row!.log === start && row!.txns === (hashesGone === true ? start : 0);
    });
  }
  return held;
}

async function settle(rig: Rig, each: Case, held: Message[]): Promise<void> {
  const [first, second] = rig.clients as [Client, Client];
  const queue = each.name;
  const byTxn = new Map(held.map((message) => [message.transactionId, message]));
  const { partitionId } = held[0]!;
  const verdicts: Verdict[] = [];
  for (const call of each.says) {
    const messages = call.map(([txn]) => byTxn.get(txn)!);
    verdicts.push(
      ...(await second.ackBatch(
        messages,
        call.map(([, status]) => status),
      )),
    );
  }
  for (const [i, expected] of each.hears.entries()) {
    const { success, error } = verdicts[i]!;
    assert.equal(success, expected === true, `${i}: ${error}`);
    if (expected !== true) assert.match(error!, expected);
  }
  assert.equal(verdicts.length, each.hears.length);
  const letters = await deadLetters(rig.db, partitionId);
  assert.deepEqual(
    letters.map(({ txn, payload }) => [txn, payload]),
    (each.dead ?? []).map((txn) => [txn, null]),
  );

  await first.push(items(queue, LATER));
  if (each.stuck === true) {
    // What nobody can name any more stays with its lease, and the lease with its time.
    assert.ok((await consumer(rig.db, partitionId)).worker !== null);
    assert.deepEqual(await first.pop(queue), []);
    await rig.database.advanceClock(STUCK_SECONDS - KEPT_SECONDS / 2);
  }
  const wish = { wait: true, timeout: 5_000, batch: 10 };
  const got: Message[] = [];
  await until('the rest is delivered', async () => {
    got.push(...(await first.pop(queue, wish)));
    return got.length >= each.next.length;
  });
  assert.deepEqual(txnsOf(got), each.next);
  assert.ok((await second.ackBatch(got)).every(({ success }) => success));
  assert.deepEqual(await first.pop(queue), []);
}
