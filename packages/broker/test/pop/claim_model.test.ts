import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type ClaimRow, claim } from '../../src/store/pop.ts';
import { setup, sql } from './fixture.ts';

interface Lane {
  /** Length and age in seconds of each segment, oldest first; ages never grow along the lane. */
  segments: { length: number; gap: number; age: number }[];
  /** Leading segments that retention took. */
  taken: number;
  committed: number;
  leased: boolean;
}

interface Stored {
  base: number;
  end: number;
  age: number;
}

function stored(lane: Lane): { all: Stored[]; last: number } {
  const all: Stored[] = [];
  let next = 0;
  for (const { length, gap, age } of lane.segments) {
    const base = next + gap;
    all.push({ base, end: base + length - 1, age });
    next = base + length;
  }
  return { all, last: next - 1 };
}

/** What a claim must give: offsets in order, by lane. */
function expected(lanes: Lane[], batch: number, partitions: number, delay: number): (number[] | null)[] {
  let left = batch;
  let want = partitions <= 0 ? lanes.length : partitions;
  return lanes.map((lane) => {
    if (left === 0 || want === 0) return null;
    if (lane.leased) return [];
    const { all } = stored(lane);
    const live = all.slice(lane.taken).filter((segment) => segment.age >= delay);
    const offsets = live
      .flatMap(({ base, end }) => Array.from({ length: end - base + 1 }, (_, i) => base + i))
      .filter((offset) => offset > lane.committed)
      .slice(0, left);
    left -= offsets.length;
    if (offsets.length > 0) want--;
    return offsets;
  });
}

function delivered(row: ClaimRow | undefined): number[] | null {
  if (row === undefined) return null;
  if (row.bases === null || row.ends === null) return [];
  const { bases, ends } = row;
  return bases
    .flatMap((base, i) => Array.from({ length: ends[i]! - base + 1 }, (_, n) => base + n))
    .filter((offset) => offset >= row.fromOffset! && offset <= row.toOffset!);
}

test('a claim gives exactly the visible live offsets behind the cursor, within the budget', async (t) => {
  const rig = await setup(t);
  await sql(rig.db, "INSERT INTO queen.queues (name) VALUES ('q')");
  let lanesMade = 0;
  const lane = fc
    .record({
      segments: fc.array(
        fc.record({
          length: fc.integer({ min: 1, max: 5 }),
          gap: fc.constantFrom(0, 0, 0, 2),
          older: fc.constantFrom(0, 5, 20),
        }),
        { minLength: 1, maxLength: 6 },
      ),
      taken: fc.nat(6),
      committed: fc.integer({ min: -1, max: 30 }),
      leased: fc.boolean().map((b) => b),
    })
    .map(({ segments, taken, committed, leased }): Lane => {
      let age = segments.reduce((sum, s) => sum + s.older, 0) + 1;
      const made = segments.map(({ length, gap, older }) => {
        const segment = { length, gap, age };
        age -= older;
        return segment;
      });
      const shape: Lane = { segments: made, taken: Math.min(taken, made.length), committed: 0, leased };
      return { ...shape, committed: Math.min(committed, stored(shape).last) };
    });
  const make = async ({ segments, taken, committed, leased }: Lane): Promise<number> => {
    const { all, last } = stored({ segments, taken, committed, leased });
    const start = all[taken]?.base ?? last + 1;
    const [row] = await sql<{ id: number }>(
      rig.db,
      `INSERT INTO queen.log_partitions (queue_id, name, last_offset, log_start, last_created_at)
       SELECT id, $1::text, $2::bigint, $3::bigint, queen.clock() - $4::int * interval '1 second' FROM queen.queues
       RETURNING id`,
      [`lane${lanesMade++}`, last, start, all.at(-1)!.age],
    );
    await sql(
      rig.db,
      `INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
       SELECT $1::bigint, (s->>'base')::bigint, (s->>'end')::bigint,
              queen.clock() - (s->>'age')::int * interval '1 second', 'x'
         FROM jsonb_array_elements($2::jsonb) s`,
      [row!.id, JSON.stringify(all.slice(taken))],
    );
    await sql(
      rig.db,
      `INSERT INTO queen.log_consumers (partition_id, consumer_group, committed, batch_end, worker_id, lease_expires_at)
       VALUES ($1::bigint, 'g', $2::bigint, CASE WHEN $3::boolean THEN $2::bigint + 1 END, CASE WHEN $3::boolean THEN 'w' END,
               queen.clock() + interval '1 hour')`,
      [row!.id, committed, String(leased)],
    );
    return row!.id;
  };
  await fc.assert(
    fc.asyncProperty(
      fc.array(lane, { minLength: 1, maxLength: 4 }),
      fc.integer({ min: 1, max: 25 }),
      fc.integer({ min: 0, max: 3 }),
      fc.constantFrom(0, 10),
      async (lanes, batch, partitions, delay) => {
        await sql(rig.db, `UPDATE queen.queues SET delayed_processing = ${delay}`);
        const ids: number[] = [];
        for (const one of lanes) ids.push(await make(one));
        const rows = await claim(rig.db, {
          group: 'g',
          candidates: ids,
          queues: ids.map(() => 0),
          worker: 'me',
          batch,
          partitions,
          bytesMax: 1 << 30,
          leaseSeconds: 30,
          conflate: false,
          windowBatch: 100,
        });
        const want = expected(lanes, batch, partitions, delay);
        const got = ids.map((id) => delivered(rows.find((row) => row.partitionId === id)));
        // Whether a candidate behind a spent budget was still visited makes no difference.
        assert.deepEqual(
          got.map((g) => g ?? []),
          want.map((w) => w ?? []),
        );
        for (const [i, id] of ids.entries()) {
          const row = await rig.consumer(id, 'g');
          const offsets = want[i] ?? [];
          if (offsets.length > 0) assert.deepEqual([row?.batch_end, row?.worker_id], [offsets.at(-1), 'me']);
          const { last } = stored(lanes[i]!);
          const emptied =
            lanes[i]!.taken === lanes[i]!.segments.length && !lanes[i]!.leased && want[i] !== null;
          assert.equal(
            row?.committed,
            emptied ? last : lanes[i]!.committed,
            'sealed only when nothing is stored',
          );
        }
      },
    ),
    { numRuns: 60 },
  );
});
