/** A database behind a connection pooler: the broker works through it, or says at its start why it cannot. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import pg from 'pg';
import { Client } from '../broker/client.ts';
import { spawnBroker, startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import { type ProxyTarget, startProxy } from '../kit/proxy.ts';
import { until } from '../kit/until.ts';
import { Upstream } from '../kit/upstream.ts';
import { Connected } from './connected.ts';
import { FRUGAL, items, metric, serverOf, txnsOf } from './rig.ts';
import { startPooler } from './transaction_pooler.ts';

const PGBOUNCER = spawnSync('pgbouncer', ['--version']).status === 0;
const WITHOUT = { skip: PGBOUNCER ? false : 'pgbouncer is not installed' };
/** All of what it needs, and what to do instead. */
const REASONS =
  /FATAL: .*pooler in (transaction|statement) mode.*advisory locks, LISTEN, prepared statements and session settings.*(PostgreSQL itself|session mode)/;

function urlOf({ options: { user, database } }: TestDatabase, at: { host: string; port: number }): string {
  return `postgres://${user}@${at.host}:${at.port}/${database}`;
}

async function assertRefused(t: Cleanup, url: string, mode: string): Promise<void> {
  const ended = await spawnBroker({ database: { url }, env: FRUGAL }, t).ended;
  assert.equal(ended.code, 1, ended.logs);
  assert.equal(REASONS.exec(ended.logs)?.[1], mode, ended.logs);
  assert.doesNotMatch(ended.logs, /listening on| {4}at /, 'it never served, and nobody has to read a stack');
}

test('a pooler in transaction mode is recognised by what it does', async (t) => {
  const database = await freshDatabase(t);
  const at = await startPooler(t, serverOf(database.options), database.options);
  // It is a pooler: statements work through it, and two clients share its connections.
  const clients = [1, 2, 3, 4].map(
    () => new pg.Client({ ...at, user: database.options.user, database: database.options.database }),
  );
  await Promise.all(clients.map((client) => client.connect()));
  const pids = await Promise.all(
    clients.map(async (client) => (await client.query('SELECT pg_backend_pid() AS pid')).rows[0].pid),
  );
  assert.equal(new Set(pids).size, 2);
  await Promise.all(clients.map((client) => client.end()));
  await assertRefused(t, urlOf(database, at), 'transaction');
});

for (const [mode, settings] of [
  ['transaction', ''],
  ['statement', ''],
] as const) {
  test(`pgbouncer in ${mode} mode ${settings}`, WITHOUT, async (t) => {
    const database = await freshDatabase(t);
    await assertRefused(t, urlOf(database, await bouncer(t, pooled(database), mode, settings)), mode);
  });
}

test('pgbouncer in session mode serves', WITHOUT, async (t) => {
  const database = await freshDatabase(t);
  const url = urlOf(database, await bouncer(t, pooled(database), 'session', 'default_pool_size = 60'));
  const env = { ...FRUGAL, DB_POOL_SIZE: '6' };
  const brokers = await Promise.all([1, 2].map(() => startBroker({ database: { url }, env }, t)));
  const [first, second] = brokers.map((broker) => new Client(broker.url)) as [Client, Client];
  await first.push(items('pooled', ['a', 'b']));
  const held = await second.pop('pooled', { wait: true, timeout: 10_000 });
  assert.deepEqual(txnsOf(held), ['a', 'b']);
  assert.ok((await first.ackBatch(held)).every(({ success }) => success));
  // Parked on one, pushed on the other: LISTEN gets through.
  const parked = second.pop('pooled', { wait: true, timeout: 20_000 });
  await until('it is parked', async () => (await metric(second.url, 'queen_parked_long_polls')).size > 0);
  await first.push(items('pooled', ['c'], 'other'));
  assert.deepEqual(txnsOf(await parked), ['c']);
  for (const broker of brokers) assert.equal((await broker.stop()).code, 0);
});

test(
  'connectors behind pgbouncer in session mode: a sink works, a source says that it cannot',
  WITHOUT,
  async (t) => {
    const server = await Upstream.start({ major: 17 }, t);
    const scene = await Connected.open(t, server);
    const { upstream } = scene;
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE copy (id int PRIMARY KEY)');
    const { host, port, user } = server;
    const at = await bouncer(t, { server: { host, port }, user, database: upstream.name }, 'session', '');
    const connection = { ...scene.connection(), ...at };
    const broker = await scene.broker();
    await scene.put(broker, 'in', {
      kind: 'sink',
      connection,
      sink: { queue: 'q', table: 'copy', mode: 'upsert' },
    });
    await scene.put(broker, 'out', {
      kind: 'source',
      connection,
      source: { slot: scene.slot, tables: [{ table: 't', queue: 'changes' }] },
    });
    await new Client(broker.url).push(
      items('q', ['a', 'b']).map((item, id) => ({ ...item, payload: { id } })),
    );
    await until('rows come through', async () => (await upstream.sql('TABLE copy')).length === 2);
    const { status } = await scene.shows(broker, 'out', (view) => view.status.error !== null, {
      name: 'out',
    });
    assert.match(status.error!.message, /pooler/);
    assert.equal((await scene.view(broker, 'in')).status.error, null);
  },
);

function pooled({ options }: TestDatabase): Pooled {
  return { server: serverOf(options), user: options.user, database: options.database };
}

interface Pooled {
  server: ProxyTarget;
  user: string;
  database: string;
}

async function bouncer(
  t: Cleanup,
  { server, user, database: name }: Pooled,
  mode: string,
  settings: string,
): Promise<{ host: string; port: number }> {
  const directory = mkdtempSync(join(tmpdir(), 'queen-pooler-'));
  // The socket of the server lies where the pooler's account may not look.
  const proxy = await startProxy(server);
  atEnd(t, () => proxy.close());
  const port = await freePort();
  writeFileSync(join(directory, 'users.txt'), `"${user}" ""\n`);
  writeFileSync(
    join(directory, 'pgbouncer.ini'),
    `[databases]
${name} = host=${proxy.host} port=${proxy.port} user=${user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
auth_file = ${directory}/users.txt
pool_mode = ${mode}
${settings}
`,
  );
  chmodSync(directory, 0o755);
  // It refuses to run as root.
  const account = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  const child = spawn('pgbouncer', [join(directory, 'pgbouncer.ini')], {
    ...account,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  atEnd(t, () => {
    child.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  });
  let log = '';
  await new Promise<void>((resolve, reject) => {
    child.stderr!.on('data', (chunk) => {
      log += chunk;
      if (/process up/.test(log)) resolve();
    });
    child.once('exit', () => reject(new Error(log)));
  });
  return { host: '127.0.0.1', port };
}

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise<void>((resolve) => probe.close(() => resolve()));
  return port;
}
