/** The long form of the last test of sink_gap.test.ts. */
import { after, before, test } from 'node:test';
import { Upstream } from '../kit/upstream.ts';
import { seeded } from './seed.ts';
import { killThrough } from './sink_scene.ts';

let server: Upstream;
before(async () => {
  server = await Upstream.start({ major: 18 });
});
after(() => server.remove());

test('two brokers with a sink killed in turns, ten times, with 20,000 messages over 200 partitions', async (t) => {
  await killThrough(t, server, seeded(t), { messages: 20_000, partitions: 200, kills: 10 });
});
