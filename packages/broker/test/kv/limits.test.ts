import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '../../src/engine/clock.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { countKvUsage } from '../../src/store/kv.ts';
import { sql } from '../push/fixture.ts';
import { get, getMany, getPrefix, incr, put, putIfAbsent, Rig, remove } from './fixture.ts';

const TENANT = '00000000-0000-0000-0000-0000000000aa';

class HandClock implements Clock {
  ms = 1_000;
  now(): number {
    return this.ms;
  }
  after(ms: number, work: () => void) {
    return systemClock.after(ms, work);
  }
}

test('rates a tenant: bursts, debts, refills, reads and writes apart', async (t) => {
  const clock = new HandClock();
  const rig = await Rig.open(t, {
    clock,
    settings: { reads: { perSecond: 2, burst: 4 }, writes: { perSecond: 1, burst: 2 } },
  });
  await rig.call([get('a'), get('b'), get('c')], TENANT);
  // A token is left, so this passes and leaves a debt of four.
  await rig.call([get('a'), get('b'), get('c'), get('d'), get('e')], TENANT);
  await assert.rejects(rig.call([get('a')], TENANT), {
    kind: 'overloaded',
    code: 'rate_limited',
    retryAfterSeconds: 3,
  });
  await rig.call([put('a', 1), put('b', 1)], TENANT);
  await assert.rejects(rig.call([put('a', 1)], TENANT), { code: 'rate_limited' });
  await rig.call([get('a')], '00000000-0000-0000-0000-0000000000bb');
  await rig.call([put('a', 1), get('a')], TENANT, 'connector');
  clock.ms += 2_500;
  await rig.call([get('a')], TENANT);
  await assert.rejects(rig.kv.kvNamespaces(TENANT), { code: 'rate_limited' });
  assert.equal(rig.kv.counters.rejected.get('rate'), 3);
});

test('quotas: growth is refused, everything else passes, and a new count clears the local one', async (t) => {
  const clock = new HandClock();
  const rig = await Rig.open(t, { clock });
  await sql(rig.db, 'INSERT INTO queen.kv_quota (tenant_id, max_rows, max_bytes) VALUES ($1::uuid, 3, 100)', [
    TENANT,
  ]);
  const call = (...operations: Parameters<Rig['call']>[0]) => rig.call(operations, TENANT);
  await call(put('a', 1), put('b', 1));
  const over = { kind: 'refused', code: 'kv_quota_exceeded' };
  await assert.rejects(call(put('c', 1), put('d', 1)), over);
  const rows = async () => (await sql<{ n: number }>(rig.db, 'SELECT count(*) AS n FROM queen.kv'))[0]!.n;
  assert.equal(await rows(), 2, 'the call is undone as a whole');
  await call(put('c', 1));
  await assert.rejects(call(putIfAbsent('d', 1)), over);
  await assert.rejects(call(incr('d', 1)), over);
  await call(put('a', 2), incr('b', 1), get('a'), getMany('a'), getPrefix('a'), putIfAbsent('c', 1));
  await assert.rejects(call(put('a', 'x'.repeat(120).replace(/^/, '"').replace(/$/, '"'))), over);
  await call(put('a', ['x'.repeat(50)]));
  await call(put('a', 1));
  await call(remove('c'));
  await call(put('d', 1));
  await assert.rejects(call(put('e', 1)), over);
  // Deleted behind this broker's back: noticed after the next count and the next look.
  await sql(rig.db, 'DELETE FROM queen.kv');
  await countKvUsage(rig.db, 200_000);
  await assert.rejects(call(put('e', 1)), over);
  clock.ms += 31_000;
  await call(put('e', 1), put('f', 1), put('g', 1));
  await assert.rejects(call(put('h', 1)), over);
  await rig.call([put('h', 1)], TENANT, 'connector');
  await sql(rig.db, 'UPDATE queen.kv_quota SET max_reads_per_sec = 0');
  clock.ms += 31_000;
  await assert.rejects(call(get('a')), { code: 'rate_limited' });
});

test('grants: a plan that is needed, and one that is switched off', async (t) => {
  const clock = new HandClock();
  const rig = await Rig.open(t, { clock, requireGrant: true });
  const gated = { kind: 'refused', code: 'feature_gated' };
  await assert.rejects(rig.call([get('a')], TENANT), gated);
  await rig.kv.kvNamespaces(TENANT);
  await rig.call([put('a', 1)], TENANT, 'connector');
  await sql(rig.db, 'INSERT INTO queen.kv_quota (tenant_id) VALUES ($1::uuid)', [TENANT]);
  clock.ms += 31_000;
  await rig.call([put('a', 1)], TENANT);
  await sql(rig.db, 'UPDATE queen.kv_quota SET enabled = false');
  clock.ms += 31_000;
  await assert.rejects(rig.call([put('a', 1)], TENANT), gated);
});

