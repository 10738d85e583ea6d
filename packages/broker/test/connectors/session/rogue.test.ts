/** Servers that do not keep to the protocol, or not to the truth: each ends as a fault, none hangs, none ends the process. */
import assert from 'node:assert/strict';
import { createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { atEnd, type Cleanup } from '../../../../../test/kit/cleanup.ts';
import type { ConnectionSettings } from '../../../src/connectors/postgres/document/types.ts';
import { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import { PgDialler } from '../../../src/connectors/postgres/session/dialler.ts';

function message(kind: string, body: Buffer | string = '', length?: number): Buffer {
  const bytes = Buffer.from(body);
  const head = Buffer.alloc(5);
  head.write(kind, 0, 'latin1');
  head.writeUInt32BE(length ?? bytes.length + 4, 1);
  return Buffer.concat([head, bytes]);
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

const authentication = (code: number, more = '') =>
  message('R', Buffer.concat([int32(code), Buffer.from(more)]));
const OK = authentication(0);
const READY = message('Z', 'I');

/** A server that answers the n-th thing that it hears with the n-th answer; null: silence. */
async function rogue(t: Cleanup, answers: readonly (Buffer | string | null)[]): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    let heard = 0;
    socket.on('error', () => {});
    socket.on('data', () => {
      const answer = answers[heard++];
      if (answer !== undefined && answer !== null) socket.write(answer);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(t, async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });
  return (server.address() as { port: number }).port;
}

function dialler(
  port: number,
  over: Partial<ConnectionSettings> = {},
  password: string | null = 'pw',
): PgDialler {
  const connection = {
    host: '127.0.0.1',
    port,
    database: 'd',
    user: 'u',
    passwordSealed: null,
    sslMode: 'disable' as const,
    sslRootCert: null,
    connectTimeoutMs: 1_000,
    ...over,
  };
  return new PgDialler({ connection, password: () => password, allowPrivate: true });
}

const SASL = authentication(10, 'SCRAM-SHA-256\0\0');
const CASES: readonly [
  what: string,
  answers: (Buffer | string | null)[],
  expected: { code: string; retry: string; message: RegExp },
  over?: Partial<ConnectionSettings>,
][] = [
  ['says nothing', [], { code: 'io', retry: 'backoff', message: /within \d+ ms/ }],
  ['wants GSS', [authentication(7)], { code: 'auth_method', retry: 'later', message: /pg_hba/ }],
  ['wants SSPI', [authentication(9)], { code: 'auth_method', retry: 'later', message: /method 9/ }],
  [
    'wants another SASL',
    [authentication(10, 'SCRAM-SHA-256-PLUS\0\0')],
    { code: 'auth_method', retry: 'later', message: /SASL/ },
  ],
  [
    'proves nothing',
    [SASL, Buffer.concat([OK, READY])],
    { code: 'postgres', retry: 'later', message: /did not prove/ },
  ],
  [
    'takes another nonce',
    [SASL, authentication(11, 'r=abc,s=AAAA,i=4096')],
    { code: 'postgres', retry: 'later', message: /nonce/ },
  ],
  [
    'is no PostgreSQL',
    ['HTTP/1.1 400 Bad Request\r\n\r\n'],
    { code: 'io', retry: 'backoff', message: /not understood/ },
  ],
  [
    'sends an unknown message',
    [Buffer.concat([OK, message('!')])],
    { code: 'io', retry: 'backoff', message: /0x21/ },
  ],
  [
    'announces four billion bytes',
    [message('S', '', 0xffff_ffff)],
    { code: 'io', retry: 'backoff', message: /not understood/ },
  ],
  ['announces too few', [message('S', '', 3)], { code: 'io', retry: 'backoff', message: /not understood/ }],
  [
    'has bytes left over',
    [Buffer.concat([OK, message('S', 'a\0b\0c')])],
    { code: 'io', retry: 'backoff', message: /not understood/ },
  ],
  [
    'has too few bytes',
    [Buffer.concat([OK, message('S', 'a\0b'), READY])],
    { code: 'io', retry: 'backoff', message: /not understood/ },
  ],
  [
    'answers the question for TLS at length',
    [Buffer.from('S\0')],
    { code: 'io', retry: 'backoff', message: /TLS/ },
    { sslMode: 'prefer' },
  ],
  [
    'answers the question for TLS with something else',
    ['E'],
    { code: 'io', retry: 'backoff', message: /TLS/ },
    { sslMode: 'require' },
  ],
  [
    'says yes and then no TLS',
    ['S', 'nonsense'],
    { code: 'io', retry: 'later', message: /TLS/ },
    { sslMode: 'require' },
  ],
];

for (const [what, answers, expected, over] of CASES) {
  test(`a server that ${what}`, async (t) => {
    const port = await rogue(t, answers);
    for (const open of [
      () => dialler(port, over).sql('x', 'sink'),
      () => dialler(port, over).replication('x'),
    ]) {
      await assert.rejects(open(), (error) => {
        assert.ok(error instanceof ConnectorFault, String(error));
        assert.deepEqual([error.code, error.retry], [expected.code, expected.retry], error.message);
        assert.match(error.message, expected.message);
        return true;
      });
    }
  });
}

test('a server that quotes the password is not quoted', async (t) => {
  const quote = message('E', 'SFATAL\0C28P01\0M"geheim" is no password\0\0');
  const port = await rogue(t, [authentication(3), quote]);
  for (const open of [
    () => dialler(port, {}, 'geheim').sql('x', 'sink'),
    () => dialler(port, {}, 'geheim').replication('x'),
  ]) {
    await assert.rejects(open(), (error: ConnectorFault) => {
      assert.deepEqual([error.code, error.retry, error.sqlState], ['postgres', 'later', '28P01']);
      assert.equal(error.message, '"…" is no password (SQLSTATE 28P01)');
      return true;
    });
  }
});

test('a dial ends at once when it is asked to', async (t) => {
  const port = await rogue(t, []);
  const asked = new AbortController();
  const dial = dialler(port, { connectTimeoutMs: 60_000 }).sql('x', 'sink', asked.signal);
  setTimeout(() => asked.abort(), 20);
  await assert.rejects(dial, { code: 'stopped', retry: 'never' });
  await assert.rejects(dialler(port).replication('x', asked.signal), { code: 'stopped' });
});

test('nobody there: the next address is tried, within the time for all', async (t) => {
  const port = await rogue(t, [authentication(7)]);
  const addresses = ['127.0.0.9', '127.0.0.1'].map((address) => ({ address, family: 4 as const }));
  const connection = { ...SETTINGS, port };
  const two = new PgDialler({
    connection,
    password: () => null,
    allowPrivate: true,
    lookup: async () => addresses,
  });
  await assert.rejects(two.sql('x', 'sink'), { code: 'auth_method' });
  const one = new PgDialler({
    connection,
    password: () => null,
    allowPrivate: true,
    lookup: async () => addresses.slice(0, 1),
  });
  await assert.rejects(one.sql('x', 'sink'), { code: 'io', retry: 'backoff' });
});

const SETTINGS: ConnectionSettings = {
  host: 'db.test',
  port: 0,
  database: 'd',
  user: 'u',
  passwordSealed: null,
  sslMode: 'disable',
  sslRootCert: null,
  connectTimeoutMs: 2_000,
};
