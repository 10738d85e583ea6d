import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../../../../test/kit/until.ts';
import { StoreError } from '../../src/store/errors.ts';
import { complete, type Rig, range, request, setup, sql, texts } from './fixture.ts';

/** Flips one byte in the middle of a stored segment. */
async function damage(rig: Rig, partitionId: number, base: number): Promise<void> {
  await sql(
    rig.db,
    `UPDATE queen.log_segments SET blob = set_byte(blob, length(blob) / 2, get_byte(blob, length(blob) / 2) # 255)
      WHERE partition_id = $1::bigint AND base_offset = $2::bigint`,
    [partitionId, base],
  );
}

function recorder() {
  const errors: { facts: Record<string, unknown>; message: string }[] = [];
  return {
    errors,
    log: {
      info() {},
      warn() {},
      error: (facts: object, message: string) => void errors.push({ facts: { ...facts }, message }),
    },
  };
}

test('a corrupt segment is the error of its partition, and its claim is taken back', async (t) => {
  const rig = await setup(t);
  const { errors, log } = recorder();
  const broker = await rig.broker({}, log);
  const { partitionId } = await rig.push('q', 'bad', ['a', 'b']);
  const broken = await rig.push('q', 'bad', range(20, 'c'));
  await damage(rig, partitionId, broken.base);
  await assert.rejects(broker.pop({ partition: 'bad' }), (error: Error & { code?: string }) => {
    assert.equal(error.code, 'corrupt_segment');
    assert.match(error.message, new RegExp(`partition ${partitionId}.*offset 2`));
    return true;
  });
  assert.equal(errors[0]?.facts.partitionId, partitionId);
  assert.equal(errors[0]?.facts.baseOffset, 2);
  assert.equal(broker.delivery.path.counters.corruptSegments, 1);
  const row = await rig.consumer(partitionId);
  assert.deepEqual(
    [
      row?.committed,
      row?.batch_end,
      row?.worker_id,
      row?.lease_expires_at,
      row?.attempt_offset,
      row?.attempt_count,
    ],
    [-1, null, null, null, null, 0],
  );
  // What lies before it is still to be had.
  assert.deepEqual(texts(await broker.pop({ partition: 'bad', batch: 2 })), { bad: ['a', 'b'] });
});

test('other partitions of the same answer are delivered', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const bad = await rig.push('q', 'bad', range(20));
  await damage(rig, bad.partitionId, 0);
  for (let p = 0; p < 3; p++) await rig.push('q', `good${p}`, [`x${p}`]);
  const answer = await broker.pop({ partitions: 0 });
  assert.deepEqual(Object.keys(texts(answer)).sort(), ['good0', 'good1', 'good2']);
  assert.equal((await rig.consumer(bad.partitionId))?.worker_id, null);
  // Even one at a time: the corrupt one does not use up the pop.
  for (let p = 0; p < 3; p++) assert.equal((await broker.pop({ group: 'h' })).claims.length, 1);
});

test('with autoAck the cursor goes back to before the corrupt segment', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'bad', ['a', 'b']);
  const broken = await rig.push('q', 'bad', range(20, 'c'));
  await damage(rig, partitionId, broken.base);
  assert.deepEqual(texts(await broker.pop({ autoAck: true, batch: 2 })).bad, ['a', 'b']);
  await assert.rejects(broker.pop({ autoAck: true }), { code: 'corrupt_segment' });
  const row = await rig.consumer(partitionId);
  assert.deepEqual([row?.committed, row?.total_consumed], [1, 2]);
});

test('a truncated segment and one with a wrong count are corrupt too', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', range(5));
  await sql(rig.db, 'UPDATE queen.log_segments SET blob = substring(blob FROM 1 FOR length(blob) - 3)');
  await assert.rejects(broker.pop({ partition: 'p' }), { code: 'corrupt_segment' });
  const other = await rig.push('q', 'r', range(5));
  await sql(rig.db, 'UPDATE queen.log_segments SET end_offset = 5 WHERE partition_id = $1::bigint', [
    other.partitionId,
  ]);
  await sql(rig.db, 'UPDATE queen.log_partitions SET last_offset = 5 WHERE id = $1::bigint', [
    other.partitionId,
  ]);
  await assert.rejects(broker.pop({ partition: 'r', batch: 2 }), { code: 'corrupt_segment' });
  assert.ok(partitionId > 0);
});

