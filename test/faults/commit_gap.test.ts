/**
 * The broker dies between a commit and the answer to it, at each place where that can happen. The client is left in
 * doubt; asking again settles it, and nothing is there twice.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { FaultPoint } from '../../packages/broker/src/observability/buggify.ts';
import { statement } from '../../packages/broker/src/store/database.ts';
import { Client } from '../broker/client.ts';
import { startBroker } from '../kit/broker.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';

const HOOK = join(import.meta.dirname, 'fault_hook.ts');

interface Setup {
  database: TestDatabase;
  /** Dies at the point. */
  doomed: Client;
  /** Settles when it has died there. */
  died: () => Promise<void>;
  /** A broker that takes over. */
  heir: () => Promise<Client>;
}

async function setup(t: Cleanup, point: FaultPoint, nth = 1): Promise<Setup> {
  const database = await freshDatabase(t);
  const env = { NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: `${point}:kill:${nth}` };
  const broker = await startBroker({ database, env }, t);
  return {
    database,
    doomed: new Client(broker.url),
    async died() {
      const ended = await broker.ended;
      assert.equal(ended.signal, 'SIGKILL', ended.logs);
      assert.match(ended.logs, new RegExp(`fault: kill at ${point}`));
    },
    heir: async () => new Client((await startBroker({ database }, t)).url),
  };
}

const item = (transactionId: string, partition = 'Default') => ({
  queue: 'q',
  partition,
  transactionId,
  payload: { is: transactionId },
});
const LEASE = { consumerGroup: 'g', subscriptionMode: 'all', leaseSeconds: 1 };
const AGAIN = { ...LEASE, wait: true, timeout: 10_000 };

test('a push that is stored and not answered: the repetition names the original', async (t) => {
  const { database, doomed, died, heir } = await setup(t, 'push.stored');
  const items = [item('a'), item('b'), item('c', 'other')];
  await assert.rejects(doomed.push(items));
  await died();
  const after = await heir();
  const again = await after.push(items);
  assert.deepEqual(
    again.map(({ status }) => status),
    ['duplicate', 'duplicate', 'duplicate'],
  );
  const db = await database.open();
  const { messages } = await assertLogInvariants(db);
  await db.close();
  const stored = [...messages.values()].flat();
  assert.deepEqual(stored.map(({ id }) => id).sort(), again.map(({ message_id: id }) => id).sort());
  const delivered = await after.pop('q', { ...LEASE, partitions: 0 });
  assert.deepEqual(delivered.map(({ transactionId }) => transactionId).sort(), ['a', 'b', 'c']);
});

test('a push of which one lane is stored, and of the other only what was there before is known', async (t) => {
  const { database, doomed, died, heir } = await setup(t, 'push.stored', 2);
  assert.equal((await doomed.push([item('a')]))[0]!.status, 'queued');
  // Its lanes go together or one after the other; the first of them that is decided is the last thing it does.
  await assert.rejects(doomed.push([item('a'), item('b'), item('x', 'other')]));
  await died();
  const after = await heir();
  const [a, b, x] = await after.push([item('a'), item('b'), item('x', 'other')]);
  // Beside the duplicate nothing of its lane was appended yet.
  assert.deepEqual([a!.status, b!.status], ['duplicate', 'queued']);
  assert.ok(x!.status === 'duplicate' || x!.status === 'queued', x!.status);
  const db = await database.open();
  const { messages } = await assertLogInvariants(db, { windowsNeverRaised: true });
  await db.close();
  const stored = [...messages.values()].flat().map(({ transactionId }) => transactionId);
  assert.deepEqual(stored.sort(), ['a', 'b', 'x']);
});

test('a push whose partitions exist and whose messages do not', async (t) => {
  const { doomed, died, heir } = await setup(t, 'push.provisioned');
  await assert.rejects(doomed.push([item('a')]));
  await died();
  const after = await heir();
  assert.deepEqual(await after.pop('q', LEASE), []);
  assert.equal((await after.push([item('a')]))[0]!.status, 'queued');
  assert.equal((await after.pop('q', AGAIN)).length, 1);
});

