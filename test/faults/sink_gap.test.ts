/** Brokers die while a sink works: before the commit in the target, between it and the acknowledgement, and at any moment. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import type { FaultPoint } from '../../packages/broker/src/observability/buggify.ts';
import { startBroker } from '../kit/broker.ts';
import { Upstream } from '../kit/upstream.ts';
import { seeded } from './seed.ts';
import { assertExact, createSink, killThrough, push, SINK_ENV, scene, settled } from './sink_scene.ts';

const HOOK = join(import.meta.dirname, 'fault_hook.ts');

let server: Upstream;
before(async () => {
  server = await Upstream.start({ major: 18 });
});
after(() => server.remove());

suite('a sink whose broker dies', () => {
  for (const point of ['sink.written', 'sink.committed'] satisfies FaultPoint[]) {
    test(`at ${point}`, async (t) => {
      const { store, target } = await scene(t, server, 10);
      const env = { ...SINK_ENV, NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: `${point}:kill:2` };
      const doomed = await startBroker({ database: store, env, alone: 'it is to die' }, t);
      await push(doomed.url, 200, 10);
      await createSink(doomed.url, target, { batch: 50 });
      const ended = await doomed.ended;
      assert.match(ended.logs, new RegExp(`fault: kill at ${point}`));
      const heir = await startBroker({ database: store, env: SINK_ENV, alone: 'it takes over' }, t);
      await settled(target, 200, 60_000);
      await assertExact(target, 200, 10);
      await heir.stop();
      await assertExact(target, 200, 10);
    });
  }

  test('two brokers in turns, twice, with 2,000 messages over 50 partitions', async (t) => {
    await killThrough(t, server, seeded(t), { messages: 2_000, partitions: 50, kills: 2 });
  });
});
