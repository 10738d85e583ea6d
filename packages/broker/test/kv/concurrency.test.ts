import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../../../../test/kit/until.ts';
import { sql } from '../push/fixture.ts';
import { get, incr, NS, put, putIfAbsent, Rig, remove, type Written } from './fixture.ts';

async function two(t: Parameters<typeof Rig.open>[0]): Promise<[Rig, Rig]> {
  const rig = await Rig.open(t);
  return [rig, await Rig.on(t, rig.test)];
}

test('of many simultaneous putIfAbsent exactly one is applied, and the others see its value', async (t) => {
  const rigs = await two(t);
  for (let round = 0; round < 5; round++) {
    const written = await Promise.all(
      Array.from({ length: 24 }, (_, i) => rigs[i % 2]!.write(putIfAbsent(`k${round}`, i, { life: 100 }))),
    );
    const winners = written.filter((result) => result.applied);
    assert.equal(winners.length, 1);
    for (const loser of written) {
      if (loser.applied) continue;
      assert.deepEqual(
        [loser.reason, loser.value, loser.version],
        ['exists', winners[0]!.value, winners[0]!.version],
      );
    }
  }
});

test('an expired key is taken by exactly one of many', async (t) => {
  const rigs = await two(t);
  await rigs[0].write(put('k', '"old"', { life: 1 }));
  await rigs[0].test.advanceClock(2);
  const sweeping = rigs[0].expiry.pass();
  const written = await Promise.all(
    Array.from({ length: 16 }, (_, i) => rigs[i % 2]!.write(putIfAbsent('k', i))),
  );
  assert.equal(written.filter((result) => result.applied).length, 1);
  await sweeping;
  await rigs[1].expiry.pass();
  assert.ok(await rigs[0].get('k'), 'the sweep spares a key that lives again');
});

test('increments of many clients add up, and bounds hold', async (t) => {
  const rigs = await two(t);
  const sums = await Promise.all(
    Array.from({ length: 60 }, (_, i) => rigs[i % 2]!.write(incr('c', '0.1', { max: '4' }))),
  );
  const applied = sums.filter((result) => result.applied);
  assert.equal(applied.length, 40);
  assert.equal(new Set(applied.map((result) => result.value)).size, 40);
  assert.equal(new Set(applied.map((result) => result.version)).size, 40);
  assert.ok(sums.every((result) => result.applied || result.reason === 'limit'));
  assert.equal(await rigs[0].value('c'), '4.0');
});

test('compare-and-set loops of many clients lose no update', async (t) => {
  const rigs = await two(t);
  await rigs[0].write(put('r', 0));
  await Promise.all(
    Array.from({ length: 8 }, async (_, client) => {
      const rig = rigs[client % 2]!;
      let seen = await rig.get('r');
      for (let done = 0; done < 6; ) {
        const next = Number(seen!.value) + 1;
        const result: Written = await rig.write(put('r', next, { expect: seen!.version }));
        if (result.applied) done++;
        // One round trip is enough: the loser hears what won.
        seen = { ...seen!, value: result.value!, version: result.version };
      }
    }),
  );
  assert.equal(await rigs[0].value('r'), '48');
});

test('calls over the same keys in any order never deadlock', async (t) => {
  const rigs = await two(t);
  const keys = ['a', 'b', 'c', 'd', 'e', 'f'];
  await Promise.all(
    Array.from({ length: 60 }, (_, i) => {
      const mine = [...keys].sort(() => Math.random() - 0.5).slice(0, 4);
      const kinds = [put, (key: string) => incr(key, 1), (key: string) => remove(key), get];
      return rigs[i % 2]!.call(mine.map((key, j) => kinds[(i + j) % 4]!(key, i)));
    }),
  );
});

test('absence is held: of two calls that each need the other one’s key absent only one applies', async (t) => {
  const rigs = await two(t);
  for (let round = 0; round < 10; round++) {
    await sql(rigs[0].db, 'DELETE FROM queen.kv');
    const free = (key: string) => remove(key, { expect: 0, required: true });
    const answers = await Promise.all([
      rigs[0].call([free('x'), put('y', 1)]),
      rigs[1].call([put('x', 1), free('y')]),
    ]);
    const applied = answers.filter((answer) => answer.ok).length;
    const [rows] = await sql<{ n: number }>(rigs[0].db, 'SELECT count(*) AS n FROM queen.kv');
    assert.ok(applied >= 1);
    assert.equal(rows!.n, applied, 'never both');
    assert.ok(applied === 1, `round ${round}: both were applied`);
  }
});

test('a get and a put of one key in one call are an exchange', async (t) => {
  const rigs = await two(t);
  const taken = await Promise.all(
    Array.from({ length: 30 }, async (_, i) => {
      const [before] = await rigs[i % 2]!.loose(get('k'), put('k', i));
      return before.entry === null ? null : Number(before.entry.value);
    }),
  );
  const last = Number(await rigs[0].value('k'));
  assert.deepEqual(
    [...taken, last].sort((a, b) => (a ?? -1) - (b ?? -1)),
    [null, ...Array.from({ length: 30 }, (_, i) => i)],
    'every value was seen once',
  );
});

test('versions are never used twice, over keys and brokers', async (t) => {
  const rigs = await two(t);
  const written = await Promise.all(
    Array.from({ length: 80 }, (_, i) => rigs[i % 2]!.write(put(`k${i % 7}`, i, { ns: i % 3 ? NS : 'm' }))),
  );
  assert.equal(new Set(written.map((result) => result.version)).size, 80);
});

test('the sweep deletes what has expired, waits for nobody, and knows when to come again', async (t) => {
  const [rig] = await two(t);
  for (let i = 0; i < 30; i++) await rig.write(put(`t${i}`, i, { life: 10 + (i % 2) * 100 }));
  await rig.write(put('forever', 1));
  await rig.test.advanceClock(11);
  let sweep = await rig.db.transaction(async (tx) => {
    await sql(tx, "SELECT FROM queen.kv WHERE key = 't0' FOR UPDATE");
    return rig.expiry.pass();
  });
  assert.equal(sweep.deleted, 14, 'the row that somebody holds is left');
  sweep = await rig.expiry.pass();
  assert.equal(sweep.deleted, 1);
  assert.ok(sweep.waitMs! > 90_000 && sweep.waitMs! <= 100_000, `${sweep.waitMs}`);
  await rig.test.advanceClock(100);
  rig.expiry.start();
  rig.expiry.written(20);
  await until('the loop has swept', async () => {
    const [row] = await sql<{ n: number }>(rig.db, 'SELECT count(*) AS n FROM queen.kv');
    return row!.n === 1;
  });
  await rig.expiry.stop();
  assert.equal((await rig.expiry.pass()).waitMs, null);
});
