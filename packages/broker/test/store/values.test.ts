import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, suite, test } from 'node:test';
import fc from 'fast-check';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { boolArray, byteaArray, int4Array, int8Array, textArray, uuidArray } from '../../src/store/arrays.ts';
import { type Database, type Param, statement } from '../../src/store/database.ts';
import { InvariantError } from '../../src/store/invariant.ts';

suite('values on the wire', () => {
  let fixture: TestDatabase;
  let db: Database;
  before(async () => {
    fixture = await freshDatabase();
    db = await fixture.open({ poolSize: 2 });
  });
  after(async () => {
    await db.close();
    await fixture.drop();
  });

  let serial = 0;
  /** The value of `expression`, with the description of the columns learnt and then with it remembered. */
  async function twice(expression: string, params: readonly Param[] = []): Promise<unknown> {
    const query = statement(`values_${serial++}`, `SELECT ${expression} AS value`);
    const [first] = await db.query<{ value: unknown }>(query, params);
    const [second] = await db.query<{ value: unknown }>(query, params);
    assert.deepEqual(second, first);
    return first!.value;
  }

  const plain: readonly (readonly [sql: string, value: unknown])[] = [
    ['true', true],
    ['false', false],
    ['(-32768)::int2', -32768],
    ['(-2147483648)::int4', -2147483648],
    ['2147483647', 2147483647],
    ['4294967295::oid', 4294967295],
    ['9007199254740991::int8', Number.MAX_SAFE_INTEGER],
    ['(-9007199254740991)::int8', Number.MIN_SAFE_INTEGER],
    ['4294967296::int8', 4294967296],
    ['(-1)::int8', -1],
    ['(-4294967296)::int8', -4294967296],
    ['0.1::float8', 0.1],
    ["'-Infinity'::float8", Number.NEGATIVE_INFINITY],
    ["'NaN'::float8", Number.NaN],
    ['0.5::float4', 0.5],
    ["''", ''],
    ["'grüße \u{1F40B}'::varchar", 'grüße \u{1F40B}'],
    ["'queen'::name", 'queen'],
    ["'x'::char(3)", 'x  '],
    [`'{"a": [1, 2.50]}'::json`, '{"a": [1, 2.50]}'],
    [`'{"a": 1}'::jsonb`, '{"a": 1}'],
    ["'00112233-4455-6677-8899-AABBCCDDEEFF'::uuid", '00112233-4455-6677-8899-aabbccddeeff'],
    ["'\\x00ff80fe'::bytea", Buffer.from([0, 255, 128, 254])],
    ["''::bytea", Buffer.alloc(0)],
    ['NULL::int8', null],
    ["pg_notify('nobody', '')", null],
    ["'1970-01-01 00:00:00+00'::timestamptz", 0],
    ["'1969-12-31 23:59:59.999999+00'::timestamptz", -1],
    ["'1900-02-28 12:00:00.000001+00'::timestamptz", -2203934399999999],
    ["'2026-11-30 08:00:00.123456+00'::timestamptz", 1796025600123456],
    ['ARRAY[1, NULL, -3]::int8[]', [1, null, -3]],
    ['ARRAY[]::int8[]', []],
    ['ARRAY[1, NULL]::int4[]', [1, null]],
    ['ARRAY[7]::int2[]', [7]],
    ["ARRAY['a', NULL, '']", ['a', null, '']],
    ["ARRAY['a']::varchar[]", ['a']],
    ["ARRAY['\\x00'::bytea, NULL, '']", [Buffer.from([0]), null, Buffer.alloc(0)]],
    ['ARRAY[true, NULL, false]', [true, null, false]],
    ['ARRAY[1.5]::float8[]', [1.5]],
    ["ARRAY['00112233-4455-6677-8899-aabbccddeeff']::uuid[]", ['00112233-4455-6677-8899-aabbccddeeff']],
    ["ARRAY['1970-01-01 00:00:01+00'::timestamptz]", [1_000_000]],
    ['array_fill(5, ARRAY[2], ARRAY[-3])', [5, 5]],
  ];
  for (const [sql, value] of plain) {
    test(sql, async () => {
      assert.deepEqual(await twice(sql), value);
    });
  }

  const refusedValues: readonly (readonly [sql: string, code: string])[] = [
    ['9007199254740992::int8', 'int8_not_exact'],
    ['(-9007199254740992)::int8', 'int8_not_exact'],
    ['9223372036854775807', 'int8_not_exact'],
    ['ARRAY[1, 9007199254740993]::int8[]', 'int8_not_exact'],
    ["'infinity'::timestamptz", 'timestamptz_not_exact'],
    ["'-infinity'::timestamptz", 'timestamptz_not_exact'],
    ["'2300-01-01'::timestamptz", 'timestamptz_not_exact'],
    ['1::numeric', 'unknown_type'],
    ['now()::timestamp', 'unknown_type'],
    ['ARRAY[1.5]', 'unknown_type'],
    ['ARRAY[[1, 2], [3, 4]]', 'array_dimensions'],
  ];
  for (const [sql, code] of refusedValues) {
    test(`${sql} is refused, and the connection goes on`, async () => {
      await assert.rejects(
        db.query(statement(`values_${serial++}`, `SELECT ${sql} AS value FROM generate_series(1, 3)`)),
        (error) => error instanceof InvariantError && error.code === code,
      );
      assert.equal(await twice('1'), 1);
    });
  }

  test('an unknown type is named by its OID and column', async () => {
    await assert.rejects(db.query({ name: '', text: 'SELECT 1::numeric AS price' }), /oid=1700 column=price/);
  });

  const PARAMS: readonly (readonly [cast: string, param: Param, value: unknown])[] = [
    ['bigint', Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
    ['bigint', -5n, -5],
    ['boolean', true, true],
    ['boolean', false, false],
    ['float8', 1e-7, 1e-7],
    ['text', 'a\u{1F40B}"\\\'', 'a\u{1F40B}"\\\''],
    ['text', null, null],
    ['bytea', Buffer.alloc(0), Buffer.alloc(0)],
    ['bigint[]', int8Array([]), []],
    ['integer[]', int4Array([-2147483648, 0, 2147483647]), [-2147483648, 0, 2147483647]],
    ['boolean[]', boolArray([true, false]), [true, false]],
    ['text[]', textArray([]), []],
    ['bytea[]', byteaArray([]), []],
  ];
  for (const [cast, param, value] of PARAMS) {
    test(`a parameter of type ${cast}: ${String(value)}`, async () => {
      assert.deepEqual(await twice(`$1::${cast}`, [param]), value);
    });
  }

  test('arrays of any content come back as they went', async () => {
    const query = statement(
      'values_arrays',
      `SELECT $1::bigint[] AS int8s, $2::int[] AS int4s, $3::boolean[] AS bools, $4::text[] AS texts,
              $5::uuid[] AS uuids, $6::bytea[] AS byteas`,
    );
    const text = fc.string({ unit: 'grapheme' }).map((value) => value.replaceAll('\0', ''));
    const content = fc.record(
      {
        int8s: fc.array(fc.maxSafeInteger()),
        int4s: fc.array(fc.integer()),
        bools: fc.array(fc.boolean()),
        texts: fc.array(fc.option(text)),
        uuids: fc.array(fc.uuid()),
        byteas: fc.array(fc.option(fc.uint8Array().map((bytes) => Buffer.from(bytes)))),
      },
      { noNullPrototype: true },
    );
    await fc.assert(
      fc.asyncProperty(content, async (given) => {
        const params = [
          int8Array(given.int8s),
          int4Array(given.int4s),
          boolArray(given.bools),
          textArray(given.texts),
          uuidArray(given.uuids),
          byteaArray(given.byteas),
        ];
        assert.deepEqual((await db.query(query, params))[0], given);
      }),
      { numRuns: 60 },
    );
  });

  test('numbers that the element type cannot hold are refused before they are sent', () => {
    assert.throws(() => int8Array([2 ** 53]), InvariantError);
    assert.throws(() => int8Array([0.5]), InvariantError);
    assert.throws(() => int4Array([2147483648]), InvariantError);
    assert.throws(() => uuidArray(['00112233445566778899aabbccddeeff']), InvariantError);
  });

  test('1 MiB of random bytes, alone and in an array, there and back', async () => {
    const bytes = randomBytes(1 << 20);
    const query = statement(
      'values_mib',
      "SELECT $1::bytea AS one, $2::bytea[] AS several, encode(sha256($1::bytea), 'hex') AS digest",
    );
    const [row] = await db.query<{ one: Buffer; several: Buffer[]; digest: string }>(query, [
      bytes,
      byteaArray([bytes, Buffer.from([1]), bytes]),
    ]);
    assert.equal(row!.digest, createHash('sha256').update(bytes).digest('hex'));
    assert.ok(row!.one.equals(bytes));
    assert.ok(row!.several[0]!.equals(bytes) && row!.several[2]!.equals(bytes));
  });

  test('values kept from early rows are not overwritten by later ones', async () => {
    // Sizes around the reads of the socket (64 KiB), so that rows straddle the parser's buffers.
    const query = statement(
      'values_kept',
      `SELECT n, convert_to(repeat(chr(65 + n % 26), 1 + (n * 7919) % 70000), 'UTF8') AS bytes,
              repeat(chr(65 + n % 26), n) AS text
         FROM generate_series(1, 300) AS n`,
    );
    const rows = await db.query<{ n: number; bytes: Buffer; text: string }>(query);
    assert.equal(rows.length, 300);
    for (const { n, bytes, text } of rows) {
      const letter = String.fromCharCode(65 + (n % 26));
      assert.ok(bytes.equals(Buffer.alloc(1 + ((n * 7919) % 70_000), letter)), `row ${n}`);
      assert.equal(text, letter.repeat(n));
    }
  });

  test('microseconds are exact over the whole range', async () => {
    const query = statement(
      'values_micros',
      "SELECT timestamptz 'epoch' + ($1::bigint / 1000000) * interval '1 second' + ($1::bigint % 1000000) * interval '1 microsecond' AS value",
    );
    const micros = fc.integer({ min: -6_200_000_000_000_000, max: 8_990_000_000_000_000 });
    await fc.assert(
      fc.asyncProperty(micros, async (value) => {
        assert.deepEqual(await db.query(query, [value]), [{ value }]);
      }),
      { numRuns: 50 },
    );
  });

  test('rows come in order, several columns, nulls among them', async () => {
    const rows = await db.query({
      name: '',
      text: "SELECT n, nullif(n, 2) AS hole, 'x' || n AS word FROM generate_series(1, 3) AS n",
    });
    assert.deepEqual(rows, [
      { n: 1, hole: 1, word: 'x1' },
      { n: 2, hole: null, word: 'x2' },
      { n: 3, hole: 3, word: 'x3' },
    ]);
  });
});
