/** A sink whose statement adds to balances, so that whatever is applied twice, or not at all, shows. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cleanup } from '../kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import type { Upstream, UpstreamDatabase } from '../kit/upstream.ts';
import type { Chance } from './seed.ts';
import { SupervisedBroker } from './supervisor.ts';

export const SINK_ENV = { QUEEN_ENCRYPTION_KEY: '00'.repeat(32), QUEEN_PG_RELOAD_MS: '500' };
const STATEMENT = 'UPDATE balance SET n = n + $1::numeric, times = times + 1 WHERE id = $2::int';

async function ask(url: string, method: string, path: string, body?: unknown): Promise<unknown> {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return text === '' ? null : JSON.parse(text);
}

interface Scene {
  readonly store: TestDatabase;
  readonly target: UpstreamDatabase;
}

export async function scene(t: Cleanup, server: Upstream, partitions: number): Promise<Scene> {
  const store = await freshDatabase(t);
  const target = await server.database(t);
  await target.sql(`CREATE TABLE balance (id int PRIMARY KEY, n numeric NOT NULL DEFAULT 0, times int NOT NULL DEFAULT 0);
    INSERT INTO balance SELECT i FROM generate_series(0, ${partitions - 1}) i`);
  return { store, target };
}

export function createSink(
  url: string,
  target: UpstreamDatabase,
  sink: Record<string, unknown>,
): Promise<unknown> {
  const { host, port, user } = target.server;
  return ask(url, 'PUT', '/api/v1/connectors/payments', {
    kind: 'sink',
    connection: { host, port, database: target.name, user, password: 'unused', sslMode: 'disable' },
    sink: {
      queue: 'payments',
      table: 'public.balance',
      mode: 'sql',
      statement: STATEMENT,
      params: ['$.n', '$.id'],
      leaseSeconds: 5,
      ...sink,
    },
  });
}

export async function push(url: string, messages: number, partitions: number): Promise<void> {
  for (let from = 0; from < messages; from += 1000) {
    const items = Array.from({ length: Math.min(1000, messages - from) }, (_, i) => {
      const id = (from + i) % partitions;
      return { queue: 'payments', partition: `p${id}`, payload: { n: from + i + 0.25, id } };
    });
    await ask(url, 'POST', '/api/v1/push', { items });
  }
}

export async function settled(target: UpstreamDatabase, messages: number, withinMs: number): Promise<void> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const [row] = await target.sql('SELECT sum(times)::int AS times FROM balance');
    if (Number(row!.times) >= messages) return;
    assert.ok(performance.now() < deadline, `${row!.times} of ${messages} after ${withinMs} ms`);
    await sleep(50);
  }
}

export async function assertExact(
  target: UpstreamDatabase,
  messages: number,
  partitions: number,
): Promise<void> {
  const expected = Array.from({ length: partitions }, (_, id) => {
    let n = 0;
    let times = 0;
    for (let i = id; i < messages; i += partitions) {
      n += i + 0.25;
      times++;
    }
    return { id, n, times };
  });
  assert.deepEqual(await target.sql('SELECT id, n::float8 AS n, times FROM balance ORDER BY id'), expected);
}

/** Brokers are killed in turns, at moments of chance, while they drain the messages. */
export async function killThrough(
  t: Cleanup,
  server: Upstream,
  chance: Chance,
  { messages, partitions, kills }: { messages: number; partitions: number; kills: number },
): Promise<void> {
  const { store, target } = await scene(t, server, partitions);
  const start = (name: string) => SupervisedBroker.start({ name, database: store, env: SINK_ENV }, t);
  const brokers = [await start('one'), await start('two')];
  await createSink(brokers[0]!.url, target, { batch: 100, workers: 2 });
  await push(brokers[1]!.url, messages, partitions);
  for (let kill = 0; kill < kills; kill++) {
    await sleep(chance.integer(0, 600));
    const victim = brokers[kill % 2]!;
    await victim.kill();
    await victim.settled();
  }
  await settled(target, messages, 120_000);
  // Whatever still comes back has come by then.
  await sleep(6_000);
  await assertExact(target, messages, partitions);
  for (const broker of brokers) assert.deepEqual(broker.unexpected, []);
}
