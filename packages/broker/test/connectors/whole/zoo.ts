/**
 * Every type that PostgreSQL brings, with its extremes: a row that the snapshot reads and the same row when it is inserted give
 * the same bytes, whatever the role has set.
 */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import type { UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import { Consumer, type SourceRig } from './rig.ts';

const DIGITS = '123456789012345678901234567890.1234567890';

/** By type: values as SQL, and the JSON of each. */
const TYPES: [type: string, values: [sql: string, json: string][]][] = [
  [
    'bool',
    [
      ['true', 'true'],
      ['false', 'false'],
    ],
  ],
  [
    'int2',
    [
      ['(-32768)::int2', '-32768'],
      ['32767', '32767'],
    ],
  ],
  [
    'int4',
    [
      ['-2147483648', '-2147483648'],
      ['2147483647', '2147483647'],
    ],
  ],
  [
    'int8',
    [
      ['(-9223372036854775808)', '-9223372036854775808'],
      ['9223372036854775807', '9223372036854775807'],
    ],
  ],
  [
    'oid',
    [
      ['4294967295', '4294967295'],
      ['0', '0'],
    ],
  ],
  [
    'float4',
    [
      ["'NaN'", '"NaN"'],
      ["'-Infinity'", '"-Infinity"'],
      ["'3.4028235e+38'", '3.4028235e+38'],
      ["'-0'", '-0'],
    ],
  ],
  [
    'float8',
    [
      ["'NaN'", '"NaN"'],
      ["'Infinity'", '"Infinity"'],
      ["'5e-324'", '5e-324'],
      ['0.1::float8 + 0.2', '0.30000000000000004'],
    ],
  ],
  [
    'numeric',
    [
      [DIGITS, DIGITS],
      ["'NaN'", '"NaN"'],
      ["'-Infinity'", '"-Infinity"'],
      ['-0.00', '0.00'],
      ["'1e300'", `1${'0'.repeat(300)}`],
    ],
  ],
  [
    'numeric(12,2)',
    [
      ['12.5', '12.50'],
      ['-9999999999.99', '-9999999999.99'],
    ],
  ],
  ['money', [["'12.5'", '"$12.50"']]],
  [
    'text',
    [
      ["''", '""'],
      [
        `E'a"b\\\\c\\n\\r\\t\\x01\\x7f é \\u2028 \\U0001F600'`,
        '"a\\"b\\\\c\\n\\r\\t\\u0001\u007f é \u2028 😀"',
      ],
      ["'NULL'", '"NULL"'],
      ["'null'", '"null"'],
      [`E'\\\\N'`, '"\\\\N"'],
    ],
  ],
  ['varchar(10)', [["'a '", '"a "']]],
  ['char(5)', [["'ab'", '"ab   "']]],
  ['"char"', [["'x'", '"x"']]],
  ['name', [["'a name'", '"a name"']]],
  [
    'bytea',
    [
      ["'\\x'", '"\\\\x"'],
      ["'\\x00ff5c22'", '"\\\\x00ff5c22"'],
    ],
  ],
  [
    'date',
    [
      ["'2026-10-03'", '"2026-10-03"'],
      ["'infinity'", '"infinity"'],
      ["'4713-01-01 BC'", '"4713-01-01 BC"'],
      ["'5874897-12-31'", '"5874897-12-31"'],
    ],
  ],
  [
    'time',
    [
      ["'24:00:00'", '"24:00:00"'],
      ["'01:02:03.456789'", '"01:02:03.456789"'],
    ],
  ],
  ['timetz', [["'01:02:03.4+05:30'", '"01:02:03.4+05:30"']]],
  [
    'timestamp',
    [
      ["'2026-10-03 06:14:39.365472'", '"2026-10-03T06:14:39.365472"'],
      ["'-infinity'", '"-infinity"'],
      ["'0044-03-15 12:00:00 BC'", '"0044-03-15 12:00:00 BC"'],
      ["'294276-12-31 23:59:59.999999'", '"294276-12-31T23:59:59.999999"'],
    ],
  ],
  [
    'timestamptz',
    [
      ["'2026-10-03 08:14:39+02'", '"2026-10-03T06:14:39+00:00"'],
      ["'infinity'", '"infinity"'],
      ["'0044-03-15 12:00:00+00 BC'", '"0044-03-15 12:00:00+00 BC"'],
      ["'10026-01-01 00:00:00.5+00'", '"10026-01-01T00:00:00.5+00:00"'],
    ],
  ],
  [
    'interval',
    [
      ["'1 mon -2 days 03:04:05.006'", '"1 mon -2 days +03:04:05.006"'],
      ["'infinity'", '"infinity"'],
      ["'-178000000 years'", '"-178000000 years"'],
    ],
  ],
  ['uuid', [["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"']]],
  [
    'json',
    [
      [`'{"b": 1.10, "a":  [1e5, -0], "b": 2}'`, '{"b": 1.10, "a":  [1e5, -0], "b": 2}'],
      [`E' \\n"x" '`, '"x"'],
      ["'null'", 'null'],
    ],
  ],
  [
    'jsonb',
    [
      [`'{"b":1.10,"a":null,"n":${DIGITS}}'`, `{"a": null, "b": 1.10, "n": ${DIGITS}}`],
      ["'[]'", '[]'],
      [`'"\\u00e9"'`, '"é"'],
    ],
  ],
  ['jsonpath', [["'$.a[*] ? (@ > 1)'", '"$.\\"a\\"[*]?(@ > 1)"']]],
  ['xml', [['\'<a b="1">é</a>\'', '"<a b=\\"1\\">é</a>"']]],
  [
    'inet',
    [
      ["'10.0.0.1'", '"10.0.0.1"'],
      ["'2001:db8::1/64'", '"2001:db8::1/64"'],
    ],
  ],
  ['cidr', [["'10.0.0.0/8'", '"10.0.0.0/8"']]],
  ['macaddr', [["'08:00:2b:01:02:03'", '"08:00:2b:01:02:03"']]],
  ['macaddr8', [["'08:00:2b:01:02:03:04:05'", '"08:00:2b:01:02:03:04:05"']]],
  ['bit(5)', [["B'10101'", '"10101"']]],
  [
    'varbit',
    [
      ["B''", '""'],
      ["B'1'", '"1"'],
    ],
  ],
  ['point', [["'(1.5,-2)'", '"(1.5,-2)"']]],
  ['line', [["'{1,2,3}'", '"{1,2,3}"']]],
  ['lseg', [["'[(0,0),(1,1)]'", '"[(0,0),(1,1)]"']]],
  ['box', [["'(1,2),(0,0)'", '"(1,2),(0,0)"']]],
  ['path', [["'((0,0),(1,1))'", '"((0,0),(1,1))"']]],
  ['polygon', [["'((0,0),(1,1),(2,0))'", '"((0,0),(1,1),(2,0))"']]],
  ['circle', [["'<(0,0),1e300>'", '"<(0,0),1e+300>"']]],
  ['tsvector', [["'a fat cat'", `"'a' 'cat' 'fat'"`]]],
  ['tsquery', [["'fat & cat'", `"'fat' & 'cat'"`]]],
  ['pg_lsn', [["'16/B374D848'", '"16/B374D848"']]],
  ['xid', [["'4294967295'", '"4294967295"']]],
  ['xid8', [["'18446744073709551615'", '"18446744073709551615"']]],
  ['cid', [["'1'", '"1"']]],
  ['tid', [["'(1,2)'", '"(1,2)"']]],
  ['regclass', [["'pg_class'", '"pg_class"']]],
  ['regtype', [["'int4'", '"integer"']]],
  ['regproc', [["'now'", '"now"']]],
  ['regrole', [["'postgres'", '"postgres"']]],
  ['regnamespace', [["'public'", '"public"']]],
  ['refcursor', [["'c'", '"c"']]],
  ['pg_snapshot', [["'10:20:10,14'", '"10:20:10,14"']]],
  ['int2vector', [["'1 2'", '"1 2"']]],
  ['oidvector', [["'1 2'", '"1 2"']]],
  [
    'int4range',
    [
      ["'[1,5)'", '"[1,5)"'],
      ["'empty'", '"empty"'],
    ],
  ],
  ['numrange', [["'(,1.50]'", '"(,1.50]"']]],
  ['tstzrange', [["'[2026-01-01 00:00+00,)'", '"[\\"2026-01-01 00:00:00+00\\",)"']]],
  ['int4multirange', [["'{[1,2),[3,4)}'", '"{[1,2),[3,4)}"']]],
  ['zoo.mood', [[`'very "happy"'`, '"very \\"happy\\""']]],
  ['zoo.pair', [["ROW(1, 'x,\"y')::zoo.pair", '"(1,\\"x,\\"\\"y\\")"']]],
  ['zoo.amount', [['12.5', '12.50']]],
  ['zoo.nested', [['7', '7.00']]],
  ['zoo.words', [["'{a,NULL}'", '["a",null]']]],
  [
    'int4[]',
    [
      ["'{}'", '[]'],
      ["'{1,NULL,3}'", '[1,null,3]'],
      ["'[5:6][0:1]={{1,2},{3,4}}'", '[[1,2],[3,4]]'],
      ["'{{{{{{1}}}}}}'", '[[[[[[1]]]]]]'],
    ],
  ],
  ['int8[]', [["'{9223372036854775807}'", '[9223372036854775807]']]],
  ['numeric[]', [[`'{${DIGITS},NaN}'`, `[${DIGITS},"NaN"]`]]],
  ['float8[]', [["'{-0,Infinity,1e100}'", '[-0,"Infinity",1e+100]']]],
  ['bool[]', [["'{t,f,NULL}'", '[true,false,null]']]],
  [
    'text[]',
    [
      [
        `ARRAY['', 'NULL', NULL, 'a,b', 'c"d', E'e\\\\f', '{g}', ' h ', E'i\\nj']`,
        '["","NULL",null,"a,b","c\\"d","e\\\\f","{g}"," h ","i\\nj"]',
      ],
    ],
  ],
  ['char(3)[]', [["'{a,b}'", '["a  ","b  "]']]],
  ['bytea[]', [["ARRAY['\\x00'::bytea, '\\x']", '["\\\\x00","\\\\x"]']]],
  ['timestamptz[]', [["'{2026-10-03 06:14:39+00,infinity}'", '["2026-10-03T06:14:39+00:00","infinity"]']]],
  ['date[]', [["'{2026-10-03,0001-01-01 BC}'", '["2026-10-03","0001-01-01 BC"]']]],
  ['json[]', [[`ARRAY['{"a":  1}'::json, 'null', NULL]`, '[{"a":  1},null,null]']]],
  ['jsonb[]', [[`ARRAY['{"a":[1]}'::jsonb]`, '[{"a": [1]}]']]],
  ['uuid[]', [["'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", '["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]']]],
  ['box[]', [["ARRAY['(1,2),(0,0)'::box, '(3,4),(1,1)']", '["(1,2),(0,0)","(3,4),(1,1)"]']]],
  ['int4range[]', [["ARRAY['[1,2)'::int4range]", '["[1,2)"]']]],
  ['zoo.mood[]', [['\'{sad,"so, so"}\'', '["sad","so, so"]']]],
  ['zoo.pair[]', [["ARRAY[ROW(1, 'x')::zoo.pair]", '["(1,x)"]']]],
  ['zoo.amount[]', [["'{1.1,2.2}'", '[1.10,2.20]']]],
  ['zoo.span', [["'[1,2]'", '"[1.00,2.00]"']]],
];

const SETUP = `CREATE SCHEMA zoo;
  CREATE TYPE zoo.mood AS ENUM ('sad', 'so, so', 'very "happy"');
  CREATE TYPE zoo.pair AS (a int, b text);
  CREATE DOMAIN zoo.amount AS numeric(12,2) CHECK (VALUE > 0);
  CREATE DOMAIN zoo.nested AS zoo.amount;
  CREATE DOMAIN zoo.words AS text[];
  CREATE TYPE zoo.span AS RANGE (subtype = zoo.amount)`;

/** Where two long texts part, rather than both of them. */
function assertSame(actual: string | undefined, expected: string): void {
  if (actual === expected) return;
  let at = 0;
  while (actual?.[at] === expected[at]) at++;
  const around = (text: string | undefined) => text?.slice(Math.max(0, at - 60), at + 60);
  assert.equal(around(actual), around(expected));
}

/** Registers its tests; the rig is there when they run. */
export function zoo(rigOf: () => SourceRig, major: 17 | 18): void {
  let rig: SourceRig;
  let database: UpstreamDatabase;
  const depth = Math.max(...TYPES.map(([, values]) => values.length));
  const row = (id: number, nth: number) =>
    `(${id}, ${TYPES.map(([, values]) => (values[nth] === undefined ? 'NULL' : values[nth][0])).join(', ')})`;
  const expected = (id: number, nth: number) =>
    `{"id":${id}${TYPES.map(([, values], i) => `,"c${i}":${values[nth]?.[1] ?? 'null'}`).join('')}}`;

  before(async () => {
    rig = rigOf();
    database = await rig.upstream.database();
    await database.sql(SETUP);
    await database.sql(
      `CREATE TABLE t (id int PRIMARY KEY, ${TYPES.map(([type], i) => `c${i} ${type}`).join(', ')})`,
    );
    for (let nth = 0; nth < depth; nth++) await database.sql(`INSERT INTO t VALUES ${row(nth, nth)}`);
  });

  /** The `after` of each event by its id, without the rest. */
  async function afters(consumer: Consumer, count: number): Promise<Map<number, string>> {
    const found = new Map<number, string>();
    for (const { text } of await consumer.take(count)) {
      const after = /"after":(\{.*\}),"before":/s.exec(text)![1]!;
      found.set(JSON.parse(text).key.id, after);
    }
    return found;
  }

  test('read and inserted', async () => {
    await rig.put('zoo', database, { tables: [{ table: 't', queue: 'zoo' }] });
    await rig.streaming('zoo');
    const consumer = new Consumer(rig, 'zoo');
    const read = await afters(consumer, depth);
    for (let nth = 0; nth < depth; nth++) assertSame(read.get(nth), expected(nth, nth));
    await database.sql(`INSERT INTO t SELECT id + 1000, ${TYPES.map((_, i) => `c${i}`).join(', ')} FROM t`);
    const inserted = await afters(consumer, depth);
    for (let nth = 0; nth < depth; nth++) assertSame(inserted.get(nth + 1000), expected(nth + 1000, nth));
    await database.sql('UPDATE t SET id = id + 1000 WHERE id >= 1000');
    const moved = await consumer.take(2 * depth);
    for (const { text } of moved) {
      const event = JSON.parse(text);
      if (event.op === 'c') {
        assertSame(/"after":(\{.*\}),"before":/s.exec(text)![1], expected(event.key.id, event.key.id - 2000));
      }
    }
  });

  test('whatever the role and the database have set', async () => {
    await database.sql(`CREATE ROLE odd_${major} SUPERUSER LOGIN`);
    for (const setting of [
      "DateStyle = 'German, DMY'",
      "bytea_output = 'escape'",
      'extra_float_digits = -5',
      "IntervalStyle = 'sql_standard'",
      "TimeZone = 'Asia/Tokyo'",
      'standard_conforming_strings = off',
      "search_path = 'nowhere'",
      "client_encoding = 'LATIN1'",
      "default_transaction_isolation = 'serializable'",
      'default_transaction_read_only = on',
      'statement_timeout = 1',
      "xmloption = 'document'",
    ]) {
      await database.sql(`ALTER ROLE odd_${major} SET ${setting}`);
    }
    await database.sql('DELETE FROM t WHERE id >= 1000');
    await rig.put(
      'odd',
      database,
      { tables: [{ table: 't', queue: 'odd' }], publication: 'queen_zoo', managePublication: false },
      { user: `odd_${major}` },
    );
    await rig.streaming('odd');
    const consumer = new Consumer(rig, 'odd');
    const read = await afters(consumer, depth);
    // Names are printed with the schema when the search path does not lead to them.
    for (let nth = 0; nth < depth; nth++) assertSame(read.get(nth), expected(nth, nth));
    await database.sql(`INSERT INTO t SELECT id + 1000, ${TYPES.map((_, i) => `c${i}`).join(', ')} FROM t`);
    const inserted = await afters(consumer, depth);
    for (let nth = 0; nth < depth; nth++) assertSame(inserted.get(nth + 1000), expected(nth + 1000, nth));
  });
}
