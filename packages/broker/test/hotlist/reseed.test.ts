import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HotList } from '../../src/engine/hotlist/hotlist.ts';
import { Reseed, type ReseedSettings } from '../../src/engine/hotlist/reseed.ts';
import { QUEUE_MODE_GROUP } from '../../src/engine/types.ts';
import type { Queryable } from '../../src/store/database.ts';
import { silentLog } from '../../src/store/log.ts';
import { type Rig, setup, sql, TENANT } from '../pop/fixture.ts';
import { FakeClock } from './fake_clock.ts';

async function bench(rig: Rig, over: Partial<ReseedSettings> = {}) {
  const clock = new FakeClock();
  const hotlist = new HotList(clock, { windowBatch: 100, idleSweepMs: 300_000 });
  const statements: string[] = [];
  const db: Queryable = {
    query: (statement, ...rest) => {
      statements.push(statement.name);
      return rig.db.query(statement, ...rest);
    },
  };
  const repaired: string[] = [];
  const reseed = new Reseed({
    hotlist,
    read: (work) => work(db),
    clock,
    settings: { reseedMs: 30_000, fullMs: 300_000, windowMs: 120_000, idleSweepMs: 300_000, ...over },
    log: silentLog,
    databaseNow: () => Date.now() * 1_000,
    onRepair: (repair) => void repaired.push(`${repair.queue}/${repair.group}/${repair.partition}`),
    random: () => 0,
  });
  const [queue] = await sql<{ id: number }>(rig.db, "SELECT id FROM queen.queues WHERE name = 'q'");
  const ring = hotlist.add({
    tenant: TENANT,
    queue: 'q',
    group: QUEUE_MODE_GROUP,
    queueId: queue!.id,
    conflation: false,
    registered: true,
    minPopWaitMs: 0,
  });
  return { clock, hotlist, reseed, ring, statements, repaired, queueId: queue!.id };
}

test('a full read goes page by page and finds exactly what is pending', async (t) => {
  const rig = await setup(t);
  for (let p = 0; p < 25; p++) await rig.push('q', `p${p}`, ['a', 'b']);
  await sql(
    rig.db,
    `INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
     SELECT id, '${QUEUE_MODE_GROUP}', CASE WHEN id % 3 = 0 THEN 1 ELSE 0 END FROM queen.log_partitions`,
  );
  const { reseed, ring, statements } = await bench(rig, { pagePartitions: 10 });
  assert.equal(ring.complete, false);
  assert.equal(await reseed.progress(ring), true);
  assert.ok(ring.ring.ready > 0 && ring.ring.ready <= 10, 'a pop need not wait for all pages');
  while (await reseed.progress(ring));
  assert.equal(ring.complete, true);
  const [pending] = await sql<{ n: number }>(
    rig.db,
    'SELECT count(*)::int AS n FROM queen.log_partitions WHERE id % 3 <> 0',
  );
  assert.equal(ring.ring.ready, pending?.n);
  assert.equal(ring.ring.backlog(100, 1_000), pending?.n, 'one message each is left');
  assert.deepEqual(statements, ['hotlist_page', 'hotlist_page', 'hotlist_page']);
});

test('leased partitions are parked, not ready', async (t) => {
  const rig = await setup(t);
  const { partitionId } = await rig.push('q', 'p', ['a', 'b']);
  await sql(
    rig.db,
    `INSERT INTO queen.log_consumers (partition_id, consumer_group, batch_end, worker_id, lease_expires_at)
     VALUES ($1::bigint, '${QUEUE_MODE_GROUP}', 1, 'w', queen.clock() + interval '30 seconds')`,
    [partitionId],
  );
  const { clock, reseed, ring } = await bench(rig);
  await reseed.full(ring);
  assert.equal(ring.ring.stateOf(partitionId), 'parked');
  assert.ok(ring.ring.nextDue > 29_000, 'no backlog behind the batch: nobody has to look before its end');
  clock.advance(31_000);
  assert.equal(ring.ring.ready, 1);
});

test('a queue beyond the page cap is marked as not fully known', async (t) => {
  const rig = await setup(t);
  for (let p = 0; p < 6; p++) await rig.push('q', `p${p}`, ['a']);
  const { reseed, ring } = await bench(rig, { pagePartitions: 2, pagesMax: 2 });
  await reseed.full(ring);
  assert.equal(ring.complete, false);
  assert.equal(ring.truncated, true);
  assert.equal(ring.ring.ready, 4);
});

test('a pop of a queue beyond the page cap still finds everything', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  for (let p = 0; p < 6; p++) await rig.push('q', `p${p}`, ['a']);
  await broker.pop({ group: 'warm' });
  for (const ring of broker.delivery.hotlist.rings()) {
    ring.ring.draw(100, 100, []);
    ring.complete = false;
    ring.truncated = true;
  }
  assert.equal((await broker.pop({ group: 'warm', partitions: 0 })).claims.length, 5);
});

