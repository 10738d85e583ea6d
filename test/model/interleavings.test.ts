import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Broker } from '../../packages/broker/src/engine/broker.ts';
import type { AckStatus, PopAnswer } from '../../packages/broker/src/engine/types.ts';
import { DEFAULT_TENANT, QUEUE_MODE_GROUP, ZERO_UUID } from '../../packages/broker/src/engine/types.ts';
import { type Database, statement } from '../../packages/broker/src/store/database.ts';
import { openBroker } from '../kit/engine.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { Model, type ModelAck, type ModelPartition, payloadOf } from './model.ts';

/**
 * Random interleavings of push, pop, ack, extend, expiry, configure and retention over two brokers and two
 * groups on one database, against the model. The database's clock stands still and moves only by the test's
 * hand, so that windows and leases are exact to the microsecond.
 */

const RUNS = Number(process.env.QUEEN_TEST_RUNS ?? 25);
const GROUPS = [QUEUE_MODE_GROUP, 'billing'] as const;
const PARTITIONS = ['a', 'b', 'c'] as const;
const TXNS = ['t0', 't1', 't2', 't3', 't4', 't5', 'T0', 't0 '] as const;
/** Hashes live at least this long; see the retention pass. */
const SIDECAR_SECONDS = 900;
/** Neither divides the windows and leases below, but their sums meet the edges exactly. */
const STEPS_SECONDS = [1, 10, 29, 30, 31, 60] as const;

type Op =
  | { op: 'push'; broker: number; partition: number; txns: string[] }
  | {
      op: 'pop';
      broker: number;
      group: number;
      partition: number | null;
      batch: number;
      partitions: number;
      autoAck: boolean;
    }
  | {
      op: 'ack';
      broker: number;
      lease: number;
      byOffset: boolean;
      items: { at: number; status: AckStatus }[] | 'all';
    }
  | { op: 'extend'; broker: number; lease: number; seconds: number }
  | { op: 'advance'; seconds: number }
  | { op: 'window'; broker: number; seconds: number }
  | { op: 'retain'; broker: number; seconds: number };

const broker = fc.integer({ min: 0, max: 1 });
const partition = fc.integer({ min: 0, max: PARTITIONS.length - 1 });
const status = fc.constantFrom<AckStatus>('completed', 'completed', 'failed', 'retry', 'dlq');
const operation: fc.Arbitrary<Op> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('push' as const),
      broker,
      partition,
      txns: fc.array(fc.constantFrom(...TXNS), { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('pop' as const),
      broker,
      group: fc.integer({ min: 0, max: GROUPS.length - 1 }),
      partition: fc.option(partition),
      batch: fc.integer({ min: 1, max: 6 }),
      partitions: fc.integer({ min: 1, max: 3 }),
      autoAck: fc.boolean(),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant('ack' as const),
      byOffset: fc.boolean(),
      broker,
      lease: fc.nat(7),
      items: fc.oneof(
        fc.constant('all' as const),
        fc.array(fc.record({ at: fc.nat(5), status }), { minLength: 1, maxLength: 4 }),
      ),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      op: fc.constant('extend' as const),
      broker,
      lease: fc.nat(7),
      seconds: fc.constantFrom(1, 60, 90),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ op: fc.constant('advance' as const), seconds: fc.constantFrom(...STEPS_SECONDS) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      op: fc.constant('window' as const),
      broker,
      seconds: fc.constantFrom(0, 30, 60, 90),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ op: fc.constant('retain' as const), broker, seconds: fc.constantFrom(30, 90) }),
  },
);

interface Held {
  leaseId: string;
  group: string;
  partition: ModelPartition;
  offsets: number[];
}

let admin: Database;
let brokers: Broker[];
let clockMicros = Date.UTC(2030, 0, 1) * 1000;
let queues = 0;

/** The database's clock stands at `clockMicros` for every session. */
async function holdClock(): Promise<void> {
  const text = `CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS $$ SELECT queen.from_micros(${clockMicros}) $$`;
  await admin.query(statement(`hold_${clockMicros}`, text));
}

