/** The block `connection` of a document: by its fields or by a URL that is folded into them. */
import { X509Certificate } from 'node:crypto';
import { isIPv6 } from 'node:net';
import {
  type Check,
  described,
  dropped,
  Faults,
  integer,
  type Members,
  object,
  oneOf,
  optional,
  text,
} from './reading.ts';
import type { ConnectionSettings, SslMode } from './types.ts';
import { parseUrl, UrlFault, type UrlFields } from './url.ts';

export type PasswordChange =
  | { readonly kind: 'keep' }
  | { readonly kind: 'remove' }
  | { readonly kind: 'set'; readonly password: string };

export interface ConnectionDraft {
  readonly settings: ConnectionSettings;
  readonly password: PasswordChange;
}

const HOST_BYTES_MAX = 253;
const NAME_BYTES_MAX = 63;
const PASSWORD_BYTES_MAX = 1024;
const DEFAULTS = { port: 5432, sslMode: 'prefer', connectTimeoutMs: 10_000 } as const;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g;

const host = text(hostFault, { minLength: 1, maxLength: HOST_BYTES_MAX });
const port = integer(1, 65_535);
const roleOrDatabase = text(
  (name) => {
    if (name === '') return 'must not be empty';
    if (CONTROL.test(name)) return 'must not contain control characters';
    return Buffer.byteLength(name) > NAME_BYTES_MAX ? `must have at most ${NAME_BYTES_MAX} bytes` : null;
  },
  { minLength: 1, maxLength: NAME_BYTES_MAX },
);
const password = text(
  (value) => {
    if (value.includes('\0')) return 'must not contain NUL';
    return Buffer.byteLength(value) > PASSWORD_BYTES_MAX
      ? `must have at most ${PASSWORD_BYTES_MAX} bytes`
      : null;
  },
  { maxLength: PASSWORD_BYTES_MAX },
);
const sslMode = oneOf('disable', 'prefer', 'require', 'verify-full');
const connectTimeoutMs = integer(1000, 120_000);
const sslRootCert = text((pem) => {
  const certificates = pem.match(CERTIFICATE) ?? [];
  if (certificates.length === 0) return 'must be PEM with at least one certificate';
  return certificates.every(parses) ? null : 'has a certificate that cannot be read';
});

const COMMON = {
  host: optional(host),
  port: optional(port),
  database: optional(roleOrDatabase),
  user: optional(roleOrDatabase),
  sslMode: optional(sslMode),
  sslRootCert: optional(sslRootCert),
  connectTimeoutMs: optional(connectTimeoutMs),
};
const WRITTEN = {
  ...COMMON,
  url: optional(text(() => null)),
  password: optional(password),
  passwordSet: dropped,
};
const STORED = { ...COMMON, passwordSealed: optional(text(() => null)) };

const written = object(WRITTEN);

/** As somebody sends it. */
export const writtenConnection: Check<ConnectionDraft> = described(written.schema!, (value, path, faults) => {
  const given = written(value, path, faults)!;
  const members = given.url === undefined ? given : foldUrl(given, given.url, path, faults);
  const settings = settle(members, path, faults);
  const secret = members.password;
  if (secret === undefined) return { settings, password: { kind: 'keep' } };
  return { settings, password: secret === '' ? { kind: 'remove' } : { kind: 'set', password: secret } };
});

/** As it is stored. */
export const storedConnection: Check<ConnectionDraft> = (value, path, faults) => {
  const given = object(STORED)(value, path, faults)!;
  const settings = { ...settle(given, path, faults), passwordSealed: given.passwordSealed ?? null };
  return { settings, password: { kind: 'keep' } };
};

type Written = Members<typeof WRITTEN>;

function foldUrl(given: Written, url: string, path: string, faults: Faults): Written {
  const at = `${path}.url`;
  let fields: UrlFields;
  try {
    fields = parseUrl(url);
  } catch (error) {
    if (!(error instanceof UrlFault)) throw error;
    faults.add(at, error.message);
    return given;
  }
  const twice = Object.keys(fields).find((name) => given[name as keyof UrlFields] !== undefined);
  if (twice !== undefined) {
    faults.add(at, `gives ${twice}, and so does connection.${twice}: one of the two must go`);
  }
  // A value out of the URL is wrong at the URL, and is named by its field.
  const judge = <T>(name: keyof UrlFields, check: Check<T>): T | undefined => {
    const value = fields[name];
    if (value === undefined) return undefined;
    const own = new Faults();
    const read = check(value, name, own);
    if (own.first !== null) faults.add(at, `has a ${name} that ${own.first.sentence}`);
    return read;
  };
  return {
    ...given,
    host: judge('host', host) ?? given.host,
    port: judge('port', port) ?? given.port,
    database: judge('database', roleOrDatabase) ?? given.database,
    user: judge('user', roleOrDatabase) ?? given.user,
    password: judge('password', password) ?? given.password,
    sslMode: judge('sslMode', sslMode) ?? given.sslMode,
    connectTimeoutMs: judge('connectTimeoutMs', connectTimeoutMs) ?? given.connectTimeoutMs,
  };
}

/** What is left of a host after its brackets; a document without a fault has one. */
function settle(given: Members<typeof COMMON>, path: string, faults: Faults): ConnectionSettings {
  for (const name of ['host', 'database', 'user'] as const) {
    if (given[name] === undefined) faults.add(`${path}.${name}`, 'is missing');
  }
  const mode: SslMode = given.sslMode ?? DEFAULTS.sslMode;
  if (given.sslRootCert !== undefined && mode !== 'verify-full') {
    faults.add(`${path}.sslRootCert`, `is only for sslMode "verify-full", not ${JSON.stringify(mode)}`);
  }
  return {
    host: bare(given.host ?? ''),
    port: given.port ?? DEFAULTS.port,
    database: given.database ?? '',
    user: given.user ?? '',
    passwordSealed: null,
    sslMode: mode,
    sslRootCert: given.sslRootCert ?? null,
    connectTimeoutMs: given.connectTimeoutMs ?? DEFAULTS.connectTimeoutMs,
  };
}

function hostFault(name: string): string | null {
  const bytes = Buffer.byteLength(name);
  if (bytes < 1 || bytes > HOST_BYTES_MAX) return `must have 1..=${HOST_BYTES_MAX} bytes`;
  if (name.includes('/')) return 'must not contain a slash: Unix sockets are not supported';
  if (name.includes(',')) return 'must be a single host';
  if (name.includes('@') || /\s/.test(name) || CONTROL.test(name)) {
    return 'must not contain @, white space or control characters';
  }
  const literal = bare(name);
  if (/[:[\]]/.test(name) && !isIPv6(literal)) {
    return 'must be a host name or an address, without a port; only an IPv6 address has colons or brackets';
  }
  return null;
}

function bare(name: string): string {
  return name.startsWith('[') && name.endsWith(']') ? name.slice(1, -1) : name;
}

function parses(pem: string): boolean {
  try {
    new X509Certificate(pem);
    return true;
  } catch {
    return false;
  }
}
