/** Push maintenance and the spool over HTTP: what is answered, what is kept, and that it comes into the log in order. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { SpoolSettings } from '../../packages/broker/src/engine/spool/spool.ts';
import { parseSealingKey } from '../../packages/broker/src/log/envelope.ts';
import { StoreError } from '../../packages/broker/src/store/errors.ts';
import { atEnd } from '../kit/cleanup.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { until } from '../kit/until.ts';
import type { Pushed } from './client.ts';
import { failStatement, type Live, type LiveOptions, openLive, sql } from './live.ts';

const MAINTENANCE = '/api/v1/system/maintenance';

function spoolDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  atEnd(t, () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function spoolAt(directory: string, over: Partial<SpoolSettings> = {}): SpoolSettings {
  const bytesMax = 64 * 1024 * 1024;
  return {
    directories: [directory],
    flushMs: 20,
    batchEvents: 100,
    eventsPerFile: 10_000,
    bytesMax,
    ...over,
  };
}

async function open(
  t: TestContext,
  directory: string,
  options: LiveOptions & { spool?: Partial<SpoolSettings> } = {},
): Promise<Live> {
  const live = await openLive(t, {
    alone: 'the spool of one process is looked at',
    ...options,
    settings: { spool: spoolAt(directory, options.spool), ...options.settings },
  });
  live.broker.spool!.start();
  return live;
}

const items = (ids: readonly string[], queue = 'q', partition = 'p') =>
  ids.map((transactionId) => ({ queue, partition, transactionId, payload: { of: transactionId } }));

/** The log of a queue, read without a group's help. */
async function stored(live: Live, queue = 'q'): Promise<{ id: string; transactionId: string }[]> {
  const all = await live.client.pop(queue, {
    autoAck: true,
    consumerGroup: `reader-${Math.random()}`,
    subscriptionMode: 'all',
    batch: 10_000,
    partitions: 0,
  });
  return all.map(({ id, transactionId }) => ({ id, transactionId }));
}

