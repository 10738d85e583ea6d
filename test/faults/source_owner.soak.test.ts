/** The broker that runs a source is frozen, cut off from the upstream, or without its slot. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { Client } from '../broker/client.ts';
import { atEnd } from '../kit/cleanup.ts';
import { startProxy } from '../kit/proxy.ts';
import { until } from '../kit/until.ts';
import { Upstream } from '../kit/upstream.ts';
import { signal } from './kills_scene.ts';
import { SourceScene } from './source_scene.ts';

suite('the owner of a source', () => {
  let server: Upstream;
  before(async () => {
    // So that a connection which nobody answers on is noticed soon.
    server = await Upstream.start({ major: 18, settings: { wal_sender_timeout: '3s' } });
  });
  after(() => server.remove());

  test('stands still for longer than its lease, and finds another one at work', async (t) => {
    const scene = await SourceScene.open(t, server);
    const frozen = await scene.broker();
    await scene.create(frozen);
    await scene.reaches(frozen, 'streaming');
    await scene.insert(10);
    const other = await scene.broker();
    await scene.reaches(other, 'standby');
    signal(frozen.pid, 'SIGSTOP');
    await scene.insert(20);
    await scene.reaches(other, 'streaming');
    await scene.insert(10);
    signal(frozen.pid, 'SIGCONT');
    await scene.insert(10);
    await scene.reaches(frozen, 'standby');
    await scene.insert(10);
    await scene.assertAllOnce(other);
    assert.equal(await scene.phase(other), 'streaming');
  });

  test('is cut off from the upstream, by a network that says nothing, and comes back by itself', async (t) => {
    const scene = await SourceScene.open(t, server);
    const proxy = await startProxy({ host: server.host, port: server.port });
    atEnd(t, () => proxy.close());
    const broker = await scene.broker();
    const client = new Client(broker.url);
    await scene.create(broker, {}, { port: proxy.port, connectTimeoutMs: 2_000 });
    await scene.reaches(broker, 'streaming');
    await scene.insert(10);
    proxy.swallow();
    await scene.insert(10);
    await until('it has noticed', async () => (await scene.phase(broker)) !== 'streaming', 60_000);
    await scene.insert(10);
    proxy.heal();
    await scene.reaches(broker, 'streaming');
    await scene.assertAllOnce(broker);
    const { body } = await client.call<{ status: { error: unknown } }>('GET', '/api/v1/connectors/s');
    assert.equal(body.status.error, null);
  });

  test('loses its slot, says so, and copies everything again when it is told to', async (t) => {
    const scene = await SourceScene.open(t, server);
    const broker = await scene.broker();
    const client = new Client(broker.url);
    await scene.create(broker);
    await scene.reaches(broker, 'streaming');
    await scene.insert(10);
    await scene.assertAllOnce(broker);
    await until('the slot is dropped', async () => {
      const slot = `slot_${scene.upstream.name}`;
      await scene.upstream.sql(
        `SELECT pg_terminate_backend(active_pid, 1000) FROM pg_replication_slots WHERE slot_name = '${slot}' AND active_pid IS NOT NULL`,
      );
      await scene.upstream.sql(`SELECT pg_drop_replication_slot('${slot}')`);
      return true;
    });
    await scene.insert(10);
    // Nobody is told of its end.
    await scene.upstream.sql('DELETE FROM t WHERE id = 5');
    const source = async () =>
      (await client.call<{ status: { error: { code: string } | null } }>('GET', '/api/v1/connectors/s')).body;
    await until('it says so', async () => (await source()).status.error?.code === 'slot_lost');
    assert.equal((await client.call('POST', '/api/v1/connectors/s/resync')).status, 202);
    await scene.reaches(broker, 'streaming');
    await scene.insert(5);
    const seen: { id: string; op: string; n: number }[] = [];
    await until('all have come', async () => {
      const popped = await client.pop('q', { batch: 100, consumerGroup: 'g', autoAck: true });
      for (const { transactionId, data } of popped) {
        const { op, after } = data as { op: string; after: { id: number } };
        seen.push({ id: transactionId, op, n: after.id });
      }
      return seen.length >= 24;
    });
    const copied = Array.from({ length: 20 }, (_, i) => i + 1).filter((n) => n !== 5);
    assert.deepEqual(
      seen.map(({ op, n }) => [op, n]),
      [...copied.map((n) => ['r', n]), ...[21, 22, 23, 24, 25].map((n) => ['c', n])],
    );
    assert.equal(new Set(seen.map(({ id }) => id)).size, seen.length);
  });
});
