import { type Host, parseHosts, type TlsOptions } from '../store/database.ts';

/** Where the broker stores: its own bundled server, or one that somebody else runs. */
export type DatabaseChoice =
  | { kind: 'embedded'; directory: string }
  | {
      kind: 'external';
      hosts: Host[];
      database: string;
      user: string;
      password: string | null;
      ssl: TlsOptions | false;
    };

/** The values of the variables that decide. */
export interface DatabaseValues {
  url: string | null;
  dataDirectory: string;
  host: string | null;
  port: number | null;
  user: string | null;
  password: string | null;
  database: string | null;
  useSsl: boolean;
  sslRejectUnauthorized: boolean;
  sslRootCertificate: string | null;
}

/**
 * A URL selects an external server, and so does any one of PG_HOST, PG_PORT, PG_USER and PG_PASSWORD. What
 * the URL leaves out comes from the PG_ variables. Null when a fault was added.
 */
export function databaseChoice(
  values: DatabaseValues,
  faults: string[],
  warnings: string[],
): DatabaseChoice | null {
  const { host, port, user, password } = values;
  if (values.url === null && host === null && port === null && user === null && password === null) {
    if (values.database !== null) warnings.push('PG_DATABASE has no effect on the bundled database');
    if (values.useSsl) warnings.push('PG_USE_SSL has no effect on the bundled database');
    return { kind: 'embedded', directory: values.dataDirectory };
  }
  const before = faults.length;
  const url = values.url === null ? null : parseDatabaseUrl(values.url, faults, warnings);
  const hostText = url?.hosts || url?.hostParameter || host || 'localhost';
  const defaultPort = url?.portParameter ?? port ?? 5432;
  let hosts: Host[] = [];
  try {
    hosts = parseHosts(hostText, defaultPort);
  } catch (error) {
    faults.push(
      `${url?.hosts || url?.hostParameter ? 'DATABASE_URL' : 'PG_HOST'}: ${(error as Error).message}`,
    );
  }
  if (faults.length > before) return null;
  const secured = url?.sslMode === null || url === null ? values.useSsl : url.sslMode !== 'disable';
  return {
    kind: 'external',
    hosts,
    database: url?.database || values.database || 'postgres',
    user: url?.user || user || 'postgres',
    password: url === null ? (password ?? 'postgres') : (url.password ?? password),
    ssl: secured
      ? {
          rejectUnauthorized: verifies(url?.sslMode ?? null, values.sslRejectUnauthorized),
          ...(values.sslRootCertificate === null ? {} : { ca: values.sslRootCertificate }),
        }
      : false,
  };
}

const SSL_MODES = ['disable', 'require', 'verify-ca', 'verify-full', 'no-verify'] as const;
type SslMode = (typeof SSL_MODES)[number];

/** `require` verifies like everything else unless PG_SSL_REJECT_UNAUTHORIZED says no. */
function verifies(mode: SslMode | null, byVariable: boolean): boolean {
  if (mode === 'no-verify') return false;
  if (mode === 'verify-ca' || mode === 'verify-full') return true;
  return byVariable;
}

interface DatabaseUrl {
  /** As written, maybe several, maybe empty. */
  hosts: string;
  hostParameter: string | null;
  portParameter: number | null;
  database: string;
  user: string;
  password: string | null;
  sslMode: SslMode | null;
}

/** The WHATWG parser knows no lists of hosts, so this one is taken apart by hand. Never shows the password. */
function parseDatabaseUrl(text: string, faults: string[], warnings: string[]): DatabaseUrl | null {
  const parts = /^postgres(?:ql)?:\/\/(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?]*)(?:\/([^?]*))?(?:\?(.*))?$/.exec(
    text,
  );
  if (parts === null) {
    faults.push('DATABASE_URL is not of the form postgres://user:password@host:port[,host:port]/database');
    return null;
  }
  try {
    const [, user = '', password, hosts = '', database = '', query = ''] = parts;
    const parameters = new URLSearchParams(query);
    const sslMode = parameters.get('sslmode');
    if (sslMode !== null && !SSL_MODES.includes(sslMode as SslMode)) {
      faults.push(`DATABASE_URL: sslmode=${sslMode} is unknown (expected ${SSL_MODES.join(', ')})`);
    }
    const port = parameters.get('port');
    if (port !== null && !(Number(port) >= 1 && Number(port) <= 65_535)) {
      faults.push(`DATABASE_URL: port=${port} is out of range (expected 1..65535)`);
    }
    for (const name of new Set(parameters.keys())) {
      if (!['sslmode', 'host', 'port'].includes(name)) warnings.push(`DATABASE_URL: ${name} has no effect`);
    }
    return {
      hosts: decodeURIComponent(hosts),
      hostParameter: parameters.get('host'),
      portParameter: port === null ? null : Number(port),
      database: decodeURIComponent(database),
      user: decodeURIComponent(user),
      password: password === undefined ? null : decodeURIComponent(password),
      sslMode: sslMode as SslMode | null,
    };
  } catch {
    faults.push('DATABASE_URL holds a % that is not followed by two hex digits');
    return null;
  }
}
