/**
 * The server that a source reads from is lost, and a standby takes over its name. With the slot on the standby the source
 * goes on by itself: nothing is lost and nothing comes twice. A standby that lacks what the queues already have is not read
 * from: the source says so and waits to be told.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { DATABASE, USER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { Client } from '../broker/client.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { freshDatabase } from '../kit/postgres.ts';
import { startProxy, type TcpProxy } from '../kit/proxy.ts';
import { until } from '../kit/until.ts';
import { readEvent } from './change_events.ts';
import { readMessages } from './kills_scene.ts';
import { Node } from './nodes.ts';

const SLOT = 'promoted';
/** What a standby needs to keep the slot too. */
const SYNCHRONIZES = { sync_replication_slots: 'on', hot_standby_feedback: 'on' };
const ENV = { QUEEN_PG_RELOAD_MS: '500', DB_POOL_SIZE: '8' };

interface View {
  status: { phase: string; epoch: string; error: { code: string; message: string } | null };
}

/** A primary under a name that can move, a standby that has the slot, a source of the table `t`, and a writer. */
class Scene {
  readonly name: TcpProxy;
  readonly primary: Node;
  readonly heir: Node;
  readonly #t: Cleanup;
  #broker!: BrokerProcess;
  #store!: Awaited<ReturnType<typeof freshDatabase>>;

  private constructor(t: Cleanup, name: TcpProxy, primary: Node, heir: Node) {
    this.#t = t;
    this.name = name;
    this.primary = primary;
    this.heir = heir;
  }

