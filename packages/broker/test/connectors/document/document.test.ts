/** Documents: every field with its bounds, where each fault is told, and that what is read can be written back. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { parseStored, parseWritten } from '../../../src/connectors/postgres/document/parse.ts';
import { DocumentFault } from '../../../src/connectors/postgres/document/reading.ts';
import { renderShown, renderStored } from '../../../src/connectors/postgres/document/render.ts';

type Json = Record<string, unknown>;

const CONNECTION = { host: 'db', database: 'd', user: 'u' };
const TABLE = { table: 'public.orders', queue: 'orders' };
const SOURCE: Json = { kind: 'source', connection: CONNECTION, source: { tables: [TABLE] } };
const sink = (over: Json = {}): Json => ({
  kind: 'sink',
  connection: CONNECTION,
  sink: { queue: 'orders', table: 'public.copy', mode: 'append', ...over },
});
const source = (over: Json = {}): Json => ({ ...SOURCE, source: { tables: [TABLE], ...over } });
const connected = (over: Json = {}): Json => ({ ...SOURCE, connection: { ...CONNECTION, ...over } });
const table = (over: Json = {}): Json => source({ tables: [{ ...TABLE, ...over }] });

/** The path that the fault begins with, and the rest; null: the document is good. */
function faultOf(document: unknown, name = 'c'): { field: string; sentence: string } | null {
  try {
    parseWritten(document, name);
    return null;
  } catch (error) {
    if (!(error instanceof DocumentFault)) throw error;
    assert.ok(error.message.startsWith(`${error.field}: `), error.message);
    return { field: error.field, sentence: error.sentence };
  }
}

function assertFault(document: unknown, field: string, sentence?: RegExp, name?: string): void {
  const fault = faultOf(document, name);
  assert.equal(fault?.field, field, `${JSON.stringify(fault)} of ${JSON.stringify(document)?.slice(0, 300)}`);
  if (sentence !== undefined) assert.match(fault!.sentence, sentence);
}

function assertGood(document: unknown): void {
  assert.equal(faultOf(document), null, JSON.stringify(document)?.slice(0, 300));
}

const bytes = (n: number, of = 'x') => of.repeat(n);

const RANGES: readonly [field: string, low: number, high: number, build: (over: Json) => Json][] = [
  ['connection.port', 1, 65_535, connected],
  ['connection.connectTimeoutMs', 1000, 120_000, connected],
  ['source.snapshotChunkRows', 100, 100_000, source],
  ['source.maxBundleMessages', 1, 50_000, source],
  ['source.maxBundleBytes', 65_536, 67_108_864, source],
  ['source.lingerMs', 0, 5000, source],
  ['source.heartbeatSeconds', 1, 3600, source],
  ['sink.batch', 1, 10_000, sink],
  ['sink.workers', 1, 32, sink],
  ['sink.leaseSeconds', 5, 3600, sink],
  ['sink.maxAttempts', 1, 100, sink],
];

test('numbers: at their bounds and one beyond, and nothing that is no integer', () => {
  for (const [field, low, high, build] of RANGES) {
    const name = field.split('.')[1]!;
    const range = new RegExp(`in ${low}\\.\\.=${high}, not `);
    for (const good of [low, low + 1, high - 1, high, null]) assertGood(build({ [name]: good }));
    for (const bad of [low - 1, high + 1, low + 0.5, -1, 1e300]) {
      assertFault(build({ [name]: bad }), field, range);
    }
    for (const bad of [String(low), true, [low], { low }]) assertFault(build({ [name]: bad }), field, range);
  }
});

