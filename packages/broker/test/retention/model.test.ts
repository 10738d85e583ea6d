/**
 * Random interleavings of appends, cursor moves, configuration, time, retention steps, purge steps and cleanup on
 * one partition, against a model that keeps lists and thinks slowly. After every command the tables must say
 * what the model says. A failure prints its seed; `QUEEN_TEST_SEED=<seed>` replays it.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { type Database, statement } from '../../src/store/database.ts';
import { cleanupPartitions, maintenanceNow, retentionStep } from '../../src/store/retention.ts';
import {
  append,
  type LogState,
  logState,
  partitionOf,
  queueWith,
  type Range,
  setCursor,
  setLease,
} from './log_fixture.ts';

const SECOND = 1_000_000;
const seed = process.env.QUEEN_TEST_SEED;

interface Rules {
  retentionEnabled: boolean;
  retentionSeconds: number;
  completedRetentionSeconds: number;
  maxWaitTimeSeconds: number;
  dedupWindowSeconds: number;
  retentionSinkHold: string;
  retentionSinkHoldMaxSeconds: number;
}

type Command =
  | { do: 'append'; txns: number[] }
  | { do: 'advance'; seconds: number }
  | { do: 'configure'; rules: Rules }
  | { do: 'cursor'; group: string; share: number }
  | { do: 'lease'; group: string; seconds: number }
  | { do: 'dead' }
  | { do: 'bury' }
  | { do: 'segments' | 'max_wait' | 'sidecar'; rows: number }
  | { do: 'cleanup'; idleSeconds: number };

// Often off, so that each rule is often the only one at work.
const seconds = fc.constantFrom(0, 0, 0, 0, 5, 20, 60, 300);
const rules: fc.Arbitrary<Rules> = fc.record({
  retentionEnabled: fc.constantFrom(true, true, true, false),
  retentionSeconds: seconds,
  completedRetentionSeconds: fc.constantFrom(0, 5, 20, 60, 300, 1200),
  maxWaitTimeSeconds: seconds,
  dedupWindowSeconds: fc.constantFrom(0, 10, 100, 1500),
  retentionSinkHold: fc.constantFrom('', '', '', '', 'sink'),
  retentionSinkHoldMaxSeconds: fc.constantFrom(60, 200),
});
const group = fc.constantFrom('g', 'h');
const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('append' as const),
      txns: fc.uniqueArray(fc.nat(25), { minLength: 1, maxLength: 4 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('advance' as const),
      seconds: fc.constantFrom(1, 6, 25, 70, 400, 1000, 2000),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('configure' as const), rules }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('cursor' as const), group, share: fc.nat(100) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('lease' as const), group, seconds: fc.constantFrom(5, 3000) }),
  },
  { weight: 1, arbitrary: fc.constantFrom({ do: 'dead' as const }, { do: 'bury' as const }) },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constantFrom('segments' as const, 'segments' as const, 'max_wait' as const, 'sidecar' as const),
      rows: fc.constantFrom(1, 2, 3, 100),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('cleanup' as const), idleSeconds: fc.constantFrom(5, 300, 1500) }),
  },
);

interface Stored extends Range {
  txns: string[];
}

/** What one partition must be like. Times are microseconds of the database's clock. */
class Model {
  rules: Rules;
  segments: Stored[] = [];
  sidecar: Stored[] = [];
  lastOffset = -1;
  logStart = 0;
  txnsStart = 0;
  lastAt = 0;
  cursors = new Map<string, { at: number; touched: number; leasedUntil: number }>();
  dead = 0;
  createdAt: number;

  constructor(rules: Rules, createdAt: number) {
    this.rules = rules;
    this.createdAt = createdAt;
  }

  /** The original offsets that a push at `now` must report, by txn. */
  duplicates(txns: string[], now: number): number[] {
    const at = Math.max(now, this.lastAt);
    if (this.rules.dedupWindowSeconds === 0) return [];
    const found: number[] = [];
    for (const txn of txns) {
      for (const row of this.sidecar) {
        const index = row.txns.indexOf(txn);
        if (index < 0 || row.at < at - this.rules.dedupWindowSeconds * SECOND) continue;
        found.push(row.base + index);
        break;
      }
    }
    return found;
  }

