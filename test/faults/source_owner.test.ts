/** The broker that runs a source is frozen, cut off from the upstream, or busy with a large transaction when it dies. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { Client } from '../broker/client.ts';
import { atEnd } from '../kit/cleanup.ts';
import { startProxy } from '../kit/proxy.ts';
import { Upstream } from '../kit/upstream.ts';
import { until } from '../start/talk.ts';
import { signal } from './kills_scene.ts';
import { largeTransaction } from './large_transaction.ts';
import { seeded } from './seed.ts';
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

  test('dies in the middle of 20,000 rows of one transaction', async (t) => {
    assert.ok((await largeTransaction(t, server, 20_000, seeded(t))) < 700);
  });
});
