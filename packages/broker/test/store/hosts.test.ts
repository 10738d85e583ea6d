import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { freshDatabase } from '../../../../test/kit/postgres.ts';
import { type TcpProxy as FaultyProxy, startProxy } from '../../../../test/kit/proxy.ts';
import { type Host, parseHosts, statement } from '../../src/store/database.ts';
import { StoreError } from '../../src/store/errors.ts';

const ONE = statement('hosts_one', 'SELECT 1 AS one');

suite('lists of hosts', () => {
  const CASES: readonly (readonly [text: string, hosts: readonly Host[]])[] = [
    ['db', [{ host: 'db', port: 5432 }]],
    ['db:6000', [{ host: 'db', port: 6000 }]],
    [
      'a:1, b.example.com ,10.0.0.1:3',
      [
        { host: 'a', port: 1 },
        { host: 'b.example.com', port: 5432 },
        { host: '10.0.0.1', port: 3 },
      ],
    ],
    [
      '[::1]:7,[fe80::1]',
      [
        { host: '::1', port: 7 },
        { host: 'fe80::1', port: 5432 },
      ],
    ],
    ['/var/run/postgresql', [{ host: '/var/run/postgresql', port: 5432 }]],
    ['/tmp/x:6000', [{ host: '/tmp/x', port: 6000 }]],
  ];
  for (const [text, hosts] of CASES) test(text, () => assert.deepEqual(parseHosts(text, 5432), hosts));

  for (const text of ['', 'a,,b', 'a:', 'a:0', 'a:65536', 'a:b', '::1', '[::1', 'a b:1:2']) {
    test(`refused: ${JSON.stringify(text)}`, () => assert.throws(() => parseHosts(text, 5432), RangeError));
  }
});

suite('several hosts', () => {
  /** The same server under two addresses, each of which can fail by itself. */
  async function twoAddresses(t: { after(fn: () => Promise<void>): void }) {
    const fixture = await freshDatabase(t);
    const [{ host, port }] = fixture.options.hosts as [Host];
    const proxies = await Promise.all([0, 1].map(() => startProxy({ path: `${host}/.s.PGSQL.${port}` })));
    t.after(async () => {
      for (const proxy of proxies) await proxy.close();
    });
    const [a, b] = proxies as [FaultyProxy, FaultyProxy];
    return { fixture, a, b, hosts: [a, b].map((proxy) => ({ host: proxy.host, port: proxy.port })) };
  }

  test('the first is used while it is good, the second after its loss, and no return without need', async (t) => {
    const { fixture, a, b, hosts } = await twoAddresses(t);
    const db = await fixture.open({ hosts, poolSize: 2 });
    await db.query(ONE);
    assert.deepEqual([a.connections > 0, b.connections > 0], [true, false]);
    a.refuse();
    await db.query(ONE, [], { readOnly: true }).catch(() => {});
    await db.query(ONE);
    assert.deepEqual([a.connections > 0, b.connections > 0], [false, true]);
    a.heal();
    const session = await db.session();
    assert.equal(a.connections, 0);
    await session.close();
    b.refuse();
    await db.query(ONE, [], { readOnly: true }).catch(() => {});
    assert.deepEqual(await db.query(ONE), [{ one: 1 }]);
    assert.equal(b.connections, 0);
    await db.close();
  });

  test('a server that turns read-only is left for one that is not, without an error in doubt', async (t) => {
    const { fixture, hosts } = await twoAddresses(t);
    const other = await freshDatabase(t);
    const db = await fixture.open({ poolSize: 2 });
    await db.query({ name: '', text: 'CREATE TABLE t (a int)' });
    const admin = await other.open({ poolSize: 1 });
    await admin.query({
      name: '',
      text: `ALTER DATABASE ${fixture.options.database} SET default_transaction_read_only = on`,
    });
    await assert.rejects(fixture.open({ hosts, acquireTimeoutMs: 300 }), (error) => {
      assert.ok(error instanceof StoreError);
      assert.match(
        error.message,
        /no host accepts writes \(127\.0\.0\.1:\d+: read-only; 127\.0\.0\.1:\d+: read-only\)/,
      );
      return error.kind === 'unavailable' && error.code === 'pool';
    });
    // Sessions that exist keep writing until the server tells them that it does not.
    await db.query({ name: '', text: 'INSERT INTO t VALUES (1)' });
    await db.query({ name: '', text: "SELECT set_config('default_transaction_read_only', 'on', false)" });
    const write = { name: '', text: 'INSERT INTO t VALUES (2)' };
    await assert.rejects(
      db.query(write),
      (error) => error instanceof StoreError && error.kind === 'unavailable' && error.sqlState === '25006',
    );
    assert.equal(db.stats().idle, 0);
    await admin.query({ name: '', text: `ALTER DATABASE ${fixture.options.database} RESET ALL` });
    await db.query(write);
    await db.close();
    await admin.close();
  });

  test('a name that resolves to nothing is named', async (t) => {
    const fixture = await freshDatabase(t);
    const hosts = [{ host: 'no-such-host.invalid', port: 5432 }];
    await assert.rejects(fixture.open({ hosts, acquireTimeoutMs: 200 }), /no-such-host\.invalid/);
    const db = await fixture.open({ hosts: [...hosts, ...fixture.options.hosts] });
    assert.deepEqual(await db.query(ONE), [{ one: 1 }]);
    await db.close();
  });
});
