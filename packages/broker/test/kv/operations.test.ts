import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sql } from '../push/fixture.ts';
import {
  get,
  getMany,
  getPrefix,
  incr,
  keysOf,
  NS,
  put,
  putIfAbsent,
  Rig,
  remove,
  type Written,
} from './fixture.ts';

test('put and get: values come back as they were sent', async (t) => {
  const rig = await Rig.open(t);
  const values = [
    'null',
    '0',
    '"text"',
    '1.10',
    '123456789012345678901234567890.000100',
    '1e400',
    '{"b":1,"a":2,"a":3}',
    '"\\u0000 \\ud800 \\n é 😀"',
    '[ 1 , 2 ]',
    `${'['.repeat(900)}${']'.repeat(900)}`,
  ];
  for (const [i, value] of values.entries()) {
    const written = await rig.write(put(`k${i}`, value));
    assert.deepEqual(
      { applied: written.applied, value: written.value, reason: written.reason },
      { applied: true, value, reason: null },
    );
    const entry = await rig.get(`k${i}`);
    assert.equal(entry!.value, value);
    assert.equal(entry!.version, written.version);
    assert.equal(entry!.expiresAtMicros, null);
  }
  assert.equal(await rig.get('nothing'), null);
  assert.equal(await rig.get('k0', 'other'), null);
});

test('put replaces value, version and life', async (t) => {
  const rig = await Rig.open(t);
  const first = await rig.write(put('a', 1, { life: 5 }));
  const second = await rig.write(put('a', 2));
  assert.notEqual(second.version, first.version);
  const entry = await rig.get('a');
  assert.equal(entry!.expiresAtMicros, null);
  assert.equal(entry!.value, '2');
  const third = await rig.write(put('a', 3, { life: 60 }));
  const again = (await rig.get('a'))!;
  assert.equal(again.version, third.version);
  assert.ok(Math.abs(again.expiresAtMicros! - again.updatedAtMicros - 60_000_000) < 2);
});

test('expect: a version, zero, and what the loser hears', async (t) => {
  const rig = await Rig.open(t);
  const absent = await rig.write(put('a', 1, { expect: 77 }));
  assert.deepEqual(absent, {
    op: 'put',
    key: 'a',
    applied: false,
    value: null,
    version: 0,
    reason: 'absent',
  });
  assert.equal(await rig.get('a'), null);
  const created = await rig.write(put('a', 1, { expect: 0 }));
  assert.equal(created.applied, true);
  const exists = await rig.write(put('a', 2, { expect: 0 }));
  assert.deepEqual(
    [exists.applied, exists.reason, exists.value, exists.version],
    [false, 'exists', '1', created.version],
  );
  const version = await rig.write(put('a', 2, { expect: created.version + 1 }));
  assert.deepEqual(
    [version.applied, version.reason, version.value, version.version],
    [false, 'version', '1', created.version],
  );
  const swapped = await rig.write(put('a', 2, { expect: created.version }));
  assert.equal(swapped.applied, true);
  assert.notEqual(swapped.version, created.version);
  assert.equal((await rig.write(put('a', 3, { expect: created.version }))).applied, false);
  const gate = await rig.write(putIfAbsent('a', 9));
  assert.deepEqual([gate.op, gate.applied, gate.reason, gate.value], ['putIfAbsent', false, 'exists', '2']);
});

