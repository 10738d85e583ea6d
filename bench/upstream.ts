/** A database that the broker captures, and a reader of the same changes that decodes them and throws them away. */

import type { ReplicationConnection } from '../packages/broker/src/connectors/postgres/replication/connection.ts';
import { decodePgoutput } from '../packages/broker/src/connectors/postgres/replication/pgoutput.ts';
import { PgDialler } from '../packages/broker/src/connectors/postgres/session/dialler.ts';
import { Upstream, type UpstreamDatabase } from '../test/kit/upstream.ts';
import { HttpConnection } from './http.ts';
import type { Rig } from './rig.ts';

export interface SourceStatus {
  phase: string;
  messages?: number;
  error: { code: string; message: string } | null;
}

const PUBLICATION = 'bench';
const WITHIN_MS = 600_000;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export class BenchUpstream {
  readonly database: UpstreamDatabase;
  readonly #server: Upstream;
  readonly #rig: Rig;
  readonly #connection: HttpConnection;

  static async start(rig: Rig): Promise<BenchUpstream> {
    const server = await Upstream.start({
      major: 18,
      settings: { shared_buffers: '256MB', max_wal_size: '8GB', logical_decoding_work_mem: '256MB' },
    });
    return new BenchUpstream(
      rig,
      server,
      await server.database(),
      await HttpConnection.open(rig.broker.port),
    );
  }

  private constructor(rig: Rig, server: Upstream, database: UpstreamDatabase, connection: HttpConnection) {
    this.#rig = rig;
    this.#server = server;
    this.database = database;
    this.#connection = connection;
  }

  async close(): Promise<void> {
    this.#connection.close();
    await this.#server.remove();
  }

  /** A table that everybody may see the changes of: 4 columns, about 100 bytes a row. */
  async table(): Promise<void> {
    await this.database.sql(
      `CREATE TABLE t (id bigint PRIMARY KEY, q int, k text, v text); CREATE PUBLICATION ${PUBLICATION} FOR TABLE t`,
    );
  }

  /** Rows of the table, as a query over `g`. */
  static readonly ROWS = `g, g % 10, 'key-' || g, repeat(md5(g::text), 2)`;

  async put(name: string, source: Record<string, unknown>, enabled = true): Promise<void> {
    const { host, port, user } = this.#server;
    const body = Buffer.from(
      JSON.stringify({
        kind: 'source',
        enabled,
        connection: { host, port, user, database: this.database.name, sslMode: 'disable' },
        source: {
          tables: [{ table: 'public.t', queue: name }],
          publication: PUBLICATION,
          managePublication: false,
          ...source,
        },
      }),
    );
    const { status, body: answer } = await this.#connection.request(
      'PUT',
      `/api/v1/connectors/${name}`,
      body,
    );
    if (status !== 200) throw new Error(`PUT answered ${status}: ${answer}`);
  }

  async status(name: string): Promise<SourceStatus> {
    const { body } = await this.#connection.request('GET', `/api/v1/connectors/${name}`);
    return (JSON.parse(body.toString()) as { status: SourceStatus }).status;
  }

  /** When its status was as asked, by this process's clock. */
  async reached(name: string, good: (status: SourceStatus) => boolean, lookMs = 5): Promise<number> {
    const end = performance.now() + WITHIN_MS;
    for (;;) {
      const status = await this.status(name);
      if (good(status)) return performance.now();
      if (status.phase === 'error' || performance.now() > end) {
        throw new Error(`${name}: ${JSON.stringify(status)}\n${this.#rig.broker.logs().slice(-2_000)}`);
      }
      await pause(lookMs);
    }
  }

  /** Removes the connector, its slot and its queue. */
  async remove(name: string): Promise<void> {
    await this.#connection.request('DELETE', `/api/v1/connectors/${name}`);
    for (;;) {
      const { status } = await this.#connection.request('GET', `/api/v1/connectors/${name}`);
      if (status === 404) break;
      await pause(20);
    }
    await this.#rig.deleteQueue(name);
  }

  replication(): Promise<ReplicationConnection> {
    const { host, port, user } = this.#server;
    const connection = {
      host,
      port,
      user,
      database: this.database.name,
      passwordSealed: null,
      sslMode: 'disable' as const,
      sslRootCert: null,
      connectTimeoutMs: 10_000,
    };
    const dialler = new PgDialler({ connection, password: () => null, allowPrivate: true });
    return dialler.replication('queen-bench');
  }

  async slot(name: string): Promise<void> {
    await this.database.sql(`SELECT pg_create_logical_replication_slot('${name}', 'pgoutput')`);
  }

  async dropSlot(name: string): Promise<void> {
    // The sender of a connection that was closed takes a moment to go.
    await this.database.sql(
      `SELECT pg_terminate_backend(active_pid, 30000) FROM pg_replication_slots
        WHERE slot_name = '${name}' AND active_pid IS NOT NULL`,
    );
    await this.database.sql(`SELECT pg_drop_replication_slot('${name}')`);
  }

  /** Reads `rows` inserts of a slot, decodes them and throws them away: seconds from the first to the last. */
  async bareRead(slot: string, rows: number, each?: (id: string) => void): Promise<number> {
    const connection = await this.replication();
    let first = 0;
    let seen = 0;
    try {
      return await new Promise<number>((resolve, reject) => {
        const handler = {
          data(bytes: Buffer, from: number, to: number): void {
            const message = decodePgoutput(bytes, from, to);
            if (message.kind !== 'insert') return;
            if (seen++ === 0) first = performance.now();
            const { after } = message;
            each?.(after.bytes.toString('latin1', after.starts[0], after.ends[0]));
            if (seen === rows) resolve((performance.now() - first) / 1000);
          },
          keepalive(): void {},
        };
        connection
          .start({ slot, publication: PUBLICATION, from: 0n }, handler)
          .then(() => connection.ended())
          .catch(reject);
      });
    } finally {
      await connection.close();
    }
  }
}
