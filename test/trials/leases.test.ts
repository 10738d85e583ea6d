/** Leases that end, seen by those who held them: the database's clock is moved, so that nobody has to wait. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Client, Message } from '../broker/client.ts';
import { startBroker } from '../kit/broker.ts';
import { until } from '../kit/until.ts';
import {
  consumer,
  counter,
  deadLetters,
  FRUGAL,
  fingerprint,
  items,
  names,
  openRig,
  type Rig,
  sql,
  txnsOf,
} from './rig.ts';

const LEASE_SECONDS = 120;
const EXPIRED = 'invalid or expired lease';

test('leases', async (t) => {
  const rig = await openRig(t, 2, { RETENTION_INTERVAL: '600000' });

  for (const [i, late] of LATE_ACKS.entries()) {
    await t.test(`too slow: ${late.name}`, () => tooSlow(rig, late, `slow${i}`));
  }
  await t.test('a worker that dies again and again costs no budget, is counted, shown and told', () =>
    diesAgainAndAgain(rig),
  );
  await t.test('a handler that renews in time keeps its batch, however long it takes', () =>
    outlivesItsLease(rig),
  );
  await t.test('a renewal that comes too late brings nothing back', () => renewedTooLate(rig));
});

/** How the slow worker reports what it did, after its lease has ended. */
interface LateAck {
  name: string;
  /** Batch by batch: statuses from the first message on. */
  calls: string[][];
  /** Somebody else has the batch by then. */
  taken: boolean;
  /** Indices of the brokers: that the slow one asks, that the quick one asks. */
  slow: number;
  quick: number;
  lanes?: number;
}

const LATE_ACKS: LateAck[] = [
  {
    name: 'all done, taken on the same broker',
    calls: [['completed', 'completed', 'completed']],
    taken: true,
    slow: 0,
    quick: 0,
  },
  {
    name: 'all done, taken on another broker',
    calls: [['completed', 'completed', 'completed']],
    taken: true,
    slow: 0,
    quick: 1,
  },
  {
    name: 'all done, and nobody has taken it yet',
    calls: [['completed', 'completed', 'completed']],
    taken: false,
    slow: 0,
    quick: 1,
  },
  {
    name: 'one by one',
    calls: [['completed'], ['completed'], ['completed']],
    taken: true,
    slow: 1,
    quick: 0,
  },
  {
    name: 'failed, dead-lettered, given back',
    calls: [['failed'], ['dlq'], ['retry']],
    taken: true,
    slow: 0,
    quick: 0,
  },
  {
    name: 'failed, and nobody has taken it yet',
    calls: [['failed'], ['dlq'], ['retry']],
    taken: false,
    slow: 0,
    quick: 0,
  },
  {
    name: 'three lanes under one lease',
    calls: [['completed', 'completed', 'completed']],
    taken: true,
    slow: 0,
    quick: 1,
    lanes: 3,
  },
];

async function tooSlow(rig: Rig, late: LateAck, queue: string): Promise<void> {
  const [slow, quick] = [rig.clients[late.slow]!, rig.clients[late.quick]!];
  const lanes = names('lane', late.lanes ?? 1);
  for (const lane of lanes) await slow.push(items(queue, names('m', 3), lane));
  const first = await slow.pop(queue, { leaseSeconds: LEASE_SECONDS, partitions: 0 });
  assert.equal(first.length, 3 * lanes.length);
  await rig.database.advanceClock(LEASE_SECONDS - 10);
  assert.deepEqual(await quick.pop(queue, { partitions: 0 }), [], 'not before its time');
  await rig.database.advanceClock(11);

  const take = async () => {
    const got: Message[] = [];
    await until('the batch is taken over', async () => {
      const wait = { wait: true, timeout: 2_000, leaseSeconds: LEASE_SECONDS, partitions: 0 };
      got.push(...(await quick.pop(queue, wait)));
      return got.length === first.length;
    });
    return got;
  };
  let second = late.taken ? await take() : [];

  const before = await fingerprint(rig.db);
  for (const statuses of late.calls) {
    for (const lane of lanes) {
      const mine = first.filter(({ partition }) => partition === lane).slice(0, statuses.length);
      for (const verdict of await slow.ackBatch(mine, statuses)) {
        const { success, error, leaseReleased, dlq } = verdict;
        assert.deepEqual([success, error, leaseReleased, dlq], [false, EXPIRED, false, false]);
      }
    }
  }
  const renewal = await slow.call('POST', `/api/v1/lease/${first[0]!.leaseId}/extend`, { seconds: 600 });
  assert.deepEqual([renewal.body.success, renewal.body.renewed], [false, 0]);
  assert.deepEqual(await fingerprint(rig.db), before, 'the late words changed nothing');

  second = late.taken ? second : await take();
  for (const lane of lanes) {
    const mine = second.filter(({ partition }) => partition === lane);
    assert.deepEqual(txnsOf(mine), names('m', 3));
    assert.ok(mine.every(({ deliveryAttempt }) => deliveryAttempt === 2));
    const verdicts = await quick.ackBatch(mine);
    assert.ok(
      verdicts.every(({ success, error }) => success && error === null),
      JSON.stringify(verdicts),
    );
    const { committed, worker, retries } = await consumer(rig.db, mine[0]!.partitionId);
    assert.deepEqual([committed, worker, retries], [2, null, 0]);
    assert.deepEqual(await deadLetters(rig.db, mine[0]!.partitionId), []);
  }
  const after = await slow.ackBatch(first.slice(0, 1));
  assert.equal(after[0]!.error, EXPIRED, 'and it stays refused when all is done');
}

