import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { Database, type DatabaseOptions } from '../../src/store/database.ts';
import { EmbeddedServer } from '../../src/store/embedded/server.ts';
import { StoreError } from '../../src/store/errors.ts';
import { silentLog } from '../../src/store/log.ts';

const OPENSSL = spawnSync('openssl', ['version']).status === 0;
const PASSWORD = 'correct horse "battery" \'staple\'';

suite('over TLS with a password', { skip: OPENSSL ? false : 'openssl is not installed' }, () => {
  const directory = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  let server: EmbeddedServer;
  let admin: Database;
  let options: DatabaseOptions;
  let ca: string;

  before(async () => {
    const files = join(directory, 'tls');
    const make = spawnSync('sh', [
      '-c',
      `mkdir ${files} && cd ${files} && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem \
         -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>&1`,
    ]);
    assert.equal(make.status, 0, String(make.stdout));
    ca = readFileSync(join(files, 'cert.pem'), 'utf8');
    writeFileSync(
      join(files, 'hba.conf'),
      'local all all trust\nhostssl all all all scram-sha-256\nhost all all all reject\n',
    );
    if (process.getuid?.() === 0) {
      for (const name of ['key.pem', 'cert.pem', 'hba.conf']) chownSync(join(files, name), 65_534, 65_534);
    }
    chmodSync(join(files, 'key.pem'), 0o600);
    chmodSync(directory, 0o755);
    const port = await freePort();
    server = await EmbeddedServer.start({
      directory,
      poolSize: 10,
      durable: false,
      log: silentLog,
      settings: {
        listen_addresses: 'localhost',
        port: String(port),
        ssl: 'on',
        ssl_cert_file: join(files, 'cert.pem'),
        ssl_key_file: join(files, 'key.pem'),
        hba_file: join(files, 'hba.conf'),
      },
    });
    const { hosts, database, user } = server.connection;
    const common = { poolSize: 2, statementTimeoutMs: 5_000, applicationName: 'tls-test', database, user };
    admin = await Database.open({ ...common, hosts: [{ ...hosts[0]!, port }], password: null, ssl: false });
    await admin.query({ name: '', text: `ALTER ROLE ${user} PASSWORD '${PASSWORD.replaceAll("'", "''")}'` });
    options = {
      ...common,
      hosts: [{ host: 'localhost', port }],
      password: PASSWORD,
      ssl: { rejectUnauthorized: true, ca },
      acquireTimeoutMs: 2_000,
    };
  });
  after(async () => {
    await admin?.close();
    await server?.stop(2_000);
    rmSync(directory, { recursive: true, force: true });
  });

  test('a statement is encrypted, and so is its cancellation', async () => {
    const db = await Database.open(options);
    const tls = { name: '', text: 'SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()' };
    const [row] = await db.query<{ ssl: boolean; version: string }>(tls);
    assert.equal(row!.ssl, true);
    assert.match(row!.version, /^TLSv1\.[23]$/);
    // The server would answer a request in plain text as well; what counts is that this one arrives.
    await assert.rejects(db.query({ name: '', text: 'SELECT pg_sleep(20)' }, [], { timeoutMs: 100 }), {
      kind: 'unavailable',
      sqlState: '57014',
    });
    await db.close();
  });

  test('a certificate that nobody vouches for is refused, unless verification is off', async () => {
    await assert.rejects(
      Database.open({ ...options, ssl: { rejectUnauthorized: true } }),
      /self-signed certificate/,
    );
    const db = await Database.open({ ...options, ssl: { rejectUnauthorized: false } });
    await db.close();
  });

  test("a host that is not the certificate's is refused", async () => {
    const hosts = [{ host: '127.0.0.1', port: options.hosts[0]!.port }];
    await assert.rejects(Database.open({ ...options, hosts }), /does not match certificate/);
  });

  test('a server that takes no plain connection says so at once, and a wrong password is not shown', async () => {
    for (const wrong of [{ ssl: false as const }, { password: 'guessed-password' }, { password: null }]) {
      const started = performance.now();
      await assert.rejects(Database.open({ ...options, ...wrong, acquireTimeoutMs: 60_000 }), (error) => {
        assert.ok(error instanceof StoreError);
        assert.doesNotMatch(JSON.stringify(error) + String(error.stack), /guessed-password|battery/);
        return error.kind === 'unavailable' && error.code === 'pool';
      });
      assert.ok(performance.now() - started < 10_000);
    }
  });
});

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as { port: number };
  await new Promise<void>((resolve) => probe.close(() => resolve()));
  return port;
}