test('push maintenance: pushes of every broker wait on disk, all else goes on, then they come in order', async (t) => {
  const directory = spoolDirectory(t);
  const one = await open(t, directory);
  const other = await open(t, directory, { database: one.database });
  assert.deepEqual(readdirSync(directory).sort(), ['0', '1']);
  await one.client.push(items(['before']));
  const on = await one.ask('POST', MAINTENANCE, { enabled: true });
  assert.deepEqual(on.body, {
    maintenanceMode: true,
    bufferedMessages: 0,
    bufferHealthy: true,
    message: 'Maintenance mode ENABLED. All PUSHes routing to file buffer.',
  });
  await until('the other one knows', async () => other.broker.switches.known().maintenance_mode);

  const kept = await one.client.push(items(['a', 'b', 'a']));
  assert.deepEqual(
    kept.map(({ status }) => status),
    ['buffered', 'buffered', 'buffered'],
  );
  assert.equal(kept[2]!.message_id, kept[0]!.message_id);
  const mine = await other.client.push(items(['c'], 'q', 'of-the-other'));
  assert.equal(mine[0]!.status, 'buffered');
  // Known already, and known only to the disk: nobody looks.
  const again = await one.client.push([...items(['before', 'b']), ...items(['d'])]);
  assert.deepEqual(
    again.map(({ status }) => status),
    ['buffered', 'buffered', 'buffered'],
  );
  assert.deepEqual(await one.client.push([]), []);

  const { body } = await one.ask('GET', MAINTENANCE);
  assert.deepEqual(body, {
    maintenanceMode: true,
    popMaintenanceMode: false,
    bufferedMessages: 5,
    bufferHealthy: true,
    bufferStats: {
      pendingCount: 5,
      failedCount: 0,
      dbHealthy: true,
      failedFiles: { count: 0, totalBytes: 0, totalMB: 0, failoverCount: 0, qos0Count: 0 },
    },
  });
  assert.deepEqual((await one.ask('GET', '/api/v1/status/buffers')).body, {
    pending: 5,
    failed: 0,
    dbHealthy: true,
    worker: 0,
  });
  const health = (await one.ask('GET', '/health')).body;
  assert.deepEqual(
    [health.status, health.maintenance, health.spool],
    ['healthy', { push: true, pop: false }, { pending: 5, failed: 0, draining: false, lasting: true }],
  );

  // Transactions, pops, acks and keys go on; a replay would be a push.
  const [held] = await one.client.pop('q', { consumerGroup: 'g', subscriptionMode: 'all' });
  assert.equal(held!.transactionId, 'before');
  assert.equal((await one.client.ack(held!)).success, true);
  const transaction = await one.ask('POST', '/api/v1/transaction', {
    operations: [{ type: 'push', items: items(['straight'], 'q', 'p') }],
  });
  assert.equal(transaction.body.success, true, JSON.stringify(transaction.body));
  const replay = await one.ask('POST', `/api/v1/dlq/${kept[0]!.message_id}/replay`);
  assert.deepEqual([replay.status, replay.body.result], [503, 'maintenance']);

  const off = await other.ask('POST', MAINTENANCE, { enabled: false });
  assert.equal(off.body.message, 'Maintenance mode DISABLED. Background processor will drain buffer to DB.');
  // The lane's next push waits for what lies on disk.
  await until('the first one knows', async () => !one.broker.switches.known().maintenance_mode);
  const [late] = await one.client.push(items(['late']));
  assert.equal(late!.status, 'queued');
  await until('nothing is left', async () =>
    [one, other].every(({ broker }) => broker.system.spool().pending === 0),
  );
  const log = await stored(one);
  const lane = log.filter(({ transactionId }) => transactionId !== 'c');
  assert.deepEqual(
    lane.map(({ transactionId }) => transactionId),
    ['before', 'straight', 'a', 'b', 'd', 'late'],
  );
  const byId = new Map(log.map(({ id, transactionId }) => [transactionId, id]));
  for (const result of [...kept.slice(0, 2), ...mine, again[2]!]) {
    assert.equal(byId.get(result.transaction_id), result.message_id, 'the id that the answer named');
  }
  assert.equal(one.broker.spool!.counters.duplicates, 2);
  const repeated = await other.client.push(items(['a']));
  assert.deepEqual([repeated[0]!.status, repeated[0]!.message_id], ['duplicate', kept[0]!.message_id]);
  await assertLogInvariants(one.broker.db);
});

test('what waits on disk survives a stop, and comes before everything that is pushed later', async (t) => {
  const directory = spoolDirectory(t);
  const first = await open(t, directory, { spool: { eventsPerFile: 10 } });
  await first.ask('POST', MAINTENANCE, { enabled: true });
  const ids = Array.from({ length: 95 }, (_, i) => `m${i}`);
  for (let i = 0; i < ids.length; i += 5) await first.client.push(items(ids.slice(i, i + 5)));
  await first.stop();
  const second = await openLive(t, {
    database: first.database,
    settings: { spool: spoolAt(directory) },
  });
  assert.equal(second.broker.system.spool().pending, ids.length);
  // Still paused: a start does not wait for it.
  await second.broker.start();
  assert.deepEqual(
    (await second.client.push(items(['paused']))).map(({ status }) => status),
    ['buffered'],
  );
  await second.stop();
  const bystander = await openLive(t, { database: first.database });
  await bystander.ask('POST', MAINTENANCE, { enabled: false });
  const third = await openLive(t, { database: first.database, settings: { spool: spoolAt(directory) } });
  await third.broker.start();
  assert.equal(third.broker.system.spool().pending, 0, 'stored before the first client is heard');
  assert.deepEqual(
    (await stored(third)).map(({ transactionId }) => transactionId),
    [...ids, 'paused'],
  );
  assert.deepEqual(
    readdirSync(join(directory, '0')).filter((name) => /\.(buf|tmp|pos)$/.test(name)),
    [],
  );
});

