/**
 * A process's own part of the spool directory, which brokers of one machine share: a numbered subdirectory, held by a
 * lock that ends with the process however it dies.
 *
 *     <directory>/3/database                      which database its messages are for
 *                  1764500000000-00000007.buf     finished files, in the order of their names
 *                  1764500000412-00000008.tmp     the one that is being written
 *                  1764500000000-00000007.pos     how far a file has been stored
 *                  failed/                        what could not be stored for good
 *
 * The name of the database keeps messages out of the wrong one: a machine where somebody tries out two databases has
 * one default directory.
 */
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { type DirectoryLock, lockDirectory } from '../embedded/directory-lock.ts';

export const FINISHED = /^\d{13}-\d{8}\.buf$/;
export const UNFINISHED = /^\d{13}-\d{8}\.tmp$/;
export const FAILED = 'failed';
const DATABASE = 'database';
const SLOTS_MAX = 10_000;

export class Slot {
  readonly path: string;
  readonly #lock: DirectoryLock;

  private constructor(path: string, lock: DirectoryLock) {
    this.path = path;
    this.#lock = lock;
  }

  get failedPath(): string {
    return join(this.path, FAILED);
  }

  /** Preferably one where somebody left something behind for this database, else an empty one, else a new one. */
  static async claim(directory: string, databaseId: string): Promise<Slot> {
    const numbers = slotNumbers(directory);
    const left = numbers.filter(
      (n) => holdsFiles(join(directory, n)) && isFor(join(directory, n), databaseId),
    );
    const empty = numbers.filter((n) => !holdsFiles(join(directory, n)));
    for (const number of [...left, ...empty]) {
      const slot = await Slot.take(join(directory, number), databaseId);
      if (slot !== null) return slot;
    }
    for (let number = 0; number < SLOTS_MAX; number++) {
      const path = join(directory, String(number));
      if (numbers.includes(String(number)) || !made(path)) continue;
      const slot = await Slot.take(path, databaseId);
      if (slot !== null) return slot;
    }
    throw new Error(`no place is left in ${directory}`);
  }

  /** Null: another process holds it, or it holds messages for another database. */
  static async take(path: string, databaseId: string): Promise<Slot | null> {
    const lock = await lockDirectory(path, 'spool').catch(() => null);
    if (lock === null) return null;
    // Only now nobody else changes it.
    if (!isFor(path, databaseId)) {
      if (holdsFiles(path)) {
        await lock.release();
        return null;
      }
      writeDatabase(path, databaseId);
    }
    mkdirSync(join(path, FAILED), { recursive: true, mode: 0o700 });
    return new Slot(path, lock);
  }

  /** Other slots where messages for this database lie; most of them are held by living processes. */
  static others(directory: string, databaseId: string, own: Slot): string[] {
    return slotNumbers(directory)
      .map((number) => join(directory, number))
      .filter((path) => path !== own.path && holdsFiles(path) && isFor(path, databaseId));
  }

  /** Slots where messages lie that are for another database, or nobody says for which. */
  static strangers(directory: string, databaseId: string): string[] {
    return slotNumbers(directory)
      .map((number) => join(directory, number))
      .filter((path) => holdsFiles(path) && !isFor(path, databaseId));
  }

  release(): Promise<void> {
    return this.#lock.release();
  }
}

/** Makes names durable that were created, renamed or removed in it, where the file system knows how. */
export function syncDirectory(path: string): void {
  const fd = openSync(path, 'r');
  try {
    fsyncSync(fd);
  } catch (error) {
    if (!['EINVAL', 'ENOTSUP', 'EISDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  } finally {
    closeSync(fd);
  }
}

function slotNumbers(directory: string): string[] {
  return readdirSync(directory)
    .filter((name) => /^\d{1,5}$/.test(name))
    .sort((a, b) => Number(a) - Number(b));
}

function made(path: string): boolean {
  try {
    mkdirSync(path, { mode: 0o700 });
    return true;
  } catch {
    return false;
  }
}

function holdsFiles(path: string): boolean {
  try {
    if (readdirSync(path).some((name) => FINISHED.test(name) || UNFINISHED.test(name))) return true;
    return readdirSync(join(path, FAILED)).length > 0;
  } catch {
    return false;
  }
}

function isFor(path: string, databaseId: string): boolean {
  try {
    return readFileSync(join(path, DATABASE), 'utf8').trim() === databaseId;
  } catch {
    return false;
  }
}

function writeDatabase(path: string, databaseId: string): void {
  const temporary = join(path, `${DATABASE}.new`);
  const fd = openSync(temporary, 'w', 0o600);
  try {
    writeSync(fd, `${databaseId}\n`);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(temporary, join(path, DATABASE));
  syncDirectory(path);
}
