import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DatabaseChoice, databaseChoice } from '../../src/config/database.ts';

const NOTHING = {
  url: null,
  dataDirectory: './queen-data',
  host: null,
  port: null,
  user: null,
  password: null,
  database: null,
  useSsl: false,
  sslRejectUnauthorized: true,
  sslRootCertificate: null,
};

type External = Extract<DatabaseChoice, { kind: 'external' }>;

function external(values: Partial<typeof NOTHING> | Record<string, unknown>): External {
  const faults: string[] = [];
  const choice = databaseChoice({ ...NOTHING, ...values }, faults, []);
  assert.deepEqual(faults, []);
  assert.equal(choice?.kind, 'external');
  return choice as External;
}

function fault(values: Record<string, unknown>): string {
  const faults: string[] = [];
  assert.equal(databaseChoice({ ...NOTHING, ...values }, faults, []), null);
  return faults.join('\n');
}

test('nothing set: the bundled server; a database name alone does not change that, and says so', () => {
  const warnings: string[] = [];
  const choice = databaseChoice({ ...NOTHING, database: 'x', useSsl: true }, [], warnings);
  assert.deepEqual(choice, { kind: 'embedded', directory: './queen-data' });
  assert.equal(warnings.length, 2);
});

test('any one of four variables selects an external server', () => {
  const defaults = {
    kind: 'external',
    database: 'postgres',
    user: 'postgres',
    password: 'postgres',
    ssl: false,
  };
  const local = [{ host: 'localhost', port: 5432 }];
  assert.deepEqual(external({ host: 'db' }), { ...defaults, hosts: [{ host: 'db', port: 5432 }] });
  assert.deepEqual(external({ port: 5433 }), { ...defaults, hosts: [{ host: 'localhost', port: 5433 }] });
  assert.deepEqual(external({ user: 'me' }), { ...defaults, hosts: local, user: 'me' });
  assert.deepEqual(external({ password: 'p' }), { ...defaults, hosts: local, password: 'p' });
});

test('several hosts, in the variable and in the URL', () => {
  const hosts = [
    { host: 'a', port: 1 },
    { host: 'b', port: 5432 },
    { host: '::1', port: 3 },
  ];
  assert.deepEqual(external({ host: 'a:1,b,[::1]:3' }).hosts, hosts);
  assert.deepEqual(external({ url: 'postgres://u@a:1,b,[::1]:3/d' }).hosts, hosts);
});

test('a URL is decoded; what it leaves out comes from the variables', () => {
  const choice = external({ url: 'postgresql://us%40er:p%3A%2F%23@h:7/my%20db' });
  assert.equal(choice.user, 'us@er');
  assert.equal(choice.password, 'p:/#');
  assert.equal(choice.database, 'my db');
  const bare = external({ url: 'postgres://h', user: 'me', password: 'secret', database: 'd', port: 9 });
  assert.deepEqual(
    [bare.user, bare.password, bare.database, bare.hosts],
    ['me', 'secret', 'd', [{ host: 'h', port: 9 }]],
  );
  assert.equal(external({ url: 'postgres://u@h/d' }).password, null);
});

test('a unix socket by parameter', () => {
  const choice = external({ url: 'postgres://u@/d?host=%2Frun%2Fpg&port=6000' });
  assert.deepEqual(choice.hosts, [{ host: '/run/pg', port: 6000 }]);
});

test('TLS: by the URL, else by the variable; verified unless told otherwise', () => {
  assert.equal(external({ url: 'postgres://h/d' }).ssl, false);
  assert.deepEqual(external({ url: 'postgres://h/d', useSsl: true }).ssl, { rejectUnauthorized: true });
  assert.equal(external({ url: 'postgres://h/d?sslmode=disable', useSsl: true }).ssl, false);
  assert.deepEqual(external({ url: 'postgres://h/d?sslmode=require' }).ssl, { rejectUnauthorized: true });
  assert.deepEqual(external({ url: 'postgres://h/d?sslmode=require', sslRejectUnauthorized: false }).ssl, {
    rejectUnauthorized: false,
  });
  assert.deepEqual(
    external({ url: 'postgres://h/d?sslmode=verify-full', sslRejectUnauthorized: false }).ssl,
    {
      rejectUnauthorized: true,
    },
  );
  assert.deepEqual(external({ url: 'postgres://h/d?sslmode=no-verify' }).ssl, { rejectUnauthorized: false });
  assert.deepEqual(external({ host: 'h', useSsl: true, sslRootCertificate: 'PEM' }).ssl, {
    rejectUnauthorized: true,
    ca: 'PEM',
  });
});

test('what is wrong with a URL is said without showing it', () => {
  assert.match(fault({ url: 'mysql://h/d' }), /^DATABASE_URL is not of the form/);
  assert.match(
    fault({ url: 'postgres://h/d?sslmode=prefer' }),
    /sslmode=prefer is unknown \(expected disable/,
  );
  assert.match(fault({ url: 'postgres://h:70000/d' }), /^DATABASE_URL: .*65535/);
  assert.match(fault({ url: 'postgres://u:s%zz@h/d' }), /^DATABASE_URL holds a %/);
  assert.match(fault({ host: 'a b:x' }), /^PG_HOST: /);
});