test('a queue that encrypts is on disk as it is in the table', async (t) => {
  const directory = spoolDirectory(t);
  const key = parseSealingKey('3c'.repeat(32))!;
  const live = await open(t, directory, { settings: { sealingKey: key } });
  const keyless = await open(t, directory, { database: live.database });
  await live.client.configure('safe', { encryptionEnabled: true });
  await live.client.configure('open');
  await live.client.push(items(['first'], 'safe'));
  await live.client.push(items(['first'], 'open'));
  await live.ask('POST', MAINTENANCE, { enabled: true });
  const secret = (queue: string) => [
    { queue, partition: 'p', transactionId: 't', payload: `plain-of-${queue}` },
  ];
  for (const queue of ['safe', 'open', 'unheard-of']) {
    const [pushed] = await live.client.push(secret(queue));
    assert.equal(pushed!.status, 'buffered');
  }
  const slot = join(directory, '0');
  const disk = () =>
    readdirSync(slot)
      .filter((name) => /\.(tmp|buf)$/.test(name))
      .map((name) => readFileSync(join(slot, name), 'utf8'))
      .join('');
  assert.doesNotMatch(disk(), /plain-of-safe/);
  // Nobody has looked whether that one encrypts, and there is a key.
  assert.doesNotMatch(disk(), /plain-of-unheard-of/);
  assert.match(disk(), /plain-of-open/);
  await live.ask('POST', MAINTENANCE, { enabled: false });
  await until('all is stored', async () => live.broker.system.spool().pending === 0);
  for (const queue of ['safe', 'open', 'unheard-of']) {
    const all = await live.client.pop(queue, { consumerGroup: 'g', subscriptionMode: 'all', partitions: 0 });
    assert.equal(all.at(-1)!.data, `plain-of-${queue}`);
  }
  assert.equal(live.broker.sealing.unopened, 0);

  // A broker without the key: its own pushes there are refused, at once or, when nobody could look, from the disk.
  assert.equal((await keyless.client.push(items(['x'], 'safe')))[0]!.status, 'failed');
  await keyless.ask('POST', MAINTENANCE, { enabled: true });
  const [known] = await keyless.client.push(items(['y'], 'safe'));
  assert.deepEqual([known!.status, /^encryption_required/.test(known!.error!)], ['failed', true]);
  const [blind] = await keyless.client.push(items(['z'], 'safe', 'unknown-lane'));
  assert.equal(blind!.status, 'buffered');
  await keyless.client.push(items(['good'], 'open', 'unknown-lane'));
  await keyless.ask('POST', MAINTENANCE, { enabled: false });
  await until('it is put aside', async () => keyless.broker.system.spool().failed === 1);
  await until('the rest is stored', async () => keyless.broker.system.spool().pending === 0);
  const stats = (await keyless.ask('GET', MAINTENANCE)).body.bufferStats as Record<
    string,
    Record<string, number>
  >;
  assert.deepEqual([stats.failedCount, stats.failedFiles!.count], [1, 1]);
  const log = await stored(live, 'open');
  assert.ok(log.some(({ transactionId }) => transactionId === 'good'));
});

test('a database that refuses pushes for a while, lane by lane in order', async (t) => {
  const directory = spoolDirectory(t);
  const live = await open(t, directory);
  await live.client.push(items(['warm']));
  const heal = failStatement(live, 'push_append', new StoreError('unavailable', 'pool', 'no connection'));
  const first = await live.client.push([...items(['a', 'b']), ...items(['a'], 'q', 'other')]);
  assert.deepEqual(
    first.map(({ status }) => status),
    ['buffered', 'buffered', 'buffered'],
  );
  const second = await live.client.push(items(['c', 'warm']));
  assert.deepEqual(
    second.map(({ status }) => status),
    ['buffered', 'buffered'],
  );
  const down = (await live.ask('GET', MAINTENANCE)).body;
  assert.deepEqual([down.bufferHealthy, down.bufferedMessages], [false, 5]);
  heal();
  const third = await live.client.push(items(['d']));
  assert.ok(['queued', 'buffered'].includes(third[0]!.status));
  await until('nothing is left', async () => live.broker.system.spool().pending === 0);
  const fourth = await live.client.push(items(['e']));
  assert.equal(fourth[0]!.status, 'queued');
  const lanes = Map.groupBy(
    await live.client.pop('q', { consumerGroup: 'g', subscriptionMode: 'all', partitions: 0 }),
    ({ partition }) => partition,
  );
  assert.deepEqual(
    lanes.get('p')!.map(({ transactionId }) => transactionId),
    ['warm', 'a', 'b', 'c', 'd', 'e'],
  );
  assert.equal(live.broker.system.spool().healthy, true);
  assert.ok((await live.ask('GET', MAINTENANCE)).body.bufferHealthy);
});

