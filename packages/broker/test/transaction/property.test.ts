/**
 * Random bundles with conflicting conditions, from several clients over two brokers at once, are serializable and atomic.
 *
 * How that is judged: every bundle also counts a key that lies behind all others. Whoever gets number n has committed before
 * number n + 1 could be drawn, and every lock that he took was taken before. So if the locks do what they must, running
 * the bundles one after the other in the order of their numbers, against a naive model, gives exactly the results that
 * the clients saw, value by value, and at the end exactly what is stored: keys, queues, and the order in the queues.
 *
 * Bundles that were refused have no number. That they left nothing behind is seen in what is stored.
 *
 * Replay: QUEEN_TEST_SEED=<seed> as printed (the schedule is the machine's own, so it may take a few runs).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Chance, seeded } from '../../../../test/faults/seed.ts';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import type { KvOperation, KvResult } from '../../src/engine/kv/operations.ts';
import type { TransactionAnswer, TransactionOperation } from '../../src/engine/transaction/types.ts';
import { KvModel } from '../kv/model.ts';
import { sql } from '../push/fixture.ts';
import { ack, push, pushOf, Rig, verdictOf } from './fixture.ts';

const KEYS = ['a', 'b', 'c', 'd'];
const LANES = ['x', 'y'];
/** Behind all keys in byte order. */
const COUNTER = 'zz';
const NUMBER: KvOperation = {
  op: 'incr',
  ns: 'n',
  key: COUNTER,
  delta: '1',
  life: null,
  min: null,
  max: null,
  required: true,
};

interface Bundle {
  kv: KvOperation[];
  operations: TransactionOperation[];
}

interface Committed {
  bundle: Bundle;
  number: number;
  kv: KvResult[];
  pushed: { lane: string; id: string; duplicate: boolean; offset: number }[];
}

class Client {
  readonly #rig: Rig;
  readonly #chance: Chance;
  readonly #name: string;
  /** Versions that this client has heard of. */
  readonly #seen = new Map<string, number>();
  readonly committed: Committed[] = [];
  readonly reasons = new Map<string, number>();

  constructor(rig: Rig, chance: Chance, name: string) {
    this.#rig = rig;
    this.#chance = chance;
    this.#name = name;
  }

  async run(bundles: number): Promise<void> {
    for (let i = 0; i < bundles; i++) {
      const bundle = this.#bundle(i);
      const answer = await this.#rig.run(bundle.operations, { kv: bundle.kv });
      this.#learn(bundle, answer);
    }
  }

  #bundle(i: number): Bundle {
    const chance = this.#chance;
    const keys = chance.shuffled(KEYS).slice(0, chance.integer(1, 3));
    const kv = keys.flatMap((key) => this.#operation(key, i));
    const operations: TransactionOperation[] = [];
    for (let n = chance.integer(0, 3); n > 0; n--) {
      const lane = chance.pick(LANES);
      // Now and then an id that somebody else may have pushed already.
      const id = chance.chance(0.1) ? `shared-${chance.integer(0, 3)}` : `${this.#name}-${i}-${n}`;
      operations.push(push(id, lane));
    }
    return { kv: [...chance.shuffled(kv), NUMBER], operations };
  }

  #operation(key: string, i: number): KvOperation[] {
    const chance = this.#chance;
    const value = JSON.stringify(`${this.#name}-${i}`);
    const required = chance.chance(0.4);
    const known = this.#seen.get(key) ?? 1;
    const write = chance.pick<KvOperation>([
      { op: 'put', ns: 'n', key, value, life: null, expect: null, required },
      { op: 'put', ns: 'n', key, value, life: null, expect: known, required },
      { op: 'putIfAbsent', ns: 'n', key, value, life: null, required },
      { op: 'delete', ns: 'n', key, expect: null, required },
      { op: 'delete', ns: 'n', key, expect: 0, required },
      { op: 'delete', ns: 'n', key, expect: known, required },
      { op: 'incr', ns: 'n', key, delta: '1', life: null, min: null, max: '2', required },
    ]);
    return chance.chance(0.3) ? [{ op: 'get', ns: 'n', key }, write] : [write];
  }

  #learn(bundle: Bundle, answer: TransactionAnswer): void {
    if (!answer.success) {
      const { reason } = answer.refusal;
      this.reasons.set(reason, (this.reasons.get(reason) ?? 0) + 1);
      if (answer.refusal.kv !== undefined) {
        const operation = bundle.kv[answer.refusal.failedIndex! - bundle.operations.length]!;
        if ('key' in operation) this.#seen.set(operation.key, answer.refusal.kv.version || 1);
      }
      return;
    }
    const number = answer.kv.at(-1)! as Extract<KvResult, { applied: boolean }>;
    for (const result of answer.kv) {
      if ('applied' in result && result.version > 0) this.#seen.set(result.key, result.version);
    }
    this.committed.push({
      bundle,
      number: Number(number.value),
      kv: answer.kv,
      pushed: answer.results.map((result) => {
        const { queue, transactionId, duplicate, offset } = pushOf(result);
        return { lane: queue, id: transactionId, duplicate, offset };
      }),
    });
  }
}