class Run {
  readonly queue = `orders-${++queues}`;
  readonly model: Model;
  readonly held: Held[] = [];

  constructor() {
    this.model = new Model(clockMicros, PARTITIONS, {
      dedupWindowSeconds: 60,
      retryLimit: 1,
      leaseSeconds: 60,
      deadLetters: true,
    });
  }

  async begin(): Promise<void> {
    await this.configure(0, { dedupWindowSeconds: 60, retryLimit: 1, leaseTime: 60 });
    // A named group starts at the oldest message only when it says so on first contact.
    for (const group of GROUPS)
      await this.pop({
        op: 'pop',
        broker: 0,
        group: GROUPS.indexOf(group),
        partition: null,
        batch: 1,
        partitions: 1,
        autoAck: false,
      });
  }

  async configure(at: number, options: Record<string, number | boolean>): Promise<void> {
    await brokers[at]!.configure({ tenant: DEFAULT_TENANT, queue: this.queue, mode: 'merge', options });
  }

  async step(op: Op): Promise<void> {
    switch (op.op) {
      case 'push':
        return this.push(op);
      case 'pop':
        return this.pop(op);
      case 'ack':
        return this.ack(op);
      case 'extend':
        return this.extend(op);
      case 'advance':
        clockMicros += op.seconds * 1_000_000;
        this.model.now = clockMicros;
        return holdClock();
      case 'window':
        // Raising a window cannot bring back what was stored under a smaller one, so it only shrinks.
        if (op.seconds > this.model.config.dedupWindowSeconds) return;
        await this.configure(op.broker, { dedupWindowSeconds: op.seconds });
        this.model.config.dedupWindowSeconds = op.seconds;
        return;
      case 'retain':
        return this.retain(op);
    }
  }

  async push(op: Op & { op: 'push' }): Promise<void> {
    const partition = this.model.partitions[op.partition]!;
    const payloads = op.txns.map((txn) => payloadOf(txn, 0));
    const answer = await brokers[op.broker]!.push({
      tenant: DEFAULT_TENANT,
      producerSub: null,
      items: op.txns.map((txn, i) => ({
        queue: this.queue,
        partition: partition.name,
        transactionId: txn,
        payload: Buffer.from(payloads[i]!),
      })),
    });
    const expected = this.model.push(partition, op.txns, (i) => answer[i]!.messageId);
    assert.equal(answer.length, expected.length);
    for (const [i, want] of expected.entries()) {
      const got = answer[i]!;
      assert.equal(got.status, want.status, `item ${i} (${op.txns[i]}): ${got.error}`);
      assert.equal(got.offset, want.offset);
      if (want.status === 'duplicate') assert.equal(got.messageId, want.id ?? ZERO_UUID);
      partition.id = got.partitionId;
    }
  }

  async pop(op: Op & { op: 'pop' }): Promise<void> {
    const group = GROUPS[op.group]!;
    const scope =
      op.partition === null
        ? { kind: 'queue' as const, queue: this.queue }
        : { kind: 'partition' as const, queue: this.queue, partition: PARTITIONS[op.partition]! };
    const among = op.partition === null ? this.model.partitions : [this.model.partitions[op.partition]!];
    const available = among.filter((p) => this.model.claimable(p, group, 1).length > 0);
    const answer = await brokers[op.broker]!.pop({
      tenant: DEFAULT_TENANT,
      scope,
      group,
      batch: op.batch,
      partitions: op.partitions,
      autoAck: op.autoAck,
      // What another broker stored arrives with its notification; a parked pop may wait for it.
      waitMs: available.length > 0 ? 5_000 : 0,
      leaseSeconds: 0,
      subscriptionMode: 'all',
      subscriptionFrom: null,
      conflation: null,
      autopilot: false,
      signal: null,
    });
    if (available.length === 0) assert.equal(answer.claims.length, 0, 'delivered what nobody may have');
    else
      assert.ok(
        answer.claims.length > 0,
        `nothing delivered although ${available.map((p) => p.name)} are ready`,
      );
    this.#judge(op, group, answer);
  }

