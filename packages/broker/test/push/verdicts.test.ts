import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import { ZERO_UUID } from '../../src/engine/types.ts';
import { cache, item, NO_CACHE, push, pushIds, QUEUE, Rig, sql, statuses } from './fixture.ts';

test('a request is stored, announced and answered in its order', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path();
  const items = [
    item('a'),
    item('b', { partition: 'p' }),
    item(null),
    item('c', { partition: 'p', queue: 'billing.invoice.eu' }),
    item('d'),
  ];
  const results = await push(path, items);
  assert.deepEqual(statuses(results), Array(5).fill('queued'));
  assert.deepEqual(
    results.map((r) => r.offset),
    [0, 0, 1, 0, 2],
  );
  assert.equal(results[2]!.transactionId, results[2]!.messageId);
  assert.match(
    results[2]!.messageId,
    /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  const report = await assertLogInvariants(rig.db);
  const stored = report.messages.get((await rig.partition()).id)!;
  assert.deepEqual(
    stored.map((m) => [m.id, m.transactionId, m.payload]),
    [0, 2, 4].map((i) => [results[i]!.messageId, results[i]!.transactionId, items[i]!.payload.toString()]),
  );
  assert.equal(results[0]!.partitionId, String((await rig.partition()).id));
  assert.deepEqual(
    new Set(rig.announced.map((a) => `${a.queue}/${a.lastOffset}`)),
    new Set([`${QUEUE}/2`, `${QUEUE}/0`, 'billing.invoice.eu/0']),
  );
  const [queue] = await sql<object>(
    rig.db,
    `SELECT namespace, task, lease_time, dedup_window_seconds FROM queen.queues WHERE name = 'billing.invoice.eu'`,
  );
  assert.deepEqual(queue, {
    namespace: 'billing',
    task: 'invoice',
    lease_time: 60,
    dedup_window_seconds: 3600,
  });
});

test('an empty request stores nothing', async (t) => {
  const rig = await Rig.open(t);
  assert.deepEqual(await push(rig.path(), []), []);
  assert.equal(rig.db.statementsTotal, 0);
});

test('a bad item refuses the whole request, by its field', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path();
  const bad: [object, string][] = [
    [{ queue: '' }, 'items[1].queue'],
    [{ queue: 'a\u001fb' }, 'items[1].queue'],
    [{ queue: 'x'.repeat(256) }, 'items[1].queue'],
    [{ partition: '\ud800' }, 'items[1].partition'],
    [{ partition: 'tab\t' }, 'items[1].partition'],
    [{ transactionId: 'nul\u0000' }, 'items[1].transactionId'],
    [{ transactionId: 'x'.repeat(65_536) }, 'items[1].transactionId'],
    [{ payload: undefined }, 'items[1].payload'],
    [{ payload: Buffer.alloc(0) }, 'items[1].payload'],
    [{ traceId: 'no uuid' }, 'items[1].traceId'],
  ];
  for (const [fault, field] of bad) {
    await assert.rejects(push(path, [item('good'), { ...item('bad'), ...fault }]), {
      kind: 'refused',
      code: 'bad_request',
      field,
    });
  }
  assert.equal(rig.db.statementsTotal, 0);
  const long = 'ä'.repeat(32_767);
  assert.deepEqual(statuses(await pushIds(path, [long, long])), ['queued', 'duplicate']);
  await assertLogInvariants(rig.db);
});

test('inside a request the first of equal ids leads', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path();
  const first = await pushIds(path, ['a', 'b', 'a', 'a']);
  assert.deepEqual(statuses(first), ['queued', 'queued', 'duplicate', 'duplicate']);
  assert.equal(first[2]!.messageId, first[0]!.messageId);
  assert.equal(first[3]!.offset, 0);
  // The leader is itself a duplicate: all carry the stored id.
  const again = await pushIds(path, ['a', 'c', 'a']);
  assert.deepEqual(statuses(again), ['duplicate', 'queued', 'duplicate']);
  assert.deepEqual(
    again.map((r) => r.messageId === first[0]!.messageId),
    [true, false, true],
  );
  // Other partitions and other spellings are other messages.
  const other = await push(path, [item('a', { partition: 'p' }), item('A'), item('a ')]);
  assert.deepEqual(statuses(other), ['queued', 'queued', 'queued']);
});

