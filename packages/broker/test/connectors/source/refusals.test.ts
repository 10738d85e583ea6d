/** What is refused at the start, before anything of the upstream is touched; and publications of every kind. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Cleanup } from '../../../../../test/kit/cleanup.ts';
import { Upstream } from '../../../../../test/kit/upstream.ts';
import type { SourceTable } from '../../../src/connectors/postgres/document/types.ts';
import { faultOf, SourceRig, tableOf } from './rig.ts';

for (const major of [17, 18] as const) {
  suite(`before a source of PostgreSQL ${major} begins`, () => {
    let server: Upstream;
    before(async () => {
      server = await Upstream.start({ major });
    });
    after(() => server.remove());

    /** What does not depend on the version of the server is tried on one. */
    const LATEST = { skip: major !== 18 && 'on the latest version' };
    const OLDEST = { skip: major !== 17 && 'on the oldest version' };

    async function open(t: Cleanup, ddl: string) {
      const upstream = await server.database(t);
      await upstream.sql(ddl);
      return SourceRig.open(t, upstream);
    }

    test('tables that cannot be captured are refused, and their updates go on', LATEST, async (t) => {
      const rig = await open(
        t,
        `CREATE TABLE nokey (id int); INSERT INTO nokey VALUES (1);
         CREATE TABLE late (id int PRIMARY KEY DEFERRABLE); INSERT INTO late VALUES (1);
         CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
         CREATE TABLE whole (id int); ALTER TABLE whole REPLICA IDENTITY FULL;
         CREATE UNLOGGED TABLE volatile (id int PRIMARY KEY);
         CREATE TABLE t (id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (v) STORED);
         CREATE VIEW seen AS SELECT * FROM t; CREATE SEQUENCE numbers;
         CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); ALTER TABLE p1 REPLICA IDENTITY FULL;
         CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10)`,
      );
      const cases: [string, readonly SourceTable[]][] = [
        ['replica_identity', [tableOf('nokey')]],
        ['replica_identity', [tableOf('late')]],
        ['replica_identity', [tableOf('nothing')]],
        ['replica_identity', [tableOf('whole')]],
        ['replica_identity', [tableOf('p')]],
        ['unsupported_table', [tableOf('volatile')]],
        ['unsupported_table', [tableOf('r'), tableOf('r1')]],
        ['table_missing', [tableOf('t'), tableOf('T')]],
        ['table_missing', [tableOf('seen')]],
        ['table_missing', [tableOf('numbers')]],
        ['table_missing', [tableOf('elsewhere.t')]],
        ['partition_by', [tableOf('t', { partitionBy: ['v'] })]],
        ['partition_by', [tableOf('t', { partitionBy: ['nope'] })]],
        ['partition_by', [tableOf('t', { partitionBy: ['g'] })]],
      ];
      for (const [code, tables] of cases) {
        const unit = rig.start(rig.document('s', { tables }));
        const fault = await faultOf(unit);
        assert.equal(fault.code, code, `${tables.map(({ table }) => table)}: ${fault.message}`);
        await unit.stop();
      }
      assert.deepEqual(await rig.upstream.sql('SELECT * FROM pg_publication'), []);
      await rig.upstream.sql('UPDATE late SET id = 2; UPDATE nokey SET id = 2');
    });

    test('a publication of its own is made, repaired when it differs, and left alone when it does not', async (t) => {
      const rig = await open(
        t,
        'CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY)',
      );
      const document = rig.document('s', { tables: [tableOf('a'), tableOf('b')] });
      const published = async () =>
        (
          await rig.upstream.sql(
            `SELECT p.xmin::text, p.pubviaroot, p.pubtruncate, p.pubdelete, (SELECT array_agg(prrelid::regclass::text || coalesce(prattrs::text, '') || coalesce(prqual::text, '') ORDER BY prrelid::regclass::text) FROM pg_publication_rel r WHERE r.prpubid = p.oid) AS tables FROM pg_publication p`,
          )
        )[0]!;
      const shape = { pubviaroot: true, pubtruncate: true, pubdelete: true, tables: ['a', 'b'] };
      const { stop } = await rig.stream(document);
      await stop();
      const { xmin, ...first } = await published();
      assert.deepEqual(first, shape);
      await (await rig.stream(document)).stop();
      assert.equal((await published()).xmin, xmin);
      for (const damage of [
        'ALTER PUBLICATION queen_s SET TABLE a, b, c',
        'ALTER PUBLICATION queen_s SET TABLE a (id), b',
        'ALTER PUBLICATION queen_s SET TABLE a WHERE (id > 5), b',
        "ALTER PUBLICATION queen_s SET (publish = 'insert', publish_via_partition_root = false)",
      ]) {
        await rig.upstream.sql(damage);
        await (await rig.stream(document)).stop();
        const { xmin: _, ...repaired } = await published();
        assert.deepEqual(repaired, shape, damage);
      }
    });

    test('a publication of somebody else must carry the tables whole', LATEST, async (t) => {
      const rig = await open(
        t,
        `CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY);
         CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)`,
      );
      const asked = { managePublication: false, publication: 'theirs' };
      const document = rig.document('s', { tables: [tableOf('a')], ...asked });
      const bad: [string, Partial<Parameters<typeof rig.document>[1]>][] = [
        ['SELECT 1', {}],
        ['CREATE PUBLICATION theirs FOR TABLE b', {}],
        ['CREATE PUBLICATION theirs FOR TABLE a WHERE (id > 1)', {}],
        ['CREATE PUBLICATION theirs FOR TABLE a (id)', {}],
        ['CREATE PUBLICATION theirs FOR TABLE a (id, v)', {}],
        ["CREATE PUBLICATION theirs FOR TABLE a WITH (publish = 'insert, update, truncate')", {}],
        [
          "CREATE PUBLICATION theirs FOR TABLE a WITH (publish = 'insert, update, delete')",
          { onTruncate: 'emit', tables: [tableOf('a', { partitionBy: 'single' })] },
        ],
        ['CREATE PUBLICATION theirs FOR TABLE p', { tables: [tableOf('p')] }],
      ];
      for (const [ddl, more] of bad) {
        await rig.upstream.sql(ddl);
        const unit = rig.start(rig.document('s', { tables: [tableOf('a')], ...asked, ...more }));
        assert.equal((await faultOf(unit)).code, 'publication', ddl);
        await unit.stop();
        await rig.upstream.sql('DROP PUBLICATION IF EXISTS theirs');
      }
      assert.equal(await rig.slot(document.source.slot), null);
      await rig.upstream.sql('CREATE PUBLICATION theirs FOR ALL TABLES');
      const unit = await rig.stream(document);
      await rig.upstream.sql('INSERT INTO b VALUES (1); INSERT INTO a VALUES (1, 1)');
      const [message] = await rig.arrived(1);
      // Changes of other tables count, and are nobody's events.
      assert.equal(message!.event.table, 'public.a');
      await unit.stop();
    });

    test('a role without the rights is told which', LATEST, async (t) => {
      const rig = await open(t, 'CREATE TABLE t (id int PRIMARY KEY)');
      const role = `${rig.upstream.name}_role`;
      await rig.upstream.sql(`CREATE ROLE ${role} LOGIN; GRANT SELECT ON t TO ${role}`);
      t.after(() => server.administer(`DROP ROLE ${role}`).catch(() => []));
      const connection = rig.connection({ user: role });
      const document = rig.document('s', { tables: [tableOf('t')] }, { connection });
      const unit = rig.start(document);
      assert.equal((await faultOf(unit)).code, 'publication');
      await unit.stop();
      await rig.upstream.sql('CREATE PUBLICATION queen_s FOR TABLE t');
      const unmanaged = { ...document, source: { ...document.source, managePublication: false } };
      const still = rig.start(unmanaged);
      assert.match((await faultOf(still)).message, /replication/i);
      await still.stop();
      await rig.upstream.sql(`ALTER ROLE ${role} REPLICATION`);
      await rig.stream(unmanaged);
      await rig.upstream.sql('INSERT INTO t VALUES (1)');
      await rig.arrived(1);
    });

    test('a publication that is younger than the place of the slot', OLDEST, async (t) => {
      const upstream = await server.database(t);
      await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
      const rig = await SourceRig.open(t, upstream);
      const document = rig.document('s', { tables: [tableOf('t')] });
      await upstream.sql("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [document.source.slot]);
      await upstream.sql('INSERT INTO t VALUES (1)');
      const unit = rig.start(document);
      const fault = await faultOf(unit);
      assert.deepEqual([fault.code, fault.retry], ['publication', 'later']);
      await unit.stop();
      // A new beginning heals it.
      await rig.stream({ ...document, resyncRequestedAt: '2026-02-01T00:00:00.000001Z' });
      assert.equal((await rig.arrived(1))[0]!.event.op, 'r');
    });

    test('bytes that are no text', OLDEST, async (t) => {
      const upstream = await server.database(
        t,
        "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
      );
      await upstream.sql('CREATE TABLE t (id int PRIMARY KEY, v text)');
      const rig = await SourceRig.open(t, upstream);
      const unit = await rig.stream(rig.document('s', { tables: [tableOf('t')] }));
      await upstream.sql("INSERT INTO t VALUES (1, 'good')");
      await rig.arrived(1);
      await upstream.sql("SET client_encoding = SQL_ASCII; INSERT INTO t VALUES (2, E'\\xff')");
      assert.equal((await faultOf(unit)).code, 'encoding');
      assert.equal((await rig.messages()).length, 1);
    });
  });
}

suite('a server that is not one for a source', () => {
  test('without logical decoding', async (t) => {
    const server = await Upstream.start({ major: 17, settings: { wal_level: 'replica' } }, t);
    const upstream = await server.database();
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
    const rig = await SourceRig.open(t, upstream);
    const unit = rig.start(rig.document('s', { tables: [tableOf('t')] }));
    assert.equal((await faultOf(unit)).code, 'wal_level');
    await unit.stop();
    await upstream.drop();
  });
});
