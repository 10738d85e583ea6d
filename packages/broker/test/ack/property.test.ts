/**
 * The decision procedure against the naive model, over random histories of pushes, claims, acks, expiries and purges.
 * Each history runs on two lanes: one by transactionId only, one with registry and fusion in front. Both must equal the
 * model in every row and every verdict, so the accelerators change nothing.
 *
 * Replay: FC_SEED=<seed> FC_PATH=<path> as printed by a failure.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { AckPath } from '../../src/engine/ack/path.ts';
import { AckRegistry } from '../../src/engine/ack/registry.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { type AckVerdict, DEFAULT_TENANT } from '../../src/engine/types.ts';
import { ack, Bench, GROUP, type Row, sql } from './fixture.ts';
import { COMMITTED, Model, type ModelItem, UNRESOLVABLE } from './model.ts';

type Step =
  | { kind: 'push'; names: number[] }
  | { kind: 'claim'; count: number; conflated: boolean }
  | { kind: 'ack'; lease: 'own' | 'none' | 'old' | 'foreign'; picks: Pick[] }
  | { kind: 'ackAll'; statuses: ModelItem['status'][] }
  | { kind: 'expire' }
  | { kind: 'purge' }
  | { kind: 'forget' };

interface Pick {
  /** Relative to the cursor, so that most picks hit the batch. */
  place: number;
  by: 'name' | 'offset';
  ghost: boolean;
  status: ModelItem['status'];
}

const status = fc.constantFrom<ModelItem['status'][]>(
  'completed',
  'completed',
  'completed',
  'failed',
  'retry',
  'dlq',
);
const pick = fc.record<Pick>({
  place: fc.integer({ min: -3, max: 6 }),
  by: fc.constantFrom('name', 'name', 'name', 'offset'),
  ghost: fc.integer({ min: 0, max: 11 }).map((n) => n === 0),
  status,
});
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('push' as const),
      names: fc.array(fc.nat(40), { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('claim' as const),
      count: fc.integer({ min: 1, max: 6 }),
      conflated: fc.integer({ min: 0, max: 5 }).map((n) => n === 0),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('ack' as const),
      lease: fc.constantFrom(
        'own' as const,
        'own' as const,
        'own' as const,
        'none' as const,
        'old' as const,
        'foreign' as const,
      ),
      picks: fc.array(pick, { minLength: 1, maxLength: 5 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('ackAll' as const),
      statuses: fc.oneof(
        { weight: 3, arbitrary: fc.constant<ModelItem['status'][]>(['completed']) },
        { weight: 1, arbitrary: fc.array(status, { minLength: 1, maxLength: 4 }) },
      ),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: 'expire' as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'purge' as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'forget' as const }) },
);

class Lane {
  readonly bench: Bench;
  readonly id: number;
  readonly path: AckPath;
  registry: AckRegistry | null;

  constructor(bench: Bench, id: number, fast: boolean) {
    this.bench = bench;
    this.id = id;
    this.registry = fast ? new AckRegistry({ clock: systemClock }) : null;
    this.path = bench.path({ registry: this.registry, settings: { fusion: fast } });
  }

  /** As a pop leaves the row and the registry. */
  async claim(
    worker: string,
    batch: { batchEnd: number; txns: string[] },
    conflated: boolean,
  ): Promise<void> {
    await sql(
      this.bench.db,
      `UPDATE queen.log_consumers
          SET worker_id = $2, batch_end = $3::bigint, lease_conflated = $4::boolean,
              lease_acquired_at = queen.clock(), lease_expires_at = queen.clock() + interval '60 seconds',
              attempt_count = CASE WHEN attempt_offset = committed + 1 THEN attempt_count + 1 ELSE 1 END,
              attempt_offset = committed + 1
        WHERE partition_id = $1::bigint`,
      [this.id, worker, batch.batchEnd, conflated],
    );
    // A conflated batch is never remembered.
    if (conflated) return;
    this.registry?.delivered({
      tenant: DEFAULT_TENANT,
      partitionId: this.id,
      group: GROUP,
      worker,
      batchEnd: batch.batchEnd,
      transactionIds: batch.txns,
      leaseSeconds: 60,
    });
  }

