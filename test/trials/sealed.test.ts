/** A queue that encrypts is refused where it cannot be kept closed: at the switch, at the push and at the start. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { unpackSegment } from '../../packages/broker/src/log/segment.ts';
import { Client, type Pushed } from '../broker/client.ts';
import { spawnBroker, startBroker } from '../kit/broker.ts';
import { deadLetters, FRUGAL, names, openRig, sql, txnsOf } from './rig.ts';

const KEY = '0123456789abcdef'.repeat(4);

test('a queue that encrypts', async (t) => {
  const rig = await openRig(t, 1);
  const [blind] = rig.clients as [Client];
  const sealing = await startBroker(
    { database: rig.database, env: { ...FRUGAL, QUEEN_ENCRYPTION_KEY: KEY } },
    t,
  );
  const seeing = new Client(sealing.url);
  const secret = { card: 'the secret that nobody may read' };
  const item = (queue: string, transactionId: string) => ({ queue, transactionId, payload: secret });

  await t.test('cannot be had without a key', async () => {
    for (const body of [
      { queue: 'vault', options: { encryptionEnabled: true } },
      { queue: 'vault', options: { leaseTime: 7, encryptionEnabled: true }, mode: 'replace' },
      { queue: 'vault', encryptionEnabled: true },
    ]) {
      const { status, body: answer } = await blind.call('POST', '/api/v1/configure', body);
      assert.deepEqual([status, answer.code], [400, 'encryption_required']);
      assert.match(String(answer.error), /QUEEN_ENCRYPTION_KEY/);
    }
    assert.equal(
      (await blind.call('GET', '/api/v1/resources/queues/vault')).status,
      404,
      'nothing was written',
    );
    await blind.push([item('plain', 'a')]);
    await blind.call('POST', '/api/v1/configure', {
      queue: 'plain',
      options: { leaseTime: 9, encryptionEnabled: true },
    });
    const { body } = await blind.call('GET', '/api/v1/resources/queues/plain');
    assert.deepEqual([(body.options as { leaseTime: number }).leaseTime], [60], 'not even the other option');
  });

  await t.test('takes nothing from a broker without one, from the very moment on', async () => {
    // The broker without a key knows this lane well.
    for (const txn of names('before', 3))
      assert.equal((await blind.push([item('vault', txn)]))[0]!.status, 'queued');
    await seeing.configure('vault', { encryptionEnabled: true });
    const pushes = await Promise.all(
      names('m', 5).map((txn) =>
        blind.push([item('vault', txn), item('vault', `${txn}+`), item('other', txn)]),
      ),
    );
    for (const [first, second, other] of pushes as [Pushed, Pushed, Pushed][]) {
      for (const { status, error } of [first, second]) {
        assert.equal(status, 'failed');
        assert.match(error!, /^encryption_required\b/);
      }
      assert.equal(other.status, 'queued', 'the rest of the request is taken');
    }
    for (const lane of ['new lane', 'another']) {
      const [result] = await blind.push([{ ...item('vault', lane), partition: lane }]);
      assert.deepEqual([result!.status, result!.error?.startsWith('encryption_required')], ['failed', true]);
    }
    const [stored] = await seeing.push([item('vault', 'sealed')]);
    assert.equal(stored!.status, 'queued');
    const [again] = await seeing.push([item('vault', 'm0')]);
    assert.equal(again!.status, 'queued', 'what was refused left no trace');
  });

  await t.test('never stores plaintext, and says what it cannot open as it is', async () => {
    const rows = await sql<{ blob: Buffer; count: number }>(
      rig.db,
      `SELECT s.blob, (s.end_offset - s.base_offset + 1)::int AS count FROM queen.log_segments s
         JOIN queen.log_partitions p ON p.id = s.partition_id JOIN queen.queues q ON q.id = p.queue_id
        WHERE q.name = 'vault' ORDER BY s.partition_id, s.base_offset`,
    );
    const frames = (await Promise.all(rows.map(({ blob, count }) => unpackSegment(blob, count)))).flat();
    assert.deepEqual(
      frames.map(({ transactionId, encrypted, payload }) => [
        transactionId,
        encrypted,
        payload.includes('secret'),
      ]),
      [...names('before', 3).map((txn) => [txn, false, true]), ['sealed', true, false], ['m0', true, false]],
    );
    const open = await seeing.pop('vault', { consumerGroup: 'open', subscriptionMode: 'all' });
    assert.deepEqual(
      open.map(({ data }) => data),
      Array.from({ length: 5 }, () => secret),
    );
    const closed = await blind.pop('vault', { consumerGroup: 'closed', subscriptionMode: 'all' });
    assert.deepEqual(txnsOf(closed), txnsOf(open), 'nobody is blocked');
    assert.deepEqual(Object.keys(closed[4]!.data as object).sort(), ['authTag', 'encrypted', 'iv']);
    // A dead letter is as closed as the message was.
    assert.ok((await blind.ack(closed[4]!, 'dlq')).dlq);
    const [letter] = await deadLetters(rig.db, closed[4]!.partitionId);
    assert.doesNotMatch(letter!.payload!, /secret/);
  });

  await t.test('lets no broker start without a key, or with half of one', async () => {
    const without = await spawnBroker({ database: rig.database, env: FRUGAL }, t).ended;
    assert.equal(without.code, 1);
    assert.match(
      without.logs,
      /FATAL: .*encrypt.*QUEEN_ENCRYPTION_KEY|FATAL: .*QUEEN_ENCRYPTION_KEY.*encrypt/,
    );
    for (const bad of [KEY.slice(1), KEY.replace('0', 'g')]) {
      const ended = await spawnBroker(
        { database: rig.database, env: { ...FRUGAL, QUEEN_ENCRYPTION_KEY: bad } },
        t,
      ).ended;
      assert.equal(ended.code, 1);
      assert.match(ended.logs, /FATAL: QUEEN_ENCRYPTION_KEY=\(not shown\) is not 64 hex digits/);
      assert.ok(!ended.logs.includes(bad), 'and is not shown');
    }
  });
});
