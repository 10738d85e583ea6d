import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Broker, complete, range, setup, sql, TENANT, texts } from './fixture.ts';

const until = async (condition: () => boolean) => {
  while (!condition()) await new Promise((r) => setTimeout(r, 1));
};

test('two brokers that race for partitions never share a lease', async (t) => {
  const rig = await setup(t);
  const brokers = [await rig.broker(), await rig.broker()];
  for (let p = 0; p < 10; p++) await rig.push('q', `p${p}`, range(3));
  const seen = new Map<string, string>();
  let delivered = 0;
  const consume = async (broker: Broker) => {
    for (let i = 0; i < 30; i++) {
      const answer = await broker.pop({ partitions: 3, batch: 9 });
      for (const claim of answer.claims) {
        assert.equal(seen.get(claim.partitionId), undefined, 'one live lease');
        seen.set(claim.partitionId, answer.leaseId);
        delivered += claim.messages.length;
      }
    }
  };
  await Promise.all([...brokers, ...brokers].map(consume));
  assert.equal(delivered, 30);
  const rows = await sql<{ id: number; worker: string }>(
    rig.db,
    'SELECT partition_id AS id, worker_id AS worker FROM queen.log_consumers',
  );
  for (const row of rows) assert.equal(seen.get(String(row.id)), row.worker);
});

test('every notification lost: a parked pop gets the message within about a second', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['old']);
  await broker.pop({ autoAck: true });
  const pops = [
    broker.pop({ waitMs: 10_000 }),
    broker.pop({ queue: 'r', waitMs: 10_000, partition: 'pinned' }),
    broker.delivery.pop({
      ...(await import('./fixture.ts')).request({ waitMs: 10_000 }),
      scope: { kind: 'discovery', namespace: 'scope', task: null },
    }),
  ];
  await until(() => broker.delivery.wake.parking.parked === 3);
  await new Promise((r) => setTimeout(r, 300));
  const started = performance.now();
  await rig.push('q', 'p', ['a']);
  await rig.push('r', 'pinned', ['b']);
  await rig.push('scope.c', 'p', ['c']);
  const answers = await Promise.all(pops);
  const took = performance.now() - started;
  assert.deepEqual(answers.map((a) => a.claims[0]?.messages[0]?.transactionId).sort(), ['a', 'b', 'c']);
  assert.ok(took < 2_500, `${took} ms`);
});

test('a parked pop on another broker is woken by a notification', async (t) => {
  const rig = await setup(t);
  const [a, b] = [await rig.broker({ notify: true }), await rig.broker({ notify: true })];
  await b.pop();
  await rig.push('q', 'p', ['old'], [a]);
  await until(() => (b.delivery.wake.peers?.counters.received ?? 0) > 0);
  await b.pop({ autoAck: true });
  let notified = 0;
  for (let i = 0; i < 5; i++) {
    const parked = b.pop({ waitMs: 5_000, autoAck: true });
    await until(() => b.delivery.wake.parking.parked === 1);
    const { scans } = b.delivery.wake.scan;
    await rig.push('q', 'p', [`m${i}`], [a]);
    assert.deepEqual(texts(await parked), { p: [`m${i}`] });
    if (b.delivery.wake.scan.scans === scans) notified++;
  }
  // Without notifications a scan would have found each of them; now and then one comes in between.
  assert.ok(notified > 0);
  assert.equal(a.delivery.wake.peers?.counters.received, 0, 'own notifications are ignored');
});

test('a release on one broker wakes a pop on another', async (t) => {
  const rig = await setup(t);
  const [a, b] = [await rig.broker({ notify: true }), await rig.broker({ notify: true })];
  await rig.push('q', 'p', range(12));
  let held = await a.pop({ batch: 2 });
  let woken = 0;
  for (let i = 1; i < 6; i++) {
    assert.deepEqual(texts(await b.pop()), {});
    const parked = b.pop({ waitMs: 5_000, batch: 2 });
    await until(() => b.delivery.wake.parking.parked === 1);
    const { scans } = b.delivery.wake.scan;
    await complete(rig, held, '__QUEUE_MODE__', [a]);
    held = await parked;
    assert.deepEqual(texts(held), { p: [`m${2 * i}`, `m${2 * i + 1}`] });
    if (b.delivery.wake.scan.scans === scans) woken++;
  }
  assert.ok(woken > 0, 'by a scan each time');
});

