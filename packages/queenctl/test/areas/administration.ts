import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { broker, clientOf, until } from '../../../client/test/setup.ts';
import { asOften, closedUrl, ended, fails, json, ok, run, start } from '../run.ts';

test('queues: configure, list, describe, delete', async () => {
  const made = await ok('queues', 'configure', 'a1.in', 'leaseTime=60', 'retryLimit=5');
  assert.match(made, /leaseTime: +60 \*\nretryLimit: +5 \*\n/);
  const merged = await json('queues', 'configure', 'a1.in', 'retryLimit=6');
  assert.deepEqual([merged.options.leaseTime, merged.options.retryLimit], [60, 6]);
  const replaced = await json('queues', 'configure', 'a1.in', 'retryLimit=6', '--replace');
  assert.equal(replaced.options.leaseTime, 300);
  const odd = await run(['queues', 'configure', 'a1.in', 'ttl=5', 'leaseTime=']);
  assert.match(odd.err, /warning: ttl is stored and has no effect/);
  await fails(2, /leaseTim is no option of a queue: did you mean leaseTime\?/, [
    'queues',
    'configure',
    'a1.in',
    'leaseTim=1',
  ]);
  await fails(2, /leaseTime is an integer, not "x"/, ['queues', 'configure', 'a1.in', 'leaseTime=x']);
  await fails(4, /retentionSinkHoldMaxSeconds/, [
    'queues',
    'configure',
    'a1.in',
    'retentionSinkHoldMaxSeconds=1',
  ]);

  await ok('push', 'a1.in', '1', '2');
  assert.match(await ok('queues', 'list'), /^QUEUE +PARTITIONS +MESSAGES[^\n]*\n(.*\n)*a1\.in +1 +2 +2 /);
  const detail = await json('queue', 'describe', 'a1.in');
  assert.deepEqual([detail.totals.pending, detail.partitions], [2, 1]);
  assert.match(await ok('queue', 'describe', 'a1.in'), /No group reads it/);
  await fails(3, /there is no queue "a1\.inn"\n +did you mean "a1\.in"\?/, ['queues', 'describe', 'a1.inn']);
  await fails(2, /a1\.in will be deleted with all messages; that has to be confirmed/, [
    'queues',
    'delete',
    'a1.in',
  ]);
  const gone = await run(['queues', 'delete', 'a1.in', 'a1.none', '--yes']);
  assert.deepEqual([gone.code, gone.out], [3, 'a1.in is deleted\na1.none was not there\n']);
  await ok('queues', 'delete', 'a1.none', '--yes', '--if-exists');
});

test('groups and seeks: where they are, what a move would do, and the move', async () => {
  await ok('push', 'a2', '1', '2', '3', '--partition', 'p');
  await ok('pop', 'a2', '-g', 'a2-g', '--start', 'all', '-n', '2', '--ack', 'auto');
  // The group has no cursor there, and would start at the oldest.
  await ok('push', 'a2', '4', '--partition', 'q');
  const standing = async () => {
    const [group] = await json('groups', 'list', '--queue', 'a2');
    return group;
  };
  assert.equal((await standing()).totalLag, 2);
  assert.match(await ok('groups', 'describe', 'a2-g'), /a2 +p +1 /);
  await fails(3, /the group "a2-h" has no cursor[\s\S]*did you mean "a2-g"/, ['groups', 'describe', 'a2-h']);

  const dry = await json('seek', 'a2-g', 'a2', '--to', 'beginning', '--dry-run');
  assert.deepEqual([dry.again, dry.skipped, dry.toCome], [2, 0, 4]);
  const p = dry.moves.find(({ partition }: { partition: string }) => partition === 'p');
  assert.deepEqual(p, { partition: 'p', from: 2, to: 0, skipped: 0, again: 2, toCome: 3 });
  assert.match(await ok('seek', 'a2-g', 'a2', '--to', 'end', '--dry-run'), /p +2 +3 +1 +0 +0\n/);
  assert.equal((await standing()).totalLag, 2, 'nothing was moved');
  await fails(2, /a2-g would skip 2 messages on a2, with 0 to come; that has to be confirmed/, [
    'seek',
    'a2-g',
    'a2',
    '--to',
    'end',
  ]);
  await ok('seek', 'a2-g', 'a2', '--to', 'end', '--yes');
  assert.equal((await standing()).totalLag, 0);
  await ok('seek', 'a2-g', 'a2', '--partition', 'p', '--offset', '1', '--yes');
  assert.equal((await standing()).totalLag, 2);
  assert.equal((await json('seek', 'a2-g', 'a2', '--to', '1h', '--dry-run')).again, 2);
  await fails(2, /--offset needs --partition/, ['seek', 'a2-g', 'a2', '--offset', '1']);
  await fails(2, /--to <where>.*is an instant/, ['seek', 'a2-g', 'a2', '--to', 'tomorrow']);
  await fails(3, /a2 has no partition "r"/, ['seek', 'a2-g', 'a2', '--to', 'end', '-p', 'r']);

  assert.match((await run(['groups', 'lagging'])).err, /no group is later than 1h/);
  assert.match(await ok('groups', 'start-from', 'a2-g', '1h'), /starts at 20/);
  await fails(3, /nobody has popped for the group/, ['groups', 'start-from', 'a2-none', '1h']);
  await fails(2, /has to be confirmed/, ['groups', 'delete', 'a2-g']);
  assert.match(await ok('groups', 'delete', 'a2-g', '--queue', 'a2', '-y'), /\d cursors? of a2-g deleted/);
  assert.equal((await run(['groups', 'delete', 'a2-g', '-y'])).code, 3);
});

