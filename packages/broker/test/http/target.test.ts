import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../src/http/errors.ts';
import { Query } from '../../src/http/query.ts';
import { decodeSegment, splitTarget } from '../../src/http/target.ts';
import { openWire } from './wire.ts';

function fieldOf(work: () => unknown): string | undefined {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof Fault);
    assert.equal(error.status, 400);
    return error.field;
  }
  assert.fail('nothing was refused');
}

test('targets split at the first question mark, absolute forms lose their authority', () => {
  assert.deepEqual(splitTarget('/a/b?x=1?2'), { path: '/a/b', query: 'x=1?2' });
  assert.deepEqual(splitTarget('http://host:1/a?x'), { path: '/a', query: 'x' });
  assert.deepEqual(splitTarget('http://host?x'), { path: '/', query: 'x' });
  assert.deepEqual(splitTarget('*'), { path: '/*', query: '' });
  assert.deepEqual(splitTarget('/a?x=1#y'), { path: '/a', query: 'x=1' });
});

test('a segment decodes to what was encoded, slashes and percent signs included', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'grapheme' }),
      (name) => decodeSegment(encodeURIComponent(name), 'queue') === name,
    ),
  );
  assert.equal(decodeSegment('a%2Fb', 'queue'), 'a/b');
  assert.equal(decodeSegment('a%252Fb', 'queue'), 'a%2Fb');
  assert.equal(decodeSegment('%00', 'queue'), '\0');
});

test('malformed escapes and invalid UTF-8 in a segment are refused by field', () => {
  for (const segment of ['%', '%2', '%zz', '%ff', '%ed%a0%80', '%c0%af']) {
    assert.equal(
      fieldOf(() => decodeSegment(segment, 'queue')),
      'queue',
      segment,
    );
  }
});

test('typed parameters: what cannot be read names the parameter, what is unknown is ignored', () => {
  const query = new Query('batch=%2B10&wait=true&autoAck=false&unknown=%zz&consumerGroup=a+b%2Bc&empty=');
  assert.equal(query.integer('batch'), 10);
  assert.equal(query.boolean('wait'), true);
  assert.equal(query.boolean('autoAck'), false);
  assert.equal(query.text('consumerGroup'), 'a b+c');
  assert.equal(query.text('empty'), '');
  assert.equal(query.integer('absent'), null);
  for (const value of [
    '',
    'x',
    '1.5',
    '1e3',
    '0x10',
    ' 1',
    '2147483648',
    '-2147483649',
    '99999999999999999999',
    'NaN',
  ]) {
    assert.equal(
      fieldOf(() => new Query(`batch=${value}`).integer('batch')),
      'batch',
      value,
    );
  }
  for (const value of ['', 'TRUE', '1', 'yes', 'null']) {
    assert.equal(
      fieldOf(() => new Query(`wait=${value}`).boolean('wait')),
      'wait',
      value,
    );
  }
  assert.equal(
    fieldOf(() => new Query('batch=1&batch=1').integer('batch')),
    'batch',
  );
  assert.equal(
    fieldOf(() => new Query('consumerGroup=%ff').text('consumerGroup')),
    'consumerGroup',
  );
});

test('a name reaches the engine as the client meant it, by both routers', async (t) => {
  const wire = await openWire(t);
  const name = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }).filter(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: those are refused, see the next test
    (text) => !/[\u0000-\u001f\u007f-\u009f]/.test(text),
  );
  await fc.assert(
    fc.asyncProperty(name, name, async (queue, partition) => {
      const q = encodeURIComponent(queue);
      // A lone dot or two would be resolved away by fetch, encoded or not.
      fc.pre(!/^\.{1,2}$/.test(queue) && !/^\.{1,2}$/.test(partition));
      await fetch(`${wire.url}/api/v1/pop/queue/${q}/partition/${encodeURIComponent(partition)}`);
      assert.deepEqual(wire.broker.pops.at(-1)!.scope, { kind: 'partition', queue, partition });
      await fetch(`${wire.url}/api/v1/resources/queues/${q}`, { method: 'DELETE' });
      assert.equal(wire.broker.deleted.at(-1), queue);
    }),
    { numRuns: 60 },
  );
});

test('names that cannot be are refused on every route that takes one', async (t) => {
  const wire = await openWire(t);
  const bad = ['%00', 'a%1Fb', 'x'.repeat(256), '%F0%9F%91%8D'.repeat(256), '%C2%85'];
  const routes: [string, (name: string) => string][] = [
    ['GET', (name) => `/api/v1/pop/queue/${name}`],
    ['GET', (name) => `/api/v1/pop/queue/q/partition/${name}`],
    ['GET', (name) => `/api/v1/pop/queue/q?consumerGroup=${name}`],
    ['GET', (name) => `/api/v1/pop?namespace=${name}`],
    ['GET', (name) => `/api/v1/pop?task=${name}`],
    ['GET', (name) => `/api/v1/resources/queues/${name}`],
    ['GET', (name) => `/api/v1/resources/queues/${name}/depth`],
    ['GET', (name) => `/api/v1/resources/queues/q/depth?group=${name}`],
    ['DELETE', (name) => `/api/v1/resources/queues/${name}`],
  ];
  for (const [method, path] of routes) {
    for (const name of bad) {
      const answer = await fetch(wire.url + path(name), { method });
      assert.equal(answer.status, 400, path(name));
      const { error, field } = (await answer.json()) as { error: string; field: string };
      assert.ok(field !== undefined && error.includes(field), `${path(name)}: ${error}`);
    }
    const malformed = await fetch(wire.url + path('%zz'), { method });
    assert.equal(malformed.status, 400, path('%zz'));
    await malformed.text();
  }
  assert.equal(wire.broker.pops.length + wire.broker.deleted.length + wire.broker.depthGroups.length, 0);
});
