import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { Upstream, type UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import { PgDialler } from '../../../src/connectors/postgres/session/dialler.ts';
import type { SqlSession } from '../../../src/connectors/postgres/session/types.ts';
import type { CatalogTable } from '../../../src/connectors/postgres/source/catalog.ts';
import { cellText, keyTexts } from '../../../src/connectors/postgres/source/rows.ts';
import { encoderOf } from '../../../src/connectors/postgres/source/snapshot/chunk_rows.ts';
import { ChunkReader } from '../../../src/connectors/postgres/source/snapshot/reader.ts';
import { keyQuery } from '../../../src/connectors/postgres/source/snapshot/select.ts';
import { catalogOf } from './catalog_of.ts';

for (const major of [17, 18] as const) {
  suite(`chunks of a table in PostgreSQL ${major}`, () => {
    let upstream: Upstream;
    let database: UpstreamDatabase;
    before(async () => {
      upstream = await Upstream.start({ major });
      database = await upstream.database();
    });
    after(() => upstream.remove());

    function dial(user = 'postgres'): Promise<SqlSession> {
      const connection = {
        host: upstream.host,
        port: upstream.port,
        database: database.name,
        user,
        passwordSealed: null,
        sslMode: 'disable' as const,
        sslRootCert: null,
        connectTimeoutMs: 10_000,
      };
      const dialler = new PgDialler({ connection, password: () => null, allowPrivate: true });
      return dialler.sql('queen-test', 'source');
    }

    function readerOf(
      t: { after(work: () => Promise<void>): void },
      bytesMax = 1e9,
      user?: string,
    ): ChunkReader {
      const reader = new ChunkReader({ open: () => dial(user), prefix: 'queen:test', bytesMax });
      t.after(() => reader.close());
      return reader;
    }

    /** All rows, chunk by chunk, and the number of chunks. */
    async function walk(reader: ChunkReader, table: CatalogTable, limit: number) {
      const rows: (string | null)[][] = [];
      const { key } = encoderOf(table);
      let chunks = 0;
      for (let from: string[] | null = null; ; ) {
        const chunk = await reader.read(table, from, limit, () => true);
        assert.ok(typeof chunk === 'object', String(chunk));
        chunks++;
        for (const row of chunk.rows) rows.push(table.columns.map((_, i) => cellText(row, i)));
        if (chunk.last) return { rows, chunks };
        from = keyTexts(chunk.rows.at(-1)!, key);
      }
    }

    const KEYS: [name: string, columns: string, key: string, rows: string][] = [
      ['int', 'k int', 'k', 'SELECT g - 500 FROM generate_series(1, 1000) g'],
      ['bigint', 'k bigint', 'k', 'SELECT 9223372036854775807 - g FROM generate_series(0, 999) g'],
      [
        'text',
        'k text',
        'k',
        `SELECT repeat('same', 20) || g || E'\\'"\\\\é' FROM generate_series(1, 1000) g`,
      ],
      [
        'C',
        'k text COLLATE "C"',
        'k',
        'SELECT chr(33 + g % 94) || chr(33 + g / 94 % 94) FROM generate_series(0, 999) g',
      ],
      [
        'ICU',
        'k text COLLATE "und-x-icu"',
        'k',
        "SELECT (ARRAY['a','A','ä','Ä','b'])[1 + g % 5] || g / 5 FROM generate_series(0, 999) g",
      ],
      [
        'caseless',
        'k text COLLATE caseless',
        'k',
        "SELECT (ARRAY['Row','ROW','rOW'])[1 + g % 3] || g FROM generate_series(0, 999) g",
      ],
      ['char', 'k char(8)', 'k', 'SELECT to_hex(g) FROM generate_series(0, 999) g'],
      ['name', 'k name', 'k', "SELECT 'n' || g FROM generate_series(0, 999) g"],
      [
        'numeric',
        'k numeric',
        'k',
        `SELECT g / 8.0 FROM generate_series(-400, 599) g UNION ALL SELECT unnest('{NaN,Infinity,-Infinity,1e400}'::numeric[])`,
      ],
      ['numeric scale', 'k numeric(30,10)', 'k', 'SELECT g / 7.0 FROM generate_series(1, 1000) g'],
      [
        'float8',
        'k float8',
        'k',
        `SELECT exp(g) FROM generate_series(-500, 499) g UNION ALL SELECT unnest('{NaN,Infinity,-Infinity}'::float8[])`,
      ],
      ['float4', 'k float4', 'k', 'SELECT DISTINCT (g / 3.0)::float4 FROM generate_series(1, 1000) g'],
      ['uuid', 'k uuid', 'k', 'SELECT md5(g::text)::uuid FROM generate_series(1, 1000) g'],
      [
        'timestamptz',
        'k timestamptz',
        'k',
        `SELECT '2026-01-01'::timestamptz + g * interval '1.000001 s' FROM generate_series(1, 900) g UNION ALL SELECT unnest('{infinity,-infinity,0044-03-15 BC,10026-01-01}'::timestamptz[])`,
      ],
      [
        'timestamp',
        'k timestamp',
        'k',
        `SELECT '2026-01-01'::timestamp + g * interval '1 us' FROM generate_series(1, 900) g`,
      ],
      [
        'date',
        'k date',
        'k',
        `SELECT '0002-01-01 BC'::date + g FROM generate_series(1, 1000) g UNION ALL SELECT unnest('{infinity,-infinity}'::date[])`,
      ],
      [
        'interval',
        'k interval',
        'k',
        `SELECT g * interval '1 day 3 min' - interval '100 mon' FROM generate_series(1, 1000) g`,
      ],
      [
        'bytea',
        'k bytea',
        'k',
        `SELECT decode(lpad(to_hex(g), 4, '0'), 'hex') || '\\x00'::bytea FROM generate_series(1, 999) g UNION ALL SELECT ''::bytea`,
      ],
      ['bool', 'k bool, n int', 'k, n', 'SELECT g % 2 = 0, g FROM generate_series(1, 1000) g'],
      ['bit', 'k bit(12)', 'k', 'SELECT g::bit(12) FROM generate_series(1, 1000) g'],
      ['inet', 'k inet', 'k', "SELECT '10.0.0.0/8'::inet + g FROM generate_series(1, 1000) g"],
      [
        'enum',
        'k pg_temp_free.mood, n int',
        'k, n',
        "SELECT (ARRAY['so, so','sad','it''s'])[1 + g % 3]::pg_temp_free.mood, g FROM generate_series(1, 1000) g",
      ],
      ['domain', 'k pg_temp_free.small', 'k', 'SELECT g FROM generate_series(1, 1000) g'],
      ['array', 'k int[]', 'k', 'SELECT ARRAY[g / 10, g % 10, NULL] FROM generate_series(1, 1000) g'],
      ['jsonb', 'k jsonb', 'k', `SELECT jsonb_build_object('a', g) FROM generate_series(1, 1000) g`],
      ['range', 'k int4range', 'k', 'SELECT int4range(g, g + 5) FROM generate_series(1, 1000) g'],
      [
        'composite',
        'a int, k text, "b|C" uuid',
        '"b|C", k, a',
        `SELECT g % 3, repeat('|', g % 5) || '\\', md5((g / 4)::text)::uuid FROM generate_series(1, 1000) g ON CONFLICT DO NOTHING`,
      ],
      ['order', 'k int, n int', 'k, n', 'SELECT g % 7, g FROM generate_series(1, 1000) g'],
    ];

    test('every type of key, in chunks that end anywhere', async (t) => {
      const reader = readerOf(t);
      await database
        .sql(
          `CREATE SCHEMA pg_temp_free; SET search_path = pg_temp_free, public`.replaceAll(
            'pg_temp_free',
            'types',
          ),
        )
        .catch(() => {});
      await database.sql(`CREATE TYPE types.mood AS ENUM ('it''s', 'sad', 'so, so');
        CREATE DOMAIN types.small AS int CHECK (VALUE < 100000);
        CREATE COLLATION public.caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        RESET search_path`);
      // The comparison of keys is the same in both: a part of them will do for the older one.
      const keys = KEYS.filter((_, i) => major === 18 || i % 4 === 0);
      for (const [name, columns, key, rows] of keys) {
        const quoted = `"Key of ""${name}"""`;
        const sql = (text: string) => text.replaceAll('pg_temp_free', 'types');
        await database.sql(
          `CREATE TABLE ${quoted} (${sql(columns)}, "the ""value""" text DEFAULT 'v', gen int GENERATED ALWAYS AS (1) STORED)`,
        );
        if (name === 'order') {
          await database.sql(`CREATE UNIQUE INDEX ON ${quoted} (k DESC NULLS LAST, n)`);
        }
        await database.sql(`ALTER TABLE ${quoted} ADD PRIMARY KEY (${key})`);
        const into = sql(columns)
          .split(', ')
          .map((column) => column.split(' ')[0])
          .join(', ');
        await database.sql(`INSERT INTO ${quoted} (${into}) ${sql(rows)}; ANALYZE ${quoted}`);
        const table = await catalogOf(database, 'public', `Key of "${name}"`);
        const { rows: read, chunks } = await walk(reader, table, 89);
        const [all] = await database.sql(`SELECT count(*)::int AS n FROM ${quoted}`);
        assert.equal(read.length, all!.n, name);
        const texts = read.map((row) => JSON.stringify(row));
        assert.equal(new Set(texts).size, read.length, name);
        assert.equal(chunks, Math.floor(read.length / 89) + 1, name);
        // What was printed finds its row again.
        const positions = encoderOf(table).key;
        const some = read.filter((_, i) => i % 97 === 0).map((row) => positions.map((at) => row[at]!));
        const session = await dial();
        const found = await session.query(keyQuery(table, some));
        assert.equal(found.rows.length, some.length, name);
        await session.close();
      }
    });

    test('a comparison of the whole key is one scan of its index', async () => {
      await database.sql(`CREATE TABLE scanned (a int, b text, c uuid, PRIMARY KEY (a, b, c));
        INSERT INTO scanned SELECT g % 100, 'b' || g, md5(g::text)::uuid FROM generate_series(1, 20000) g; ANALYZE scanned`);
      const table = await catalogOf(database, 'public', 'scanned');
      const { chunkQuery } = await import('../../../src/connectors/postgres/source/snapshot/select.ts');
      const plan = await database.sql(`EXPLAIN (FORMAT JSON) ${chunkQuery(table, ['50', 'b150', md5], 100)}`);
      const text = JSON.stringify(plan);
      assert.match(text, /Index (Only )?Scan/);
      assert.match(text, /Index Cond/);
      assert.doesNotMatch(text, /"Sort"/);
    });
    const md5 = '9bf31c7f-f062-936a-96d3-c8bd1f8f2ff3';

    test('a chunk of long rows is cut by its bytes', async (t) => {
      const reader = readerOf(t, 1_000_000);
      await database.sql(`CREATE TABLE long (id int PRIMARY KEY, v text);
        ALTER TABLE long ALTER v SET STORAGE EXTERNAL;
        INSERT INTO long SELECT g, CASE WHEN g > 20 THEN repeat('x', 100000) ELSE 'short' END FROM generate_series(1, 160) g`);
      const table = await catalogOf(database, 'public', 'long');
      const { rows, chunks } = await walk(reader, table, 1_000);
      assert.deepEqual(
        rows.map(([id]) => Number(id)),
        Array.from({ length: 160 }, (_, i) => i + 1),
      );
      assert.ok(chunks >= 4, `${chunks} chunks`);
    });

    test('rows of children by inheritance are not read, those of partitions are', async (t) => {
      const reader = readerOf(t);
      await database.sql(`CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
        INSERT INTO parent VALUES (1), (3); INSERT INTO child VALUES (2);
        CREATE TABLE root (id int PRIMARY KEY) PARTITION BY HASH (id);
        CREATE TABLE leaf0 PARTITION OF root FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE leaf1 PARTITION OF root FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        INSERT INTO root SELECT generate_series(1, 20)`);
      assert.deepEqual((await walk(reader, await catalogOf(database, 'public', 'parent'), 10)).rows, [
        ['1'],
        ['3'],
      ]);
      const { rows } = await walk(reader, await catalogOf(database, 'public', 'root'), 7);
      assert.deepEqual(
        rows.map(([id]) => Number(id)),
        Array.from({ length: 20 }, (_, i) => i + 1),
      );
    });

    test('a table that was altered, and one that is gone', async (t) => {
      const reader = readerOf(t);
      await database.sql('CREATE TABLE altered (id int PRIMARY KEY, v text)');
      const table = await catalogOf(database, 'public', 'altered');
      const read = () => reader.read(table, null, 10, () => true);
      assert.equal(typeof (await read()), 'object');
      await database.sql('ALTER TABLE altered ADD w int');
      assert.equal(await read(), 'altered');
      await database.sql('ALTER TABLE altered DROP w');
      assert.equal(typeof (await read()), 'object');
      await database.sql('ALTER TABLE altered RENAME v TO u');
      assert.equal(await read(), 'altered');
      await database.sql('DROP TABLE altered');
      await assert.rejects(read(), { code: 'postgres', sqlState: '42P01' });
      await database.sql('CREATE TABLE altered (id int PRIMARY KEY, v text)');
      assert.equal(await read(), 'altered');
      assert.equal(await reader.read(table, null, 10, () => false), 'refused');
      // Each of them has ended its transaction.
      const [open] = await database.sql(
        "SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = 'queen-test' AND state <> 'idle'",
      );
      assert.equal(open!.n, 0);
    });

    test('a role that may not read, and one that a policy hides rows from', async (t) => {
      await database.sql(`CREATE TABLE secret (id int PRIMARY KEY); CREATE ROLE reader_${major} LOGIN`);
      const table = await catalogOf(database, 'public', 'secret');
      const reader = readerOf(t, 1e9, `reader_${major}`);
      await assert.rejects(
        reader.read(table, null, 10, () => true),
        { code: 'privilege', sqlState: '42501' },
      );
      await database.sql(`GRANT SELECT ON secret TO reader_${major};
        ALTER TABLE secret ENABLE ROW LEVEL SECURITY; CREATE POLICY none ON secret USING (id > 5)`);
      await assert.rejects(
        reader.read(table, null, 10, () => true),
        { code: 'privilege', sqlState: '42501' },
      );
      await database.sql('ALTER TABLE secret DISABLE ROW LEVEL SECURITY');
      assert.equal(typeof (await reader.read(table, null, 10, () => true)), 'object');
      await database.sql(
        `REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text, boolean) FROM public`,
      );
      await assert.rejects(reader.mark('lw:1', false), { code: 'privilege' });
      await database.sql(
        `GRANT EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text, boolean) TO public`,
      );
      await reader.mark('lw:1', true);
    });

    test('who writes, and what was the youngest', async (t) => {
      const reader = readerOf(t);
      const young = await reader.youngest();
      const client = await database.connect();
      const { rows } = await client
        .query(
          'BEGIN; CREATE TABLE held (id int); SELECT pg_backend_pid() AS pid, pg_current_xact_id()::text AS xid',
        )
        .then((results) => (results as unknown as { rows: { pid: number; xid: string }[] }[])[2]!);
      assert.ok(BigInt(rows[0]!.xid) > young);
      assert.ok((await reader.writers()).includes(String(rows[0]!.pid)));
      const during = await reader.look();
      assert.ok(!during.sees(BigInt(rows[0]!.xid)) && during.sees(young));
      await client.query('COMMIT');
      await client.end();
      assert.ok((await reader.look()).sees(BigInt(rows[0]!.xid)));
    });
  });
}
