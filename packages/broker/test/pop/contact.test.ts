import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Start } from '../../src/store/pop.ts';
import { meet } from '../../src/store/pop.ts';
import { type Rig, range, request, setup, sql, TENANT, texts } from './fixture.ts';

const NEW = { group: 'g', subscriptionMode: 'new' as const };

function records(rig: Rig) {
  return sql<{ mode: string; at: number; partition: string; queue: number | null; conflation: boolean }>(
    rig.db,
    `SELECT subscription_mode AS mode, subscription_timestamp AS at, partition_name AS partition, queue_id AS queue,
            conflation
       FROM queen.consumer_groups_metadata ORDER BY id`,
  );
}

test('a new group skips what existed when it subscribed and gets everything after', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const old = await rig.push('q', 'old', range(3, 'before'));
  await rig.push('q', 'old2', range(2, 'before'));
  assert.deepEqual(texts(await broker.pop({ ...NEW, partitions: 0 })), {});
  assert.equal((await rig.consumer(old.partitionId, 'g'))?.committed, 2, 'seeded in bulk');
  await rig.push('q', 'old', ['after'], [broker]);
  // A partition that is created later is delivered from its first message, although the pop says `new`.
  await rig.push('q', 'young', ['x', 'y'], [broker]);
  assert.deepEqual(texts(await broker.pop({ ...NEW, partitions: 0 })), { old: ['after'], young: ['x', 'y'] });
  const [record] = await records(rig);
  assert.equal(record?.mode, 'new');
  assert.equal(record?.partition, '');
});

test('the registration decides on a broker that never saw it made, too', async (t) => {
  const rig = await setup(t);
  const [a, b] = [await rig.broker(), await rig.broker()];
  await rig.push('q', 'p', ['before']);
  await a.pop(NEW);
  await rig.push('q', 'young', ['x']);
  assert.deepEqual(texts(await b.pop(NEW)), { young: ['x'] });
  assert.equal((await records(rig)).length, 1);
});

test('the first registration wins over what later pops carry', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['before']);
  await broker.pop(NEW);
  assert.deepEqual(texts(await (await rig.broker()).pop({ group: 'g', subscriptionMode: 'all' })), {});
  assert.deepEqual(texts(await broker.pop({ group: 'h', subscriptionMode: 'all' })), { p: ['before'] });
  const [, all] = await records(rig);
  assert.deepEqual([all?.mode, all?.at], ['all', 0]);
});

test('queue mode starts at the oldest message, whatever the pop says, and registers nothing', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['before']);
  assert.deepEqual(texts(await broker.pop({ subscriptionMode: 'new', subscriptionFrom: 'now' })), {
    p: ['before'],
  });
  assert.deepEqual(await records(rig), []);
});

test('a subscription from a time starts at the first segment at or after it', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const times: number[] = [];
  for (let i = 0; i < 30; i++) {
    const { partitionId, base } = await rig.push('q', 'p', range(1 + (i % 3), `s${i}_`));
    const [row] = await sql<{ at: number }>(
      rig.db,
      'SELECT created_at AS at FROM queen.log_segments WHERE partition_id = $1::bigint AND base_offset = $2::bigint',
      [partitionId, base],
    );
    times.push(row!.at);
  }
  for (const i of [0, 1, 14, 28, 29]) {
    for (const shift of [0, -1, 1]) {
      const from = times[i]! + shift;
      const group = `g${i}_${shift}`;
      const first = times.findIndex((at) => at >= from);
      const got = texts(await broker.pop({ group, subscriptionFrom: from, batch: 1 })).p?.[0];
      assert.equal(got, first < 0 ? undefined : `s${first}_0`, `${group}`);
    }
  }
  // A lone partition, by the first-contact path instead of the seeding.
  const from = times[20]!;
  const pinned = await broker.pop({ group: 'pinned', partition: 'p', subscriptionFrom: from, batch: 1 });
  assert.deepEqual(texts(pinned).p, ['s20_0']);
});