test('a spool that takes nothing more says so: 500 while pushes are paused, failed when a flush failed', async (t) => {
  const directory = spoolDirectory(t);
  const live = await open(t, directory, { spool: { bytesMax: 4_000 } });
  const heal = failStatement(live, 'push_append', new StoreError('unavailable', 'pool', 'no connection'));
  const big = (id: string) => [{ queue: 'q', partition: id, transactionId: id, payload: 'x'.repeat(3_000) }];
  assert.equal((await live.client.push(big('a')))[0]!.status, 'buffered');
  const [full] = await live.client.push(big('b'));
  assert.equal(full!.status, 'failed');
  assert.match(full!.error!, /^unavailable: no database connection; nothing was written/);
  heal();
  await until('it drains', async () => live.broker.system.spool().pending === 0);
  await live.ask('POST', MAINTENANCE, { enabled: true });
  const both = [...big('c'), ...big('d'), ...items(['small'], 'q', 'e')];
  const answer = await live.ask<Pushed[]>('POST', '/api/v1/push', { items: both });
  assert.equal(answer.status, 500);
  assert.deepEqual(answer.body.map(({ status }) => status).sort(), ['buffered', 'buffered', 'failed']);
  assert.match(
    answer.body.find(({ status }) => status === 'failed')!.error!,
    /the disk of the spool is full/,
  );
  const metrics = live.broker.spool!.counters;
  assert.deepEqual([metrics.refused, metrics.kept], [2, 3]);
  await live.ask('POST', MAINTENANCE, { enabled: false });
  await until('it drains', async () => live.broker.system.spool().pending === 0);
  assert.equal((await stored(live)).length, 3);
});

test('messages that cannot be stored hold nobody up for long, and can be put back', async (t) => {
  const directory = spoolDirectory(t);
  const live = await open(t, directory);
  await live.client.push(items(['a']));
  await live.ask('POST', MAINTENANCE, { enabled: true });
  await live.client.push(items(['b']));
  await live.client.push([...items(['x'], 'bad', 'lane'), ...items(['c'])]);
  await live.client.push(items(['y'], 'bad', 'lane'));
  // Whatever would be stored there breaks a primary key.
  await sql(
    live.broker.db,
    `SELECT queen.log_provision('00000000-0000-0000-0000-000000000001', '{bad}', '{lane}')::text`,
  );
  await sql(
    live.broker.db,
    `INSERT INTO queen.log_txns (partition_id, base_offset, end_offset, created_at, hashes)
     SELECT p.id, 0, 0, queen.clock() - interval '1 day', '\\x00'
       FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = 'bad'`,
  );
  await live.ask('POST', MAINTENANCE, { enabled: false });
  await until('they are put aside', async () => live.broker.system.spool().pending === 0);
  assert.deepEqual([live.broker.system.spool().failed, live.broker.spool!.counters.putAside], [2, 2]);
  assert.deepEqual(
    (await stored(live)).map(({ transactionId }) => transactionId),
    ['a', 'b', 'c'],
  );
  assert.equal(live.broker.system.spool().healthy, true, 'the database is not to blame');
  // The cause is gone, and somebody moves the file back.
  await sql(live.broker.db, `DELETE FROM queen.log_txns WHERE length(hashes) = 1`);
  const slot = join(directory, '0');
  const [failed] = readdirSync(join(slot, 'failed'));
  renameSync(join(slot, 'failed', failed!), join(slot, failed!));
  assert.equal(await live.broker.spool!.adopt(), 1);
  await until('they are stored', async () => live.broker.system.spool().pending === 0);
  assert.equal(live.broker.system.spool().failed, 0);
  assert.deepEqual(
    (await stored(live, 'bad')).map(({ transactionId }) => transactionId),
    ['x', 'y'],
  );
});
