/**
 * Random pushes, window changes, purges and steps of the database's clock, over two brokers that take turns and meet on
 * the same partitions, against a model that knows nothing of caches, fusion or probes. The verdicts and the ids
 * must be the model's, with the cache on, off or kept out by its memory gate.
 */
import assert from 'node:assert/strict';
import { before, suite, test } from 'node:test';
import fc from 'fast-check';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { type PushResult, ZERO_UUID } from '../../src/engine/types.ts';
import { cache, item, NO_CACHE, push, Rig, sql } from './fixture.ts';

const RUNS = Number(process.env.QUEEN_TEST_RUNS ?? 12);
const T0 = 1_800_000_000_000_000;
const SECOND = 1_000_000;
const PARTITIONS = 2;
const TXNS = ['a', 'b', 'c', 'd', 'e', 'A'] as const;

type Op =
  | { op: 'push'; broker: number; items: { partition: number; txn: string }[] }
  | { op: 'advance'; micros: number }
  | { op: 'window'; seconds: number }
  | { op: 'purge'; partition: number }
  | { op: 'retain'; partition: number };

const operation: fc.Arbitrary<Op> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('push' as const),
      broker: fc.integer({ min: 0, max: 1 }),
      items: fc.array(
        fc.record({ partition: fc.integer({ min: 0, max: PARTITIONS - 1 }), txn: fc.constantFrom(...TXNS) }),
        { minLength: 1, maxLength: 5 },
      ),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      op: fc.constant('advance' as const),
      // Sums of these meet the edges of the windows, and pass them by a microsecond; one goes back.
      micros: fc.constantFrom(10 * SECOND, 30 * SECOND, 1, 60 * SECOND, -20 * SECOND),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ op: fc.constant('window' as const), seconds: fc.constantFrom(0, 30, 60) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      op: fc.constant('purge' as const),
      partition: fc.integer({ min: 0, max: PARTITIONS - 1 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      op: fc.constant('retain' as const),
      partition: fc.integer({ min: 0, max: PARTITIONS - 1 }),
    }),
  },
);

interface Stored {
  txn: string;
  id: string;
  at: number;
}

class Model {
  now = T0;
  window = 60;
  readonly partitions = Array.from({ length: PARTITIONS }, () => ({
    messages: [] as Stored[],
    newest: 0,
    /** First offset with a sidecar row, and with a segment. */
    txnsStart: 0,
    logStart: 0,
  }));

  /** Checks the answers and takes over what they say was stored. */
  push(items: readonly { partition: number; txn: string }[], results: readonly PushResult[]): void {
    const inRequest = new Map<string, { status: string; messageId: string; offset: number }>();
    items.forEach(({ partition: p, txn }, i) => {
      const partition = this.partitions[p]!;
      const result = results[i]!;
      const key = `${p} ${txn}`;
      const leader = inRequest.get(key);
      const at = Math.max(this.now, partition.newest);
      const original =
        this.window === 0
          ? -1
          : partition.messages.findIndex(
              (m, offset) =>
                m.txn === txn && offset >= partition.txnsStart && m.at >= at - this.window * SECOND,
            );
      let expected: { status: string; messageId: string; offset: number };
      if (leader !== undefined) expected = { ...leader, status: 'duplicate' };
      else if (original >= 0) {
        const id = original >= partition.logStart ? partition.messages[original]!.id : ZERO_UUID;
        expected = { status: 'duplicate', messageId: id, offset: original };
      } else {
        expected = { status: 'queued', messageId: result.messageId, offset: partition.messages.length };
        partition.messages.push({ txn, id: result.messageId, at });
      }
      inRequest.set(key, expected);
      const { status, messageId, offset } = result;
      assert.deepEqual({ status, messageId, offset }, expected, `item ${i} (${key}): ${result.error}`);
    });
    // A segment's time is that of the whole segment.
    for (const p of new Set(items.map((one) => one.partition))) {
      const partition = this.partitions[p]!;
      if (partition.messages.length > 0)
        partition.newest = Math.max(partition.newest, partition.messages.at(-1)!.at);
    }
  }
}

