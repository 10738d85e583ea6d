import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { EngineError } from '../../src/engine/errors.ts';
import { Queues } from '../../src/engine/queues/queues.ts';
import type { QueueOptions } from '../../src/engine/types.ts';
import { statement } from '../../src/store/database.ts';
import { admission, partitionOf, TENANT } from '../retention/log_fixture.ts';

const DEFAULTS: QueueOptions = {
  namespace: '',
  task: '',
  priority: 0,
  leaseTime: 300,
  retryLimit: 3,
  retryDelay: 1000,
  maxSize: 0,
  ttl: 3600,
  deadLetterQueue: true,
  dlqAfterMaxRetries: true,
  delayedProcessing: 0,
  windowBuffer: 0,
  retentionEnabled: false,
  retentionSeconds: 0,
  completedRetentionSeconds: 0,
  maxWaitTimeSeconds: 0,
  minPopWaitTime: 0,
  encryptionEnabled: false,
  dedupWindowSeconds: 3600,
  retentionSinkHold: '',
  retentionSinkHoldMaxSeconds: 604_800,
};

async function setup(t: { after(fn: () => Promise<void>): void }, canEncrypt = false) {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const deleted: string[] = [];
  const queues = new Queues({
    db,
    admission,
    announcer: { queueDeleted: (_tenant, queue) => void deleted.push(queue) },
    deleted() {},
    canEncrypt,
  });
  const configure = (queue: string, options: Record<string, unknown>, mode: 'merge' | 'replace' = 'merge') =>
    queues.configure({ tenant: TENANT, queue, mode, options: options as never });
  return { database, db, queues, configure, deleted };
}

test('a queue that configure creates has the documented defaults', async (t) => {
  const { configure } = await setup(t);
  const made = await configure('a.b.c', {});
  assert.deepEqual(made.options, DEFAULTS);
  assert.match(made.queueId, /^\d+$/);
  assert.deepEqual(made.ignored, []);
});

test('merge keeps what is not named, null resets, replace resets what is not named', async (t) => {
  const { configure } = await setup(t);
  const first = await configure('q', {
    leaseTime: 45,
    dedupWindowSeconds: 0,
    namespace: 'n',
    retentionEnabled: true,
  });
  const second = await configure('q', { retryLimit: 0, leaseTime: null });
  assert.equal(second.queueId, first.queueId);
  assert.deepEqual(second.options, {
    ...DEFAULTS,
    dedupWindowSeconds: 0,
    namespace: 'n',
    retentionEnabled: true,
    retryLimit: 0,
  });
  const third = await configure('q', { task: 't', ttl: null }, 'replace');
  assert.deepEqual(third.options, { ...DEFAULTS, task: 't' });
  assert.deepEqual((await configure('q', {})).options, third.options);
});

test('every option goes in and comes back', async (t) => {
  const { configure, queues } = await setup(t, true);
  const odd: QueueOptions = {
    namespace: 'näme space',
    task: 'täsk',
    priority: -1,
    leaseTime: 2_147_483_647,
    retryLimit: 7,
    retryDelay: 8,
    maxSize: 9,
    ttl: 10,
    deadLetterQueue: false,
    dlqAfterMaxRetries: false,
    delayedProcessing: 11,
    windowBuffer: 12,
    retentionEnabled: true,
    retentionSeconds: 13,
    completedRetentionSeconds: 14,
    maxWaitTimeSeconds: 15,
    minPopWaitTime: 16,
    encryptionEnabled: true,
    dedupWindowSeconds: 17,
    retentionSinkHold: 'sink.one_2-x',
    retentionSinkHoldMaxSeconds: 60,
  };
  const made = await configure('q', odd as never);
  assert.deepEqual(made.options, odd);
  assert.deepEqual(made.ignored.sort(), ['maxSize', 'priority', 'retryDelay', 'ttl']);
  assert.deepEqual((await queues.inspectQueue(TENANT, 'q'))?.options, odd);
  const reset = Object.fromEntries(Object.keys(odd).map((key) => [key, null]));
  assert.deepEqual((await configure('q', reset)).options, DEFAULTS);
});

test('clamps', async (t) => {
  const { configure } = await setup(t);
  const low = await configure('q', { minPopWaitTime: -5, dedupWindowSeconds: -1 });
  assert.equal(low.options.minPopWaitTime, 0);
  assert.equal(low.options.dedupWindowSeconds, 0);
  assert.equal((await configure('q', { minPopWaitTime: 60_001 })).options.minPopWaitTime, 60_000);
});

