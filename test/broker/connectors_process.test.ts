/** Connectors of whole brokers: what one is told the other does, what is shown of them, and that no password leaves. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../packages/broker/src/config.ts';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';
import { Client } from './client.ts';

type Json = Record<string, unknown>;

const SECRET = 'hunter2-geheim';
const ENV = { QUEEN_ENCRYPTION_KEY: '0123456789abcdef'.repeat(4), QUEEN_PG_RELOAD_MS: '500' };
// Nobody listens there.
const CONNECTION = {
  host: '127.0.0.1',
  port: 1,
  database: 'd',
  user: 'u',
  password: SECRET,
  sslMode: 'disable',
};
const SOURCE = { kind: 'source', connection: CONNECTION, source: { tables: [{ table: 't', queue: 'q' }] } };
const SINK = {
  kind: 'sink',
  connection: { url: `postgres://u:${SECRET}@127.0.0.1:1/d?sslmode=disable` },
  sink: { queue: 'q', table: 't', mode: 'append' },
};

test('two brokers and one that runs none: status, metrics, and no password anywhere', async (t) => {
  const database = await freshDatabase(t);
  const start = (env: Record<string, string> = {}) =>
    startBroker({ database, env: { ...ENV, ...env }, alone: 'the test starts its brokers itself' }, t);
  const brokers = [
    await start(),
    await start({ QUEEN_SERVER_ID: 'other', QUEEN_PG_ALLOW_PRIVATE_NETWORKS: 'false' }),
    await start({ QUEEN_PG_CONNECTORS: 'false', QUEEN_PG_THREADS: '3' }),
  ];
  const clients = brokers.map(({ url }) => new Client(url));
  const answers: string[] = [];
  const ask = async (client: Client, method: string, path: string, body?: object) => {
    const answer = await client.call<Json>(method, path, body);
    answers.push(JSON.stringify(answer));
    return answer;
  };
  const [first, second, idle] = clients as [Client, Client, Client];
  assert.equal((await ask(first, 'PUT', '/api/v1/connectors/src', SOURCE)).status, 200);
  assert.equal((await ask(idle, 'PUT', '/api/v1/connectors/snk', SINK)).status, 200);

  const pg = async (client: Client) => (await ask(client, 'GET', '/status')).body.pg as Json;
  for (const client of [first, second]) {
    await until('both are tried', async () => {
      const connectors = (await pg(client)).connectors as Json[];
      return connectors.length === 2 && connectors.every(({ generation }) => (generation as number) >= 1);
    });
  }
  const failing = await until('an error is shown', async () => {
    for (const client of [first, second]) {
      const { body } = await ask(client, 'GET', '/api/v1/connectors/snk');
      const status = body.status as Json;
      if (status.phase === 'error') return status;
    }
    return null;
  });
  const error = failing.error as Json;
  assert.equal(typeof error.code, 'string');
  assert.match(error.at as string, /^\d{4}-\d\d-\d\dT.*Z$/);

  // Where private networks are closed, nothing there is taken or dialled.
  const closed = await ask(second, 'PUT', '/api/v1/connectors/src', SOURCE);
  assert.deepEqual([closed.status, closed.body.code], [400, 'egress_refused']);
  await until('a closed network is shown', async () => {
    const { status } = (await ask(second, 'GET', '/api/v1/connectors/snk')).body;
    return ((status as Json).error as Json | null)?.code === 'egress';
  });

  const off = await pg(idle);
  assert.deepEqual(
    [off.mode, off.phase, off.threads, off.reloadMs, off.documentsError, off.connectors],
    ['in-process', 'disabled', 3, 500, null, []],
  );
  const { body } = await ask(idle, 'GET', '/api/v1/connectors');
  for (const each of body.connectors as Json[]) assert.deepEqual(each.status, { phase: 'unknown' });

  const scrape = async (client: Client) => (await fetch(`${client.url}/metrics/prometheus`)).text();
  const text = await scrape(first);
  answers.push(text);
  assert.match(text, /^queen_pg_connector_owner\{connector="src"\} 0$/m);
  assert.match(text, /^queen_pg_connector_errors_total\{connector="snk"\} \d+$/m);
  assert.doesNotMatch(await scrape(idle), /queen_pg_/);

  // Gone everywhere, with its numbers.
  await ask(second, 'DELETE', '/api/v1/connectors/src?dropSlot=false');
  await ask(second, 'DELETE', '/api/v1/connectors/snk');
  for (const client of [first, second]) {
    await until('nothing runs', async () => ((await pg(client)).connectors as Json[]).length === 0);
    assert.doesNotMatch(await scrape(client), /queen_pg_/);
  }
  for (const broker of brokers) {
    const ended = await broker.stop();
    assert.equal(ended.code, 0, ended.logs);
    answers.push(ended.logs);
  }
  for (const answer of answers) assert.ok(!answer.includes(SECRET) && !answer.includes('v1.'), answer);
});

test('a value out of range stops the boot and names the range', () => {
  for (const [name, value, range] of [
    ['QUEEN_PG_THREADS', '17', '1..16'],
    ['QUEEN_PG_RELOAD_MS', '499', '500..60000'],
    ['QUEEN_PG_LEASE_TTL_MS', '2999', '3000..120000'],
    ['QUEEN_PG_SHUTDOWN_GRACE_MS', '-1', '0..120000'],
    ['QUEEN_PG_CONNECTORS', 'maybe', 'true'],
  ] as const) {
    const loaded = loadConfig({ DATABASE_URL: 'postgres://u@h/d', [name]: value });
    assert.ok(!loaded.ok && loaded.faults.length === 1, name);
    const fault = loaded.faults[0]!;
    assert.ok(fault.includes(name) && fault.includes(value) && fault.includes(range), fault);
  }
});
