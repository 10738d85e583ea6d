/** What happens around a batch: lost answers, lost leases, other sessions, a table that changes. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { BrokerFace } from '../../../src/engine/types.ts';
import { commitCutter, SinkRig, STORE_ID, sharedServer, until } from './rig.ts';

const server = sharedServer({ before, after });
const SUM = {
  table: 'balance',
  mode: 'sql',
  statement: 'UPDATE balance SET n = n + $1::numeric, times = times + 1 WHERE id = $2::int',
  params: ['$.n', '$.id'],
};
const range = (count: number) => Array.from({ length: count }, (_, i) => i);

async function withBalances(t: Parameters<typeof SinkRig.open>[0], count: number): Promise<SinkRig> {
  const rig = await SinkRig.open(t, server());
  await rig.sql(`CREATE TABLE balance (id int PRIMARY KEY, n numeric NOT NULL DEFAULT 0, times int NOT NULL DEFAULT 0);
    INSERT INTO balance SELECT i FROM generate_series(0, ${count - 1}) i`);
  return rig;
}

const pushes = (count: number, partitions: number) =>
  range(count).map((i) => [`p${i % partitions}`, { n: i + 0.25, id: i % partitions }] as const);

async function assertExact(rig: SinkRig, count: number): Promise<void> {
  const [row] = await rig.sql('SELECT sum(n)::float8 AS n, sum(times)::int AS times FROM balance');
  assert.deepEqual(row, { n: (count * (count - 1)) / 2 + count / 4, times: count });
}

suite('exactly once', () => {
  test('an ack that is suppressed: redelivered, skipped, acked', async (t) => {
    const rig = await withBalances(t, 5);
    await rig.push(pushes(50, 5));
    let suppressed = 0;
    const ack: BrokerFace['ack'] = async (request) => {
      if (suppressed++ > 0) return rig.broker.ack(request);
      const error = 'invalid or expired lease';
      return request.items.map(() => ({
        success: false,
        error,
        leaseReleased: false,
        dlq: false,
        noop: false,
      }));
    };
    const sink = rig.start({ ...SUM, leaseSeconds: 5 }, { broker: { ack } });
    await until('the ack is lost', () => suppressed > 0);
    await server().store.advanceClock(5);
    await rig.drained();
    await assertExact(rig, 50);
    assert.ok(sink.status.of('skipped') >= 50);
    assert.equal(sink.status.of('applied'), 50);
  });

  test('a connection that is cut after the COMMIT went through', async (t) => {
    const rig = await withBalances(t, 5);
    const cutter = await commitCutter(t, rig.target.server);
    const sink = rig.start(SUM, { port: cutter.port });
    await until('it runs', () => sink.status.phase === 'running');
    cutter.armed = 1;
    await rig.push(pushes(50, 5));
    await rig.drained();
    assert.equal(cutter.cuts, 1);
    await assertExact(rig, 50);
    assert.equal(
      sink.status.of('skipped'),
      sink.status.of('applied') === 0 ? 50 : 50 - sink.status.of('applied'),
    );
    assert.deepEqual(await rig.letters(), []);
  });

  test('backends that are terminated all the time', async (t) => {
    const rig = await withBalances(t, 20);
    const all = pushes(2000, 20);
    const sink = rig.start({ ...SUM, batch: 50, workers: 2 });
    for (let i = 0; i < 4; i++) {
      const applied = sink.status.of('applied');
      await rig.push(all.slice(500 * i, 500 * (i + 1)));
      await until('it is at work', () => sink.status.of('applied') > applied);
      const ended = await rig.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE '%sink:%'`);
      assert.ok(ended.length > 0);
    }
    await rig.drained();
    await assertExact(rig, 2000);
    assert.deepEqual(await rig.letters(), []);
  });

  test('a lease that runs out during a long transaction, and another worker with the same partition', async (t) => {
    const rig = await withBalances(t, 2);
    await rig.push(pushes(20, 2));
    const blocker = await rig.target.connect();
    await blocker.query('BEGIN; SELECT FROM balance WHERE id = 0 FOR UPDATE');
    // No renewals: the second one gets the partitions while the first still works on them.
    const extend = () => Promise.resolve({ renewed: 0, expiresAtMicros: null });
    const one = rig.start({ ...SUM, leaseSeconds: 5 }, { broker: { extend } });
    const two = rig.start({ ...SUM, leaseSeconds: 5 }, { broker: { extend } });
    const waiting =
      "SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    await until('one waits for the row', async () => (await rig.sql(waiting))[0]!.n === 1);
    await server().store.advanceClock(5);
    await until('the other for the progress', async () => (await rig.sql(waiting))[0]!.n === 2);
    await blocker.query('COMMIT');
    await blocker.end();
    await rig.drained();
    await assertExact(rig, 20);
    assert.equal(one.status.of('applied') + two.status.of('applied'), 20);
    assert.ok(one.status.of('skipped') + two.status.of('skipped') > 0);
  });

  test('a batch that takes longer than its lease keeps it', async (t) => {
    const rig = await withBalances(t, 2);
    await rig.push(pushes(4, 2));
    const blocker = await rig.target.connect();
    await blocker.query('BEGIN; SELECT FROM balance WHERE id = 0 FOR UPDATE');
    let renewals = 0;
    const extend: BrokerFace['extend'] = async (...request) => {
      const answer = await rig.broker.extend(...request);
      if (answer.renewed > 0) renewals++;
      return answer;
    };
    const sink = rig.start({ ...SUM, leaseSeconds: 5 }, { broker: { extend } });
    // After 3.3 seconds of the lease, which goes to 8.3 now; then it is 6.3.
    await until('the lease is renewed twice', () => renewals === 2);
    await server().store.advanceClock(3);
    const other = await rig.broker.pop({
      tenant: rig.tenant,
      scope: { kind: 'queue', queue: 'q' },
      group: 'pg-copy',
      batch: 10,
      partitions: 10,
      autoAck: false,
      waitMs: 0,
      leaseSeconds: 5,
      subscriptionMode: 'all',
      subscriptionFrom: null,
      conflation: null,
      autopilot: false,
      signal: null,
    });
    assert.deepEqual(other.claims, []);
    await blocker.query('COMMIT');
    await blocker.end();
    await rig.drained();
    await assertExact(rig, 4);
    assert.equal(sink.status.of('skipped'), 0);
  });

  test('a stop finishes the batch under way, and gives the rest back at once', async (t) => {
    const rig = await withBalances(t, 50);
    await rig.push(pushes(5000, 50));
    for (let i = 0; i < 4; i++) {
      const sink = rig.start({ ...SUM, batch: 200 });
      await until('some are applied', () => sink.status.of('applied') > 0);
      await sink.stop();
      assert.equal(sink.fault, null);
      const depth = await rig.broker.queueDepth(rig.tenant, 'q', 'pg-copy');
      assert.equal(
        depth!.partitions.reduce((sum, { processing }) => sum + processing, 0),
        0,
      );
    }
    const last = rig.start(SUM);
    await rig.drained();
    await assertExact(rig, 5000);
    assert.equal(last.status.of('skipped'), 0);
  });

  test('a stop during a back-off does not wait for its end', async (t) => {
    const rig = await withBalances(t, 1);
    await rig.push(pushes(1, 1));
    // Once per message, and each time an error of the environment: a cursor that is not there.
    const statement = "SELECT pg_catalog.query_to_xml('FETCH 1 FROM nothing', true, true, '')";
    const sink = rig.start({ ...SUM, statement, params: [] });
    await until('it waits', () => sink.status.errors.length > 1);
    const begun = performance.now();
    await sink.stop();
    assert.ok(performance.now() - begun < 900);
    const depth = await rig.broker.queueDepth(rig.tenant, 'q', 'pg-copy');
    assert.equal(depth!.partitions[0]!.processing, 0);
    assert.deepEqual(await rig.letters(), []);
  });
});

suite('the batch ahead', () => {
  test('is popped while the target works, and begun while the queue is told of the one before', async (t) => {
    const rig = await withBalances(t, 4);
    for (const partition of range(4)) {
      await rig.push(
        range(10).map((i) => [`p${partition}`, { n: 10 * partition + i + 0.25, id: partition }]),
      );
    }
    const blocker = await rig.target.connect();
    await blocker.query('BEGIN; SELECT FROM balance FOR UPDATE');
    const told = Promise.withResolvers<void>();
    const ack: BrokerFace['ack'] = async (request) => {
      await told.promise;
      return rig.broker.ack(request);
    };
    const sink = rig.start({ ...SUM, batch: 10 }, { broker: { ack } });
    await until('two batches are held', async () => (await rig.held()) === 20);
    await blocker.query('COMMIT');
    await blocker.end();
    await until('both are applied', () => sink.status.of('applied') === 20);
    told.resolve();
    await rig.drained();
    await assertExact(rig, 40);
    assert.equal(sink.status.of('skipped'), 0);
  });

  test('is let go by a sink whose target refuses the work', async (t) => {
    const rig = await withBalances(t, 4);
    const role = `refused_${process.pid}`;
    await rig.sql(`CREATE ROLE ${role} LOGIN; GRANT SELECT ON balance TO ${role};
      GRANT CREATE ON DATABASE ${rig.target.name} TO ${role}`);
    try {
      await rig.push(pushes(40, 4));
      const sink = rig.start({ ...SUM, batch: 10 }, { user: role });
      await until('it is refused', () => sink.status.errors.some(({ sqlState }) => sqlState === '42501'));
      await until('the one in hand is left', async () => (await rig.held()) === 10);
      await rig.sql(`GRANT UPDATE ON balance TO ${role}`);
      await rig.drained();
      await assertExact(rig, 40);
      await sink.stop();
    } finally {
      await rig.sql(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  test('is given back by a stop', async (t) => {
    const rig = await withBalances(t, 4);
    await rig.push(pushes(40, 4));
    const blocker = await rig.target.connect();
    await blocker.query('BEGIN; SELECT FROM balance FOR UPDATE');
    const sink = rig.start({ ...SUM, batch: 10 });
    await until('two batches are held', async () => (await rig.held()) === 20);
    const stopped = sink.stop();
    await until('the one ahead is back', async () => (await rig.held()) === 10);
    await blocker.query('COMMIT');
    await blocker.end();
    await stopped;
    assert.deepEqual([sink.status.of('applied'), await rig.held()], [10, 0]);
  });
});

suite('other sessions', () => {
  test('a deadlock is a matter of trying again', async (t) => {
    const rig = await withBalances(t, 2);
    await rig.sql("ALTER SYSTEM SET deadlock_timeout = '100ms'");
    await rig.sql('SELECT pg_reload_conf()');
    const other = await rig.target.connect();
    await other.query("SET deadlock_timeout = '10s'; BEGIN; UPDATE balance SET n = n WHERE id = 1");
    await rig.push([
      ['p', { n: 0.25, id: 0 }],
      ['p', { n: 1.25, id: 1 }],
    ]);
    const sink = rig.start(SUM);
    await until('it waits', async () => {
      const [row] = await rig.sql(
        "SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
      );
      return row!.n === 1;
    });
    await other.query('UPDATE balance SET n = n WHERE id = 0; COMMIT');
    await other.end();
    await rig.drained();
    await assertExact(rig, 2);
    assert.deepEqual(await rig.letters(), []);
    assert.equal(sink.status.of('errors'), 0);
  });

  test('many workers on rows that repeat over all partitions', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql(
      'CREATE TABLE t (id int PRIMARY KEY, v int, must int NOT NULL DEFAULT 0 CHECK (must >= 0))',
    );
    await rig.push(range(3000).map((i) => [`p${i % 60}`, { id: (i * 7) % 40, v: i }]));
    await rig.push([
      ['p0', { id: 1, must: -1 }],
      ['p30', { id: 1, must: -1 }],
      ['p59', { id: 1, must: -1 }],
    ]);
    rig.start({ table: 't', mode: 'upsert', workers: 8, batch: 100, maxAttempts: 2 });
    await rig.drained();
    assert.deepEqual((await rig.letters()).map(({ partition }) => partition).sort(), ['p0', 'p30', 'p59']);
    assert.deepEqual(await rig.sql('SELECT count(*)::int AS n FROM t'), [{ n: 40 }]);
  });

  test('a database whose transactions are serializable by default', async (t) => {
    const rig = await withBalances(t, 10);
    await rig.sql(`ALTER DATABASE ${rig.target.name} SET default_transaction_isolation = 'serializable'`);
    await rig.push(pushes(300, 10));
    rig.start({ ...SUM, workers: 3, batch: 20 });
    await rig.drained();
    await assertExact(rig, 300);
    assert.deepEqual(await rig.letters(), []);
  });

  test('a database that is read-only for a while', async (t) => {
    const rig = await withBalances(t, 2);
    // The progress table is there; what fails is the first write of a batch.
    const first = rig.start(SUM);
    await until('it runs', () => first.status.phase === 'running');
    await first.stop();
    await rig.sql(`ALTER DATABASE ${rig.target.name} SET default_transaction_read_only = on`);
    await rig.push(pushes(4, 2));
    const sink = rig.start(SUM);
    await until('it says so', () => sink.status.errors[0]?.sqlState === '25006');
    assert.equal(sink.status.phase, 'error');
    const admin = await rig.target.connect();
    await admin.query('SET default_transaction_read_only = off');
    await admin.query(`ALTER DATABASE ${rig.target.name} SET default_transaction_read_only = off`);
    await admin.end();
    await rig.drained();
    await assertExact(rig, 4);
    await until('it runs again', () => sink.status.phase === 'running');
    assert.deepEqual(await rig.letters(), []);
  });
});

suite('a table that changes', () => {
  test('a right that is granted later', async (t) => {
    const rig = await SinkRig.open(t, server());
    const role = `later_${process.pid}`;
    await rig.sql(
      `CREATE ROLE ${role} LOGIN; CREATE TABLE t (id int PRIMARY KEY, v int); GRANT CREATE ON DATABASE ${rig.target.name} TO ${role}`,
    );
    try {
      await rig.push([['p', { id: 1, v: 1 }]]);
      const sink = rig.start({ table: 't', mode: 'upsert' }, { user: role });
      await until('it says so', () => sink.status.errors[0]?.sqlState === '42501');
      assert.match(sink.status.errors[0]!.message, /table t .*SELECT, INSERT and UPDATE on the table/);
      await rig.sql(`GRANT ALL ON t TO ${role}`);
      await rig.drained();
      assert.deepEqual(await rig.sql('SELECT * FROM t'), [{ id: 1, v: 1 }]);
      assert.deepEqual(await rig.letters(), []);
      await sink.stop();
    } finally {
      await rig.sql(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  test('altered while it runs: columns come, go, change their type', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int PRIMARY KEY, v int, w int)');
    const sink = rig.start({ table: 't', mode: 'upsert' });
    const step = async (id: number) => {
      await rig.push([['p', { id, v: id, w: id }]]);
      await rig.drained();
    };
    await step(1);
    await rig.sql('ALTER TABLE t DROP w');
    await step(2);
    await rig.sql('ALTER TABLE t ALTER v TYPE text');
    await step(3);
    await rig.sql('ALTER TABLE t RENAME v TO w');
    await step(4);
    assert.deepEqual(await rig.sql('SELECT id, w FROM t ORDER BY id'), [
      { id: 1, w: '1' },
      { id: 2, w: '2' },
      { id: 3, w: '3' },
      { id: 4, w: '4' },
    ]);
    assert.equal(sink.fault, null);
    assert.deepEqual(await rig.letters(), []);
  });

  test('dropped while it runs', async (t) => {
    const rig = await SinkRig.open(t, server());
    await rig.sql('CREATE TABLE t (id int PRIMARY KEY, v int)');
    const sink = rig.start({ table: 't', mode: 'upsert' });
    await rig.push([['p', { id: 1 }]]);
    await rig.drained();
    await rig.sql('DROP TABLE t');
    await rig.push([['p', { id: 2 }]]);
    assert.equal((await sink.failed()).code, 'table_missing');
    // The manager tries again; what was popped was given back at once.
    await rig.sql('CREATE TABLE t (id int PRIMARY KEY, v int)');
    rig.start({ table: 't', mode: 'upsert' });
    await rig.drained();
    assert.deepEqual(await rig.sql('SELECT id FROM t'), [{ id: 2 }]);
    assert.deepEqual(await rig.letters(), []);
  });
});

suite('progress that does not fit the store', () => {
  test('a row above the end of the log, or under another name, stops the sink', async (t) => {
    const rig = await withBalances(t, 1);
    await rig.push(pushes(3, 1));
    const first = rig.start(SUM);
    await rig.drained();
    await first.stop();
    const at = `sink = '${STORE_ID}/${rig.tenant}/copy'`;
    await rig.sql(`UPDATE queen.sink_progress SET last_offset = 100 WHERE ${at}`);
    await rig.push(pushes(1, 1));
    const ahead = await rig.start(SUM).failed();
    assert.equal(ahead.code, 'progress_ahead');
    assert.match(ahead.message, /applied offset 100 of partition "p0"/);
    await rig.sql(`UPDATE queen.sink_progress SET last_offset = 2, partition = 'other' WHERE ${at}`);
    const renamed = await rig.start(SUM).failed();
    assert.match(renamed.message, /as "other", the queue as "p0"/);
    await rig.sql(`UPDATE queen.sink_progress SET partition = 'p0' WHERE ${at}`);
    rig.start(SUM);
    await rig.drained();
    assert.deepEqual(await rig.sql('SELECT times FROM balance'), [{ times: 4 }]);
  });

  test('a row that other workers moved on since is no such thing', async (t) => {
    const rig = await withBalances(t, 1);
    await rig.push(pushes(2, 1));
    let stale = 0;
    // Pops that tell of a log as it was before the last push.
    const pop: BrokerFace['pop'] = async (request) => {
      const answer = await rig.broker.pop(request);
      for (const claim of answer.claims) if (stale++ === 0) claim.lastOffset = 0;
      return answer;
    };
    const ack: BrokerFace['ack'] = (request) =>
      stale > 1
        ? rig.broker.ack(request)
        : Promise.resolve(
            request.items.map(() => ({
              success: false,
              error: 'invalid or expired lease',
              leaseReleased: false,
              dlq: false,
              noop: false,
            })),
          );
    const sink = rig.start({ ...SUM, leaseSeconds: 5 }, { broker: { pop, ack } });
    await rig.drained();
    assert.equal(sink.fault, null);
    await assertExact(rig, 2);
  });
});
