import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decide, handOff } from '../../src/engine/ack/decide.ts';
import { groupItems } from '../../src/engine/ack/groups.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { logAckHandOff } from '../../src/store/ack.ts';
import type { Param, Queryable, Statement } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import { ack, Bench, flipByte, GROUP, item } from './fixture.ts';

const LEASE = 'invalid or expired lease';

/** The database, except that one statement does not get through. */
function without(db: Queryable, name: string): Queryable {
  return {
    query: <Row extends object>(statement: Statement, params?: readonly Param[]) =>
      statement.name === name
        ? Promise.reject<Row[]>(new StoreError('unavailable', 'connection', 'killed'))
        : db.query<Row>(statement, params),
  };
}

async function spent(bench: Bench): Promise<number> {
  const lane = await bench.lane();
  await bench.append(lane, ['a', 'b', 'c']);
  await bench.append(lane, ['d', 'e']);
  await bench.consumer(lane, { batchEnd: 4, retries: 3 });
  return lane;
}

test('a broker that dies between decision and hand-off leaves the budget spent and the head leased', async (t) => {
  const bench = await Bench.open(t);
  const lane = await spent(bench);
  const dying = bench.path({ db: without(bench.db, 'log_ack_hand_off') });
  const verdicts = await ack(dying, lane, [{ txn: 'a' }, { txn: 'b', status: 'failed' }, { txn: 'c' }]);
  assert.deepEqual(
    verdicts.map((verdict) => verdict.success),
    [true, false, true],
  );
  assert.equal(verdicts[1]!.error, 'ack flush failed; lease will expire and redeliver');
  assert.ok(verdicts.every((verdict) => !verdict.leaseReleased && !verdict.dlq));
  const between = await bench.row(lane);
  assert.deepEqual(
    [between.committed, between.batch_end, between.worker_id, between.batch_retry_count],
    [0, 4, 'w1', 3],
  );
  // The prefix moved the start of the attempts, so the next claim of b counts as its second.
  assert.deepEqual([between.attempt_offset, between.attempt_count], [1, 1]);
  assert.deepEqual(await bench.deadLetters(lane), []);
  assert.deepEqual(bench.releases, []);

  // The lease expires, somebody else gets b and fails it: now it is dead-lettered, once.
  await bench.consumer(lane, { committed: 0, batchEnd: 4, worker: 'w2', retries: 3, attempts: 2 });
  const path = bench.path();
  const old = await ack(path, lane, [{ txn: 'b', status: 'failed' }]);
  assert.equal(old[0]!.error, LEASE);
  const [next] = await ack(path, lane, [{ txn: 'b', status: 'failed', lease: 'w2' }]);
  assert.deepEqual([next!.dlq, next!.leaseReleased], [true, true]);
  assert.equal((await bench.deadLetters(lane)).length, 1);
  assert.equal((await bench.row(lane)).committed, 1);

  // In another history b is completed instead, and nothing is dead-lettered.
  const other = await spent(bench);
  await ack(dying, other, [{ txn: 'a' }, { txn: 'b', status: 'failed' }]);
  await bench.consumer(other, { committed: 0, batchEnd: 4, worker: 'w2', retries: 3, attempts: 2 });
  await ack(path, other, [{ txn: 'e', lease: 'w2' }]);
  assert.deepEqual([(await bench.row(other)).committed, (await bench.deadLetters(other)).length], [4, 0]);
});

test('the first pop behind a dead letter starts right behind it', async (t) => {
  const bench = await Bench.open(t);
  const lane = await spent(bench);
  await ack(bench.path(), lane, [{ txn: 'a' }, { txn: 'b' }, { txn: 'c', status: 'failed' }]);
  const row = await bench.row(lane);
  assert.deepEqual([row.committed, row.batch_end, row.batch_retry_count, row.attempt_count], [2, null, 0, 0]);
  assert.deepEqual(bench.releases, [`${lane}/${GROUP}`]);
});

test('the reason is the error of the item that signalled, else the first of its group', async (t) => {
  const bench = await Bench.open(t);
  const path = bench.path();
  const reason = async (specs: Parameters<typeof ack>[2]): Promise<string | null> => {
    const lane = await spent(bench);
    await ack(path, lane, specs);
    return (await bench.deadLetters(lane))[0]!.error;
  };
  assert.equal(
    await reason([
      { txn: 'a', error: 'x' },
      { txn: 'b', status: 'failed', error: 'own' },
    ]),
    'own',
  );
  assert.equal(
    await reason([
      { txn: 'c', error: 'first' },
      { txn: 'b', status: 'failed' },
      { txn: 'd', error: 'y' },
    ]),
    'first',
  );
  assert.equal(await reason([{ txn: 'b', status: 'failed', error: '' }]), 'Retries exhausted');
  assert.equal(await reason([{ txn: 'b', status: 'dlq' }]), 'Retries exhausted');
  assert.equal(
    await reason([
      { txn: 'b', status: 'failed', error: 'weaker' },
      { txn: 'b', status: 'dlq', error: 'stronger' },
    ]),
    'stronger',
  );
});

test('the payload is kept as it is stored', async (t) => {
  const bench = await Bench.open(t);
  const lane = await bench.lane();
  const payload = Buffer.from(
    '{ "n" : 1e400, "n": -0, "s": "\\ud800 \\u0000", "z": 123456789012345678901234567890 }\n',
  );
  const [frame] = await bench.append(lane, ['a'], { payload, producerSub: 'me', encrypted: true });
  await bench.consumer(lane, { batchEnd: 0 });
  await ack(bench.path(), lane, [{ txn: 'a', status: 'dlq' }]);
  const [letter] = await bench.deadLetters(lane);
  assert.deepEqual(letter!.payload, payload);
  assert.equal(letter!.message_id!.replaceAll('-', ''), frame!.messageId.toString('hex'));
});

