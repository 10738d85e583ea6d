/**
 * Workers that are killed, stopped, started again, or busy for longer than their lease: processes of their own, by
 * the wall clock.
 */
import assert from 'node:assert/strict';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { databaseNow } from '../../packages/broker/src/store/system.ts';
import type { Client, Message } from '../broker/client.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { until } from '../kit/until.ts';
import { consumer, deadLetters, items, names, openRig, type Rig, txnsOf } from './rig.ts';
import { startWorker } from './worker.ts';

/** What a batch comes back by, after its lease has ended. */
const RETURN_WITHIN_MS = 1_000;

interface Situation {
  name: string;
  /** Lanes of the queue, five messages each. */
  lanes: string[];
  scope: 'pinned' | 'queue' | 'namespace';
  group?: string;
  /** Messages of the batch that are acked before the worker goes. */
  finish: number;
  /** Index of the broker that the successor asks; the worker asks the first. */
  heir: number;
}

const SITUATIONS: Situation[] = [
  { name: 'a pinned pop, nothing done', lanes: ['p'], scope: 'pinned', finish: 0, heir: 0 },
  {
    name: 'a queue, a part done, another broker',
    lanes: ['p'],
    scope: 'queue',
    group: 'g',
    finish: 2,
    heir: 1,
  },
  { name: 'a namespace, all but one done', lanes: ['p'], scope: 'namespace', group: 'g', finish: 4, heir: 1 },
  { name: 'three lanes under one lease', lanes: ['a', 'b', 'c'], scope: 'queue', finish: 0, heir: 0 },
];

/** How late this process is for its own timers: what a crowded machine adds to any time that is measured here. */
const delays = monitorEventLoopDelay({ resolution: 10 });
delays.enable();

test('workers', { concurrency: true }, async (t) => {
  const rig = await openRig(t, 2);

  const trials = [
    t.test('a handler runs ten times longer than its lease and renews from inside', (t) => renewing(t, rig)),
    ...SITUATIONS.map((situation, i) =>
      t.test(`killed: ${situation.name}`, (t) => killed(t, rig, situation, `killed${i}.x`)),
    ),
    ...SITUATIONS.map((situation, i) =>
      t.test(`stopped: ${situation.name}`, (t) => stopped(t, rig, situation, `stopped${i}.x`)),
    ),
    t.test('started again under the same name, the old lease is neither inherited nor in the way', (t) =>
      startedAgain(t, rig),
    ),
  ];
  await Promise.all(trials);
});

interface Held {
  messages: Message[];
  /** What the worker has not finished, by lane. */
  rest: Map<string, string[]>;
  path: string;
  parameters: Record<string, string | number | boolean>;
}

/** Five messages a lane, in two segments, and a worker that holds them all. */
async function hold(t: Cleanup, rig: Rig, situation: Situation, queue: string, leaseSeconds: number) {
  const { lanes, scope, group, finish } = situation;
  const [first] = rig.clients as [Client];
  for (const lane of lanes) {
    await first.push(items(queue, names('m', 2), lane));
    await first.push(items(queue, names('m', 3, 2), lane));
  }
  const path = {
    pinned: `/api/v1/pop/queue/${queue}/partition/${lanes[0]}`,
    queue: `/api/v1/pop/queue/${queue}`,
    namespace: '/api/v1/pop',
  }[scope];
  const parameters = {
    partitions: 0,
    ...(scope === 'namespace' ? { namespace: queue.split('.')[0]! } : {}),
    ...(group === undefined ? {} : { consumerGroup: group, subscriptionMode: 'all' }),
  };
  const job = { url: first.url, path, parameters: { ...parameters, leaseSeconds }, finish };
  const worker = await startWorker(job, t);
  assert.equal(worker.holds.length, lanes.length * 5);
  assert.equal(new Set(worker.holds.map(({ leaseId }) => leaseId)).size, 1);
  const rest = new Map(
    lanes.map((lane) => {
      const left = worker.holds.slice(finish).filter(({ partition }) => partition === lane);
      return [lane, txnsOf(left)];
    }),
  );
  return { worker, held: { messages: worker.holds, rest, path, parameters } satisfies Held };
}

/** Pops until as much has come as was left; what came, by lane. */
async function inherit(client: Client, held: Held): Promise<Message[]> {
  const expected = [...held.rest.values()].flat().length;
  const got: Message[] = [];
  await until('the whole batch is back', async () => {
    const parameters = { ...held.parameters, wait: true, timeout: 20_000, leaseSeconds: 300 };
    got.push(...(await client.popAt(held.path, parameters)));
    return got.length >= expected;
  });
  return got;
}

/** Exactly what was left comes again, in order, once more, and its budget is as it was. */
async function assertReturned(rig: Rig, client: Client, held: Held, got: Message[]): Promise<void> {
  for (const [lane, rest] of held.rest) {
    const mine = got.filter(({ partition }) => partition === lane);
    assert.deepEqual(txnsOf(mine), rest, lane);
    assert.ok(
      mine.every(({ deliveryAttempt }) => deliveryAttempt === 2),
      lane,
    );
    const row = await consumer(rig.db, mine[0]!.partitionId, mine[0]!.consumerGroup);
    assert.equal(row.retries, 0, 'the budget is untouched');
    assert.ok((await client.ackBatch(mine)).every(({ success }) => success));
    assert.deepEqual(await deadLetters(rig.db, mine[0]!.partitionId), []);
  }
}