test('a value of the wrong kind is refused by name and nothing is written', async (t) => {
  const { configure, queues } = await setup(t);
  const wrong: [string, unknown][] = [
    ['leaseTime', '300'],
    ['leaseTime', 1.5],
    ['leaseTime', 2_147_483_648],
    ['leaseTime', -2_147_483_649],
    ['leaseTime', Number.POSITIVE_INFINITY],
    ['leaseTime', true],
    ['retryLimit', []],
    ['deadLetterQueue', 'true'],
    ['deadLetterQueue', 1],
    ['retentionEnabled', {}],
    ['namespace', 5],
    ['namespace', 'x'.repeat(256)],
    ['task', 'a\u0000b'],
    ['task', '\ud800'],
    ['retentionSinkHold', 'white space'],
    ['retentionSinkHold', 'x'.repeat(65)],
    ['retentionSinkHold', 'line\n'],
    ['retentionSinkHold', 3],
    ['retentionSinkHoldMaxSeconds', 59],
    ['retentionSinkHoldMaxSeconds', 31_536_001],
  ];
  for (const [option, value] of wrong) {
    await assert.rejects(configure('q', { retryLimit: 1, [option]: value }), (error) => {
      assert.ok(error instanceof EngineError);
      assert.equal(error.kind, 'refused');
      assert.equal(error.code, 'invalid_option');
      assert.equal(error.field, option);
      assert.match(error.message, new RegExp(option));
      return true;
    });
  }
  await assert.rejects(configure('q', { encryptionEnabled: true }), { code: 'encryption_required' });
  await assert.rejects(configure('q\u0000', {}), { code: 'bad_name' });
  await assert.rejects(configure('q', {}, 'other' as never), { code: 'bad_mode' });
  assert.deepEqual(await queues.listQueues(TENANT), []);
});

test('names of the prototype chain are no options', async (t) => {
  const { configure } = await setup(t);
  const made = await configure(
    'q',
    JSON.parse('{"__proto__":{"leaseTime":9},"toString":1,"constructor":2,"x":3}'),
  );
  assert.deepEqual(made.options, DEFAULTS);
});

test('implicit creation derives namespace and task and leases for a minute', async (t) => {
  const { db, queues } = await setup(t);
  const ensure = statement(
    'test_ensure',
    'SELECT queen.queue_ensure($1::uuid, ARRAY[$2::text, $2::text])::text',
  );
  for (const name of ['plain', 'a.b', 'a.b.c', '.x', 'y.']) await db.query(ensure, [TENANT, name]);
  const seen = (await queues.listQueues(TENANT)).map((queue) => [queue.name, queue.namespace, queue.task]);
  assert.deepEqual(seen, [
    ['.x', '', 'x'],
    ['a.b', 'a', 'b'],
    ['a.b.c', 'a', 'b'],
    ['plain', '', ''],
    ['y.', 'y', ''],
  ]);
  const detail = await queues.inspectQueue(TENANT, 'a.b');
  assert.deepEqual(detail?.options, { ...DEFAULTS, namespace: 'a', task: 'b', leaseTime: 60 });
});

test('a push that creates derives the same', async (t) => {
  const { db, queues, configure } = await setup(t);
  await partitionOf(db, 'shop.orders.eu', 'p');
  const detail = await queues.inspectQueue(TENANT, 'shop.orders.eu');
  assert.deepEqual(detail?.options, { ...DEFAULTS, namespace: 'shop', task: 'orders', leaseTime: 60 });
  assert.equal((await configure('shop.orders.eu', { leaseTime: null })).options.leaseTime, 300);
});

test('calls in parallel lose no key of each other, nor do creations', async (t) => {
  const { configure } = await setup(t);
  const keys = [
    'leaseTime',
    'retryLimit',
    'ttl',
    'priority',
    'maxSize',
    'retryDelay',
    'windowBuffer',
  ] as const;
  for (let round = 1; round <= 5; round++) {
    const ids = await Promise.all(keys.map((key) => configure(`q${round}`, { [key]: round * 10 })));
    assert.equal(new Set(ids.map((made) => made.queueId)).size, 1);
    const { options } = await configure(`q${round}`, {});
    for (const key of keys) assert.equal(options[key], round * 10, key);
  }
});

test('a configuration does not wait for provisioning and does not hold it up', async (t) => {
  const { database, db, configure } = await setup(t);
  await configure('q', {});
  const other = await database.open();
  t.after(() => other.close());
  const insert = statement(
    'test_insert_partition',
    "INSERT INTO queen.log_partitions (queue_id, name) SELECT id, 'p' FROM queen.queues WHERE name = 'q'",
  );
  await other.transaction(async (tx) => {
    await tx.query(insert);
    await configure('q', { leaseTime: 5 });
  });
  assert.ok((await partitionOf(db, 'q', 'p')) > 0);
});