test('a segment with duplicates is packed again without them', async (t) => {
  const rig = await Rig.open(t);
  for (const dedup of [NO_CACHE, cache(rig.db)]) {
    const path = rig.path({ dedup });
    const lane = dedup === NO_CACHE ? 'cold' : 'cached';
    const stored = await pushIds(path, ['t1', 't2', 't3', 't4', 't5'], lane);
    await pushIds(path, ['t6'], lane);
    const results = await pushIds(path, ['t7', 't2', 't8', 't6'], lane);
    assert.deepEqual(statuses(results), ['queued', 'duplicate', 'queued', 'duplicate']);
    assert.deepEqual(
      results.map((r) => r.offset),
      [6, 1, 7, 5],
    );
    assert.equal(results[1]!.messageId, stored[1]!.messageId);
    assert.equal((await rig.partition(lane)).last_offset, 7);
  }
  await assertLogInvariants(rig.db);
});

test('the id of an original that is gone is the zero UUID', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path();
  await pushIds(path, ['a', 'b']);
  await pushIds(path, ['c']);
  const { id } = await rig.partition();
  await sql(rig.db, 'DELETE FROM queen.log_segments WHERE partition_id = $1::bigint AND base_offset = 0', [
    id,
  ]);
  await sql(rig.db, 'UPDATE queen.log_partitions SET log_start = 2 WHERE id = $1::bigint', [id]);
  const results = await pushIds(path, ['a', 'c', 'd']);
  assert.deepEqual(statuses(results), ['duplicate', 'duplicate', 'queued']);
  assert.equal(results[0]!.messageId, ZERO_UUID);
  assert.notEqual(results[1]!.messageId, ZERO_UUID);
});

test('a corrupt original costs its id, not the push', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path();
  await pushIds(path, ['a']);
  await sql(
    rig.db,
    `UPDATE queen.log_segments
        SET blob = set_byte(blob, length(blob) / 2, get_byte(blob, length(blob) / 2) # 255)`,
  );
  const results = await pushIds(path, ['a', 'b']);
  assert.deepEqual(statuses(results), ['duplicate', 'queued']);
  assert.equal(results[0]!.messageId, ZERO_UUID);
  assert.equal(rig.logged.length, 1);
});

test('without a window equal ids of different requests are different messages', async (t) => {
  const rig = await Rig.open(t);
  await rig.window(0);
  const path = rig.path({ dedup: cache(rig.db) });
  const results = await Promise.all([pushIds(path, ['a']), pushIds(path, ['a']), pushIds(path, ['a', 'a'])]);
  assert.deepEqual(results.map(statuses), [['queued'], ['queued'], ['queued', 'duplicate']]);
  const report = await assertLogInvariants(rig.db);
  assert.deepEqual(
    report.messages.get((await rig.partition()).id)!.map((m) => m.transactionId),
    ['a', 'a', 'a'],
  );
  // They shared a segment: both positions are there.
  const rows = await sql(rig.db, 'SELECT 1 AS one FROM queen.log_segments');
  assert.equal(rows.length, 1);
});

test('eight requests with one id at once: one is queued', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path({ dedup: cache(rig.db) });
  const results = (await Promise.all(Array.from({ length: 8 }, () => pushIds(path, ['a'])))).flat();
  assert.equal(results.filter((r) => r.status === 'queued').length, 1);
  assert.equal(results.filter((r) => r.status === 'duplicate').length, 7);
  assert.equal(new Set(results.map((r) => r.messageId)).size, 1);
});
