/**
 * Brings the database to the schema of this broker, at boot.
 *
 * - Several brokers may boot at once: a session advisory lock lets one work and the others wait. They poll
 *   for it instead of blocking in it, since a blocked statement holds a snapshot, for which an index that is
 *   being built CONCURRENTLY by the holder would wait in turn.
 * - A file whose text is recorded as applied is skipped, so that the boot of all but the first broker is two
 *   reads.
 * - Every statement is idempotent and a transaction of its own. Each waits for locks at most two seconds at a
 *   time: DDL that waits longer queues every later reader of the table behind it.
 * - A newer broker may have been here. Its schema is never taken back to this one's; if it is marked as
 *   breaking for older brokers, this one refuses to start.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type { Connection } from './connection.ts';
import { type DatabaseOptions, sessionOptions } from './database.ts';
import type { StoreLog } from './log.ts';
import { Primary } from './primary.ts';
import { applyStatement } from './schema_statement.ts';
import { checkServer } from './server.ts';
import { splitStatements } from './statements.ts';

/**
 * Raised by every release that changes a file under sql/. `breaking`: brokers of older versions must not run
 * against it; the last release before it then has to be stopped everywhere first.
 */
export const SCHEMA_VERSION: { readonly version: number; readonly breaking: boolean } = {
  version: 1,
  breaking: false,
};

const ADVISORY_KEY = 778_120_010;
const LOCK_POLL_MS = 200;
const LOCK_WAIT_MS = 600_000;

export interface SchemaFile {
  readonly name: string;
  readonly text: string;
}

export interface SchemaTuning {
  readonly files?: readonly SchemaFile[];
  readonly version?: { readonly version: number; readonly breaking: boolean };
  /** How long one statement is tried for. Default 180,000. */
  readonly statementRetryMs?: number;
  /** How long another broker's work is waited for. Default 600,000. */
  readonly lockWaitMs?: number;
}

/**
 * Applies what is missing. Throws a SchemaError with a sentence for the operator when the server is too old,
 * when the schema is newer and breaking, or when a statement cannot get its lock; a StoreError otherwise.
 */
export async function applySchema(
  options: DatabaseOptions,
  log: StoreLog,
  tuning: SchemaTuning = {},
): Promise<void> {
  const files = tuning.files ?? (await readSchemaFiles());
  const version = tuning.version ?? SCHEMA_VERSION;
  const primary = new Primary(options.hosts, sessionOptions(options), log);
  const connection = await primary.connect();
  try {
    await checkServer(connection);
    if (await upToDate(connection, files, version, log)) return;
    await command(connection, "SET statement_timeout = 0; SET lock_timeout = '2s'");
    await takeLock(connection, tuning.lockWaitMs ?? LOCK_WAIT_MS, log);
    if (await upToDate(connection, files, version, log)) return;
    const retryMs = tuning.statementRetryMs ?? 180_000;
    const apply = (text: string, where: string) =>
      applyStatement({ connection, observe: () => primary.connect(), log, retryMs }, text, where);
    await dropInvalidIndexes(connection, apply);
    await applyFiles(connection, files, apply, log);
    await command(
      connection,
      `INSERT INTO queen.schema_version (version, breaking) VALUES (${version.version}, ${version.breaking})
         ON CONFLICT (version) DO NOTHING`,
    );
  } finally {
    await connection.close();
  }
}

/** For a broker that does not apply the schema itself: throws a SchemaError when it must not run against it. */
export async function checkSchema(options: DatabaseOptions, log: StoreLog): Promise<void> {
  const connection = await new Primary(options.hosts, sessionOptions(options), log).connect();
  try {
    await checkServer(connection);
    const state = await readState(connection);
    if (state.versions.length === 0) {
      throw new SchemaError(
        'schema_missing',
        'the database has no Queen schema and QUEEN_APPLY_SCHEMA is off: apply it, or switch it on',
      );
    }
    refuseBreaking(state, SCHEMA_VERSION.version);
  } finally {
    await connection.close();
  }
}

export class SchemaError extends Error {
  readonly code: string;

  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'SchemaError';
    this.code = code;
  }
}

export async function readSchemaFiles(): Promise<SchemaFile[]> {
  const directory = new URL('./sql/', import.meta.url);
  const names = (await readdir(directory)).filter((name) => /^\d{3}_\w+\.sql$/.test(name)).sort();
  return Promise.all(
    names.map(async (name) => ({ name, text: await readFile(new URL(name, directory), 'utf8') })),
  );
}

interface SchemaState {
  readonly exists: boolean;
  readonly hashes: ReadonlyMap<string, string>;
  readonly versions: readonly { version: number; breaking: boolean }[];
}