test('delete: plain, expect a version, expect nothing', async (t) => {
  const rig = await Rig.open(t);
  const nothing = await rig.write(remove('a'));
  assert.deepEqual(
    [nothing.applied, nothing.reason, nothing.value, nothing.version],
    [false, 'absent', null, 0],
  );
  const free = await rig.write(remove('a', { expect: 0 }));
  assert.deepEqual([free.applied, free.reason, free.version], [true, null, 0]);
  const { version } = await rig.write(put('a', [1]));
  const exists = await rig.write(remove('a', { expect: 0 }));
  assert.deepEqual(
    [exists.applied, exists.reason, exists.value, exists.version],
    [false, 'exists', '[1]', version],
  );
  const other = await rig.write(remove('a', { expect: version + 1 }));
  assert.deepEqual([other.applied, other.reason, other.version], [false, 'version', version]);
  const gone = await rig.write(remove('a', { expect: version }));
  assert.deepEqual([gone.applied, gone.reason, gone.value, gone.version], [true, null, '[1]', version]);
  assert.equal(await rig.get('a'), null);
  assert.equal((await rig.write(remove('a', { expect: version }))).reason, 'absent');
});

test('incr: exact decimals, bounds, types, life', async (t) => {
  const rig = await Rig.open(t);
  const steps: [string, string][] = [
    ['0.1', '0.1'],
    ['0.2', '0.3'],
    ['-1e2', '-99.7'],
    ['9007199254740993', '9007199254740893.3'],
    ['0.000000000000000000001', '9007199254740893.300000000000000000001'],
  ];
  for (const [delta, sum] of steps) {
    const written = await rig.write(incr('c', delta));
    assert.deepEqual([written.applied, written.value], [true, sum]);
    assert.equal(await rig.value('c'), sum);
  }
  const below = await rig.write(incr('d', 5, { max: '4' }));
  assert.deepEqual([below.applied, below.reason, below.value, below.version], [false, 'limit', null, 0]);
  assert.equal(await rig.get('d'), null);
  await rig.write(incr('d', 3, { max: '4' }));
  const over = await rig.write(incr('d', 2, { max: '4' }));
  assert.deepEqual([over.applied, over.reason, over.value], [false, 'limit', '3']);
  assert.equal((await rig.write(incr('d', -4, { min: '0' }))).reason, 'limit');
  assert.equal((await rig.write(incr('d', 1, { max: '4' }))).value, '4');
  await rig.write(put('s', '"4"'));
  const type = await rig.write(incr('s', 1));
  assert.deepEqual([type.applied, type.reason, type.value], [false, 'type', '"4"']);
  await rig.write(put('huge', '1e4000'));
  assert.equal((await rig.write(incr('huge', 1))).reason, 'type');
});

test('incr: a life counts only when the key is created; a put number is counted on', async (t) => {
  const rig = await Rig.open(t);
  await rig.write(incr('a', 1, { life: 100 }));
  const first = (await rig.get('a'))!;
  await rig.write(incr('a', 1, { life: 5 }));
  assert.equal((await rig.get('a'))!.expiresAtMicros, first.expiresAtMicros);
  await rig.write(put('b', '1.50'));
  assert.equal((await rig.write(incr('b', 1, { life: 5 }))).value, '2.50');
  assert.equal((await rig.get('b'))!.expiresAtMicros, null);
});

test('an expired key is absent from everything, swept or not', async (t) => {
  const rig = await Rig.open(t);
  for (const key of ['get', 'cas', 'gate', 'del', 'incr', 'zero', 'plain'])
    await rig.write(put(key, '"old"', { life: 10 }));
  const old = (await rig.get('cas'))!.version;
  await rig.test.advanceClock(9);
  assert.ok(await rig.get('get'));
  await rig.test.advanceClock(2);
  assert.equal(await rig.get('get'), null);
  const [many, page] = await rig.loose(getMany('get', 'cas'), getPrefix('g'));
  assert.deepEqual([many.rows, many.missing, page.rows], [[], ['get', 'cas'], []]);
  assert.deepEqual((await rig.write(put('cas', 1, { expect: old }))).reason, 'absent');
  assert.equal((await rig.write(putIfAbsent('gate', 1))).applied, true);
  const gone = await rig.write(remove('del'));
  assert.deepEqual([gone.applied, gone.reason, gone.value], [false, 'absent', null]);
  assert.equal((await rig.write(remove('zero', { expect: 0 }))).applied, true);
  // Whatever its type was, it counts as zero, and its life begins anew.
  const counted = await rig.write(incr('incr', 7, { life: 50 }));
  assert.deepEqual([counted.applied, counted.value], [true, '7']);
  const entry = (await rig.get('incr'))!;
  assert.ok(Math.abs(entry.expiresAtMicros! - entry.updatedAtMicros - 50_000_000) < 2);
  await rig.write(put('plain', 1));
  const rows = await sql<{ key: string; fresh: boolean }>(
    rig.db,
    'SELECT key, created_at = updated_at AS fresh FROM queen.kv ORDER BY key',
  );
  assert.deepEqual(
    rows.filter((row) => row.fresh && row.key !== 'get' && row.key !== 'cas').map((row) => row.key),
    ['gate', 'incr', 'plain'],
    'a dead row that is written again is a new key; deletes took the row with them',
  );
});

