import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AckItem, DEFAULT_TENANT } from '../../src/engine/types.ts';
import type { Queryable } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import { ack, Bench, GROUP, item, sql } from './fixture.ts';

const OTHER_TENANT = '7f3e0d5c-0000-4000-8000-000000000001';
const NOT_FOUND = 'consumer not found';
const LEASE = 'invalid or expired lease';
const NOT_OWNED = 'partition not owned by tenant';
const FLUSH = 'ack flush failed; lease will expire and redeliver';

async function leased(bench: Bench, txns = ['a', 'b', 'c']): Promise<number> {
  const lane = await bench.lane();
  await bench.append(lane, txns);
  await bench.consumer(lane, { batchEnd: txns.length - 1 });
  return lane;
}

test('items without a consumer row', async (t) => {
  const bench = await Bench.open(t);
  const lane = await bench.lane();
  await bench.append(lane, ['a']);
  const path = bench.path();
  const ids = [
    String(lane),
    '',
    'x',
    '-1',
    '+1',
    '0',
    '01',
    ' 1',
    '1.0',
    '1e3',
    '9007199254740993',
    '99999999999999999999',
    '00000000-0000-4000-8000-000000000000',
    '1\u0000',
    '2147483647',
  ];
  const verdicts = await path.ack({
    tenant: DEFAULT_TENANT,
    group: GROUP,
    items: ids.map((id) => item(id, { txn: 'a' })),
  });
  assert.deepEqual(
    verdicts.map((verdict) => [verdict.success, verdict.error, verdict.leaseReleased]),
    ids.map(() => [false, NOT_FOUND, false]),
  );
  assert.deepEqual(await path.ack({ tenant: DEFAULT_TENANT, group: GROUP, items: [] }), []);
});

test('a foreign partition is refused and untouched', async (t) => {
  const bench = await Bench.open(t);
  const lane = await leased(bench);
  const path = bench.path();
  const before = await bench.row(lane);
  const items: AckItem[] = [
    item(lane, { txn: 'a' }),
    item(lane, { txn: 'a', lease: null }),
    item(lane, { offset: 1, status: 'dlq' }),
  ];
  const verdicts = await path.ack({ tenant: OTHER_TENANT, group: GROUP, items });
  assert.deepEqual(
    verdicts.map((verdict) => verdict.error),
    [NOT_OWNED, NOT_OWNED, NOT_OWNED],
  );
  assert.deepEqual(await bench.row(lane), before);

  // With several tenants, what does not exist looks the same as what belongs to somebody else.
  const shared = bench.path({ settings: { tenancy: true } });
  const absent = await shared.ack({
    tenant: OTHER_TENANT,
    group: GROUP,
    items: [item('999999', { txn: 'a' })],
  });
  assert.equal(absent[0]!.error, NOT_OWNED);
  const [ownWithoutRow] = await shared.ack({
    tenant: DEFAULT_TENANT,
    group: 'h',
    items: [item(lane, { txn: 'a' })],
  });
  assert.equal(ownWithoutRow!.error, NOT_FOUND);
});

test('one bad group leaves the others alone, and items answer in request order', async (t) => {
  const bench = await Bench.open(t);
  const [x, y, z] = [await leased(bench), await leased(bench), await leased(bench)];
  const foreign = await bench.lane({ tenant: OTHER_TENANT });
  const verdicts = await bench.path().ack({
    tenant: DEFAULT_TENANT,
    group: GROUP,
    items: [
      item(z, { txn: 'c' }),
      item('nonsense', { txn: 'a' }),
      item(x, { txn: 'a', lease: 'other' }),
      item(foreign, { txn: 'a' }),
      item(y, { txn: 'b', status: 'failed' }),
      item(z, { txn: 'ghost' }),
      item(y, { txn: 'a' }),
    ],
  });
  assert.deepEqual(
    verdicts.map((verdict) => [verdict.success, verdict.leaseReleased]),
    [
      [true, true],
      [false, false],
      [false, false],
      [false, false],
      [true, true],
      [false, true],
      [true, true],
    ],
  );
  assert.deepEqual(
    [verdicts[1]!.error, verdicts[2]!.error, verdicts[3]!.error],
    [NOT_FOUND, LEASE, NOT_OWNED],
  );
  assert.equal((await bench.row(x)).committed, -1);
  assert.equal((await bench.row(y)).committed, 0);
  assert.equal((await bench.row(z)).committed, 2);
});

