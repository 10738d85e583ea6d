import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fails, json, ok, run } from '../run.ts';

test('keys: put, get, compare and set, count, list, delete', async () => {
  assert.match(await ok('kv', 'put', 'k1', 'mode', '{"rate": 1.50}'), /^mode is written, version \d+\n$/);
  assert.equal(await ok('kv', 'get', 'k1', 'mode'), '{\n  "rate": 1.50\n}\n');
  const { version } = await json('kv', 'get', 'k1', 'mode');
  await fails(4, /k1\/mode was not written: there is a value already/, [
    'kv',
    'put',
    'k1',
    'mode',
    '1',
    '--if-absent',
  ]);
  await fails(4, /somebody else has written it meanwhile\n +version \d+ is there: \{"rate":1\.50\}/, [
    'kv',
    'cas',
    'k1',
    'mode',
    '99',
    '1',
  ]);
  await ok('kv', 'cas', 'k1', 'mode', String(version), '2');
  await run(['kv', 'put', 'k1', 'text', '-', '--text', '--ttl', '1h'], { stdin: 'from outside' });
  const text = await json('kv', 'get', 'k1', 'text');
  assert.equal(text.value, 'from outside');
  assert.ok(Date.parse(text.expiresAt) > Date.now());
  assert.equal(await ok('kv', 'incr', 'k1', 'n', '--by', '5'), '5\n');
  assert.equal((await json('kv', 'incr', 'k1', 'n', '--by=-2')).value, 3);
  await fails(4, /the result would leave --min to --max/, ['kv', 'incr', 'k1', 'n', '--by=-9', '--min', '0']);
  await fails(2, /--ttl <time>.*whole seconds/, ['kv', 'put', 'k1', 'x', '1', '--ttl', '10ms']);

  assert.match(
    await ok('kv', 'list', 'k1', '--prefix', 'm'),
    /^KEY +VERSION.*VALUE\nmode +\d+ +- +\S+Z +2\n$/,
  );
  const first = await run(['kv', 'list', 'k1', '--keys-only', '--limit', '2', '-o', 'json']);
  assert.equal(JSON.parse(first.out).length, 2);
  assert.match(first.err, /the first 2; --limit 0 shows all/);
  assert.ok(
    (await json('kv', 'namespaces')).some(
      ({ namespace, keys }: { namespace: string; keys: number }) => namespace === 'k1' && keys === 3,
    ),
  );
  await fails(3, /k1 has no key "none"/, ['kv', 'get', 'k1', 'none']);
  assert.equal((await run(['kv', 'delete', 'k1', 'mode', 'none'])).code, 3);
  await fails(2, /2 keys of k1 will be deleted; that has to be confirmed/, [
    'kv',
    'delete',
    'k1',
    '--prefix',
    '',
  ]);
  assert.equal((await json('kv', 'delete', 'k1', '--prefix', '', '-y')).deleted, 2);
});

test('timers: schedule, list, show, count, cancel', async () => {
  const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
  assert.match(
    await ok('timers', 'schedule', 't1', 'remind-1', '{"n":1}', '--in', '1h'),
    /^remind-1 is scheduled for 20/,
  );
  assert.match(
    await ok('timers', 'schedule', 't1', 'remind-1', '{"n":2}', '--at', tomorrow, '-p', 'x'),
    /^remind-1 is rescheduled/,
  );
  await ok('timers', 'schedule', 't1', 'remind-2', 'hi', '--text', '--in', '50m');
  const listed = await json('timers', 'list', 't1', '--prefix', 'remind-');
  assert.ok(listed.some(({ key }: { key: string }) => key === 'remind-2'));
  assert.match(await ok('timers', 'show', 't1', 'remind-2'), /deliverAt: +20[\s\S]*"hi"\n$/);
  assert.match(await ok('timers', 'count', 't1', 'remind-'), /^2\n$/);
  await fails(2, /--in or --at is needed/, ['timers', 'schedule', 't1', 'k', '1']);
  await fails(4, /./, ['timers', 'schedule', 't1', 'k', '1', '--in', '400d']);
  const cancelled = await run(['timers', 'cancel', 't1', 'remind-2', 'remind-2']);
  assert.deepEqual(
    [cancelled.code, cancelled.out],
    [3, 'KEY       STATUS\nremind-2  cancelled\nremind-2  absent\n'],
  );
  await fails(3, /no timer "remind-2" is pending for t1\n +it may have fired/, [
    'timers',
    'show',
    't1',
    'remind-2',
  ]);
});
