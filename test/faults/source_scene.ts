/** Brokers over one store that run a source, and what has to be in its queue. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { Client } from '../broker/client.ts';
import { type BrokerProcess, startBroker } from '../kit/broker.ts';
import type { Cleanup } from '../kit/cleanup.ts';
import { freshDatabase, type TestDatabase } from '../kit/postgres.ts';
import { until } from '../kit/until.ts';
import type { Upstream, UpstreamDatabase } from '../kit/upstream.ts';

const HOOK = join(import.meta.dirname, 'fault_hook.ts');
const ENV = { QUEEN_PG_RELOAD_MS: '500', QUEEN_PG_LEASE_TTL_MS: '3000', DB_POOL_SIZE: '8' };

interface Seen {
  readonly id: string;
  readonly n: number;
}

export class SourceScene {
  readonly upstream: UpstreamDatabase;
  readonly #t: Cleanup;
  readonly #server: Upstream;
  readonly #store: TestDatabase;
  readonly #seen: Seen[] = [];
  #inserted = 0;

  private constructor(t: Cleanup, server: Upstream, upstream: UpstreamDatabase, store: TestDatabase) {
    this.#t = t;
    this.#server = server;
    this.upstream = upstream;
    this.#store = store;
  }

  /** An empty table `t`, and nobody who reads it. */
  static async open(t: Cleanup, server: Upstream): Promise<SourceScene> {
    const upstream = await server.database(t);
    await upstream.sql('CREATE TABLE t (id int PRIMARY KEY)');
    return new SourceScene(t, server, upstream, await freshDatabase(t));
  }

  /** `fault`: as the hook understands it. */
  broker(fault: string | null = null, env: Record<string, string> = {}): Promise<BrokerProcess> {
    const hooked = fault === null ? {} : { NODE_OPTIONS: `--import ${HOOK}`, QUEEN_TEST_FAULT: fault };
    return startBroker(
      { database: this.#store, env: { ...ENV, ...hooked, ...env }, alone: 'it is the one that dies' },
      this.#t,
    );
  }

  async create(
    broker: BrokerProcess,
    source: Record<string, unknown> = {},
    connection: Record<string, unknown> = {},
  ): Promise<void> {
    const { host, port, user } = this.#server;
    const { status, body } = await new Client(broker.url).call('PUT', '/api/v1/connectors/s', {
      kind: 'source',
      connection: { host, port, user, database: this.upstream.name, sslMode: 'disable', ...connection },
      source: {
        slot: `slot_${this.upstream.name}`,
        snapshot: 'never',
        tables: [{ table: 'public.t', queue: 'q', partitionBy: 'single' }],
        heartbeatSeconds: 1,
        ...source,
      },
    });
    assert.equal(status, 200, JSON.stringify(body));
  }

  async phase(broker: BrokerProcess): Promise<string> {
    const { body } = await new Client(broker.url).call<{ status: { phase: string } }>(
      'GET',
      '/api/v1/connectors/s',
    );
    return body.status.phase;
  }

  async reaches(broker: BrokerProcess, phase: string): Promise<void> {
    await until(`it is ${phase}`, async () => (await this.phase(broker)) === phase, 30_000);
  }

  /** So many transactions of one row each, numbered on. */
  async insert(rows: number): Promise<void> {
    for (let i = 0; i < rows; i++) await this.upstream.sql(`INSERT INTO t VALUES (${++this.#inserted})`);
  }

  /** So many rows in one transaction. */
  async insertAtOnce(rows: number): Promise<void> {
    const from = this.#inserted + 1;
    this.#inserted += rows;
    await this.upstream.sql(`INSERT INTO t SELECT g FROM generate_series(${from}, ${this.#inserted}) g`);
  }

  /** Waits until the queue holds every row that was inserted, and sees that each is there once and in order. */
  async assertAllOnce(broker: BrokerProcess, withinMs = 60_000): Promise<void> {
    const client = new Client(broker.url);
    const seen = this.#seen;
    const asked = { batch: 5_000, consumerGroup: 'g', subscriptionMode: 'all', autoAck: true };
    await until(
      `${this.#inserted} messages have come`,
      async () => {
        const popped = await client.pop('q', asked);
        for (const { transactionId, data } of popped) {
          seen.push({ id: transactionId, n: (data as { after: { id: number } }).after.id });
        }
        return seen.length >= this.#inserted && popped.length === 0;
      },
      withinMs,
    );
    assert.deepEqual(
      seen.map(({ n }) => n),
      Array.from({ length: this.#inserted }, (_, i) => i + 1),
    );
    assert.equal(new Set(seen.map(({ id }) => id)).size, this.#inserted);
  }
}

export async function killed(broker: BrokerProcess): Promise<void> {
  const { signal, logs } = await broker.ended;
  assert.equal(signal, 'SIGKILL', logs);
}