async function diesAgainAndAgain(rig: Rig): Promise<void> {
  const DEATHS = 11;
  const RETRY_LIMIT = 2;
  const [first, second] = rig.clients as [Client, Client];
  await first.configure('killer', { retryLimit: RETRY_LIMIT });
  await first.push(items('killer', ['fine', 'lethal', 'behind']));
  const ask = (client: Client) =>
    client.pop('killer', { wait: true, timeout: 5_000, leaseSeconds: LEASE_SECONDS });
  const [fine] = (await ask(first)) as [Message];
  assert.ok((await first.ack(fine)).success, 'what comes before it is acked; then the worker dies');

  const counts = () =>
    Promise.all(
      rig.brokers.map(async ({ url }) => [
        await counter(url, 'queen_pop_redelivered_messages_total'),
        await counter(url, 'queen_pop_repeated_offset_total'),
      ]),
    );
  const before = await counts();
  for (let death = 2; death <= DEATHS; death++) {
    await rig.database.advanceClock(LEASE_SECONDS + 1);
    const batch = await ask(death % 2 === 0 ? second : first);
    assert.deepEqual(txnsOf(batch), ['lethal', 'behind']);
    assert.deepEqual(
      batch.map(({ deliveryAttempt }) => deliveryAttempt),
      [death, death],
    );
    const row = await consumer(rig.db, batch[0]!.partitionId);
    assert.deepEqual([row.retries, row.attempts, row.committed], [0, death, 0], 'no death costs budget');
  }
  const after = await counts();
  const grown = (index: number) =>
    after.reduce((sum, values, i) => sum + values[index]! - before[i]![index]!, 0);
  assert.equal(grown(0), 2 * (DEATHS - 1), 'two messages each time');
  assert.equal(grown(1), DEATHS - 9, 'from the tenth delivery on');
  const warned = rig.brokers
    .map(({ logs }) => logs())
    .join('\n')
    .match(/again and again.*|.*again and again/g);
  assert.equal(warned?.length, 1, 'the tenth is worth a line');

  // A broker that was not there knows the count as well: it is in the database.
  await rig.database.advanceClock(LEASE_SECONDS + 1);
  const batch = await ask(second);
  assert.equal(batch[0]!.deliveryAttempt, DEATHS + 1);
  // The budget is whole: so many failures are taken, and the next one is the last.
  let head = batch[0]!;
  for (let failure = 1; failure <= RETRY_LIMIT; failure++) {
    const verdict = await first.ack(head, 'failed');
    assert.deepEqual([verdict.success, verdict.dlq], [true, false], `failure ${failure}`);
    [head] = (await ask(first)) as [Message];
    assert.equal(head.transactionId, 'lethal');
  }
  assert.ok((await second.ack(head, 'failed', { error: 'gave up' })).dlq);
  const [letter] = await deadLetters(rig.db, head.partitionId);
  assert.deepEqual([letter!.txn, letter!.error], ['lethal', 'gave up']);
  const [behind] = (await ask(first)) as [Message];
  assert.deepEqual([behind.transactionId, behind.deliveryAttempt], ['behind', 1], 'counted anew');
  assert.ok((await first.ack(behind)).success);
}