test('bundles of several clients over two brokers are serializable and atomic', {
  timeout: 180_000,
}, async (t) => {
  const chance = seeded(t);
  const rig = await Rig.open(t);
  const rigs = [rig, await Rig.on(t, rig.test)];
  const clients = Array.from(
    { length: 6 },
    (_, i) => new Client(rigs[i % 2]!, chance.fork(`client ${i}`), `c${i}`),
  );
  await Promise.all(clients.map((client) => client.run(Number(process.env.BUNDLES ?? 25))));

  const history = clients.flatMap((client) => client.committed).sort((a, b) => a.number - b.number);
  assert.deepEqual(
    history.map(({ number }) => number),
    history.map((_, i) => i + 1),
    'each number was drawn once',
  );
  const model = new KvModel();
  const lanes = new Map<string, string[]>(LANES.map((lane) => [lane, []]));
  for (const { bundle, number, kv, pushed } of history) {
    try {
      assert.equal(model.fails(bundle.kv), null);
      model.applied(bundle.kv, kv);
      for (const { lane, id, duplicate, offset } of pushed) {
        const stored = lanes.get(lane)!;
        assert.equal(stored.includes(id), duplicate, `${id} in ${lane}`);
        if (!duplicate) stored.push(id);
        assert.equal(stored.indexOf(id), offset, `${id} in ${lane}`);
      }
    } catch (error) {
      throw new Error(`bundle ${number}: ${(error as Error).message}`, { cause: error });
    }
  }
  const rows = await sql<{ key: string; value: string; version: number }>(
    rig.broker.db,
    'SELECT key, value, version FROM queen.kv ORDER BY key',
  );
  assert.deepEqual(
    rows.map(({ key, value, version }) => [key, value, version]),
    [...model.entries]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, { value, version }]) => [key, value, version]),
  );
  for (const lane of LANES) assert.deepEqual(await rig.stored(lane), lanes.get(lane), lane);
  await assertLogInvariants(rig.broker.db, { windowsNeverRaised: true });
  const reasons = new Map<string, number>();
  for (const client of clients) {
    for (const [reason, count] of client.reasons) reasons.set(reason, (reasons.get(reason) ?? 0) + count);
  }
  t.diagnostic(`${history.length} committed, refused: ${JSON.stringify(Object.fromEntries(reasons))}`);
  assert.ok(reasons.has('kv_precondition'), 'the run has met lost conditions');
});

