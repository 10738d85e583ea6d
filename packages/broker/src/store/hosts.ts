/**
 * Which server to talk to. Several addresses may be given, of which at most one accepts writes at a time;
 * the rest are standbys, or gone.
 */
export interface Host {
  /** A name, an address, or the directory of a unix socket (begins with `/`). */
  readonly host: string;
  readonly port: number;
}

/**
 * Reads `host1:port1,host2:port2`. IPv6 addresses stand in brackets, a unix socket directory begins with
 * `/`. A host without a port takes `defaultPort`. Throws a RangeError that names the part that is wrong.
 */
export function parseHosts(text: string, defaultPort: number): Host[] {
  const hosts = text.split(',').map((part) => parseHost(part.trim(), defaultPort));
  if (hosts.length === 0) throw new RangeError('no database host is given');
  return hosts;
}

function parseHost(text: string, defaultPort: number): Host {
  const match = /^(?:\[([^\]]+)\]|(\/.*?|[^:/[\]]+))(?::(\d+))?$/.exec(text);
  if (match === null)
    throw new RangeError(`"${text}" is not a database host (host, host:port or [ipv6]:port)`);
  const port = match[3] === undefined ? defaultPort : Number(match[3]);
  if (port < 1 || port > 65_535) throw new RangeError(`"${text}": the port is outside 1..65535`);
  return { host: (match[1] ?? match[2])!, port };
}

/** For people; a unix socket by its file. */
export function hostName(host: Host): string {
  if (host.host.startsWith('/')) return `${host.host}/.s.PGSQL.${host.port}`;
  return host.host.includes(':') ? `[${host.host}]:${host.port}` : `${host.host}:${host.port}`;
}