  /** Deletes what a step may delete; answers how many rows. */
  step(phase: 'segments' | 'max_wait', now: number, rows: number): number {
    const { rules } = this;
    const older = (row: Range, limit: number) => limit > 0 && row.at < now - limit * SECOND;
    const slowest = Math.min(...[...this.cursors.values()].map((cursor) => cursor.at));
    const goes = (row: Range): boolean => {
      if (phase === 'max_wait') return older(row, rules.maxWaitTimeSeconds);
      if (!rules.retentionEnabled) return false;
      if (rules.retentionSinkHold !== '' && !older(row, Math.max(60, rules.retentionSinkHoldMaxSeconds)))
        return false;
      if (older(row, rules.retentionSeconds)) return true;
      return older(row, rules.completedRetentionSeconds) && this.cursors.size > 0 && row.end <= slowest;
    };
    let count = 0;
    while (count < rows && this.segments[0] !== undefined && goes(this.segments[0])) {
      this.segments.shift();
      count++;
    }
    this.logStart = this.segments[0]?.base ?? this.lastOffset + 1;
    return count;
  }

  purge(now: number, rows: number): number {
    const limit = Math.max(this.rules.dedupWindowSeconds, this.rules.completedRetentionSeconds, 900);
    let count = 0;
    while (count < rows && this.sidecar[0] !== undefined && this.sidecar[0].at < now - limit * SECOND) {
      this.sidecar.shift();
      count++;
    }
    this.txnsStart = this.sidecar[0]?.base ?? this.lastOffset + 1;
    return count;
  }

  /** Whether cleanup may take the partition, and (by a second's margin) whether it must. */
  removable(now: number, idleSeconds: number): { may: boolean; must: boolean } {
    const empty = this.segments.length === 0 && this.dead === 0;
    const leased = [...this.cursors.values()].some((cursor) => cursor.leasedUntil > now);
    const touched = Math.max(
      this.createdAt,
      this.lastAt,
      ...[...this.cursors.values()].map((cursor) => cursor.touched),
    );
    const age = (now - touched) / SECOND;
    const forgotten = this.lastAt === 0 || (now - this.lastAt) / SECOND > this.rules.dedupWindowSeconds + 1;
    return {
      may: empty && !leased && age > idleSeconds - 2,
      must: empty && !leased && age > idleSeconds + 2 && forgotten,
    };
  }
}

const BURY = statement('model_bury', 'DELETE FROM queen.log_dlq WHERE partition_id = $1::bigint');
const DEAD = statement(
  'model_dead',
  `INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", transaction_id) VALUES ($1::bigint, 'g', 0, 't')`,
);

let runs = 0;

