import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import type { News } from '../../src/engine/wake/payload.ts';
import { Peers } from '../../src/engine/wake/peers.ts';
import { type Database, statement } from '../../src/store/database.ts';
import { silentLog } from '../../src/store/log.ts';

const until = async (condition: () => boolean) => {
  while (!condition()) await new Promise((r) => setTimeout(r, 2));
};

function peer(db: Database, sender: string, t: { after(fn: () => Promise<void>): void }) {
  const heard: News[] = [];
  const gaps: boolean[] = [];
  let session: Awaited<ReturnType<Database['session']>> | null = null;
  const peers = new Peers({
    session: async () => {
      session = await db.session();
      return session;
    },
    sender,
    clock: systemClock,
    log: silentLog,
    onNews: (news) => void heard.push(news),
    onGap: (again) => void gaps.push(again),
  });
  t.after(() => peers.stop());
  return { peers, heard, gaps, pid: () => session?.processId };
}

const cut = statement('peers_cut', 'SELECT pg_terminate_backend($1::int) AS done');

test('news reach the others, gathered, and never oneself', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const [a, b] = [peer(db, 'a', t), peer(db, 'b', t)];
  await Promise.all([a.peers.start(), b.peers.start()]);
  for (let i = 0; i < 1_000; i++) a.peers.appended(DEFAULT_TENANT, 'q', i % 10, i);
  a.peers.released(3, 'g', 17);
  a.peers.queueDeleted(DEFAULT_TENANT, 'gone');
  a.peers.repairsPublished();
  await until(() => b.heard.length > 0);
  const news = b.heard[0]!;
  assert.deepEqual(news.appended[0]?.pairs.length, 20, 'the newest offset of each partition');
  assert.ok(news.appended[0]?.pairs.includes(999));
  assert.deepEqual(news.released, [{ group: 'g', partitionId: 3, committed: 17 }]);
  assert.deepEqual(news.deleted, [{ tenant: DEFAULT_TENANT, queue: 'gone' }]);
  assert.equal(news.repairs, true);
  assert.equal(a.heard.length, 0);
  // The listener may hear before the sender knows that it has sent.
  await until(() => a.peers.counters.sent > 0);
  assert.equal(a.peers.counters.sent, 1);
});

test('too many partitions are reduced to the name of their queue', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const [a, b] = [peer(db, 'a', t), peer(db, 'b', t)];
  await Promise.all([a.peers.start(), b.peers.start()]);
  for (let i = 0; i < 5_000; i++) a.peers.appended(DEFAULT_TENANT, 'many', i, 1);
  a.peers.appended(DEFAULT_TENANT, 'few', 1, 1);
  await until(() => b.heard.length > 0);
  assert.deepEqual(
    b.heard.flatMap((n) => n.appended).map(({ queue, pairs }) => [queue, pairs]),
    [
      ['many', []],
      ['few', [1, 1]],
    ],
  );
});

test('a lost connection comes back, and says that something may have been missed', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const [a, b] = [peer(db, 'a', t), peer(db, 'b', t)];
  await Promise.all([a.peers.start(), b.peers.start()]);
  assert.deepEqual(b.gaps, [false]);
  await db.query(cut, [b.pid()!]);
  await until(() => b.gaps.length === 2);
  assert.deepEqual(b.gaps, [false, true]);
  assert.equal(b.peers.counters.losses, 1);
  a.peers.appended(DEFAULT_TENANT, 'q', 1, 1);
  await until(() => b.heard.length > 0);
});

test('connecting is tried until it works', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  let fails = 3;
  const gaps: boolean[] = [];
  const peers = new Peers({
    session: () => (fails-- > 0 ? Promise.reject(new Error('no')) : db.session()),
    sender: 'a',
    clock: systemClock,
    log: silentLog,
    onNews() {},
    onGap: (again) => void gaps.push(again),
  });
  t.after(() => peers.stop());
  await peers.start();
  assert.equal(peers.connected, false);
  peers.appended(DEFAULT_TENANT, 'q', 1, 1);
  await until(() => peers.connected);
  assert.deepEqual(gaps, [false]);
});
