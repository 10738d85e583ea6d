import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { atEnd, type Cleanup } from '../../../../test/kit/cleanup.ts';
import { CLUSTER } from '../../src/store/embedded/cluster.ts';
import type { EmbeddedLog } from '../../src/store/embedded/failure.ts';
import { killLeftOvers } from '../../src/store/embedded/processes.ts';
import {
  type EmbeddedConnection,
  type EmbeddedOptions,
  EmbeddedServer,
} from '../../src/store/embedded/server.ts';

/** A directory that goes away with the test, whatever still runs in it. */
export function temporaryDirectory(t: Cleanup, parent: string = tmpdir()): string {
  const directory = mkdtempSync(join(parent, `queen-test-${process.pid}-`));
  atEnd(t, async () => {
    await killLeftOvers(join(directory, CLUSTER));
    rmSync(directory, { recursive: true, force: true });
  });
  return directory;
}

/** A log that a test can read: `level message`. */
export function recorder(): EmbeddedLog & { lines: string[] } {
  const lines: string[] = [];
  const at =
    (level: string) =>
    (_facts: object, message: string): void => {
      lines.push(`${level} ${message}`);
    };
  return { lines, info: at('info'), warn: at('warn'), error: at('error') };
}

/**
 * A server, stopped with the test. Not durable unless the options say so: a killed process loses nothing that
 * the system has, and the fsyncs of a new database take seconds on a busy disk.
 */
export async function startServer(
  t: Cleanup,
  directory: string,
  options: Partial<EmbeddedOptions> = {},
): Promise<EmbeddedServer> {
  const server = await EmbeddedServer.start({
    directory,
    poolSize: 10,
    durable: false,
    log: recorder(),
    ...options,
  });
  atEnd(t, () => server.stop(2_000));
  return server;
}

/** One statement on a connection of its own. */
export async function sql(connection: EmbeddedConnection, text: string): Promise<Record<string, unknown>[]> {
  const { host, port } = connection.hosts[0]!;
  const client = new pg.Client({ host, port, user: connection.user, database: connection.database });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}