test('a batch whose worker died comes back to a parked pop within the lease plus a second', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', range(2));
  await broker.pop({ leaseSeconds: 1 });
  const started = performance.now();
  const again = await broker.pop({ waitMs: 10_000 });
  const took = performance.now() - started;
  assert.deepEqual(texts(again), { p: range(2) });
  assert.equal(again.claims[0]?.deliveryAttempt, 2);
  assert.ok(took < 2_200, `${took} ms`);
});

test('a database clock that jumps is noticed by parked pops', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', range(2));
  await broker.pop({ leaseSeconds: 600 });
  const parked = broker.pop({ waitMs: 10_000 });
  await until(() => broker.delivery.wake.scan.scans > 0);
  await rig.database.advanceClock(601);
  const started = performance.now();
  assert.equal((await parked).claims[0]?.deliveryAttempt, 2);
  assert.ok(performance.now() - started < 2_500);
});

test('a queue that is deleted and made anew is a new queue on every broker', async (t) => {
  const rig = await setup(t);
  const [a, b] = [await rig.broker({ notify: true }), await rig.broker({ notify: true })];
  await rig.push('q', 'p', ['old']);
  for (const broker of [a, b]) await broker.pop({ group: 'g', autoAck: true });
  await sql(rig.db, "DELETE FROM queen.queues WHERE name = 'q'");
  a.delivery.announcer.queueDeleted(TENANT, 'q');
  await rig.push('q', 'p', ['new'], [a]);
  await until(() => b.delivery.hotlist.queueIdOf(TENANT, 'q') === 0);
  assert.deepEqual(texts(await b.pop({ group: 'g' })), { p: ['new'] });
});

test('the same with every notification lost', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['old']);
  const g = { group: 'g', subscriptionMode: 'new' as const };
  await broker.pop(g);
  await broker.pop({ ...g, partition: 'p' });
  const parked = [
    broker.pop({ ...g, waitMs: 10_000 }),
    broker.pop({ ...g, group: 'h', partition: 'p', waitMs: 10_000 }),
  ];
  await until(() => broker.delivery.wake.parking.parked === 2);
  await sql(rig.db, "DELETE FROM queen.queues WHERE name = 'q'");
  await rig.push('q', 'p', ['new']);
  // The group was there all the time, so the message that made the queue anew is its own.
  assert.deepEqual(texts(await parked[0]!), { p: ['new'] });
  assert.deepEqual(texts(await parked[1]!), { p: ['new'] });
});

test('parked pops do not bring a deleted queue back', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['old']);
  const g = { group: 'g', subscriptionMode: 'new' as const };
  const parked = broker.pop({ ...g, waitMs: 10_000 });
  await until(() => broker.delivery.wake.parking.parked === 1);
  await sql(rig.db, "DELETE FROM queen.queues WHERE name = 'q'");
  broker.delivery.announcer.queueDeleted(TENANT, 'q');
  await until(() => broker.delivery.wake.scan.scans > 1);
  assert.deepEqual(await sql(rig.db, 'SELECT name FROM queen.queues'), []);
  await rig.push('q', 'p', ['new'], [broker]);
  assert.deepEqual(texts(await parked), { p: ['new'] });
});

test('a seek is acted on by every broker', async (t) => {
  const rig = await setup(t);
  const [a, b] = [await rig.broker({ notify: true }), await rig.broker({ notify: true })];
  const { partitionId } = await rig.push('q', 'p', range(3));
  await b.pop({ group: 'g', autoAck: true });
  const parked = b.pop({ group: 'g', waitMs: 5_000 });
  await until(() => b.delivery.wake.parking.parked === 1);
  await b.delivery.reseed.pollRepairs();
  await sql(rig.db, 'UPDATE queen.log_consumers SET committed = 0 WHERE partition_id = $1::bigint', [
    partitionId,
  ]);
  await sql(
    rig.db,
    `INSERT INTO queen.hotlist_repairs (tenant_id, queue_name, consumer_group, partition_name)
     VALUES ('${TENANT}', 'q', 'g', 'p')`,
  );
  a.delivery.repairsPublished();
  assert.deepEqual(texts(await parked), { p: ['m1', 'm2'] });
});
