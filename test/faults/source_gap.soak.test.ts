/** The rest of the moments at which a broker with a source can die, and outages that take their time. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { FaultPoint } from '../../packages/broker/src/observability/buggify.ts';
import { Upstream } from '../kit/upstream.ts';
import { killed, SourceScene } from './source_scene.ts';

suite('a source whose broker dies', () => {
  let server: Upstream;
  before(async () => {
    server = await Upstream.start({ major: 17 });
  });
  after(() => server.remove());

  const points: FaultPoint[] = ['transaction.written', 'transaction.committed'];
  for (const point of points) {
    test(`at ${point}`, async (t) => {
      const scene = await SourceScene.open(t, server);
      const doomed = await scene.broker(`${point}:kill:2`);
      await scene.create(doomed);
      await scene.reaches(doomed, 'streaming');
      await scene.insert(20);
      await killed(doomed);
      await scene.assertAllOnce(await scene.broker());
    });
  }

  test('again and again in one large transaction', async (t) => {
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
});