  #judge(op: Op & { op: 'pop' }, group: string, answer: PopAnswer): void {
    let budget = op.batch;
    const seen = new Set<string>();
    assert.ok(answer.claims.length <= (op.partition === null ? op.partitions : 1));
    for (const claim of answer.claims) {
      assert.ok(!seen.has(claim.partition), 'one partition claimed twice in one answer');
      seen.add(claim.partition);
      const partition = this.model.partitions.find((p) => p.name === claim.partition)!;
      const want = this.model.claimable(partition, group, budget);
      assert.deepEqual(
        claim.messages.map((m) => [m.offset, m.id, m.transactionId, m.payload.toString(), m.createdAtMicros]),
        want.map((m) => [m.offset, m.id, m.txn, m.payload, m.createdAt]),
      );
      budget -= want.length;
      const attempt = this.model.claim(
        partition,
        group,
        want,
        answer.leaseId,
        op.autoAck,
        this.model.config.leaseSeconds,
      );
      assert.equal(claim.deliveryAttempt, attempt);
      assert.equal(claim.lastOffset, this.model.lastOffset(partition));
      if (!op.autoAck) {
        this.held.push({ leaseId: answer.leaseId, group, partition, offsets: want.map((m) => m.offset) });
      }
    }
  }

  async ack(op: Op & { op: 'ack' }): Promise<void> {
    const held = this.held[op.lease % Math.max(1, this.held.length)];
    if (held === undefined) return;
    const named: ModelAck[] =
      op.items === 'all'
        ? held.offsets.map((offset) => ({ offset, status: 'completed' as const }))
        : op.items.map(({ at, status }) => ({ offset: held.offsets[at % held.offsets.length]!, status }));
    const items = op.byOffset ? named : named.map((item) => this.#resolved(held, item));
    const answer = await brokers[op.broker]!.ack({
      tenant: DEFAULT_TENANT,
      group: held.group,
      items: named.map((item) => ({
        partitionId: held.partition.id!,
        leaseId: held.leaseId,
        status: item.status,
        error: null,
        transactionId: held.partition.messages[item.offset]!.txn,
        ...(op.byOffset ? { offset: item.offset } : {}),
      })),
    });
    const expected = this.model.ack(held.partition, held.group, held.leaseId, items);
    for (const [i, got] of answer.entries()) {
      if (expected === null) {
        assert.equal(got.success, false);
        assert.equal(got.error, 'invalid or expired lease');
        continue;
      }
      // A hash that old may have been purged, and then "already done" reads as "unknown".
      const purged =
        clockMicros - held.partition.messages[items[i]!.offset]!.createdAt >= SIDECAR_SECONDS * 1e6;
      if (!(purged && expected[i]!.noop)) {
        assert.equal(got.success, expected[i]!.success, `item ${i}: ${got.error}`);
        assert.equal(got.noop, expected[i]!.noop);
      }
      assert.equal(got.leaseReleased, held.partition.cursors.get(held.group)!.worker === null);
    }
  }

  /** A transactionId names the lowest message of the batch that bears it, else one below the cursor. */
  #resolved(held: Held, item: ModelAck): ModelAck {
    const cursor = held.partition.cursors.get(held.group)!;
    const { txn } = held.partition.messages[item.offset]!;
    const bearers = held.partition.messages.filter((m) => m.txn === txn).map((m) => m.offset);
    const head = Math.max(cursor.committed + 1, cursor.attemptOffset ?? 0);
    const inBatch = bearers.find((o) => o >= head && o <= (cursor.batchEnd ?? -1));
    const offset = inBatch ?? bearers.find((o) => o < head) ?? item.offset;
    return { offset, status: item.status };
  }

  async extend(op: Op & { op: 'extend' }): Promise<void> {
    const held = this.held[op.lease % Math.max(1, this.held.length)];
    if (held === undefined) return;
    const answer = await brokers[op.broker]!.extend(DEFAULT_TENANT, held.leaseId, op.seconds);
    assert.equal(answer.renewed, this.model.extend(held.leaseId, op.seconds));
  }

  /** Retention may keep more than it must (bounded passes, back-off); what it deletes must be allowed. */
  async retain(op: Op & { op: 'retain' }): Promise<void> {
    await this.configure(op.broker, { retentionEnabled: true, retentionSeconds: op.seconds });
    await brokers[op.broker]!.retention.pass();
    await this.configure(op.broker, { retentionEnabled: false });
    const rows = await admin.query<{ name: string; log_start: number }>(LOG_STARTS, [this.queue]);
    for (const row of rows) {
      const partition = this.model.partitions.find((p) => p.name === row.name)!;
      const cutoff = clockMicros - op.seconds * 1_000_000;
      const gone = partition.messages.slice(partition.logStart, row.log_start);
      assert.ok(row.log_start >= partition.logStart, 'log_start moved back');
      assert.ok(
        gone.every((m) => m.createdAt <= cutoff),
        'deleted a message that is too young',
      );
      const next = partition.messages[row.log_start];
      if (next !== undefined) assert.notEqual(next.segment, gone.at(-1)?.segment, 'cut through a segment');
      partition.logStart = row.log_start;
    }
  }

  /** Afterwards the cursors and dead letters of the tables are those of the model. */
  async check(): Promise<void> {
    const cursors = await admin.query<{ name: string; consumer_group: string; committed: number }>(CURSORS, [
      this.queue,
    ]);
    for (const row of cursors) {
      const partition = this.model.partitions.find((p) => p.name === row.name)!;
      const committed = partition.cursors.get(row.consumer_group)?.committed ?? -1;
      // A cursor over nothing but deleted messages may stand at their end (it has nothing to deliver).
      if (row.committed !== committed) {
        assert.ok(
          row.committed > committed && partition.logStart > row.committed,
          `${row.name}/${row.consumer_group}`,
        );
      }
    }
    const dead = await admin.query<{ name: string; consumer_group: string; offset: number }>(DEAD, [
      this.queue,
    ]);
    const want = this.model.partitions.flatMap((p) =>
      [...p.dead].flatMap(([group, offsets]) => offsets.map((offset) => `${p.name}/${group}/${offset}`)),
    );
    assert.deepEqual(dead.map((d) => `${d.name}/${d.consumer_group}/${d.offset}`).sort(), want.sort());
  }
}

