/** Many producers, each with bundles over many lanes in an order of its own, half of the lanes not there yet. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Message } from '../broker/client.ts';
import { seeded } from '../faults/seed.ts';
import { names, openRig, percentile, sql } from './rig.ts';

const CLIENTS = 32;
const LANES = 500;
const ROUNDS = 2;
const LANES_A_BUNDLE = 40;
/** How much longer the run may take in which half of the lanes have to be made, against one in which all are there. */
const SLOWER_TIMES = 8;
/** The longest wait for a lock, as a share of a run: in a convoy each waits for nearly everybody. */
const LOCK_WAIT_SHARE = 0.5;

test('bundles over the same lanes, in random order, from many clients of two brokers', async (t) => {
  const chance = seeded(t);
  const rig = await openRig(t, 2);
  const lanes = names('lane', LANES);
  await rig.clients[0]!.push(
    lanes.filter((_, i) => i % 2 === 0).map((partition) => ({ queue: 'wide', partition, payload: null })),
  );

  let sent = LANES / 2;
  const used = new Set(lanes.filter((_, i) => i % 2 === 0));
  const sequence = new Map<string, number>();
  async function produce(client: number, run: string): Promise<number[]> {
    const own = chance.fork(`${run} ${client}`);
    const took: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const picked = own.shuffled(lanes).slice(0, LANES_A_BUNDLE);
      const list = picked.map((partition) => {
        used.add(partition);
        const key = `${client} ${partition}`;
        const n = (sequence.get(key) ?? 0) + 1;
        sequence.set(key, n);
        return { queue: 'wide', partition, transactionId: `${client}.${n}`, payload: { client, n } };
      });
      const began = performance.now();
      const results = await rig.clients[client % 2]!.push(list);
      took.push(performance.now() - began);
      assert.ok(
        results.every(({ status }) => status === 'queued'),
        JSON.stringify(results),
      );
      sent += list.length;
    }
    return took;
  }

  async function run(
    name: string,
  ): Promise<{ ms: number; longestWaitMs: number; median: number; worst: number }> {
    const watch = watchLocks();
    const began = performance.now();
    const took = (await Promise.all(Array.from({ length: CLIENTS }, (_, i) => produce(i, name)))).flat();
    const ms = performance.now() - began;
    return { ms, longestWaitMs: await watch.stop(), median: percentile(took, 0.5), worst: Math.max(...took) };
  }

  /** Looks at who waits for a lock, and for how long, all the time. */
  function watchLocks(): { stop(): Promise<number> } {
    let over = false;
    let longest = 0;
    const watching = (async () => {
      while (!over) {
        const [row] = await sql<{ ms: number | null }>(
          rig.db,
          `SELECT (extract(epoch FROM max(clock_timestamp() - waitstart)) * 1000)::float8 AS ms
             FROM pg_locks WHERE NOT granted AND waitstart IS NOT NULL`,
        );
        longest = Math.max(longest, row!.ms ?? 0);
        await sleep(20);
      }
      return longest;
    })();
    return {
      stop() {
        over = true;
        return watching;
      },
    };
  }

  const making = await run('making');
  const known = await run('known');
  t.diagnostic(`half of the lanes new: ${JSON.stringify(making)}; all there: ${JSON.stringify(known)}`);
  for (const { ms, longestWaitMs } of [making, known]) {
    assert.ok(longestWaitMs <= LOCK_WAIT_SHARE * ms, `${longestWaitMs} ms of ${ms} waited for one lock`);
  }
  assert.ok(making.ms <= SLOWER_TIMES * known.ms, `${making.ms} ms against ${known.ms}`);

  const [server] = await sql<{ deadlocks: number }>(
    rig.db,
    'SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()',
  );
  assert.equal(server!.deadlocks, 0);
  for (const broker of rig.brokers) assert.doesNotMatch(broker.logs(), /40P01|deadlock/);

  // All of it is there, once, and what a client sent to a lane is there in its order.
  const [stored] = await sql<{ lanes: number; messages: number }>(
    rig.db,
    'SELECT count(*)::int AS lanes, sum(last_offset + 1)::int AS messages FROM queen.log_partitions',
  );
  assert.deepEqual(stored, { lanes: used.size, messages: sent });
  const seen = new Map<string, number>();
  let count = 0;
  // What the other broker stored may take a moment to be known here: these pops wait for it.
  const wish = { partitions: 0, batch: 5000, autoAck: true, wait: true, timeout: 5_000 };
  for (let empty = 0; count < sent && empty < 3; ) {
    const batch = await rig.clients[0]!.pop('wide', wish);
    count += batch.length;
    if (batch.length === 0) empty++;
    for (const message of batch) check(seen, message);
  }
  assert.equal(count, sent);
});

function check(seen: Map<string, number>, { partition, data }: Message): void {
  if (data === null) return;
  const { client, n } = data as { client: number; n: number };
  const key = `${client} ${partition}`;
  assert.equal(n, (seen.get(key) ?? 0) + 1, key);
  seen.set(key, n);
}
