/** When units travel together, in which order, and how many at a time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import { until } from '../../../../test/kit/until.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { provision } from '../../src/store/push.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';
import { gate, hooked, item, lengthOf, push, pushIds, QUEUE, Rig, sql, statuses } from './fixture.ts';

/** Segments of each append, as they were sent. */
function appends(rig: Rig, hold?: () => Promise<void>) {
  const sizes: number[] = [];
  const db = hooked(rig.db, {
    async before(statement, params) {
      if (statement !== 'push_append') return;
      sizes.push(lengthOf(params[0]));
      await hold?.();
    },
  });
  return { db, sizes };
}

test('a lane has one flush in flight; what comes meanwhile goes together in the next', async (t) => {
  const rig = await Rig.open(t);
  const { opened, open } = gate();
  const { db, sizes } = appends(rig, () => opened);
  const path = rig.path({ db });
  const first = pushIds(path, ['a0']);
  await until('the first is under way', () => sizes.length === 1);
  const rest = Array.from({ length: 20 }, (_, i) => pushIds(path, [`b${i}`, `c${i}`]));
  // Another lane does not wait for this one.
  const other = pushIds(path, ['x'], 'other');
  await until('the other lane is under way', () => sizes.length === 2);
  open();
  await Promise.all([first, other, ...rest]);
  assert.deepEqual(sizes, [1, 1, 1]);
  const report = await assertLogInvariants(rig.db);
  assert.deepEqual(
    report.messages.get((await rig.partition()).id)!.map((m) => m.transactionId),
    ['a0', ...Array.from({ length: 20 }, (_, i) => [`b${i}`, `c${i}`]).flat()],
  );
});

test('ready lanes share a transaction, sixteen at most', async (t) => {
  const rig = await Rig.open(t);
  const names = Array.from({ length: 40 }, (_, i) => `p${i}`);
  await provision(
    rig.db,
    DEFAULT_TENANT,
    names.map((partition) => ({ queue: QUEUE, partition })),
  );
  const { db, sizes } = appends(rig);
  const path = rig.path({ db });
  const all = await push(
    path,
    names.map((partition) => item('a', { partition })),
  );
  assert.deepEqual(statuses(all), Array(40).fill('queued'));
  assert.deepEqual(sizes, [16, 16, 8]);
  // Bundles that cannot start stay ready: what joins meanwhile fills them up.
  const { opened, open } = gate();
  const held = appends(rig, () => opened);
  const narrow = rig.path({ db: held.db, fusion: { flightsMax: 1 } });
  const early = pushIds(narrow, ['b'], 'p0');
  await until('the first is under way', () => held.sizes.length === 1);
  const late = names.slice(1, 11).map((partition) => pushIds(narrow, ['b'], partition));
  open();
  await Promise.all([early, ...late]);
  assert.deepEqual(held.sizes, [1, 10]);
});

test('what arrives while a bundle waits for its slot goes along', async (t) => {
  const rig = await Rig.open(t);
  const { db, sizes } = appends(rig);
  const { opened, open } = gate();
  const path = rig.path({
    db,
    admission: {
      async run(_lane, work) {
        await opened;
        return work();
      },
    },
  });
  const pushes = [pushIds(path, ['a'])];
  await new Promise((resolve) => setImmediate(resolve));
  pushes.push(pushIds(path, ['b']), pushIds(path, ['c']));
  open();
  const results = (await Promise.all(pushes)).flat();
  assert.deepEqual(sizes, [1]);
  assert.deepEqual(
    results.map((r) => r.offset),
    [0, 1, 2],
  );
});