test('positions by time agree with a walk, holes included', async (t) => {
  const rig = await setup(t);
  const { partitionId } = await rig.push('q', 'p', ['x']);
  await sql(rig.db, 'DELETE FROM queen.log_segments');
  // Bases with holes, equal times in between.
  await sql(
    rig.db,
    `INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
     SELECT $1::bigint, i * 7 + 100, i * 7 + 100 + (i % 5), timestamptz 'epoch' + (i / 3) * interval '1 second', ''
       FROM generate_series(0, 199) i`,
    [partitionId],
  );
  const rows = await sql<{ t: number; walk: number; found: number }>(
    rig.db,
    `SELECT t, COALESCE((SELECT min(base_offset) - 1 FROM queen.log_segments
                          WHERE created_at >= timestamptz 'epoch' + t * interval '0.5 seconds'), 1600) AS walk,
            queen.log_position_at($1::bigint, timestamptz 'epoch' + t * interval '0.5 seconds', 50, 1600,
                                  timestamptz 'epoch' + interval '66 seconds') AS found
       FROM generate_series(-2, 140) t`,
    [partitionId],
  );
  for (const { t: at, walk, found } of rows) assert.equal(found, walk, `at ${at}`);
});

test('a pinned pop of a partition that does not exist is remembered for it', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['before']);
  const pinned = { ...NEW, partition: 'later' };
  assert.deepEqual((await broker.pop(pinned)).claims, []);
  assert.deepEqual((await broker.pop(pinned)).claims, []);
  const [record, ...others] = await records(rig);
  assert.deepEqual([record?.partition, record?.mode, others.length], ['later', 'new', 0]);
  await rig.push('q', 'later', ['x', 'y'], [broker]);
  assert.deepEqual(texts(await broker.pop(pinned)), { later: ['x', 'y'] });
  assert.equal(
    (await sql(rig.db, 'SELECT 1 AS one FROM queen.log_consumers')).length,
    1,
    'seeds its own only',
  );
});

test('a partition that a pinned pop waited for is not skipped by a registration in between', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await broker.pop({ ...NEW, partition: 'later' });
  await rig.push('q', 'later', ['x']);
  await rig.push('q', 'other', ['skipped']);
  assert.deepEqual(texts(await broker.pop({ ...NEW, partitions: 0 })), { later: ['x'] });
});

test('a parked pinned pop gets the message that creates its partition', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const parked = broker.pop({ ...NEW, partition: 'later', waitMs: 5_000 });
  while (broker.delivery.wake.parking.parked === 0) await new Promise((r) => setTimeout(r, 1));
  await rig.push('q', 'later', ['x'], [broker]);
  assert.deepEqual(texts(await parked), { later: ['x'] });
});

test('a pinned pop of an old partition seeds it by what the pop carries and registers nothing', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a', 'b']);
  assert.deepEqual(texts(await broker.pop({ ...NEW, partition: 'p' })), {});
  await rig.push('q', 'p', ['c'], [broker]);
  assert.deepEqual(texts(await broker.pop({ ...NEW, partition: 'p' })), { p: ['c'] });
  assert.deepEqual(await records(rig), []);
});

test('discovery registers its scope, and queues that come later are delivered from the start', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('ns.a', 'p', ['before']);
  const scope = { kind: 'discovery', namespace: 'ns', task: null } as const;
  const pop = (over = {}) => broker.delivery.pop(request({ ...NEW, scope, partitions: 0, ...over }));
  assert.deepEqual((await pop()).claims, []);
  await rig.push('ns.a', 'p', ['after'], [broker]);
  await rig.push('ns.b', 'fresh', ['x'], [broker]);
  await rig.push('elsewhere.b', 'p', ['y'], [broker]);
  const answer = await pop();
  assert.deepEqual(answer.claims.map((c) => [c.queue, c.partition, c.messages.length]).sort(), [
    ['ns.a', 'p', 1],
    ['ns.b', 'fresh', 1],
  ]);
  const [record] = await records(rig);
  assert.equal(record?.queue, null);
  // A queue-wide pop of the same group on a queue of the scope takes over from there.
  await rig.push('ns.b', 'fresh2', ['z'], [broker]);
  assert.deepEqual(texts(await broker.pop({ ...NEW, queue: 'ns.b' })), { fresh2: ['z'] });
});

