import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EmbeddedLog } from './failure.ts';

/**
 * The processes that an earlier broker left behind on a database directory.
 *
 * Every process of PostgreSQL has its data directory as its working directory, and that is how they are
 * found: a pid file may be missing, or name a pid that belongs to something else since. Called only while
 * the directory's lock is held, so whatever is found has no living broker.
 */

/** How long a left-over server may take for a clean stop before it is told to stop at once. */
const CLEAN_STOP_MS = 30_000;
const PROGRAMS = new Set(['postgres', 'initdb']);

export interface LeftOver {
  pid: number;
  parent: number;
}

/** Ends them, and removes their lock files and sockets. Returns how many there were. */
export async function endLeftOvers(cluster: string, log: EmbeddedLog): Promise<number> {
  const found = processesIn(cluster);
  if (found.length > 0) {
    log.warn(
      { pids: found.map((process) => process.pid) },
      'processes of an earlier PostgreSQL still run here: stopping them',
    );
    const pids = new Set(found.map((process) => process.pid));
    const main = found.filter((process) => !pids.has(process.parent));
    // Fast shutdown for a server that is whole; backends whose server was killed leave by themselves soon,
    // and the signal only cancels what they are at.
    for (const process of main) signal(process.pid, 'SIGINT');
    if (!(await gone(cluster, CLEAN_STOP_MS))) {
      for (const process of processesIn(cluster)) signal(process.pid, 'SIGQUIT');
      if (!(await gone(cluster, 5_000))) {
        for (const process of processesIn(cluster)) signal(process.pid, 'SIGKILL');
        await gone(cluster, 5_000);
      }
    }
  }
  // The server would judge these by whether their pid exists, and a pid may belong to something else by now,
  // or to a zombie in a container where nobody reaps orphans.
  for (const name of readdirSync(cluster)) {
    if (name === 'postmaster.pid' || name.startsWith('.s.PGSQL.'))
      rmSync(join(cluster, name), { force: true });
  }
  return found.length;
}

/** For a directory that is thrown away anyway. */
export async function killLeftOvers(cluster: string): Promise<void> {
  for (const process of processesIn(cluster)) signal(process.pid, 'SIGKILL');
  await gone(cluster, 5_000);
}

/** Every process of PostgreSQL that runs in this database directory. */
export function processesIn(cluster: string): LeftOver[] {
  const at = statSync(cluster, { throwIfNoEntry: false, bigint: true });
  if (at === undefined) return [];
  const found: LeftOver[] = [];
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    try {
      const cwd = statSync(`/proc/${pid}/cwd`, { bigint: true });
      if (cwd.dev !== at.dev || cwd.ino !== at.ino) continue;
      // "pid (name) state parent ...": the name may hold spaces and parentheses.
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const end = stat.lastIndexOf(')');
      const fields = stat.slice(end + 2).split(' ');
      if (!PROGRAMS.has(stat.slice(stat.indexOf('(') + 1, end)) || fields[0] === 'Z') continue;
      found.push({ pid, parent: Number(fields[1]) });
    } catch {
      // Gone in the meantime, or of another user: not ours.
    }
  }
  return found;
}

async function gone(cluster: string, withinMs: number): Promise<boolean> {
  const deadline = performance.now() + withinMs;
  while (processesIn(cluster).length > 0) {
    if (performance.now() > deadline) return false;
    await sleep(20);
  }
  return true;
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It ended by itself.
  }
}