suite('verdicts against a model', () => {
  let rig: Rig;
  let seen = { vouched: 0, suppressed: 0, gaps: 0 };
  before(async () => {
    const database = await freshDatabase({ after: () => {} });
    rig = new Rig(database, await database.open());
  });

  async function run(
    ops: readonly Op[],
    dedups: () => [ReturnType<typeof cache>, ReturnType<typeof cache>] | null,
  ): Promise<void> {
    await sql(rig.db, 'TRUNCATE queen.queues, queen.log_txns CASCADE');
    const caches = dedups();
    const brokers = [0, 1].map((i) => rig.path({ dedup: caches?.[i] ?? NO_CACHE }));
    const model = new Model();
    await rig.stopClock(model.now);
    await rig.window(model.window);
    for (const op of ops) {
      if (op.op === 'push') {
        const items = op.items.map(({ partition, txn }) => item(txn, { partition: `p${partition}` }));
        model.push(op.items, await push(brokers[op.broker]!, items));
      } else if (op.op === 'advance') {
        model.now += op.micros;
        await rig.stopClock(model.now);
      } else if (op.op === 'window') {
        model.window = op.seconds;
        await rig.window(op.seconds);
      } else await shorten(model, op);
    }
    for (const one of caches ?? []) {
      seen.vouched += one.stats().vouchedTotal;
      seen.suppressed += one.stats().suppressionsTotal;
      seen.gaps += one.stats().gapsTotal;
    }
    const { messages } = await assertLogInvariants(rig.db);
    const stored = [...messages.values()].flat().map((m) => m.id);
    const expected = model.partitions.flatMap((p) => p.messages.slice(p.logStart).map((m) => m.id));
    assert.deepEqual(stored.sort(), expected.sort());
  }

  /** Takes the oldest segment, or a sidecar row that is older than any window, away. */
  async function shorten(model: Model, op: { op: 'purge' | 'retain'; partition: number }): Promise<void> {
    const partition = model.partitions[op.partition]!;
    if (partition.messages.length === 0) return;
    const { id } = await rig.partition(`p${op.partition}`);
    const [table, start, oldest] =
      op.op === 'purge'
        ? ['log_txns', 'txns_start', 'oldest_txn_at']
        : ['log_segments', 'log_start', 'oldest_live_at'];
    const old = op.op === 'purge' ? model.now - 60 * SECOND : Number.MAX_SAFE_INTEGER;
    const rows = await sql<{ end: number }>(
      rig.db,
      `DELETE FROM queen.${table} WHERE (partition_id, base_offset) =
         (SELECT partition_id, base_offset FROM queen.${table} WHERE partition_id = $1::bigint ORDER BY 2 LIMIT 1)
         AND queen.micros(created_at) < $2::bigint RETURNING end_offset AS end`,
      [id, old],
    );
    if (rows.length === 0) return;
    const next = rows[0]!.end + 1;
    if (op.op === 'purge') partition.txnsStart = next;
    else partition.logStart = next;
    await sql(
      rig.db,
      `UPDATE queen.log_partitions SET ${start} = $2::bigint, ${oldest} = (SELECT created_at FROM queen.${table}
         WHERE partition_id = $1::bigint ORDER BY base_offset LIMIT 1) WHERE id = $1::bigint`,
      [id, next],
    );
  }

  const configurations: [string, () => [ReturnType<typeof cache>, ReturnType<typeof cache>] | null][] = [
    ['with the cache', () => [cache(rig.db), cache(rig.db)]],
    ['without', () => null],
    ['with a cache that has no room', () => [cache(rig.db, 1_500), cache(rig.db, 1_500)]],
  ];
  for (const [name, dedups] of configurations) {
    test(name, async () => {
      seen = { vouched: 0, suppressed: 0, gaps: 0 };
      await fc.assert(
        fc.asyncProperty(fc.array(operation, { minLength: 5, maxLength: 30 }), (ops) => run(ops, dedups)),
        { numRuns: RUNS },
      );
      // Each run has been what its name says.
      const { vouched, suppressed, gaps } = seen;
      if (name === 'without') assert.deepEqual(seen, { vouched: 0, suppressed: 0, gaps: 0 });
      else if (name === 'with the cache')
        assert.ok(vouched > 0 && gaps > 0 && suppressed === 0, JSON.stringify(seen));
      else assert.ok(suppressed > 0, JSON.stringify(seen));
    });
  }

  test('the database is given back', async () => {
    await rig.db.close();
    await rig.test.drop();
  });
});
