/** A source of PostgreSQL 17 and 18 into real queues: what the stream brings, and what it brings once. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { until } from '../../../../../test/kit/until.ts';
import { Upstream } from '../../../../../test/kit/upstream.ts';
import { parseLsn } from '../../../src/connectors/postgres/replication/lsn.ts';
import { faultOf, SourceRig, tableOf } from './rig.ts';

for (const major of [17, 18] as const) {
  suite(`a stream of PostgreSQL ${major}`, () => {
    let server: Upstream;
    before(async () => {
      server = await Upstream.start({ major });
    });
    after(() => server.remove());

    async function open(t: Parameters<typeof SourceRig.open>[0], ddl: string) {
      const upstream = await server.database(t);
      await upstream.sql(ddl);
      return SourceRig.open(t, upstream);
    }

    test('each change is an event with the id of its place, in the partition of its key', async (t) => {
      const rig = await open(t, 'CREATE TABLE t (id int PRIMARY KEY, v text)');
      const unit = await rig.stream(rig.document('s', { tables: [tableOf('t')] }));
      await rig.upstream.sql("INSERT INTO t VALUES (1, 'a')");
      await rig.upstream.sql(
        `BEGIN; UPDATE t SET v = 'b'; INSERT INTO t VALUES (2, 'c'); DELETE FROM t WHERE id = 1; COMMIT`,
      );
      const messages = await rig.arrived(4);
      assert.deepEqual(
        messages.map(({ partition, event: { op, key, after, before: old, seq } }) => [
          partition,
          op,
          key,
          after,
          old,
          seq,
        ]),
        [
          ['1', 'c', { id: 1 }, { id: 1, v: 'a' }, null, 0],
          ['1', 'u', { id: 1 }, { id: 1, v: 'b' }, null, 0],
          ['2', 'c', { id: 2 }, { id: 2, v: 'c' }, null, 1],
          ['1', 'd', { id: 1 }, null, { id: 1 }, 2],
        ],
      );
      const { epoch } = (await rig.pointer('s'))!;
      for (const { id, event } of messages) {
        const digits = parseLsn(event.lsn)!.toString(16).toUpperCase().padStart(16, '0');
        assert.equal(id, `pg:${epoch}:${digits}:${event.seq}`);
        assert.equal(typeof event.xid, 'number');
      }
      assert.equal(unit.status.counters.transactions, 2);
      assert.equal(unit.status.counters.messages, 4);
    });

    test('stopped and started: nothing is missing, nothing is there twice', async (t) => {
      const rig = await open(t, 'CREATE TABLE t (id int PRIMARY KEY)');
      const document = rig.document('s', { tables: [tableOf('t')] });
      for (let round = 0; round < 3; round++) {
        const unit = await rig.stream(document);
        await rig.upstream.sql(
          `INSERT INTO t SELECT g FROM generate_series(${round * 10}, ${round * 10 + 9}) g`,
        );
        if (round < 2) await rig.arrived((round + 1) * 10);
        await unit.stop();
        assert.equal((await rig.slot(document.source.slot))?.active, false);
        assert.equal(await rig.lease('s'), null);
      }
      await rig.stream(document);
      const messages = await rig.arrived(30);
      assert.equal(new Set(messages.map(({ id }) => id)).size, 30);
    });

    test('a transaction that no bundle holds comes in pieces, each change once', async (t) => {
      const rig = await open(t, 'CREATE TABLE t (id int PRIMARY KEY, part int)');
      const document = rig.document('s', {
        tables: [tableOf('t', { partitionBy: 'single' })],
        maxBundleMessages: 100,
      });
      const unit = await rig.stream(document);
      await rig.upstream.sql('INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 1050) g');
      const messages = await rig.arrived(1_050);
      assert.deepEqual(
        messages.map(({ event }) => event.after!.id),
        Array.from({ length: 1_050 }, (_, i) => i + 1),
      );
      assert.deepEqual(new Set(messages.map(({ partition }) => partition)), new Set(['all']));
      assert.equal(unit.status.counters.transactions, 1);
      assert.equal(unit.status.counters.bundles, 11);
      assert.equal((await rig.pointer('s'))!.inTxn, null);
    });

    test('large values that an update left alone, and keys that move with them', async (t) => {
      const rig = await open(
        t,
        `CREATE TABLE t (id int PRIMARY KEY, big text, n int);
         ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL`,
      );
      await rig.stream(rig.document('s', { tables: [tableOf('t')] }));
      const big = 'x'.repeat(20_000);
      await rig.upstream.sql('INSERT INTO t SELECT g, $1, 0 FROM generate_series(1, 5) g', [big]);
      await rig.upstream.sql('UPDATE t SET n = 1 WHERE id = 1');
      await rig.upstream.sql('UPDATE t SET id = id + 100');
      await rig.upstream.sql(
        'BEGIN; UPDATE t SET id = 999 WHERE id = 101; DELETE FROM t WHERE id = 999; COMMIT',
      );
      const messages = await rig.arrived(5 + 1 + 10 + 3);
      const events = messages.map(({ event }) => event);
      assert.deepEqual([events[5]!.after, events[5]!.unchanged], [{ id: 1, n: 1 }, ['big']]);
      const moved = events.slice(6, 16);
      assert.deepEqual(
        moved.map(({ op }) => op),
        Array.from({ length: 10 }, (_, i) => (i % 2 === 0 ? 'd' : 'c')),
      );
      for (const { op, after: row, unchanged, key } of moved) {
        if (op === 'd') continue;
        if (key!.id !== 101 || unchanged === undefined) assert.equal(row!.big, big);
      }
      assert.ok(messages.slice(6, 16).every(({ id }, i) => id.endsWith('.1') === (i % 2 === 1)));
      // The row is gone by the time that it could have been read.
      assert.deepEqual(events[17]!.unchanged, ['big']);
    });

    test('altered while it streams: each event has the shape of its time', async (t) => {
      const rig = await open(t, 'CREATE TABLE t (id int PRIMARY KEY, a int, b text)');
      const unit = await rig.stream(rig.document('s', { tables: [tableOf('t')] }));
      await rig.upstream.sql(`
        INSERT INTO t VALUES (1, 1, 'x');
        BEGIN; INSERT INTO t VALUES (2, 2, 'y'); ALTER TABLE t ADD COLUMN c numeric DEFAULT 1.50; INSERT INTO t VALUES (3, 3, 'z', 2.5); COMMIT;
        ALTER TABLE t DROP COLUMN b;
        UPDATE t SET a = 10 WHERE id = 1;
        ALTER TABLE t RENAME COLUMN a TO d;
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        ALTER TABLE t ALTER COLUMN d TYPE text USING d::text;
        ALTER TABLE t ADD COLUMN m mood[];
        UPDATE t SET m = '{sad,ok}' WHERE id = 2`);
      const events = (await rig.arrived(5)).map(({ event }) => event);
      assert.deepEqual(
        events.map(({ after: row }) => row),
        [
          { id: 1, a: 1, b: 'x' },
          { id: 2, a: 2, b: 'y' },
          { id: 3, a: 3, b: 'z', c: 2.5 },
          { id: 1, a: 10, c: 1.5 },
          { id: 2, d: '2', c: 1.5, m: ['sad', 'ok'] },
        ],
      );
      assert.equal(unit.status.faults.length, 0);
      await rig.upstream.sql('ALTER TABLE t DROP COLUMN id; INSERT INTO t (d) VALUES (5)');
      assert.equal((await faultOf(unit)).code, 'relation_changed');
    });

    test('a type that came with a commit that nobody sees yet', async (t) => {
      const rig = await open(t, 'CREATE TABLE t (id int PRIMARY KEY)');
      await rig.stream(rig.document('s', { tables: [tableOf('t')] }));
      const waits = async (names: string) => {
        await server.administer(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`);
        await server.administer('SELECT pg_reload_conf()');
      };
      const writer = await rig.upstream.connect();
      const [{ pid }] = (await writer.query('SELECT pg_backend_pid() AS pid')).rows as [{ pid: number }];
      await waits('nobody');
      let committed: Promise<unknown> = Promise.resolve();
      try {
        committed =
          writer.query(`BEGIN; CREATE TYPE mood AS ENUM ('sad', 'ok'); ALTER TABLE t ADD COLUMN m mood[];
          INSERT INTO t VALUES (1, '{sad,ok}'); COMMIT`);
        // It is in the log, waits for its standby, and the source has come to where it needs the type.
        await until('the commit waits, and the source asks', async () => {
          const [row] = await server.administer(
            `SELECT (SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = ${pid}) AND EXISTS (
               SELECT FROM pg_stat_activity WHERE application_name LIKE 'queen-pg%' AND backend_type = 'client backend'
                  AND state = 'idle' AND query ~ '(pg_current_snapshot|typsubscript)' AND query_start >
                      (SELECT query_start FROM pg_stat_activity WHERE pid = ${pid})) AS so`,
          );
          return row!.so === true;
        });
      } finally {
        await waits('');
      }
      await committed;
      await writer.end();
      assert.deepEqual((await rig.arrived(1))[0]!.event.after, { id: 1, m: ['sad', 'ok'] });
    });

    test('identity of an index, of the full row, and changed in between', async (t) => {
      const rig = await open(
        t,
        `CREATE TABLE i (id int PRIMARY KEY, a text NOT NULL, b int NOT NULL, v int);
         CREATE UNIQUE INDEX i_key ON i (b, a); ALTER TABLE i REPLICA IDENTITY USING INDEX i_key;
         CREATE TABLE f (id int PRIMARY KEY, region text, v int); ALTER TABLE f REPLICA IDENTITY FULL`,
      );
      const tables = [tableOf('i', { queue: 'i' }), tableOf('f', { queue: 'f', partitionBy: ['region'] })];
      await rig.stream(rig.document('s', { tables }));
      await rig.upstream.sql(`
        INSERT INTO i VALUES (1, 'a|b', 7, 0); UPDATE i SET id = 2; UPDATE i SET a = 'c'; DELETE FROM i;
        INSERT INTO f VALUES (1, 'eu', 0); UPDATE f SET v = 1; UPDATE f SET region = 'us'; UPDATE f SET region = NULL; DELETE FROM f`);
      const i = await rig.arrived(5, 'i');
      assert.deepEqual(
        i.map(({ partition, event: { op, key, before: old } }) => [partition, op, key, old]),
        [
          ['7|a\\|b', 'c', { b: 7, a: 'a|b' }, null],
          ['7|a\\|b', 'u', { b: 7, a: 'a|b' }, null],
          ['7|a\\|b', 'd', { b: 7, a: 'a|b' }, { b: 7, a: 'a|b' }],
          ['7|c', 'c', { b: 7, a: 'c' }, null],
          ['7|c', 'd', { b: 7, a: 'c' }, { b: 7, a: 'c' }],
        ],
      );
      const f = await rig.arrived(7, 'f');
      assert.deepEqual(
        f.map(({ partition, event: { op, before: old } }) => [partition, op, old]),
        [
          ['eu', 'c', null],
          ['eu', 'u', { id: 1, region: 'eu', v: 0 }],
          ['eu', 'd', { id: 1, region: 'eu', v: 1 }],
          ['us', 'c', null],
          ['us', 'd', { id: 1, region: 'us', v: 1 }],
          ['\\N', 'c', null],
          ['\\N', 'd', { id: 1, region: null, v: 1 }],
        ],
      );
    });

    test('names in mixed case, partitioned tables, children that do not flow in, generated columns', async (t) => {
      const rig = await open(
        t,
        `CREATE SCHEMA "Odd"; CREATE TABLE "Odd"."MixedCase" ("Id" int PRIMARY KEY, "a ""b|é" text);
         CREATE TABLE p (id int, at int, v int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
         CREATE TABLE mother (id int PRIMARY KEY, v int, twice int GENERATED ALWAYS AS (v * 2) STORED);
         CREATE TABLE child (PRIMARY KEY (id)) INHERITS (mother)`,
      );
      await rig.stream(
        rig.document('s', {
          tables: [
            tableOf('Odd.MixedCase', { queue: 'odd' }),
            tableOf('p', { queue: 'p' }),
            tableOf('mother', { queue: 'm' }),
          ],
        }),
      );
      await rig.upstream.sql(`INSERT INTO child (id, v) VALUES (5, 5); INSERT INTO mother (id, v) VALUES (1, 4);
        INSERT INTO p VALUES (1, 5, 0); UPDATE p SET v = 1; UPDATE p SET at = 15;
        INSERT INTO "Odd"."MixedCase" VALUES (1, 'x')`);
      const [odd] = await rig.arrived(1, 'odd');
      assert.equal(odd!.event.table, 'Odd.MixedCase');
      assert.deepEqual(odd!.event.after, { Id: 1, 'a "b|é': 'x' });
      const [mother] = await rig.arrived(1, 'm');
      assert.deepEqual(mother!.event.after, { id: 1, v: 4 });
      const p = await rig.arrived(4, 'p');
      assert.deepEqual(
        p.map(({ partition, event: { op, table, seq } }) => [partition, op, table, seq]),
        [
          // One transaction, whose first change is the other table's.
          ['1|5', 'c', 'public.p', 1],
          ['1|5', 'u', 'public.p', 2],
          ['1|5', 'd', 'public.p', 3],
          ['1|15', 'c', 'public.p', 4],
        ],
      );
    });

    test('truncates are counted, or written for each table', async (t) => {
      const rig = await open(
        t,
        `CREATE TABLE a (id serial PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY REFERENCES a)`,
      );
      const [a, b] = [tableOf('a', { partitionBy: 'single' }), tableOf('b', { partitionBy: 'single' })];
      const skips = await rig.stream(rig.document('skips', { tables: [{ ...a, queue: 'x' }] }));
      await rig.stream(rig.document('emits', { tables: [b, a], onTruncate: 'emit' }));
      await rig.upstream.sql(
        'INSERT INTO a VALUES (1); TRUNCATE a RESTART IDENTITY CASCADE; INSERT INTO a VALUES (2)',
      );
      const messages = await rig.arrived(4);
      assert.deepEqual(
        messages.map(({ event, id }) => [event.op, event.table, event.seq, id.split(':').at(-1)]),
        [
          ['c', 'public.a', 0, '0'],
          ['t', 'public.b', 1, '1'],
          ['t', 'public.a', 1, '1.1'],
          ['c', 'public.a', 2, '2'],
        ],
      );
      assert.match(
        messages[1]!.text,
        /^\{"op":"t","table":"public.b","key":null,"after":null,"before":null,"lsn":"[^"]+","xid":\d+,"ts":"[^"]+","seq":1,"cascade":true,"restartIdentity":true\}$/,
      );
      await rig.arrived(2, 'x');
      assert.equal(skips.status.facts.truncatesSkipped, 1);
    });
  });
}
