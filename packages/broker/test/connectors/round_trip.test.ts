/** A table, its events in a queue, and the copy that a sink keeps of it: after every settling the two are alike, to the text. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { seeded } from '../../../../test/faults/seed.ts';
import type { Cleanup } from '../../../../test/kit/cleanup.ts';
import { SinkRig, sharedServer } from './sink/rig.ts';

const server = sharedServer({ before, after });

const TYPES = `
  CREATE TYPE src.mood AS ENUM ('so so', 'fine'); CREATE TYPE src.place AS (city text, zip int);
  CREATE DOMAIN src.positive AS numeric CHECK (VALUE > 0);
  CREATE TABLE src.t (
    id bigint PRIMARY KEY, "Odd ""Name" text, b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric, nn numeric(30,10),
    c char(5), v varchar(20), by bytea, d date, ti time, tz timetz, ts timestamp, tstz timestamptz, iv interval, u uuid,
    ip inet, net cidr, mac macaddr, bi bit(3), vb varbit, j json, jb jsonb, x xml, p point, m src.mood, pl src.place, po src.positive,
    ia int[], ta text[], ja jsonb[], na numeric[], ba bytea[], pla src.place[], ma int[][], r int4range, mr int4multirange, tsv tsvector,
    big text, g int GENERATED ALWAYS AS (i4 / 2) STORED, k text DEFAULT 'default')`;

const ROWS = [
  `(1)`,
  `(2, 'a"b\\c', true, 32767, 2147483647, 9223372036854775807, 'NaN', 'Infinity', 'NaN', 12345678901234567890.0123456789,
    'ab', 'ü😀', '\\x00ff', '0044-03-15 BC', '24:00', '12:34:56.789+05:30', 'infinity', '-infinity', '1 mon -2 days 03:04:05.678',
    'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '101', '10101', '{"a" :1,"a": 1.0,  "e":"\\u00e9"}',
    '{"z":1,"a":[1e400, null]}', '<a>b</a>', '(1.5,-2)', 'so so', '(Turin,10100)', 0.5, '{1,NULL,3}', '{"a,b","NULL",NULL,""}',
    ARRAY['{"a":1}','[null]']::jsonb[], '{1.50,NaN}', '{"\\\\x00","\\\\x"}', ARRAY[('a',1),(NULL,2)]::src.place[], '{{1,2},{3,4}}', '[1,5)', '{[1,3),[5,8)}', 'a fat cat',
    'big', DEFAULT, NULL)`,
  `(3, '', false, -32768, -2147483648, -9223372036854775808, '-0', '-0', 0.1000, -0.0000000001, '', '', '', '4713-01-01 BC', '00:00', '00:00-08',
    '0001-01-01', '9999-12-31 23:59:59.999999+00', '-178000000 years', '00000000-0000-0000-0000-000000000000', '::1', '::/0', '00:00:00:00:00:00',
    '000', '', '"text"', '"\\"q\\" \\\\ \\n"', NULL, '(0,0)', 'fine', '("a ""b"" \\\\ c",)', 1e10, '{}', '{}', '{}', '{}', '{}', '{}', '{}', 'empty', '{}', '',
    NULL, DEFAULT, DEFAULT)`,
];

const DIFFERENCE = `SELECT original, copied FROM
  (SELECT id, original::text FROM src.t original) a FULL JOIN (SELECT id, copied::text FROM dst.t copied) b
    ON a.id = b.id AND original = copied
  WHERE original IS NULL OR copied IS NULL`;

async function alike(rig: SinkRig): Promise<void> {
  const deadline = performance.now() + 30_000;
  for (;;) {
    const rows = await rig.sql(DIFFERENCE);
    if (rows.length === 0) return;
    if (performance.now() > deadline) {
      const texts = rows.map(({ original, copied }) => `${original ?? copied}`.slice(0, 1000));
      assert.fail(`${rows.length} rows differ: ${await rig.trouble()}\n${texts.join('\n')}`);
    }
    await sleep(20);
  }
}

async function scene(t: Cleanup, table: string): Promise<SinkRig> {
  const rig = await SinkRig.open(t, server());
  await rig.sql(
    `CREATE SCHEMA src; CREATE SCHEMA dst; ${table}; CREATE TABLE dst.t (LIKE src.t INCLUDING ALL)`,
  );
  return rig;
}

suite('a table and its copy', () => {
  test('every type at its extremes, from the snapshot and from the stream', async (t) => {
    const rig = await scene(t, TYPES);
    for (const row of ROWS) await rig.sql(`INSERT INTO src.t VALUES ${row}`);
    const source = rig.startSource({ tables: [{ table: 'src.t', queue: 'q' }] });
    rig.start({ table: 'dst.t', mode: 'cdc' });
    await alike(rig);
    for (const row of ROWS) await rig.sql(`INSERT INTO src.t VALUES ${row.replace(/^\((\d)/, '(10$1')}`);
    await alike(rig);
    await rig.sql("UPDATE src.t SET k = 'updated'");
    await rig.sql('DELETE FROM src.t WHERE id IN (1, 102)');
    await alike(rig);
    assert.deepEqual(await rig.letters(), []);
    assert.equal(source.fault, null);
  });

  for (const partitionBy of ['key', 'single'] as const) {
    test(`a random workload with large values and keys that move, partitions by ${partitionBy}`, async (t) => {
      const chance = seeded(t);
      const rig = await scene(
        t,
        'CREATE TABLE src.t (id int, part text, v int NOT NULL, big text NOT NULL, PRIMARY KEY (id, part)); ALTER TABLE src.t ALTER big SET STORAGE EXTERNAL',
      );
      const text = (n: number) => `repeat(md5('${n}'), ${chance.pick([1, 100, 400])})`;
      const id = () => chance.integer(1, 30);
      const part = () => chance.pick(['a|b', 'c\\d']);
      const statement = (n: number): string => {
        const at = `id = ${id()} AND part = '${part()}'`;
        if (chance.chance(0.3)) {
          return `INSERT INTO src.t VALUES (${id()}, '${part()}', ${n}, ${text(n)}) ON CONFLICT DO NOTHING`;
        }
        if (chance.chance(0.5)) return `UPDATE src.t SET v = ${n} WHERE ${at}`;
        if (chance.chance(0.3)) return `UPDATE src.t SET big = ${text(n)} WHERE ${at}`;
        if (chance.chance(0.4)) return `DELETE FROM src.t WHERE ${at}`;
        const free = `NOT EXISTS (SELECT FROM src.t o WHERE o.id = ${n % 30} AND o.part = 'a|b')`;
        return `UPDATE src.t SET id = ${n % 30}, part = 'a|b' WHERE ${at} AND ${free}`;
      };
      for (let n = 0; n < 40; n++) await rig.sql(statement(n));
      const emit = partitionBy === 'single' ? { onTruncate: 'emit' } : {};
      rig.startSource({
        tables: [{ table: 'src.t', queue: 'q', partitionBy }],
        snapshotChunkRows: 100,
        ...emit,
      });
      const sink = rig.start({ table: 'dst.t', mode: 'cdc', workers: 2, batch: 50 });
      for (let round = 0; round < 4; round++) {
        for (let n = 0; n < 25; n++) {
          const many = Array.from({ length: chance.integer(1, 4) }, (_, i) =>
            statement(1000 * round + 10 * n + i),
          );
          if (partitionBy === 'single' && chance.chance(0.05)) many.push('TRUNCATE src.t');
          await rig.sql(many.join('; '));
        }
        await alike(rig);
      }
      assert.deepEqual(await rig.letters(), []);
      assert.equal(sink.fault, null);
    });
  }
});
