/** A broker that runs a source is killed, or stands still, at the worst moments: every change is in the queue once. */
import assert from 'node:assert/strict';
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

  test('dies halfway through a transaction of 20,000 rows, and so does the one that waited', async (t) => {
    const scene = await SourceScene.open(t, server);
    const first = await scene.broker('source.committed:kill:8');
    await scene.create(first, { maxBundleMessages: 1_000 });
    await scene.reaches(first, 'streaming');
    const second = await scene.broker('source.committed:kill:8');
    await scene.insertAtOnce(20_000);
    await killed(first);
    await killed(second);
    await scene.assertAllOnce(await scene.broker());
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
    assert.ok(performance.now() - began < 10_000);
    await scene.insert(1);
    await scene.assertAllOnce(second);
  });
});