test('one call: byte order of locks, request order on a key, reads of many see its writes', async (t) => {
  const rig = await Rig.open(t);
  await rig.write(put('b', 0));
  const results = await rig.loose(
    getPrefix('a'),
    get('b'),
    put('b', 1),
    getMany('zz', 'b', 'é', 'a1', 'b'),
    get('b'),
    put('é', 2),
    put('a1', 3),
    remove('a0'),
  );
  assert.deepEqual(
    results[0].rows.map((row) => [row.key, row.value]),
    [['a1', '3']],
  );
  assert.equal(results[1].entry.value, '0');
  assert.equal(results[4].entry.value, '1');
  assert.deepEqual(keysOf(results[3].rows), ['a1', 'b', 'é']);
  assert.deepEqual(results[3].missing, ['zz']);
  assert.equal(results[7].reason, 'absent');
  assert.deepEqual(await rig.results(), []);
});

test('getPrefix: literal, byte order, pages, the end of the code points', async (t) => {
  const rig = await Rig.open(t);
  const keys = ['a', 'a%', 'a_b', 'ab', 'aé', 'a\u{10ffff}', 'a\u{10ffff}b', 'a\ud7ff', 'a\ue000', 'b', 'A'];
  for (const key of keys) await rig.write(put(key, key.length));
  const bytewise = (list: string[]) => [...list].sort((x, y) => Buffer.from(x).compare(Buffer.from(y)));
  const page = async (prefix: string, more = {}) => (await rig.loose(getPrefix(prefix, more)))[0];
  assert.deepEqual(
    (await page('a')).rows.map((row) => row.key),
    bytewise(keys.filter((key) => key.startsWith('a'))),
  );
  assert.deepEqual(
    (await page('a\u{10ffff}')).rows.map((row) => row.key),
    ['a\u{10ffff}', 'a\u{10ffff}b'],
  );
  assert.deepEqual(
    (await page('a%')).rows.map((row) => row.key),
    ['a%'],
  );
  const seen: string[] = [];
  let after: string | undefined;
  for (;;) {
    const each = await page('a', { limit: 2, ...(after === undefined ? {} : { after }) });
    seen.push(...keysOf(each.rows));
    assert.equal(each.truncated, each.nextAfter !== null);
    if (each.nextAfter === null) break;
    assert.equal(each.nextAfter, each.rows.at(-1)!.key);
    after = each.nextAfter;
  }
  assert.deepEqual(seen, bytewise(keys.filter((key) => key.startsWith('a'))));
  const names = await page('a', { keysOnly: true, limit: 0 });
  assert.deepEqual(
    names.rows.map((row) => [row.key, row.value]),
    [['a', null]],
  );
  assert.equal(names.truncated, true);
  assert.equal((await page('a', { limit: 5000 })).rows.length, 9);
});