test('a claim that nobody heard of: the batch is back after the lease, as the second attempt', async (t) => {
  const { doomed, died, heir } = await setup(t, 'pop.claimed');
  await doomed.push([item('a'), item('b')]);
  const asked = performance.now();
  await assert.rejects(doomed.pop('q', LEASE));
  await died();
  const after = await heir();
  const batch = await after.pop('q', AGAIN);
  assert.ok(performance.now() - asked >= 1_000, 'the lease held');
  assert.deepEqual(
    batch.map(({ transactionId, deliveryAttempt }) => [transactionId, deliveryAttempt]),
    [
      ['a', 2],
      ['b', 2],
    ],
  );
  assert.ok((await after.ackBatch(batch)).every(({ success }) => success));
});

for (const [name, whole] of [
  ['the whole batch', true],
  ['a part of it', false],
] as const) {
  test(`an ack of ${name} that is committed and not answered: it counts, once`, async (t) => {
    const { doomed, died, heir } = await setup(t, 'ack.decided');
    await doomed.push([item('a'), item('b'), item('c')]);
    const batch = await doomed.pop('q', LEASE);
    const acked = whole ? batch : batch.slice(0, 2);
    await assert.rejects(doomed.ackBatch(acked));
    await died();
    const after = await heir();
    const repeated = await after.ackBatch(acked);
    // A whole batch released its lease; of a part the lease may still hold, and then it is told that all is done.
    for (const { success, noop, error } of repeated) {
      assert.ok(success ? noop : error === 'invalid or expired lease', JSON.stringify(repeated));
    }
    const rest = await after.pop('q', whole ? LEASE : AGAIN);
    assert.deepEqual(
      rest.map(({ transactionId }) => transactionId),
      whole ? [] : ['c'],
    );
  });
}

const LETTERS = statement(
  'faults_letters',
  'SELECT transaction_id AS txn, payload FROM queen.log_dlq ORDER BY failed_at',
);

test('a dead letter that was decided and not written: it comes again, and one more failure writes it', async (t) => {
  // The first failure is within the budget of one, the second is not.
  const { database, doomed, died, heir } = await setup(t, 'ack.decided', 2);
  await doomed.configure('q', { retryLimit: 1 });
  await doomed.push([item('a'), item('b')]);
  const fail = async (client: Client) => {
    const [first] = await client.pop('q', AGAIN);
    assert.equal(first!.transactionId, 'a');
    return client.ack(first!, 'failed');
  };
  assert.equal((await fail(doomed)).dlq, false);
  await assert.rejects(fail(doomed));
  await died();
  const db = await database.open();
  assert.deepEqual(await db.query(LETTERS), []);
  const after = await heir();
  const verdict = await fail(after);
  assert.ok(verdict.dlq, JSON.stringify(verdict));
  assert.deepEqual(
    (await db.query<{ txn: string }>(LETTERS)).map(({ txn }) => txn),
    ['a'],
  );
  const [next] = await after.pop('q', AGAIN);
  assert.equal(next!.transactionId, 'b');
  await db.close();
});

test('a dead letter that was written and not answered: there is one, and it does not come again', async (t) => {
  const { database, doomed, died, heir } = await setup(t, 'ack.handed_off');
  await doomed.push([item('a'), item('b')]);
  const [first] = await doomed.pop('q', LEASE);
  await assert.rejects(doomed.ack(first!, 'dlq'));
  await died();
  const after = await heir();
  const repeated = await after.ack(first!, 'dlq');
  assert.equal(repeated.success, false);
  const [next] = await after.pop('q', AGAIN);
  assert.equal(next!.transactionId, 'b');
  const db = await database.open();
  assert.deepEqual(
    (await db.query<{ txn: string }>(LETTERS)).map(({ txn }) => txn),
    ['a'],
  );
  await db.close();
});

test('commits at delivery that nobody heard of are delivered: at most once', async (t) => {
  const { doomed, died, heir } = await setup(t, 'pop.claimed');
  await doomed.push([item('a')]);
  const auto = { consumerGroup: 'g', subscriptionMode: 'all', autoAck: true };
  await assert.rejects(doomed.pop('q', auto));
  await died();
  const after = await heir();
  assert.deepEqual(await after.pop('q', auto), []);
  await after.push([item('b')]);
  assert.deepEqual(
    (await after.pop('q', auto)).map(({ transactionId }) => transactionId),
    ['b'],
  );
});