/** Texts that are good and texts that are not. */
const TEXTS: readonly [field: string, build: (over: Json) => Json, good: string[], bad: string[]][] = [
  [
    'connection.host',
    connected,
    ['h', bytes(253), 'db.example.com', '10.0.0.1', '::1', '[::1]', 'fe80::1', '0x7f.1', 'ü.example', '-'],
    [
      '',
      bytes(254),
      bytes(127, 'ü'),
      '/tmp',
      'a/b',
      'a,b',
      'a@b',
      '@x',
      'a b',
      'a\tb',
      'a\0',
      'a:5432',
    ].concat(['[::1', '::1]', '[a]', '[::1]:1', 'a\u00a0b', '\u0085', '\ud800']),
  ],
  ...(['database', 'user'] as const).map(
    (name) =>
      [
        `connection.${name}`,
        connected,
        ['d', bytes(63), 'Ünï "x" /?@', ' ', "it's"],
        ['', bytes(64), bytes(32, 'ü'), 'a\0b', 'a\nb', '\u007f', '\udc00'],
      ] as [string, typeof connected, string[], string[]],
  ),
  [
    'connection.password',
    connected,
    ['', 'p', bytes(1024), 'a\nb', 'ü@:/?'],
    [bytes(1025), 'a\0b', bytes(513, 'ü')],
  ],
  [
    'connection.sslMode',
    connected,
    ['disable', 'prefer', 'require', 'verify-full'],
    ['allow', 'verify-ca', '', 'Prefer'],
  ],
  ['source.slot', source, ['s', '_', bytes(63), 'a_1'], ['', bytes(64), 'A', 'a-b', '1a', 'a$', 'ü']],
  ['source.publication', source, ['p', bytes(63)], ['', bytes(64), 'P', 'a b', '9']],
  ['source.snapshot', source, ['initial', 'never'], ['', 'always', 'Never']],
  ['source.onTruncate', source, ['skip'], ['', 'drop']],
  ['sink.subscriptionMode', sink, ['all', 'new'], ['', 'latest']],
  [
    'sink.queue',
    sink,
    ['q', bytes(128), 'ünï q', bytes(64, 'ü')],
    ['', bytes(129), bytes(65, 'ü'), 'a\u0001', '\ud800'],
  ],
  ['sink.consumerGroup', sink, ['g', bytes(128)], ['', bytes(129), 'a\u007f']],
  [
    'sink.table',
    sink,
    ['t', 's.t', 'S.T', '_a.b$1', bytes(63)],
    ['', '.', 's.', '.t', 'a.b.c', bytes(64)].concat(['"t"', 'a b', '1a', 'ü', '$a']),
  ],
  ['sink.progressTable', sink, ['s.t', 'queen.sink_progress'], ['t', '', 's.t.u', 'public.copy', 's."t"']],
];

test('texts: what each takes, to the byte', () => {
  for (const [field, build, good, bad] of TEXTS) {
    const name = field.split('.')[1]!;
    for (const text of good) assertGood(build({ [name]: text }));
    for (const text of bad) assertFault(build({ [name]: text }), field);
    for (const wrong of [1, false, [], {}]) {
      assertFault(build({ [name]: wrong }), field, /not (a|an) /);
    }
  }
  for (const name of ['queue', 'table']) assertFault(table({ [name]: '' }), `source.tables[0].${name}`);
  for (const text of ['o', 'Sales.Orders', bytes(63), `s.${bytes(63)}`]) assertGood(table({ table: text }));
  for (const text of ['a.b.c', 'o-o', bytes(64), '"o"', 'public.ü', 'public.a b']) {
    assertFault(table({ table: text }), 'source.tables[0].table', /not supported/);
  }
});

test('booleans are booleans', () => {
  const places: [string, (value: unknown) => Json][] = [
    ['enabled', (enabled) => ({ ...SOURCE, enabled })],
    ['source.managePublication', (managePublication) => source({ managePublication })],
    ['sink.createProgressTable', (createProgressTable) => sink({ createProgressTable })],
  ];
  for (const [field, build] of places) {
    for (const good of [true, false, null]) assertGood(build(good));
    for (const bad of ['true', 1, 0, [], {}]) assertFault(build(bad), field, /true or false/);
  }
});

