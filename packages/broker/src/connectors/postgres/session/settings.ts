/**
 * What a session must print and promise, whatever its role, its database or a pooler has set.
 *
 * The settings travel with the start-up message, where they win against `ALTER ROLE … SET`. They are read back all the
 * same: a pooler may have dropped them, or may hand the session's statements to a backend that has others.
 */
import { ConnectorFault } from '../fault.ts';
import type { SqlSession } from './types.ts';

export type SessionRole = 'source' | 'sink';

/** Values are printed by these; client_encoding is asked for by the protocol's own start-up field. */
export const PRINTING: Readonly<Record<string, string>> = {
  TimeZone: 'UTC',
  DateStyle: 'ISO',
  IntervalStyle: 'postgres',
  extra_float_digits: '3',
  bytea_output: 'hex',
};

/** How long anything may take is decided here, and not by what a role was given for people. */
export const PATIENCE: Readonly<Record<string, string>> = {
  statement_timeout: '0',
  lock_timeout: '0',
  idle_in_transaction_session_timeout: '0',
  idle_session_timeout: '0',
};
/** A column of a query: the same for the setting that servers before 17 do not know, and would not begin with. */
export const NO_TRANSACTION_TIMEOUT = `(SELECT pg_catalog.set_config(name, '0', false)
    FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout' AND setting <> '0')`;
/** A policy that hides rows must make the snapshot fail: the stream carries what it hides. */
const SOURCE_ONLY: Readonly<Record<string, string>> = { row_security: 'off' };
/** A commit that was acked to the queue and lost in a crash would be a lost message. */
const ASYNCHRONOUS = new Set(['off', 'local']);
const ENCODING = { name: 'client_encoding', value: 'UTF8' };

export function settingsOf(role: SessionRole): Readonly<Record<string, string>> {
  return { ...PRINTING, ...PATIENCE, ...(role === 'source' ? SOURCE_ONLY : {}) };
}

/** For the start-up field `options`. */
export function startupOptions(settings: Readonly<Record<string, string>>): string {
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');
}

/** What the server said of itself. */
export interface SessionFacts {
  readonly serverVersion: number;
}

/**
 * Reads the settings back. `bySet`: they did not travel with the start and are made here. Throws ConnectorFault
 * `postgres` when the session does not keep them.
 */
export async function settle(session: SqlSession, role: SessionRole, bySet: boolean): Promise<SessionFacts> {
  const wanted = settingsOf(role);
  if (bySet) await session.query(setAll(wanted));
  const names = Object.keys(wanted);
  const shown = [...names, ENCODING.name, 'synchronous_commit', 'server_version_num'];
  const { rows } = await session.query(
    `SELECT ${shown.map((name) => `pg_catalog.current_setting('${name}')`).join(', ')}, ${NO_TRANSACTION_TIMEOUT}`,
  );
  const values = rows[0]!;
  for (const [i, name] of names.entries()) assertKept(name, wanted[name]!, values[i] ?? '');
  assertKept(ENCODING.name, ENCODING.value, values[names.length] ?? '');
  if (role === 'sink' && ASYNCHRONOUS.has(values[names.length + 1] ?? '')) {
    await session.query(setAll({ synchronous_commit: 'on' }));
  }
  return { serverVersion: Number(values[names.length + 2]) };
}

/** Throws when a setting is not the one that was asked for. */
export function assertKept(name: string, wanted: string, found: string): void {
  // DateStyle is printed with the order of day and month, which ISO output does not depend on.
  const value = name === 'DateStyle' ? found.split(',')[0] : found;
  if (value?.toUpperCase() === wanted.toUpperCase()) return;
  throw new ConnectorFault(
    'postgres',
    `the session has ${name} = ${found} although ${wanted} was asked for: a pooler stands between that does not keep settings (session pooling is needed)`,
  );
}

function setAll(settings: Readonly<Record<string, string>>): string {
  const calls = Object.entries(settings).map(
    ([name, value]) => `pg_catalog.set_config('${name}', '${value}', false)`,
  );
  return `SELECT ${calls.join(', ')}`;
}
