/**
 * The writing end of the spool: one file grows at a time, and whoever appends hears only when its bytes are on disk.
 *
 * Appends that arrive while the disk is busy go together, so that a thousand pushes cost a few flushes and not a
 * thousand. What fails leaves nothing behind: the file is cut back to where it was, and everybody who was in that write
 * is told. A reader must never be told of a message that its producer was told is not kept.
 */
import { existsSync, renameSync, rmSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory } from './slot.ts';

/** A file of the spool. */
export interface SpoolFile {
  /** With `.buf`. In the order of the names lie the messages. */
  readonly name: string;
  path: string;
  /** Bytes from the start that count. */
  bytes: number;
  /** Messages in it that are still to be stored. */
  events: number;
  /** Bytes from the start that are stored. */
  position: number;
}

export interface WriterOptions {
  directory: string;
  eventsPerFile: number;
  /** After so many bytes a file is finished too: one is read whole. */
  fileBytesMax: number;
  /** Of the newest file that is there already; null: none. */
  lastName: string | null;
  /** Milliseconds since 1970. */
  wallMs?: () => number;
  /** Called when a file is complete and will not change. */
  finished: (file: SpoolFile) => void;
}

interface Job {
  /** Null: finish the file. */
  bytes: Buffer | null;
  events: number;
  resolve: () => void;
  reject: (error: unknown) => void;
}

interface Growing extends SpoolFile {
  readonly handle: FileHandle;
}

/** Bytes in one write. */
const WRITE_BYTES_MAX = 16 * 1024 * 1024;

export class SpoolWriter {
  readonly #options: WriterOptions;
  #jobs: Job[] = [];
  #running = false;
  #file: Growing | null = null;
  #lastMs = 0;
  #sequence = 0;

  constructor(options: WriterOptions) {
    this.#options = options;
    const last = /^(\d{13})-(\d{8})/.exec(options.lastName ?? '');
    if (last === null) return;
    this.#lastMs = Number(last[1]);
    this.#sequence = Number(last[2]);
  }

  /** Messages in the file that grows. */
  get growingEvents(): number {
    return this.#file?.events ?? 0;
  }

  get growingBytes(): number {
    return this.#file?.bytes ?? 0;
  }

  /** Resolves when the bytes are on disk. Rejects when they are not, and then nothing of them is. */
  append(bytes: Buffer, events: number): Promise<void> {
    return this.#add(bytes, events);
  }

  /** Finishes the file that grows, if there is one. */
  async finish(): Promise<void> {
    if (this.#file === null && !this.#running) return;
    await this.#add(null, 0);
  }

  #add(bytes: Buffer | null, events: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#jobs.push({ bytes, events, resolve, reject });
      if (!this.#running) void this.#run();
    });
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    this.#running = true;
    // What this turn of the event loop brings goes into the first write already.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#jobs.length > 0) {
      const jobs = this.#next();
      try {
        if (jobs[0]!.bytes === null) await this.#finish();
        else await this.#write(jobs);
        for (const job of jobs) job.resolve();
      } catch (error) {
        for (const job of jobs) job.reject(error);
      }
    }
    // In one go with the look at the jobs: who comes now must not think that somebody is still at work.
    this.#running = false;
  }

  /** One order to finish, or as many appends as go into one write and one file. */
  #next(): Job[] {
    let bytes = 0;
    let events = this.growingEvents;
    let count = 0;
    for (const job of this.#jobs) {
      if (job.bytes === null) break;
      if (count > 0 && (bytes + job.bytes.length > WRITE_BYTES_MAX || events >= this.#options.eventsPerFile))
        break;
      bytes += job.bytes.length;
      events += job.events;
      count++;
    }
    return this.#jobs.splice(0, Math.max(1, count));
  }

  async #write(jobs: readonly Job[]): Promise<void> {
    this.#file ??= await this.#begin();
    const file = this.#file;
    const bytes = Buffer.concat(jobs.map((job) => job.bytes!));
    try {
      // A disk that is almost full takes a part, and only then says no.
      for (let done = 0; done < bytes.length; ) {
        const left = bytes.length - done;
        const { bytesWritten } = await file.handle.write(bytes, done, left, file.bytes + done);
        done += bytesWritten;
      }
      await file.handle.datasync();
    } catch (error) {
      await this.#cutBack(file);
      throw error;
    }
    file.bytes += bytes.length;
    for (const job of jobs) file.events += job.events;
    const { eventsPerFile, fileBytesMax } = this.#options;
    if (file.events >= eventsPerFile || file.bytes >= fileBytesMax) await this.#finish();
  }

  async #begin(): Promise<Growing> {
    const name = this.#nextName();
    const path = join(this.#options.directory, name.replace(/buf$/, 'tmp'));
    const handle = await open(path, 'wx', 0o600);
    try {
      syncDirectory(this.#options.directory);
    } catch (error) {
      await handle.close();
      throw error;
    }
    return { name, path, handle, bytes: 0, events: 0, position: 0 };
  }

  /** A clock that steps back must not put later messages before earlier ones. */
  #nextName(): string {
    this.#lastMs = Math.max(this.#lastMs, (this.#options.wallMs ?? Date.now)());
    this.#sequence = (this.#sequence + 1) % 100_000_000;
    if (this.#sequence === 0) this.#lastMs++;
    return `${String(this.#lastMs).padStart(13, '0')}-${String(this.#sequence).padStart(8, '0')}.buf`;
  }

  /**
   * After a failed write nobody knows what is in the file behind the last good byte, and after a failed flush not even
   * whether the next one will tell: the file is finished there, and the next append begins a new one.
   */
  async #cutBack(file: Growing): Promise<void> {
    try {
      await file.handle.truncate(file.bytes);
    } catch {
      // Its length is remembered; only a start that finds more in the file would read it.
    }
    await this.#finish().catch(() => {});
  }

  async #finish(): Promise<void> {
    const file = this.#file;
    if (file === null) return;
    const { directory, finished } = this.#options;
    // What is in it is on disk already.
    await file.handle.close().catch(() => {});
    // From here on in one go: at every moment its messages are counted, here or by who is told.
    this.#file = null;
    if (file.events === 0) {
      rmSync(file.path, { force: true });
      return;
    }
    const { name, bytes, events, position } = file;
    const path = join(directory, name);
    try {
      renameSync(file.path, path);
      syncDirectory(directory);
    } finally {
      // Under its old name it is found by the next start, as one whose writer died.
      finished({ name, path: existsSync(path) ? path : file.path, bytes, events, position });
    }
  }
}
