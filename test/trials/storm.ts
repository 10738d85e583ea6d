/**
 * Database sessions that are ended one after the other, and then a database that is away: how soon is everything at
 * its full rate again? In a short form in storm.test.ts, in its full form in storm.soak.test.ts.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '../broker/client.ts';
import { startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { startProxy } from '../kit/proxy.ts';
import { FRUGAL, openRig, serverOf, sql } from './rig.ts';
import { Traffic } from './traffic.ts';

export interface StormPlan {
  /** A session ends so often. */
  everyMs: number;
  stormMs: number;
  awayMs: number;
}

const BEFORE_MS = 2_000;
/** From the database's return to the first second at full rate. */
const BACK_WITHIN_MS = 5_000;
/** Of the rate before, which has a spread of its own. */
const FULL_SHARE = 0.6;
const SECOND_MS = 1_000;

export async function weather(
  t: Cleanup & { diagnostic(text: string): void },
  plan: StormPlan,
): Promise<void> {
  const rig = await openRig(t, 0);
  const proxy = await startProxy(serverOf(rig.database.options));
  atEnd(t, () => proxy.close());
  const { user, database } = rig.database.options;
  const url = `postgres://${user}@127.0.0.1:${proxy.port}/${database}`;
  const broker = await startBroker({ database: { url }, env: FRUGAL }, t);
  const traffic = new Traffic({
    clients: [new Client(broker.url)],
    queue: 'storm',
    lanes: 4,
    pushers: 3,
    consumers: 2,
    batch: 5,
    pauseMs: 20,
  }).start();

  await sleep(SECOND_MS);
  let from = performance.now();
  await sleep(BEFORE_MS);
  const before = traffic.rates(from);
  assert.ok(before.pushed > 0 && before.settled > 0);

  from = performance.now();
  let ended = 0;
  while (performance.now() < from + plan.stormMs) {
    await sleep(plan.everyMs);
    const rows = await sql(
      rig.db,
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'queen %' ORDER BY random() LIMIT 1`,
    );
    ended += rows.length;
  }
  const during = traffic.rates(from);
  assert.ok(ended > 2, `${ended} sessions were ended`);
  assert.ok(during.pushed > before.pushed / 10, 'work goes on while sessions end');

  proxy.refuse();
  await sleep(plan.awayMs);
  proxy.heal();
  const back = performance.now();
  let backMs: { pushed: number | null; settled: number | null } = { pushed: null, settled: null };
  while (backMs.pushed === null || backMs.settled === null) {
    await sleep(50);
    const now = performance.now();
    if (now - back < SECOND_MS / 2) continue;
    const rates = traffic.rates(Math.max(back, now - SECOND_MS));
    // Whoever waited for the database is served in the first moment: full rate is what a consumer sees as well.
    const since = Math.max(0, now - back - SECOND_MS);
    backMs = {
      pushed: backMs.pushed ?? (rates.pushed >= FULL_SHARE * before.pushed ? since : null),
      settled: backMs.settled ?? (rates.settled >= FULL_SHARE * before.settled ? since : null),
    };
    assert.ok(
      now - back < BACK_WITHIN_MS + SECOND_MS,
      `not at full rate: ${JSON.stringify({ before, rates })}`,
    );
  }

  const missing = await traffic.finish(30_000);
  t.diagnostic(
    JSON.stringify({
      before,
      during,
      ended,
      backMs,
      stored: traffic.stored.size,
      failures: traffic.failures,
    }),
  );
  assert.deepEqual(missing, [], 'nothing is lost');
  const [log] = await sql<{ messages: number }>(
    rig.db,
    'SELECT sum(last_offset + 1)::int AS messages FROM queen.log_partitions',
  );
  assert.equal(log!.messages, traffic.stored.size, 'and nothing is there twice');
  assert.equal((await broker.stop()).code, 0, 'the same process all along');
}
