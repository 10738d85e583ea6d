/** Each part of a bundle fails in turn: nothing of the others stays behind, and the leases stay as they were. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../../../../test/kit/until.ts';
import { PendingBytes } from '../../src/engine/admission/pending_bytes.ts';
import { systemClock } from '../../src/engine/clock.ts';
import type { TimerResult } from '../../src/engine/timers/face.ts';
import { type TransactionDeps, TransactionPath } from '../../src/engine/transaction/path.ts';
import type { Rider, RiderOutcome } from '../../src/engine/transaction/riders.ts';
import type { TransactionAnswer, TransactionOperation } from '../../src/engine/transaction/types.ts';
import { DEFAULT_TENANT, ZERO_UUID } from '../../src/engine/types.ts';
import type { Queryable } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import { hooked, sql } from '../push/fixture.ts';
import { ack, gate, push, Rig } from './fixture.ts';

const SCHEDULED: TimerResult = {
  status: 'scheduled',
  queue: 'in',
  timerKey: 'k',
  transactionId: 't',
  messageId: ZERO_UUID,
  dueAtMicros: 0,
};

/** A rider that writes a row of its own. */
class Riding implements Rider {
  outcome: RiderOutcome = { refusal: null, results: [SCHEDULED] };
  runs = 0;
  commits = 0;

  async run(tx: Queryable): Promise<RiderOutcome> {
    this.runs++;
    await sql(tx, "INSERT INTO queen.system_state (key, value) VALUES ('ridden', '{}')");
    return this.outcome;
  }

  committed(): void {
    this.commits++;
  }
}

function pathOf(rig: Rig, overrides: Partial<TransactionDeps>): TransactionPath {
  const { broker } = rig;
  return new TransactionPath({
    db: broker.db,
    admission: broker.admission,
    pending: broker.pending,
    memo: broker.pushPath.memo,
    provisioner: broker.pushPath.provisioner,
    dedup: broker.dedup,
    zstdLevel: 1,
    seal: null,
    announcer: broker.wake,
    registry: broker.registry,
    kv: broker.kvPath,
    timers: null,
    tenancy: false,
    concurrency: 4,
    clock: systemClock,
    log: { warn() {}, error() {} },
    ...overrides,
  });
}

/** The database, with something in between the statements of its transactions. */
function between(rig: Rig, hooks: Parameters<typeof hooked>[1]): TransactionDeps['db'] {
  return { transaction: (work) => rig.broker.db.transaction((tx) => work(hooked(tx, hooks))) };
}

async function everything(rig: Rig) {
  await rig.push(['m1', 'm2'], 'in');
  const { leaseId, claims } = await rig.pop({ queue: 'in' });
  const partitionId = claims[0]!.partitionId;
  const operations = [
    push('o1', 'out1'),
    ack(partitionId, 'm1', { leaseId }),
    push('o2', 'out2', 'p'),
    ack(partitionId, 'm2', { leaseId, status: 'dlq' }),
  ];
  const request = (path: TransactionPath, list: TransactionOperation[] = operations, kv = [gate('k')]) =>
    path.transaction({
      tenant: DEFAULT_TENANT,
      origin: 'client',
      operations: list,
      kv,
      timers: [{ op: 'cancel', queue: 'in', timerKey: 'k', transactionId: null }],
      requiredLeases: [],
      producerSub: null,
    });
  return { leaseId, partitionId, operations, request };
}

/** Everything that a bundle could have changed, but for lanes that now exist and are empty. */
function picture(rig: Rig): Promise<object[]> {
  return sql(
    rig.broker.db,
    `SELECT (SELECT jsonb_agg(to_jsonb(s) - 'blob' ORDER BY partition_id, base_offset) FROM queen.log_segments s) AS segments,
            (SELECT jsonb_agg(to_jsonb(x) ORDER BY partition_id, base_offset) FROM queen.log_txns x) AS txns,
            (SELECT jsonb_agg(to_jsonb(p) ORDER BY id) FROM queen.log_partitions p WHERE last_offset >= 0) AS partitions,
            (SELECT jsonb_agg(to_jsonb(c) ORDER BY partition_id, consumer_group) FROM queen.log_consumers c) AS consumers,
            (SELECT jsonb_agg(to_jsonb(d) ORDER BY id) FROM queen.log_dlq d) AS letters,
            (SELECT jsonb_agg(to_jsonb(k) ORDER BY namespace, key) FROM queen.kv k) AS kv,
            (SELECT jsonb_agg(to_jsonb(z) ORDER BY key) FROM queen.system_state z) AS state`,
  );
}