test('a client that is gone before the claim leaves everything as it was', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', ['a']);
  await broker.pop({ group: 'warm', batch: 1 });
  const gone = AbortSignal.abort();
  assert.deepEqual((await broker.pop({ signal: gone })).claims, []);
  assert.equal(await rig.consumer(partitionId), null);
  assert.deepEqual(texts(await broker.pop()), { p: ['a'] });
});

test('a claim that is made for a client that goes in the same instant is undone', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', ['a', 'b']);
  await rig.push('q', 'r', ['c']);
  const first = await broker.pop({ leaseSeconds: 1, partitions: 0 });
  assert.equal(first.claims.length, 2);
  await rig.database.advanceClock(2);
  const before = await rig.consumer(partitionId);
  const controller = new AbortController();
  const original = broker.db.query.bind(broker.db);
  const spy = broker.db as { query: typeof broker.db.query };
  spy.query = (async (statement, ...rest) => {
    const rows = await original(statement, ...rest);
    if (statement.name === 'pop_claim') controller.abort();
    return rows;
  }) as typeof broker.db.query;
  const answer = await broker.pop({ signal: controller.signal, partitions: 0 });
  spy.query = original;
  assert.deepEqual(answer.claims, []);
  assert.equal(broker.delivery.path.counters.undone, 2);
  const row = await rig.consumer(partitionId);
  assert.deepEqual(
    [row?.committed, row?.batch_end, row?.worker_id, row?.lease_expires_at],
    [-1, null, null, null],
  );
  assert.deepEqual(
    [row?.attempt_offset, row?.attempt_count],
    [before?.attempt_offset, before?.attempt_count],
  );
  // The ring is as before: both partitions are there at once.
  const again = await broker.pop({ partitions: 0 });
  assert.deepEqual(Object.keys(texts(again)).sort(), ['p', 'r']);
  assert.deepEqual(
    again.claims.map((c) => c.deliveryAttempt),
    [2, 2],
  );
});

test('a client that goes while parked is answered at once and forgotten', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await broker.pop();
  const controller = new AbortController();
  const parked = broker.pop({ waitMs: 60_000, signal: controller.signal });
  while (broker.delivery.wake.parking.parked === 0) await new Promise((r) => setTimeout(r, 1));
  controller.abort();
  assert.deepEqual((await parked).claims, []);
  assert.equal(broker.delivery.wake.parking.parked, 0);
  await rig.push('q', 'p', ['a'], [broker]);
  assert.deepEqual(texts(await broker.pop()), { p: ['a'] });
});

test('a failed claim gives its candidates back', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a']);
  await broker.pop({ queue: 'q', group: 'g' });
  await rig.push('q', 'r', ['b'], [broker]);
  const original = broker.db.query.bind(broker.db);
  const spy = broker.db as { query: typeof broker.db.query };
  spy.query = (async (statement, ...rest) => {
    if (statement.name === 'pop_claim') throw new Error('the wire was cut');
    return original(statement, ...rest);
  }) as typeof broker.db.query;
  await assert.rejects(broker.pop({ group: 'g' }), { kind: 'in_doubt' });
  spy.query = original;
  assert.deepEqual(texts(await broker.pop({ group: 'g' })), { r: ['b'] });
});

