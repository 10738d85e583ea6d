/** A connection as a URL: what it means, what it must not say twice, and that a fault never quotes it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseWritten } from '../../../src/connectors/postgres/document/parse.ts';
import { parseUrl, UrlFault } from '../../../src/connectors/postgres/document/url.ts';

const GOOD: readonly [url: string, fields: object][] = [
  ['postgres://h', { host: 'h' }],
  ['postgresql://h', { host: 'h' }],
  ['postgres://', {}],
  ['postgres://h/', { host: 'h' }],
  ['postgres://h/d', { host: 'h', database: 'd' }],
  ['postgres://h:5433/d', { host: 'h', port: 5433, database: 'd' }],
  ['postgres://u@h/d', { user: 'u', host: 'h', database: 'd' }],
  ['postgres://u:p@h/d', { user: 'u', password: 'p', host: 'h', database: 'd' }],
  ['postgres://u:@h/d', { user: 'u', password: '', host: 'h', database: 'd' }],
  ['postgres://:p@h/d', { password: 'p', host: 'h', database: 'd' }],
  ['postgres://u:a@b@c@h/d', { user: 'u', password: 'a@b@c', host: 'h', database: 'd' }],
  ['postgres://u:a:b:c@h/d', { user: 'u', password: 'a:b:c', host: 'h', database: 'd' }],
  [
    'postgres://u%40x:p%3A%2F%3F+%25@h/d%20e',
    { user: 'u@x', password: 'p:/?+%', host: 'h', database: 'd e' },
  ],
  ['postgres://%C3%BC:%E2%82%AC@h/d', { user: 'ü', password: '€', host: 'h', database: 'd' }],
  ['postgres://ü:€@h/ö', { user: 'ü', password: '€', host: 'h', database: 'ö' }],
  ['postgres://h/d@e', { host: 'h', database: 'd@e' }],
  ['postgres://h/d/e', { host: 'h', database: 'd/e' }],
  ['postgres://u:p#1@h/d', { user: 'u', password: 'p#1', host: 'h', database: 'd' }],
  ['postgres://[::1]/d', { host: '[::1]', database: 'd' }],
  ['postgres://u@[fe80::1]:5433/d', { user: 'u', host: '[fe80::1]', port: 5433, database: 'd' }],
  ['postgres://h?sslmode=require', { host: 'h', sslMode: 'require' }],
  [
    'postgres://h/d?sslmode=verify-full&connect_timeout=5',
    { host: 'h', database: 'd', sslMode: 'verify-full', connectTimeoutMs: 5000 },
  ],
  [
    'postgres:///?host=h&port=1&dbname=d&user=u&password=p',
    { host: 'h', port: 1, database: 'd', user: 'u', password: 'p' },
  ],
  ['postgres://h?password=a%26b%3Dc=d', { host: 'h', password: 'a&b=c=d' }],
  ['postgres://h?', { host: 'h' }],
  ['postgres://h:65535', { host: 'h', port: 65_535 }],
];

const BAD: readonly [url: string, sentence: RegExp][] = [
  ['', /begin with/],
  ['h', /begin with/],
  ['mysql://h', /begin with/],
  ['POSTGRES://h', /begin with/],
  ['postgres:h', /begin with/],
  ['postgres://a,b/d', /more than one host/],
  ['postgres://a:1,b:2/d', /more than one host/],
  ['postgres://[::1/d', /bracket/],
  ['postgres://[::1]x/d', /bracket/],
  ['postgres://h:/d', /port/],
  ['postgres://h:0/d', /port/],
  ['postgres://h:65536/d', /port/],
  ['postgres://h:5x/d', /port/],
  ['postgres://:5/d', /no host/],
  ['postgres://u:%zz@h', /percent escape in the password/],
  ['postgres://u:%ff@h', /not UTF-8/],
  ['postgres://%@h', /the user/],
  ['postgres://h/%e2%82', /the database/],
  ['postgres://h?sslmode=%f', /the parameter sslmode/],
  ['postgres://h?sslmode', /without a value/],
  ['postgres://h?sslmode=disable&sslmode=disable', /sslMode twice/],
  ['postgres://h?host=g', /host twice/],
  ['postgres://u@h?user=v', /user twice/],
  ['postgres://u:p@h?password=p', /password twice/],
  ['postgres://h?connect_timeout=1.5', /whole seconds/],
  ['postgres://h?port=x', /port/],
  ...[
    'sslrootcert',
    'sslcert',
    'sslkey',
    'options',
    'application_name',
    'target_session_attrs',
    'SSLMODE',
    '',
  ].map((name) => [`postgres://h?${name}=x`, /not supported/] as [string, RegExp]),
];

test('what a URL means', () => {
  for (const [url, fields] of GOOD) assert.deepEqual(parseUrl(url), fields, url);
});

test('what a URL must not be', () => {
  for (const [url, sentence] of BAD) {
    assert.throws(
      () => parseUrl(url),
      (error) => error instanceof UrlFault && sentence.test(error.message),
      url,
    );
  }
});

function settled(connection: object) {
  const source = { tables: [{ table: 't', queue: 'q' }] };
  return parseWritten({ kind: 'source', connection, source }, 'c');
}

test('a URL is folded into the fields, beside others, and is not kept', () => {
  const { document, password } = settled({
    url: 'postgres://u:s%40crt@[::1]:6000/d?sslmode=require',
    connectTimeoutMs: 2000,
  });
  assert.deepEqual(document.connection, {
    host: '::1',
    port: 6000,
    database: 'd',
    user: 'u',
    passwordSealed: null,
    sslMode: 'require',
    sslRootCert: null,
    connectTimeoutMs: 2000,
  });
  assert.deepEqual(password, { kind: 'set', password: 's@crt' });
  assert.deepEqual(settled({ url: 'postgres://u:@h/d' }).password, { kind: 'remove' });
  assert.deepEqual(settled({ url: 'postgres://u@h/d' }).password, { kind: 'keep' });
  assert.deepEqual(settled({ url: 'postgres://u@h/d', password: 'x' }).password, {
    kind: 'set',
    password: 'x',
  });
});

test('given twice, out of range, of a wrong form: told at the URL, never with it', () => {
  const secret = 'hunter2';
  const url = `postgres://u:${secret}@h/d`;
  const faults: [object, RegExp][] = [
    [{ url, host: 'g' }, /gives host/],
    [{ url, user: 'u' }, /gives user/],
    [{ url, database: 'd' }, /gives database/],
    [{ url, password: 'p' }, /gives password/],
    [{ url: `${url}?sslmode=allow` }, /sslMode that must be one of/],
    [{ url: `${url}?connect_timeout=0` }, /1000\.\.=120000/],
    [{ url: `${url}?connect_timeout=121` }, /1000\.\.=120000/],
    [{ url: `${url}?sslrootcert=/x` }, /sslrootcert/],
    [{ url: `postgres://u:${secret}@/d?host=%2Ftmp` }, /Unix sockets/],
    [{ url: `postgres://${'u'.repeat(64)}:${secret}@h/d` }, /63 bytes/],
    [{ url: `postgres://u:${secret}%zz@h/d` }, /percent escape/],
    [{ url: `postgres://u:${secret}/x@h/d` }, /./],
    [{ url: `postgres://u:${secret}?x@h/d` }, /./],
    [{ url: `${url}?${secret}=1` }, /not supported/],
    [{ url: `postgres://u:${secret.repeat(200)}@h/d` }, /1024 bytes/],
  ];
  for (const [connection, sentence] of faults) {
    assert.throws(
      () => settled(connection),
      (error: Error) => {
        assert.ok(error.message.startsWith('connection.url: '), error.message);
        assert.match(error.message, sentence);
        assert.ok(!error.message.includes(secret) && !JSON.stringify(error).includes(secret), error.message);
        return true;
      },
      JSON.stringify(connection),
    );
  }
  assert.throws(() => settled({ url: 'postgres://u@h' }), /^DocumentFault: connection\.database: is missing/);
  assert.throws(() => settled({ url: 5 }), /connection\.url: must be a string, not a number/);
});
