/** A hundred thousand partitions: every page costs a few statements and shows a bounded number of rows. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Json, openCounted } from './counted.ts';
import { sql } from './live.ts';

const QUEUES = 20;
const PARTITIONS = 100_000;

test('pages over a hundred thousand partitions', { timeout: 240_000 }, async (t) => {
  const live = await openCounted(t);
  const db = await live.database.open({ statementTimeoutMs: 120_000 });
  t.after(() => db.close());
  await sql(
    db,
    `INSERT INTO queen.queues (name, namespace, task)
     SELECT 'q' || g, 'n' || g % 3, 't' || g % 2 FROM generate_series(1, ${QUEUES}) AS g`,
  );
  // One of them has most of the partitions.
  await sql(
    db,
    `INSERT INTO queen.log_partitions (queue_id, name, last_offset, oldest_live_at, last_created_at)
     SELECT q.id, 'p' || g, 4, queen.clock() - interval '90 seconds', queen.clock()
       FROM generate_series(1, ${PARTITIONS}) AS g
       JOIN queen.queues q ON q.name = 'q' || CASE WHEN g % 10 < 8 THEN 1 ELSE 1 + g % ${QUEUES} END`,
  );
  await sql(
    db,
    `INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
     SELECT p.id, 0, 4, queen.clock() - interval '90 seconds', '\\x00' FROM queen.log_partitions p`,
  );
  await sql(
    db,
    `INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
     SELECT p.id, 'g', p.id % 5 FROM queen.log_partitions p WHERE p.id % 2 = 0`,
  );
  await sql(
    db,
    `INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", transaction_id, error)
     SELECT p.id, 'g', 0, 't' || p.id, 'row ' || p.id || ' is bad' FROM queen.log_partitions p WHERE p.id % 50 = 0`,
  );
  await sql(db, 'ANALYZE');
  const took = new Map<string, number>();
  const begun = performance.now();
  const { partitions } = await live.broker.statistics.refresh();
  took.set('refresh', performance.now() - begun);
  assert.equal(partitions, PARTITIONS);

  const overview = await live.get('/api/v1/resources/overview');
  assert.equal(overview.partitions, PARTITIONS);
  assert.equal(overview.messages.total, 5 * PARTITIONS);
  assert.equal(overview.messages.deadLetter, PARTITIONS / 50);
  const paths = [
    '/api/v1/resources/overview',
    '/api/v1/resources/queues?stats=cached',
    '/api/v1/status',
    '/api/v1/status?namespace=n1',
    '/api/v1/status/queues',
    '/api/v1/status/queues/q1?limit=50&offset=70000',
    '/api/v1/status/queues/q1',
    '/api/v1/status/queues/q1?limit=50&sort=pending&order=desc',
    '/api/v1/status/queues/q1?limit=50&sort=lastActivity&order=desc&search=77',
    '/api/v1/status/queues/q1/partitions/p1',
    '/api/v1/messages/find?transactionId=t50',
    '/api/v1/consumer-groups?limit=50&sort=lag&order=desc',
    '/api/v1/consumer-groups/g/queues/q1?limit=50&order=desc',
    '/api/v1/consumer-groups/g/queues/q1?limit=50&sort=name&search=77&offset=50',
    '/api/v1/dlq?queue=q1&data=false',
    '/api/v1/status/analytics',
    '/api/v1/analytics/queue-lag',
    '/api/v1/analytics/queue-ops',
    '/api/v1/analytics/queue-parked-replicas',
    '/api/v1/analytics/retention?groupBy=namespace',
    '/api/v1/analytics/workload?groupBy=queue',
    '/api/v1/analytics/dlq-signatures?queue=q1',
    '/api/v1/analytics/partition-liveness',
    '/api/v1/analytics/system-metrics',
    '/api/v1/analytics/worker-metrics',
    '/api/v1/analytics/postgres-stats',
  ];
  for (const path of paths) {
    const before = live.broker.db.statementsTotal;
    const asked = performance.now();
    const body = await live.get(path);
    took.set(path, performance.now() - asked);
    const statements = live.broker.db.statementsTotal - before;
    const most = path.endsWith('postgres-stats') ? 14 : 8;
    assert.ok(statements <= most, `${path}: ${statements} statements`);
    const bytes = JSON.stringify(body).length;
    assert.ok(bytes < 600_000, `${path}: ${bytes} bytes`);
  }
  const page = await live.get('/api/v1/status/queues/q1?limit=50&offset=70000');
  assert.equal(page.partitions.length, 50);
  assert.equal(page.pagination.total, 80_000);
  const whole = await live.get('/api/v1/resources/queues/q1/depth');
  const shown = new Map(whole.partitions.map((each: Json) => [each.partition, each.pending]));
  for (const { name, messages } of page.partitions) assert.equal(messages.pending, shown.get(name), name);
  assert.equal(page.totals.messages.pending, whole.pending);
  const { signatures, rowsNow } = await live.get('/api/v1/analytics/dlq-signatures?queue=q1');
  assert.deepEqual(signatures, [{ text: 'row <n> is bad', n: 200, share: 1 }]);
  assert.ok(rowsNow > 1_000);

  const before = live.broker.db.statementsTotal;
  const scraped = performance.now();
  const behind = await live.family('queen_group_lag_partitions{queue="q1",group="g"}');
  took.set('scrape', performance.now() - scraped);
  assert.ok(behind! > 10_000);
  assert.ok(live.broker.db.statementsTotal - before <= 8);
  const again = live.broker.db.statementsTotal;
  await live.family('queen_uptime_seconds');
  assert.equal(live.broker.db.statementsTotal, again, 'a second scrape is served from the first');

  const lines = [...took].map(([path, ms]) => `${Math.round(ms)} ms ${path}`);
  t.diagnostic(lines.join('\n'));
  // Pages that look at no partition take milliseconds; half a second is for a machine that does other things, too.
  for (const [path, ms] of took) {
    const most =
      path === 'refresh' ? 20_000 : /\/status\/queues\/q1|consumer-groups/.test(path) ? 5_000 : 2_500;
    assert.ok(ms < most, lines.join('\n'));
  }
});
