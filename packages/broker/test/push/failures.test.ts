/** What goes wrong on the way, what is answered, and that the lane goes on afterwards. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import { startProxy } from '../../../../test/kit/proxy.ts';
import { until } from '../../../../test/kit/until.ts';
import { PendingBytes } from '../../src/engine/admission/pending_bytes.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { EngineError } from '../../src/engine/errors.ts';
import type { Detour, Detoured } from '../../src/engine/push/detour.ts';
import { openPayload, parseSealingKey, sealPayload } from '../../src/log/envelope.ts';
import { unpackSegment } from '../../src/log/segment.ts';
import { StoreError } from '../../src/store/errors.ts';
import { cache, gate, hooked, item, push, pushIds, QUEUE, Rig, sql, statuses } from './fixture.ts';

test('a partition that was removed under a warm memo is made anew', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path({ dedup: cache(rig.db) });
  await pushIds(path, ['a', 'b']);
  const old = await rig.partition();
  await sql(rig.db, 'DELETE FROM queen.log_partitions');
  const [again] = await pushIds(path, ['a']);
  assert.equal(again!.status, 'queued');
  assert.equal(again!.offset, 0);
  const now = await rig.partition();
  assert.notEqual(now.id, old.id);
  assert.equal(again!.partitionId, String(now.id));
  // The whole queue, deleted, made again by somebody else and pushed to at once: nothing of the old one shows.
  await sql(rig.db, 'DELETE FROM queen.queues');
  await rig.window(0);
  const results = await Promise.all([pushIds(path, ['a']), pushIds(path, ['a'])]);
  assert.deepEqual(results.map(statuses), [['queued'], ['queued']]);
  assert.equal(path.stats().missing, 2);
  assert.deepEqual(
    (await pushIds(path, ['a'])).map((r) => r.offset),
    [2],
  );
  await sql(
    rig.db,
    'DELETE FROM queen.log_txns t WHERE NOT EXISTS (SELECT FROM queen.log_partitions p WHERE p.id = t.partition_id)',
  );
  await assertLogInvariants(rig.db);
});

test('a partition that vanishes again and again is given up', async (t) => {
  const rig = await Rig.open(t);
  const db = hooked(rig.db, {
    async before(statement) {
      if (statement === 'push_append') await sql(rig.db, 'DELETE FROM queen.log_partitions');
    },
  });
  const [result] = await pushIds(rig.path({ db }), ['a']);
  assert.equal(result!.status, 'failed');
  assert.match(result!.error!, /^unavailable: /);
});

test('a window that appears while a segment is under way is noticed', async (t) => {
  const rig = await Rig.open(t);
  await rig.window(0);
  let first = true;
  const db = hooked(rig.db, {
    async before(statement) {
      if (statement === 'push_append' && first) {
        first = false;
        await rig.window(3600);
      }
    },
  });
  const path = rig.path({ db, dedup: cache(rig.db) });
  const results = await Promise.all([
    pushIds(path, ['a', 'b']),
    pushIds(path, ['a']),
    pushIds(path, ['c', 'a']),
  ]);
  assert.deepEqual(results.map(statuses), [['queued', 'queued'], ['duplicate'], ['queued', 'duplicate']]);
  assert.equal(results[1]![0]!.messageId, results[0]![0]!.messageId);
  assert.equal(path.stats().windowChanges, 1);
  // And one that goes away, too: the memo learns it from the next append.
  await rig.window(0);
  await pushIds(path, ['d']);
  const open = await Promise.all([pushIds(path, ['a']), pushIds(path, ['a'])]);
  assert.deepEqual(open.map(statuses), [['queued'], ['queued']]);
  await assertLogInvariants(rig.db);
});

test('encryption that somebody switches on is followed at once, whatever is remembered', async (t) => {
  const rig = await Rig.open(t);
  const key = parseSealingKey('5a'.repeat(32))!;
  const keyed = rig.path({ seal: (payload) => sealPayload(key, payload) });
  const spilled: Detoured[] = [];
  const keyless = rig.path({
    detour: { way: () => 'log', keep: async (messages) => void spilled.push(messages) },
  });
  const stored = async () => {
    const rows = await sql<{ blob: Buffer; count: number }>(
      rig.db,
      `SELECT s.blob, (s.end_offset - s.base_offset + 1)::int AS count FROM queen.log_segments s
        ORDER BY s.partition_id, s.base_offset`,
    );
    return (await Promise.all(rows.map(({ blob, count }) => unpackSegment(blob, count)))).flat();
  };
  assert.deepEqual(statuses([...(await pushIds(keyed, ['a'])), ...(await pushIds(keyless, ['b']))]), [
    'queued',
    'queued',
  ]);
  await sql(rig.db, 'UPDATE queen.queues SET encryption_enabled = true');
  const [sealed] = await pushIds(keyed, ['secret-1']);
  assert.equal(sealed!.status, 'queued');
  const refused = await pushIds(keyless, ['secret-2', 'secret-3']);
  assert.deepEqual(statuses(refused), ['failed', 'failed']);
  for (const { error } of refused) assert.match(error!, /^encryption_required/);
  assert.deepEqual(spilled, [], 'nor is it kept in the clear on a disk');
  const frames = await stored();
  assert.deepEqual(
    frames.map((frame) => [frame.transactionId, frame.encrypted]),
    [
      ['a', false],
      ['b', false],
      ['secret-1', true],
    ],
  );
  assert.ok(!frames[2]!.payload.includes('secret-1'));
  assert.equal(openPayload(key, frames[2]!.payload)!.toString(), '{"n":"secret-1"}');
  await assertLogInvariants(rig.db);
});

async function behindProxy(t: TestContext, rig: Rig) {
  const [{ host, port }] = rig.test.options.hosts as [{ host: string; port: number }];
  const proxy = await startProxy({ path: `${host}/.s.PGSQL.${port}` });
  const db = await rig.test.open({ hosts: [{ host: proxy.host, port: proxy.port }], poolSize: 2 });
  t.after(async () => {
    await db.close();
    await proxy.close();
  });
  return { proxy, db };
}

test('an answer that is lost leaves the push in doubt, and its repetition finds out', async (t) => {
  const rig = await Rig.open(t);
  const { proxy, db } = await behindProxy(t, rig);
  const dedup = cache(db);
  const path = rig.path({ db, dedup });
  const [before] = await pushIds(path, ['before']);
  proxy.swallow('to_client');
  const lost = pushIds(path, ['a', 'b']);
  await until('it is committed', async () => (await rig.partition()).last_offset === 2);
  proxy.drop();
  const results = await lost;
  assert.deepEqual(statuses(results), ['failed', 'failed']);
  assert.match(results[0]!.error!, /^in doubt: .*may have been stored/);
  proxy.heal();
  const again = await pushIds(path, ['a', 'b', 'c', 'before']);
  assert.deepEqual(statuses(again), ['duplicate', 'duplicate', 'queued', 'duplicate']);
  assert.deepEqual(
    again.map((r) => r.offset),
    [1, 2, 3, 0],
  );
  assert.equal(again[0]!.messageId, results[0]!.messageId);
  assert.equal(again[3]!.messageId, before!.messageId);
  await assertLogInvariants(rig.db, { windowsNeverRaised: true });
});

test('a backend that is killed in the middle of a flush', async (t) => {
  const rig = await Rig.open(t);
  const db = await rig.test.open({ poolSize: 2, applicationName: 'victim' });
  t.after(() => db.close());
  const path = rig.path({ db });
  await pushIds(path, ['a']);
  const { opened, open } = gate();
  const locked = gate();
  // Somebody holds the partition's row, so the flush is in the middle of it.
  const blocker = rig.db.transaction(async (tx) => {
    await sql(tx, 'SELECT id FROM queen.log_partitions FOR UPDATE');
    locked.open();
    await opened;
  });
  await locked.opened;
  const killed = pushIds(path, ['b', 'c']);
  await until('the flush waits for the lock', async () => {
    const rows = await sql<{ killed: boolean }>(
      rig.db,
      `SELECT pg_terminate_backend(pid) AS killed FROM pg_stat_activity
        WHERE application_name = 'victim' AND wait_event_type = 'Lock' AND query LIKE '%log_push%'`,
    );
    return rows.length > 0;
  });
  const results = await killed;
  assert.deepEqual(statuses(results), ['failed', 'failed']);
  assert.match(results[0]!.error!, /^in doubt: /);
  open();
  await blocker;
  assert.deepEqual(statuses(await pushIds(path, ['b', 'c', 'a'])), ['queued', 'queued', 'duplicate']);
  await assertLogInvariants(rig.db, { windowsNeverRaised: true });
});

test('without a connection nothing is written, and it says so', async (t) => {
  const rig = await Rig.open(t);
  // Opening dials under the same limit: short enough to wait for twice, long enough for a busy machine.
  const db = await rig.test.open({ poolSize: 1, acquireTimeoutMs: 500 });
  t.after(() => db.close());
  const path = rig.path({ db });
  await pushIds(path, ['a']);
  const { opened, open } = gate();
  const hogged = gate();
  const hog = db.transaction(async (tx) => {
    await sql(tx, 'SELECT 1 AS one');
    hogged.open();
    await opened;
  });
  await hogged.opened;
  const results = [...(await pushIds(path, ['b'])), ...(await pushIds(path, ['b'], 'new'))];
  open();
  await hog;
  for (const result of results) {
    assert.equal(result.status, 'failed');
    assert.match(result.error!, /^unavailable: no database connection; nothing was written/);
  }
  assert.deepEqual(statuses(await pushIds(path, ['b', 'a'])), ['queued', 'duplicate']);
  assert.deepEqual(statuses(await pushIds(path, ['b'], 'new')), ['queued']);
});

test('a segment that cannot be stored takes no other down with it', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path({ fusion: {} });
  const names = Array.from({ length: 6 }, (_, i) => `p${i}`);
  const every = (id: string) =>
    push(
      path,
      names.map((partition) => item(id, { partition })),
    );
  await every('a');
  // A leftover where the next segment of p3 would go: its insert breaks the primary key.
  await sql(
    rig.db,
    `INSERT INTO queen.log_txns (partition_id, base_offset, end_offset, created_at, hashes)
     SELECT id, 1, 1, queen.clock() - interval '1 day', '\\x00' FROM queen.log_partitions WHERE name = 'p3'`,
  );
  const results = await every('b');
  assert.deepEqual(statuses(results), ['queued', 'queued', 'queued', 'failed', 'queued', 'queued']);
  assert.match(results[3]!.error!, /^refused: .*23505/);
  await sql(rig.db, 'DELETE FROM queen.log_txns WHERE length(hashes) = 1');
  assert.deepEqual(
    statuses(await every('b')),
    names.map((name) => (name === 'p3' ? 'queued' : 'duplicate')),
  );
  await assertLogInvariants(rig.db, { windowsNeverRaised: true });
});

test('whatever breaks, the lane goes on', async (t) => {
  const rig = await Rig.open(t);
  const faults: (Error | null)[] = [
    new StoreError('unavailable', 'sql', 'deadlock', { sqlState: '40P01' }),
    new StoreError('in_doubt', 'connection', 'lost'),
    new StoreError('refused', 'sql', 'no', { sqlState: '22000' }),
    new TypeError('a bug'),
  ];
  for (const where of ['push_append', 'push_provision', 'push_covering']) {
    for (const fault of faults) {
      let armed = false;
      const db = hooked(rig.db, {
        before(statement) {
          if (!armed || statement !== where) return;
          armed = false;
          throw fault;
        },
      });
      const path = rig.path({ db });
      const lane = `${where}${faults.indexOf(fault)}`;
      await pushIds(path, ['a'], where === 'push_provision' ? 'else' : lane);
      armed = true;
      const results = await pushIds(path, ['a', 'b'], lane);
      assert.ok(
        results.every((r) => r.status === 'failed' && r.error !== null),
        JSON.stringify(results),
      );
      assert.equal(armed, false);
      const after = await pushIds(path, ['a', 'b', 'c'], lane);
      const first = where === 'push_provision' ? 'queued' : 'duplicate';
      assert.deepEqual(statuses(after), [first, 'queued', 'queued'], lane);
      assert.equal(path.stats().lanes, 0);
      assert.equal(path.stats().flights, 0);
    }
  }
  await assertLogInvariants(rig.db);
});

test('what the database does not take can be kept elsewhere, and then nothing overtakes it', async (t) => {
  const rig = await Rig.open(t);
  const kept: Detoured[] = [];
  let way: ReturnType<Detour['way']> = 'log';
  const { opened, open } = gate();
  let broken = true;
  const db = hooked(rig.db, {
    before(statement) {
      if (statement === 'push_append' && broken) throw new StoreError('unavailable', 'pool', 'no connection');
    },
  });
  const path = rig.path({
    db,
    detour: {
      way: () => way,
      keep: async (messages, failed) => {
        kept.push(messages);
        assert.equal(failed, way === 'log');
        await opened;
        if (messages.frames[0]!.transactionId === 'full')
          throw new EngineError('unavailable', 'spool_full', 'full');
      },
    },
  });
  const first = pushIds(path, ['a', 'b', 'a']);
  await until('it is being kept', () => kept.length === 1);
  broken = false;
  const second = pushIds(path, ['c']);
  open();
  const results = await first;
  assert.deepEqual(statuses(results), ['buffered', 'buffered', 'buffered']);
  assert.equal(results[2]!.messageId, results[0]!.messageId);
  assert.deepEqual(
    kept[0]!.frames.map((frame) => frame.transactionId),
    ['a', 'b'],
  );
  assert.equal(kept[0]!.queue, QUEUE);
  assert.deepEqual(statuses(await second), ['queued']);
  broken = true;
  const [full] = await pushIds(path, ['full']);
  assert.deepEqual([full!.status, full!.unkept], ['failed', undefined]);
  assert.match(full!.error!, /^unavailable: no database connection/);

  // Nobody tries while pushes are paused; a lane that has to wait for what lies on disk waits.
  way = 'spool';
  assert.deepEqual(statuses(await pushIds(path, ['d', 'e'])), ['buffered', 'buffered']);
  const [lost] = await pushIds(path, ['full']);
  assert.deepEqual([lost!.status, lost!.unkept], ['failed', true]);
  assert.match(lost!.error!, /^unavailable: full/);
  broken = false;
  const cleared = gate();
  way = cleared.opened.then(() => 'log' as const);
  const waiting = pushIds(path, ['f']);
  const behind = pushIds(path, ['g']);
  // A lane that is ready leaves with the next turn.
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(path.stats().flights, 0);
  cleared.open();
  assert.deepEqual(
    [...(await waiting), ...(await behind)].map(({ status, offset }) => [status, offset]),
    [
      ['queued', 1],
      ['queued', 2],
    ],
  );
  assert.deepEqual(
    kept.map(({ frames }) => frames.map((frame) => frame.transactionId)),
    [['a', 'b'], ['full'], ['d', 'e'], ['full']],
  );
  assert.equal(path.stats().buffered, 4);
});

test('a queue that encrypts takes nothing from a broker without a key', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path();
  await pushIds(path, ['a']);
  await sql(rig.db, 'UPDATE queen.queues SET encryption_enabled = TRUE');
  const [refused] = await pushIds(path, ['c']);
  assert.equal(refused!.status, 'failed');
  assert.match(refused!.error!, /^encryption_required/);
  const sealed = rig.path({ seal: (payload) => Buffer.from(`"${payload.toString('base64')}"`) });
  await pushIds(sealed, ['c', 'd']);
  const report = await assertLogInvariants(rig.db);
  const stored = report.messages.get((await rig.partition()).id)!;
  assert.deepEqual(
    stored.slice(1).map((m) => Buffer.from(JSON.parse(m.payload), 'base64').toString()),
    [item('c').payload.toString(), item('d').payload.toString()],
  );
});

test('too many bytes at once are refused whole, after a moment', async (t) => {
  const rig = await Rig.open(t);
  const { opened, open } = gate();
  const db = hooked(rig.db, { before: (statement) => (statement === 'push_append' ? opened : undefined) });
  const path = rig.path({ db, pending: new PendingBytes({ maxBytes: 10_000, holdMs: 20 }, systemClock) });
  const big = (id: string) => item(id, { payload: Buffer.from(JSON.stringify('x'.repeat(9_000))) });
  const first = push(path, [big('a')]);
  await assert.rejects(push(path, [big('b')]), {
    kind: 'overloaded',
    code: 'overloaded',
    retryAfterSeconds: 1,
  });
  open();
  assert.deepEqual(statuses(await first), ['queued']);
  assert.deepEqual(statuses(await push(path, [big('b')])), ['queued']);
});

test('a bundle of sixteen hundred lanes at once, all new', async (t) => {
  const rig = await Rig.open(t);
  const path = rig.path({ dedup: cache(rig.db) });
  const names = Array.from({ length: 1_600 }, (_, i) => `p${i}`);
  const results = await push(
    path,
    names.map((partition) => item('a', { partition })),
  );
  assert.ok(results.every((r) => r.status === 'queued' && r.offset === 0));
  assert.equal((await assertLogInvariants(rig.db)).messages.size, 1_600);
});