test('a parked pop that is woken while the database is away goes on waiting, and one that comes then is told', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await rig.push('q', 'p', ['a']);
  await complete(rig, await broker.pop({ group: 'g' }), 'g', [broker]);
  const patient = broker.pop({ group: 'g', waitMs: 60_000 });
  const leaving = new AbortController();
  const impatient = broker.pop({
    group: 'h',
    waitMs: 60_000,
    signal: leaving.signal,
    subscriptionMode: 'new',
  });
  await until('they are parked', async () => broker.delivery.wake.parking.parked === 2);
  const original = broker.db.query.bind(broker.db);
  const spy = broker.db as { query: typeof broker.db.query };
  let claims = 0;
  spy.query = (async (statement, ...rest) => {
    if (statement.name !== 'pop_claim') return original(statement, ...rest);
    claims++;
    throw new StoreError('unavailable', 'pool', 'no connection');
  }) as typeof broker.db.query;
  await rig.push('q', 'p', ['b'], [broker]);
  await until('they were woken in vain', async () => claims >= 2);
  await assert.rejects(broker.pop({ group: 'g', waitMs: 60_000 }), { kind: 'unavailable', code: 'pool' });
  leaving.abort();
  assert.deepEqual((await impatient).claims, []);
  spy.query = original;
  assert.deepEqual(texts(await patient), { p: ['b'] });
});

test('a claim in doubt does not take back what the same pop was given before', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', ['a']);
  await complete(rig, await broker.pop({ group: 'g' }), 'g', [broker]);
  await rig.push('q', 'p', ['b'], [broker]);
  const original = broker.db.query.bind(broker.db);
  const spy = broker.db as { query: typeof broker.db.query };
  let claims = 0;
  let undone: Promise<unknown> = Promise.resolve();
  spy.query = (async (statement, ...rest) => {
    if (statement.name === 'pop_undo') {
      const work = original(statement, ...rest);
      undone = work;
      return work;
    }
    if (statement.name !== 'pop_claim') return original(statement, ...rest);
    // The second claim is one over both partitions, and nobody knows what became of it.
    if (++claims > 1) throw new StoreError('in_doubt', 'connection', 'the wire was cut');
    const rows = await original(statement, ...rest);
    await rig.push('q', 'r', ['d'], [broker]);
    // A word from another broker about the lease before this one, late.
    broker.delivery.wake.released(partitionId, 'g');
    return rows;
  }) as typeof broker.db.query;
  const answer = await broker.pop({ group: 'g', partitions: 0 });
  assert.deepEqual(texts(answer), { p: ['b'] });
  assert.equal(claims, 2);
  await undone;
  spy.query = original;
  const row = await rig.consumer(partitionId, 'g');
  assert.deepEqual([row?.worker_id, row?.batch_end, row?.attempt_count], [answer.leaseId, 1, 1]);
});

test('pop maintenance answers paused, without a claim', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const { partitionId } = await rig.push('q', 'p', ['a']);
  let paused = true;
  const { PopPath } = await import('../../src/engine/pop/pop.ts');
  const path = new PopPath({
    run: (work) => work(broker.db),
    hotlist: broker.delivery.hotlist,
    reseed: broker.delivery.reseed,
    wake: broker.delivery.wake,
    ackRegistry: { delivered() {} },
    clock: (await import('../../src/engine/clock.ts')).systemClock,
    log: recorder().log,
    paused: () => paused,
  });
  const answer = await path.pop(request());
  assert.equal(answer.paused, true);
  assert.deepEqual(answer.claims, []);
  assert.equal(await rig.consumer(partitionId), null);
  paused = false;
  assert.deepEqual(texts(await path.pop(request())), { p: ['a'] });
});

test('stop answers parked pops and lets running claims end', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const parked = [broker.pop({ waitMs: 60_000 }), broker.pop({ waitMs: 60_000, partition: 'x' })];
  while (broker.delivery.wake.parking.parked < 2) await new Promise((r) => setTimeout(r, 1));
  await broker.delivery.stop();
  for (const answer of await Promise.all(parked)) assert.deepEqual(answer.claims, []);
});

test('an answer is cut by its bytes, at a segment', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker({ pop: { answerBytesMax: 100 } });
  for (let i = 0; i < 4; i++) await rig.push('q', 'p', [`m${i}${'0123456789abcdef'.repeat(4)}`]);
  const first = await broker.pop();
  const got = first.claims[0]?.messages.length ?? 0;
  assert.ok(got >= 1 && got < 4, `${got}`);
  await complete(rig, first, '__QUEUE_MODE__', [broker]);
  assert.equal((await broker.pop()).claims[0]?.messages[0]?.offset, got);
});
