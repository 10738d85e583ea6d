import { statfsSync } from 'node:fs';

/** The spool may not take more; nothing was written. */
export class SpoolFull extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'SpoolFull';
  }
}

const LOOK_EVERY_MS = 1_000;
const SHARE_KEPT_FREE = 0.02;
const KEPT_FREE_BYTES_MAX = 256 * 1024 * 1024;

/**
 * How much the spool may still take: of its own limit, and of a disk that it may share with the database. A disk that is
 * full to the last byte would keep the database from ever taking anything back.
 */
export class SpoolRoom {
  readonly #directory: string;
  readonly #bytesMax: number;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #free = Number.POSITIVE_INFINITY;

  constructor(directory: string, bytesMax: number) {
    this.#directory = directory;
    this.#bytesMax = bytesMax;
  }

  /** Throws a SpoolFull when `bytes` more than the `used` ones are too many. */
  take(bytes: number, used: number): void {
    if (used + bytes > this.#bytesMax) {
      throw new SpoolFull(`the spool is full: ${used} of ${this.#bytesMax} bytes (FILE_BUFFER_MAX_MB)`);
    }
    this.#look();
    if (bytes > this.#free) throw new SpoolFull('the disk of the spool is full');
    this.#free -= bytes;
  }

  #look(): void {
    const now = performance.now();
    if (now - this.#lookedAt < LOOK_EVERY_MS) return;
    this.#lookedAt = now;
    try {
      const { bavail, blocks, bsize } = statfsSync(this.#directory);
      const kept = Math.min(KEPT_FREE_BYTES_MAX, blocks * bsize * SHARE_KEPT_FREE);
      this.#free = bavail * bsize - kept;
    } catch {
      // The write itself will tell.
      this.#free = Number.POSITIVE_INFINITY;
    }
  }
}
