/** The rest of the moments at which a broker with a source can die, and outages that take their time. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { FaultPoint } from '../../packages/broker/src/observability/buggify.ts';
import { Upstream } from '../kit/upstream.ts';
import { killed, SourceScene } from './source_scene.ts';

suite('a source whose broker', () => {
  let server: Upstream;
  before(async () => {
    server = await Upstream.start({ major: 17 });
  });
  after(() => server.remove());

  const points: FaultPoint[] = ['transaction.written', 'transaction.committed'];
  for (const point of points) {
    test(`dies at ${point}`, async (t) => {
      const scene = await SourceScene.open(t, server);
      const doomed = await scene.broker(`${point}:kill:2`);
      await scene.create(doomed);
      await scene.reaches(doomed, 'streaming');
      await scene.insert(20);
      await killed(doomed);
      await scene.assertAllOnce(await scene.broker());
    });
  }

  test('dies again and again in one large transaction', async (t) => {
    const scene = await SourceScene.open(t, server);
    let broker = await scene.broker('source.committed:kill:3');
    await scene.create(broker, { maxBundleMessages: 500 });
    await scene.reaches(broker, 'streaming');
    await scene.insertAtOnce(10_000);
    for (let life = 1; life <= 4; life++) {
      await killed(broker);
      broker = await scene.broker(life === 4 ? null : 'source.committed:kill:3');
    }
    await scene.assertAllOnce(broker);
    assert.equal(await scene.phase(broker), 'streaming');
  });

  test('stands still is replaced, and finds out when it goes on', async (t) => {
    const scene = await SourceScene.open(t, server);
    const frozen = await scene.broker('transaction.written:stop:2');
    await scene.create(frozen);
    await scene.reaches(frozen, 'streaming');
    const heir = await scene.broker();
    await scene.reaches(heir, 'standby');
    await scene.insert(10);
    await frozen.logged(/fault: stop/);
    // Its sender is still there, and its server would wait a minute for it.
    await scene.reaches(heir, 'streaming');
    await scene.insert(10);
    await scene.assertAllOnce(heir);
    process.kill(frozen.pid, 'SIGCONT');
    await scene.reaches(frozen, 'standby');
    await scene.insert(1);
    await scene.assertAllOnce(heir);
  });

  test('is told to end hands over before its lease runs out', async (t) => {
    const scene = await SourceScene.open(t, server);
    const first = await scene.broker(null, { QUEEN_PG_LEASE_TTL_MS: '30000' });
    await scene.create(first);
    await scene.reaches(first, 'streaming');
    const second = await scene.broker();
    await scene.reaches(second, 'standby');
    const { code, logs } = await first.stop();
    assert.equal(code, 0, logs);
    const began = performance.now();
    await scene.reaches(second, 'streaming');
    assert.ok(performance.now() - began < 20_000);
    await scene.insert(1);
    await scene.assertAllOnce(second);
  });
});