test('a register and a queue always agree, also while they change', { timeout: 120_000 }, async (t) => {
  const rig = await Rig.open(t);
  const rigs = [rig, await Rig.on(t, rig.test)];
  const registers = ['r0', 'r1'];
  await rig.done(
    registers.map((name) => push(`${name}:0`, name)),
    {
      kv: registers.map((key) => ({
        op: 'put',
        ns: 'n',
        key,
        value: '0',
        life: null,
        expect: 0,
        required: true,
      })),
    },
  );
  let looking = true;
  let looks = 0;
  const look = async () => {
    while (looking) {
      // One statement, one snapshot.
      const rows = await sql<{ key: string; value: number; last: number }>(
        rig.broker.db,
        `SELECT k.key, k.value::text::bigint AS value, p.last_offset AS last
           FROM queen.kv k JOIN queen.queues q ON q.name = k.key JOIN queen.log_partitions p ON p.queue_id = q.id`,
      );
      assert.equal(rows.length, 2);
      for (const { key, value, last } of rows) assert.equal(value, last, `register ${key}`);
      looks++;
    }
  };
  const writer = async (mine: Rig, name: string) => {
    for (let done = 0; done < 8; ) {
      const seen = await mine.broker.kv({
        tenant: '00000000-0000-0000-0000-000000000001',
        origin: 'client',
        operations: registers.map((key) => ({ op: 'get', ns: 'n', key })),
      });
      assert.ok(seen.ok);
      const kv: KvOperation[] = [];
      const operations: TransactionOperation[] = [];
      for (const result of seen.results) {
        // One register, or both.
        if (result.op !== 'get' || (done % 3 !== 0 && result.key !== registers[done % 2])) continue;
        const next = Number(result.entry!.value) + 1;
        const expect = result.entry!.version;
        kv.push({
          op: 'put',
          ns: 'n',
          key: result.key,
          value: String(next),
          life: null,
          expect,
          required: true,
        });
        operations.push(push(`${result.key}:${next}`, result.key));
      }
      const answer = await mine.run(operations, { kv });
      if (answer.success) done++;
      else assert.equal(answer.refusal.reason, 'kv_precondition', name);
    }
  };
  const watching = look();
  await Promise.all(Array.from({ length: 5 }, (_, i) => writer(rigs[i % 2]!, `w${i}`)));
  looking = false;
  await watching;
  assert.ok(looks > 5, `looked ${looks} times`);
  for (const name of registers) {
    const ids = await rig.stored(name);
    assert.deepEqual(
      ids,
      ids.map((_, i) => `${name}:${i}`),
    );
  }
});

test('from one queue to another over two brokers: every message once, whatever expires', {
  timeout: 120_000,
}, async (t) => {
  const chance = seeded(t);
  const rig = await Rig.open(t);
  const rigs = [rig, await Rig.on(t, rig.test)];
  const total = 60;
  const lanes = ['p0', 'p1', 'p2'];
  for (const lane of lanes) {
    await rig.push(
      Array.from({ length: total / lanes.length }, (_, i) => `${lane}-${i}`),
      'in',
      lane,
    );
  }
  let moved = 0;
  let refused = 0;
  const worker = async (mine: Rig, luck: Chance) => {
    for (let idle = 0; moved < total && idle < 200; ) {
      const { leaseId, claims } = await mine.pop({ queue: 'in', batch: luck.integer(1, 7), partitions: 2 });
      if (claims.length === 0) {
        idle++;
        await rig.test.advanceClock(5);
        continue;
      }
      // A worker that stalls: its lease is gone when it commits.
      if (luck.chance(0.2)) await rig.test.advanceClock(61);
      const named = luck.chance(0.5);
      const operations = claims.flatMap((claim) => [
        ...claim.messages.map(({ transactionId }) =>
          ack(claim.partitionId, transactionId, named ? { leaseId } : {}),
        ),
        ...claim.messages.map(({ transactionId }) => push(`out-${transactionId}`, 'out', claim.partition)),
      ]);
      const answer = await mine.run(luck.shuffled(operations), {
        requiredLeases: [leaseId],
        kv: [
          {
            op: 'incr',
            ns: 'n',
            key: 'moved',
            delta: String(operations.length / 2),
            life: null,
            min: null,
            max: null,
            required: false,
          },
        ],
      });
      if (answer.success) {
        moved += operations.length / 2;
        for (const result of answer.results) if (result.type === 'ack') assert.ok(verdictOf(result).success);
      } else {
        refused++;
        assert.ok(['ack_rejected', 'duplicate'].includes(answer.refusal.reason), answer.refusal.error);
      }
    }
  };
  await Promise.all(Array.from({ length: 4 }, (_, i) => worker(rigs[i % 2]!, chance.fork(`worker ${i}`))));
  t.diagnostic(`${refused} refused`);
  assert.equal(moved, total);
  assert.deepEqual(
    (await rig.stored('out')).sort(),
    lanes
      .flatMap((lane) => Array.from({ length: total / lanes.length }, (_, i) => `out-${lane}-${i}`))
      .sort(),
  );
  const [row] = await sql<{ n: number }>(rig.broker.db, 'SELECT value::text::bigint AS n FROM queen.kv');
  assert.equal(row!.n, total);
  assert.deepEqual((await rig.pop({ queue: 'in' })).ids, []);
});
