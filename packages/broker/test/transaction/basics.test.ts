import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import type { KvOperation } from '../../src/engine/kv/operations.ts';
import { unpackSegment } from '../../src/log/segment.ts';
import { formatUuid } from '../../src/log/uuid.ts';
import { sql } from '../push/fixture.ts';
import { ack, GROUP, gate, push, pushOf, QUEUE, Rig, verdictOf } from './fixture.ts';

test('acks, pushes and KV commit together, results in the order of the request', async (t) => {
  const rig = await Rig.open(t);
  await rig.push(['a', 'b']);
  const { leaseId, claims } = await rig.pop();
  const partitionId = claims[0]!.partitionId;
  const answer = await rig.done(
    [
      push('a-out', 'done'),
      ack(partitionId, 'a', { leaseId }),
      push('x', 'other', 'p1'),
      ack(partitionId, 'b', { leaseId }),
    ],
    { kv: [gate('seen'), { op: 'get', ns: 'n', key: 'seen' }] },
  );
  const [first, second, third, fourth] = answer.results;
  assert.deepEqual(
    [pushOf(first).transactionId, pushOf(first).queue, pushOf(first).duplicate],
    ['a-out', 'done', false],
  );
  assert.match(pushOf(first).messageId, /^[0-9a-f-]{36}$/);
  assert.deepEqual(verdictOf(second), {
    success: true,
    error: null,
    leaseReleased: true,
    dlq: false,
    noop: false,
  });
  assert.equal(pushOf(third).queue, 'other');
  assert.equal(verdictOf(fourth).success, true);
  assert.equal(answer.kv.length, 2);
  assert.deepEqual(await rig.stored('done'), ['a-out']);
  assert.deepEqual(await rig.stored('other'), ['x']);
  assert.deepEqual((await rig.pop()).ids, []);
  await assertLogInvariants(rig.broker.db);
});

test('a push of the same id twice in one call: the first one counts', async (t) => {
  const rig = await Rig.open(t);
  const answer = await rig.done([push('a'), push('b'), push('a'), push('a', QUEUE, 'other')]);
  const list = answer.results.map(pushOf);
  assert.deepEqual(
    list.map((result) => result.duplicate),
    [false, false, true, false],
  );
  assert.equal(list[2]!.messageId, list[0]!.messageId);
  assert.notEqual(list[3]!.messageId, list[0]!.messageId);
  assert.deepEqual((await rig.stored(QUEUE)).sort(), ['a', 'a', 'b']);
});

test('a stored id rolls everything back and is named', async (t) => {
  const rig = await Rig.open(t);
  await rig.push(['taken', 'mine']);
  const { leaseId, claims } = await rig.pop();
  const partitionId = claims[0]!.partitionId;
  const refusal = await rig.refused(
    [push('new', 'q2'), ack(partitionId, 'mine', { leaseId }), push('fresh'), push('taken')],
    { kv: [gate('k')] },
  );
  assert.equal(refusal.reason, 'duplicate');
  assert.equal(refusal.failedIndex, 3);
  assert.match(refusal.error, /"taken"/);
  assert.deepEqual(await rig.stored('q2'), []);
  assert.deepEqual(await rig.stored(QUEUE), ['taken', 'mine']);
  const [entry] = await sql<{ n: number }>(rig.broker.db, 'SELECT count(*) AS n FROM queen.kv');
  assert.equal(entry!.n, 0);
  // The lease is as it was.
  await rig.done([ack(partitionId, 'mine', { leaseId })]);
});

test('a lost condition rolls everything back; the index counts over all lists', async (t) => {
  const rig = await Rig.open(t);
  await rig.done([], { kv: [gate('k', 'winner')] });
  const refusal = await rig.refused([push('a'), push('b')], {
    kv: [{ op: 'get', ns: 'n', key: 'a' }, gate('k', 'loser')],
  });
  assert.equal(refusal.reason, 'kv_precondition');
  assert.equal(refusal.failedIndex, 3);
  assert.equal(refusal.kv!.reason, 'exists');
  assert.equal(refusal.kv!.value, '"winner"');
  assert.ok(refusal.kv!.version > 0);
  assert.deepEqual(await rig.stored(QUEUE), []);
  // Without `required` it is a result.
  const put = { op: 'put', ns: 'n', key: 'k', value: '1', life: null, expect: 0, required: false } as const;
  const answer = await rig.done([push('a')], { kv: [put] });
  assert.deepEqual(
    { ...answer.kv[0], version: 0 },
    { op: 'put', key: 'k', applied: false, value: '"winner"', version: 0, reason: 'exists' },
  );
});

