/** The broker dies just before and just after the commit of a transaction: everything or nothing, and the client can tell. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { FaultPoint } from '../../packages/broker/src/observability/buggify.ts';
import { Client } from '../broker/client.ts';
import { startBroker } from '../kit/broker.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase } from '../kit/postgres.ts';

const HOOK = join(import.meta.dirname, 'fault_hook.ts');
const LEASE = { consumerGroup: 'g', subscriptionMode: 'all', leaseSeconds: 1 };

interface Answer {
  success: boolean;
  reason?: string;
  error?: string;
  results: { noop?: boolean; success?: boolean }[];
}

async function bundleThatDiesAt(t: Cleanup, point: FaultPoint) {
  const database = await freshDatabase(t);
  const env = { NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: `${point}:kill:1` };
  const broker = await startBroker({ database, env }, t);
  const doomed = new Client(broker.url);
  await doomed.push([{ queue: 'in', transactionId: 'order', payload: 1 }]);
  const [message] = await doomed.pop('in', LEASE);
  const ack = {
    type: 'ack',
    transactionId: 'order',
    partitionId: message!.partitionId,
    consumerGroup: 'g',
    leaseId: message!.leaseId,
  };
  const push = { type: 'push', items: [{ queue: 'out', transactionId: 'order-out', payload: 2 }] };
  const kv = [{ op: 'incr', ns: 'n', key: 'orders', delta: 1, forever: true }];
  const payload = Buffer.from('3').toString('base64');
  const timers = [
    { op: 'schedule', queue: 'late', timerKey: 'order', delayMs: 3_600_000, txn: 'order-late', payload },
  ];
  const body = { operations: [ack, push], kv, timers };
  await assert.rejects(doomed.call('POST', '/api/v1/transaction', body));
  const ended = await broker.ended;
  assert.equal(ended.signal, 'SIGKILL', ended.logs);
  assert.match(ended.logs, new RegExp(`fault: kill at ${point}`));
  const heir = new Client((await startBroker({ database }, t)).url);
  const transact = (again: Record<string, unknown>) =>
    heir.call<Answer>('POST', '/api/v1/transaction', again);
  const counted = async () => {
    const { body: answer } = await heir.call<{ results: { value?: number }[] }>('POST', '/api/v1/kv', {
      operations: [{ op: 'get', ns: 'n', key: 'orders' }],
    });
    return answer.results[0]!.value ?? 0;
  };
  const scheduled = async () =>
    (await heir.call<{ found: boolean }>('GET', '/api/v1/timers/late/order')).body.found;
  return { database, heir, body, push, kv, transact, counted, scheduled };
}

test('killed before the commit: nothing of it is there, and the message comes again', async (t) => {
  const { database, heir, push, kv, transact, counted, scheduled } = await bundleThatDiesAt(
    t,
    'transaction.written',
  );
  assert.deepEqual([await counted(), await scheduled()], [0, false]);
  assert.deepEqual(await heir.pop('out'), []);
  const [message] = await heir.pop('in', { ...LEASE, wait: true, timeout: 10_000 });
  assert.equal(message!.deliveryAttempt, 2);
  const { partitionId, leaseId } = message!;
  const ack = { type: 'ack', transactionId: 'order', partitionId, consumerGroup: 'g', leaseId };
  const again = await transact({ operations: [ack, push], kv });
  assert.equal(again.body.success, true, JSON.stringify(again.body));
  assert.equal(await counted(), 1);
  assert.equal((await heir.pop('out')).length, 1);
  const db = await database.open();
  await assertLogInvariants(db);
  await db.close();
});

test('killed after the commit: all of it is there, and the repetition says so', async (t) => {
  const { heir, body, transact, counted, scheduled } = await bundleThatDiesAt(t, 'transaction.committed');
  assert.equal(await scheduled(), true);
  const again = await transact(body);
  assert.deepEqual([again.status, again.body.success], [200, false]);
  // The lease went with the ack; the push alone is a duplicate.
  assert.ok(['duplicate', 'ack_rejected'].includes(again.body.reason!), JSON.stringify(again.body));
  const pushed = await transact({ operations: [body.operations[1]] });
  assert.equal(pushed.body.reason, 'duplicate');
  const leaseless = await transact({ operations: [{ ...body.operations[0], leaseId: null }] });
  assert.equal(leaseless.body.results[0]!.noop, true);
  assert.equal(await counted(), 1);
  assert.equal((await heir.pop('out')).length, 1);
  assert.deepEqual(await heir.pop('in', LEASE), []);
});
