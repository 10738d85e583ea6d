/** Brokers with connectors over a store of their own, and an upstream; the words to set them up and to look at them. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../../packages/broker/src/store/database.ts';
import { Client } from '../broker/client.ts';
import type { StoredMessage } from '../faults/change_events.ts';
import { readMessages } from '../faults/kills_scene.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import type { Upstream, UpstreamDatabase } from '../kit/upstream.ts';
import { FRUGAL, metric, sql } from './rig.ts';

export type Trial = Cleanup & { diagnostic(text: string): void };

export interface View {
  status: { phase: string; error: { code: string; message: string } | null };
  state: { pointer: { lsn: string; snapshot: object | null; inTxn: object | null } | null } | null;
}

export interface Letter {
  id: string;
  group: string;
  error: string;
}

const ENV = { ...FRUGAL, QUEEN_PG_RELOAD_MS: '500' };

export class Connected {
  readonly store: TestDatabase;
  readonly db: Database;
  readonly upstream: UpstreamDatabase;
  readonly #t: Cleanup;

  private constructor(t: Cleanup, store: TestDatabase, db: Database, upstream: UpstreamDatabase) {
    this.#t = t;
    this.store = store;
    this.db = db;
    this.upstream = upstream;
  }

  static async open(t: Cleanup, server: Upstream): Promise<Connected> {
    const upstream = await server.database(t);
    const store = await freshDatabase(t);
    const db = await store.open({ poolSize: 2 });
    atEnd(t, () => db.close());
    return new Connected(t, store, db, upstream);
  }

  broker(env: Record<string, string> = {}): Promise<BrokerProcess> {
    const alone = 'the trial looks at this very one';
    return startBroker({ database: this.store, env: { ...ENV, ...env }, alone }, this.#t);
  }

  connection({ server, name }: UpstreamDatabase = this.upstream): Record<string, unknown> {
    const { host, port, user } = server;
    return { host, port, user, database: name, sslMode: 'disable' };
  }

  get slot(): string {
    return `slot_${this.upstream.name}`;
  }

  /** A source named `s` of the upstream. */
  source(broker: BrokerProcess, source: Record<string, unknown>): Promise<void> {
    const block = { slot: this.slot, ...source };
    return this.put(broker, 's', { kind: 'source', connection: this.connection(), source: block });
  }

  async put(broker: BrokerProcess, name: string, document: Record<string, unknown>): Promise<void> {
    const answer = await new Client(broker.url).call('PUT', `/api/v1/connectors/${name}`, document);
    assert.equal(answer.status, 200, JSON.stringify(answer.body));
  }

  async view(broker: BrokerProcess, name = 's'): Promise<View> {
    return (await new Client(broker.url).call<View>('GET', `/api/v1/connectors/${name}`)).body;
  }

  /** Waits for a view of a connector, and says what it was when it does not come. */
  async shows(
    broker: BrokerProcess,
    what: string,
    condition: (view: View) => boolean,
    { name = 's', withinMs = 60_000 } = {},
  ): Promise<View> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      const view = await this.view(broker, name);
      if (condition(view)) return view;
      assert.ok(performance.now() < deadline, `${what}: ${JSON.stringify(view)}`);
      await sleep(50);
    }
  }

  async reaches(broker: BrokerProcess, phase: string, withinMs = 60_000): Promise<void> {
    await this.shows(broker, phase, ({ status }) => status.phase === phase, { withinMs });
  }

  messages(queue: string): Promise<StoredMessage[]> {
    return readMessages(this.db, [queue]);
  }

  /** How many messages all queues hold. */
  async stored(): Promise<number> {
    const [row] = await sql<{ messages: number }>(
      this.db,
      'SELECT coalesce(sum(last_offset + 1), 0)::bigint AS messages FROM queen.log_partitions',
    );
    return row!.messages;
  }

  /** Waits until the queues hold so many, while the broker lives. */
  async arrived(broker: BrokerProcess, messages: number, withinMs: number): Promise<void> {
    const end: { logs: string | null } = { logs: null };
    void broker.ended.then(({ logs }) => {
      end.logs = logs;
    });
    const deadline = performance.now() + withinMs;
    for (let stored = -1; stored < messages; ) {
      assert.equal(end.logs, null, `the broker ended: ${end.logs?.slice(-4_000)}`);
      assert.ok(performance.now() < deadline, `${stored} of ${messages} after ${withinMs} ms`);
      await sleep(200);
      stored = await this.stored();
    }
  }

  letters(): Promise<Letter[]> {
    return sql<Letter>(
      this.db,
      'SELECT transaction_id AS id, consumer_group AS "group", error FROM queen.log_dlq ORDER BY consumer_group, transaction_id',
    );
  }

  /** Failures that the broker has counted, of all its connectors. */
  async errors(broker: BrokerProcess): Promise<number> {
    const found = await metric(broker.url, 'queen_pg_connector_errors_total');
    return [...found.values()].reduce((sum, value) => sum + value, 0);
  }
}
