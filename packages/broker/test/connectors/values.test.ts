/** Values as the server prints them, and the JSON that they become. The server itself is the reference where it can be. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import fc from 'fast-check';
import pg from 'pg';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import {
  type ColumnType,
  EncodingFault,
  type ValueForm,
  valueForm,
  writeValue,
} from '../../src/connectors/postgres/source/values.ts';
import { JsonWriter } from '../../src/log/json/writer.ts';

function json(form: ValueForm, text: string | Buffer): string {
  const bytes = Buffer.from(text);
  const writer = new JsonWriter(16);
  // Somewhere in the middle of what was received.
  const received = Buffer.concat([Buffer.from('{"'), bytes, Buffer.from('"}]')]);
  writeValue(writer, form, received, 2, 2 + bytes.length);
  return writer.bytes().toString();
}

suite('printed by a server', () => {
  let database: TestDatabase;
  let client: pg.Client;

  before(async () => {
    database = await freshDatabase();
    const { hosts, user, database: name } = database.options;
    client = new pg.Client({
      host: hosts[0]!.host,
      port: hosts[0]!.port,
      user,
      database: name,
      // Text of the output functions, unparsed.
      types: { getTypeParser: () => (text: unknown) => text },
    });
    await client.connect();
    await client.query(`SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres';
      CREATE TYPE mood AS ENUM ('sad', 'so, so', 'very "happy"');
      CREATE TYPE pair AS (a int, b text);
      CREATE DOMAIN amount AS numeric(40, 2);
      CREATE DOMAIN amounts AS amount[];
      CREATE DOMAIN words AS text[]`);
  });
  after(async () => {
    await client.end();
    await database.drop();
  });

  const ROOT = `WITH RECURSIVE base (from_, oid, depth) AS (
                  SELECT t.oid, t.oid, 0 FROM pg_type t
                  UNION ALL SELECT b.from_, t.typbasetype, depth + 1 FROM base b JOIN pg_type t ON t.oid = b.oid
                   WHERE t.typtype = 'd')
                SELECT DISTINCT ON (from_) from_, oid FROM base ORDER BY from_, depth DESC`;

  async function typeOf(oid: number): Promise<ColumnType> {
    const { rows } = await client.query(
      `WITH root AS (${ROOT})
       SELECT t.oid, t.typtype, t.typcategory, t.typelem, e.typdelim, r2.oid AS element
         FROM root r JOIN pg_type t ON t.oid = r.oid
         LEFT JOIN pg_type e ON e.oid = t.typelem LEFT JOIN root r2 ON r2.from_ = t.typelem
        WHERE r.from_ = $1`,
      [oid],
    );
    const [row] = rows as [Record<string, string>];
    const array = row.typcategory === 'A';
    return {
      oid: Number(row.oid),
      kind: row.typtype!,
      element: array ? await typeOf(Number(row.element)) : null,
      delimiter: row.typdelim ?? ',',
    };
  }

  async function printed(expression: string): Promise<{ text: string; form: ValueForm }> {
    const { rows, fields } = await client.query(`SELECT ${expression} AS v`);
    return { text: rows[0].v, form: valueForm(await typeOf(fields[0]!.dataTypeID)) };
  }

  const CASES: [expression: string, json: string][] = [
    ['true', 'true'],
    ['false', 'false'],
    ['(-32768)::int2', '-32768'],
    ['9223372036854775807', '9223372036854775807'],
    ['4294967295::oid', '4294967295'],
    ["'0.1'::float4", '0.1'],
    ["'-0'::float8", '-0'],
    ["'1e+100'::float8", '1e+100'],
    ["'NaN'::float8", '"NaN"'],
    ["'-Infinity'::float8", '"-Infinity"'],
    ["'123456789012345678901234567890.10'::numeric", '123456789012345678901234567890.10'],
    ["'NaN'::numeric", '"NaN"'],
    ["'Infinity'::numeric", '"Infinity"'],
    [`'{"b": 1.10, "a":  [1e5, "\\u00e9"], "b": 2}'::json`, '{"b": 1.10, "a":  [1e5, "\\u00e9"], "b": 2}'],
    [`'  null '::json`, 'null'],
    [`'{"b":1.10,"a":null}'::jsonb`, '{"a": null, "b": 1.10}'],
    ["'2026-10-03 06:14:39.365472+00'::timestamptz", '"2026-10-03T06:14:39.365472+00:00"'],
    ["'2026-10-03 06:14:39+02'::timestamptz", '"2026-10-03T04:14:39+00:00"'],
    ["'2026-10-03 06:14:39.5'::timestamp", '"2026-10-03T06:14:39.5"'],
    ["'10026-01-01'::timestamp", '"10026-01-01T00:00:00"'],
    ["'infinity'::timestamptz", '"infinity"'],
    ["'-infinity'::timestamp", '"-infinity"'],
    ["'0044-03-15 12:00:00+00 BC'::timestamptz", '"0044-03-15 12:00:00+00 BC"'],
    ["'4713-01-01 BC'::date", '"4713-01-01 BC"'],
    ["'24:00:00'::time", '"24:00:00"'],
    ["'1 mon -2 days'::interval", '"1 mon -2 days"'],
    [`'\\x00ff'::bytea`, '"\\\\x00ff"'],
    [`'\\x'::bytea`, '"\\\\x"'],
    [`E'a "b" \\\\ c\\n\\t\\x01é€😀'::text`, '"a \\"b\\" \\\\ c\\n\\t\\u0001é€😀"'],
    ["''::text", '""'],
    ["'ab'::char(4)", '"ab  "'],
    ["'NULL'::text", '"NULL"'],
    [`'very "happy"'::mood`, '"very \\"happy\\""'],
    [`ROW(1, 'x,y')::pair`, '"(1,\\"x,y\\")"'],
    ["'[1,5)'::int4range", '"[1,5)"'],
    ["'1 2 3'::int2vector", '"1 2 3"'],
    ["'(1,2),(0,0)'::box", '"(1,2),(0,0)"'],
    ["'10.0.0.1/32'::inet", '"10.0.0.1"'],
    ["'12.50'::amount", '12.50'],
    ["'{}'::int[]", '[]'],
    ["'{1,NULL,3}'::int[]", '[1,null,3]'],
    ["'[5:6][0:1]={{1,2},{3,4}}'::bigint[]", '[[1,2],[3,4]]'],
    [
      "ARRAY['', 'NULL', NULL, 'a,b', 'c\"d', 'e\\f', '{g}', ' h ']",
      '["","NULL",null,"a,b","c\\"d","e\\\\f","{g}"," h "]',
    ],
    ['ARRAY[true, false, NULL]', '[true,false,null]'],
    ["ARRAY['1.10'::numeric, 'NaN']", '[1.10,"NaN"]'],
    [`ARRAY['{"a": [1]}'::jsonb, 'null', NULL]`, '[{"a": [1]},null,null]'],
    [`ARRAY['\\x00'::bytea, '\\x']`, '["\\\\x00","\\\\x"]'],
    ["ARRAY['2026-10-03 06:14:39+00'::timestamptz, 'infinity']", '["2026-10-03T06:14:39+00:00","infinity"]'],
    ["ARRAY['(1,2),(0,0)'::box, '(3,4),(1,1)'::box]", '["(1,2),(0,0)","(3,4),(1,1)"]'],
    ["ARRAY['sad', 'so, so']::mood[]", '["sad","so, so"]'],
    ["ARRAY[ROW(1, 'x,\"y')::pair]", '["(1,\\"x,\\"\\"y\\")"]'],
    ["'{1.10,2}'::amounts", '[1.10,2.00]'],
    ["'{1.1,2.2}'::amount[]", '[1.10,2.20]'],
    ["'{a,NULL}'::words", '["a",null]'],
  ];

  test('every kind of type', async () => {
    for (const [expression, expected] of CASES) {
      const { text, form } = await printed(expression);
      assert.equal(json(form, text), expected, `${expression}, printed as ${text}`);
      JSON.parse(expected);
    }
  });

  test('arrays of any texts come back as they went in', async () => {
    const texts = fc.option(
      fc.string({ unit: 'binary' }).filter((text) => !text.includes('\0') && text.isWellFormed()),
    );
    // All rows of a dimension are as long.
    const arrays: fc.Arbitrary<unknown[]> = fc.tuple(fc.nat(3), fc.nat(3)).chain(
      ([rows, columns]): fc.Arbitrary<unknown[]> =>
        rows === 0 || columns === 0
          ? fc.array(texts)
          : fc.array(fc.array(texts, { minLength: columns, maxLength: columns }), {
              minLength: rows,
              maxLength: rows,
            }),
    );
    await fc.assert(
      fc.asyncProperty(arrays, async (array) => {
        const { rows } = await client.query('SELECT $1::text[] AS v', [array]);
        const form = valueForm({
          oid: 1009,
          kind: 'b',
          element: { oid: 25, kind: 'b', element: null, delimiter: ',' },
          delimiter: ',',
        });
        assert.deepEqual(JSON.parse(json(form, rows[0].v)), array);
      }),
      { numRuns: 300 },
    );
  });

  test('doubles and decimals keep their value', async () => {
    await fc.assert(
      fc.asyncProperty(fc.double(), async (value) => {
        const { rows } = await client.query('SELECT $1::float8 AS v', [
          Object.is(value, -0) ? '-0' : String(value),
        ]);
        const back = JSON.parse(json('number', rows[0].v));
        assert.ok(
          Object.is(typeof back === 'string' ? Number(back) : back, value),
          `${rows[0].v} of ${value}`,
        );
      }),
      { numRuns: 300 },
    );
  });
});

test('strings escape what JSON.stringify escapes', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      fc.pre(text.isWellFormed());
      assert.equal(json('string', text), JSON.stringify(text).replaceAll('\\u007f', '\u007f'));
    }),
  );
});

test('an array text that is none is a string as a whole', () => {
  const form: ValueForm = { element: 'number', delimiter: 0x2c };
  const broken = [
    '',
    '{',
    '{1',
    '{1,',
    '{1,}',
    '{,1}',
    '{1}}',
    '{1}x',
    '{"1}',
    '{{1},2',
    '1',
    '[1:2={1}',
    '{1"2"}',
    '{{{{{{{1}}}}}}}',
  ];
  for (const text of broken) assert.equal(json(form, text), JSON.stringify(text), text);
  // Unless every value of it can be read.
  assert.equal(json(form, '{1,abc}'), '[1,"abc"]');
});

test('whatever the bytes are, the outcome is JSON or an encoding fault', () => {
  const forms: ValueForm[] = [
    'boolean',
    'number',
    'json',
    'timestamp',
    'timestamptz',
    'string',
    { element: 'json', delimiter: 0x2c },
    { element: 'string', delimiter: 0x3b },
  ];
  const pieces = fc.array(
    fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      '"',
      '\\',
      ',',
      ';',
      '=',
      ':',
      '1',
      '-',
      '.',
      'e',
      ' ',
      'null',
      'é',
      '+00',
      '\u0001',
    ),
  );
  fc.assert(
    fc.property(fc.constantFrom(...forms), pieces, (form, list) => {
      JSON.parse(json(form, list.join('')));
    }),
    { numRuns: 3_000 },
  );
  fc.assert(
    fc.property(fc.constantFrom(...forms), fc.uint8Array(), (form, bytes) => {
      try {
        JSON.parse(json(form, Buffer.from(bytes)));
      } catch (error) {
        assert.ok(error instanceof EncodingFault);
      }
    }),
    { numRuns: 1_000 },
  );
});
