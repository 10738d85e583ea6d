/**
 * A store that takes nothing while the upstream is in the middle of a transaction, for much longer than the upstream waits
 * for a word: the connection stays, and nothing has to be sent again.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { readEvent } from '../faults/change_events.ts';
import { atEnd } from '../kit/cleanup.ts';
import { Upstream } from '../kit/upstream.ts';
import { Connected, type Trial } from './connected.ts';

export interface BlockedPlan {
  rows: number;
  senderTimeoutMs: number;
  blockedMs: number;
}

export async function blockedPush(t: Trial, plan: BlockedPlan): Promise<void> {
  const settings = { wal_sender_timeout: `${plan.senderTimeoutMs}ms` };
  const scene = await Connected.open(t, await Upstream.start({ major: 17, settings }, t));
  await scene.upstream.sql('CREATE TABLE t (id int PRIMARY KEY, pad text NOT NULL)');
  const broker = await scene.broker();
  await scene.source(broker, {
    tables: [{ table: 't', queue: 'q', partitionBy: 'single' }],
    snapshot: 'never',
    maxBundleMessages: 200,
  });
  await scene.reaches(broker, 'streaming');
  /** Who sends, since when, and how long ago it heard of us. */
  const sender = async () => {
    const [row] = await scene.upstream.sql(
      `SELECT s.active_pid AS pid, r.backend_start::text AS since,
              (extract(epoch FROM clock_timestamp() - r.reply_time) * 1000)::float8 AS silent
         FROM pg_replication_slots s LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid WHERE s.slot_name = $1`,
      [scene.slot],
    );
    return row as { pid: number | null; since: string | null; silent: number | null };
  };
  const first = await sender();

  const { hosts, user, database } = scene.store.options;
  const [{ host, port }] = hosts as [{ host: string; port: number }];
  const blocker = new pg.Client({ host, port, user, database });
  blocker.on('error', () => {});
  await blocker.connect();
  atEnd(t, () => blocker.end());
  const inserted = scene.upstream.sql(
    `INSERT INTO t SELECT g, repeat(md5(g::text), 32) FROM generate_series(1, ${plan.rows}) g`,
  );
  await scene.shows(broker, 'it is in the middle', ({ state }) => Boolean(state?.pointer?.inTxn));
  await blocker.query('BEGIN; LOCK TABLE queen.log_segments IN ACCESS EXCLUSIVE MODE');
  await inserted;
  const held = await scene.stored();
  assert.ok(held > 0 && held < plan.rows / 2, `${held} of ${plan.rows} are in: not the middle`);
  const until = performance.now() + plan.blockedMs;
  let silent = 0;
  while (performance.now() < until) {
    await sleep(250);
    const now = await sender();
    assert.deepEqual([now.pid, now.since], [first.pid, first.since], 'the connection was given up');
    silent = Math.max(silent, now.silent ?? Number.POSITIVE_INFINITY);
    assert.equal((await scene.view(broker)).status.phase, 'streaming');
  }
  assert.equal(await scene.stored(), held, 'nothing came through');
  await blocker.query('COMMIT');
  const from = performance.now();
  await scene.arrived(broker, plan.rows, 120_000);
  t.diagnostic(
    `${held} of ${plan.rows} before, silent for ${Math.round(silent)} ms at most, all there ${Math.round(performance.now() - from)} ms after`,
  );
  assert.ok(silent < plan.senderTimeoutMs, `silent for ${silent} ms`);
  const { pid, since } = await sender();
  assert.deepEqual([pid, since], [first.pid, first.since], 'the connection was given up');
  assert.equal(await scene.errors(broker), 0);
  const messages = await scene.messages('q');
  assert.deepEqual(
    messages.map(({ text }) => Number(readEvent(text).after!.get('id'))),
    Array.from({ length: plan.rows }, (_, i) => i + 1),
  );
  assert.equal(new Set(messages.map(({ id }) => id)).size, plan.rows);
  assert.equal((await broker.stop()).code, 0);
}