async function killed(t: Cleanup, rig: Rig, situation: Situation, queue: string): Promise<void> {
  const heir = rig.clients[situation.heir]!;
  const { worker, held } = await hold(t, rig, situation, queue, 3);
  const group = held.messages[0]!.consumerGroup;
  const lanes = [...new Set(held.messages.map(({ partitionId }) => partitionId))];
  const leases = await Promise.all(lanes.map((lane) => consumer(rig.db, lane, group)));
  const parkedAt = await databaseNow(rig.db);
  const inheriting = inherit(heir, held);
  assert.equal(await worker.kill('SIGKILL'), null);
  const got = await inheriting;
  for (const [i, lane] of lanes.entries()) {
    const { acquired } = await consumer(rig.db, lane, group);
    const { expires } = leases[i]!;
    assert.ok(acquired! >= expires!, 'not before the lease has ended');
    const lateMs = (acquired! - Math.max(expires!, parkedAt)) / 1000;
    const boundMs = RETURN_WITHIN_MS + 2 * (delays.max / 1e6);
    assert.ok(lateMs <= boundMs, `${lateMs} ms after the end of the lease, above ${boundMs}`);
  }
  await assertReturned(rig, heir, held, got);
}

async function stopped(t: Cleanup, rig: Rig, situation: Situation, queue: string): Promise<void> {
  const LEASE_SECONDS = 300;
  const heir = rig.clients[situation.heir]!;
  const { worker, held } = await hold(t, rig, situation, queue, LEASE_SECONDS);
  assert.deepEqual(await heir.popAt(held.path, held.parameters), [], 'it is leased');
  const inheriting = inherit(heir, held);
  const began = performance.now();
  assert.equal(await worker.kill('SIGTERM'), 0);
  const got = await inheriting;
  const tookMs = performance.now() - began;
  assert.ok(tookMs < (LEASE_SECONDS * 1000) / 20, `${tookMs} ms after the signal`);
  const report = worker.reports.at(-1)!;
  assert.ok(report.word === 'gave back' && report.verdicts.every(({ success }) => success));
  await assertReturned(rig, heir, held, got);
}

async function renewing(t: Cleanup, rig: Rig): Promise<void> {
  const LEASE_SECONDS = 1;
  const [first, second] = rig.clients as [Client, Client];
  await first.push([...items('long', names('m', 3), 'a'), ...items('long', names('m', 3), 'b')]);
  const job = {
    url: first.url,
    path: '/api/v1/pop/queue/long',
    parameters: { partitions: 2, leaseSeconds: LEASE_SECONDS + 1 },
    finish: 0,
    renew: { everyMs: 300, seconds: LEASE_SECONDS },
  };
  const worker = await startWorker(job, t);
  assert.equal(worker.holds.length, 6);
  // Two rivals that want the batch all the time, one on each broker.
  let over = false;
  const rivals = [first, second].map(async (client) => {
    const stolen: Message[] = [];
    while (!over) stolen.push(...(await client.pop('long', { wait: true, timeout: 500, partitions: 2 })));
    return stolen;
  });
  await sleep(10 * LEASE_SECONDS * 1000);
  const renewals = worker.reports.filter(({ word }) => word === 'renewed');
  assert.ok(renewals.length >= 10, `${renewals.length} renewals`);
  assert.ok(renewals.every((report) => report.word === 'renewed' && report.partitions === 2));
  const verdicts = await second.ackBatch(worker.holds);
  assert.ok(
    verdicts.every(({ success, error }) => success && error === null),
    JSON.stringify(verdicts),
  );
  over = true;
  assert.deepEqual((await Promise.all(rivals)).flat(), [], 'nobody else was given any of it');
  for (const lane of new Set(worker.holds.map(({ partitionId }) => partitionId))) {
    const row = await consumer(rig.db, lane);
    assert.deepEqual([row.committed, row.worker, row.retries, row.consumed], [2, null, 0, 3]);
  }
}

async function startedAgain(t: Cleanup, rig: Rig): Promise<void> {
  const [first, second] = rig.clients as [Client, Client];
  const parameters = { consumerGroup: 'payments', subscriptionMode: 'all', leaseSeconds: 10 };
  const job = { url: first.url, path: '/api/v1/pop/queue/again', parameters, finish: 1 };
  await first.push(items('again', names('old', 3), 'old'));
  const before = await startWorker(job, t);
  const [done, open] = before.holds as [Message, Message];
  await before.kill('SIGKILL');
  const { expires } = await consumer(rig.db, open.partitionId, 'payments');

  // The same process again: same group, same request, same broker. What it held is not handed to it, and a lane that
  // nobody holds is.
  await first.push(items('again', names('new', 2), 'new'));
  const after = await startWorker({ ...job, finish: 0 }, t);
  assert.deepEqual(txnsOf(after.holds), ['new0', 'new1']);
  assert.notEqual(after.holds[0]!.leaseId, open.leaseId);
  const own = await second.call('POST', `/api/v1/lease/${after.holds[0]!.leaseId}/extend`, { seconds: 60 });
  assert.equal(own.body.renewed, 1, 'its own lease only');
  assert.equal((await consumer(rig.db, open.partitionId, 'payments')).expires, expires);
  assert.ok((await first.ackBatch(after.holds)).every(({ success }) => success));

  // And when the old lease has run out, it is given the rest like anybody else.
  const [again] = (await first.pop('again', { ...parameters, wait: true, timeout: 20_000 })) as [Message];
  assert.deepEqual([again.transactionId, again.deliveryAttempt], ['old1', 2]);
  assert.ok((await consumer(rig.db, open.partitionId, 'payments')).acquired! >= expires!);
  const late = await second.ack(open);
  assert.deepEqual([late.success, late.error], [false, 'invalid or expired lease']);
  const repeated = await second.ack(done);
  assert.equal(repeated.success, false, 'nor does the old lease count for what is done');
  assert.ok((await first.ack({ ...again, transactionId: 'old2' })).leaseReleased);
}
