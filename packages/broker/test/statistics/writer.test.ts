/** What is counted gets into the database once, whatever happens on the way. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { until } from '../../../../test/kit/until.ts';
import { Ledger } from '../../src/engine/statistics/ledger.ts';
import { MetricsWriter, type WriterDeps } from '../../src/engine/statistics/writer.ts';
import { DEFAULT_TENANT } from '../../src/engine/types.ts';
import { type Database, type Queryable, statement } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';
import { silentLog } from '../../src/store/log.ts';
import { clusterTotals, pruneMetrics } from '../../src/store/metrics.ts';
import { FakeClock } from '../hotlist/fake_clock.ts';
import { partitionOf } from '../retention/log_fixture.ts';

const ROWS = statement(
  'writer_rows',
  `SELECT m.width, m.queue_name AS queue, m.server, m.push_messages AS pushed, m.ack_success AS acked,
          m.parked_sum AS parked, m.parked_looks AS looks, m.bucket
     FROM queen.queue_metrics m ORDER BY m.width, m.bucket, m.queue_name, m.server`,
);
const BROKERS = statement(
  'writer_brokers',
  'SELECT b.server, b.push_messages AS pushed, b.looks, b.rss_bytes AS rss FROM queen.broker_metrics b ORDER BY b.bucket',
);

interface Row {
  width: number;
  queue: string;
  server: string;
  pushed: number;
  acked: number;
  parked: number;
  looks: number;
  bucket: number;
}

function open(db: Database, over: Partial<WriterDeps> = {}) {
  const ledger = new Ledger(() => Date.now() * 1000);
  const clock = new FakeClock();
  const writer = new MetricsWriter({
    ledger,
    run: (work) => work(db),
    clock,
    log: silentLog,
    server: 's1',
    settings: { flushMs: 60_000 },
    databaseNow: () => null,
    parked: () => [],
    pool: () => ({ size: 8, idle: 5, active: 3 }),
    loopLagMs: () => 1,
    databaseErrors: () => 0,
    ...over,
  });
  return { ledger, writer, clock };
}

test('minutes and hours by queue, a row of the broker, and sums that outlive both', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const partition = await partitionOf(db, 'q', 'p');
  await partitionOf(db, 'r', 'p');
  const { ledger, writer, clock } = open(db);
  ledger.stored(DEFAULT_TENANT, 'q', 5);
  ledger.stored(DEFAULT_TENANT, 'r', 2);
  ledger.stored(DEFAULT_TENANT, 'made up', 100);
  ledger.stored('00000000-0000-4000-8000-00000000000b', 'q', 100);
  const item = { partitionId: String(partition), leaseId: '', error: null, transactionId: 't' };
  ledger.acked({ tenant: DEFAULT_TENANT, group: 'g', items: [{ ...item, status: 'completed' }] }, [
    { success: true, error: null, leaseReleased: true, dlq: false, noop: false },
  ]);
  clock.advance(60_000);
  await writer.flush();
  ledger.stored(DEFAULT_TENANT, 'q', 1);
  await writer.flush();
  const rows = await db.query<Row>(ROWS);
  const sums = (width: number) =>
    Object.entries(
      Object.groupBy(
        rows.filter((row) => row.width === width),
        ({ queue }) => queue,
      ),
    ).map(([queue, of]) => [
      queue,
      of!.reduce((n, row) => n + row.pushed, 0),
      of!.reduce((n, row) => n + row.acked, 0),
    ]);
  const expected = [
    ['q', 6, 1],
    ['r', 2, 0],
  ];
  assert.deepEqual([sums(1).sort(), sums(60).sort()], [expected, expected], 'what names nothing is left out');
  const brokers = await db.query<{ pushed: number; looks: number; rss: number[] }>(BROKERS);
  // In the middle of what they cover: that may be one minute, or two.
  const total = (what: 'pushed' | 'looks') => brokers.reduce((sum, row) => sum + row[what], 0);
  assert.deepEqual([total('pushed'), total('looks')], [208, 2]);
  assert.ok(brokers[0]!.rss.length === 4 && brokers[0]!.rss[0]! > 1e6);
  assert.equal((await clusterTotals(db))!.push_messages, 208);

  const future = (Date.now() + 3_600_000) * 1000;
  assert.equal(await pruneMetrics(db, future, 2), 2, 'a bounded number a call');
  while ((await pruneMetrics(db, future, 2)) > 0);
  assert.equal((await db.query(ROWS)).length + (await db.query(BROKERS)).length, 0);
  assert.equal((await clusterTotals(db))!.push_messages, 208);
});

test('an answer that is lost does not count twice, an outage loses nothing', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  await partitionOf(db, 'q', 'p');
  let mood: 'well' | 'lost' | 'away' | 'refuses' = 'well';
  const run = async <T>(work: (on: Queryable) => Promise<T>): Promise<T> => {
    if (mood === 'away') throw new StoreError('unavailable', 'pool', 'away');
    if (mood === 'refuses') throw new StoreError('refused', 'sql', 'no');
    const value = await work(db);
    if (mood === 'lost') throw new StoreError('in_doubt', 'connection', 'lost');
    return value;
  };
  const { ledger, writer } = open(db, { run });
  const total = async () => (await clusterTotals(db))!.push_messages;

  mood = 'lost';
  ledger.stored(DEFAULT_TENANT, 'q', 3);
  await assert.rejects(writer.flush());
  assert.equal(await total(), 3);
  ledger.stored(DEFAULT_TENANT, 'q', 4);
  await assert.rejects(writer.flush());
  assert.equal(await total(), 3, 'the same flush, known by its number');
  mood = 'well';
  await writer.flush();
  assert.equal(await total(), 7);

  mood = 'away';
  for (let i = 0; i < 5; i++) {
    ledger.stored(DEFAULT_TENANT, 'q', 1);
    await assert.rejects(writer.flush());
  }
  await writer.freshen();
  mood = 'well';
  await writer.flush();
  await writer.flush();
  assert.equal(await total(), 12);

  mood = 'refuses';
  ledger.stored(DEFAULT_TENANT, 'q', 1);
  await writer.flush();
  mood = 'well';
  ledger.stored(DEFAULT_TENANT, 'q', 1);
  await writer.flush();
  assert.equal(await total(), 13, 'what is refused for what it is goes, and what follows is written');
});

test('a stop writes also what was counted while a flush was on its way', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  await partitionOf(db, 'q', 'p');
  const gate = Promise.withResolvers<void>();
  const { ledger, writer } = open(db, {
    run: async (work) => {
      await gate.promise;
      return work(db);
    },
  });
  writer.start();
  ledger.stored(DEFAULT_TENANT, 'q', 3);
  const flushing = writer.flush();
  await until('the flush has what was counted', async () => ledger.empty);
  ledger.stored(DEFAULT_TENANT, 'q', 4);
  const stopped = writer.stop();
  gate.resolve();
  await Promise.all([flushing, stopped]);
  assert.equal((await clusterTotals(db))!.push_messages, 7);
});

test('an outage before a stop: what it left and what came after it are written', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  await partitionOf(db, 'q', 'p');
  let away = true;
  const { ledger, writer } = open(db, {
    run: async (work) => {
      if (away) throw new StoreError('unavailable', 'pool', 'away');
      return work(db);
    },
  });
  writer.start();
  ledger.stored(DEFAULT_TENANT, 'q', 3);
  await assert.rejects(writer.flush());
  ledger.stored(DEFAULT_TENANT, 'q', 4);
  away = false;
  await writer.stop();
  assert.equal((await clusterTotals(db))!.push_messages, 7);
});

test('a flush with very many queues is several statements and one row of the broker', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  const many = statement(
    'writer_many',
    `INSERT INTO queen.queues (name) SELECT 'q' || g FROM generate_series(1, 4500) AS g`,
  );
  await db.query(many);
  const { ledger, writer } = open(db);
  for (let i = 1; i <= 4_500; i++) ledger.stored(DEFAULT_TENANT, `q${i}`, 1);
  const before = db.statementsTotal;
  await writer.flush();
  assert.equal(db.statementsTotal - before, 3);
  const rows = await db.query<Row>(ROWS);
  assert.equal(rows.filter(({ width }) => width === 60).length, 4_500);
  assert.equal((await db.query(BROKERS)).length, 1);
  assert.equal((await clusterTotals(db))!.push_messages, 4_500);
});

test('it looks now and then, and flushes just after the minute', async (t) => {
  const database = await freshDatabase(t);
  const db = await database.open();
  t.after(() => db.close());
  await partitionOf(db, 'q', 'p');
  const clock = new FakeClock();
  const flushed: number[] = [];
  const start = 1_796_040_017_000_000;
  const { writer } = open(db, {
    clock,
    databaseNow: () => start + clock.now() * 1000,
    parked: () => [{ tenant: DEFAULT_TENANT, queue: 'q', pops: 2 }],
    run: async (work) => {
      flushed.push(clock.now());
      return work(db);
    },
  });
  writer.start();
  const second = Math.floor(start / 1e6) % 60;
  await clock.advanceAsync(60_000 - second * 1000 + 100);
  await writer.flush();
  assert.ok(Math.abs(flushed[0]! - (60_000 - second * 1000)) <= 100, `${flushed}`);
  const [row] = await db.query<Row>(ROWS);
  assert.ok(row!.looks > 5, `${row!.looks} looks`);
  assert.equal(row!.parked / row!.looks, 2);
  await writer.stop();
  assert.equal(clock.pending, 0);
});