  async expire(): Promise<void> {
    await sql(
      this.bench.db,
      `UPDATE queen.log_consumers SET lease_expires_at = queen.clock() - interval '1 second'
        WHERE partition_id = $1::bigint AND lease_expires_at IS NOT NULL`,
      [this.id],
    );
  }
}

function checkVerdicts(actual: AckVerdict[], expected: Partial<AckVerdict>[]): void {
  const plain = expected.map((verdict) => ({
    success: true,
    error: null,
    leaseReleased: false,
    dlq: false,
    noop: false,
    ...verdict,
  }));
  const told = actual.map((verdict) => ({
    ...verdict,
    error:
      verdict.error === null
        ? null
        : COMMITTED.test(verdict.error)
          ? 'committed'
          : UNRESOLVABLE.test(verdict.error)
            ? 'unresolvable'
            : verdict.error,
  }));
  assert.deepEqual(told, plain);
}

function checkInvariants(
  before: Row,
  after: Row,
  model: Model,
  verdicts: AckVerdict[],
  items: ModelItem[],
): void {
  assert.ok(after.committed >= before.committed, 'the cursor moved back');
  assert.ok(after.committed <= model.log.length - 1, 'the cursor is beyond the log');
  if (after.batch_end !== null) {
    assert.ok(
      after.committed < after.batch_end && after.batch_end <= model.log.length - 1,
      'batch out of range',
    );
  }
  assert.ok(after.batch_retry_count <= model.retryLimit);
  assert.ok(after.total_consumed - before.total_consumed <= after.committed - before.committed);
  const passing = verdicts.some((verdict) => verdict.dlq || verdict.dropped);
  if (!passing)
    assert.equal(after.total_consumed - before.total_consumed, after.committed - before.committed);
  for (const [i, item] of items.entries()) {
    const verdict = verdicts[i]!;
    if (item.offset === null || item.status === 'completed' || !verdict.success) continue;
    if (verdict.dlq || verdict.dropped) assert.equal(after.committed, item.offset);
    else if (before.batch_end !== null && !passing)
      assert.ok(after.committed < item.offset, 'passed a signal');
  }
  for (let at = 0; at <= after.committed; at++) assert.ok(model.accounted.has(at), `offset ${at} was lost`);
}