test('dead letters: list, show, replay, delete', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<{ n: number }>('a3').group('a3-g');
  await queue.push([1, 2, 3, 4].map((n) => ({ data: { n }, transactionId: `t-${n}` })));
  for (let n = 0; n < 4; n++)
    await client.ack(await queue.pop({ batch: 1, subscriptionMode: 'all' }), 'dlq', { error: 'no stock' });
  const letters = await json('dlq', 'list', '--queue', 'a3', '--group', 'a3-g');
  assert.deepEqual(letters.map(({ data }: { data: { n: number } }) => data.n).sort(), [1, 2, 3, 4]);
  assert.match(await ok('dlq', 'list', '--queue', 'a3'), /a3-g +t-\d +\d+ +\S+ +no stock\n/);
  assert.match(
    (await run(['dlq', 'list', '--queue', 'a3', '--limit', '1'])).err,
    /1 of 4; --offset 1 shows more/,
  );
  const id = (n: number) => letters.find((letter: { data: { n: number } }) => letter.data.n === n).id;
  assert.match(await ok('dlq', 'show', id(2), '--queue', 'a3'), /reason: +no stock\n\n\{\n {2}"n": 2\n\}\n$/);
  await fails(3, /there is no dead letter "0"/, ['dlq', 'show', '0', '--queue', 'a3']);
  assert.equal(await ok('dlq', 'list', '--queue', 'none', '-o', 'yaml'), '[]\n');

  assert.equal(await ok('dlq', 'replay', id(1), '--to-queue', 'a3-again'), '1 replayed\n');
  const gone = await run(['dlq', 'replay', id(1), '-o', 'json']);
  assert.deepEqual([gone.code, JSON.parse(gone.out).gone], [3, 1]);
  assert.equal(await ok('dlq', 'delete', id(2), '--queue', 'a3', '--yes'), '1 dead letter deleted\n');
  await fails(2, /ids are needed, or --queue with --all/, ['dlq', 'replay']);
  await fails(2, /2 dead letters will be pushed again into a3; that has to be confirmed/, [
    'dlq',
    'replay',
    '--queue',
    'a3',
    '--all',
  ]);
  assert.equal(await ok('dlq', 'replay', '--queue', 'a3', '--all', '-y'), '2 replayed\n');
  const replayed = await queue.pop({ batch: 10 });
  assert.deepEqual(
    replayed.map(({ data }) => data.n),
    [3, 4],
    'the oldest first',
  );
  assert.equal(await ok('dlq', 'delete', '--queue', 'a3', '--all', '-y'), '0 dead letters deleted\n');

  // One message that two groups have given up.
  const shared = client.queue('a3-shared');
  await shared.push({ data: 1 });
  for (const group of ['g', 'h'])
    await client.ack(await shared.group(group).pop({ subscriptionMode: 'all' }), 'dlq');
  const ids = (await shared.deadLetters.list()).map((letter) => letter.id);
  await fails(3, /there is no dead letter "0"/, ['dlq', 'delete', ids[0]!, '0', '-y']);
  await fails(2, /The dead letters of 1 message will be deleted/, ['dlq', 'delete', ...ids]);
  assert.equal(await ok('dlq', 'delete', ...ids, '-y'), '2 dead letters deleted\n');
});

test('health that waits ends when it is told to', async (t) => {
  let asked = 0;
  const server = createServer((_, response) => {
    asked++;
    response.writeHead(503).end();
  });
  t.after(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const child = await start(['health', '--wait', '10m', '-u', `http://127.0.0.1:${port}`]);
  const over = ended(child);
  await until(() => asked >= 2);
  child.kill('SIGINT');
  const { code, out, err } = await over;
  assert.deepEqual([code, out, err], [130, '', 'queenctl: interrupted\n']);
});

test('messages, status, health, switches', async () => {
  const nowhere = await closedUrl();
  await ok('push', 'a4', '{"n":1.0}', '--transaction-id', 'x');
  const [message] = await json('messages', 'list', '--queue', 'a4', '--from', '1h');
  assert.equal(message.status, 'pending');
  assert.match(
    await ok('messages', 'show', message.partitionId, 'x'),
    /transaction id: +x\n[\s\S]*"n": 1\.0\n/,
  );
  await fails(3, /there is no message "y" in partition/, ['messages', 'show', message.partitionId, 'y']);

  assert.match(await ok('health'), /^BROKER +STATE.*\nhttp\S+ +healthy /);
  const none = await run(['health', '-u', `${nowhere},${nowhere}/other`, '-o', 'json']);
  assert.deepEqual(
    [none.code, JSON.parse(none.out).map(({ state }: { state: string }) => state)],
    [6, ['unreachable', 'unreachable']],
  );
  await fails(6, /no answer to GET .*\n +is a broker running there\?/, [
    'queues',
    'list',
    '-u',
    asOften(nowhere),
  ]);
  const { url } = await broker();
  await fails(4, /the broker has no such route/, ['queues', 'list', '-u', `${url}/api/older`]);
  const status = await json('status');
  assert.equal(status.brokers[0].state, 'healthy');
  assert.match(await ok('status'), /\nqueues: +\d+\n/);

  await fails(2, /pushes will wait on the disks of the brokers; that has to be confirmed/, [
    'maintenance',
    'pause',
    'push',
  ]);
  assert.equal((await json('maintenance', 'pause', 'timers-fire', '--yes')).paused['timers-fire'], true);
  assert.match(await ok('status'), /Switched: timers do not fire\n/);
  assert.match(await ok('maintenance', 'resume', 'timers-fire'), /timers-fire: +on\n/);
  await fails(2, /Allowed choices are push, pop, kv/, ['maintenance', 'pause', 'all']);
});
