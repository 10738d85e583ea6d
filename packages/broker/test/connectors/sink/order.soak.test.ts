/** Two units of one sink with several workers each, while all that a worker relies on fails: what arrives, and in which order. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Chance, seeded } from '../../../../../test/faults/seed.ts';
import type { BrokerFace } from '../../../src/engine/types.ts';
import { type RunningUnit, SinkRig, sharedServer } from './rig.ts';

const server = sharedServer({ before, after });
const MESSAGES = 3_000;
const PARTITIONS = 23;
const LEASE_SECONDS = 5;
/** What the table refuses. */
const isBad = (n: number) => n % 97 === 13;
const TERMINATE = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND application_name LIKE '%sink:%' AND random() < 0.5`;

test('each message once and in the order of its partition, whatever is lost', async (t) => {
  const chance = seeded(t);
  const rig = await SinkRig.open(t, server());
  await rig.sql(
    `CREATE TABLE trail (at bigint GENERATED ALWAYS AS IDENTITY, p text, n int CHECK (n % 97 <> 13))`,
  );
  const start = () =>
    rig.start(
      { table: 'trail', mode: 'append', maxAttempts: 2, batch: 20, workers: 3, leaseSeconds: LEASE_SECONDS },
      { broker: unreliable(rig, chance.fork('broker')) },
    );
  const units: RunningUnit[] = [start(), start()];
  let pushing = true;
  const chaos = (async () => {
    const nemesis = chance.fork('nemesis');
    while (pushing) {
      await sleep(nemesis.integer(300, 1_200));
      const which = nemesis.integer(0, 3);
      if (which < 2) await rig.sql(TERMINATE);
      else if (which === 2) await server().store.advanceClock(LEASE_SECONDS + 1);
      else {
        const at = nemesis.integer(0, 1);
        await units[at]!.stop();
        units[at] = start();
      }
    }
  })();
  const counts = await pushAll(rig, chance.fork('load'));
  pushing = false;
  await chaos;
  await rig.drained();

  const found = new Map<string, number[]>();
  for (const { p, n } of await rig.sql('SELECT p, n FROM trail ORDER BY at')) {
    found.set(p as string, [...(found.get(p as string) ?? []), n as number]);
  }
  let bad = 0;
  for (const [partition, count] of counts) {
    const all = Array.from({ length: count }, (_, n) => n);
    const good = all.filter((n) => !isBad(n));
    bad += count - good.length;
    assert.deepEqual(found.get(partition) ?? [], good, partition);
  }
  assert.equal((await rig.letters()).length, bad);
  await Promise.all(units.map((unit) => unit.stop()));
  assert.equal(await rig.held(), 0, 'leases are left');
});

/** Acks that are lost on the way there or back, or come late, and leases that are not renewed. */
function unreliable(rig: SinkRig, chance: Chance): Pick<BrokerFace, 'ack' | 'extend'> {
  return {
    async ack(request) {
      const fate = chance.fraction();
      if (fate < 0.3) await sleep(chance.integer(0, 500));
      if (fate < 0.15) throw new Error('lost on the way there');
      const answer = await rig.broker.ack(request);
      if (fate > 0.85) throw new Error('lost on the way back');
      return answer;
    },
    async extend(...request) {
      return chance.chance(0.5) ? { renewed: 0, expiresAtMicros: null } : rig.broker.extend(...request);
    },
  };
}

/** Numbers from 0 on in each partition. Answers how many each has. */
async function pushAll(rig: SinkRig, chance: Chance): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for (let pushed = 0; pushed < MESSAGES; pushed += 100) {
    await rig.push(
      Array.from({ length: 100 }, () => {
        const p = `p${Math.floor(chance.fraction() * chance.fraction() * PARTITIONS)}`;
        const n = counts.get(p) ?? 0;
        counts.set(p, n + 1);
        return [p, { p, n }] as const;
      }),
    );
    await sleep(chance.integer(0, 300));
  }
  return counts;
}
