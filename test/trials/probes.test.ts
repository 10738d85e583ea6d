/** Two probes for two questions: whether to restart the process, and whether to send it traffic. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '../broker/client.ts';
import { startBroker } from '../kit/broker.ts';
import { startProxy } from '../kit/proxy.ts';
import { until } from '../kit/until.ts';
import { FRUGAL, items, openRig, serverOf, txnsOf } from './rig.ts';

test('alive while the database is away, and ready when it is back', async (t) => {
  const rig = await openRig(t, 0);
  const proxy = await startProxy(serverOf(rig.database.options));
  t.after(() => proxy.close());
  const { user, database } = rig.database.options;
  const url = `postgres://${user}@127.0.0.1:${proxy.port}/${database}`;
  const broker = await startBroker(
    { database: { url }, env: { ...FRUGAL, QUEEN_STMT_TIMEOUT_MS: '2000' } },
    t,
  );
  const client = new Client(broker.url);
  const ready = async () => (await client.call('GET', '/health')).status;

  /** The probes as an orchestrator sends them, every 50 ms: the statuses that liveness and readiness had. */
  function probe() {
    const seen = { live: new Set<number>(), ready: new Set<number>(), slowestLiveMs: 0 };
    let over = false;
    const probing = (async () => {
      while (!over) {
        const began = performance.now();
        seen.live.add((await client.call('GET', '/health/live')).status);
        seen.slowestLiveMs = Math.max(seen.slowestLiveMs, performance.now() - began);
        await sleep(50);
      }
    })();
    return {
      seen,
      async stop() {
        over = true;
        await probing;
        return seen;
      },
    };
  }

  const absences: [string, () => void][] = [
    ['connections are refused', () => proxy.refuse()],
    ['nothing is heard and nothing is closed', () => proxy.swallow()],
    ['it is too slow to be of use', () => proxy.delay(4_000)],
  ];
  for (const [name, goAway] of absences) {
    await t.test(name, async () => {
      await until('it is ready', async () => (await ready()) === 200);
      const probes = probe();
      goAway();
      // Traffic goes on meanwhile; whatever becomes of it, it gets an answer.
      const traffic = [
        client.call('POST', '/api/v1/push', { items: items('q', [`during ${name}`]) }),
        client.call('GET', '/api/v1/pop/queue/elsewhere'),
        client.call('GET', '/status'),
      ];
      await until('it is not ready', async () => {
        const { status, body } = await client.call('GET', '/health');
        return status === 503 && body.status === 'unhealthy' && body.database === 'disconnected';
      });
      proxy.heal();
      await until('it is ready again', async () => (await ready()) === 200);
      const seen = await probes.stop();
      assert.deepEqual([...seen.live], [200], 'never a reason to restart it');
      assert.ok(seen.slowestLiveMs < 2_000, `liveness took ${seen.slowestLiveMs} ms`);
      for (const { status } of await Promise.all(traffic)) {
        assert.ok(status === 500 || (status >= 200 && status < 300), String(status));
      }
      await until('pushes are stored', async () => {
        const [result] = await client.push(items('q', [`after ${name}`]));
        return result!.status === 'queued' || result!.status === 'duplicate';
      });
    });
  }
  const got = txnsOf(await client.pop('q', { batch: 100, wait: true, timeout: 5_000 }));
  for (const [name] of absences) assert.ok(got.includes(`after ${name}`), name);
  assert.equal((await broker.stop()).code, 0, 'the same process all along');
});