test('a release tells whether anything is left', async (t) => {
  const bench = await Bench.open(t);
  const path = bench.path();
  const told = async (specs: Parameters<typeof ack>[2]): Promise<string> => {
    bench.releases.length = 0;
    const lane = await leased(bench);
    await ack(path, lane, specs);
    return bench.releases.join().replace(String(lane), 'lane');
  };
  assert.equal(await told([{ txn: 'c' }]), 'lane/g@2');
  assert.equal(await told([{ txn: 'b' }]), '');
  assert.equal(await told([{ txn: 'b' }, { txn: 'c', status: 'retry' }]), 'lane/g');
  assert.equal(await told([{ txn: 'b', status: 'dlq' }]), 'lane/g');
  assert.equal(await told([{ txn: 'c', status: 'dlq' }]), 'lane/g@2');
  assert.equal(await told([{ txn: 'c', status: 'failed', lease: 'old' }]), '');
});

test('two leases of one partition in one request are two decisions, one after the other', async (t) => {
  const bench = await Bench.open(t);
  const lane = await leased(bench);
  const verdicts = await bench.path().ack({
    tenant: DEFAULT_TENANT,
    group: GROUP,
    items: [
      item(lane, { txn: 'a', status: 'dlq' }),
      item(lane, { txn: 'b', lease: null }),
      item(lane, { txn: 'c', lease: 'stale' }),
    ],
  });
  assert.deepEqual(
    verdicts.map((verdict) => verdict.success),
    [true, true, false],
  );
  // The dead letter released the lease first; the lease-less ack then moved the cursor without a batch.
  assert.deepEqual(
    verdicts.map((verdict) => verdict.leaseReleased),
    [true, false, false],
  );
  assert.equal((await bench.row(lane)).committed, 1);
  assert.equal((await bench.deadLetters(lane)).length, 1);
});

test('text that PostgreSQL cannot hold does not fail the request', async (t) => {
  const bench = await Bench.open(t);
  const [x, y] = [await leased(bench), await leased(bench)];
  const path = bench.path();
  const verdicts = await path.ack({
    tenant: DEFAULT_TENANT,
    group: GROUP,
    items: [
      item(x, { txn: 'a', lease: 'w1\u0000' }),
      item(y, { txn: 'a', status: 'dlq', error: 'nul \u0000 and half \ud800 a pair' }),
      item(y, { txn: 'b\u0000' }),
      item(y, { txn: '\ud800' }),
    ],
  });
  assert.deepEqual(
    verdicts.map((verdict) => verdict.success),
    [false, true, false, false],
  );
  assert.equal(verdicts[0]!.error, LEASE);
  assert.equal((await bench.deadLetters(y))[0]!.error, 'nul \ufffd and half \ufffd a pair');
  const odd = await path.ack({ tenant: DEFAULT_TENANT, group: 'g\u0000', items: [item(x, { txn: 'a' })] });
  assert.equal(odd[0]!.error, NOT_FOUND);
});

test('a repeated completion under the old lease is refused, without a lease it is a no-op', async (t) => {
  const bench = await Bench.open(t);
  const lane = await leased(bench);
  const path = bench.path();
  await ack(path, lane, [{ txn: 'c' }]);
  const again = await ack(path, lane, [{ txn: 'c' }]);
  assert.deepEqual([again[0]!.success, again[0]!.error], [false, LEASE]);
  const open = await ack(path, lane, [
    { txn: 'c', lease: null },
    { txn: 'a', lease: '' },
  ]);
  assert.deepEqual(
    open.map((verdict) => [verdict.success, verdict.noop]),
    [
      [true, true],
      [true, true],
    ],
  );
  const row = await bench.row(lane);
  assert.deepEqual([row.committed, row.total_consumed], [2, 3]);
});

test('a failed statement fails the items, and the lease brings the messages back', async (t) => {
  const bench = await Bench.open(t);
  const lane = await leased(bench);
  const failing = (error: Error): Queryable => ({ query: () => Promise.reject(error) });
  const cases: [Error, string][] = [
    [new StoreError('unavailable', 'timeout', 'cancelled'), FLUSH],
    [new StoreError('in_doubt', 'connection', 'gone'), FLUSH],
    [new StoreError('refused', 'sql', 'syntax'), FLUSH],
    [new StoreError('unavailable', 'pool', 'no connection'), 'pool'],
    [new Error('anything else'), FLUSH],
  ];
  for (const [error, text] of cases) {
    const path = bench.path({ db: failing(error) });
    const verdicts = await path.ack({
      tenant: DEFAULT_TENANT,
      group: GROUP,
      items: [
        item(lane, { txn: 'a' }),
        item('bad', {}),
        item(lane, { txn: 'b', lease: null, status: 'failed' }),
      ],
    });
    assert.deepEqual(
      verdicts.map((verdict) => verdict.error),
      [text, NOT_FOUND, text],
    );
    assert.ok(verdicts.every((verdict) => !verdict.success && !verdict.leaseReleased));
  }
  const row = await bench.row(lane);
  assert.deepEqual([row.committed, row.worker_id], [-1, 'w1']);
});

