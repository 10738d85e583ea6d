import {
  chmodSync,
  chownSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Account } from './account.ts';
import type { Binaries } from './binaries.ts';
import { EmbeddedError, type EmbeddedLog, explain } from './failure.ts';
import { killLeftOvers } from './processes.ts';
import { runProgram } from './program.ts';

/** The directory of the database itself, below the data directory. */
export const CLUSTER = 'postgres';
const HALF_MADE = 'postgres.half-';
/** The database and the user that initdb makes. */
export const DATABASE = 'postgres';
export const USER = 'postgres';

/**
 * Programs of the server run with the database directory as their working directory and name it this way.
 * The account that they run under may be unable to walk the path that leads there (a project below a private
 * home, started by root), but it owns the directory itself.
 */
export const HERE = '/proc/self/cwd';

/**
 * Makes the database unless it is there. It is made under another name and renamed when it is complete, so an
 * interrupted run leaves only a half-made directory that the next one removes.
 *
 * @param directory the data directory, locked by the caller.
 * @throws EmbeddedError `other_major`, `not_a_cluster`, `disk_full`, `directory_unusable`, `account`, `initdb`.
 */
export async function ensureCluster(
  directory: string,
  binaries: Binaries,
  account: Account,
  options: { durable: boolean; log: EmbeddedLog },
): Promise<{ cluster: string; created: boolean }> {
  const cluster = join(directory, CLUSTER);
  for (const name of readdirSync(directory)) {
    if (!name.startsWith(HALF_MADE)) continue;
    await killLeftOvers(join(directory, name));
    rmSync(join(directory, name), { recursive: true, force: true });
  }
  if (statSync(cluster, { throwIfNoEntry: false }) !== undefined) {
    checkCluster(cluster, binaries, account);
    return { cluster, created: false };
  }
  const half = mkdtempSync(join(directory, HALF_MADE));
  try {
    chmodSync(half, 0o700);
    if (account.switched) chownSync(half, account.uid, account.gid);
    await initialise(half, binaries, account, options.durable);
    renameSync(half, cluster);
  } catch (error) {
    rmSync(half, { recursive: true, force: true });
    throw error;
  }
  options.log.info({ directory: cluster, version: binaries.version }, 'made a new database');
  return { cluster, created: true };
}

const NAMELESS = /could not look up effective user ID|user does not exist/;

async function initialise(
  half: string,
  binaries: Binaries,
  account: Account,
  durable: boolean,
): Promise<void> {
  // The only way in is the socket inside the directory, which belongs to the server's account alone.
  const args = ['-D', HERE, '-U', USER, '--auth=trust', '--encoding=UTF8', '--locale=C'];
  if (!durable) args.push('--no-sync');
  let result = await runProgram(binaries.initdb, args, { account, cwd: half });
  if (NAMELESS.test(result.output)) {
    // initdb wants its account to have a name, which containers run under a bare number do not give. Inside
    // a user namespace the number is mapped to nobody's; the files belong to the real one all the same.
    const named = ['--user', '--map-user=65534', '--map-group=65534', binaries.initdb, ...args];
    const second = await runProgram('unshare', named, { account, cwd: half });
    if (second.code === 0) result = second;
  }
  if (result.code === 0) return;
  if (result.spawnError === 'EPERM' || NAMELESS.test(result.output)) {
    throw new EmbeddedError(
      'account',
      `The embedded PostgreSQL cannot be set up under uid ${account.uid}: ${result.output.trim()}. The account needs an entry in /etc/passwd (and a broker started by root needs the right to change to it). Start the broker under another user, or set DATABASE_URL to use another PostgreSQL.`,
    );
  }
  throw explain('initdb', half, result.output);
}

function checkCluster(cluster: string, binaries: Binaries, account: Account): void {
  let major: string;
  try {
    major = readFileSync(join(cluster, 'PG_VERSION'), 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EACCES') throw foreignOwner(cluster, account);
    throw new EmbeddedError(
      'not_a_cluster',
      `${cluster} exists but is not a PostgreSQL database (${(error as Error).message}). Move it away, or point QUEEN_DATA_DIR at another directory.`,
      error,
    );
  }
  if (major !== String(binaries.major)) {
    throw new EmbeddedError(
      'other_major',
      `The database in ${cluster} was made by PostgreSQL ${major}, and the bundled server is ${binaries.version}. Carry it over with pg_upgrade, run the broker version that made it, or start afresh in another QUEEN_DATA_DIR.`,
    );
  }
  if (statSync(cluster).uid !== account.uid) throw foreignOwner(cluster, account);
}

function foreignOwner(cluster: string, account: Account): EmbeddedError {
  return new EmbeddedError(
    'directory_unusable',
    `The database in ${cluster} belongs to uid ${statSync(cluster).uid}, and the server would run as uid ${account.uid}. Start the broker as the user that made the database (or as root, which keeps to the owner).`,
  );
}
