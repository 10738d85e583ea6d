/**
 * A statement of each procedure fails at each of its writes in turn, and at its commit: cancelled, refused a lock, chosen
 * as the victim of a deadlock, without disk. It is rolled back whole, the caller hears that nothing was written, and
 * the same call succeeds afterwards. Then the same by real locks.
 */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import pg from 'pg';
import type { Broker } from '../../packages/broker/src/engine/broker.ts';
import { EngineError } from '../../packages/broker/src/engine/errors.ts';
import { DEFAULT_TENANT, type PopAnswer, type PopRequest } from '../../packages/broker/src/engine/types.ts';
import { type Database, statement } from '../../packages/broker/src/store/database.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { openBroker } from '../kit/engine.ts';
import { assertLogInvariants } from '../kit/invariants.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';

const TABLES = [
  'queues',
  'log_partitions',
  'log_segments',
  'log_txns',
  'log_consumers',
  'log_dlq',
  'consumer_groups_metadata',
  'retention_history',
];

/**
 * Every row that is written counts, and so does every one of them again at the commit. The counter is a sequence, since
 * a rollback does not take it back: whatever is struck is struck once.
 */
const STRIKES = `
  CREATE SCHEMA faults;
  CREATE SEQUENCE faults.writes;
  CREATE TABLE faults.plan (nth bigint, state text);
  INSERT INTO faults.plan VALUES (0, '');
  CREATE FUNCTION faults.strike() RETURNS trigger LANGUAGE plpgsql AS $$
  DECLARE plan faults.plan;
  BEGIN
    SELECT * INTO plan FROM faults.plan;
    IF nextval('faults.writes') = plan.nth THEN
      RAISE EXCEPTION 'struck at write % (% of %)', plan.nth, TG_OP, TG_TABLE_NAME USING ERRCODE = plan.state;
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
  END $$;
  ${TABLES.map(
    (table) => `
  CREATE TRIGGER strike BEFORE INSERT OR UPDATE OR DELETE ON queen.${table}
    FOR EACH ROW EXECUTE FUNCTION faults.strike();
  CREATE CONSTRAINT TRIGGER strike_at_commit AFTER INSERT OR UPDATE ON queen.${table}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faults.strike();`,
  ).join('')}`;

const ARM = statement(
  'strike_arm',
  `WITH reset AS (SELECT setval('faults.writes', 1, false)) UPDATE faults.plan SET nth = $1::bigint, state = $2::text FROM reset`,
);
const STRUCK = statement(
  'strike_struck',
  'SELECT (w.is_called AND w.last_value >= p.nth) AS struck FROM faults.writes w, faults.plan p',
);
const SNAPSHOT = statement(
  'strike_snapshot',
  TABLES.map(
    (table) =>
      `SELECT '${table}' AS name, coalesce(md5(string_agg(t::text, ' ' ORDER BY t::text)), '') AS rows FROM queen.${table} t`,
  ).join(' UNION ALL '),
);
const LEASES = statement(
  'strike_leases',
  `SELECT count(*)::int AS leases FROM queen.log_consumers c JOIN queen.log_partitions p ON p.id = c.partition_id
     JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1 AND (c.worker_id IS NOT NULL OR c.committed <> -1)`,
);
const MESSAGES = statement(
  'strike_messages',
  `SELECT coalesce(sum(p.last_offset + 1), 0)::int AS messages FROM queen.log_partitions p
     JOIN queen.queues q ON q.id = p.queue_id WHERE q.name = $1`,
);
const LETTERS = statement(
  'strike_letters',
  `SELECT count(*)::int AS letters, max(c.committed) AS committed FROM queen.log_consumers c
     JOIN queen.log_partitions p ON p.id = c.partition_id JOIN queen.queues q ON q.id = p.queue_id
     JOIN queen.log_dlq d ON d.partition_id = p.id WHERE q.name = $1`,
);

