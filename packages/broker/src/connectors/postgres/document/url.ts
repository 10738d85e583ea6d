/**
 * `postgres://user:password@host:port/database?sslmode=require` as the fields that it sets.
 *
 * The last `@` ends the credentials, so a password may hold one unescaped; a plus stays a plus. What is wrong is told
 * without quoting the URL, which may hold a password.
 */

export interface UrlFields {
  host?: string;
  port?: number;
  database?: string;
  user?: string;
  /** '' removes the stored one. */
  password?: string;
  sslMode?: string;
  connectTimeoutMs?: number;
}

const SCHEME = /^postgres(?:ql)?:\/\//;
const PARAMETERS: Readonly<Record<string, keyof UrlFields>> = {
  sslmode: 'sslMode',
  connect_timeout: 'connectTimeoutMs',
  host: 'host',
  port: 'port',
  dbname: 'database',
  user: 'user',
  password: 'password',
};
const PORT = /^[0-9]{1,5}$/;
const PORT_MAX = 65_535;
const SECONDS = /^[0-9]{1,9}$/;

/** What is wrong with a URL, without its subject. */
export class UrlFault extends Error {}

/** Throws UrlFault. The values are not judged beyond their form. */
export function parseUrl(url: string): UrlFields {
  const scheme = SCHEME.exec(url);
  if (scheme === null) throw new UrlFault('must begin with postgres:// or postgresql://');
  const rest = url.slice(scheme[0].length);
  const authorityEnd = rest.search(/[/?]/);
  const authority = authorityEnd < 0 ? rest : rest.slice(0, authorityEnd);
  const tail = authorityEnd < 0 ? '' : rest.slice(authorityEnd);
  const queryAt = tail.indexOf('?');
  const path = queryAt < 0 ? tail : tail.slice(0, queryAt);

  const fields: UrlFields = {};
  const at = authority.lastIndexOf('@');
  if (at >= 0) readCredentials(authority.slice(0, at), fields);
  readHost(authority.slice(at + 1), fields);
  if (path.length > 1) fields.database = decode(path.slice(1), 'the database');
  if (queryAt >= 0) readParameters(tail.slice(queryAt + 1), fields);
  return fields;
}

function readCredentials(credentials: string, fields: UrlFields): void {
  const colon = credentials.indexOf(':');
  const user = colon < 0 ? credentials : credentials.slice(0, colon);
  if (user !== '') fields.user = decode(user, 'the user');
  if (colon >= 0) fields.password = decode(credentials.slice(colon + 1), 'the password');
}

function readHost(text: string, fields: UrlFields): void {
  if (text.includes(',')) throw new UrlFault('names more than one host');
  const bracket = text.startsWith('[') ? text.indexOf(']') : -1;
  if (text.startsWith('[') && bracket < 0) throw new UrlFault('has a host without its closing bracket');
  const colon = text.indexOf(':', bracket + 1);
  const host = colon < 0 ? text : text.slice(0, colon);
  if (bracket >= 0 && host.length !== bracket + 1)
    throw new UrlFault('has characters behind the bracket of its host');
  if (host !== '') fields.host = host;
  if (colon < 0) return;
  if (host === '') throw new UrlFault('has a port and no host');
  fields.port = port(text.slice(colon + 1));
}

function readParameters(query: string, fields: UrlFields): void {
  if (query === '') return;
  for (const pair of query.split('&')) {
    const equals = pair.indexOf('=');
    const name = equals < 0 ? pair : pair.slice(0, equals);
    const field = Object.hasOwn(PARAMETERS, name) ? PARAMETERS[name]! : null;
    if (field === null) throw new UrlFault(`has the parameter ${shown(name)}, which is not supported`);
    if (equals < 0) throw new UrlFault(`has the parameter ${name} without a value`);
    if (fields[field] !== undefined) throw new UrlFault(`gives ${field} twice`);
    const value = decode(pair.slice(equals + 1), `the parameter ${name}`);
    if (field === 'port') fields.port = port(value);
    else if (field === 'connectTimeoutMs') fields.connectTimeoutMs = milliseconds(value);
    else fields[field] = value;
  }
}

function port(text: string): number {
  const value = PORT.test(text) ? Number(text) : 0;
  if (value < 1 || value > PORT_MAX) throw new UrlFault(`has a port that is not in 1..=${PORT_MAX}`);
  return value;
}

function milliseconds(text: string): number {
  if (!SECONDS.test(text)) throw new UrlFault('has a connect_timeout that is not in whole seconds');
  return Number(text) * 1000;
}

function decode(text: string, what: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new UrlFault(`has a percent escape in ${what} that is none, or is not UTF-8`);
  }
}

/** A name that may be anything, even the rest of a password with a `?` in it: only what looks like a parameter's. */
function shown(name: string): string {
  return /^[a-z_]{1,32}$/.test(name) ? name : 'of that name';
}
