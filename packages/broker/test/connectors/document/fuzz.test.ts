/** Documents that chance wrote: every one is settled, or refused by a path that is in it; nothing else is ever thrown. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  kindOfDocument,
  parseStored,
  parseWritten,
} from '../../../src/connectors/postgres/document/parse.ts';
import { DocumentFault } from '../../../src/connectors/postgres/document/reading.ts';
import { renderShown, renderStored } from '../../../src/connectors/postgres/document/render.ts';
import { renderUnreadable } from '../../../src/connectors/postgres/manager/unreadable.ts';

type Json = Record<string, unknown>;

const identifier = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_$]{0,20}$/);
const table = fc.tuple(identifier, identifier).map(([schema, name]) => `${schema}.${name}`);
const queue = fc.string({ minLength: 1, maxLength: 40, unit: 'grapheme-ascii' });
const columns = fc.uniqueArray(identifier, { minLength: 1, maxLength: 4 });
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });
/** Without its undefined members. */
const record = <T extends Record<string, fc.Arbitrary<unknown>>>(members: T): fc.Arbitrary<Json> =>
  fc.record(members).map((made) => JSON.parse(JSON.stringify(made)) as Json);

const connection = record({
  host: fc.constantFrom('db', '::1', '[fe80::1]', '10.0.0.1'),
  port: maybe(fc.integer({ min: 1, max: 65_535 })),
  database: queue,
  user: queue,
  password: maybe(fc.string({ maxLength: 20, unit: 'grapheme-ascii' })),
  sslMode: maybe(fc.constantFrom('disable', 'prefer', 'require', 'verify-full')),
  connectTimeoutMs: maybe(fc.integer({ min: 1000, max: 120_000 })),
});
const source = record({
  tables: fc.uniqueArray(
    record({ table, queue, partitionBy: maybe(fc.oneof(fc.constantFrom('key', 'single'), columns)) }),
    { minLength: 1, maxLength: 5, selector: (each) => each.table },
  ),
  managePublication: maybe(fc.boolean()),
  snapshot: maybe(fc.constantFrom('initial', 'never')),
  lingerMs: maybe(fc.integer({ min: 0, max: 5000 })),
});
const sink = fc
  .record({
    queue,
    table,
    mode: fc.constantFrom('append', 'upsert', 'cdc', 'sql'),
    key: columns,
    batch: maybe(fc.integer({ min: 1, max: 10_000 })),
  })
  .map(({ queue: from, table: to, mode, key, batch }): Json => {
    const own =
      mode === 'sql'
        ? { statement: 'SELECT $1', params: ['$.a'] }
        : mode === 'append'
          ? { metadata: { offset: key[0]! } }
          : { key };
    return JSON.parse(JSON.stringify({ queue: from, table: to, mode, batch, ...own })) as Json;
  });
const document: fc.Arbitrary<Json> = fc.oneof(
  fc.record({ connection, source }).map((blocks) => ({ kind: 'source', ...blocks })),
  fc.record({ connection, sink }).map((blocks) => ({ kind: 'sink', ...blocks })),
);

test('what is settled is the same when it is read again, shown or stored', () => {
  fc.assert(
    fc.property(document, (written) => {
      const { document: settled } = parseWritten(written, 'c');
      const at = '2026-01-01T00:00:00.000000Z';
      assert.deepEqual(parseWritten(renderShown({ ...settled, updatedAt: at }), 'c').document, settled);
      const stored = { ...settled, updatedAt: at };
      assert.deepEqual(parseStored(JSON.parse(JSON.stringify(renderStored(stored))), 'c'), stored);
    }),
    { numRuns: 300 },
  );
});

/** Every path of a document, as lists of keys. */
function paths(value: unknown, at: (string | number)[] = []): (string | number)[][] {
  if (typeof value !== 'object' || value === null) return [at];
  const inner = Array.isArray(value)
    ? value.flatMap((each, i) => paths(each, [...at, i]))
    : Object.entries(value).flatMap(([key, each]) => paths(each, [...at, key]));
  return [at, ...inner];
}

function replaced(value: unknown, at: readonly (string | number)[], by: unknown): unknown {
  const [head, ...rest] = at;
  if (head === undefined) return by;
  if (Array.isArray(value)) return value.map((each, i) => (i === head ? replaced(each, rest, by) : each));
  return { ...(value as Json), [head]: replaced((value as Json)[head], rest, by) };
}

test('one value replaced by another: settled, or a fault that begins with its path', () => {
  fc.assert(
    fc.property(document, fc.nat(), fc.jsonValue({ maxDepth: 2 }), (written, pick, by) => {
      const all = paths(written);
      const broken = replaced(written, all[pick % all.length]!, by);
      try {
        parseWritten(broken, 'c');
      } catch (error) {
        assert.ok(error instanceof DocumentFault, String(error));
        assert.ok(
          error.message.startsWith(`${error.field}: `) && !error.message.includes('undefined'),
          error.message,
        );
        assert.match(error.field, /^(document|kind|enabled|name|connection|source|sink|[A-Za-z_$]|\[")/);
      }
    }),
    { numRuns: 1_000 },
  );
});

test('any JSON at all; and what is shown of it has no password', () => {
  const secret = 'hunter2';
  const any = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.jsonValue({ maxDepth: 1 }),
      tie('object'),
      fc.array(tie('value'), { maxLength: 3 }),
    ),
    object: fc
      .array(
        fc.tuple(
          fc.oneof(
            fc.constantFrom('kind', 'connection', 'source', 'sink', 'tables', '__proto__', 'constructor'),
            fc.string(),
          ),
          tie('value'),
        ),
        { maxLength: 4 },
      )
      .map((entries) => ({
        ...Object.fromEntries(entries),
        password: secret,
        passwordSealed: secret,
        nested: { Password: secret },
      })),
  }));
  fc.assert(
    fc.property(any.value, (json) => {
      for (const parse of [parseWritten, parseStored]) {
        try {
          parse(json, 'c');
        } catch (error) {
          assert.ok(error instanceof DocumentFault, String(error));
          assert.ok(!error.message.includes(secret));
        }
      }
      kindOfDocument(json);
      assert.ok(!JSON.stringify(renderUnreadable('c', json)).includes(secret));
    }),
    { numRuns: 1_000 },
  );
});
