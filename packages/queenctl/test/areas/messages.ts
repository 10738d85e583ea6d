import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { clientOf, until } from '../../../client/test/setup.ts';
import { directory, ended, fails, json, lines, ok, run, start } from '../run.ts';

test('push, tail, pop and ack, with every digit', async () => {
  const data = '{"total":12.50,"big":123456789012345678901234567890}';
  const table = await ok('push', 'm1', data, '--partition', 'c-7', '--transaction-id', 'o-1');
  assert.match(table, /^TRANSACTION ID +STATUS +OFFSET +MESSAGE ID\no-1 +queued +0 +[0-9a-f-]{36}\n$/);
  const [again] = await json('push', 'm1', data, '-p', 'c-7', '--transaction-id', 'o-1');
  assert.equal(again.status, 'duplicate');
  await ok('push', 'm1', 'a text', '--text');

  const tailed = await ok('tail', 'm1', '--no-follow', '-o', 'json');
  assert.ok(tailed.includes(`"partition":"c-7","offset":0,"transactionId":"o-1"`), tailed);
  assert.ok(tailed.includes(`"data":${data}`), tailed);
  assert.match(
    await ok('tail', 'm1', '--no-follow', '-o', 'yaml'),
    /total: 12\.50\n +big: 123456789012345678901234567890\n/,
  );
  assert.match(
    await ok('tail', 'm1', '-p', 'c-7', '--no-follow'),
    /^\S+Z +c-7 +0 +o-1 +\{"total":12\.50,[^\n]*\n$/,
  );

  const popped = await ok(
    'pop',
    'm1',
    '-g',
    'g',
    '--start',
    'all',
    '-n',
    '5',
    '--partitions',
    '0',
    '-o',
    'json',
  );
  assert.deepEqual(
    lines(popped)
      .map(({ partition }) => partition)
      .sort(),
    ['Default', 'c-7'],
  );
  const acked = await run(['ack', '-', '-o', 'json'], { stdin: popped });
  assert.deepEqual(
    JSON.parse(acked.out).map(({ success }: { success: boolean }) => success),
    [true, true],
  );
  const late = await run(['ack', '-'], { stdin: popped });
  assert.equal(late.code, 1);
  assert.match(late.out, / refused .*lease/);
  const empty = await run(['pop', 'm1', '-g', 'g']);
  assert.deepEqual([empty.code, empty.out, empty.err], [0, '', 'nothing to take from m1\n']);
});

test('files: keys of the payload name partition and message, and a repeat stores nothing twice', async () => {
  const path = join(directory, 'orders.ndjson');
  const text = Array.from({ length: 700 }, (_, n) => `{"id":${n},"customer":{"id":"c-${n % 3}"}}\r\n`).join(
    '\n',
  );
  writeFileSync(path, text);
  const args = ['push', 'm2', '-f', path, '--key', 'customer.id', '--id-key', 'id', '--batch', '100'];
  const { queued, duplicates, failed } = await json(...args);
  assert.deepEqual([queued, duplicates, failed], [700, 0, 0]);
  assert.match(await ok(...args), /^0 messages stored in m2, 700 duplicates \(/);
  const partitions = await json('partitions', 'm2');
  assert.deepEqual(
    partitions.map(({ name, messages }: { name: string; messages: { total: number } }) => [
      name,
      messages.total,
    ]),
    [
      ['c-0', 234],
      ['c-1', 233],
      ['c-2', 233],
    ],
  );
  const page = await run(['partitions', 'm2', '--limit', '1', '--offset', '1']);
  assert.match(page.out, /^PARTITION.*\nc-1 /);
  assert.match(page.err, /1 of 3 partitions; --offset 2 shows more/);

  // A copy by way of the envelope keeps partitions and ids.
  const all = await ok('tail', 'm2', '--no-follow', '-o', 'json');
  assert.equal((await run(['push', 'm2-copy', '--envelope'], { stdin: all })).code, 0);
  const copy = await ok('tail', 'm2-copy', '--no-follow', '-o', 'json');
  const named = (each: Record<string, unknown>) => `${each.partition} ${each.offset} ${each.transactionId}`;
  assert.deepEqual(lines(copy).map(named).sort(), lines(all).map(named).sort());
});

test('what is wrong with input is told with its line, and what came before it is stored', async () => {
  const bad = await fails(2, /standard input, line 2 is no JSON/, ['push', 'm3'], {
    stdin: '{"a":1}\n{"a":\n{"a":2}\n',
  });
  assert.match(bad.out, /^1 message stored in m3/);
  await fails(2, /line 1 has no text or number at b\.c/, ['push', 'm3', '--key', 'b.c'], {
    stdin: '{"b":{}}\n',
  });
  await fails(2, /the payload is no JSON.*--text/s, ['push', 'm3', 'hello']);
  await fails(2, /no-such-file cannot be read/, ['push', 'm3', '-f', 'no-such-file']);
  await fails(2, /--key and --partition exclude each other/, ['push', 'm3', '1', '--key', 'a', '-p', 'b']);
  await fails(2, /transaction ids are needed/, ['ack']);
  await fails(2, /message 1 on standard input has no transactionId/, ['ack', '-'], { stdin: '{"a":1}\n' });
  const control = await fails(4, /transactionId/, ['push', 'm3', '1', '--transaction-id', 'a\u0001b']);
  assert.ok(!control.err.includes('\u0001'));
});

test('a push that waits for input ends when it is told to, and says what it has stored', async () => {
  const child = await start(['push', 'm6'], 'pipe');
  const over = ended(child);
  child.stdin!.write('1\n2\n');
  await until(async () => (await json('queues', 'list')).some(({ name }: { name: string }) => name === 'm6'));
  child.kill('SIGINT');
  const { code, out, err } = await over;
  assert.deepEqual([code, err], [130, 'queenctl: interrupted: what follows was not pushed\n']);
  assert.match(out, /^2 messages stored in m6 /);
});

test('pop gives back, completes, fails; leases are renewed', async () => {
  await ok('push', 'm4', '1', '2');
  assert.match(await ok('pop', 'm4', '--ack', 'retry'), /PAYLOAD\n.* 1\n$/);
  assert.match(await ok('pop', 'm4', '--ack', 'auto'), / 1\n$/);
  const [second] = lines(await ok('pop', 'm4', '-o', 'json'));
  assert.equal(second?.data, 2);
  assert.match(await ok('renew', String(second?.leaseId), '--for', '2m'), /expires: +20/);
  await fails(3, /^$/, ['renew', '00000000-0000-7000-8000-000000000000']);
  const ref = ['--partition-id', String(second?.partitionId), '--lease', String(second?.leaseId)];
  assert.match(
    await ok(
      'nack',
      String(second?.transactionId),
      ...ref,
      '--status',
      'dlq',
      '--error',
      'no\u001b[31m good',
    ),
    /dead letter/,
  );
  const late = await run(['ack', 'no-such-id', ...ref]);
  assert.equal(late.code, 1);
  assert.match(late.out, /refused/);
  // What came from outside does not steer a terminal.
  const listed = await ok('dlq', 'list', '--queue', 'm4');
  assert.ok(listed.includes('no\\u001b[31m good'), listed);
});

test('tail follows: what comes, in partitions that are new as well, until it is told to end', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('m5');
  await queue.partition('a').push([{ data: 1 }, { data: 2 }]);
  const child = await start(['tail', 'm5', '--from', '1h', '-o', 'json']);
  const over = ended(child);
  let seen = '';
  child.stdout!.on('data', (chunk: string) => {
    seen += chunk;
  });
  const numbers = () => lines(seen.slice(0, seen.lastIndexOf('\n') + 1)).map(({ data }) => data);
  await until(() => numbers().length === 2);
  await queue.partition('a').push({ data: 3 });
  await until(() => numbers().includes(3));
  await queue.partition('b').push({ data: 4 });
  await until(() => numbers().includes(4));
  child.kill('SIGINT');
  const { code } = await over;
  assert.deepEqual([code, numbers()], [0, [1, 2, 3, 4]]);
  assert.deepEqual(
    await client.groups.list().then((all) => all.filter(({ queueName }) => queueName === 'm5')),
    [],
  );
  assert.equal(lines(await ok('tail', 'm5', '--from', 'beginning', '-n', '3', '-o', 'json')).length, 3);
  await fails(3, /there is no queue "m55"[\s\S]*did you mean "m5"/, ['tail', 'm55']);
});

test('tail follows more partitions than it can wait at', async (t) => {
  const client = await clientOf(t);
  const queue = client.queue<number>('m7');
  await queue.push(Array.from({ length: 300 }, (_, n) => ({ data: n, partition: `p-${n}` })));
  const child = await start(['tail', 'm7', '--from', 'beginning', '-n', '302', '-o', 'json']);
  const over = ended(child);
  let seen = '';
  child.stdout!.on('data', (chunk: string) => {
    seen += chunk;
  });
  await until(() => seen.split('\n').length === 301);
  await queue.push([
    { data: 300, partition: 'p-7' },
    { data: 301, partition: 'new' },
  ]);
  const { code, out } = await over;
  const numbers = lines(out).map(({ data }) => data as number);
  assert.deepEqual(
    [code, numbers.sort((one, other) => one - other)],
    [0, Array.from({ length: 302 }, (_, n) => n)],
  );
});
