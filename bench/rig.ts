/**
 * The set-up of a run: a PostgreSQL that is as durable as the one a broker brings (fsync and synchronous_commit
 * on), and a real broker in a process of its own. Everything lies in one directory that goes away at the end.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { Database, statement } from '../packages/broker/src/store/database.ts';
import { EmbeddedServer } from '../packages/broker/src/store/embedded/server.ts';
import { type BrokerProcess, startBroker } from '../test/kit/broker.ts';
import { type Answer, HttpConnection, openConnections } from './http.ts';
import { assertStored, PushBody, partitionName, payload } from './messages.ts';

const POOL_SIZE = 100;
/** Clock ticks a second in /proc/<pid>/stat; the same on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;
const PAGE_BYTES = 4096;

export interface Machine {
  cpu: string;
  cores: number;
  memoryGb: number;
  node: string;
  postgres: string;
}

const quiet = {
  info() {},
  warn() {},
  error(facts: object, message: string) {
    console.error(message, facts);
  },
};

const EXTENSION = statement('bench_extension', 'CREATE EXTENSION IF NOT EXISTS pg_stat_statements');

export class Rig {
  readonly broker: BrokerProcess;
  readonly machine: Machine;
  readonly #directory: string;
  readonly #server: EmbeddedServer;

  static async start(): Promise<Rig> {
    const directory = mkdtempSync(join(tmpdir(), 'queen-bench-'));
    const server = await EmbeddedServer.start({
      directory,
      poolSize: 2 * POOL_SIZE,
      log: quiet,
      // Counts the statements of the idle workload; about a percent for everybody, the floor included.
      settings: { shared_preload_libraries: 'pg_stat_statements' },
    });
    try {
      const at = server.connection.hosts[0]!;
      const broker = await startBroker({
        database: {
          url: `postgres://${server.connection.user}@/${server.connection.database}?host=${encodeURIComponent(at.host)}&port=${at.port}`,
        },
        env: {
          DB_POOL_SIZE: process.env.DB_POOL_SIZE ?? '',
          LOG_LEVEL: process.env.LOG_LEVEL ?? 'info',
          // A plan's limits are not what is measured.
          QUEEN_KV_READS_PER_SEC: '0',
          QUEEN_KV_WRITES_PER_SEC: '0',
        },
      });
      return new Rig(directory, server, broker);
    } catch (error) {
      await server.stop();
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
  }

  private constructor(directory: string, server: EmbeddedServer, broker: BrokerProcess) {
    this.#directory = directory;
    this.#server = server;
    this.broker = broker;
    const cores = cpus();
    this.machine = {
      cpu: cores[0]?.model.trim() ?? 'unknown',
      cores: cores.length,
      memoryGb: Math.round(totalmem() / 2 ** 30),
      node: process.version,
      postgres: server.version,
    };
  }

  /** Straight to the database, beside the broker. The caller closes it. */
  async database(poolSize: number): Promise<Database> {
    const { hosts, database, user } = this.#server.connection;
    const db = await Database.open({
      hosts,
      database,
      user,
      password: null,
      ssl: false,
      poolSize,
      statementTimeoutMs: 60_000,
      applicationName: 'queen-bench',
    });
    await db.query(EXTENSION);
    return db;
  }

  connections(count: number): Promise<HttpConnection[]> {
    return openConnections(this.broker.port, count);
  }

  async configure(queue: string, options: Record<string, unknown>): Promise<void> {
    await this.ask('POST', '/api/v1/configure', { queue, options });
  }

  async deleteQueue(queue: string): Promise<void> {
    await this.ask('DELETE', `/api/v1/resources/queues/${queue}`);
  }

  /** What the broker answers, null when there is nothing; throws unless it carried it out. */
  async ask(method: string, path: string, body?: unknown): Promise<Record<string, unknown>> {
    const bytes = body === undefined ? null : Buffer.from(JSON.stringify(body));
    const answer = await this.#request(method, path, bytes);
    if (answer.status >= 300) throw new Error(`${method} ${path} answered ${answer.status}: ${answer.body}`);
    return JSON.parse(answer.body.toString() || 'null');
  }

  /** On a connection of its own: a measurement lasts longer than the broker keeps an idle one. */
  async #request(method: string, path: string, body: Buffer | null = null): Promise<Answer> {
    const connection = await HttpConnection.open(this.broker.port);
    try {
      return await connection.request(method, path, body);
    } finally {
      connection.close();
    }
  }

  /** Creates the partitions by one message to each, so that no measurement pays for their creation. */
  async provision(queue: string, partitions: number): Promise<void> {
    for (let from = 0; from < partitions; from += 500) {
      const items = Array.from({ length: Math.min(500, partitions - from) }, (_, i) => ({
        queue,
        partition: partitionName(from + i),
        payload: JSON.parse(payload(i)),
      }));
      assertStored(await this.#request('POST', '/api/v1/push', Buffer.from(JSON.stringify({ items }))), 0);
    }
  }

  /** A queue with warm partitions, and it is gone again after `work`. */
  async withQueue<T>(
    queue: string,
    partitions: number,
    options: Record<string, unknown>,
    work: () => Promise<T>,
  ): Promise<T> {
    await this.configure(queue, options);
    try {
      await this.provision(queue, partitions);
      return await work();
    } finally {
      await this.deleteQueue(queue);
    }
  }

  /** Resident memory of the broker, bytes. */
  brokerMemory(): number {
    return Number(readFileSync(`/proc/${this.broker.pid}/statm`, 'latin1').split(' ')[1]) * PAGE_BYTES;
  }

  /** Processor time that the broker has used, seconds. */
  brokerCpuSeconds(): number {
    const stat = readFileSync(`/proc/${this.broker.pid}/stat`, 'latin1');
    // The name in parentheses may hold anything; user and system time are the 12th and 13th field behind it.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  }

  async stop(): Promise<void> {
    await this.broker.stop();
    await this.#server.stop();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** A loop's step: one push of a stamped body to a partition of its turn. */
export function pushSteps(
  queue: string,
  connections: readonly HttpConnection[],
  partitions: number,
  batch: number,
): (worker: number) => Promise<number> {
  const bodies = connections.map((_, worker) => new PushBody(queue, batch, worker));
  let turn = 0;
  return async (worker) => {
    const body = bodies[worker]!.stamp(turn++ % partitions);
    assertStored(await connections[worker]!.request('POST', '/api/v1/push', body), turn);
    return batch;
  };
}
