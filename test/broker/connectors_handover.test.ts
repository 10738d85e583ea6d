/** The life of a source on two brokers: handed over, changed, switched off and on, begun anew, taken down. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startBroker } from '../kit/broker.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';
import { Upstream } from '../kit/upstream.ts';
import { Client } from './client.ts';

type Json = Record<string, unknown>;

const TTL_MS = 6_000;

test('a source goes from broker to broker and from document to document, each change once', async (t) => {
  const upstream = await Upstream.start({ major: 17 }, t);
  const source = await upstream.database(t);
  await source.sql('CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, $$a$$)');
  const database = await freshDatabase(t);
  const env = { QUEEN_PG_RELOAD_MS: '500', QUEEN_PG_LEASE_TTL_MS: String(TTL_MS) };
  const start = (id: string) =>
    startBroker({ database, env: { ...env, QUEEN_SERVER_ID: id }, alone: 'the test starts both' }, t);
  const brokers = { a: await start('a'), b: await start('b') };
  const clients = { a: new Client(brokers.a.url), b: new Client(brokers.b.url) };
  const { host, port, user } = upstream;
  const DOCUMENT = {
    kind: 'source',
    connection: { host, port, user, database: source.name, sslMode: 'disable' },
    source: { tables: [{ table: 't', queue: 'q' }] },
  };
  const put = await clients.a.call('PUT', '/api/v1/connectors/src', DOCUMENT);
  assert.equal(put.status, 200, JSON.stringify(put.body));
  const look = async (node: 'a' | 'b') =>
    (
      await clients[node].call<{ status: Json; state: { lease: Json | null } }>(
        'GET',
        '/api/v1/connectors/src',
      )
    ).body;
  const owner = await until('somebody streams', async () => {
    for (const node of ['a', 'b'] as const) if ((await look(node)).status.phase === 'streaming') return node;
    return null;
  });
  const other = owner === 'a' ? 'b' : 'a';
  const standing = await until('the other stands by', async () => {
    const seen = await look(other);
    return seen.status.phase === 'standby' ? seen : null;
  });
  assert.deepEqual([standing.status.owner, standing.state.lease?.node], [owner, owner]);
  const ids: unknown[] = [];
  const pop = async (node: 'a' | 'b', wanted: number) => {
    await until(`${wanted} messages`, async () => {
      const messages = await clients[node].pop('q', {
        batch: 10,
        partitions: 10,
        consumerGroup: 'g',
        subscriptionMode: 'all',
        autoAck: true,
      });
      ids.push(...messages.map(({ data }) => (data as { key: { id: number } }).key.id));
      return ids.length >= wanted ? true : null;
    });
  };
  await pop(other, 1);

  const ended = await brokers[owner].stop();
  assert.equal(ended.code, 0, ended.logs);
  // It does not wait for the lease to end: there is none of the old owner any more.
  assert.notEqual((await look(other)).state.lease?.node, owner);
  await source.sql('INSERT INTO t VALUES (2, $$b$$)');
  await pop(other, 2);
  assert.deepEqual(ids, [1, 2]);

  // Another document: the old unit ends, the new one goes on where it was.
  const phase = (wanted: string, more: (seen: Json) => boolean = () => true) =>
    until(wanted, async () => {
      const { status } = await look(other);
      return status.phase === wanted && more(status) ? status : null;
    });
  const change = (document: Json) => clients[other].call('PUT', '/api/v1/connectors/src', document);
  const before = await phase('streaming');
  assert.equal((await change({ ...DOCUMENT, source: { ...DOCUMENT.source, lingerMs: 0 } })).status, 200);
  await phase('streaming', ({ since }) => since !== before.since);
  await source.sql('INSERT INTO t VALUES (3, $$c$$)');
  await pop(other, 3);
  // Switched off: slot and lease are free, and what happens meanwhile comes later.
  await change({ ...DOCUMENT, enabled: false });
  await phase('disabled');
  const [slot] = await source.sql('SELECT active FROM pg_replication_slots');
  assert.deepEqual([slot!.active, (await look(other)).state.lease], [false, null]);
  await source.sql('INSERT INTO t VALUES (4, $$d$$)');
  await change(DOCUMENT);
  await pop(other, 4);
  assert.deepEqual(ids, [1, 2, 3, 4]);
  // Anew: the rows that are there, under another epoch.
  const { epoch } = (await look(other)).status;
  assert.equal((await clients[other].call('POST', '/api/v1/connectors/src/resync')).status, 202);
  await pop(other, 8);
  assert.deepEqual([...ids.slice(4)].sort(), [1, 2, 3, 4]);
  assert.notEqual((await look(other)).status.epoch, epoch);

  // And it is taken down with everything that it made.
  assert.equal((await clients[other].call('DELETE', '/api/v1/connectors/src')).status, 202);
  await until(
    'it is gone',
    async () => (await clients[other].call('GET', '/api/v1/connectors/src')).status === 404,
  );
  const left = await source.sql(
    'SELECT (SELECT count(*) FROM pg_replication_slots)::int AS slots, (SELECT count(*) FROM pg_publication)::int AS publications',
  );
  assert.deepEqual(left, [{ slots: 0, publications: 0 }]);
});
