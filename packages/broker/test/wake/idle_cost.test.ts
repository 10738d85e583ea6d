import assert from 'node:assert/strict';
import { test } from 'node:test';
import { range, request, setup, texts } from '../pop/fixture.ts';

test('a thousand pops parked on a hundred idle queues cost the database a statement a second', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker({ notify: true });
  const queues = range(100, 'idle.');
  // Something was there once, so that rings are not trivially empty.
  await rig.push(queues[0]!, 'p', ['old']);
  const parked: Promise<unknown>[] = [];
  const controller = new AbortController();
  for (let i = 0; i < 1_000; i++) {
    const queue = queues[i % 100]!;
    const signal = controller.signal;
    if (i % 10 === 9)
      parked.push(broker.pop({ queue, partition: 'none', group: 'g', waitMs: 60_000, signal }));
    else parked.push(broker.pop({ queue, group: i % 2 ? 'g' : 'h', waitMs: 60_000, signal, autoAck: true }));
  }
  for (let i = 0; i < 20; i++) {
    const scope = { kind: 'discovery', namespace: 'idle', task: null } as const;
    parked.push(
      broker.delivery.pop(request({ scope, group: 'd', waitMs: 60_000, signal: controller.signal })),
    );
  }
  let answered = 0;
  const count = () => {
    answered++;
  };
  for (const pop of parked) pop.then(count, count);
  while (broker.delivery.wake.parking.parked < 1_020 - answered) await new Promise((r) => setTimeout(r, 20));
  await new Promise((r) => setTimeout(r, 1_500));
  const before = broker.db.statementsTotal;
  const cpu = process.cpuUsage();
  const SECONDS = 4;
  await new Promise((r) => setTimeout(r, SECONDS * 1_000));
  const used = process.cpuUsage(cpu);
  const perSecond = (broker.db.statementsTotal - before) / SECONDS;
  assert.ok(perSecond <= 1.5, `${perSecond} statements a second`);
  t.diagnostic(`${perSecond} statements a second, ${(used.user + used.system) / 1e4 / SECONDS} % of a core`);
  controller.abort();
  await Promise.all(parked);
  assert.equal(broker.delivery.wake.parking.parked, 0);
});

test('a pop of a drained queue costs no statement', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', range(3));
  assert.deepEqual(texts(await broker.pop({ autoAck: true })).p, range(3));
  await broker.pop({ autoAck: true });
  const before = broker.db.statementsTotal;
  for (let i = 0; i < 50; i++) assert.deepEqual((await broker.pop({ autoAck: true })).claims, []);
  assert.equal(broker.db.statementsTotal - before, 0);
  await rig.push('q', 'p', ['next'], [broker]);
  assert.deepEqual(texts(await broker.pop({ autoAck: true })), { p: ['next'] });
});

test('a pop of known partitions costs one statement, however many they are', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  for (let p = 0; p < 40; p++) await rig.push('q', `p${p}`, ['a']);
  await broker.pop({ partitions: 0, autoAck: true });
  for (let p = 0; p < 40; p++) await rig.push('q', `p${p}`, ['b'], [broker]);
  const before = broker.db.statementsTotal;
  const answer = await broker.pop({ partitions: 32, batch: 32 });
  assert.equal(answer.claims.length, 32);
  assert.equal(broker.db.statementsTotal - before, 1);
});
