import { readFileSync } from 'node:fs';
import type { ConnectorSpec } from '@queen-mq/client';
import { usage } from '../exit.ts';

/**
 * A connector document as brokers show it: with its defaults, its URL taken apart, and without a password. This is for telling
 * what a change would do before it is made; the broker decides what a document means, and a test holds this against one.
 */
export type Shown = Record<string, unknown>;
type Members = Record<string, unknown>;

/** Of a document what a broker adds to it. */
const ADDED = ['name', 'status', 'state', 'updatedAt', 'resyncRequestedAt', 'deleting'];

/** What brokers show of a stored document, as far as it was written. */
export function shownOf(stored: object): Shown {
  const { connection, ...rest } = stored as Members;
  const { passwordSet: _, ...parts } = connection as Members;
  return { ...without(rest, ADDED), connection: parts };
}

/** What they would show of one that is to be written. */
export function completed(name: string, spec: Members): Shown {
  const { kind, enabled = true, connection, source, sink } = without(spec, ADDED);
  const shown = { kind, enabled, connection: connectionOf(membersOf(connection)) };
  if (kind === 'source') return { ...shown, source: sourceOf(name, membersOf(source)) };
  return { ...shown, sink: sinkOf(name, membersOf(sink)) };
}

function connectionOf(connection: Members): Members {
  const { url, password: _, passwordSet: __, ...parts } = connection;
  const folded = typeof url === 'string' ? { ...urlParts(url), ...parts } : parts;
  return { port: 5432, sslMode: 'prefer', connectTimeoutMs: 10_000, ...folded };
}

function sourceOf(name: string, { tables, ...rest }: Members): Members {
  const slot = `queen_${name.replaceAll('-', '_')}`;
  const listed = Array.isArray(tables) ? tables : [];
  return {
    tables: listed.map((each) => {
      const { table, ...more } = membersOf(each);
      return { table: qualified(table), partitionBy: 'key', ...more };
    }),
    slot,
    publication: slot,
    managePublication: true,
    snapshot: 'initial',
    snapshotChunkRows: 2000,
    maxBundleMessages: 1000,
    maxBundleBytes: 4_194_304,
    lingerMs: 20,
    heartbeatSeconds: 10,
    onTruncate: 'skip',
    ...rest,
  };
}

function sinkOf(name: string, { table, metadata, ...rest }: Members): Members {
  return {
    consumerGroup: `pg-${name}`,
    subscriptionMode: 'all',
    batch: 500,
    workers: 1,
    leaseSeconds: 60,
    maxAttempts: 3,
    progressTable: 'queen.sink_progress',
    createProgressTable: true,
    ...rest,
    table: qualified(table),
    ...(Object.keys(membersOf(metadata)).length === 0 ? {} : { metadata }),
  };
}

function qualified(table: unknown): unknown {
  return typeof table === 'string' && !table.includes('.') ? `public.${table}` : table;
}

/** Parameters of a URL, and the members that they set. */
const PARAMETERS: Readonly<Record<string, string>> = {
  sslmode: 'sslMode',
  host: 'host',
  dbname: 'database',
  user: 'user',
};

/** The members that a URL stands for; one that cannot be taken apart stays, for the broker to judge. */
function urlParts(text: string): Members {
  let url: URL;
  try {
    url = new URL(text);
    const parts: Members = {};
    if (url.hostname !== '') parts.host = url.hostname;
    if (url.port !== '') parts.port = Number(url.port);
    if (url.username !== '') parts.user = decodeURIComponent(url.username);
    if (url.pathname.length > 1) parts.database = decodeURIComponent(url.pathname.slice(1));
    for (const [name, value] of url.searchParams) {
      const member = PARAMETERS[name];
      if (member !== undefined) parts[member] = value;
      else if (name === 'connect_timeout') parts.connectTimeoutMs = Number(value) * 1000;
      else if (name === 'port') parts.port = Number(value);
    }
    return parts;
  } catch {
    return { url: '(a URL)' };
  }
}

/** Whether a document has a password of its own; without one the stored one stays. */
export function hasPassword({ connection }: ConnectorSpec): boolean {
  const { password, url } = connection;
  if (password !== undefined && password !== null) return true;
  return url !== undefined && /^[a-z]+:\/\/[^/?]*:[^/?]*@|[?&]password=/.test(url);
}

/**
 * A document with its password put in from where it is kept: `passwordEnv` names a variable, `passwordFile` a file.
 *
 * @throws Failure when there is none
 */
export function withSecret(spec: Members, where: string): ConnectorSpec {
  const { connection } = spec;
  if (typeof connection !== 'object' || connection === null) throw usage(`${where}: connection is a mapping`);
  const { passwordEnv, passwordFile, ...parts } = connection as Members;
  const given = [parts.password, passwordEnv, passwordFile].filter((each) => each !== undefined);
  if (given.length > 1) throw usage(`${where}: connection has one of password, passwordEnv, passwordFile`);
  const secret =
    passwordEnv !== undefined
      ? fromEnvironment(passwordEnv, where)
      : passwordFile !== undefined
        ? fromFile(passwordFile, where)
        : undefined;
  return {
    ...spec,
    connection: { ...parts, ...(secret === undefined ? {} : { password: secret }) },
  } as ConnectorSpec;
}

function fromEnvironment(name: unknown, where: string): string {
  if (typeof name !== 'string') throw usage(`${where}: passwordEnv is the name of a variable`);
  const value = process.env[name];
  if (value === undefined || value === '') throw usage(`${where}: the variable ${name} has no password`);
  return value;
}

function fromFile(path: unknown, where: string): string {
  if (typeof path !== 'string') throw usage(`${where}: passwordFile is the path of a file`);
  try {
    return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    throw usage(`${where}: passwordFile cannot be read: ${(error as Error).message}`);
  }
}

function membersOf(value: unknown): Members {
  return typeof value === 'object' && value !== null ? without(value as Members, []) : {};
}

/** Without some members, and without what is null, which is as good as absent. */
function without(members: Members, names: readonly string[]): Members {
  return Object.fromEntries(
    Object.entries(members).filter(
      ([name, value]) => !names.includes(name) && value !== null && value !== undefined,
    ),
  );
}