test('a lock that is not given up ends in a failed item, not in a hanging one', async (t) => {
  const bench = await Bench.open(t);
  const lane = await leased(bench);
  const impatient = await bench.test.open({ statementTimeoutMs: 200 });
  t.after(() => impatient.close());
  await bench.db.transaction(async (tx) => {
    await sql(tx, 'SELECT 1 AS one FROM queen.log_consumers WHERE partition_id = $1::bigint FOR UPDATE', [
      lane,
    ]);
    const verdicts = await ack(bench.path({ db: impatient }), lane, [{ txn: 'c' }]);
    assert.deepEqual([verdicts[0]!.success, verdicts[0]!.error], [false, FLUSH]);
  });
  assert.equal((await bench.row(lane)).committed, -1);
});

test('an ack waits for nobody who pushes', async (t) => {
  const bench = await Bench.open(t);
  const lane = await leased(bench);
  await bench.db.transaction(async (tx) => {
    await sql(tx, 'SELECT 1 AS one FROM queen.log_partitions WHERE id = $1::bigint FOR UPDATE', [lane]);
    const verdicts = await ack(bench.path(), lane, [{ txn: 'a' }, { txn: 'b', status: 'dlq' }]);
    assert.deepEqual(
      verdicts.map((verdict) => verdict.success),
      [true, true],
    );
  });
  assert.equal((await bench.row(lane)).committed, 1);
});

test('requests that name the same lanes in any order do not deadlock', async (t) => {
  const bench = await Bench.open(t);
  const lanes: number[] = [];
  for (let i = 0; i < 6; i++) lanes.push(await leased(bench));
  const path = bench.path();
  const orders = [lanes, [...lanes].reverse(), [...lanes.slice(3), ...lanes.slice(0, 3)]];
  const answers = await Promise.all(
    Array.from({ length: 30 }, (_, i) =>
      path.ack({
        tenant: DEFAULT_TENANT,
        group: GROUP,
        items: orders[i % 3]!.map((lane) => item(lane, { txn: 'b', lease: null })),
      }),
    ),
  );
  // Each lane is completed by exactly one of them; for the others it is a repetition.
  for (let k = 0; k < lanes.length; k++) {
    const verdicts = answers.map((list, i) => list[orders[i % 3]!.indexOf(lanes[k]!)]!);
    assert.ok(verdicts.every((verdict) => verdict.success));
    assert.equal(verdicts.filter((verdict) => !verdict.noop).length, 1);
    assert.equal((await bench.row(lanes[k]!)).total_consumed, 2);
  }
});

test('acks are HOT updates', async (t) => {
  const bench = await Bench.open(t);
  const lane = await leased(bench, ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']);
  // One connection, so that its statistics are those of the acks and arrive when it is told to send them.
  const db = await bench.test.open({ poolSize: 1 });
  t.after(() => db.close());
  const path = bench.path({ db });
  const updates = async (): Promise<{ all: number; hot: number }> => {
    await sql(db, 'SELECT 1 AS one FROM pg_stat_force_next_flush()');
    const [row] = await sql<{ all: number; hot: number }>(
      db,
      `SELECT n_tup_upd AS all, n_tup_hot_upd AS hot FROM pg_stat_user_tables
        WHERE schemaname = 'queen' AND relname = 'log_consumers'`,
    );
    return row!;
  };
  const before = await updates();
  for (const txn of ['a', 'b', 'c', 'd']) await ack(path, lane, [{ txn }]);
  await path.extend(DEFAULT_TENANT, 'w1', 600);
  await ack(path, lane, [{ txn: 'e', status: 'dlq' }]);
  await bench.consumer(lane, { committed: 4, batchEnd: 7 });
  await ack(path, lane, [{ txn: 'f' }, { txn: 'g', status: 'failed' }]);
  await bench.consumer(lane, { committed: 5, batchEnd: 7 });
  await ack(path, lane, [{ txn: 'h' }]);
  const after = await updates();
  assert.ok(after.all - before.all >= 8, `${after.all - before.all} updates`);
  assert.equal(after.hot - before.hot, after.all - before.all);
});