test('lists: how long they may be, and where an element is wrong', () => {
  const tables = (n: number) =>
    source({ tables: Array.from({ length: n }, (_, i) => ({ table: `t${i}`, queue: 'q' })) });
  assertFault(tables(0), 'source.tables', /1\.\.=256 elements, not 0/);
  for (const n of [1, 2, 255, 256]) assertGood(tables(n));
  assertFault(tables(257), 'source.tables', /not 257/);
  assertFault(
    source({ tables: [TABLE, { ...TABLE, table: 'orders' }] }),
    'source.tables[1].table',
    /second time/,
  );
  assertGood(source({ tables: [TABLE, { ...TABLE, table: 'Orders' }] }));
  assertFault(source({ tables: [TABLE, 'x'] }), 'source.tables[1]', /an object, not a string/);
  assertFault(source({ tables: [TABLE, null] }), 'source.tables[1]', /not null/);
  assertFault(source({ tables: [TABLE, { table: 't2' }] }), 'source.tables[1].queue', /missing/);
  assertFault(source({ tables: [TABLE, { table: 't2', queue: 'q', extra: 1 }] }), 'source.tables[1].extra');

  for (const good of ['key', 'single', ['a'], ['a', 'B$']]) assertGood(table({ partitionBy: good }));
  for (const bad of ['row', '', 5, {}])
    assertFault(table({ partitionBy: bad }), 'source.tables[0].partitionBy');
  assertFault(table({ partitionBy: [] }), 'source.tables[0].partitionBy', /at least 1/);
  assertFault(table({ partitionBy: ['a', 'a'] }), 'source.tables[0].partitionBy[1]', /second time/);
  assertFault(table({ partitionBy: ['a', 'b c'] }), 'source.tables[0].partitionBy[1]');

  const upsert = (key: unknown) => sink({ mode: 'upsert', key });
  for (const good of [['a'], ['a', 'b'], null]) assertGood(upsert(good));
  assertFault(upsert([]), 'sink.key');
  assertFault(upsert('a'), 'sink.key', /an array/);
  assertFault(upsert(['a', 'a']), 'sink.key[1]');
  assertFault(upsert(['a', 1]), 'sink.key[1]');
});

test('the blocks of a sink’s mode', () => {
  const sql = (over: Json = {}) => sink({ mode: 'sql', statement: 'SELECT 1', params: [], ...over });
  assertGood(sql());
  assertGood(sql({ params: ['$', '$.a.b', '$.lines[0]', '@offset', '$["a b"]'] }));
  for (const bad of ['', 'a', '$.', '$[01]', '$[-1]', '@nothing', '$ .a', '$[2147483648]']) {
    assertFault(sql({ params: ['$', bad] }), 'sink.params[1]');
  }
  assertFault(sql({ statement: null }), 'sink.statement', /missing/);
  assertFault(sql({ params: null }), 'sink.params', /missing/);
  for (const bad of ['', ' \n', 'SELECT \0', bytes(65_537)])
    assertFault(sql({ statement: bad }), 'sink.statement');
  assertGood(sql({ statement: bytes(65_536) }));
  assertFault(sql({ key: ['a'] }), 'sink.key', /only for mode upsert and cdc/);
  assertFault(sql({ metadata: {} }), 'sink.metadata', /only for mode append and upsert/);
  for (const mode of ['append', 'upsert', 'cdc']) {
    assertGood(sink({ mode }));
    assertFault(sink({ mode, statement: 'SELECT 1' }), 'sink.statement', /only for mode sql/);
    assertFault(sink({ mode, params: [] }), 'sink.params', /only for mode sql/);
  }
  assertFault(sink({ mode: 'append', key: ['a'] }), 'sink.key');
  assertFault(sink({ mode: 'cdc', metadata: { offset: 'o' } }), 'sink.metadata');
  assertFault(sink({ mode: 'copy' }), 'sink.mode', /"append", "upsert", "cdc", "sql"/);
  assertFault(sink({ mode: null }), 'sink.mode');

  const facts = {
    partition: 'a',
    partitionId: 'b',
    offset: 'c',
    transactionId: 'd',
    createdAt: 'e',
    payload: 'f',
  };
  assertGood(sink({ metadata: facts }));
  assertGood(sink({ metadata: {} }));
  assertFault(sink({ metadata: { offset: 'a', payload: 'a' } }), 'sink.metadata.payload', /second time/);
  assertFault(sink({ metadata: { offset: 'a b' } }), 'sink.metadata.offset');
  assertFault(sink({ metadata: { lsn: 'a' } }), 'sink.metadata.lsn', /known/);
  assertFault(sink({ metadata: [] }), 'sink.metadata', /an object, not an array/);
  assertFault(sink({ table: 'queen.sink_progress' }), 'sink.table', /progress table/);
});