async function outlivesItsLease(rig: Rig): Promise<void> {
  const STEPS = 15;
  const [first, second] = rig.clients as [Client, Client];
  await first.push([...items('patient', names('m', 3), 'a'), ...items('patient', names('m', 3), 'b')]);
  const held = await first.pop('patient', { leaseSeconds: LEASE_SECONDS, partitions: 2 });
  assert.equal(held.length, 6);
  const lease = held[0]!.leaseId;
  const done: Message[] = [];
  for (let step = 1; step <= STEPS; step++) {
    await rig.database.advanceClock(LEASE_SECONDS * 0.8);
    const client = step % 2 === 0 ? first : second;
    const { body } = await client.call('POST', `/api/v1/lease/${lease}/extend`, { seconds: LEASE_SECONDS });
    assert.deepEqual([body.success, body.renewed], [true, 2], `after ${step} times four fifths of the lease`);
    for (const rival of rig.clients) assert.deepEqual(await rival.pop('patient', { partitions: 0 }), []);
    if (step === 5) {
      // A part of it is done on the way: the rest is still covered, and renewed.
      const mine = held.filter(({ partition }) => partition === 'a').slice(0, 2);
      assert.ok(
        (await client.ackBatch(mine)).every(({ success, leaseReleased }) => success && !leaseReleased),
      );
      done.push(...mine);
    }
  }
  // Renewing for less than is left shortens nothing.
  const { body } = await second.call('POST', `/api/v1/lease/${lease}/extend`, { seconds: 1 });
  assert.equal(body.renewed, 2);
  await rig.database.advanceClock(LEASE_SECONDS * 0.8);
  const rest = held.filter((message) => !done.includes(message));
  const verdicts = await second.ackBatch(rest);
  assert.ok(
    verdicts.every(({ success }) => success),
    JSON.stringify(verdicts),
  );
  for (const client of rig.clients) assert.deepEqual(await client.pop('patient', { partitions: 0 }), []);
  const row = await consumer(rig.db, held[0]!.partitionId);
  assert.deepEqual([row.committed, row.worker, row.retries, row.consumed], [2, null, 0, 3]);
}

async function renewedTooLate(rig: Rig): Promise<void> {
  const [first, second] = rig.clients as [Client, Client];
  await first.push(items('late', names('m', 2)));
  const [held] = (await first.pop('late', { leaseSeconds: LEASE_SECONDS })) as [Message];
  await rig.database.advanceClock(LEASE_SECONDS + 1);
  for (const client of [first, second]) {
    const { body } = await client.call('POST', `/api/v1/lease/${held.leaseId}/extend`, { seconds: 60 });
    assert.deepEqual([body.success, body.renewed, body.newExpiresAt], [false, 0, null]);
  }
  const batch = await second.pop('late', { wait: true, timeout: 5_000 });
  assert.deepEqual(txnsOf(batch), ['m0', 'm1']);
  const { body } = await first.call('POST', `/api/v1/lease/${held.leaseId}/extend`, { seconds: 60 });
  assert.equal(body.renewed, 0, 'nor does it touch the lease of who came after');
  assert.ok((await first.ackBatch(batch)).every(({ success }) => success));
}

test('a broker that is started again under its name waits for its own old claim on the housekeeping', async (t) => {
  const rig = await openRig(t, 0);
  const env = { ...FRUGAL, QUEEN_SERVER_ID: 'the-same', RETENTION_INTERVAL: '100' };
  const { database } = rig;
  const task = async () => {
    const [row] = await sql<{ holder: string | null; fence: number; runs: number; live: boolean }>(
      rig.db,
      `SELECT holder, fence, runs, coalesce(lease_until > queen.clock(), false) AS live
         FROM queen.maintenance_leases WHERE task = 'retention'`,
    );
    return row;
  };
  const first = await startBroker({ database, env }, t);
  await until('retention has run', async () => ((await task())?.runs ?? 0) > 0);
  await first.kill('SIGKILL');
  // As if it had been killed in the middle of a run.
  await sql(
    rig.db,
    `UPDATE queen.maintenance_leases SET holder = 'the-same', fence = fence + 1,
            lease_until = queen.clock() + interval '300 seconds', next_due_at = queen.clock() WHERE task = 'retention'`,
  );
  const left = await task();
  const second = await startBroker({ database, env }, t);
  await until('it serves', async () => (await fetch(`${second.url}/health`)).status === 200);
  const meanwhile = await task();
  assert.deepEqual([meanwhile!.fence, meanwhile!.runs], [left!.fence, left!.runs], 'not inherited');
  await database.advanceClock(301);
  await until('it takes the task over', async () => ((await task())?.runs ?? 0) > left!.runs);
  assert.ok((await task())!.fence > left!.fence);
  assert.equal((await second.stop()).code, 0);
});