const LOG_STARTS = statement(
  'model_log_starts',
  `SELECT p.name, p.log_start FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1`,
);
const CURSORS = statement(
  'model_cursors',
  `SELECT p.name, c.consumer_group, c.committed FROM queen.log_consumers c
     JOIN queen.log_partitions p ON p.id = c.partition_id JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1`,
);
const DEAD = statement(
  'model_dead',
  `SELECT p.name, d.consumer_group, d."offset" FROM queen.log_dlq d
     JOIN queen.log_partitions p ON p.id = d.partition_id JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1`,
);

test('random interleavings over two brokers agree with a naive model', { timeout: 240_000 }, async (t) => {
  const database = await freshDatabase(t);
  admin = await database.open();
  await holdClock();
  brokers = [await openBroker(database), await openBroker(database)];
  t.after(async () => {
    for (const one of brokers) await one.stop();
    await admin.close();
  });
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 15, maxLength: 60 }), async (ops) => {
      const run = new Run();
      await run.begin();
      for (const op of ops) await run.step(op);
      await run.check();
      await assertLogInvariants(admin);
    }),
    {
      numRuns: RUNS,
      endOnFailure: process.env.QUEEN_TEST_SHRINK !== '1',
      // A failure prints its seed and path; with both here it comes again.
      ...(process.env.QUEEN_TEST_SEED === undefined ? {} : { seed: Number(process.env.QUEEN_TEST_SEED) }),
      ...(process.env.QUEEN_TEST_PATH === undefined ? {} : { path: process.env.QUEEN_TEST_PATH }),
    },
  );
});
