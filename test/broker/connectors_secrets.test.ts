/** Connections that fail in every way, and some that do not: the password is in nothing that anybody can read. */
import assert from 'node:assert/strict';
import { chownSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { Upstream } from '../kit/upstream.ts';
import { Client } from './client.ts';

type Json = Record<string, unknown>;

const SECRET = 'a/"hunter2"\\ é';
/** Whatever it was wrapped into, one of these would be left of it. */
const TRACES = [
  'hunter2',
  Buffer.from(SECRET).toString('base64').slice(0, -4),
  Buffer.from(SECRET).toString('hex'),
  Buffer.from('hunter2').toString('base64').slice(0, -2),
];

function message(kind: string, body: Buffer | string): Buffer {
  const bytes = Buffer.from(body);
  const head = Buffer.alloc(5);
  head.write(kind, 0, 'latin1');
  head.writeUInt32BE(bytes.length + 4, 1);
  return Buffer.concat([head, bytes]);
}

const ask = (code: number) => message('R', Buffer.from([0, 0, 0, code]));

/** Answers the first thing that it hears with `first`, and the second with what `second` makes of it. */
async function server(t: Cleanup, first: Buffer | null, second?: (heard: Buffer) => Buffer): Promise<number> {
  const sockets = new Set<Socket>();
  const listener = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('data', () => {
      if (first !== null) socket.write(first);
      socket.once('data', (heard) => void (second !== undefined && socket.end(second(heard))));
    });
  });
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  atEnd(t, () => {
    for (const socket of sockets) socket.destroy();
    listener.close();
  });
  return (listener.address() as { port: number }).port;
}

