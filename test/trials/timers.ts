/**
 * Many timers, two brokers, and one of them killed again and again: each timer becomes exactly one message, with the id that
 * its scheduling answered, not before its time, and how late is told. In a short form in timers.test.ts, in its full form
 * in timers.soak.test.ts.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '../broker/client.ts';
import { type Chance, seeded } from '../faults/seed.ts';
import { SupervisedBroker } from '../faults/supervisor.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { FRUGAL } from './rig.ts';

export interface TimersPlan {
  timers: number;
  /** Over which they fall due. */
  spreadMs: number;
  killEveryMs: number;
  /** How long a broker that dies keeps others from what it had claimed. */
  leaseMs: number;
}

interface Scheduled {
  messageId: string;
  deliverAt: string;
}

const BATCH = 200;
const LANES = 50;
/** Long enough for a schedule whose answer was lost to be sent again before it can have fired. */
const DELAY_MIN_MS = 3_000;
/** Beyond lease and pauses, on a machine that does other things. */
const GRACE_MS = 10_000;

export async function timersUnderFire(
  t: Cleanup & { diagnostic(text: string): void },
  plan: TimersPlan,
): Promise<void> {
  const chance = seeded(t);
  const database = await freshDatabase(t);
  const env = { ...FRUGAL, QUEEN_KV_WRITES_PER_SEC: '0', QUEEN_SWEEPER_LEASE_MS: String(plan.leaseMs) };
  const brokers = await Promise.all(
    ['one', 'two'].map((name) => SupervisedBroker.start({ name, database, env }, t)),
  );
  const began = performance.now();
  const until = began + DELAY_MIN_MS + plan.spreadMs;
  let over = false;
  const killer = (async () => {
    for (let kills = 0; ; kills++) {
      await sleep(plan.killEveryMs);
      if (over || performance.now() > until) return kills;
      const broker = brokers[kills % 2]!;
      // The other one is up: somebody always sweeps, as in a rolling failure.
      await brokers[(kills + 1) % 2]!.settled();
      await broker.settled();
      await broker.kill();
    }
  })();

  const scheduled = await scheduleAll(brokers, plan, chance.fork('schedule'), until);
  const db = await database.open({ poolSize: 1 });
  const deadline = until + plan.leaseMs + GRACE_MS + 20_000;
  const pending = { name: '', text: 'SELECT count(*) AS count FROM queen.log_timers' };
  while ((await db.query<{ count: number }>(pending))[0]!.count > 0) {
    assert.ok(performance.now() < deadline, 'timers are pending long after their time');
    await sleep(100);
  }
  over = true;
  const kills = await killer;
  const { messages } = await assertLogInvariants(db);
  await db.close();

  const lateness: number[] = [];
  const seen = new Set<string>();
  for (const { id, createdAtMicros } of [...messages.values()].flat()) {
    assert.ok(!seen.has(id), `message ${id} is there twice`);
    seen.add(id);
    const timer = scheduled.get(id);
    assert.ok(timer !== undefined, `message ${id} was never announced, or was replaced`);
    lateness.push((createdAtMicros - micros(timer.deliverAt)) / 1000);
  }
  assert.equal(seen.size, plan.timers, 'some timers have no message');
  lateness.sort((a, b) => a - b);
  const at = (rank: number) => lateness[Math.max(0, Math.ceil(rank * lateness.length) - 1)]!;
  t.diagnostic(
    `${plan.timers} timers, ${kills} kills; late: p50 ${at(0.5).toFixed(0)} ms, p90 ${at(0.9).toFixed(0)} ms, p99 ${at(0.99).toFixed(0)} ms, at most ${at(1).toFixed(0)} ms`,
  );
  assert.ok(at(0) >= 0, 'a timer came before its time');
  assert.ok(kills > 0);
  assert.ok(at(1) < plan.leaseMs + GRACE_MS, `a timer came ${at(1)} ms late`);
  assert.deepEqual(
    brokers.flatMap((broker) => broker.unexpected),
    [],
  );
}

/** By message id, what was answered last for each. */
async function scheduleAll(
  brokers: readonly SupervisedBroker[],
  plan: TimersPlan,
  chance: Chance,
  until: number,
): Promise<Map<string, Scheduled>> {
  const clients = brokers.map(({ url }) => new Client(url));
  const scheduled = new Map<string, Scheduled>();
  for (let from = 0; from < plan.timers; from += BATCH) {
    const count = Math.min(BATCH, plan.timers - from);
    const left = Math.max(0, until - performance.now() - DELAY_MIN_MS);
    const operations = Array.from({ length: count }, (_, i) => ({
      op: 'schedule',
      queue: 'trial',
      timerKey: `k${from + i}`,
      partition: `p${(from + i) % LANES}`,
      txn: `t${from + i}`,
      payload: Buffer.from(JSON.stringify({ n: from + i })).toString('base64'),
      delayMs: DELAY_MIN_MS + chance.integer(0, Math.floor(left)),
    }));
    for (let tries = 0; ; tries++) {
      try {
        const { status, body } = await clients[(from / BATCH + tries) % 2]!.call<{ results: Scheduled[] }>(
          'POST',
          '/api/v1/timers',
          { operations },
        );
        assert.equal(status, 200, JSON.stringify(body));
        for (const { messageId, deliverAt } of body.results)
          scheduled.set(messageId, { messageId, deliverAt });
        break;
      } catch (error) {
        // Killed under the call: whether it was carried out nobody knows, and sending it again replaces it.
        if (tries > 50) throw error;
        await sleep(20);
      }
    }
  }
  return scheduled;
}

function micros(iso: string): number {
  return Date.parse(`${iso.slice(0, 19)}Z`) * 1000 + Number(iso.slice(20, 26));
}
