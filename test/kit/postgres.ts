import { randomBytes } from 'node:crypto';
import { after } from 'node:test';
import { Database, type DatabaseOptions } from '../../packages/broker/src/store/database.ts';
import { atEnd, type Cleanup } from './cleanup.ts';
import { administer, SHARED_SERVER, startTestServer, type TestServer } from './server.ts';

/** A database of its own, cloned from a template that has the schema. */
export interface TestDatabase {
  readonly options: DatabaseOptions;
  /** The same as a URL, for a broker in a process of its own. */
  readonly url: string;
  /** The caller closes it; whatever is open when the database is dropped is cut. */
  open(overrides?: Partial<DatabaseOptions>): Promise<Database>;
  /** Moves `queen.clock()` of this database, for every session of it, by so many seconds; shifts add up. */
  advanceClock(seconds: number): Promise<void>;
  drop(): Promise<void>;
}

let own: Promise<{ server: TestServer; stop(): Promise<void> }> | null = null;
// Here and not at the first use: inside a test it would be that test's hook.
after(async () => {
  await (await own)?.stop();
});

/** The server of this run, or one that this process starts and stops. */
export async function testServer(): Promise<TestServer> {
  const shared = process.env[SHARED_SERVER];
  if (shared !== undefined && shared !== '') return JSON.parse(shared) as TestServer;
  own ??= startTestServer();
  return (await own).server;
}

/**
 * @param t the database is dropped when the test ends. Without it the caller drops it.
 */
export async function freshDatabase(t?: Cleanup): Promise<TestDatabase> {
  const server = await testServer();
  const name = `test_${process.pid}_${randomBytes(4).toString('hex')}`;
  await administer(server, `CREATE DATABASE ${name} TEMPLATE ${server.template} STRATEGY file_copy`);
  const options = {
    hosts: [{ host: server.host, port: server.port }],
    database: name,
    user: server.user,
    password: null,
    ssl: false,
    poolSize: 8,
    statementTimeoutMs: 10_000,
    applicationName: 'queen-test',
  } satisfies DatabaseOptions;
  let shiftSeconds = 0;
  // One after the other: two that replaced the function at once would be an error, or end in the wrong order.
  let shifted: Promise<void> = Promise.resolve();
  const database: TestDatabase = {
    options,
    url: `postgres://${server.user}@/${name}?host=${encodeURIComponent(server.host)}&port=${server.port}`,
    open: (overrides = {}) => Database.open({ ...options, ...overrides }),
    advanceClock(seconds) {
      shifted = shifted.then(() => {
        shiftSeconds += seconds;
        return administer(
          server,
          `CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
           AS $$ SELECT clock_timestamp() + interval '${Math.round(shiftSeconds * 1e6)} microseconds' $$`,
          name,
        );
      });
      return shifted;
    },
    async drop() {
      await administer(server, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    },
  };
  if (t !== undefined) atEnd(t, () => database.drop());
  return database;
}
