import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

/**
 * The floors of the broker: imports point down only. A request goes down once and its answer comes up once,
 * and this check keeps it so. Run by `npm run check`.
 */
const ROOT = join(import.meta.dirname, '..');
const SOURCE = join(ROOT, 'packages/broker/src');

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

/** Node modules that the pure floor may use: no I/O, no clock. */
const PURE_BUILTINS = new Set(['node:buffer', 'node:zlib', 'node:util', 'node:crypto', 'node:assert']);

const IMPORT =
  /^\s*(?:import|export)\s[^;'"()=]*?\bfrom\s*['"]([^'"]+)['"]|^\s*import\s*['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/gm;

/** One sentence for each import that points the wrong way. */
export function faultsOf(file: string, text: string): string[] {
  const name = relative(SOURCE, file);
  const floor = name.includes('/') ? name.slice(0, name.indexOf('/')) : '';
  const allowed = MAY_IMPORT[floor];
  if (allowed === undefined) return [`${name}: there is no floor "${floor}" (see test/boundaries.ts)`];
  const faults: string[] = [];
  for (const match of text.matchAll(IMPORT)) {
    const target = match[1] ?? match[2] ?? match[3] ?? '';
    if (!target.startsWith('.')) {
      if (floor === 'log' && target.startsWith('node:') && !PURE_BUILTINS.has(target)) {
        faults.push(`${name}: log/ is pure, it may not import ${target}`);
      }
      continue;
    }
    if (!/\.(ts|json)$/.test(target)) faults.push(`${name}: import of ${target} lacks its .ts`);
    const to = relative(SOURCE, resolve(dirname(file), target));
    if (to.startsWith('..')) {
      faults.push(`${name}: imports ${target} from outside the package's sources`);
      continue;
    }
    const toFloor = to.includes('/') ? to.slice(0, to.indexOf('/')) : '';
    if (toFloor !== floor && !allowed.includes(toFloor)) {
      faults.push(`${name}: ${floor}/ may not import ${toFloor === '' ? to : `${toFloor}/`} (${target})`);
    }
  }
  return faults;
}

if (import.meta.main) {
  const files = globSync('**/*.ts', { cwd: SOURCE }).map((file) => join(SOURCE, file));
  const faults = files.flatMap((file) => faultsOf(file, readFileSync(file, 'utf8')));
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
  else console.log(`${files.length} files, imports point down only`);
}
