import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AckRegistry } from '../../src/engine/ack/registry.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { EngineError } from '../../src/engine/errors.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { StoreError } from '../../src/store/errors.ts';
import { ack, Bench, GROUP } from './fixture.ts';

const OTHER_TENANT = '7f3e0d5c-0000-4000-8000-000000000001';
const NOTHING = { renewed: 0, expiresAtMicros: null };

async function lanes(bench: Bench, seconds: number[], tenant = DEFAULT_TENANT): Promise<number[]> {
  const ids: number[] = [];
  for (const leaseSeconds of seconds) {
    const lane = await bench.lane({ tenant });
    await bench.append(lane, ['a', 'b']);
    await bench.consumer(lane, { batchEnd: 1, leaseSeconds });
    ids.push(lane);
  }
  return ids;
}

for (const known of [false, true]) {
  test(`one id extends all its leases and shortens none (rows ${known ? 'remembered' : 'scanned'})`, async (t) => {
    const bench = await Bench.open(t);
    const registry = new AckRegistry({ clock: systemClock });
    const path = bench.path({ registry });
    const ids = await lanes(bench, [10, 20, 500]);
    const [foreign] = await lanes(bench, [10], OTHER_TENANT);
    const [stranger] = await lanes(bench, [10]);
    await bench.consumer(stranger!, { batchEnd: 1, worker: 'w2', leaseSeconds: 10 });
    if (known)
      for (const partitionId of ids) {
        registry.delivered({
          tenant: DEFAULT_TENANT,
          partitionId,
          group: GROUP,
          worker: 'w1',
          batchEnd: 1,
          transactionIds: ['a', 'a'],
          leaseSeconds: 10,
        });
      }
    const before = await Promise.all([...ids, foreign!, stranger!].map((id) => bench.row(id)));
    const result = await path.extend(DEFAULT_TENANT, 'w1', 60);
    const after = await Promise.all([...ids, foreign!, stranger!].map((id) => bench.row(id)));
    assert.equal(result.renewed, 3);
    const expiries = after.map((row) => row.lease_expires_at!);
    assert.equal(result.expiresAtMicros, Math.min(...expiries.slice(0, 3)));
    assert.ok(expiries[0]! - before[0]!.lease_expires_at! > 45e6);
    assert.ok(expiries[1]! - before[1]!.lease_expires_at! > 35e6);
    assert.equal(expiries[2], before[2]!.lease_expires_at);
    // Another tenant's row with the same id, and another lease: as they were.
    assert.deepEqual(after.slice(3), before.slice(3));
    assert.deepEqual(await path.extend(OTHER_TENANT, 'w2', 60), NOTHING);
  });

  test(`an expired, released or unknown lease renews nothing (rows ${known ? 'remembered' : 'scanned'})`, async (t) => {
    const bench = await Bench.open(t);
    const registry = new AckRegistry({ clock: systemClock });
    const path = bench.path({ registry });
    const [expired, released] = await lanes(bench, [60, 60]);
    await bench.consumer(released!, { batchEnd: 1, worker: 'w2' });
    if (known)
      for (const [partitionId, worker] of [
        [expired!, 'w1'],
        [released!, 'w2'],
      ] as const) {
        registry.delivered({
          tenant: DEFAULT_TENANT,
          partitionId,
          group: GROUP,
          worker,
          batchEnd: 1,
          transactionIds: ['a', 'b'],
          leaseSeconds: 600,
        });
      }
    await ack(path, released!, [{ txn: 'b', lease: 'w2' }]);
    await bench.test.advanceClock(61);
    const before = await bench.row(expired!);
    for (const id of ['w1', 'w2', 'unknown', '', 'w1\u0000', 'x'.repeat(100_000)]) {
      assert.deepEqual(await path.extend(DEFAULT_TENANT, id, 60), NOTHING);
    }
    assert.deepEqual(await bench.row(expired!), before);
  });
}

test('seconds are at least one and may be very many', async (t) => {
  const bench = await Bench.open(t);
  const [lane] = await lanes(bench, [1]);
  const path = bench.path();
  assert.equal((await path.extend(DEFAULT_TENANT, 'w1', -5)).renewed, 1);
  assert.equal((await path.extend(DEFAULT_TENANT, 'w1', Number.NaN)).renewed, 1);
  const far = await path.extend(DEFAULT_TENANT, 'w1', 1e15);
  assert.ok(Number.isSafeInteger(far.expiresAtMicros));
  assert.equal((await bench.row(lane!)).lease_expires_at, far.expiresAtMicros);
});

test('a handler that outlives its lease by renewing keeps its batch, and its ack counts', async (t) => {
  const bench = await Bench.open(t);
  const [lane] = await lanes(bench, [60]);
  const path = bench.path();
  for (let i = 0; i < 5; i++) {
    await bench.test.advanceClock(50);
    assert.equal((await path.extend(DEFAULT_TENANT, 'w1', 60)).renewed, 1);
  }
  const verdicts = await ack(path, lane!, [{ txn: 'a' }, { txn: 'b' }]);
  assert.ok(verdicts.every((verdict) => verdict.success && verdict.leaseReleased));
});

test('the worker that was too slow is refused, the one that took over is not', async (t) => {
  const bench = await Bench.open(t);
  const [lane] = await lanes(bench, [60]);
  const path = bench.path();
  await bench.test.advanceClock(61);
  // Nobody has taken it yet: refused all the same, and its budget is untouched.
  const early = await ack(path, lane!, [{ txn: 'b' }, { txn: 'a', status: 'failed' }]);
  assert.deepEqual(
    early.map((verdict) => verdict.error),
    ['invalid or expired lease', 'invalid or expired lease'],
  );
  await bench.consumer(lane!, { batchEnd: 1, worker: 'w2', attempts: 2 });
  const late = await ack(path, lane!, [{ txn: 'b' }]);
  assert.equal(late[0]!.error, 'invalid or expired lease');
  const row = await bench.row(lane!);
  assert.deepEqual([row.committed, row.worker_id, row.batch_retry_count], [-1, 'w2', 0]);
  const [own] = await ack(path, lane!, [{ txn: 'b', lease: 'w2' }]);
  assert.deepEqual([own!.success, own!.leaseReleased], [true, true]);
});

test('a lease ends when its time is up, not a moment later', async (t) => {
  const bench = await Bench.open(t);
  const [lane] = await lanes(bench, [0]);
  const [verdict] = await ack(bench.path(), lane!, [{ txn: 'b' }]);
  assert.equal(verdict!.error, 'invalid or expired lease');
});

test('an extension that cannot be made is an error that says whether it may have been', async () => {
  const bench = { announcer: { pushed() {}, released() {}, queueDeleted() {} } } as unknown as Bench;
  const path = Bench.prototype.path.call(bench, {
    db: { query: () => Promise.reject(new StoreError('in_doubt', 'connection', 'gone')) },
  });
  await assert.rejects(path.extend(DEFAULT_TENANT, 'w1', 60), (error: unknown) => {
    return error instanceof EngineError && error.kind === 'in_doubt';
  });
});