const WAITING = statement(
  'strike_waiting',
  `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
);

/** What the caller is told for each. */
const STATES = [
  ['57014', 'unavailable', 'cancelled, its time was up'],
  ['55P03', 'unavailable', 'no lock in time'],
  ['40P01', 'unavailable', 'victim of a deadlock'],
  ['53100', 'unavailable', 'disk full'],
  ['XX001', 'refused', 'data corrupted'],
] as const;

type Outcome = 'done' | 'unavailable' | 'refused' | 'in doubt';

let database: TestDatabase;
let broker: Broker;
let db: Database;
let queues = 0;

function items(queue: string, ...ids: string[]) {
  return ids.map((id) => ({ queue, partition: 'p', payload: Buffer.from(`"${id}"`), transactionId: id }));
}

async function push(queue: string, ...ids: string[]): Promise<Outcome> {
  const results = await broker.push({
    tenant: DEFAULT_TENANT,
    items: items(queue, ...ids),
    producerSub: null,
  });
  const failed = results.find(({ status }) => status === 'failed');
  if (failed === undefined) return 'done';
  return /^(in doubt|unavailable|refused)/.exec(failed.error ?? '')![0] as Outcome;
}

const POP: Omit<PopRequest, 'scope'> = {
  tenant: DEFAULT_TENANT,
  group: 'g',
  batch: 10,
  partitions: 1,
  autoAck: false,
  waitMs: 0,
  leaseSeconds: 60,
  subscriptionMode: 'all',
  subscriptionFrom: null,
  conflation: null,
  autopilot: false,
  signal: null,
};

function pop(queue: string, more: Partial<PopRequest> = {}): Promise<PopAnswer> {
  return broker.pop({ ...POP, scope: { kind: 'queue', queue }, ...more });
}

async function outcomeOf(work: Promise<unknown>): Promise<Outcome> {
  try {
    await work;
    return 'done';
  } catch (error) {
    assert.ok(error instanceof EngineError, String(error));
    return error.kind === 'in_doubt' ? 'in doubt' : (error.kind as Outcome);
  }
}

async function popped(queue: string, count: number, more: Partial<PopRequest> = {}): Promise<Outcome> {
  return outcomeOf(
    pop(queue, more).then(({ claims }) => {
      assert.equal(claims.flatMap(({ messages }) => messages).length, count);
    }),
  );
}

async function acked(
  claimed: PopAnswer,
  ids: string[],
  status: 'completed' | 'failed' | 'dlq',
): Promise<Outcome> {
  const { partitionId } = claimed.claims[0]!;
  const verdicts = await broker.ack({
    tenant: DEFAULT_TENANT,
    group: 'g',
    items: ids.map((transactionId) => ({
      partitionId,
      leaseId: claimed.leaseId,
      status,
      error: null,
      transactionId,
    })),
  });
  if (verdicts.every(({ success }) => success)) return 'done';
  assert.match(verdicts[0]!.error!, /^ack flush failed/);
  return 'unavailable';
}

interface Procedure {
  name: string;
  /** Brings about what the call needs, and gives the call. */
  prepare(queue: string): Promise<() => Promise<Outcome>>;
  /** What must hold after a failure; default: the tables are as they were. */
  holds?: (queue: string) => Promise<void>;
  /** It cannot tell these apart: what came of an ack is settled by the lease. */
  coarse?: boolean;
}

async function nobodyHolds(queue: string): Promise<void> {
  assert.deepEqual(await db.query(LEASES, [queue]), [{ leases: 0 }]);
}

const PROCEDURES: Procedure[] = [
  {
    name: 'a push',
    async prepare(queue) {
      await push(queue, 'warm');
      return () => push(queue, 'a', 'b');
    },
  },
  {
    name: 'a push that creates its queue',
    prepare: async (queue) => () => push(queue, 'a', 'b'),
    // A partition without messages is legal; a message is not.
    holds: async (queue) => assert.deepEqual(await db.query(MESSAGES, [queue]), [{ messages: 0 }]),
  },
  {
    name: 'a claim',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      await acked(await pop(queue, { batch: 1 }), ['a'], 'completed');
      return () => popped(queue, 1);
    },
  },
  {
    name: 'a commit at delivery',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      await pop(queue, { batch: 1, autoAck: true });
      return () => popped(queue, 1, { autoAck: true });
    },
  },
  {
    name: 'a first contact',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      return () => popped(queue, 2);
    },
    holds: nobodyHolds,
  },
  {
    name: 'a first contact with one partition',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      return () => popped(queue, 2, { scope: { kind: 'partition', queue, partition: 'p' } });
    },
    holds: nobodyHolds,
  },
  {
    name: 'an ack of a whole batch',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      const claimed = await pop(queue);
      return () => acked(claimed, ['a', 'b'], 'completed');
    },
    coarse: true,
  },
  {
    name: 'an ack of a part',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      const claimed = await pop(queue);
      return () => acked(claimed, ['a'], 'completed');
    },
    coarse: true,
  },
  {
    name: 'a failure',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      const claimed = await pop(queue);
      return () => acked(claimed, ['b', 'a'], 'failed');
    },
    coarse: true,
  },
  {
    name: 'a dead letter',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      const claimed = await pop(queue);
      return () => acked(claimed, ['a'], 'dlq');
    },
    // The decision may stand; the letter and the step over the message come together.
    holds: async (queue) =>
      assert.deepEqual(await db.query(LETTERS, [queue]), [{ letters: 0, committed: null }]),
    coarse: true,
  },
  {
    name: 'a renewal',
    async prepare(queue) {
      await push(queue, 'a');
      const { leaseId } = await pop(queue);
      return () =>
        outcomeOf(
          broker.extend(DEFAULT_TENANT, leaseId, 600).then(({ renewed }) => assert.equal(renewed, 1)),
        );
    },
  },
  {
    name: 'a configuration',
    async prepare(queue) {
      await push(queue, 'a');
      return () => configure(queue);
    },
  },
  { name: 'a configuration that creates its queue', prepare: async (queue) => () => configure(queue) },
  {
    name: 'the deletion of a queue',
    async prepare(queue) {
      await push(queue, 'a', 'b');
      await pop(queue);
      return () => outcomeOf(broker.deleteQueue(DEFAULT_TENANT, queue).then((deleted) => assert.ok(deleted)));
    },
  },
];

function configure(queue: string): Promise<Outcome> {
  const options = { leaseTime: 7 };
  return outcomeOf(broker.configure({ tenant: DEFAULT_TENANT, queue, mode: 'merge', options }));
}

/** More writes than any of the calls has. */
const WRITES_MAX = 60;

/** A session that takes a lock and holds it, at the longest until the test ends. */
async function holder(t: Cleanup, sql: string) {
  const { hosts, user, database: name } = database.options;
  const client = new pg.Client({ host: hosts[0]!.host, port: hosts[0]!.port, user, database: name });
  client.on('error', () => {});
  await client.connect();
  let open = true;
  const release = async (): Promise<void> => {
    if (open) await client.end();
    open = false;
  };
  atEnd(t, release);
  await client.query(`SET deadlock_timeout = '1h'`);
  await client.query('BEGIN');
  await client.query(sql);
  return { lock: (more: string) => client.query(more), release };
}

/** Settles when a session of this database waits for a lock. */
function somebodyWaits(): Promise<unknown> {
  return until('somebody waits for a lock', async () => (await db.query(WAITING)).length > 0, 10_000);
}

async function script(of: TestDatabase, sql: string): Promise<void> {
  const { hosts, user, database: name } = of.options;
  const client = new pg.Client({ host: hosts[0]!.host, port: hosts[0]!.port, user, database: name });
  await client.connect();
  await client.query(sql).finally(() => client.end());
}

const lockLane = (queue: string, partition: string) =>
  `SELECT p.id FROM queen.log_partitions p JOIN queen.queues q ON q.id = p.queue_id
    WHERE q.name = '${queue}' AND p.name = '${partition}' FOR UPDATE OF p`;

suite('a statement that fails', () => {
  before(async () => {
    database = await freshDatabase();
    broker = await openBroker(database);
    // What a deletion leaves is removed behind its back: those writes are not the call's.
    await broker.garbage.stop();
    db = await database.open({ poolSize: 2 });
    await script(database, STRIKES);
  });

  after(async () => {
    await db?.close();
    await broker?.stop();
    await database?.drop();
  });

  suite('at each write', () => {
    for (const procedure of PROCEDURES) {
      test(procedure.name, async () => {
        let strikes = 0;
        for (const [state, expected, what] of STATES) {
          for (let nth = 1; ; nth++) {
            assert.ok(nth < WRITES_MAX, 'it never comes to an end');
            const queue = `struck-${++queues}`;
            const call = await procedure.prepare(queue);
            const before = await db.query(SNAPSHOT);
            await db.query(ARM, [nth, state]);
            const outcome = await call();
            const [{ struck }] = (await db.query<{ struck: boolean }>(STRUCK)) as [{ struck: boolean }];
            await db.query(ARM, [0, '']);
            const where = `${what} at write ${nth}`;
            if (!struck) {
              assert.equal(outcome, 'done', where);
              break;
            }
            strikes++;
            // A cancellation at the commit may have come too late for it: no honest answer but one.
            const honest = state === '57014' && outcome === 'in doubt';
            if (!honest) assert.equal(outcome, procedure.coarse === true ? 'unavailable' : expected, where);
            if (procedure.holds === undefined) assert.deepEqual(await db.query(SNAPSHOT), before, where);
            else await procedure.holds(queue);
            assert.equal(await call(), 'done', `${where}, and again`);
          }
        }
        assert.ok(strikes >= STATES.length, `${strikes} strikes`);
      });
    }
  });

  suite('by real locks', { timeout: 60_000 }, () => {
    /** Of a broker whose statements may take half a second. */
    let hasty: Broker;
    before(async () => {
      const options = { ...database.options, statementTimeoutMs: 500 };
      hasty = await openBroker({ ...database, options });
    });
    after(() => hasty?.stop());

    const pushTo = async (of: Broker, queue: string, lanes: string[], id: string): Promise<string[]> => {
      const list = lanes.map((partition) => ({ ...items(queue, id)[0]!, partition }));
      const results = await of.push({ tenant: DEFAULT_TENANT, items: list, producerSub: null });
      return results.map(({ status, error }) => (error === null ? status : error.replace(/[:;].*/, '')));
    };

    test('a partition that somebody holds: its push times out, others go on, nothing is allocated', async (t) => {
      assert.deepEqual(await pushTo(hasty, 'held', ['p', 'q'], 'warm'), ['queued', 'queued']);
      await hasty.pop({ ...POP, scope: { kind: 'queue', queue: 'held' }, autoAck: true, partitions: 0 });
      assert.deepEqual(await pushTo(hasty, 'held', ['p', 'q'], 'more'), ['queued', 'queued']);
      const held = await holder(t, lockLane('held', 'p'));
      const stuck = pushTo(hasty, 'held', ['p'], 'a');
      // What is dispatched together shares one transaction and its fate; this comes later.
      await somebodyWaits();
      assert.deepEqual(await pushTo(hasty, 'held', ['q'], 'b'), ['queued']);
      assert.deepEqual(await stuck, ['unavailable']);
      // A pop does not wait for a push, or it would time out; only a group's first contact does, whose rows point at that of
      // the partition.
      const got = await hasty.pop({ ...POP, scope: { kind: 'queue', queue: 'held' }, partitions: 0 });
      assert.equal(got.claims.length, 2);
      const first = hasty.pop({
        ...POP,
        group: 'newcomer',
        scope: { kind: 'queue', queue: 'held' },
        batch: 1,
      });
      await somebodyWaits();
      await held.release();
      assert.equal((await first).claims.length, 1);
      assert.deepEqual(await pushTo(hasty, 'held', ['p'], 'a'), ['queued']);
      await assertLogInvariants(db, { windowsNeverRaised: true });
    });

    test('a cursor that somebody holds: its ack times out, a pop passes by', async (t) => {
      await pushTo(hasty, 'cursor', ['p'], 'a');
      const scope = { kind: 'queue', queue: 'cursor' } as const;
      const claimed = await hasty.pop({ ...POP, scope });
      const { partitionId } = claimed.claims[0]!;
      const held = await holder(
        t,
        `SELECT FROM queen.log_consumers WHERE partition_id = ${partitionId} FOR UPDATE`,
      );
      const item = { partitionId, leaseId: claimed.leaseId, error: null, transactionId: 'a' };
      const ack = { tenant: DEFAULT_TENANT, group: 'g', items: [{ ...item, status: 'completed' as const }] };
      const [verdict] = await hasty.ack(ack);
      assert.deepEqual(
        [verdict!.success, verdict!.error],
        [false, 'ack flush failed; lease will expire and redeliver'],
      );
      // One that waited for the lock would time out.
      assert.deepEqual((await hasty.pop({ ...POP, scope })).claims, []);
      await held.release();
      const [again] = await hasty.ack(ack);
      assert.ok(again!.success && again!.leaseReleased);
    });

    test('a lock timeout of the server', async (t) => {
      assert.deepEqual(await pushTo(broker, 'impatient', ['p'], 'warm'), ['queued']);
      await script(database, `ALTER FUNCTION queen.log_push SET lock_timeout = '50ms'`);
      try {
        const held = await holder(t, lockLane('impatient', 'p'));
        assert.deepEqual(await pushTo(broker, 'impatient', ['p'], 'a'), ['unavailable']);
        await held.release();
      } finally {
        await script(database, 'ALTER FUNCTION queen.log_push RESET lock_timeout');
      }
      assert.deepEqual(await pushTo(broker, 'impatient', ['p'], 'a'), ['queued']);
    });

    test('a deadlock with somebody who locks backwards', async (t) => {
      assert.deepEqual(await pushTo(broker, 'cycle', ['p', 'q'], 'warm'), ['queued', 'queued']);
      const held = await holder(t, lockLane('cycle', 'q'));
      // One bundle: it locks p, and waits for q.
      const pushed = pushTo(broker, 'cycle', ['p', 'q'], 'a');
      await somebodyWaits();
      await held.lock(lockLane('cycle', 'p'));
      assert.deepEqual(await pushed, ['unavailable', 'unavailable']);
      await held.release();
      assert.deepEqual(await pushTo(broker, 'cycle', ['p', 'q'], 'a'), ['queued', 'queued']);
      await assertLogInvariants(db, { windowsNeverRaised: true });
    });
  });
});

test('retention, at each write', async (t) => {
  const own = await freshDatabase(t);
  await script(own, STRIKES);
  const kept = await openBroker(own);
  atEnd(t, () => kept.stop());
  const direct = await own.open({ poolSize: 2 });
  atEnd(t, () => direct.close());
  const put = (queue: string, ...ids: string[]) =>
    kept.push({ tenant: DEFAULT_TENANT, items: items(queue, ...ids), producerSub: null });
  let strikes = 0;
  for (let nth = 1; nth < WRITES_MAX; nth++) {
    const queue = `kept-${nth}`;
    const options = { retentionEnabled: true, retentionSeconds: 600 };
    await kept.configure({ tenant: DEFAULT_TENANT, queue, mode: 'merge', options });
    await put(queue, 'a', 'b');
    await put(queue, 'c');
    await own.advanceClock(3_600);
    await put(queue, 'd');
    const { watermarks } = await assertLogInvariants(direct);
    await direct.query(ARM, [nth, nth % 2 === 0 ? '57014' : '40P01']);
    // A step that fails is the next pass's, and nobody else's trouble.
    await outcomeOf(kept.retention.pass());
    const [{ struck }] = (await direct.query<{ struck: boolean }>(STRUCK)) as [{ struck: boolean }];
    await direct.query(ARM, [0, '']);
    await assertLogInvariants(direct, { since: watermarks });
    await kept.retention.pass();
    await assertLogInvariants(direct, { since: watermarks });
    const { claims } = await kept.pop({ ...POP, scope: { kind: 'queue', queue } });
    assert.deepEqual(
      claims.flatMap(({ messages }) => messages.map(({ transactionId }) => transactionId)),
      ['d'],
    );
    await kept.deleteQueue(DEFAULT_TENANT, queue);
    if (!struck) break;
    strikes++;
  }
  assert.ok(strikes > 3, `${strikes} strikes`);
});
