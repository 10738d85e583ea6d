/** A database of its own for what connectors read and write: on the network, durable, with logical decoding. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseWritten } from '../packages/broker/src/connectors/postgres/document/parse.ts';
import type { SinkDocument } from '../packages/broker/src/connectors/postgres/document/types.ts';
import { PgDialler } from '../packages/broker/src/connectors/postgres/session/dialler.ts';
import type { SqlSession } from '../packages/broker/src/connectors/postgres/session/types.ts';
import { EmbeddedServer } from '../packages/broker/src/store/embedded/server.ts';

const HOST = '127.0.0.1';
const quiet = { info() {}, warn() {}, error() {} };

export class ConnectorTarget {
  readonly connection: Readonly<Record<string, unknown>>;
  readonly #directory: string;
  readonly #server: EmbeddedServer;

  static async start(): Promise<ConnectorTarget> {
    const directory = mkdtempSync(join(tmpdir(), 'queen-bench-'));
    const port = await freePort();
    const settings = { listen_addresses: HOST, port: String(port), wal_level: 'logical' };
    const server = await EmbeddedServer.start({ directory, poolSize: 60, log: quiet, settings });
    return new ConnectorTarget(directory, server, port);
  }

  private constructor(directory: string, server: EmbeddedServer, port: number) {
    this.#directory = directory;
    this.#server = server;
    const { user } = server.connection;
    this.connection = { host: HOST, port, database: 'postgres', user, sslMode: 'disable' };
  }

  /** As the API takes it, settled. */
  document(sink: Record<string, unknown>): SinkDocument {
    return parseWritten({ kind: 'sink', connection: this.connection, sink }, 'bench')
      .document as SinkDocument;
  }

  /** A session like those of a sink. The caller closes it. */
  session(): Promise<SqlSession> {
    const { connection } = this.document({ queue: 'q', table: 't', mode: 'append' });
    return new PgDialler({ connection, password: () => '', allowPrivate: true }).sql('bench', 'sink');
  }

  async stop(): Promise<void> {
    await this.#server.stop();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

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