test('what must be there, and what must not, on every level', () => {
  for (const field of ['kind', 'connection']) {
    const { [field]: _, ...rest } = SOURCE;
    assertFault(rest, field, /missing/);
    assertFault({ ...SOURCE, [field]: null }, field);
  }
  for (const field of ['host', 'database', 'user'])
    assertFault(connected({ [field]: null }), `connection.${field}`, /missing/);
  for (const field of ['queue', 'table', 'mode']) {
    const { [field]: _, ...rest } = sink().sink as Json;
    assertFault({ ...sink(), sink: rest }, `sink.${field}`, /missing/);
    assertFault(sink({ [field]: null }), `sink.${field}`, /not null|one of/);
  }
  assertFault({ ...SOURCE, x: 1 }, 'x', /known/);
  assertFault(JSON.parse('{"__proto__":1,"kind":"source"}'), '__proto__');
  assertFault(connected({ x: null }), 'connection.x', /known/);
  assertFault(connected({ passwordSealed: 'v1.AAAA' }), 'connection.passwordSealed', /known/);
  assertFault(source({ x: 1 }), 'source.x');
  assertFault(sink({ x: 1 }), 'sink.x');
  for (const wrong of ['x', 1, [], null, true]) {
    assertFault({ ...SOURCE, connection: wrong }, 'connection', /an object/);
    if (wrong !== null) assertFault({ ...SOURCE, source: wrong }, 'source', /an object/);
  }
  assertFault({ ...SOURCE, kind: 'pipe' }, 'kind');
  assertFault({ ...SOURCE, sink: sink().sink }, 'kind', /must not have the block sink/);
  assertFault({ ...SOURCE, sink: { nonsense: 1 } }, 'kind');
  assertFault({ kind: 'sink', connection: CONNECTION }, 'kind', /must have the block sink/);
  assertFault({ kind: 'source', connection: CONNECTION, source: null }, 'kind');
  assertGood({ ...SOURCE, sink: null });
  assertFault([], 'document');
});

test('the first fault is the first one in the text', () => {
  const text = (json: string) => JSON.parse(json) as unknown;
  const connection = '"connection":{"host":"h","database":"d","user":"u"}';
  assertFault(text(`{"x":1,"kind":"pipe"}`), 'x');
  assertFault(text(`{"kind":"pipe","x":1}`), 'kind');
  assertFault(text(`{"source":{"lingerMs":-1,"tables":[]},"kind":"source","zzz":1}`), 'source.lingerMs');
  assertFault(text(`{"source":{"tables":[],"lingerMs":-1},"kind":"source","zzz":1}`), 'source.tables');
  // Missing ones count where their object ends.
  assertFault(
    text(`{"connection":{"host":"h"},"kind":"source","source":{"tables":5}}`),
    'connection.database',
  );
  assertFault(text(`{"connection":{"host":"h"},"kind":"pipe"}`), 'connection.database');
  assertFault(text(`{"kind":"pipe","connection":{"host":"h"}}`), 'kind');
  // What comes of two fields counts at the one that it names.
  const single = '{"table":"a","queue":"q","partitionBy":"single"}';
  const byKey = '{"table":"b","queue":"q"}';
  const emit = (block: string) => text(`{"kind":"source",${connection},"source":{${block}}}`);
  assertGood(emit(`"onTruncate":"emit","tables":[${single}]`));
  assertFault(emit(`"onTruncate":"emit","tables":[${single},${byKey}]`), 'source.onTruncate', /public\.b/);
  assertFault(emit(`"onTruncate":"emit","tables":[${single},${byKey}],"slot":"S"`), 'source.onTruncate');
  assertFault(emit(`"slot":"S","onTruncate":"emit","tables":[${single},${byKey}]`), 'source.slot');
  assertFault(emit(`"tables":[${single},{"table":"a","queue":""}],"slot":"S"`), 'source.tables[1].table');
  assertFault(text(`{"kind":"source","source":{},"sink":{},${connection}}`), 'kind');
  // Of a repeated key the last value counts.
  assertGood(text(`{"kind":"sink","kind":"source",${connection},"source":{"tables":[${byKey}]}}`));
});