test('a hand-off applies once, however often it is called', async (t) => {
  const bench = await Bench.open(t);
  for (const fenced of [true, false]) {
    const lane = await spent(bench);
    const args = {
      tenant: DEFAULT_TENANT,
      partitionId: lane,
      group: GROUP,
      holder: 'w1',
      fenced,
      offset: 1,
      messageId: null,
      transactionId: 'b',
      payload: null,
      error: 'e',
    };
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => logAckHandOff(bench.db, args)));
    const codes = outcomes.map((row) => row.outcome).sort();
    assert.deepEqual(codes, [0, ...new Array(7).fill(fenced ? 3 : 8)]);
    assert.equal((await bench.deadLetters(lane)).length, 1);
    assert.equal((await bench.row(lane)).total_consumed, 1);

    // The batch is gone, or is somebody else's by now, or does not cover the message, or the lease is over.
    const ahead = { ...args, offset: 3 };
    assert.equal((await logAckHandOff(bench.db, ahead)).outcome, 3);
    await bench.consumer(lane, { committed: 1, batchEnd: 4, worker: 'w2' });
    assert.equal((await logAckHandOff(bench.db, ahead)).outcome, 3);
    assert.equal((await logAckHandOff(bench.db, { ...ahead, offset: 5, holder: 'w2' })).outcome, 3);
    await bench.consumer(lane, { committed: 1, batchEnd: 4, worker: 'w2', leaseSeconds: 0 });
    assert.equal((await logAckHandOff(bench.db, { ...ahead, holder: 'w2' })).outcome, fenced ? 3 : 0);
    assert.equal(
      (await logAckHandOff(bench.db, { ...ahead, tenant: '7f3e0d5c-0000-4000-8000-000000000001' })).outcome,
      4,
    );
    assert.equal((await logAckHandOff(bench.db, { ...ahead, group: 'h' })).outcome, 4);
    assert.equal((await bench.deadLetters(lane)).length, fenced ? 1 : 2);
  }
});

test('lease-less dead letters at the same instant leave one row', async (t) => {
  const bench = await Bench.open(t);
  const lane = await spent(bench);
  const path = bench.path();
  const all = await Promise.all(
    Array.from({ length: 12 }, () => ack(path, lane, [{ txn: 'b', status: 'dlq', lease: null }])),
  );
  const done = all.flat().filter((verdict) => verdict.dlq);
  assert.equal(done.length, 1);
  for (const verdict of all.flat()) {
    if (verdict.dlq) continue;
    assert.equal(verdict.success, false);
    assert.match(verdict.error!, /committed|lease/);
  }
  assert.equal((await bench.deadLetters(lane)).length, 1);
  assert.deepEqual([(await bench.row(lane)).committed, (await bench.row(lane)).total_consumed], [1, 1]);
});

test('a poison whose segment is damaged says where, and other lanes go on', async (t) => {
  const bench = await Bench.open(t);
  const path = bench.path();
  const [bad, good] = [await spent(bench), await spent(bench)];
  await flipByte(bench, bad, 0);
  const verdicts = await path.ack({
    tenant: DEFAULT_TENANT,
    group: GROUP,
    items: [bad, good].flatMap((lane) => [
      item(lane, { txn: 'a' }),
      item(lane, { txn: 'b', status: 'failed' }),
      item(lane, { txn: 'c' }),
    ]),
  });
  assert.deepEqual(
    verdicts.map((verdict) => verdict.success),
    [true, false, true, true, true, true],
  );
  assert.match(
    verdicts[1]!.error!,
    new RegExp(`^segment of partition ${bad} at offsets 0 to 2 is corrupt: `),
  );
  assert.equal(verdicts[4]!.dlq, true);
  const row = await bench.row(bad);
  assert.deepEqual([row.committed, row.worker_id, row.batch_retry_count], [0, 'w1', 3]);
  assert.deepEqual(await bench.deadLetters(bad), []);
});

test('decision and hand-off work on a transaction that is open already, and go with it', async (t) => {
  const bench = await Bench.open(t);
  const lane = await spent(bench);
  const { groups } = groupItems(DEFAULT_TENANT, GROUP, [item(lane, { txn: 'b', status: 'failed' })]);
  const ignore = { searched() {}, unreadable() {} };
  const both = async (tx: Queryable): Promise<number[]> => {
    const run = <T>(work: (db: Queryable) => Promise<T>): Promise<T> => work(tx);
    const [decision] = await decide(run, groups, ignore);
    return [decision!.row.outcome, (await handOff(run, decision!)).outcome];
  };
  const before = await bench.row(lane);
  await assert.rejects(
    bench.db.transaction(async (tx) => {
      assert.deepEqual(await both(tx), [1, 0]);
      throw new Error('rolled back');
    }),
    /rolled back/,
  );
  assert.deepEqual(await bench.row(lane), before);
  assert.deepEqual(await bench.deadLetters(lane), []);
  assert.deepEqual(await bench.db.transaction(both), [1, 0]);
  assert.deepEqual([(await bench.row(lane)).committed, (await bench.deadLetters(lane)).length], [1, 1]);
});
