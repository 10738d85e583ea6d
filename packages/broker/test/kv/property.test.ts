/**
 * Random calls against the naive model: one client, so every result is determined. Replay: FC_SEED and FC_PATH as printed
 * by a failure.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { KvOperation } from '../../src/engine/kv/operations.ts';
import { sql } from '../push/fixture.ts';
import { NS, Rig } from './fixture.ts';
import { KvModel } from './model.ts';

/** `expect`: none, nothing lives there, the version that does, one that did once. */
type Expect = 'none' | 'zero' | 'current' | 'old';

interface Wish {
  op: KvOperation['op'];
  key: string;
  keys: string[];
  value: string;
  delta: string;
  life: number | null;
  expect: Expect;
  bound: number | null;
  required: boolean;
  limit: number;
}

type Step =
  | { kind: 'call'; wishes: Wish[]; broker: number }
  | { kind: 'wait'; seconds: number }
  | { kind: 'sweep' };

const KEYS = ['a', 'a/', 'a/1', 'a/é', 'b'];
const key = fc.constantFrom(...KEYS);
const wish = fc.record<Wish>({
  op: fc.constantFrom('get', 'getMany', 'getPrefix', 'put', 'put', 'putIfAbsent', 'delete', 'incr', 'incr'),
  key,
  keys: fc.array(fc.constantFrom(...KEYS, 'never'), { minLength: 1, maxLength: 4 }),
  value: fc.constantFrom('1', '2.5', '"x"', 'null', '[1]'),
  delta: fc.constantFrom('1', '-1', '0.1', '10'),
  life: fc.constantFrom(null, null, 5, 20),
  expect: fc.constantFrom<Expect[]>('none', 'none', 'zero', 'current', 'old'),
  bound: fc.constantFrom(null, null, 0, 5),
  required: fc.constantFrom(false, false, false, true),
  limit: fc.constantFrom(1, 2, 100),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('call' as const),
      wishes: fc.array(wish, { minLength: 1, maxLength: 6 }),
      broker: fc.nat(1),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('wait' as const), seconds: fc.constantFrom(4, 6, 15) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('sweep' as const) }) },
);

function operationOf(wish: Wish, model: KvModel, old: Map<string, number>): KvOperation {
  const { key, life, required } = wish;
  const live = model.live(key);
  const expects = { none: null, zero: 0, current: live?.version ?? 1, old: old.get(key) ?? 1 };
  const expect = expects[wish.expect];
  const bound = wish.bound === null ? null : String(wish.bound);
  switch (wish.op) {
    case 'get':
      return { op: 'get', ns: NS, key };
    case 'getMany':
      return { op: 'getMany', ns: NS, keys: wish.keys };
    case 'getPrefix':
      return { op: 'getPrefix', ns: NS, prefix: key, after: null, limit: wish.limit, keysOnly: false };
    case 'put':
      return { op: 'put', ns: NS, key, value: wish.value, life, expect, required };
    case 'putIfAbsent':
      return { op: 'putIfAbsent', ns: NS, key, value: wish.value, life, required };
    case 'delete':
      return { op: 'delete', ns: NS, key, expect, required };
    case 'incr': {
      const bounds = wish.delta.startsWith('-') ? { min: bound, max: null } : { min: null, max: bound };
      return { op: 'incr', ns: NS, key, delta: wish.delta, life, ...bounds, required };
    }
  }
}

/** One write a key: the later ones are left out. */
function legal(operations: KvOperation[]): KvOperation[] {
  const written = new Set<string>();
  return operations.filter((operation) => {
    if (operation.op === 'get' || !('key' in operation)) return true;
    if (written.has(operation.key)) return false;
    written.add(operation.key);
    return true;
  });
}

test('random calls, also over two brokers, equal the model', { timeout: 180_000 }, async (t) => {
  const rig = await Rig.open(t);
  const other = await Rig.on(t, rig.test);
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 30 }), async (steps) => {
      await sql(rig.db, 'DELETE FROM queen.kv');
      const model = new KvModel();
      const old = new Map<string, number>();
      for (const each of steps) {
        if (each.kind === 'wait') {
          await rig.test.advanceClock(each.seconds);
          model.now += each.seconds;
          continue;
        }
        if (each.kind === 'sweep') {
          await rig.expiry.pass();
          continue;
        }
        const operations = legal(each.wishes.map((wish) => operationOf(wish, model, old)));
        for (const [key, entry] of model.entries) old.set(key, entry.version);
        const fails = model.fails(operations);
        const answer = await (each.broker === 0 ? rig : other).call(operations);
        if (fails === null) {
          assert.ok(answer.ok, `no precondition is lost in ${JSON.stringify(operations)}`);
          model.applied(operations, answer.results);
        } else {
          assert.ok(!answer.ok, `a precondition is lost in ${JSON.stringify(operations)}`);
          const { failedIndex, reason } = answer.precondition;
          assert.deepEqual({ index: failedIndex, reason }, fails);
        }
      }
    }),
    {
      numRuns: Number(process.env.FC_RUNS ?? 40),
      ...(process.env.FC_SEED === undefined ? {} : { seed: Number(process.env.FC_SEED) }),
      ...(process.env.FC_PATH === undefined ? {} : { path: process.env.FC_PATH }),
    },
  );
});
