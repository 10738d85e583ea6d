import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/**
 * The floors of the broker: imports point down only. A request goes down once and its answer comes up once,
 * and this check keeps it so. The client has floors too, and runs where there is neither Node nor a package. The command
 * line stands on the client alone. Run by `npm run check`.
 */
const ROOT = join(import.meta.dirname, '..');
const SOURCE = join(ROOT, 'packages/broker/src');
const CLIENT = join(ROOT, 'packages/client/src');
const QUEENCTL = join(ROOT, 'packages/queenctl/src');

/** For each floor what it may import, besides itself and packages of npm. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  log: [],
  store: ['log', 'observability'],
  engine: ['store', 'log', 'observability'],
  connectors: ['engine', 'store', 'log', 'observability'],
  http: ['engine', 'store', 'log', 'observability'],
  observability: [],
  // main.ts, config.ts and what else lies beside the floors: the composition.
  config: ['store'],
  start: ['config', 'http', 'connectors', 'engine', 'store', 'log', 'observability', ''],
  '': ['config', 'start', 'http', 'connectors', 'engine', 'store', 'log', 'observability'],
};

/** The same for the client. What lies beside its floors is words that all of them use, and the two at the top. */
const CLIENT_MAY_IMPORT: Record<string, readonly string[]> = {
  brokers: [],
  wire: ['brokers', ''],
  calls: ['wire', ''],
  consume: ['calls', 'wire', ''],
  produce: ['calls', 'wire', ''],
  services: ['calls', 'wire', ''],
  queue: ['services', 'produce', 'consume', 'calls', 'wire', ''],
  '': ['queue', 'services', 'produce', 'consume', 'calls', 'wire', 'brokers'],
};
/** The same for the command line: `commands` are its top floor, and what reads and prints knows nothing of brokers. */
const QUEENCTL_MAY_IMPORT: Record<string, readonly string[]> = {
  output: [],
  input: ['output', ''],
  tail: [],
  seek: [],
  apply: ['input', 'output', ''],
  bench: ['output', ''],
  completion: [],
  commands: ['apply', 'bench', 'completion', 'seek', 'tail', 'input', 'output', ''],
  '': ['commands', 'input', 'output'],
};
const QUEENCTL_PACKAGES = new Set(['@queen-mq/client', 'commander', 'yaml']);
const CLIENT_TOP = new Set(['client.ts', 'index.ts']);

/** Node modules that the pure floor may use: no I/O, no clock. */
const PURE_BUILTINS = new Set(['node:buffer', 'node:zlib', 'node:util', 'node:crypto', 'node:assert']);

const IMPORT =
  /^\s*(?:import|export)\s[^;'"()=]*?\bfrom\s*['"]([^'"]+)['"]|^\s*import\s*['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/gm;

/** One sentence for each import that points the wrong way. */
export function faultsOf(file: string, text: string): string[] {
  const ofClient = file.startsWith(CLIENT);
  const ofQueenctl = file.startsWith(QUEENCTL);
  const source = ofClient ? CLIENT : ofQueenctl ? QUEENCTL : SOURCE;
  const name = relative(source, file);
  const floor = name.includes('/') ? name.slice(0, name.indexOf('/')) : '';
  const rules = ofClient ? CLIENT_MAY_IMPORT : ofQueenctl ? QUEENCTL_MAY_IMPORT : MAY_IMPORT;
  const allowed = rules[floor];
  if (allowed === undefined) return [`${name}: there is no floor "${floor}" (see test/boundaries.ts)`];
  const faults: string[] = [];
  for (const match of text.matchAll(IMPORT)) {
    const target = match[1] ?? match[2] ?? match[3] ?? '';
    if (!target.startsWith('.')) {
      if (ofClient) faults.push(`${name}: the client imports nothing from outside (${target})`);
      if (ofQueenctl && !target.startsWith('node:') && !QUEENCTL_PACKAGES.has(target)) {
        faults.push(`${name}: queenctl imports ${[...QUEENCTL_PACKAGES].join(', ')} and Node, not ${target}`);
      }
      if (!ofQueenctl && floor === 'log' && target.startsWith('node:') && !PURE_BUILTINS.has(target)) {
        faults.push(`${name}: log/ is pure, it may not import ${target}`);
      }
      continue;
    }
    if (!/\.(ts|json)$/.test(target)) faults.push(`${name}: import of ${target} lacks its .ts`);
    const to = relative(source, resolve(dirname(file), target));
    if (to.startsWith('..')) {
      faults.push(`${name}: imports ${target} from outside the package's sources`);
      continue;
    }
    if (ofClient && CLIENT_TOP.has(to) && !CLIENT_TOP.has(name)) {
      faults.push(`${name}: nobody below imports ${to}`);
    }
    const toFloor = to.includes('/') ? to.slice(0, to.indexOf('/')) : '';
    if (toFloor !== floor && !allowed.includes(toFloor)) {
      faults.push(`${name}: ${floor}/ may not import ${toFloor === '' ? to : `${toFloor}/`} (${target})`);
    }
  }
  return faults;
}

if (import.meta.main) {
  const files = [SOURCE, CLIENT, QUEENCTL].flatMap((cwd) =>
    globSync('**/*.ts', { cwd }).map((file) => join(cwd, file)),
  );
  const faults = files.flatMap((file) => faultsOf(file, readFileSync(file, 'utf8')));
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
  else console.log(`${files.length} files, imports point down only`);
}