  static async open(t: Cleanup): Promise<Scene> {
    const primary = await Node.first(t);
    const heir = await Node.reserved(t);
    await primary.sql('CREATE TABLE t (id int PRIMARY KEY)');
    await primary.feed(heir, SYNCHRONIZES);
    const name = await startProxy({ path: primary.socket });
    atEnd(t, () => name.close());
    const scene = new Scene(t, name, primary, heir);
    scene.#store = await freshDatabase(t);
    scene.#broker = await startBroker({ database: scene.#store, env: ENV, alone: 'it is the source' }, t);
    const { status, body } = await new Client(scene.#broker.url).call('PUT', '/api/v1/connectors/s', {
      kind: 'source',
      connection: { host: name.host, port: name.port, user: USER, database: DATABASE, sslMode: 'disable' },
      source: {
        slot: SLOT,
        tables: [{ table: 't', queue: 'q', partitionBy: 'single' }],
        heartbeatSeconds: 1,
      },
    });
    assert.equal(status, 200, JSON.stringify(body));
    await scene.shows('streaming', ({ status: { phase } }) => phase === 'streaming');
    return scene;
  }

  /** As {@link Node.feed} leaves it the standby has no slot: the server copies it when both are at the same place. */
  async slotIsThere(): Promise<void> {
    await until(
      'the standby has the slot, for good',
      async () => {
        // Slots are made to meet by what happens on the primary.
        await this.primary.sql('SELECT pg_log_standby_snapshot()');
        const [slot] = await this.heir.sql(
          `SELECT 1 FROM pg_replication_slots
            WHERE slot_name = '${SLOT}' AND synced AND NOT temporary AND invalidation_reason IS NULL`,
        );
        return slot !== undefined;
      },
      60_000,
    );
  }

  async set(setting: string, value: string): Promise<void> {
    await this.primary.sql(`ALTER SYSTEM SET ${setting} = '${value}'`);
    await this.primary.sql('SELECT pg_reload_conf()');
  }

  /** The primary is lost, and what was its name is the standby's. */
  async promote(): Promise<void> {
    await this.primary.kill();
    this.name.refuse();
    await this.heir.promote();
    this.name.redirect({ path: this.heir.socket });
    this.name.heal();
  }

  async shows(what: string, condition: (view: View) => boolean): Promise<View> {
    let view: View | undefined;
    await until(
      what,
      async () => {
        view = (await new Client(this.#broker.url).call<View>('GET', '/api/v1/connectors/s')).body;
        return condition(view);
      },
      60_000,
    ).catch((error: Error) => {
      throw new Error(`${error.message}: ${JSON.stringify(view)}`);
    });
    return view!;
  }

  resync(): Promise<{ status: number }> {
    return new Client(this.#broker.url).call('POST', '/api/v1/connectors/s/resync');
  }

  /** The rows that the queue tells of, in its order. */
  async emitted(): Promise<{ id: string; n: number; op: string }[]> {
    const db = await this.#store.open({ poolSize: 1 });
    try {
      return (await readMessages(db, ['q'])).map(({ id, text }) => {
        const { op, after } = readEvent(text);
        return { id, n: Number(after!.get('id')), op };
      });
    } finally {
      await db.close();
    }
  }

  /** Rows 1, 2, 3 … in transactions of their own, each until it is there: over the name, whoever bears it. */
  write(): { written: () => number; stop(): Promise<void> } {
    let n = 0;
    let stopped = false;
    const { host, port } = this.name;
    const write = async () => {
      let client: pg.Client | null = null;
      while (!stopped) {
        try {
          if (client === null) {
            client = new pg.Client({
              host,
              port,
              user: USER,
              database: DATABASE,
              connectionTimeoutMillis: 5_000,
            });
            client.on('error', () => {});
            await client.connect();
          }
          await client.query('INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING', [n + 1]);
          n++;
        } catch {
          client?.end().catch(() => {});
          client = null;
          await sleep(20);
        }
      }
      await client?.end();
    };
    const done = write();
    const stop = () => {
      stopped = true;
      return done;
    };
    atEnd(this.#t, stop);
    return { written: () => n, stop };
  }
}

export async function promoted(t: Cleanup & { diagnostic(text: string): void }): Promise<void> {
  const scene = await Scene.open(t);
  // No walsender shows a source what the standby does not have yet.
  await scene.set('synchronized_standby_slots', 'standby');
  const writer = scene.write();
  await scene.slotIsThere();
  const before = writer.written();
  await until('it is at work', async () => (await scene.emitted()).length > before + 200, 30_000);
  const { status } = await scene.shows('streaming', ({ status: { phase } }) => phase === 'streaming');
  const since = performance.now();
  await scene.promote();
  const at = writer.written();
  await until('the source goes on', async () => (await scene.emitted()).length > at + 100, 60_000);
  t.diagnostic(`${at} rows before, and 100 more ${Math.round(performance.now() - since)} ms after the kill`);
  await writer.stop();
  await until('all is there', async () => (await scene.emitted()).length >= writer.written(), 30_000);
  const emitted = await scene.emitted();
  assert.deepEqual(
    emitted.map(({ n }) => n),
    Array.from({ length: writer.written() }, (_, i) => i + 1),
  );
  assert.equal(new Set(emitted.map(({ id }) => id)).size, emitted.length);
  const after = await scene.shows('streaming', ({ status: { phase } }) => phase === 'streaming');
  assert.equal(after.status.epoch, status.epoch, 'it began anew');
}

export async function promotedBehind(t: Cleanup): Promise<void> {
  const scene = await Scene.open(t);
  await scene.primary.sql('INSERT INTO t SELECT generate_series(1, 10)');
  await until('ten', async () => (await scene.emitted()).length === 10, 30_000);
  await scene.slotIsThere();
  // From here on the standby falls behind, and the primary acknowledges nevertheless.
  await scene.set('synchronous_standby_names', '');
  scene.primary.network.refuse();
  await scene.primary.sql('INSERT INTO t SELECT generate_series(11, 20)');
  await until('twenty', async () => (await scene.emitted()).length === 20, 30_000);

  await scene.promote();
  await scene.heir.sql('INSERT INTO t SELECT generate_series(101, 105)');
  const { status } = await scene.shows('an error', (view) => view.status.error?.code === 'system_changed');
  assert.match(status.error!.message, /promoted without its last changes.*resync/s);
  assert.equal((await scene.emitted()).length, 20, 'it read on in another history');

  assert.equal((await scene.resync()).status, 202);
  await until('a copy of what is there', async () => (await scene.emitted()).length === 35, 60_000);
  const there = [...Array.from({ length: 10 }, (_, i) => i + 1), 101, 102, 103, 104, 105];
  assert.deepEqual(
    (await scene.emitted()).slice(20).map(({ n, op }) => [op, n]),
    there.map((n) => ['r', n]),
  );
}
