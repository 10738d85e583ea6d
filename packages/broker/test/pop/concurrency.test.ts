import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Broker, complete, range, setup, sql, texts } from './fixture.ts';

test('a busy partition does not starve the others', async (t) => {
  const rig = await setup(t);
  for (const hotlist of [true, false]) {
    const queue = hotlist ? 'ring' : 'scan';
    const broker = await rig.broker({ pop: { hotlist } });
    await rig.push(queue, 'busy', range(500));
    for (let p = 0; p < 5; p++) await rig.push(queue, `p${p}`, ['a']);
    const served = new Set<string>();
    let pops = 0;
    for (; served.size < 6 && pops < 60; pops++) {
      const answer = await broker.pop({ queue, batch: 10 });
      for (const claim of answer.claims) served.add(claim.partition);
      await rig.push(queue, 'busy', [`more${pops}`], [broker]);
      await complete(rig, answer, '__QUEUE_MODE__', [broker]);
    }
    assert.equal(served.size, 6, queue);
    if (hotlist) assert.ok(pops <= 7, `${pops} pops in turn`);
  }
});

test('pops, pushes, first contacts and acks of two brokers side by side: all delivered, none twice, no deadlock', async (t) => {
  const rig = await setup(t);
  const brokers = [await rig.broker({ notify: true }), await rig.broker({ notify: true })];
  const LANES = 40;
  const ROUNDS = 5;
  const seen = new Map<string, number>();
  const order = new Map<string, number>();
  const failures: unknown[] = [];
  let producing = true;
  const produce = async (seed: number) => {
    for (let round = 0; round < ROUNDS; round++) {
      for (let i = 0; i < LANES; i++) {
        // Lanes come into being in a different order in each producer.
        const lane = (i * 7 + seed * 11) % LANES;
        await rig.push('q', `lane${lane}`, [`${seed}/${round}/${lane}`], brokers);
      }
    }
  };
  const consume = async (broker: Broker, group: string) => {
    for (let idle = 0; producing || idle < 3; ) {
      const answer = await broker.pop({ group, batch: 40, partitions: 8, waitMs: 300 }).catch((error) => {
        failures.push(error);
        return null;
      });
      if (answer === null) return;
      idle = answer.claims.length === 0 ? idle + 1 : 0;
      for (const [lane, got] of Object.entries(texts(answer))) {
        for (const text of got)
          seen.set(`${group}/${lane}/${text}`, (seen.get(`${group}/${lane}/${text}`) ?? 0) + 1);
      }
      for (const claim of answer.claims) {
        const key = `${group}/${claim.partition}`;
        const first = claim.messages[0]!.offset;
        assert.equal(first, (order.get(key) ?? -1) + 1, 'in order, without a gap');
        order.set(key, claim.messages.at(-1)!.offset);
      }
      await complete(rig, answer, group, [broker]);
    }
  };
  const consumers = [
    consume(brokers[0]!, 'g'),
    consume(brokers[1]!, 'g'),
    consume(brokers[0]!, 'h'),
    consume(brokers[1]!, 'h'),
  ];
  await Promise.all([0, 1, 2].map(produce));
  producing = false;
  await Promise.all(consumers);
  assert.deepEqual(failures, []);
  assert.equal(seen.size, 2 * 3 * ROUNDS * LANES);
  for (const [key, times] of seen) assert.equal(times, 1, key);
  for (const broker of brokers) assert.equal(broker.db.errors.unavailable, 0, 'no deadlock, no retry');
});

test('pops never wait for a row lock', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  const a = await rig.push('q', 'a', ['x']);
  await rig.push('q', 'b', ['y']);
  await broker.pop({ batch: 1 });
  await broker.pop({ batch: 1 });
  await sql(rig.db, 'UPDATE queen.log_consumers SET batch_end = NULL, worker_id = NULL');
  await rig.db.transaction(async (tx) => {
    const { statement } = await import('../../src/store/database.ts');
    await tx.query(
      statement(
        'pop_hold',
        'SELECT 1 AS one FROM queen.log_consumers WHERE partition_id = $1::bigint FOR UPDATE',
      ),
      [a.partitionId],
    );
    const started = performance.now();
    const answer = await broker.pop({ partitions: 0 });
    assert.deepEqual(Object.keys(texts(answer)), ['b']);
    assert.ok(performance.now() - started < 1_000);
  });
  assert.deepEqual(
    texts(await broker.pop({ waitMs: 3_000 })),
    { a: ['x'] },
    'the skipped one comes back by itself',
  );
});

test('as many pops as partitions at once get one each, without waiting', async (t) => {
  const rig = await setup(t);
  const broker = await rig.broker();
  await broker.pop();
  for (let round = 0; round < 5; round++) {
    for (let p = 0; p < 8; p++) await rig.push('q', `p${p}`, ['a'.repeat(round + 1)], [broker]);
    const answers = await Promise.all(range(8).map(() => broker.pop({ autoAck: true })));
    assert.deepEqual(
      answers.map((a) => a.claims.length),
      Array(8).fill(1),
    );
  }
  // One that has no cap draws all there is, and cannot use it.
  for (let p = 0; p < 8; p++) await rig.push('q', `p${p}`, ['x'], [broker]);
  const [greedy, modest] = await Promise.all([
    broker.pop({ autoAck: true, partitions: 0, batch: 4 }),
    broker.pop({ autoAck: true }),
  ]);
  assert.equal(greedy.claims.length, 4);
  assert.equal(modest.claims.length, 1);
});