test('discovery by task, by both, and by neither', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('n1.t1', 'p', ['a']);
  await rig.push('n1.t2', 'p', ['b']);
  await rig.push('n2.t1', 'p', ['c']);
  const found = async (namespace: string | null, task: string | null, group: string) => {
    const scope = { kind: 'discovery', namespace, task } as const;
    const answer = await broker.delivery.pop(request({ scope, partitions: 0, group }));
    return answer.claims.map((c) => c.queue).sort();
  };
  assert.deepEqual(await found('n1', null, 'a'), ['n1.t1', 'n1.t2']);
  assert.deepEqual(await found(null, 't1', 'b'), ['n1.t1', 'n2.t1']);
  assert.deepEqual(await found('n1', 't1', 'c'), ['n1.t1']);
  assert.deepEqual(await found('N1', 't1', 'd'), []);
  await assert.rejects(found(null, null, 'e'), { code: 'scope_required' });
});

test('a thousand pops at once register once and seed every partition once', async (t) => {
  const rig = await setup(t);
  const brokers = [await rig.broker(), await rig.broker()];
  for (let p = 0; p < 20; p++) await rig.push('q', `p${p}`, ['before']);
  await Promise.all(range(200).map((_, i) => brokers[i % 2]!.pop({ ...NEW })));
  const [row] = await sql<{ n: number; low: number }>(
    rig.db,
    "SELECT count(*)::int AS n, min(committed) AS low FROM queen.log_consumers WHERE consumer_group = 'g'",
  );
  assert.deepEqual(row, { n: 20, low: 0 });
  assert.equal((await records(rig)).length, 1);
});

test('a group that meets a partition while its first push commits does not lose the message', async (t) => {
  const rig = await setup(t);
  const { partitionId } = await rig.push('q', 'first', ['x']);
  const broker = await rig.broker();
  await broker.pop(NEW);
  const late = await rig.push('q', 'late', []).catch(() => null);
  assert.equal(late, null);
  const [place] = await sql<{ id: number }>(
    rig.db,
    "SELECT id FROM queen.log_partitions WHERE name = 'late'",
  );
  // A push in progress: it holds the partition's row when the group arrives.
  const meeting = await rig.db.transaction(async (tx) => {
    const { statement } = await import('../../src/store/database.ts');
    await tx.query(
      statement('contact_lock', 'SELECT 1 AS one FROM queen.log_partitions WHERE id = $1::bigint FOR UPDATE'),
      [place!.id],
    );
    const met = meet(broker.db, 'g', [place!.id], null);
    await new Promise((r) => setTimeout(r, 100));
    await tx.query(
      statement(
        'contact_push',
        `WITH s AS (INSERT INTO queen.log_segments SELECT $1::bigint, 0, 0, queen.clock(), 'x')
         UPDATE queen.log_partitions SET last_offset = 0, last_created_at = queen.clock() WHERE id = $1::bigint`,
      ),
      [place!.id],
    );
    return { met };
  });
  assert.deepEqual(await meeting.met, [0]);
  assert.equal((await rig.consumer(place!.id, 'g'))?.committed, -1);
  assert.ok(partitionId > 0);
});

test('meet creates only what it may: unregistered groups and missing partitions stay out', async (t) => {
  const rig = await setup(t);
  const { partitionId } = await rig.push('q', 'p', ['x', 'y']);
  assert.deepEqual(await meet(rig.db, 'g', [partitionId, 999_999], null), [3, 2]);
  assert.equal(await rig.consumer(partitionId, 'g'), null);
  const start: Start = { mode: 'new', fromMicros: null };
  assert.deepEqual(await meet(rig.db, 'g', [partitionId], start), [0]);
  assert.deepEqual(await meet(rig.db, 'g', [partitionId], start), [0]);
  assert.equal((await rig.consumer(partitionId, 'g'))?.committed, 1);
  assert.deepEqual(await meet(rig.db, '__QUEUE_MODE__', [partitionId], null), [0]);
});

test('a group whose registration and cursors were deleted starts anew', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a', 'b']);
  const first = await broker.pop({ group: 'g', autoAck: true });
  assert.deepEqual(texts(first).p, ['a', 'b']);
  await sql(rig.db, 'DELETE FROM queen.log_consumers');
  await sql(rig.db, 'DELETE FROM queen.consumer_groups_metadata');
  await sql(
    rig.db,
    `INSERT INTO queen.hotlist_repairs (tenant_id, queue_name, consumer_group, reason)
     VALUES ('${TENANT}', 'q', 'g', 'delete')`,
  );
  await broker.delivery.reseed.pollRepairs();
  assert.deepEqual(texts(await broker.pop({ group: 'g', autoAck: true })).p, ['a', 'b']);
  assert.equal((await records(rig)).length, 1);
});