test('a pass looks at recent writes of all rings in one statement, and at all of a ring now and then', async (t) => {
  const rig = await setup(t);
  const old = await rig.push('q', 'old', ['a']);
  await rig.push('q', 'young', ['a']);
  await sql(
    rig.db,
    "UPDATE queen.log_partitions SET last_write_at = last_write_at - interval '1 hour' WHERE id = $1::bigint",
    [old.partitionId],
  );
  const { clock, hotlist, reseed, ring, statements, queueId } = await bench(rig);
  const others = ['h', 'i'].map((group) =>
    hotlist.add({
      tenant: TENANT,
      queue: 'q',
      group,
      queueId,
      conflation: false,
      registered: true,
      minPopWaitMs: 0,
    }),
  );
  const rings = [ring, ...others];
  for (const one of rings) await reseed.full(one);
  const drain = () => {
    for (const one of rings) {
      const ids: number[] = [];
      one.ring.draw(10, 10, ids);
      for (const id of ids) one.ring.empty(id, 0);
      hotlist.find(TENANT, 'q', one.group);
    }
  };
  drain();
  clock.advance(30_000);
  drain();
  clock.advance(1);
  statements.length = 0;
  await reseed.pass();
  assert.deepEqual(statements, ['hotlist_recent']);
  assert.deepEqual(
    rings.map((r) => r.ring.ready),
    [1, 1, 1],
    'only what was written lately',
  );
  statements.length = 0;
  await reseed.pass();
  assert.deepEqual(statements, [], 'rings that nobody asked for since are left alone');
  drain();
  clock.advance(90_000);
  await reseed.pass();
  clock.advance(90_000);
  drain();
  await reseed.pass();
  clock.advance(121_000);
  drain();
  statements.length = 0;
  await reseed.pass();
  assert.deepEqual(statements, ['hotlist_page', 'hotlist_page', 'hotlist_page']);
  assert.deepEqual(
    rings.map((r) => r.ring.ready),
    [2, 2, 2],
  );
});

test('repairs act once for every change, not by their time', async (t) => {
  const rig = await setup(t);
  const { partitionId } = await rig.push('q', 'p', ['a']);
  const { reseed, hotlist, ring, repaired } = await bench(rig);
  await reseed.full(ring);
  const ids: number[] = [];
  ring.ring.draw(10, 10, ids);
  ring.ring.empty(partitionId, 0);
  await reseed.pollRepairs();
  const publish = (partition: string | null, at: string) =>
    sql(
      rig.db,
      `INSERT INTO queen.hotlist_repairs (tenant_id, queue_name, consumer_group, partition_name, repair_at)
       VALUES ('${TENANT}', 'q', '${QUEUE_MODE_GROUP}', $1::text, ${at})
       ON CONFLICT (tenant_id, queue_name, consumer_group) DO UPDATE
          SET partition_name = EXCLUDED.partition_name, repair_at = EXCLUDED.repair_at`,
      [partition],
    );
  await publish('p', 'queen.clock()');
  await reseed.pollRepairs();
  assert.equal(ring.ring.stateOf(partitionId), 'ready');
  await reseed.pollRepairs();
  // From a broker whose clock is behind: older than the last one, and acted on.
  await publish(null, "queen.clock() - interval '5 minutes'");
  await reseed.pollRepairs();
  assert.equal(ring.dropped, true);
  assert.equal(hotlist.stats().rings, 0);
  assert.deepEqual(repaired, [`q/${QUEUE_MODE_GROUP}/p`, `q/${QUEUE_MODE_GROUP}/null`]);
});

test('the loops go on after failures, at their periods', async () => {
  const clock = new FakeClock();
  const hotlist = new HotList(clock, { windowBatch: 100, idleSweepMs: 300_000 });
  let reads = 0;
  const warnings: string[] = [];
  const reseed = new Reseed({
    hotlist,
    read: () => {
      reads++;
      return Promise.reject(new Error('away'));
    },
    clock,
    settings: { reseedMs: 30_000, fullMs: 300_000, windowMs: 120_000, idleSweepMs: 300_000 },
    log: { info() {}, warn: (_facts, message) => void warnings.push(message), error() {} },
    databaseNow: () => null,
    random: () => 0,
  });
  hotlist.add({
    tenant: TENANT,
    queue: 'q',
    group: 'g',
    queueId: 1,
    conflation: false,
    registered: true,
    minPopWaitMs: 0,
  });
  reseed.start();
  await clock.advanceAsync(121_000, 1_000);
  // Repairs at once and twice more, the ring's read four times.
  assert.equal(reads, 7);
  assert.equal(warnings.length, 7);
  reseed.stop();
  assert.equal(clock.pending, 0);
});
