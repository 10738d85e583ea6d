import { test } from 'node:test';
import { Client } from '../broker/client.ts';
import { until } from '../kit/until.ts';
import { Scene } from './spool_scene.ts';

test('a broker that does not come back: another one of its machine stores what it left', async (t) => {
  const scene = await Scene.open(t);
  const [left, right] = [await scene.start(), await scene.start()];
  await scene.pause(left, true);
  await until('both know', async () => {
    const state = await new Client(right.url).call('GET', '/api/v1/system/shared-state');
    return state.body.maintenance_mode === true;
  });
  await scene.push(left, 30);
  await left.kill('SIGKILL');
  await scene.pause(right, false);
  const stored = async () => {
    const answer = await new Client(right.url).call<{ totals: { total: number } }>(
      'GET',
      '/api/v1/resources/queues/q',
    );
    return answer.status === 200 ? answer.body.totals.total : 0;
  };
  const told = [...scene.told.values()].reduce((sum, lane) => sum + lane.size, 0);
  await until('it has taken over', async () => (await stored()) === told, 60_000);
  await scene.check(right);
});