test('what is told later is a part of it, and nothing is written before', async (t) => {
  const rig = await Rig.open(t);
  await rig.push(['first']);
  const { promise, resolve } = Promise.withResolvers<KvOperation[]>();
  const large = Buffer.from(JSON.stringify('x'.repeat(100_000)));
  const item = { queue: QUEUE, partition: 'Default', payload: large, transactionId: 'a' };
  const answer = rig.done([{ type: 'push', item }, push('b', 'new')], { kvLater: promise });
  // Behind it in line, and done before.
  await rig.push(['between']);
  assert.deepEqual(await rig.stored(QUEUE), ['first', 'between']);
  resolve([gate('k')]);
  assert.equal((await answer).kv.length, 1);
  assert.deepEqual([await rig.stored(QUEUE), await rig.stored('new')], [['a'], ['b']]);
  // A condition that does not hold, and an id that came meanwhile.
  const lost = rig.refused([push('c')], { kvLater: Promise.resolve([gate('k')]) });
  assert.equal((await lost).reason, 'kv_precondition');
  const late = Promise.withResolvers<KvOperation[]>();
  const taken = rig.refused([push('d')], { kvLater: late.promise });
  await rig.push(['d']);
  late.resolve([gate('other')]);
  assert.equal((await taken).reason, 'duplicate');
  assert.deepEqual(await rig.stored(QUEUE), ['d']);
  await assert.rejects(rig.run([push('e')], { kvLater: Promise.reject(new Error('never')) }), /never/);
  await assertLogInvariants(rig.broker.db);
});

test('frames carry trace id and producer; parked pops are woken', async (t) => {
  const rig = await Rig.open(t);
  const waiting = rig.pop({ waitMs: 10_000 });
  await new Promise((resolve) => setTimeout(resolve, 50));
  const traceId = '0198c1f4-6a9b-7c3e-9b1a-0d4f7c2e5a11';
  const operation = push('a');
  if (operation.type === 'push') operation.item.traceId = traceId;
  await rig.done([operation, push('b')], { producerSub: 'me' });
  const { claims } = await waiting;
  assert.deepEqual(
    claims[0]!.messages.map((message) => [message.transactionId, message.traceId, message.producerSub]),
    [
      ['a', traceId, 'me'],
      ['b', null, 'me'],
    ],
  );
  const [segment] = await sql<{ blob: Buffer; n: number }>(
    rig.broker.db,
    'SELECT blob, (end_offset - base_offset + 1)::int AS n FROM queen.log_segments',
  );
  const frames = await unpackSegment(segment!.blob, segment!.n);
  assert.equal(formatUuid(frames[0]!.traceId!), traceId);
});

test('failed, retry and dead letters inside a transaction', async (t) => {
  const rig = await Rig.open(t);
  await rig.broker.configure({
    tenant: '00000000-0000-0000-0000-000000000001',
    queue: QUEUE,
    mode: 'merge',
    options: { retryLimit: 0 },
  });
  await rig.push(['a', 'b', 'c']);
  const first = await rig.pop();
  const partitionId = first.claims[0]!.partitionId;
  const dead = await rig.done([
    ack(partitionId, 'a', { leaseId: first.leaseId }),
    ack(partitionId, 'b', { leaseId: first.leaseId, status: 'failed', error: 'broken' }),
    push('b-failed', 'failures'),
  ]);
  assert.deepEqual(
    dead.results.slice(0, 2).map((result) => [verdictOf(result).success, verdictOf(result).dlq]),
    [
      [true, false],
      [true, true],
    ],
  );
  const letters = await sql<{ txn: string; error: string; offset: number; payload: Buffer }>(
    rig.broker.db,
    'SELECT transaction_id AS txn, error, "offset", payload FROM queen.log_dlq',
  );
  assert.deepEqual(
    letters.map((letter) => [letter.txn, letter.error, letter.offset, letter.payload.toString()]),
    [['b', 'broken', 1, '{"id":"b"}']],
  );
  const second = await rig.pop();
  assert.deepEqual(second.ids, ['c']);
  await rig.done([ack(partitionId, 'c', { leaseId: second.leaseId, status: 'retry' })]);
  const third = await rig.pop();
  assert.deepEqual(third.ids, ['c']);
  // A dead letter in a transaction that is rolled back was never written.
  const refusal = await rig.refused([
    ack(partitionId, 'c', { leaseId: third.leaseId, status: 'dlq' }),
    push('b-failed', 'failures'),
  ]);
  assert.equal(refusal.reason, 'duplicate');
  const [count] = await sql<{ n: number }>(rig.broker.db, 'SELECT count(*) AS n FROM queen.log_dlq');
  assert.equal(count!.n, 1);
  await rig.done([ack(partitionId, 'c', { leaseId: third.leaseId, status: 'dlq' })]);
  await assertLogInvariants(rig.broker.db);
});

