/**
 * Recognises a connection pooler that hands one server connection to several clients (pgbouncer with
 * pool_mode = transaction or statement, and its like).
 *
 * Queen cannot work through one: the schema is applied under a session advisory lock, wakes arrive by
 * LISTEN, statements are prepared by name, and the session settings that bound every lock are made once a
 * connection. All of these belong to one server connection, which such a pooler takes away after each
 * transaction. A pooler in session mode is fine.
 *
 * How it shows: the process id that came with the connection's cancel key is not that of the backend, so
 * something terminates the protocol in between. Then two clients decide: a second one that opens a
 * transaction is given the very backend that the first one, still connected, has just used; or the first
 * one meets another backend than before.
 */
import type { Connection } from './connection.ts';
import { ServerRequirementError, StoreError } from './errors.ts';

const ROUNDS = 4;
const TIMEOUT_MS = 5_000;
const BACKEND = { name: '', text: 'SELECT pg_backend_pid() AS pid' };
const ROLLBACK = { name: '', text: 'ROLLBACK' };

/** Throws a ServerRequirementError when the two connections share backends; `first` last used `firstPid`. */
export async function refuseSharedBackends(
  first: Connection,
  firstPid: number,
  second: Connection,
): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    const held = await openTransaction(second);
    const now = await backendOf(first, 'inside');
    await second.run(ROLLBACK, [], { timeoutMs: TIMEOUT_MS, position: 'inside' });
    if (held === firstPid || now !== firstPid) throw pooled('transaction');
  }
}

async function openTransaction(connection: Connection): Promise<number> {
  try {
    return await backendOf(connection, 'begin');
  } catch (error) {
    // pgbouncer: "transaction blocks not allowed in statement pooling mode".
    if (error instanceof StoreError && /statement pooling/.test(error.message)) throw pooled('statement');
    throw error;
  }
}

async function backendOf(connection: Connection, position: 'begin' | 'inside'): Promise<number> {
  const [row] = (await connection.run(BACKEND, [], { timeoutMs: TIMEOUT_MS, position })) as { pid: number }[];
  return row!.pid;
}

function pooled(mode: string): ServerRequirementError {
  return new ServerRequirementError(
    'pooler_mode',
    `the database is reached through a connection pooler in ${mode} mode, where one server connection serves several ` +
      'clients: Queen needs session advisory locks, LISTEN, prepared statements and session settings, which do not ' +
      'survive there. Point it at PostgreSQL itself, or at a pool in session mode',
  );
}