test('each part refuses in turn: everything is as before, and then the bundle commits', async (t) => {
  const rig = await Rig.open(t);
  const rider = new Riding();
  const path = pathOf(rig, { timers: async () => rider });
  const { operations, request, partitionId, leaseId } = await everything(rig);
  await rig.push(['taken'], 'out2', 'p');
  await rig.done([], { kv: [gate('lost')] });
  const before = await picture(rig);
  const refused = async (reason: string, index: number | null, work: Promise<TransactionAnswer>) => {
    const answer = await work;
    assert.ok(!answer.success, reason);
    assert.deepEqual([answer.refusal.reason, answer.refusal.failedIndex], [reason, index]);
    assert.deepEqual(await picture(rig), before, reason);
  };
  await refused('kv_precondition', 5, request(path, operations, [gate('k'), gate('lost')]));
  assert.equal(rider.runs, 0, 'KV comes first');
  await refused('duplicate', 4, request(path, [...operations, push('taken', 'out2', 'p')]));
  await refused('ack_rejected', 4, request(path, [...operations, ack(partitionId, 'ghost', { leaseId })]));
  await refused(
    'ack_rejected',
    1,
    request(path, [operations[0]!, ack(partitionId, 'm1', { leaseId: 'no' })]),
  );
  await refused('ack_rejected', 4, request(path, [...operations, ack(partitionId, 'm1', { group: 'who' })]));
  rider.outcome = {
    refusal: { reason: 'timer_horizon_exceeded', error: 'too far', index: 0 },
    results: null,
  };
  await refused('timer_horizon_exceeded', 5, request(path));
  assert.equal(rider.commits, 0);
  rider.outcome = { refusal: null, results: [SCHEDULED] };
  const answer = await request(path);
  assert.ok(answer.success);
  assert.deepEqual(answer.timers, [SCHEDULED]);
  assert.equal(rider.commits, 1);
  assert.deepEqual(await rig.stored('out1'), ['o1']);
});

test('the database fails at each statement in turn: everything is as before', async (t) => {
  const rig = await Rig.open(t);
  const rider = new Riding();
  const { request } = await everything(rig);
  const counting: string[] = [];
  const count = pathOf(rig, {
    timers: async () => rider,
    db: between(rig, {
      before: (name) => {
        counting.push(name);
        throw new StoreError('unavailable', 'sql', 'deadlock detected', { sqlState: '40P01' });
      },
    }),
  });
  // Lanes are provisioned by this first one already.
  await assert.rejects(request(count), { kind: 'unavailable' });
  const before = await picture(rig);
  for (let at = 0; ; at++) {
    for (const kind of ['unavailable', 'refused'] as const) {
      let statements = 0;
      const db = between(rig, {
        after: () => {
          if (statements++ !== at) return;
          const code = kind === 'refused' ? 'XX001' : '57014';
          throw new StoreError(kind, 'sql', 'injected', { sqlState: code });
        },
      });
      const path = pathOf(rig, { timers: async () => rider, db });
      const answer = await request(path).catch((error: unknown) => error as Error);
      if (!(answer instanceof Error) && answer.success) {
        assert.ok(at >= 4, `the bundle takes ${at} statements`);
        return;
      }
      if (answer instanceof Error) assert.equal((answer as unknown as { kind: string }).kind, 'unavailable');
      else assert.deepEqual(answer.refusal.reason, 'db_error');
      assert.deepEqual(await picture(rig), before, `statement ${at}, ${kind}`);
    }
  }
});

test('the connection is cut in the middle: nothing stays, nothing is in doubt', async (t) => {
  const rig = await Rig.open(t);
  const { request } = await everything(rig);
  const rider = new Riding();
  const before = await picture(rig);
  const path = pathOf(rig, {
    timers: async () => rider,
    db: between(rig, {
      after: async (name) => {
        if (name !== 'transaction_log') return;
        await sql(
          rig.broker.db,
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()",
        );
      },
    }),
  });
  await assert.rejects(request(path), { kind: 'unavailable' });
  await until('the server has rolled back', async () => {
    return JSON.stringify(await picture(rig)) === JSON.stringify(before);
  });
});

test('a commit without an answer is in doubt; the repetition tells what became of it', async (t) => {
  const rig = await Rig.open(t);
  const { request } = await everything(rig);
  const lost = pathOf(rig, {
    timers: async () => new Riding(),
    db: {
      transaction: async (work) => {
        await rig.broker.db.transaction(work);
        throw new StoreError('in_doubt', 'connection', 'the connection was lost');
      },
    },
  });
  await assert.rejects(request(lost), { kind: 'in_doubt' });
  assert.equal(lost.counters.inDoubt, 1);
  const again = await rig.run([push('o1', 'out1')], { kv: [gate('other')] });
  assert.ok(!again.success);
  assert.equal(again.refusal.reason, 'duplicate');
  const gated = await rig.run([push('fresh', 'out1')], { kv: [gate('k')] });
  assert.ok(!gated.success);
  assert.equal(gated.refusal.reason, 'kv_precondition');
  // What this broker did not hear of does not mislead it: neither its cache nor its ring.
  await rig.push(['later'], 'out1');
  assert.deepEqual(await rig.stored('out1'), ['o1', 'later']);
});

