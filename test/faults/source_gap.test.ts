/** A broker that runs a source is killed at the worst moments: every change is in the queue once. */
import { after, before, suite, test } from 'node:test';
import { Upstream } from '../kit/upstream.ts';
import { killed, SourceScene } from './source_scene.ts';

suite('a source whose broker', () => {
  let server: Upstream;
  before(async () => {
    server = await Upstream.start({ major: 18 });
  });
  after(() => server.remove());

  test('dies between the commit of a bundle and the word to the upstream', async (t) => {
    const scene = await SourceScene.open(t, server);
    const doomed = await scene.broker('source.committed:kill:2');
    await scene.create(doomed);
    await scene.reaches(doomed, 'streaming');
    await scene.insert(20);
    await killed(doomed);
    await scene.assertAllOnce(await scene.broker());
  });

  test('dies after the slot was made and before there is a pointer', async (t) => {
    const scene = await SourceScene.open(t, server);
    const doomed = await scene.broker('source.slot_created:kill:1');
    await scene.create(doomed);
    await killed(doomed);
    await scene.insert(1);
    const heir = await scene.broker();
    await scene.reaches(heir, 'streaming');
    await scene.insert(1);
    await scene.assertAllOnce(heir);
  });

  test('dies halfway through a transaction of twenty bundles, and so does the one that waited', async (t) => {
    const scene = await SourceScene.open(t, server);
    const first = await scene.broker('source.committed:kill:8');
    await scene.create(first, { maxBundleMessages: 300 });
    await scene.reaches(first, 'streaming');
    const second = await scene.broker('source.committed:kill:8');
    await scene.insertAtOnce(6_000);
    await killed(first);
    await killed(second);
    await scene.assertAllOnce(await scene.broker());
  });
});
