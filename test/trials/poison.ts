/**
 * Workers of a sink that write the same rows in different orders, from lanes whose batches begin, go on and end with a
 * message that no table takes.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '../broker/client.ts';
import { Upstream, type UpstreamDatabase } from '../kit/upstream.ts';
import { Connected, type Trial } from './connected.ts';

export interface PoisonPlan {
  mode: 'sql' | 'upsert';
  lanes: number;
  /** Of `batch` messages each, in every lane. */
  batches: number;
  batch: number;
  workers: number;
  /** Rows that all lanes write to. */
  rows: number;
  withinMs: number;
}

interface Sent {
  lane: number;
  at: number;
  row: number;
  bad: boolean;
}

const STATEMENT = 'UPDATE t SET n = n + $1::int, times = times + 1 WHERE id = $2::int';

export async function poisoned(t: Trial, plan: PoisonPlan): Promise<void> {
  // Deadlocks are found soon, so that there are many.
  const server = await Upstream.start({ major: 17, settings: { deadlock_timeout: '20ms' } }, t);
  const scene = await Connected.open(t, server);
  const { upstream } = scene;
  await upstream.sql(
    'CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, times int NOT NULL DEFAULT 0, lane int, at int, CHECK (n >= 0))',
  );
  if (plan.mode === 'sql') await upstream.sql(`INSERT INTO t SELECT generate_series(0, ${plan.rows - 1})`);
  const broker = await scene.broker();
  const client = new Client(broker.url);
  const sent: Sent[] = [];
  for (let lane = 0; lane < plan.lanes; lane++) {
    for (let batch = 0; batch < plan.batches; batch++) {
      const messages = Array.from({ length: plan.batch }, (_, i): Sent => {
        const at = batch * plan.batch + i;
        // Up in one lane and down in the next, from anywhere.
        const turn = at * (lane % 2 === 0 ? 1 : plan.rows - 1) + lane * 7;
        const bad = i === 0 || i === plan.batch >> 1 || i === plan.batch - 1;
        return { lane, at, row: turn % plan.rows, bad };
      });
      sent.push(...messages);
      await client.push(
        messages.map((message) => ({
          queue: 'q',
          partition: `lane${lane}`,
          transactionId: idOf(message),
          payload: payloadOf(message),
        })),
      );
    }
  }
  const { mode, workers, batch } = plan;
  const own = mode === 'sql' ? { statement: STATEMENT, params: ['$.n', '$.id'] } : {};
  const from = performance.now();
  await scene.put(broker, 'sink', {
    kind: 'sink',
    connection: scene.connection(),
    sink: { queue: 'q', table: 't', mode, batch, workers, ...own },
  });
  const bad = sent.filter((message) => message.bad);
  await settled(scene, client, bad.length, plan.withinMs);
  const seconds = (performance.now() - from) / 1_000;
  const [stats] = await upstream.sql(
    'SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()',
  );
  const deadlocks = Number(stats!.deadlocks);
  t.diagnostic(
    `${sent.length} messages, ${bad.length} of them bad, ${deadlocks} deadlocks, ${seconds.toFixed(1)} s`,
  );
  const letters = await scene.letters();
  assert.deepEqual(letters.map(({ id }) => id).sort(), bad.map(idOf).sort());
  for (const { id, error } of letters) assert.match(error, /^(22P02|23514): /, id);
  const good = sent.filter((message) => !message.bad);
  if (mode === 'sql') {
    assert.ok(deadlocks > 0, 'nobody was in anybody’s way');
    await assertSums(upstream, good, plan.rows);
  } else {
    await assertLast(upstream, good);
  }
  assert.equal((await broker.stop()).code, 0);
}

function idOf({ lane, at }: Sent): string {
  return `${lane}-${at}`;
}

/** Bad ones in turns: a value of another type, and one that the table forbids. */
function payloadOf({ lane, at, row, bad }: Sent): Record<string, unknown> {
  return { id: row, n: bad ? (at % 3 === 0 ? 'seven' : -1_000_000_000) : at + 1, lane, at };
}

async function settled(scene: Connected, client: Client, letters: number, withinMs: number): Promise<void> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const { body } = await client.call<{
      partitions: { pending: number; processing: number }[];
    }>('GET', '/api/v1/resources/queues/q/depth?group=pg-sink');
    const open = body.partitions.reduce((sum, { pending, processing }) => sum + pending + processing, 0);
    if (open === 0 && (await scene.letters()).length >= letters) return;
    assert.ok(performance.now() < deadline, `${open} messages are left after ${withinMs} ms`);
    await sleep(200);
  }
}

/** Each good message was added once, none of the bad ones. */
async function assertSums(upstream: UpstreamDatabase, good: readonly Sent[], rows: number): Promise<void> {
  const expected = Array.from({ length: rows }, (_, id) => ({ id, n: 0, times: 0 }));
  for (const { row, at } of good) {
    expected[row]!.n += at + 1;
    expected[row]!.times++;
  }
  assert.deepEqual(await upstream.sql('SELECT id, n, times FROM t ORDER BY id'), expected);
}

/** Lanes race for a row; whichever came last, its last good message for that row is what is there. */
async function assertLast(upstream: UpstreamDatabase, good: readonly Sent[]): Promise<void> {
  const last = new Map(good.map((message) => [`${message.row}/${message.lane}`, message.at]));
  const found = await upstream.sql('SELECT id, lane, at, n FROM t ORDER BY id');
  assert.deepEqual(
    found.map(({ id }) => id),
    [...new Set(good.map(({ row }) => row))].sort((one, other) => one - other),
  );
  for (const { id, lane, at, n } of found) {
    assert.deepEqual([at, n], [last.get(`${id}/${lane}`), Number(at) + 1], `row ${id}, lane ${lane}`);
  }
}
