/** Lag and seeks against what a walk over all segments says, after random histories. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { openLive, popRequest, sql } from '../../../../test/broker/live.ts';
import type { SeekTarget } from '../../src/engine/groups/face.ts';
import { DEFAULT_TENANT as TENANT } from '../../src/engine/types.ts';

type Step =
  | { do: 'push'; partition: number; count: number }
  | { do: 'pop'; group: number; batch: number; ack: boolean }
  | { do: 'wait'; seconds: number }
  | { do: 'retain' }
  | {
      do: 'seek';
      group: number;
      partition: number | null;
      to: 'end' | 'beginning' | 'offset' | 'at';
      where: number;
    }
  | { do: 'delete'; group: number; registrations: boolean };

const partition = fc.nat({ max: 2 });
const group = fc.nat({ max: 1 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('push' as const),
      partition,
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('pop' as const),
      group,
      batch: fc.integer({ min: 1, max: 5 }),
      ack: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('wait' as const), seconds: fc.integer({ min: 1, max: 40 }) }),
  },
  { weight: 1, arbitrary: fc.constant({ do: 'retain' as const }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('seek' as const),
      group,
      partition: fc.option(partition),
      to: fc.constantFrom('end' as const, 'beginning' as const, 'offset' as const, 'at' as const),
      where: fc.nat({ max: 12 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('delete' as const), group, registrations: fc.boolean() }),
  },
);

interface Part {
  id: number;
  name: string;
  last: number;
  start: number;
}

interface Segment {
  partition: number;
  base: number;
  end: number;
  at: number;
}

test('lag and seeks are what a walk over the segments says', { timeout: 300_000 }, async (t) => {
  const live = await openLive(t);
  const { broker, database } = live;
  const { db } = broker;
  const facts = async () => ({
    now: (await sql<{ now: number }>(db, 'SELECT queen.micros(queen.clock()) AS now'))[0]!.now,
    parts: await sql<Part>(
      db,
      'SELECT id, name, last_offset AS last, log_start AS start FROM queen.log_partitions ORDER BY name',
    ),
    segments: await sql<Segment>(
      db,
      `SELECT partition_id AS partition, base_offset AS base, end_offset AS "end", queen.micros(created_at) AS at
         FROM queen.log_segments ORDER BY partition_id, base_offset`,
    ),
    cursors: await sql<{ partition: number; group: string; committed: number; batch: number | null }>(
      db,
      `SELECT partition_id AS partition, consumer_group AS "group", committed, batch_end AS batch FROM queen.log_consumers`,
    ),
    registered: new Set(
      (
        await sql<{ group: string }>(
          db,
          'SELECT consumer_group AS "group" FROM queen.consumer_groups_metadata',
        )
      ).map((row) => row.group),
    ),
  });

  /** The standing of every group by looking at every message. All groups register for everything. */
  async function checkLag(): Promise<void> {
    const listed = await broker.groups.list(TENANT);
    const { parts, segments, cursors, registered, now } = await facts();
    for (const name of ['g0', 'g1']) {
      const row = listed.find((each) => each.group === name);
      const mine = new Map(
        cursors.filter((each) => each.group === name).map((each) => [each.partition, each.committed]),
      );
      if (mine.size === 0 && !registered.has(name)) {
        assert.equal(row, undefined, `${name} is nowhere`);
        continue;
      }
      let lag = 0;
      let behind = 0;
      let oldest = Number.POSITIVE_INFINITY;
      for (const { id } of parts) {
        const done = mine.get(id) ?? (registered.has(name) ? -1 : null);
        if (done === null) continue;
        const left = segments.filter((each) => each.partition === id && each.end > done);
        if (left.length > 0) {
          behind++;
          oldest = Math.min(oldest, left[0]!.at);
        }
        for (const { base, end } of left) lag += end - Math.max(base - 1, done);
      }
      assert.deepEqual([row!.cursors, row!.behind, row!.lag], [mine.size, behind, lag], name);
      if (behind === 0) assert.equal(row!.lagMicros, 0);
      else
        assert.ok(
          row!.lagMicros <= now - oldest && row!.lagMicros > now - oldest - 30e6,
          `${name} has waited`,
        );
      const lagging = (await broker.groups.lagging(TENANT, 20)).filter((each) => each.group === name);
      for (const each of lagging) assert.ok(each.lagMicros >= 20e6);
      if (behind > 0 && now - oldest < 15e6) assert.equal(lagging.length, 0);
      if (behind > 0 && now - oldest > 60e6) assert.equal(lagging[0]!.oldestMicros, oldest);
    }
  }

  async function seek(wish: Extract<Step, { do: 'seek' }>): Promise<void> {
    const before = await facts();
    const times = before.segments.map((each) => each.at);
    const at = (times[wish.where % Math.max(1, times.length)] ?? before.now) + (wish.where % 3) - 1;
    const target: SeekTarget =
      wish.to === 'offset'
        ? { to: 'offset', offset: wish.where }
        : wish.to === 'at'
          ? { to: 'at', atMicros: at }
          : { to: wish.to };
    if (wish.to === 'offset' && wish.partition === null) return;
    const name = wish.partition === null ? null : `p${wish.partition}`;
    const groupName = `g${wish.group}`;
    const { moved } = await broker.groups.seek({
      tenant: TENANT,
      group: groupName,
      queue: 'q',
      partition: name,
      target,
    });
    const meant = before.parts.filter((part) => name === null || part.name === name);
    assert.equal(moved, meant.length);
    const after = await facts();
    for (const { id, last, start } of meant) {
      const mine = after.cursors.find((each) => each.partition === id && each.group === groupName)!;
      const first = before.segments.find((each) => each.partition === id && each.at >= at);
      const expected = {
        end: last,
        beginning: start - 1,
        offset: Math.min(Math.max(wish.where, start), last + 1) - 1,
        at: first === undefined ? last : first.base - 1,
      }[wish.to];
      assert.deepEqual([mine.committed, mine.batch], [expected, null], `${wish.to} in ${id}`);
    }
    for (const other of before.cursors) {
      if (other.group === groupName && meant.some(({ id }) => id === other.partition)) continue;
      assert.deepEqual(
        after.cursors.find((each) => each.partition === other.partition && each.group === other.group),
        other,
      );
    }
  }

  async function run(wish: Step): Promise<void> {
    if (wish.do === 'push') {
      const items = Array.from({ length: wish.count }, () => ({
        queue: 'q',
        partition: `p${wish.partition}`,
        payload: Buffer.from('1'),
        transactionId: null,
      }));
      await broker.push({ tenant: TENANT, items, producerSub: null });
    } else if (wish.do === 'pop') {
      const name = `g${wish.group}`;
      const answer = await broker.pop(popRequest('q', name, { batch: wish.batch, leaseSeconds: 5 }));
      const items = answer.claims.flatMap(({ partitionId, messages }) =>
        messages.map(({ transactionId }) => ({
          partitionId,
          leaseId: answer.leaseId,
          status: 'completed' as const,
          error: null,
          transactionId,
        })),
      );
      if (wish.ack && items.length > 0) await broker.ack({ tenant: TENANT, group: name, items });
    } else if (wish.do === 'wait') await database.advanceClock(wish.seconds);
    else if (wish.do === 'retain') await broker.retention.pass();
    else if (wish.do === 'seek') await seek(wish);
    else await broker.groups.delete(TENANT, `g${wish.group}`, null, wish.registrations);
  }

  const seed = Number(process.env.QUEEN_TEST_SEED ?? Date.now() % 2 ** 31);
  console.log(`seed ${seed} (QUEEN_TEST_SEED)`);
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 18 }), async (steps) => {
      await broker.deleteQueue(TENANT, 'q');
      await broker.groups.delete(TENANT, 'g0', null, true);
      await broker.groups.delete(TENANT, 'g1', null, true);
      await broker.configure({
        tenant: TENANT,
        queue: 'q',
        mode: 'replace',
        options: { retentionEnabled: true, retentionSeconds: 60 },
      });
      for (const each of steps) {
        await run(each);
        await checkLag();
      }
    }),
    { numRuns: Number(process.env.QUEEN_TEST_RUNS ?? 12), seed, endOnFailure: true },
  );
});
