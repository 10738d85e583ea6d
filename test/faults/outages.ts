/** A PostgreSQL of the test's own, that can go away for a while and whose backends can be shot at. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { EmbeddedServer } from '../../packages/broker/src/store/embedded/server.ts';
import { atEnd, type Cleanup } from '../kit/cleanup.ts';

const QUIET = { info() {}, warn() {}, error() {} };

export class OwnServer {
  readonly directory: string;
  #server: EmbeddedServer | null = null;
  #admin: pg.Client | null = null;

  static async start(t: Cleanup): Promise<OwnServer> {
    const server = new OwnServer(mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`)));
    atEnd(t, async () => {
      await server.stop();
      rmSync(server.directory, { recursive: true, force: true });
    });
    await server.resume();
    return server;
  }

  private constructor(directory: string) {
    this.directory = directory;
  }

  get url(): string {
    const { hosts, database, user } = this.#server!.connection;
    return `postgres://${user}@/${database}?host=${encodeURIComponent(hosts[0]!.host)}&port=${hosts[0]!.port}`;
  }

  get options() {
    const { hosts, database, user } = this.#server!.connection;
    const fixed = { password: null, ssl: false, poolSize: 2, statementTimeoutMs: 10_000 } as const;
    return { hosts, database, user, ...fixed, applicationName: 'test' };
  }

  /** Sessions end in the middle of what they are at; after `graceMs` the server does, without a checkpoint. */
  async stop(graceMs: number = 500): Promise<void> {
    await this.#admin?.end().catch(() => {});
    this.#admin = null;
    await this.#server?.stop(graceMs);
    this.#server = null;
  }

  async resume(): Promise<void> {
    this.#server = await EmbeddedServer.start({ directory: this.directory, poolSize: 60, log: QUIET });
  }

  /** Ends one session of a broker, at random. False: there is none, or the server is away. */
  async shootOne(): Promise<boolean> {
    const rows = await this.sql(
      `SELECT pg_terminate_backend(pid) AS shot FROM pg_stat_activity
        WHERE application_name LIKE 'queen%' AND backend_type = 'client backend' ORDER BY random() LIMIT 1`,
    ).catch(() => []);
    return rows.length > 0;
  }

  async sql(text: string): Promise<Record<string, unknown>[]> {
    if (this.#admin === null) {
      const { hosts, database, user } = this.#server!.connection;
      const admin = new pg.Client({ host: hosts[0]!.host, port: hosts[0]!.port, database, user });
      admin.on('error', () => {
        this.#admin = null;
      });
      await admin.connect();
      this.#admin = admin;
    }
    return (await this.#admin.query(text)).rows as Record<string, unknown>[];
  }
}
