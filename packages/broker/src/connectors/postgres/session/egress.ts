/**
 * Where connectors may connect to when private networks are closed to them.
 *
 * A name is resolved once, all its addresses are judged, and one of these very addresses is dialled: a name that answers
 * otherwise at the second look (DNS rebinding) gains nothing. One forbidden address among good ones condemns the name,
 * since which of them is taken would be chance. Odd spellings of numbers (`0x7f.1`, `2130706433`) go through the
 * system's resolver like names, and their result is judged.
 */
import { lookup as systemLookup } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { ConnectorFault } from '../fault.ts';

export interface Address {
  readonly address: string;
  readonly family: 4 | 6;
}

/** All addresses of a host, in the order in which they are to be tried. Rejects when there are none. */
export type Lookup = (host: string) => Promise<readonly Address[]>;

const FORBIDDEN_4: readonly (readonly [string, number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.168.0.0', 16],
  ['224.0.0.0', 4],
  ['255.255.255.255', 32],
];
const FORBIDDEN_6: readonly (readonly [string, number])[] = [
  ['::', 128],
  ['::1', 128],
  ['fe80::', 10],
  ['fec0::', 10],
  ['fc00::', 7],
  ['ff00::', 8],
];
/** The last 32 bits are an IPv4 address: mapped, compatible, and translated ones. */
const EMBEDDING_PREFIXES: readonly (readonly number[])[] = [
  [0, 0, 0, 0, 0, 0xffff],
  [0, 0, 0, 0, 0, 0],
  [0x64, 0xff9b, 0, 0, 0, 0],
];

const forbidden = new BlockList();
for (const [network, bits] of FORBIDDEN_4) forbidden.addSubnet(network, bits, 'ipv4');
for (const [network, bits] of FORBIDDEN_6) forbidden.addSubnet(network, bits, 'ipv6');

export const lookupBySystem: Lookup = async (host) => {
  const found = await systemLookup(host, { all: true, order: 'verbatim' });
  return found.map(({ address, family }) => ({ address, family: family === 6 ? 6 : 4 }));
};

/** Loopback, private, link-local, multicast and the like. `address`: a literal as a resolver prints it. */
export function isForbidden({ address, family }: Address): boolean {
  const [bare = ''] = address.split('%');
  if (isIP(bare) !== family) return true;
  if (family === 4) return forbidden.check(bare, 'ipv4');
  const groups = groupsOf(bare);
  for (const prefix of EMBEDDING_PREFIXES) {
    if (!prefix.every((group, i) => groups[i] === group)) continue;
    const [high, low] = [groups[6]!, groups[7]!];
    return forbidden.check([high >> 8, high & 0xff, low >> 8, low & 0xff].join('.'), 'ipv4');
  }
  return forbidden.check(bare, 'ipv6');
}

/**
 * The addresses that may be dialled. Throws ConnectorFault: `io` when the name has none or the lookup takes too long,
 * `egress` when one of them is forbidden.
 */
export async function resolveHost(
  host: string,
  options: { allowPrivate: boolean; timeoutMs: number; lookup?: Lookup },
): Promise<readonly Address[]> {
  const addresses = await within(options.timeoutMs, host, (options.lookup ?? lookupBySystem)(host));
  if (addresses.length === 0) throw new ConnectorFault('io', `the host name ${host} has no address`);
  if (!options.allowPrivate && addresses.some(isForbidden)) throw egressFault(host);
  return addresses;
}

/** Says nothing of what would have been found there. */
function egressFault(host: string): ConnectorFault {
  return new ConnectorFault(
    'egress',
    `the host ${host} is on a private network: use a public address, or set QUEEN_PG_ALLOW_PRIVATE_NETWORKS=true on every node`,
  );
}

async function within<T>(timeoutMs: number, host: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () =>
        reject(new ConnectorFault('io', `the host name ${host} was not looked up within ${timeoutMs} ms`)),
      timeoutMs,
    );
  });
  try {
    return await Promise.race([work, late]);
  } catch (error) {
    if (error instanceof ConnectorFault) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown error';
    throw new ConnectorFault('io', `the host name ${host} cannot be looked up: ${code}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

/** The eight groups of an IPv6 literal. */
function groupsOf(address: string): number[] {
  // Its last 32 bits may be written like an IPv4 address.
  const hex = address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, ...bytes: string[]) => {
    const [a, b, c, d] = bytes.slice(0, 4).map(Number) as [number, number, number, number];
    return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  });
  const [head = '', tail] = hex.split('::');
  const front = head === '' ? [] : head.split(':');
  const back = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? [] : new Array<string>(8 - front.length - back.length).fill('0');
  return [...front, ...zeros, ...back].map((group) => Number.parseInt(group, 16));
}
