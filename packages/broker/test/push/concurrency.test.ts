import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertLogInvariants } from '../../../../test/kit/invariants.ts';
import { Admission } from '../../src/engine/admission/admission.ts';
import { systemClock } from '../../src/engine/clock.ts';
import type { PushResult } from '../../src/engine/types.ts';
import { cache, item, push, pushIds, Rig, sql, statuses } from './fixture.ts';

function admission(slots: number): Admission {
  const shares = { push: 0.25, pop: 0.4, ack: 0.3, maintenance: 0.05 };
  return new Admission({ min: slots, max: slots, init: slots, shares, tickMs: 500 }, systemClock);
}

/** Small numbers in a fixed order that looks random. */
function shuffled<T>(values: readonly T[], seed: number): T[] {
  let state = seed * 2654435761 + 1;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  const out = [...values];
  for (let i = out.length - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1));
    [out[i], out[j]] = [out[j]!, out[i]!];
  }
  return out;
}

test('a hundred pushes of one id over two brokers: one is stored, the others name it', async (t) => {
  const rig = await Rig.open(t, { poolSize: 16 });
  const paths = [0, 1].map(() => rig.path({ dedup: cache(rig.db), admission: admission(8) }));
  for (const lane of ['cold', 'warm']) {
    if (lane === 'warm') for (const path of paths) await pushIds(path, [`seed${paths.indexOf(path)}`], lane);
    const pushes: Promise<PushResult[]>[] = [];
    for (let i = 0; i < 100; i++) {
      pushes.push(pushIds(paths[i % 2]!, ['one'], lane));
      // Some together, some apart: fused ones and ones that meet in the database.
      if (i % 7 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const results = (await Promise.all(pushes)).flat();
    assert.equal(results.filter((r) => r.status === 'queued').length, 1);
    assert.equal(results.filter((r) => r.status === 'duplicate').length, 99);
    assert.equal(new Set(results.map((r) => r.messageId)).size, 1);
    assert.equal(new Set(results.map((r) => r.offset)).size, 1);
  }
  await assertLogInvariants(rig.db, { windowsNeverRaised: true });
});

test('thirty-two clients on five hundred lanes in random order, half of them new', async (t) => {
  const rig = await Rig.open(t, { poolSize: 16 });
  const paths = [0, 1].map(() => rig.path({ dedup: cache(rig.db), admission: admission(12), zstdLevel: 1 }));
  const names = Array.from({ length: 500 }, (_, i) => `lane${i}`);
  await push(
    paths[0]!,
    names.slice(0, 250).map((partition) => item('seed', { partition })),
  );
  let slowestMs = 0;
  let deadlocks = 0;
  await Promise.all(
    Array.from({ length: 32 }, async (_, client) => {
      const order = shuffled(names, client);
      for (let from = 0; from < order.length; from += 100) {
        const startedAt = performance.now();
        const lanes = order.slice(from, from + 100);
        const results = await push(
          paths[client % 2]!,
          lanes.map((partition) => item(`c${client}`, { partition })),
        );
        slowestMs = Math.max(slowestMs, performance.now() - startedAt);
        deadlocks += results.filter((r) => /40P01/.test(r.error ?? '')).length;
        assert.deepEqual(
          new Set(statuses(results)),
          new Set(['queued']),
          JSON.stringify(results.find((r) => r.error)),
        );
      }
    }),
  );
  assert.equal(deadlocks, 0);
  assert.ok(slowestMs < 10_000, `a request took ${slowestMs} ms`);
  const report = await assertLogInvariants(rig.db, { windowsNeverRaised: true });
  assert.deepEqual(new Set([...report.messages.values()].map((m) => m.length)), new Set([32, 33]));
});

test('one producer that waits for its answers stays in order beside others', async (t) => {
  const rig = await Rig.open(t, { poolSize: 8 });
  const path = rig.path({ dedup: cache(rig.db) });
  const producers = Array.from({ length: 6 }, async (_, p) => {
    for (let i = 0; i < 25; i++) {
      const results = await pushIds(path, [`${p}.${i}.0`, `${p}.${i}.1`], `lane${p % 2}`);
      assert.deepEqual(statuses(results), ['queued', 'queued']);
    }
  });
  await Promise.all(producers);
  const report = await assertLogInvariants(rig.db, { windowsNeverRaised: true });
  for (const messages of report.messages.values()) {
    const seen = new Map<string, string[]>();
    for (const { transactionId } of messages) {
      const producer = transactionId.split('.')[0]!;
      seen.set(producer, [...(seen.get(producer) ?? []), transactionId]);
    }
    for (const [producer, ids] of seen) {
      const expected = Array.from({ length: 25 }, (_, i) => [
        `${producer}.${i}.0`,
        `${producer}.${i}.1`,
      ]).flat();
      assert.deepEqual(ids, expected);
    }
  }
});

test('a deleted queue and pushes to it at the same time', async (t) => {
  const rig = await Rig.open(t, { poolSize: 12 });
  const paths = [0, 1].map(() => rig.path({ dedup: cache(rig.db), admission: admission(8) }));
  let stop = false;
  const deleting = (async () => {
    for (let i = 0; i < 12; i++) {
      await sql(rig.db, 'DELETE FROM queen.queues');
      await sql(
        rig.db,
        `DELETE FROM queen.log_txns t WHERE NOT EXISTS
                           (SELECT FROM queen.log_partitions p WHERE p.id = t.partition_id)`,
      );
    }
    stop = true;
  })();
  const pushing = paths.map(async (path, p) => {
    for (let i = 0; !stop; i++) {
      const results = await push(path, [item(`${p}.${i}`), item(`${p}.${i}`, { partition: 'p' })]);
      for (const result of results) {
        // A bundle and an unordered cascade may meet; the product deletes in lock order.
        if (result.status === 'failed') assert.match(result.error!, /^unavailable: .*(40P01|removed again)/);
        else assert.equal(result.status, 'queued');
      }
    }
  });
  await Promise.all([deleting, ...pushing]);
  await sql(
    rig.db,
    `DELETE FROM queen.log_txns t WHERE NOT EXISTS
                       (SELECT FROM queen.log_partitions p WHERE p.id = t.partition_id)`,
  );
  await assertLogInvariants(rig.db);
});
