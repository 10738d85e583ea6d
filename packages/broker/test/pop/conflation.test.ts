import assert from 'node:assert/strict';
import { test } from 'node:test';
import { complete, range, setup, sql, texts } from './fixture.ts';

const C = { group: 'g', conflation: true } as const;

test('a conflating group gets the newest message of each partition, and its lease spans all', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', range(5, 'a'));
  await rig.push('q', 'p', range(3, 'b'));
  await rig.push('q', 'r', ['only']);
  const answer = await broker.pop(C);
  assert.deepEqual(texts(answer), { p: ['b2'], r: ['only'] });
  assert.equal(answer.conflation, true);
  assert.equal(answer.conflationConflict, false);
  const row = await rig.consumer(partitionId, 'g');
  assert.deepEqual(
    [row?.committed, row?.batch_end, row?.lease_conflated, row?.attempt_offset],
    [-1, 7, true, 0],
  );
  assert.equal(broker.delivered.length, 0, 'only the full ack knows how many were skipped');
});

test('the attempt count of a conflated batch survives newer arrivals', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a', 'b']);
  assert.equal((await broker.pop({ ...C, leaseSeconds: 5 })).claims[0]?.deliveryAttempt, 1);
  await rig.database.advanceClock(6);
  await rig.push('q', 'p', ['c'], [broker]);
  const again = await broker.pop(C);
  assert.deepEqual(texts(again), { p: ['c'] });
  assert.equal(again.claims[0]?.deliveryAttempt, 2);
  await complete(rig, again, 'g', [broker]);
  assert.deepEqual((await broker.pop(C)).claims, []);
});

test('the stored policy wins, and a different wish is told', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a', 'b']);
  await broker.pop(C);
  const flags = async (over: object) => {
    const { conflation, conflationConflict } = await broker.pop({ group: 'g', ...over });
    return [conflation, conflationConflict];
  };
  assert.deepEqual(await flags({}), [true, false]);
  assert.deepEqual(await flags({ conflation: false }), [true, true]);
  await broker.pop({ group: 'plain' });
  assert.deepEqual(await flags({ group: 'plain', conflation: true }), [false, true]);
  assert.deepEqual(await flags({ group: 'plain' }), [false, false]);
  const fresh = await rig.broker();
  const answer = await fresh.pop({ group: 'g', conflation: false });
  assert.deepEqual([answer.conflation, answer.conflationConflict], [true, true]);
});

test('conflation needs a group and an ack', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await assert.rejects(broker.pop({ conflation: true }), { code: 'conflation_group', kind: 'refused' });
  await assert.rejects(broker.pop({ ...C, autoAck: true }), { code: 'conflation_auto_ack' });
  await broker.pop(C);
  await assert.rejects(broker.pop({ group: 'g', autoAck: true }), { code: 'conflation_auto_ack' });
});

test('partitions default to the batch, 64 at most', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  for (let p = 0; p < 70; p++) await rig.push('q', `p${p}`, range(3));
  assert.equal((await broker.pop({ ...C, batch: 10 })).claims.length, 10);
  assert.equal((await broker.pop({ ...C, group: 'h' })).claims.length, 64);
  assert.equal((await broker.pop({ ...C, group: 'i', partitions: 2 })).claims.length, 2);
  assert.equal((await broker.pop({ ...C, group: 'j', partitions: 0 })).claims.length, 64);
});

test('conflation respects the delay: the newest that may be seen', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a', 'b']);
  await sql(rig.db, 'UPDATE queen.queues SET delayed_processing = 10');
  assert.deepEqual((await broker.pop(C)).claims, []);
  await rig.database.advanceClock(11);
  await rig.push('q', 'p', ['c'], [broker]);
  const answer = await broker.pop(C);
  assert.deepEqual(texts(answer), { p: ['b'] });
  await complete(rig, answer, 'g', [broker]);
  assert.deepEqual((await broker.pop(C)).claims, []);
  await rig.database.advanceClock(11);
  assert.deepEqual(texts(await broker.pop(C)), { p: ['c'] });
});

test('a pinned pop with a policy registers it', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a', 'b']);
  const answer = await broker.pop({ ...C, partition: 'p' });
  assert.deepEqual(texts(answer), { p: ['b'] });
  const rows = await sql(rig.db, 'SELECT conflation, partition_name FROM queen.consumer_groups_metadata');
  assert.deepEqual(rows, [{ conflation: true, partition_name: '' }]);
});