async function readState(connection: Connection): Promise<SchemaState> {
  const [tables] = (await command(
    connection,
    `SELECT to_regnamespace('queen') IS NOT NULL AS queen, to_regclass('queen.schema_files') IS NOT NULL AS files,
            to_regclass('queen.schema_version') IS NOT NULL AS version`,
  )) as { queen: boolean; files: boolean; version: boolean }[];
  const files = tables!.files
    ? ((await command(connection, 'SELECT name, sha256 FROM queen.schema_files')) as {
        name: string;
        sha256: string;
      }[])
    : [];
  const versions = tables!.version
    ? ((await command(
        connection,
        'SELECT version, breaking FROM queen.schema_version',
      )) as SchemaState['versions'])
    : [];
  return { exists: tables!.queen, hashes: new Map(files.map((file) => [file.name, file.sha256])), versions };
}

async function upToDate(
  connection: Connection,
  files: readonly SchemaFile[],
  version: { readonly version: number },
  log: StoreLog,
): Promise<boolean> {
  const state = await readState(connection);
  refuseBreaking(state, version.version);
  const newest = Math.max(0, ...state.versions.map((row) => row.version));
  if (newest > version.version) {
    log.info(
      { database: newest, broker: version.version },
      'the schema belongs to a newer broker and is left as it is',
    );
    return true;
  }
  return (
    newest === version.version && files.every((file) => state.hashes.get(file.name) === sha256(file.text))
  );
}

function refuseBreaking(state: SchemaState, version: number): void {
  const breaking = state.versions.filter((row) => row.breaking && row.version > version);
  if (breaking.length === 0) return;
  const newest = Math.max(...breaking.map((row) => row.version));
  throw new SchemaError(
    'schema_too_new',
    `the database has schema version ${newest}, which brokers of schema version ${version} must not use: upgrade this broker`,
  );
}

async function takeLock(connection: Connection, waitMs: number, log: StoreLog): Promise<void> {
  const deadline = performance.now() + waitMs;
  for (let waited = false; ; waited = true) {
    const [row] = (await command(connection, `SELECT pg_try_advisory_lock(${ADVISORY_KEY}) AS held`)) as {
      held: boolean;
    }[];
    if (row!.held) return;
    if (!waited) log.info({}, 'another broker is applying the schema; waiting for it');
    if (performance.now() > deadline) {
      throw new SchemaError('schema_locked', `another session has held the schema lock for ${waitMs} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, LOCK_POLL_MS));
  }
}

/**
 * CREATE INDEX CONCURRENTLY that was interrupted leaves an index that costs every write and serves no read,
 * and whose name makes IF NOT EXISTS skip the next try.
 */
async function dropInvalidIndexes(
  connection: Connection,
  apply: (text: string, where: string) => Promise<void>,
): Promise<void> {
  const rows = (await command(
    connection,
    `SELECT c.oid::regclass::text AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
      WHERE c.relnamespace = to_regnamespace('queen') AND NOT i.indisvalid
        AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = c.oid)`,
  )) as { name: string }[];
  for (const { name } of rows) await apply(`DROP INDEX CONCURRENTLY IF EXISTS ${name}`, 'invalid index');
}

const BOOKKEEPING = [
  `CREATE TABLE IF NOT EXISTS queen.schema_files (
     name text PRIMARY KEY, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
  `CREATE TABLE IF NOT EXISTS queen.schema_version (
     version int PRIMARY KEY, breaking boolean NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
];

async function applyFiles(
  connection: Connection,
  files: readonly SchemaFile[],
  apply: (text: string, where: string) => Promise<void>,
  log: StoreLog,
): Promise<void> {
  const state = await readState(connection);
  // IF NOT EXISTS would still ask for the right to create schemas, which a prepared role need not have.
  if (!state.exists) await apply('CREATE SCHEMA IF NOT EXISTS queen', 'bookkeeping');
  for (const text of BOOKKEEPING) await apply(text, 'bookkeeping');
  const started = performance.now();
  const applied: string[] = [];
  for (const file of files) {
    const hash = sha256(file.text);
    if (state.hashes.get(file.name) === hash) continue;
    for (const statement of splitStatements(file.text)) {
      if (state.exists && /^CREATE SCHEMA IF NOT EXISTS queen$/im.test(statement.text)) continue;
      await apply(statement.text, `${file.name}:${statement.line}`);
    }
    await connection.run(
      {
        name: '',
        text: `INSERT INTO queen.schema_files (name, sha256) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET sha256 = excluded.sha256, applied_at = clock_timestamp()`,
      },
      [file.name, hash],
      { timeoutMs: 30_000, position: 'alone' },
    );
    applied.push(file.name);
  }
  // The names only where they are few: an upgrade's, not a first start's.
  const facts = state.exists ? { files: applied.join(' ') } : { files: applied.length };
  log.info({ ...facts, ms: Math.round(performance.now() - started) }, 'schema applied');
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Several statements may be given, separated by "; " (none of them with a semicolon inside). */
async function command(connection: Connection, text: string): Promise<object[]> {
  let rows: object[] = [];
  for (const part of text.split('; ')) {
    rows = await connection.run({ name: '', text: part }, [], { timeoutMs: 30_000, position: 'alone' });
  }
  return rows;
}
