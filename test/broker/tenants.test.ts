/**
 * The same names in two tenants, on two brokers: nothing of one ever shows in the other, whatever a broker remembers of
 * queues, partitions, groups, leases and transactionIds.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { PopRequest } from '../../packages/broker/src/engine/types.ts';
import { parseSealingKey } from '../../packages/broker/src/log/envelope.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { type Live, openLive, popRequest, sql } from './live.ts';

const A = '00000000-0000-4000-8000-00000000000a';
const B = '00000000-0000-4000-8000-00000000000b';
const TENANTS = [A, B] as const;
const KEY = parseSealingKey('0123456789abcdef'.repeat(4))!;

interface Held {
  partitionId: string;
  leaseId: string;
  transactionId: string;
  group: string;
  queue: string;
}

async function two(t: Cleanup): Promise<[Live, Live]> {
  const settings = { tenancy: true, sealingKey: KEY };
  const first = await openLive(t, { settings });
  return [first, await openLive(t, { settings, database: first.database })];
}

function push(live: Live, tenant: string, queue: string, transactionId: string, partition = 'p') {
  const payload = Buffer.from(JSON.stringify({ of: tenant, transactionId }));
  return live.broker
    .push({ tenant, producerSub: null, items: [{ queue, partition, transactionId, payload }] })
    .then(([result]) => result!);
}

async function pop(live: Live, tenant: string, queue: string, group: string, over: Partial<PopRequest> = {}) {
  const answer = await live.broker.pop(popRequest(queue, group, { tenant, ...over }));
  const messages = answer.claims.flatMap(({ partitionId, messages }) =>
    messages.map(({ transactionId, payload }) => {
      assert.equal(JSON.parse(payload.toString()).of, tenant, 'a message of another tenant');
      return { partitionId, leaseId: answer.leaseId, transactionId };
    }),
  );
  return { answer, messages, ids: messages.map(({ transactionId }) => transactionId) };
}

test('deduplication, policies, cursors, leases and options belong to a tenant’s own queue', async (t) => {
  const [x, y] = await two(t);
  const ids = new Map<string, string>();
  for (const tenant of TENANTS) {
    const first = await push(x, tenant, 'q', 't1');
    assert.equal(first.status, 'queued');
    ids.set(tenant, first.messageId);
  }
  for (const live of [x, y]) {
    for (const tenant of TENANTS) {
      const again = await push(live, tenant, 'q', 't1');
      assert.deepEqual([again.status, again.messageId], ['duplicate', ids.get(tenant)]);
    }
  }
  // A group that conflates here does not there.
  assert.equal((await pop(x, A, 'q', 'g', { conflation: true })).answer.conflation, true);
  const theirs = await pop(x, B, 'q', 'g');
  assert.deepEqual([theirs.answer.conflation, theirs.ids], [false, ['t1']]);
  assert.deepEqual((await pop(y, B, 'q', 'g')).ids, [], 'leased');
  // The lease and the messages of the one, named by the other.
  const [held] = theirs.messages;
  const item = { ...held!, status: 'completed' as const, error: null };
  for (const live of [x, y]) {
    const [refused] = await live.broker.ack({ tenant: A, group: 'g', items: [item] });
    assert.equal(refused!.error, 'partition not owned by tenant');
    assert.equal((await live.broker.extend(A, held!.leaseId, 60)).renewed, 0);
  }
  assert.equal((await x.broker.extend(B, held!.leaseId, 60)).renewed, 1);
  const [done] = await x.broker.ack({ tenant: B, group: 'g', items: [item] });
  assert.equal(done!.success, true);
  // Encryption of one name in one tenant.
  await x.broker.configure({ tenant: A, queue: 'q', mode: 'merge', options: { encryptionEnabled: true } });
  for (const live of [x, y])
    for (const tenant of TENANTS) await push(live, tenant, 'q', live === x ? 't2' : 't3');
  const counts = await sql<{ tenant: string; sealed: boolean }>(
    x.broker.db,
    'SELECT tenant_id AS tenant, encryption_enabled AS sealed FROM queen.queues ORDER BY tenant_id',
  );
  assert.deepEqual(counts, [
    { tenant: A, sealed: true },
    { tenant: B, sealed: false },
  ]);
  for (const tenant of TENANTS) {
    assert.deepEqual((await pop(y, tenant, 'q', 'all')).ids, ['t1', 't2', 't3']);
  }
  assert.equal(x.broker.sealing.unopened + y.broker.sealing.unopened, 0);
  await assertLogInvariants(x.broker.db);
});

test('a waiting pop is not answered with what another tenant pushes under the same names', async (t) => {
  const [x, y] = await two(t);
  for (const tenant of TENANTS) await push(x, tenant, 'ns.task', 'warm');
  for (const tenant of TENANTS) await pop(y, tenant, 'ns.task', 'g', { autoAck: true });
  const wishes: Partial<PopRequest>[] = [
    {},
    { scope: { kind: 'partition', queue: 'ns.task', partition: 'p' } },
    { scope: { kind: 'discovery', namespace: 'ns', task: null } },
  ];
  for (const [i, wish] of wishes.entries()) {
    const waiting = pop(y, A, 'ns.task', 'g', { ...wish, waitMs: 20_000, autoAck: true });
    let answered = false;
    void waiting.then(() => {
      answered = true;
    });
    await push(x, B, 'ns.task', `b${i}`);
    // Told to the other broker, and taken there by whom it is for: by then the news have passed.
    const theirs = await pop(y, B, 'ns.task', 'g', { ...wish, waitMs: 10_000, autoAck: true });
    assert.deepEqual(theirs.ids, [`b${i}`]);
    assert.equal(answered, false);
    await push(x, A, 'ns.task', `a${i}`);
    assert.deepEqual((await waiting).ids, [`a${i}`]);
  }
});

test('a queue that one tenant deletes lives on under that name in the other', async (t) => {
  const [x, y] = await two(t);
  for (const tenant of TENANTS) await push(x, tenant, 'q', 't1');
  for (const tenant of TENANTS) for (const live of [x, y]) await pop(live, tenant, 'q', `g${live === x}`);
  assert.equal(await y.broker.deleteQueue(A, 'q'), true);
  assert.equal(await x.broker.inspectQueue(A, 'q'), null);
  const second = await push(x, B, 'q', 't2');
  assert.deepEqual([second.status, second.offset], ['queued', 1]);
  const anew = await push(x, A, 'q', 't1');
  assert.deepEqual([anew.status, anew.offset], ['queued', 0]);
  assert.deepEqual((await pop(x, B, 'q', 'late')).ids, ['t1', 't2']);
  assert.deepEqual((await pop(y, A, 'q', 'late')).ids, ['t1']);
  assert.equal((await x.broker.listQueues(B)).length, 1);
});

test('whatever two tenants do under the same names on two brokers, each sees its own', async (t) => {
  const brokers = await two(t);
  const step = fc.record({
    broker: fc.nat(1),
    tenant: fc.constantFrom(...TENANTS),
    queue: fc.constantFrom('q1', 'q2'),
    partition: fc.constantFrom('p', 'r'),
    group: fc.constantFrom('g', 'h'),
    act: fc.constantFrom('push', 'push', 'push', 'pop', 'pop', 'ack', 'ackForeign', 'delete'),
    txn: fc.nat(4),
  });
  let run = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 15, maxLength: 40 }), async (steps) => {
      run++;
      const held = new Map<string, Held[]>();
      // What was stored and not deleted, and may be met by a push again.
      const stored = new Map<string, string>();
      for (const { broker, tenant, partition, group, act, txn, ...names } of steps) {
        const live = brokers[broker as 0 | 1];
        const queue = `${names.queue}-${run}`;
        const other = tenant === A ? B : A;
        const mine = held.get(tenant) ?? [];
        held.set(tenant, mine);
        if (act === 'push') {
          const key = [tenant, queue, partition, txn].join('/');
          const result = await push(live, tenant, queue, `t${txn}`, partition);
          assert.equal(result.status, stored.has(key) ? 'duplicate' : 'queued', key);
          if (stored.has(key)) assert.equal(result.messageId, stored.get(key), key);
          stored.set(key, result.messageId);
        } else if (act === 'pop') {
          const { messages } = await pop(live, tenant, queue, group, { batch: 3 });
          mine.push(...messages.map((message) => ({ ...message, group, queue })));
        } else if (act === 'delete') {
          await live.broker.deleteQueue(tenant, queue);
          for (const key of [...stored.keys()]) if (key.startsWith(`${tenant}/${queue}/`)) stored.delete(key);
          // A partition that is gone looks like somebody else's.
          held.set(
            tenant,
            mine.filter((message) => message.queue !== queue),
          );
        } else {
          const from = act === 'ack' ? mine : (held.get(other) ?? []);
          const item = act === 'ack' ? from.shift() : from[0];
          if (item === undefined) continue;
          const { group: of, queue: _, ...rest } = item;
          const items = [{ ...rest, status: 'completed' as const, error: null }];
          const [verdict] = await live.broker.ack({ tenant, group: of, items });
          if (act === 'ackForeign') assert.equal(verdict!.error, 'partition not owned by tenant');
          else assert.notEqual(verdict!.error, 'partition not owned by tenant', 'of a queue that exists');
        }
      }
    }),
    { numRuns: 12, endOnFailure: true },
  );
  await assertLogInvariants(brokers[0].broker.db);
});