test('a segment and a bundle end at their caps; the rest goes into the next flush', async (t) => {
  const rig = await Rig.open(t);
  await provision(
    rig.db,
    DEFAULT_TENANT,
    ['Default', 'p'].map((partition) => ({ queue: QUEUE, partition })),
  );
  const big = (id: string, bytes: number, partition = 'Default') =>
    item(id, { partition, payload: Buffer.from(JSON.stringify('x'.repeat(bytes))) });
  const segments = async () =>
    (
      await sql<{ n: number }>(
        rig.db,
        `SELECT s.end_offset - s.base_offset + 1 AS n FROM queen.log_segments s
           JOIN queen.log_partitions p ON p.id = s.partition_id JOIN queen.queues q ON q.id = p.queue_id
          ORDER BY s.partition_id, s.base_offset`,
      )
    ).map((row) => row.n);
  const byBytes = rig.path({ fusion: { segmentBytesMax: 5_000 } });
  await Promise.all(['a', 'b', 'c', 'd', 'e'].map((id) => push(byBytes, [big(id, 2_000)])));
  assert.deepEqual(await segments(), [2, 2, 1]);
  // One unit alone may be larger than the cap: it is stored whole.
  await push(
    byBytes,
    ['f', 'g', 'h', 'i'].map((id) => big(id, 2_000)),
  );
  assert.deepEqual((await segments()).at(-1), 4);

  await sql(rig.db, 'DELETE FROM queen.queues');
  const byFrames = rig.path({ fusion: { segmentFramesMax: 3 } });
  await Promise.all(['a', 'b', 'c', 'd'].map((id) => pushIds(byFrames, [id, `${id}${id}`])));
  assert.deepEqual(await segments(), [2, 2, 2, 2]);

  await sql(rig.db, 'DELETE FROM queen.queues');
  const { db, sizes } = appends(rig);
  const byBundle = rig.path({ db, fusion: { segmentBytesMax: 5_000 } });
  await push(
    byBundle,
    ['p', 'q', 'r'].map((partition) => big('a', 3_000, partition)),
  );
  assert.deepEqual(sizes, [1, 1, 1]);
});

test('a new lane and a slow cache hold up nobody else', async (t) => {
  const rig = await Rig.open(t);
  await pushIds(rig.path(), ['a']);
  const { id } = await rig.partition();
  const slow = gate();
  const db = hooked(rig.db, {
    async before(statement, params) {
      // Looking for the new lane takes for ever.
      if (statement === 'push_provision' && lengthOf(params[2]) === 1 && String(params[2]).includes('new'))
        await slow.opened;
    },
  });
  const path = rig.path({
    db,
    fusion: {},
    dedup: {
      prepare: (partitionId) => (partitionId === id ? slow.opened : Promise.resolve()),
      vouch: () => -1,
      committed() {},
      forget() {},
    },
  });
  const waiting = [pushIds(path, ['b'], 'new'), pushIds(path, ['b'])];
  await pushIds(path, ['a'], 'brisk');
  await pushIds(path, ['b'], 'brisk');
  slow.open();
  assert.deepEqual((await Promise.all(waiting)).map(statuses), [['queued'], ['queued']]);
});

test('draining refuses newcomers and waits for the rest', async (t) => {
  const rig = await Rig.open(t);
  const { opened, open } = gate();
  const { db, sizes } = appends(rig, () => opened);
  const path = rig.path({ db });
  const pushes = [pushIds(path, ['a'])];
  await until('the first is under way', () => sizes.length === 1);
  pushes.push(pushIds(path, ['b']));
  let drained = false;
  const drain = path.drain().then(() => {
    drained = true;
  });
  await assert.rejects(pushIds(path, ['c']), { kind: 'unavailable', code: 'stopping' });
  assert.equal(drained, false);
  open();
  await drain;
  assert.deepEqual((await Promise.all(pushes)).map(statuses), [['queued'], ['queued']]);
  assert.equal(path.stats().lanes, 0);
});

test('while a bundle is under way, the next one waits until it is full, or for the hold', async (t) => {
  const rig = await Rig.open(t);
  const names = Array.from({ length: 30 }, (_, i) => `p${i}`);
  await provision(
    rig.db,
    DEFAULT_TENANT,
    names.map((partition) => ({ queue: QUEUE, partition })),
  );
  const { opened, open } = gate();
  const { db, sizes } = appends(rig, () => opened);
  const clock = new FakeClock();
  const path = rig.path({ db, clock, fusion: { holdMs: 3 } });
  const one = (partition: string) => pushIds(path, ['a'], partition);
  const pushes = [one('p0')];
  await until('nothing else is under way: at once', () => sizes.length === 1);
  for (let i = 1; i < 16; i++) pushes.push(one(`p${i}`));
  await until('they are ready', () => path.stats().ready === 15);
  clock.advance(2);
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(sizes, [1]);
  pushes.push(one('p16'));
  await until('sixteen are a full bundle', () => sizes.length === 2);
  pushes.push(one('p17'), one('p18'));
  await until('they are ready', () => path.stats().ready === 2);
  clock.advance(2);
  assert.equal(path.stats().ready, 2);
  clock.advance(1);
  await until('the hold is over', () => sizes.length === 3);
  assert.deepEqual(sizes, [1, 16, 2]);
  pushes.push(one('p19'));
  await until('it is ready', () => path.stats().ready === 1);
  open();
  await until('a landing lets go what is held', () => sizes.length === 4);
  await Promise.all(pushes);
});
