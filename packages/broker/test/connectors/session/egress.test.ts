/** Which addresses are closed, that one of them closes the name, and that a name is not asked twice. */
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { ConnectorFault, type FaultCode } from '../../../src/connectors/postgres/fault.ts';
import { PgDialler } from '../../../src/connectors/postgres/session/dialler.ts';
import {
  type Address,
  isForbidden,
  lookupBySystem,
  resolveHost,
} from '../../../src/connectors/postgres/session/egress.ts';

const at = (address: string): Address => ({ address, family: address.includes(':') ? 6 : 4 });
const faultIs = (code: FaultCode) => (error: unknown) =>
  error instanceof ConnectorFault && error.code === code;

const CLOSED = [
  ...['0.0.0.0', '0.255.255.255', '10.0.0.0', '10.255.255.255', '100.64.0.0', '100.127.255.255'],
  ...['127.0.0.1', '127.255.255.255', '169.254.0.0', '169.254.169.254', '169.254.255.255'],
  ...['172.16.0.0', '172.31.255.255', '192.168.0.0', '192.168.255.255', '224.0.0.0', '239.255.255.255'],
  '255.255.255.255',
  ...[
    '::',
    '::1',
    'fe80::1',
    'febf:ffff::',
    'fe80::1%eth0',
    'fec0::1',
    'feff::',
    'fc00::',
    'fdff:ffff::1',
    'ff02::1',
  ],
  ...[
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '::ffff:10.1.2.3',
    '::ffff:a9fe:a9fe',
    '::127.0.0.1',
    '::10.0.0.1',
  ],
  ...['64:ff9b::127.0.0.1', '64:ff9b::a00:1', '::ffff:0:0', '0:0:0:0:0:ffff:7f00:0001'],
];
const OPEN = [
  ...[
    '1.0.0.0',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '126.255.255.255',
    '128.0.0.0',
  ],
  ...['169.253.255.255', '169.255.0.0', '172.15.255.255', '172.32.0.0', '192.167.255.255', '192.169.0.0'],
  ...['223.255.255.255', '8.8.8.8'],
  ...['2001:4860:4860::8888', 'fbff::1', 'fe00::1', '::ffff:8.8.8.8', '::ffff:808:808', '::8.8.8.8'],
  ...['64:ff9b::8.8.8.8', '64:ff9b:1::7f00:1', '2002::1'],
];

test('which addresses are closed, at the borders of every range', () => {
  for (const address of CLOSED) assert.equal(isForbidden(at(address)), true, address);
  for (const address of OPEN) assert.equal(isForbidden(at(address)), false, address);
  assert.equal(isForbidden({ address: 'what', family: 4 }), true);
  assert.equal(isForbidden({ address: '8.8.8.8', family: 6 }), true);
});

test('one closed address among open ones closes the name', async () => {
  const host = 'db.example.com';
  const resolved = (addresses: string[], allowPrivate = false) =>
    resolveHost(host, { allowPrivate, timeoutMs: 1000, lookup: async () => addresses.map(at) });
  assert.deepEqual(await resolved(['8.8.8.8', '2001:db8::1']), [at('8.8.8.8'), at('2001:db8::1')]);
  for (const list of [['10.0.0.1'], ['8.8.8.8', '10.0.0.1'], ['::1', '8.8.8.8']]) {
    await assert.rejects(resolved(list), (error: Error) => {
      assert.ok(faultIs('egress')(error));
      assert.ok(
        list.every((address) => !error.message.includes(address)),
        'says nothing of what is there',
      );
      return true;
    });
    assert.equal((await resolved(list, true)).length, list.length);
  }
  await assert.rejects(resolved([]), faultIs('io'));
});

test('a name that is not there, or not in time, is a failure of the network', async () => {
  const missing = Object.assign(new Error('getaddrinfo ENOTFOUND'), { code: 'ENOTFOUND' });
  const options = { allowPrivate: false, timeoutMs: 20 };
  await assert.rejects(
    resolveHost('x', { ...options, lookup: () => Promise.reject(missing) }),
    faultIs('io'),
  );
  await assert.rejects(resolveHost('x', { ...options, lookup: () => new Promise(() => {}) }), faultIs('io'));
});

test('numbers in odd spellings are judged by what the system makes of them', async () => {
  for (const spelling of ['2130706433', '127.1', '0x7f.1', '0177.0.0.1', '127.0.0.1', '::1']) {
    // What the system does not take for an address is a name that nobody has, which is as good.
    const verdict = await resolveHost(spelling, { allowPrivate: false, timeoutMs: 5000 }).then(
      (addresses) => JSON.stringify(addresses),
      (error: ConnectorFault) => error.code,
    );
    assert.ok(['egress', 'io'].includes(verdict), `${spelling}: ${verdict}`);
  }
  assert.deepEqual(await lookupBySystem('127.0.0.1'), [at('127.0.0.1')]);
});

test('a resolver that changes its answer gains nothing: the judged address is the one that is dialled', async (t) => {
  const server = createServer((socket) => {
    dialled++;
    socket.destroy();
  });
  let dialled = 0;
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  let asked = 0;
  const dialler = new PgDialler({
    connection: {
      host: 'rebinding.example.com',
      port,
      database: 'd',
      user: 'u',
      passwordSealed: null,
      sslMode: 'disable',
      sslRootCert: null,
      connectTimeoutMs: 1000,
    },
    password: () => null,
    allowPrivate: false,
    // Harmless at the first look, our own network at every later one. 192.0.2.0/24 is nobody's (RFC 5737).
    lookup: async () => (++asked % 2 === 1 ? [at('192.0.2.1')] : [at('127.0.0.1')]),
  });
  await assert.rejects(dialler.sql('test', 'sink'), faultIs('io'));
  assert.deepEqual({ asked, dialled }, { asked: 1, dialled: 0 });
  await assert.rejects(dialler.sql('test', 'sink'), faultIs('egress'));
  await assert.rejects(dialler.replication('test'), faultIs('io'));
  await assert.rejects(dialler.replication('test'), faultIs('egress'));
  assert.deepEqual({ asked, dialled }, { asked: 4, dialled: 0 });
});