test('the certificate is for verify-full alone, and must be one', () => {
  const pem = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----';
  assertFault(
    connected({ sslMode: 'verify-full', sslRootCert: pem }),
    'connection.sslRootCert',
    /cannot be read/,
  );
  assertFault(
    connected({ sslMode: 'verify-full', sslRootCert: 'x' }),
    'connection.sslRootCert',
    /at least one/,
  );
  assertFault(connected({ sslMode: 'verify-full', sslRootCert: '' }), 'connection.sslRootCert');
  assertGood(connected({ sslMode: 'verify-full' }));
  const fresh = [
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-subj',
    '/CN=x',
  ];
  const real = execFileSync('openssl', ['req', ...fresh, '-keyout', '/dev/null'], {
    stdio: 'pipe',
  }).toString();
  const full = (sslRootCert: string) => connected({ sslMode: 'verify-full', sslRootCert });
  for (const good of [real, `${real}\n${real}`, `a comment\n${real}`]) assertGood(full(good));
  assertFault(full(`${real}\n${pem}`), 'connection.sslRootCert', /cannot be read/);
  const { document } = parseWritten(full(real), 'c');
  assert.equal((renderShown(document).connection as Json).sslRootCert, real);
  for (const sslMode of ['disable', 'prefer', 'require', undefined]) {
    assertFault(
      connected({ sslRootCert: real, ...(sslMode === undefined ? {} : { sslMode }) }),
      'connection.sslRootCert',
      /only for sslMode "verify-full"/,
    );
  }
  const url = 'postgres://u@h/d?sslmode=verify-full';
  assertGood({ ...SOURCE, connection: { url, sslRootCert: real } });
});

test('defaults, and that the shown form can be written back', () => {
  const { document, password } = parseWritten(SOURCE, 'my-src');
  assert.deepEqual(password, { kind: 'keep' });
  assert.deepEqual(renderShown(document), {
    name: 'my-src',
    kind: 'source',
    enabled: true,
    connection: {
      host: 'db',
      port: 5432,
      database: 'd',
      user: 'u',
      passwordSet: false,
      sslMode: 'prefer',
      connectTimeoutMs: 10_000,
    },
    source: {
      tables: [{ table: 'public.orders', queue: 'orders', partitionBy: 'key' }],
      slot: 'queen_my_src',
      publication: 'queen_my_src',
      managePublication: true,
      snapshot: 'initial',
      snapshotChunkRows: 2000,
      maxBundleMessages: 1000,
      maxBundleBytes: 4_194_304,
      lingerMs: 20,
      heartbeatSeconds: 10,
      onTruncate: 'skip',
    },
    updatedAt: '',
  });
  const documents = [
    SOURCE,
    source({
      tables: [
        { ...TABLE, partitionBy: ['a', 'b'] },
        { table: 'x.y', queue: 'q', partitionBy: 'single' },
      ],
    }),
    sink(),
    sink({ mode: 'upsert', key: ['a'], metadata: { offset: 'o' }, progressTable: 'x.y', batch: 7 }),
    sink({ mode: 'sql', statement: 'SELECT $1', params: ['$.a'] }),
    { ...sink({ mode: 'cdc' }), enabled: false },
  ];
  for (const each of documents) {
    const parsed = parseWritten(each, 'my-src').document;
    const again = {
      ...renderShown({ ...parsed, updatedAt: '2026-01-01T00:00:00.000000Z' }),
      status: { phase: 'running' },
      state: null,
    };
    assert.deepEqual(parseWritten(again, 'my-src').document, parsed);
    const stored = {
      ...parsed,
      connection: { ...parsed.connection, passwordSealed: 'v1.x' },
      updatedAt: '2026-01-01T00:00:00.000001Z',
      resyncRequestedAt: '2026-01-01T00:00:00.000002Z',
      deleting: { dropSlot: true, requestedAt: '2026-01-01T00:00:00.000003Z' },
    };
    const shown = JSON.stringify(renderShown(stored));
    assert.ok(shown.includes('"passwordSet":true') && !shown.includes('v1.x'), shown);
    assert.deepEqual(parseStored(JSON.parse(JSON.stringify(renderStored(stored))), 'my-src'), stored);
  }
});

test('fields that the broker writes are taken and dropped; the name must be the one of the path', () => {
  const dropped = { updatedAt: 1, resyncRequestedAt: {}, deleting: [], status: 'x', state: { a: 1 } };
  assertGood({ ...SOURCE, ...dropped, name: 'c', connection: { ...CONNECTION, passwordSet: 'maybe' } });
  assertFault({ ...SOURCE, name: 'other' }, 'name', /must be c/);
  assertFault({ ...SOURCE, name: 5 }, 'name');
  assertGood({ ...SOURCE, name: null });
});

test('a password is kept, removed or set', () => {
  const change = (connection: Json) => parseWritten(connected(connection), 'c').password;
  assert.deepEqual(change({}), { kind: 'keep' });
  assert.deepEqual(change({ password: null }), { kind: 'keep' });
  assert.deepEqual(change({ password: '' }), { kind: 'remove' });
  assert.deepEqual(change({ password: 'geheim' }), { kind: 'set', password: 'geheim' });
});