test('the read budget cuts after the row that crosses it', async (t) => {
  const rig = await Rig.open(t, { settings: { readBytesMax: 1000 } });
  for (const key of ['a', 'b', 'c', 'd']) await rig.write(put(key, ['x'.repeat(496)]));
  const [many] = await rig.loose(getMany('d', 'a', 'gone', 'b', 'c'));
  assert.deepEqual(keysOf(many.rows), ['a', 'b', 'c'], '500, 1000, and the one that crosses');
  assert.deepEqual(many.missing, ['gone']);
  assert.equal(many.truncated, true);
  for (const key of ['p1', 'p2', 'p3', 'p4']) await rig.write(put(key, ['x'.repeat(496)]));
  const [page, more] = await rig.loose(getPrefix('p'), getPrefix('p', { after: 'p3' }));
  assert.deepEqual(keysOf(page.rows), ['p1', 'p2', 'p3']);
  assert.deepEqual([page.truncated, page.nextAfter], [true, 'p3']);
  assert.deepEqual(keysOf(more.rows), ['p4'], 'a page always makes progress');
  const [names] = await rig.loose(getPrefix('p', { keysOnly: true }));
  assert.equal(names.rows.length, 4);
});

test('required: the whole call is undone, and the winner is told', async (t) => {
  const rig = await Rig.open(t);
  const { version } = await rig.write(put('z', 1));
  const lost = await rig.lost(put('a', 1), putIfAbsent('z', 2, { required: true }), put('zz', 1));
  assert.deepEqual(lost, { failedIndex: 1, reason: 'exists', version, value: '1' });
  assert.equal(await rig.get('a'), null);
  assert.equal(await rig.get('zz'), null);
  assert.deepEqual(await rig.lost(put('q', 1, { expect: 5, required: true })), {
    failedIndex: 0,
    reason: 'absent',
    version: 0,
    value: null,
  });
  assert.deepEqual(
    (await rig.lost(put('a', 1), remove('nope', { required: true }), incr('a2', 1))).failedIndex,
    1,
  );
  assert.equal((await rig.lost(incr('z', 1, { max: '1', required: true }))).reason, 'limit');
  const applied = (await rig.results(
    put('a', 1),
    put('z', 2, { expect: version, required: true }),
  )) as Written[];
  assert.deepEqual(
    applied.map((result) => result.applied),
    [true, true],
  );
});

test('namespaces and tenants do not see each other', async (t) => {
  const rig = await Rig.open(t);
  const other = '00000000-0000-0000-0000-0000000000aa';
  await rig.write(put('a', 1));
  await rig.write(put('a', 2, { ns: 'm' }));
  await rig.call([put('a', 3), put('b', 3)], other);
  assert.equal(await rig.value('a'), '1');
  assert.deepEqual(await rig.kv.kvNamespaces('00000000-0000-0000-0000-000000000001'), [
    { namespace: 'm', keys: 1 },
    { namespace: NS, keys: 1 },
  ]);
  assert.deepEqual(await rig.kv.kvNamespaces(other), [{ namespace: NS, keys: 2 }]);
});

test('a console page shows expired keys when asked', async (t) => {
  const rig = await Rig.open(t);
  await rig.write(put('a', 1, { life: 5 }));
  await rig.write(put('b', [2]));
  await rig.test.advanceClock(6);
  const list = (more = {}) =>
    rig.kv.kvList({
      tenant: '00000000-0000-0000-0000-000000000001',
      namespace: NS,
      prefix: '',
      after: null,
      limit: null,
      keysOnly: false,
      includeExpired: false,
      ...more,
    });
  const page = await list();
  assert.deepEqual(
    page.rows.map((row) => [row.key, row.value, row.expired]),
    [['b', '[2]', false]],
  );
  assert.equal(page.bytes, 3);
  const all = await list({ includeExpired: true, limit: 1 });
  assert.deepEqual(
    all.rows.map((row) => [row.key, row.expired]),
    [['a', true]],
  );
  assert.deepEqual([all.truncated, all.nextAfter], [true, 'a']);
  assert.deepEqual((await list({ namespace: 'unknown' })).rows, []);
  assert.equal((await list({ keysOnly: true })).bytes, 0);
});