test('an answer that makes no sense rolls back', async (t) => {
  const rig = await Rig.open(t);
  const before = await picture(rig);
  const path = pathOf(rig, {
    db: {
      transaction: (work) =>
        rig.broker.db.transaction((tx) =>
          work({
            query: async (statement, params, options) => {
              const rows = await tx.query<Record<string, unknown>>(statement, params, options);
              return rows.map((row) => ({ ...row, verdicts: [9] })) as never;
            },
          }),
        ),
    },
  });
  const answer = await path.transaction({
    tenant: DEFAULT_TENANT,
    origin: 'client',
    operations: [push('a', 'q')],
    kv: [],
    timers: [],
    requiredLeases: [],
    producerSub: null,
  });
  assert.ok(!answer.success);
  assert.equal(answer.refusal.reason, 'misaligned');
  assert.deepEqual(await picture(rig), before);
});

test('too many pending bytes: clients are refused, connectors wait for their turn', async (t) => {
  const rig = await Rig.open(t);
  const pending = new PendingBytes({ maxBytes: 10, holdMs: 20 }, systemClock);
  const path = pathOf(rig, { pending });
  const gone = Promise.withResolvers<void>();
  const busy = pending.run(10, () => gone.promise);
  const request = { tenant: DEFAULT_TENANT, kv: [], timers: [], requiredLeases: [], producerSub: null };
  await assert.rejects(path.transaction({ ...request, origin: 'client', operations: [push('a', 'q')] }), {
    kind: 'overloaded',
    code: 'overloaded',
  });
  const answer = await path.transaction({ ...request, origin: 'connector', operations: [push('b', 'q')] });
  assert.ok(answer.success);
  gone.resolve();
  await busy;
  assert.deepEqual(await rig.stored('q'), ['b']);
});

test('commits of connectors are durable whatever the default is', async (t) => {
  const rig = await Rig.open(t);
  await rig.broker.db.query({
    name: '',
    text: "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$",
  });
  const other = await Rig.on(t, rig.test);
  const settings: string[] = [];
  const path = pathOf(other, {
    db: {
      transaction: (work) =>
        other.broker.db.transaction(async (tx) => {
          const value = await work(tx);
          const [row] = await sql<{ on: string }>(tx, "SELECT current_setting('synchronous_commit') AS on");
          settings.push(row!.on);
          return value;
        }),
    },
  });
  const request = { tenant: DEFAULT_TENANT, timers: [], requiredLeases: [], producerSub: null };
  for (const origin of ['client', 'connector'] as const) {
    await path.transaction({ ...request, origin, operations: [push(origin, 'q')], kv: [] });
    await path.transaction({ ...request, origin, operations: [], kv: [gate(origin)] });
  }
  assert.deepEqual(settings, ['off', 'off', 'on', 'on']);
});

test('bundles that push to what others ack, in every order, never deadlock', async (t) => {
  const rig = await Rig.open(t);
  const rigs = [rig, await Rig.on(t, rig.test)];
  const lanes = ['l0', 'l1', 'l2', 'l3'];
  for (const lane of lanes) await rig.push([`${lane}-seed`], lane);
  await Promise.all(
    Array.from({ length: 8 }, async (_, client) => {
      const mine = rigs[client % 2]!;
      for (let round = 0; round < 6; round++) {
        const mixed = [...lanes].sort(() => Math.random() - 0.5);
        const operations = mixed.slice(0, 3).map((lane) => push(`${client}-${round}-${lane}`, lane));
        const popped = await mine.pop({ queue: mixed[3]!, group: `g${client % 3}`, batch: 5 });
        for (const claim of popped.claims) {
          for (const { transactionId } of claim.messages) {
            const more = { group: `g${client % 3}`, leaseId: popped.leaseId };
            operations.unshift(ack(claim.partitionId, transactionId, more));
          }
        }
        const answer = await mine.run(operations, {
          kv: [
            {
              op: 'incr',
              ns: 'n',
              key: mixed[0]!,
              delta: '1',
              life: null,
              min: null,
              max: null,
              required: false,
            },
          ],
        });
        assert.ok(answer.success, JSON.stringify(answer));
      }
    }),
  );
  let stored = 0;
  for (const lane of lanes) stored += (await rig.stored(lane)).length;
  assert.equal(stored, lanes.length + 8 * 6 * 3);
});