test('an ack that was overtaken is no rollback, one that cannot be resolved is', async (t) => {
  const rig = await Rig.open(t);
  await rig.push(['a', 'b', 'c']);
  const { leaseId, claims } = await rig.pop({ batch: 2 });
  const partitionId = claims[0]!.partitionId;
  await rig.done([ack(partitionId, 'a', { leaseId })]);
  const again = await rig.done([ack(partitionId, 'a', { leaseId }), push('p', 'q2')]);
  assert.equal(verdictOf(again.results[0]).noop, true);
  const stale = await rig.done([ack(partitionId, 'a', { leaseId, status: 'failed' })]);
  assert.match(verdictOf(stale.results[0]).error!, /committed/);
  for (const id of ['ghost', 'c']) {
    const refusal = await rig.refused([push(`with-${id}`, 'q2'), ack(partitionId, id, { leaseId })]);
    assert.deepEqual(
      [refusal.reason, refusal.error, refusal.failedIndex],
      ['ack_rejected', 'QTXN ack references unknown transactionId; transaction rolled back', 1],
    );
  }
  for (const bad of ['', 'x', '0', '-1', '99999999999999999999', '424242']) {
    const refusal = await rig.refused([push('bad', 'q2'), ack(bad, 'b', { leaseId })]);
    assert.deepEqual([refusal.reason, refusal.error], ['ack_rejected', 'consumer not found'], bad);
  }
  assert.deepEqual(await rig.stored('q2'), ['p']);
  await rig.done([ack(partitionId, 'b', { leaseId })]);
  assert.deepEqual((await rig.pop()).ids, ['c']);
});

test('acks of one group leave another alone; several groups and queues in one call', async (t) => {
  const rig = await Rig.open(t);
  await rig.push(['a'], 'q1');
  await rig.push(['b'], 'q2');
  const one = await rig.pop({ queue: 'q1', group: 'g1' });
  const two = await rig.pop({ queue: 'q1', group: 'g2' });
  const three = await rig.pop({ queue: 'q2', group: GROUP });
  await rig.done([
    ack(three.claims[0]!.partitionId, 'b', { leaseId: three.leaseId }),
    ack(one.claims[0]!.partitionId, 'a', { leaseId: one.leaseId, group: 'g1' }),
    push('out', 'q3'),
  ]);
  const rows = await sql<{ grp: string; committed: number; worker: string | null }>(
    rig.broker.db,
    'SELECT consumer_group AS grp, committed, worker_id AS worker FROM queen.log_consumers ORDER BY 1',
  );
  assert.deepEqual(rows, [
    { grp: GROUP, committed: 0, worker: null },
    { grp: 'g1', committed: 0, worker: null },
    { grp: 'g2', committed: -1, worker: two.leaseId },
  ]);
});

test('an empty call is refused, a missing lane is made anew', async (t) => {
  const rig = await Rig.open(t);
  await assert.rejects(rig.run([]), { code: 'bad_request' });
  await rig.done([push('a')]);
  await sql(rig.broker.db, 'DELETE FROM queen.log_txns');
  await sql(rig.broker.db, 'DELETE FROM queen.queues');
  const answer = await rig.done([push('a'), push('b')]);
  assert.deepEqual(
    answer.results.map((result) => pushOf(result).offset),
    [0, 1],
  );
  assert.equal(rig.broker.transactionPath.counters.repeated, 1);
});

test('a window that was switched on meanwhile, and a queue that encrypts meanwhile', async (t) => {
  const rig = await Rig.open(t);
  const tenant = '00000000-0000-0000-0000-000000000001';
  await rig.broker.configure({ tenant, queue: QUEUE, mode: 'merge', options: { dedupWindowSeconds: 0 } });
  await rig.done([push('a')]);
  await rig.done([push('a')]);
  await sql(rig.broker.db, 'UPDATE queen.queues SET dedup_window_seconds = 3600');
  assert.equal((await rig.refused([push('a')])).reason, 'duplicate');
  await sql(rig.broker.db, 'UPDATE queen.queues SET encryption_enabled = true');
  const refusal = await rig.refused([push('b'), push('c')]);
  assert.deepEqual([refusal.reason, refusal.failedIndex], ['encryption_required', 0]);
  assert.match(refusal.error, /^encryption_required/);
});
