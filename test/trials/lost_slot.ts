/** Every way to lose a slot: it is said by its name, nothing is skipped, and a new beginning works. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '../broker/client.ts';
import { readEvent } from '../faults/change_events.ts';
import { until } from '../kit/until.ts';
import type { Upstream, UpstreamDatabase } from '../kit/upstream.ts';
import { Connected, type Trial } from './connected.ts';

export interface Loss {
  readonly name: string;
  readonly code: string;
  /** What the sentence says of the reason, if the server knows it. */
  readonly says: RegExp;
  readonly since: 17 | 18;
  readonly happen: (upstream: UpstreamDatabase, slot: string) => Promise<void>;
}

async function configured(
  { server }: UpstreamDatabase,
  setting: string,
  value: string,
  work: () => Promise<unknown>,
): Promise<void> {
  await server.administer(`ALTER SYSTEM SET ${setting} = '${value}'`);
  await server.administer('SELECT pg_reload_conf()');
  try {
    await work();
  } finally {
    await server.administer(`ALTER SYSTEM RESET ${setting}`);
    await server.administer('SELECT pg_reload_conf()');
  }
}

async function invalidated(upstream: UpstreamDatabase, slot: string): Promise<string | null> {
  const [row] = await upstream.sql(
    'SELECT invalidation_reason AS why FROM pg_replication_slots WHERE slot_name = $1',
    [slot],
  );
  return row!.why as string | null;
}

export const LOSSES: readonly Loss[] = [
  {
    name: 'invalidated by its size',
    code: 'slot_invalidated',
    says: /wal_removed/,
    since: 17,
    happen: (upstream, slot) =>
      configured(upstream, 'max_slot_wal_keep_size', '64MB', async () => {
        await upstream.sql('CREATE TABLE filler (v text)');
        await until('the server has given it up', async () => {
          await upstream.sql("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 20000)");
          await upstream.sql('SELECT pg_switch_wal()');
          await upstream.sql('CHECKPOINT');
          return (await invalidated(upstream, slot)) !== null;
        });
      }),
  },
  {
    name: 'invalidated by its idleness',
    code: 'slot_invalidated',
    says: /idle_timeout/,
    since: 18,
    happen: (upstream, slot) =>
      configured(upstream, 'idle_replication_slot_timeout', '1s', () =>
        until('the server has given it up', async () => {
          await upstream.sql('CHECKPOINT');
          return (await invalidated(upstream, slot)) !== null;
        }),
      ),
  },
  {
    name: 'dropped',
    code: 'slot_lost',
    says: /is gone/,
    since: 17,
    happen: async (upstream, slot) => {
      await upstream.sql('SELECT pg_drop_replication_slot($1)', [slot]);
    },
  },
  {
    name: 'dropped and made again, ahead of the pointer',
    code: 'slot_ahead',
    says: /was confirmed up to/,
    since: 17,
    happen: async (upstream, slot) => {
      await upstream.sql('SELECT pg_drop_replication_slot($1)', [slot]);
      await upstream.sql("SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, false, true)", [
        slot,
      ]);
    },
  },
];

export async function lostSlot(t: Trial, server: Upstream, loss: Loss): Promise<void> {
  const scene = await Connected.open(t, server);
  const { upstream, slot } = scene;
  await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
  const insert = (from: number, to: number) =>
    upstream.sql(`INSERT INTO t SELECT generate_series(${from}, ${to})`);
  const first = await scene.broker();
  const source = { tables: [{ table: 't', queue: 'q', partitionBy: 'single' }] };
  await scene.source(first, source);
  await scene.reaches(first, 'streaming');
  await insert(1, 10);
  await scene.arrived(first, 10, 30_000);
  assert.equal((await first.stop()).code, 0);

  await insert(11, 20);
  await loss.happen(upstream, slot);
  await insert(21, 30);
  // Nobody is told of its end.
  await upstream.sql('DELETE FROM t WHERE id IN (5, 15)');
  const second = await scene.broker();
  const { status, state } = await scene.shows(second, loss.code, (view) => Boolean(view.status.error));
  assert.equal(status.error!.code, loss.code, status.error!.message);
  assert.match(status.error!.message, loss.says);
  assert.match(status.error!.message, /resync/);
  await insert(31, 32);
  // Another look, which a document causes at once, finds the same.
  const looks = await scene.errors(second);
  await scene.source(second, source);
  await until('it has looked again', async () => (await scene.errors(second)) > looks);
  const still = await scene.view(second);
  assert.deepEqual([still.status.phase, still.status.error?.code], ['error', loss.code]);
  assert.deepEqual(still.state?.pointer, state?.pointer);
  assert.equal(await scene.stored(), 10, 'a gap that nobody sees');

  assert.equal((await new Client(second.url).call('POST', '/api/v1/connectors/s/resync')).status, 202);
  await scene.reaches(second, 'streaming');
  await insert(33, 35);
  const there = Array.from({ length: 35 }, (_, i) => i + 1).filter((id) => id !== 5 && id !== 15);
  await scene.arrived(second, 10 + there.length, 30_000);
  const messages = await scene.messages('q');
  assert.deepEqual(
    messages.slice(10).map(({ text }) => {
      const { op, after } = readEvent(text);
      return [Number(after!.get('id')), op];
    }),
    there.map((id) => [id, id <= 32 ? 'r' : 'c']),
  );
  assert.equal(new Set(messages.map(({ id }) => id)).size, messages.length);
  assert.equal((await scene.view(second)).status.error, null);
  assert.equal((await second.stop()).code, 0);
}

/** A source whose tables are idle is not an idle slot. */
export async function idleSource(t: Trial, server: Upstream): Promise<void> {
  const scene = await Connected.open(t, server);
  const { upstream, slot } = scene;
  await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
  const broker = await scene.broker();
  await scene.source(broker, { tables: [{ table: 't', queue: 'q' }] });
  await scene.reaches(broker, 'streaming');
  await configured(upstream, 'idle_replication_slot_timeout', '1s', async () => {
    for (let second = 0; second < 4; second++) {
      await sleep(1_000);
      await upstream.sql('CHECKPOINT');
      assert.equal(await invalidated(upstream, slot), null);
    }
  });
  await upstream.sql('INSERT INTO t VALUES (1)');
  await scene.arrived(broker, 1, 30_000);
  assert.equal(await scene.errors(broker), 0);
  assert.equal((await broker.stop()).code, 0);
}
