import assert from 'node:assert/strict';
import { test } from 'node:test';
import { complete, range, setup, sql, texts } from './fixture.ts';

async function option(rig: Awaited<ReturnType<typeof setup>>, queue: string, set: string): Promise<void> {
  await sql(rig.db, `UPDATE queen.queues SET ${set} WHERE name = '${queue}'`);
}

for (const hotlist of [true, false]) {
  const mode = hotlist ? 'hot list' : 'scan';

  test(`delayedProcessing hides a tail until it is old enough (${mode})`, async (t) => {
    const rig = await setup(t);
    const broker = await rig.broker({ pop: { hotlist } });
    const { partitionId } = await rig.push('q', 'p', ['a']);
    await option(rig, 'q', 'delayed_processing = 10');
    assert.deepEqual(texts(await broker.pop()), {});
    assert.equal((await rig.consumer(partitionId))?.committed, -1, 'a delayed partition is not sealed');
    await rig.database.advanceClock(6);
    await rig.push('q', 'p', ['b'], [broker]);
    assert.deepEqual(texts(await broker.pop()), {});
    await rig.database.advanceClock(5);
    const answer = await broker.pop();
    assert.deepEqual(texts(answer), { p: ['a'] }, 'only the part that is old enough');
    await complete(rig, answer, '__QUEUE_MODE__', [broker]);
    assert.deepEqual(texts(await broker.pop()), {});
    await rig.database.advanceClock(6);
    assert.deepEqual(texts(await broker.pop()), { p: ['b'] });
  });

  test(`a lowered delay counts at the next claim (${mode})`, async (t) => {
    const rig = await setup(t);
    const broker = await rig.broker({ pop: { hotlist } });
    await rig.push('q', 'p', ['a']);
    await option(rig, 'q', 'delayed_processing = 1000');
    assert.deepEqual(texts(await broker.pop()), {});
    await option(rig, 'q', 'delayed_processing = 0');
    assert.deepEqual(texts(await broker.pop()), { p: ['a'] });
  });
}

test('a parked pop gets a delayed message when its time has come, without a push', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a']);
  await option(rig, 'q', 'delayed_processing = 1');
  const started = performance.now();
  assert.deepEqual(texts(await broker.pop({ waitMs: 5_000 })), { p: ['a'] });
  const took = performance.now() - started;
  assert.ok(took > 500 && took < 2_500, `${took}`);
});

test('windowBuffer waits for quiet without the hot list', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker({ pop: { hotlist: false } });
  await rig.push('q', 'p', ['a']);
  await option(rig, 'q', 'window_buffer = 10');
  for (let i = 0; i < 3; i++) {
    await rig.database.advanceClock(6);
    await rig.push('q', 'p', [`b${i}`]);
    assert.deepEqual(texts(await broker.pop()), {});
  }
  await rig.database.advanceClock(11);
  assert.deepEqual(texts(await broker.pop()), { p: ['a', 'b0', 'b1', 'b2'] });
});

test('with the hot list a busy windowed partition opens when its oldest message has waited the window', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a']);
  await option(rig, 'q', 'window_buffer = 10');
  assert.deepEqual(texts(await broker.pop()), {});
  await rig.database.advanceClock(6);
  await rig.push('q', 'p', ['b'], [broker]);
  assert.deepEqual(texts(await broker.pop()), {});
  await rig.database.advanceClock(5);
  assert.deepEqual(texts(await broker.pop()), { p: ['a', 'b'] });
});

test('a full batch opens a window early', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker({ pop: { windowBatch: 20 } });
  await rig.push('q', 'p', range(5, 'a'));
  await option(rig, 'q', 'window_buffer = 1000');
  assert.deepEqual(texts(await broker.pop()), {});
  const parked = broker.pop({ waitMs: 5_000 });
  await rig.push('q', 'p', range(14, 'b'), [broker]);
  await rig.push('q', 'p', ['c'], [broker]);
  assert.equal(texts(await parked).p?.length, 20);
});

test('minPopWaitTime lets a batch fill before it is claimed', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a']);
  await option(rig, 'q', 'min_pop_wait_time = 3000');
  const before = performance.now();
  const pop = broker.pop({ waitMs: 5_000, batch: 3 });
  await new Promise((r) => setTimeout(r, 100));
  assert.equal(
    (await sql(rig.db, 'SELECT 1 AS one FROM queen.log_consumers WHERE worker_id IS NOT NULL')).length,
    0,
  );
  await rig.push('q', 'p', ['b', 'c'], [broker]);
  assert.deepEqual(texts(await pop).p, ['a', 'b', 'c'], 'the wait ends when the batch is full');
  assert.ok(performance.now() - before < 2_500);
});

test('a parked pop that is woken by the first message waits for the others too', async (t) => {
  const rig = await setup(t);
  for (const hotlist of [true, false]) {
    const broker = await rig.broker({ pop: { hotlist } });
    const queue = `q${hotlist}`;
    await rig.push(queue, 'p', ['old']);
    await option(rig, queue, 'min_pop_wait_time = 1500');
    await broker.pop({ queue, autoAck: true });
    const pop = broker.pop({ queue, waitMs: 10_000, batch: 10 });
    while (broker.delivery.wake.parking.parked === 0) await new Promise((r) => setTimeout(r, 1));
    await rig.push(queue, 'p', ['a'], [broker]);
    await new Promise((r) => setTimeout(r, 300));
    await rig.push(queue, 'p', ['b'], [broker]);
    assert.deepEqual(texts(await pop).p, ['a', 'b']);
  }
});

test('minPopWaitTime ends by itself, and does not concern a pop that does not wait', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a']);
  await rig.push('q2', 'p', ['a']);
  await option(rig, 'q', 'min_pop_wait_time = 300');
  await option(rig, 'q2', 'min_pop_wait_time = 60000');
  const before = performance.now();
  assert.deepEqual(texts(await broker.pop({ waitMs: 5_000 })).p, ['a']);
  const took = performance.now() - before;
  assert.ok(took >= 290 && took < 2_000, `${took}`);
  assert.deepEqual(texts(await broker.pop({ queue: 'q2' })).p, ['a']);
});
