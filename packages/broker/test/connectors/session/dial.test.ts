/** Sessions with a real server: TLS, authentication, settings, statements in flight, and their ends. */
import assert from 'node:assert/strict';
import { chownSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { until } from '../../../../../test/kit/until.ts';
import { Upstream, type UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import type { ConnectionSettings } from '../../../src/connectors/postgres/document/types.ts';
import { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import { cutBytes, PgDialler } from '../../../src/connectors/postgres/session/dialler.ts';
import { makeCertificates } from './certificates.ts';

const TIMEOUTS = [
  'statement_timeout',
  'lock_timeout',
  'transaction_timeout',
  'idle_session_timeout',
  'idle_in_transaction_session_timeout',
];

const HBA = `local all all trust
host all scram_user all scram-sha-256
host all md5_user all md5
host all plain_user all password
host all all all trust
`;

suite('sessions', () => {
  let upstream: Upstream;
  let database: UpstreamDatabase;

  before(async () => {
    upstream = await Upstream.start({ major: 17 });
    database = await upstream.database();
    for (const [user, encryption] of Object.entries({
      scram_user: 'scram-sha-256',
      md5_user: 'md5',
      plain_user: 'scram-sha-256',
    })) {
      await database.sql(`SET password_encryption = '${encryption}';
        CREATE ROLE ${user} LOGIN REPLICATION PASSWORD 'gehé im'`);
    }
    const hba = join(upstream.cluster, 'pg_hba.conf');
    const { uid, gid } = statSync(hba);
    writeFileSync(hba, HBA);
    chownSync(hba, uid, gid);
    await database.sql('SELECT pg_reload_conf()');
  });
  after(() => upstream.remove());

  function dialler(over: Partial<ConnectionSettings> = {}, password: string | null = null): PgDialler {
    const connection = {
      host: upstream.host,
      port: upstream.port,
      database: database.name,
      user: upstream.user,
      passwordSealed: null,
      sslMode: 'prefer' as const,
      sslRootCert: null,
      connectTimeoutMs: 10_000,
      ...over,
    };
    // Whatever the name, it is this machine.
    const lookup = async () => [{ address: upstream.host, family: 4 as const }];
    return new PgDialler({ connection, password: () => password, allowPrivate: true, lookup });
  }

  /** Whether both kinds of connections came to be and were encrypted, or the fault of both. */
  async function outcome(
    over: Partial<ConnectionSettings>,
    password?: string | null,
  ): Promise<boolean | ConnectorFault> {
    const replication = async () => {
      const connection = await dialler(over, password).replication('test');
      assert.match((await connection.identify()).systemId, /^\d+$/);
      await connection.close();
    };
    try {
      const session = await dialler(over, password).sql('test', 'source');
      const { rows } = await session.query('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()');
      await session.close();
      await replication();
      return rows[0]![0] === 't';
    } catch (error) {
      assert.ok(error instanceof ConnectorFault, String(error));
      await assert.rejects(replication(), { code: error.code, retry: error.retry });
      return error;
    }
  }

  async function assertFault(
    over: Partial<ConnectionSettings>,
    password: string | null,
    expected: { code: string; retry: string; sqlState?: string; message?: RegExp },
  ): Promise<void> {
    const fault = await outcome(over, password);
    assert.ok(fault instanceof ConnectorFault, `${JSON.stringify(over)}: ${fault}`);
    const { message, ...rest } = expected;
    assert.deepEqual(
      { ...rest },
      Object.fromEntries(Object.keys(rest).map((key) => [key, fault[key as 'code']])),
    );
    if (message !== undefined) assert.match(fault.message, message);
    if (password !== null) assert.ok(!fault.message.includes(password));
  }

  test('cleartext, MD5, SCRAM; a wrong password and none', async () => {
    for (const user of ['scram_user', 'md5_user', 'plain_user']) {
      assert.equal(await outcome({ user }, 'gehé im'), false);
      await assertFault({ user }, 'falsch', { code: 'postgres', retry: 'later', sqlState: '28P01' });
      await assertFault({ user }, null, { code: 'postgres', retry: 'later', message: /none is stored/ });
    }
    await assertFault({ user: 'nobody' }, null, { code: 'postgres', retry: 'later', sqlState: '28000' });
    await assertFault({ database: 'nothing' }, null, { code: 'postgres', retry: 'later', sqlState: '3D000' });
  });

  test('TLS in its four modes, without it and with it', async () => {
    for (const sslMode of ['disable', 'prefer'] as const) assert.equal(await outcome({ sslMode }), false);
    for (const sslMode of ['require', 'verify-full'] as const) {
      await assertFault({ sslMode }, null, { code: 'io', retry: 'later', message: /does not offer TLS/ });
    }
    const { authority, settings } = makeCertificates(upstream.cluster, 'DNS:db.test,IP:127.0.0.1');
    for (const setting of settings) await database.sql(`ALTER SYSTEM SET ${setting}`);
    await database.sql('SELECT pg_reload_conf()');
    await until('TLS is on', async () => (await outcome({ sslMode: 'require' })) === true);

    assert.equal(await outcome({ sslMode: 'disable' }), false);
    for (const sslMode of ['prefer', 'require'] as const) assert.equal(await outcome({ sslMode }), true);
    const verified = { sslMode: 'verify-full', sslRootCert: authority } as const;
    assert.equal(await outcome({ ...verified, host: 'db.test' }), true);
    assert.equal(await outcome({ ...verified, host: '127.0.0.1' }), true);
    const refused = { code: 'io', retry: 'later', message: /is not accepted/ };
    await assertFault({ ...verified, host: 'other.test' }, null, refused);
    await assertFault({ ...verified, host: '127.0.0.2' }, null, refused);
    await assertFault({ sslMode: 'verify-full', host: 'db.test' }, null, refused);
    // A password goes the same way, and a cancellation too.
    assert.equal(await outcome({ ...verified, host: 'db.test', user: 'scram_user' }, 'gehé im'), true);
    const session = await dialler({ ...verified, host: 'db.test' }).sql('late', 'sink');
    await assert.rejects(session.query('SELECT pg_sleep(60)', [], { timeoutMs: 50 }), { code: 'io' });
    await until('the statement was cancelled', async () => (await busy('late')) === 0);
  });

  async function busy(applicationName: string): Promise<number> {
    const rows = await database.sql(
      `SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = $1 AND state = 'active'`,
      [applicationName],
    );
    return rows[0]!.n as number;
  }

  test('values are printed alike whatever the role has set; commits of a sink are durable', async () => {
    await database.sql(`CREATE ROLE odd LOGIN REPLICATION;
      ALTER ROLE odd SET DateStyle = 'German, DMY'; ALTER ROLE odd SET TimeZone = 'Asia/Tokyo';
      ALTER ROLE odd SET bytea_output = 'escape'; ALTER ROLE odd SET extra_float_digits = 0;
      ALTER ROLE odd SET IntervalStyle = 'iso_8601'; ALTER ROLE odd SET standard_conforming_strings = off;
      ALTER ROLE odd SET client_encoding = 'LATIN1'; ALTER ROLE odd SET statement_timeout = '1ms';
      ALTER ROLE odd SET transaction_timeout = '5s'; ALTER ROLE odd SET idle_session_timeout = '1s';
      ALTER ROLE odd SET idle_in_transaction_session_timeout = '1ms'; ALTER ROLE odd SET lock_timeout = '1ms';
      ALTER ROLE odd SET synchronous_commit = 'off'`);
    const printed = `SELECT timestamptz '2026-01-02 03:04:05+00', interval '1 mon -2 days', decode('00ff', 'hex'), 0.1::float8 + 0.2, 'ü€'`;
    const setting = (name: string) => `current_setting('${name}')`;
    for (const role of ['source', 'sink'] as const) {
      const session = await dialler({ user: 'odd' }).sql('odd', role);
      const { rows } = await session.query(printed);
      assert.deepEqual(rows[0], [
        '2026-01-02 03:04:05+00',
        '1 mon -2 days',
        '\\x00ff',
        '0.30000000000000004',
        'ü€',
      ]);
      const settings = await session.query(
        `SELECT ${['synchronous_commit', 'row_security', ...TIMEOUTS].map(setting)}`,
      );
      const expected = [...(role === 'source' ? ['off', 'off'] : ['on', 'on']), ...TIMEOUTS.map(() => '0')];
      assert.deepEqual(settings.rows[0], expected, role);
      assert.ok(session.serverVersion >= 170_000 && session.processId > 0);
      await session.close();
    }
    const replication = await dialler({ user: 'odd' }).replication('odd');
    const [found] = await replication.command(`SELECT ${TIMEOUTS.map(setting)}`);
    assert.deepEqual(
      found,
      TIMEOUTS.map(() => '0'),
    );
    await replication.close();
    for (const [asked, kept] of [
      ['local', 'on'],
      ['remote_apply', 'remote_apply'],
      ['remote_write', 'remote_write'],
    ]) {
      await database.sql(`ALTER ROLE odd SET synchronous_commit = '${asked}'`);
      const session = await dialler({ user: 'odd' }).sql('odd', 'sink');
      assert.equal((await session.query(`SELECT ${setting('synchronous_commit')}`)).rows[0]![0], kept);
      await session.close();
    }
  });

  test('statements in flight are answered in order, and a failure is one statement’s own', async () => {
    const session = await dialler().sql('flight', 'sink');
    const answers = await Promise.allSettled(
      Array.from({ length: 200 }, (_, i) =>
        i % 50 === 7
          ? session.query(`SELECT 1/0 -- ${i}`)
          : session.query('SELECT $1::int + 1', [String(i)], i % 2 === 0 ? { name: 'plus' } : {}),
      ),
    );
    answers.forEach((answer, i) => {
      if (i % 50 !== 7)
        assert.equal(answer.status === 'fulfilled' && answer.value.rows[0]![0], String(i + 1));
      else {
        const fault = (answer as PromiseRejectedResult).reason as ConnectorFault;
        assert.deepEqual([fault.code, fault.sqlState, fault.retry], ['postgres', '22012', 'later']);
        assert.match(fault.message, /SQLSTATE 22012/);
      }
    });
    // Within a transaction those behind the failed one are lost with it.
    const texts = ['BEGIN', 'SELECT 1', 'SELECT 1/0', 'SELECT 2', 'COMMIT', 'SELECT 3'];
    const states = (await Promise.allSettled(texts.map((text) => session.query(text)))).map((answer) =>
      answer.status === 'fulfilled' ? null : (answer.reason as ConnectorFault).sqlState,
    );
    assert.deepEqual(states, [null, null, '22012', '25P02', null, null]);
    await session.close();
  });

  test('statements that share a Sync are answered together, and skipped together behind a failure', async () => {
    const session = await dialler().sql('joined', 'sink');
    const send = async (...calls: [text: string, name: string][]) => {
      const sent = calls.map(([text, name], i) =>
        session.query(text, [], { name, joined: i < calls.length - 1 }),
      );
      return (await Promise.allSettled(sent)).map((answer) =>
        answer.status === 'fulfilled' ? (answer.value.rows[0]?.[0] ?? '') : String(answer.reason.sqlState),
      );
    };
    await session.query('BEGIN');
    assert.deepEqual(await send(['SELECT 1', 'one'], ['', ''], ['SELECT 2', ''], ['SELECT 1', 'one']), [
      '1',
      '',
      '2',
      '1',
    ]);
    const failing = send(
      ['SELECT 1', 'one'],
      ['SELECT 1/0', 'zero'],
      ['SELECT 3', 'three'],
      ['SELECT 4', ''],
    );
    const behind = send(['SELECT 5', ''], ['ROLLBACK', '']);
    assert.deepEqual(await failing, ['1', '22012', '22012', '22012']);
    assert.deepEqual(await behind, ['25P02', '25P02']);
    await session.query('ROLLBACK');
    // What was skipped is not prepared.
    assert.deepEqual(await send(['SELECT 3', 'three'], ['SELECT 1', 'one']), ['3', '1']);
    const lost = send(
      ['SELECT 1', ''],
      ['SELECT pg_terminate_backend(pg_backend_pid())', ''],
      ['SELECT 2', ''],
    );
    assert.deepEqual(await lost, ['1', '57P01', '57P01']);
  });

  test('results: columns, counts, nulls, bytes, parameters of every sort', async () => {
    const session = await dialler().sql('results', 'sink');
    await session.query('CREATE TABLE r (id int PRIMARY KEY, t text, b bytea)');
    const insert = 'INSERT INTO r SELECT x, $1, $2 FROM generate_series(1, 3) x';
    assert.deepEqual(await session.query(insert, ['ü', Buffer.from([0, 255])]), {
      columns: [],
      rows: [],
      count: 3,
    });
    assert.deepEqual(await session.query('SELECT id, t, b, NULL AS n FROM r WHERE id = 2'), {
      columns: ['id', 't', 'b', 'n'],
      rows: [['2', 'ü', '\\x00ff', null]],
      count: 1,
    });
    assert.deepEqual(await session.query(''), { columns: [], rows: [], count: 0 });
    assert.equal((await session.query('SELECT $1::text', [Buffer.from('é')])).rows[0]![0], 'é');
    assert.equal((await session.query('SELECT $1::text', [''])).rows[0]![0], '');
    assert.equal(
      (await session.query('SELECT pg_typeof($1)', ['x'], { textParams: true })).rows[0]![0],
      'text',
    );
    const [row] = await session.bytes("SELECT 'é', NULL, '', id FROM r WHERE id = 3");
    assert.deepEqual(row, [Buffer.from('é'), null, Buffer.alloc(0), Buffer.from('3')]);
    const large = 'x'.repeat(3_000_000);
    assert.equal((await session.query('SELECT $1::text || $1', [large])).rows[0]![0]!.length, 6_000_000);
    await assert.rejects(session.query('INSERT INTO r VALUES (1)'), (error: ConnectorFault) => {
      assert.equal(error.sqlState, '23505');
      const { detail, constraint } = error.cause as { detail: string; constraint: string };
      return detail.includes('(id)=(1)') && constraint === 'r_pkey';
    });
    await session.close();
  });

  test('prepared without being run: how many parameters, and what is wrong', async () => {
    const session = await dialler().sql('prepare', 'sink');
    assert.equal(await session.prepare('p', 'SELECT $1::int + $2::numeric', 2), 2);
    assert.deepEqual(
      (await session.query('SELECT $1::int + $2::numeric', ['1', '2.5'], { name: 'p' })).rows,
      [['3.5']],
    );
    assert.equal(await session.prepare('q', 'SELECT 1', 0), 0);
    await assert.rejects(session.prepare('r', 'SELEC', 0), { sqlState: '42601' });
    await assert.rejects(session.prepare('s', 'SELECT 1; SELECT 2', 0), { sqlState: '42601' });
    // A name that failed is free again.
    assert.equal(await session.prepare('r', 'SELECT $1::text', 1), 1);
    await assert.rejects(session.query('COPY pg_class TO STDOUT'), { code: 'statement' });
  });

  test('a database that is not in UTF-8: what is no UTF-8 is refused by the server itself', async (t) => {
    const ascii = await upstream.database(
      t,
      "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    const session = await dialler({ database: ascii.name }).sql('ascii', 'source');
    await session.query("CREATE TABLE x AS SELECT chr(255) || 'a' AS v");
    await assert.rejects(session.bytes('SELECT v FROM x'), { sqlState: '22021' });
    assert.deepEqual(await session.bytes("SELECT 'é'"), [[Buffer.from('é')]]);
    await session.close();
  });

  test('the end of a session: closed in order, while busy, by an administrator, by its server', async () => {
    const idle = await dialler().sql('idle', 'sink');
    let closed = 0;
    idle.onClose(() => closed++);
    await Promise.all([idle.close(), idle.close()]);
    assert.equal(closed, 1);
    await assert.rejects(idle.query('SELECT 1'), { code: 'io' });

    const working = await dialler().sql('working', 'sink');
    const sleeping = working.query('SELECT pg_sleep(60)');
    const refused = assert.rejects(sleeping, { code: 'io' });
    await until('it works', async () => (await busy('working')) === 1);
    await working.close();
    await refused;
    await until('the server has given up too', async () => (await busy('working')) === 0);

    for (const pending of [true, false]) {
      const session = await dialler().sql('killed', 'sink');
      const ended = new Promise<void>((resolve) => session.onClose(resolve));
      const call = pending
        ? assert.rejects(session.query('SELECT pg_sleep(60)'), {
            code: 'postgres',
            sqlState: '57P01',
            retry: 'backoff',
          })
        : Promise.resolve();
      if (pending) await until('it works', async () => (await busy('killed')) === 1);
      await database.sql(`SELECT pg_terminate_backend($1)`, [session.processId]);
      await Promise.all([call, ended]);
      await assert.rejects(session.query('SELECT 1'), { retry: 'backoff' });
      session.onClose(() => closed++);
    }
    assert.equal(closed, 3, 'who comes too late is told at once');
  });

  test('a pooler that takes no options: the settings are made by statements, and a source says why not', async (t) => {
    const pooled = await upstream.database(t);
    await pooled.sql(`ALTER DATABASE ${pooled.name} SET extra_float_digits = 0`);
    let refusals = 0;
    const pooler = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', (startup: Buffer) => {
        if (startup.includes('options')) {
          refusals++;
          const fields = Buffer.from('SFATAL\0C08P01\0Munsupported startup parameter: options\0\0');
          const head = Buffer.from('E....');
          head.writeInt32BE(fields.length + 4, 1);
          socket.end(Buffer.concat([head, fields]));
          return;
        }
        const server = connect(upstream.port, upstream.host, () => {
          server.write(startup);
          server.pipe(socket).pipe(server);
        });
        server.on('error', () => socket.destroy());
      });
    });
    await new Promise<void>((resolve) => pooler.listen(0, '127.0.0.1', resolve));
    t.after(() => pooler.close());
    const { port } = pooler.address() as { port: number };
    const through = dialler({ port, database: pooled.name, sslMode: 'disable' });
    const session = await through.sql('x', 'sink');
    assert.equal((await session.query('SELECT 0.1::float8 + 0.2')).rows[0]![0], '0.30000000000000004');
    assert.equal(refusals, 1);
    await session.close();
    await assert.rejects(through.replication('x'), { code: 'postgres', sqlState: '08P01', retry: 'later' });
  });

  test('application names are cut between characters', async () => {
    const name = `queen-pg/1.0 ${'ü'.repeat(40)}`;
    const session = await dialler().sql(name, 'sink');
    const { rows } = await session.query('SHOW application_name');
    // PostgreSQL prints what is not ASCII as escapes; nothing of it is half a character.
    assert.equal(Buffer.byteLength(cutBytes(name)), 63);
    assert.ok(!cutBytes(name).includes('\ufffd') && rows[0]![0]!.startsWith('queen-pg/1.0'));
    await session.close();
    assert.equal(cutBytes('x'.repeat(63)), 'x'.repeat(63));
    assert.equal(cutBytes(`${'x'.repeat(62)}ü`), 'x'.repeat(62));
    assert.equal(cutBytes(`${'x'.repeat(60)}😀`), 'x'.repeat(60));
  });
});
