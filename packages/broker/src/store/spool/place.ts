/** Where on this machine the spool lies. */
import { accessSync, constants, lstatSync, mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { StoreLog } from '../log.ts';

export interface SpoolPlace {
  directory: string;
  /** False: what lies there goes with the machine. */
  lasting: boolean;
}

/**
 * The first of the directories that this process may write, which is made when it is missing; when none is, one that
 * is only temporary, with a warning. Null: not even that.
 */
export function choosePlace(candidates: readonly string[], log: StoreLog): SpoolPlace | null {
  const reasons: string[] = [];
  for (const candidate of candidates) {
    const directory = resolve(candidate);
    const reason = whyUnusable(directory);
    if (reason === null) return { directory, lasting: true };
    reasons.push(`${directory}: ${reason}`);
  }
  const directory = temporary();
  if (directory === null) {
    log.error({ reasons }, 'no directory for the spool: pushes that the database does not take are refused');
    return null;
  }
  log.warn(
    { reasons, directory },
    'the spool is in a temporary directory and does not survive this machine: set FILE_BUFFER_DIR to one that this user may write',
  );
  return { directory, lasting: false };
}

function whyUnusable(directory: string): string | null {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    accessSync(directory, constants.R_OK | constants.W_OK | constants.X_OK);
    return null;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
}

/** The same one for every process of this user, so that what one leaves behind is found by the next. */
function temporary(): string | null {
  const name = `queen-buffers-${process.getuid?.() ?? 'user'}`;
  const directory = join(tmpdir(), name);
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const { uid, mode } = lstatSync(directory);
    // Whoever may write to /tmp could have put something else there first.
    const ours = process.getuid === undefined || uid === process.getuid();
    if (ours && (mode & 0o77) === 0 && whyUnusable(directory) === null) return directory;
    return mkdtempSync(join(tmpdir(), `${name}-`));
  } catch {
    return null;
  }
}