async function interleave(
  database: TestDatabase,
  db: Database,
  first: Rules,
  commands: Command[],
): Promise<void> {
  const queue = `model-${runs++}`;
  const configure = (rules: Rules) => queueWith(db, queue, { ...rules });
  await configure(first);
  let id = await partitionOf(db, queue, 'p');
  let model = new Model(first, await maintenanceNow(db));
  let previous: LogState | null = null;

  for (const command of commands) {
    switch (command.do) {
      case 'append': {
        const txns = command.txns.map(String);
        const before = await maintenanceNow(db);
        const result = await append(db, id, txns);
        const after = await maintenanceNow(db);
        // The probe ran at some moment between the two, so a hash at the very edge may go either way.
        const most = model.duplicates(txns, before);
        const least = model.duplicates(txns, after);
        if (result.verdict === 'duplicate') {
          assert.ok(least.every((offset) => result.offsets.includes(offset)));
          assert.ok(result.offsets.every((offset) => most.includes(offset)));
          break;
        }
        assert.ok(result.verdict === 'stored');
        assert.deepEqual(least, []);
        assert.equal(result.base, model.lastOffset + 1);
        assert.ok(result.createdAtMicros >= model.lastAt);
        const row = {
          base: result.base,
          end: result.base + txns.length - 1,
          at: result.createdAtMicros,
          txns,
        };
        model.segments.push(row);
        model.sidecar.push(row);
        model.lastOffset = row.end;
        model.lastAt = row.at;
        break;
      }
      case 'advance':
        await database.advanceClock(command.seconds);
        break;
      case 'configure':
        model.rules = command.rules;
        await configure(command.rules);
        break;
      case 'cursor': {
        const at = Math.floor((command.share / 100) * (model.lastOffset + 1)) - 1;
        await setCursor(db, id, command.group, at);
        const known = model.cursors.get(command.group);
        model.cursors.set(command.group, {
          at,
          touched: known?.touched ?? (await maintenanceNow(db)),
          leasedUntil: known?.leasedUntil ?? 0,
        });
        break;
      }
      case 'lease': {
        const cursor = model.cursors.get(command.group);
        if (cursor === undefined || cursor.at >= model.lastOffset) break;
        await setLease(db, id, command.group, model.lastOffset, command.seconds);
        const now = await maintenanceNow(db);
        Object.assign(cursor, { touched: now, leasedUntil: now + command.seconds * SECOND });
        break;
      }
      case 'dead':
        await db.query(DEAD, [id]);
        model.dead++;
        break;
      case 'bury':
        await db.query(BURY, [id]);
        model.dead = 0;
        break;
      case 'segments':
      case 'max_wait':
      case 'sidecar': {
        const now = await maintenanceNow(db);
        const step = await retentionStep(db, command.do, id, now, command.rows);
        const expected =
          command.do === 'sidecar'
            ? model.purge(now, command.rows)
            : model.step(command.do, now, command.rows);
        assert.equal(step?.rows, expected, command.do);
        break;
      }
      case 'cleanup': {
        const now = await maintenanceNow(db);
        const { removed } = await cleanupPartitions(
          db,
          now - command.idleSeconds * SECOND,
          now,
          id - 1,
          1,
          10,
        );
        const { may, must } = model.removable(now, command.idleSeconds);
        if (removed.length > 0) assert.ok(may, 'removed a partition that is in use');
        else assert.ok(!must, 'an idle empty partition stayed');
        if (removed.length === 0) break;
        assert.equal(await logState(db, id), null);
        const successor = await partitionOf(db, queue, 'p');
        assert.notEqual(successor, id);
        id = successor;
        model = new Model(model.rules, await maintenanceNow(db));
        previous = null;
        break;
      }
    }
    const state = (await logState(db, id))!;
    const bare = ({ base, end, at }: Range) => ({ base, end, at });
    assert.deepEqual(state, {
      lastOffset: model.lastOffset,
      logStart: model.logStart,
      txnsStart: model.txnsStart,
      oldestLiveAt: model.segments[0]?.at ?? null,
      oldestTxnAt: model.sidecar[0]?.at ?? null,
      segments: model.segments.map(bare),
      sidecar: model.sidecar.map(bare),
    });
    for (const key of ['lastOffset', 'logStart', 'txnsStart'] as const) {
      assert.ok(previous === null || state[key] >= previous[key], `${key} went back`);
    }
    previous = state;
  }
}

test('retention, purge and cleanup do what a slow model does, in any order', {
  timeout: 120_000,
}, async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const bystander = await partitionOf(db, 'bystander', 'p');
  await append(db, bystander, ['a', 'b']);
  const before = await logState(db, bystander);
  await fc.assert(
    fc.asyncProperty(rules, fc.array(command, { minLength: 10, maxLength: 45 }), (first, commands) =>
      interleave(database, db, first, commands),
    ),
    { numRuns: 30, interruptAfterTimeLimit: 60_000, ...(seed === undefined ? {} : { seed: Number(seed) }) },
  );
  assert.deepEqual(await logState(db, bystander), before);
});