async function run(
  bench: Bench,
  steps: Step[],
  options: { window0: boolean; retryLimit: number; dead: boolean },
) {
  const lanes: Lane[] = [];
  for (const fast of [false, true]) {
    const id = await bench.lane({ retryLimit: options.retryLimit, deadLetters: options.dead });
    await sql(
      bench.db,
      `UPDATE queen.queues SET dedup_window_seconds = 0
                          WHERE id = (SELECT queue_id FROM queen.log_partitions WHERE id = $1::bigint)`,
      [id],
    );
    await bench.consumer(id);
    lanes.push(new Lane(bench, id, fast));
  }
  const model = new Model(options.retryLimit, options.dead);
  const bases: number[] = [];
  let workers = 0;
  let delivered: string[] = [];
  for (const one of steps) {
    switch (one.kind) {
      case 'push': {
        // With a window ids are distinct; without, a few names come again and again.
        const txns = one.names.map((name, i) =>
          options.window0 ? `t${name % 5}` : `t${model.log.length + i}`,
        );
        for (const lane of lanes) await bench.append(lane.id, txns);
        bases.push(model.log.length);
        model.log.push(...txns);
        break;
      }
      case 'claim': {
        const worker = `w${++workers}`;
        const batch = model.claim(worker, one.count, one.conflated);
        if (batch === null) break;
        delivered = batch.txns;
        for (const lane of lanes) await lane.claim(worker, batch, one.conflated);
        break;
      }
      case 'expire':
        for (const lane of lanes) await lane.expire();
        model.row.live = false;
        break;
      case 'purge': {
        const start = bases[Math.floor(bases.length / 2)];
        if (start === undefined || start <= model.txnsStart) break;
        for (const lane of lanes) await bench.purge(lane.id, start);
        model.txnsStart = start;
        break;
      }
      case 'forget':
        for (const lane of lanes) lane.registry?.take(DEFAULT_TENANT, lane.id, GROUP, model.row.worker ?? '');
        break;
      default: {
        const { lease, items } = ackOf(one, model, delivered, workers);
        if (items.length === 0) break;
        const befores = await Promise.all(lanes.map((lane) => bench.row(lane.id)));
        const expected = model.ack(lease, items);
        for (const [i, lane] of lanes.entries()) {
          const verdicts = await ack(
            lane.path,
            lane.id,
            items.map(({ txn, offset, status }) => ({
              txn,
              status,
              lease,
              ...(offset === null ? {} : { offset }),
            })),
          );
          checkVerdicts(verdicts, expected);
          checkInvariants(befores[i]!, await bench.row(lane.id), model, verdicts, items);
        }
      }
    }
    for (const lane of lanes) checkRow(await bench.row(lane.id), model);
  }
  for (const lane of lanes) {
    const dead = await bench.deadLetters(lane.id);
    assert.deepEqual(
      dead.map((letter) => [letter.offset, letter.transaction_id]),
      model.dead.map((at) => [at, model.log[at]]),
    );
    const { registryHits, positionsRejected } = lane.path.stats();
    hits += registryHits - positionsRejected;
  }
}

let hits = 0;

function ackOf(
  one: Extract<Step, { kind: 'ack' | 'ackAll' }>,
  model: Model,
  delivered: string[],
  workers: number,
): { lease: string; items: ModelItem[] } {
  const own = model.row.worker ?? `w${workers}`;
  if (one.kind === 'ackAll') {
    const items = delivered.map((txn, i) => ({
      txn,
      offset: null,
      status: one.statuses[i % one.statuses.length]!,
    }));
    return { lease: own, items };
  }
  const lease = { own, none: '', old: `w${workers - 1}`, foreign: 'nobody' }[one.lease];
  const items = one.picks.map(({ place, by, ghost, status }): ModelItem => {
    const at = model.row.committed + 1 + place;
    const txn = ghost ? 'ghost' : (model.log[at] ?? 'ghost');
    return { txn, offset: by === 'offset' && at >= 0 ? at : null, status };
  });
  return { lease, items };
}

function checkRow(row: Row, model: Model): void {
  assert.deepEqual(
    {
      committed: row.committed,
      batchEnd: row.batch_end,
      worker: row.worker_id,
      conflated: row.lease_conflated,
      retries: row.batch_retry_count,
      attemptOffset: row.attempt_offset,
      attemptCount: row.attempt_count,
      consumed: row.total_consumed,
    },
    (({ live: _live, ...rest }) => rest)(model.row),
  );
}

test('procedure, registry and fusion equal the model', async (t) => {
  const bench = await Bench.open(t);
  const seed = process.env.FC_SEED === undefined ? {} : { seed: Number(process.env.FC_SEED) };
  const path = process.env.FC_PATH === undefined ? {} : { path: process.env.FC_PATH };
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 10, maxLength: 30 }),
      fc.record({ window0: fc.boolean(), retryLimit: fc.integer({ min: 0, max: 2 }), dead: fc.boolean() }),
      (steps, options) => run(bench, steps, options),
    ),
    { numRuns: Number(process.env.FC_RUNS ?? 40), endOnFailure: false, ...seed, ...path },
  );
  assert.ok(hits > 0, `the fast path was taken ${hits} times only`);
});