test('a password is in no answer, no log, no error, no activity of a server', async (t) => {
  const upstream = await Upstream.start({ major: 17 }, t);
  const database = await upstream.database(t);
  await database.sql(`CREATE ROLE app LOGIN SUPERUSER; CREATE TABLE t (id int PRIMARY KEY)`);
  await database.sql(`ALTER ROLE app PASSWORD '${SECRET.replaceAll("'", "''")}'`);
  const hba = join(upstream.cluster, 'pg_hba.conf');
  const { uid, gid } = statSync(hba);
  writeFileSync(hba, `local all all trust\nhost all app all scram-sha-256\n${readFileSync(hba, 'utf8')}`);
  chownSync(hba, uid, gid);
  await database.sql('SELECT pg_reload_conf()');

  const quoted = (heard: Buffer) => {
    const said = heard.subarray(5, -1);
    const fields = ['SFATAL', 'C28000', `Mno: ${said}`, `D${said}`, `Wpostgres://u:${said}@h/d`];
    return Buffer.concat([
      message('N', `SNOTICE\0C00000\0M${said}\0\0`),
      message('E', `${fields.join('\0')}\0\0`),
    ]);
  };
  const good = { host: upstream.host, port: upstream.port, database: database.name, user: 'app' };
  const at = (port: number) => ({ ...good, port, connectTimeoutMs: 1000, sslMode: 'disable' });
  const ways: Record<string, { connection: Json; expected: string }> = {
    works: { connection: good, expected: 'streaming running' },
    'wrong-user': { connection: { ...good, user: 'nobody' }, expected: 'postgres' },
    'no-database': { connection: { ...good, database: 'nothing' }, expected: 'postgres' },
    closed: { connection: at(1), expected: 'io' },
    'no-name': { connection: { ...good, host: 'nobody-has-this-name.invalid' }, expected: 'io' },
    silent: { connection: at(await server(t, null)), expected: 'io' },
    gss: { connection: at(await server(t, ask(7))), expected: 'auth_method' },
    quotes: { connection: at(await server(t, ask(3), quoted)), expected: 'postgres' },
    http: {
      connection: at(await server(t, Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'))),
      expected: 'io',
    },
    'no-tls': { connection: { ...good, sslMode: 'require' }, expected: 'io' },
  };

  const store = await freshDatabase(t);
  const start = (key: string, id: string, more: Record<string, string> = {}) =>
    startBroker(
      {
        database: store,
        env: {
          QUEEN_ENCRYPTION_KEY: key.repeat(64),
          QUEEN_PG_RELOAD_MS: '500',
          QUEEN_SERVER_ID: id,
          LOG_LEVEL: 'trace',
          ...more,
        },
        alone: 'each has a key of its own',
      },
      t,
    );
  const first = await start('a', 'first');
  const client = new Client(first.url);
  const seen: string[] = [];
  const call = async (from: Client, method: string, path: string, body?: object): Promise<Json> => {
    const answer = await from.call<Json>(method, path, body);
    seen.push(JSON.stringify(answer));
    return answer.body;
  };
  for (const [name, { connection }] of Object.entries(ways)) {
    const { host, port, user, database: db, ...rest } = connection as Record<string, string | number>;
    const url = `postgres://${user}:${encodeURIComponent(SECRET)}@${host}:${port}/${db}`;
    const source = { tables: [{ table: 't', queue: 'q' }], slot: `s_${name.replaceAll('-', '_')}` };
    const put = (kind: string, by: Json, block: Json) =>
      call(client, 'PUT', `/api/v1/connectors/${name}-${kind}`, { kind, connection: by, [kind]: block });
    await put('source', { ...connection, password: SECRET }, source);
    await put('sink', { ...rest, url }, { queue: 'q2', table: 't', mode: 'append' });
    // Refusals do not repeat what they were given.
    await put('source', { ...connection, password: `${SECRET}\0` }, source);
    await put('sink', { ...rest, url: `${url}?${encodeURIComponent(SECRET)}=1` }, source);
    await put('sink', { ...rest, url: `${url}?sslmode=x`, user: 'x' }, source);
  }

  const waiting = new Set(Object.keys(ways).flatMap((name) => [`${name}-source`, `${name}-sink`]));
  const deadline = performance.now() + 90_000;
  while (waiting.size > 0) {
    const pg = (await call(client, 'GET', '/status')).pg as {
      connectors: { name: string; phase: string; error: { code: string } | null }[];
    };
    for (const { name, phase, error } of pg.connectors) {
      const { expected } = ways[name.replace(/-(source|sink)$/, '')]!;
      if (expected.split(' ').includes(error?.code ?? phase)) waiting.delete(name);
    }
    assert.ok(performance.now() < deadline, `${[...waiting]}\n${JSON.stringify(pg)}`);
    await sleep(100);
  }
  // What the server shows to those who look at it.
  const activity = await database.sql('SELECT * FROM pg_stat_activity');
  assert.ok(
    activity.some((row) => String(row.application_name).startsWith('queen-pg/')),
    JSON.stringify(activity),
  );
  seen.push(JSON.stringify(activity));

  // Another key: nothing can be opened, and nothing is said of it.
  const second = await start('b', 'second', { QUEEN_LOG_JSON: 'true' });
  const other = new Client(second.url);
  for (;;) {
    const pg = (await call(other, 'GET', '/status')).pg as {
      connectors: { error: { code: string } | null }[];
    };
    if (
      pg.connectors.length === 2 * Object.keys(ways).length &&
      pg.connectors.every(({ error }) => error?.code === 'unseal')
    )
      break;
    assert.ok(performance.now() < deadline + 60_000, JSON.stringify(pg));
    await sleep(100);
  }
  for (const from of [client, other]) {
    await call(from, 'GET', '/api/v1/connectors');
    await call(from, 'GET', '/api/v1/connectors/quotes-source');
    seen.push(await (await fetch(`${from.url}/metrics/prometheus`)).text());
  }
  for (const broker of [first, second]) seen.push((await broker.stop()).logs);
  for (const text of seen) {
    for (const trace of TRACES) assert.ok(!text.includes(trace), `${trace} is in ${text}`);
  }
});