test('the switch: everything of clients is refused, connectors go on, data stays', async (t) => {
  const rig = await Rig.open(t);
  await rig.write(put('a', 1));
  rig.enabled.set(false);
  const off = { kind: 'unavailable', code: 'kv_disabled' };
  await assert.rejects(rig.call([get('a')]), off);
  await assert.rejects(rig.kv.kvNamespaces(TENANT), off);
  await assert.rejects(rig.kv.ride({ tenant: TENANT, origin: 'client', operations: [get('a')] }), {
    kind: 'refused',
    code: 'kv_disabled',
  });
  await rig.call([get('a')], TENANT, 'connector');
  rig.enabled.set(true);
  assert.equal(await rig.value('a'), '1');
});

test('the reserved namespace is read by all, written by connectors, up to a megabyte', async (t) => {
  const rig = await Rig.open(t);
  const ns = 'queen-pg';
  for (const write of [put('a', 1, { ns }), incr('a', 1, { ns }), remove('a', { ns })]) {
    await assert.rejects(rig.call([write]), { code: 'kv_reserved_namespace' });
    await assert.rejects(rig.kv.ride({ tenant: TENANT, origin: 'client', operations: [write] }), {
      code: 'kv_reserved_namespace',
    });
  }
  const large = JSON.stringify('x'.repeat(1024 * 1024 - 2));
  await rig.call([put('a', large, { ns })], undefined, 'connector');
  assert.equal((await rig.get('a', ns))!.value, large);
  await assert.rejects(rig.call([put('a', `${large.slice(0, -1)}y"`, { ns })], undefined, 'connector'), {
    code: 'payload_too_large',
    reason: 'kv_value_too_large',
  });
});

test('limits of values and keys are exact', async (t) => {
  const rig = await Rig.open(t);
  await rig.write(put('a', JSON.stringify('x'.repeat(65_534))));
  await assert.rejects(rig.write(put('a', JSON.stringify('x'.repeat(65_535)))), {
    reason: 'kv_value_too_large',
  });
  await rig.write(put('é'.repeat(256), 1));
  await assert.rejects(rig.write(put('é'.repeat(257), 1)), { reason: 'kv_key_too_large' });
  await rig.write(put('life', 1, { life: 3_155_760_000 }));
  assert.ok((await rig.get('life'))!.expiresAtMicros! > 4e15);
  await assert.rejects(rig.write(put('life', 1, { life: 3_155_760_001 })), { reason: 'kv_bad_ttl' });
});

test('a database that does not answer: unavailable for what wrote nothing, in doubt for what may have', async (t) => {
  const rig = await Rig.open(t, { database: { statementTimeoutMs: 300 } });
  await rig.write(put('a', 1));
  await rig.db.transaction(async (tx) => {
    await sql(tx, "SELECT FROM queen.kv WHERE key = 'a' FOR UPDATE");
    // Cancelled by the server, which says so: nothing was written.
    await assert.rejects(rig.call([put('a', 2)]), { kind: 'unavailable', code: 'kv_unavailable' });
    assert.equal(await rig.value('a'), '1', 'readers wait for nobody');
  });
  assert.equal((await rig.write(put('a', 2))).applied, true);
});

test('too many callers for the share are turned away after a while', async (t) => {
  const rig = await Rig.open(t, { settings: { connections: 1 } });
  await rig.write(put('a', 1));
  await rig.db.transaction(async (tx) => {
    await sql(tx, "SELECT FROM queen.kv WHERE key = 'a' FOR UPDATE");
    const holder = rig.call([put('a', 2)]);
    await assert.rejects(rig.call([get('a')]), { code: 'kv_unavailable', retryAfterSeconds: 1 });
    await rig.call([get('a')], undefined, 'connector');
    holder.catch(() => {});
  });
  assert.equal(rig.kv.stats().refused, 1);
});

test('usage is counted a tenant, exactly or by an eighth of the shards', async (t) => {
  const rig = await Rig.open(t);
  await sql(
    rig.db,
    `INSERT INTO queen.kv (tenant_id, namespace, key, value)
     SELECT $1::uuid, 'n', 'k' || i, '"12345678"' FROM generate_series(1, 4000) i`,
    [TENANT],
  );
  assert.equal(await countKvUsage(rig.db, 200_000), 1);
  const usage = () =>
    sql<{ kv_rows: number; kv_bytes: number }>(rig.db, 'SELECT kv_rows, kv_bytes FROM queen.kv_usage');
  assert.deepEqual(await usage(), [{ kv_rows: 4000, kv_bytes: 40_000 }]);
  await rig.db.query({ name: '', text: 'ANALYZE queen.kv' });
  await countKvUsage(rig.db, 100);
  const [sampled] = await usage();
  assert.ok(Math.abs(sampled!.kv_rows - 4000) < 1000, `${sampled!.kv_rows}`);
  await sql(rig.db, 'DELETE FROM queen.kv');
  await countKvUsage(rig.db, 200_000);
  assert.deepEqual(await usage(), [{ kv_rows: 0, kv_bytes: 0 }]);
});
