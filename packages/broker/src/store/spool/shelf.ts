/**
 * The files of one broker's spool: written at one end, taken off at the other, and what nobody can store put aside.
 * What is stored where, and when, is decided above (engine/spool).
 */
import { appendFileSync, existsSync, readdirSync, readFileSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { StoreLog } from '../log.ts';
import {
  cutTornEnd,
  readPosition,
  readSpoolFile,
  removeFile,
  type SpooledUnit,
  spooledUnits,
  writePosition,
} from './reader.ts';
import { SpoolRoom } from './room.ts';
import { FINISHED, Slot, syncDirectory, UNFINISHED } from './slot.ts';
import { type SpoolFile, SpoolWriter } from './writer.ts';

export interface ShelfOptions {
  directory: string;
  databaseId: string;
  eventsPerFile: number;
  fileBytesMax: number;
  bytesMax: number;
  log: StoreLog;
}

/** Told of every unit that an earlier process left behind, in the order of its files. */
export type Seen = (unit: SpooledUnit) => void;

export class Shelf {
  readonly #options: ShelfOptions;
  readonly #slot: Slot;
  readonly #room: SpoolRoom;
  readonly #seen: Seen;
  readonly #writer: SpoolWriter;
  /** Finished files, the oldest first. */
  readonly #files: SpoolFile[] = [];
  readonly #failed = { count: 0, bytes: 0, events: 0 };
  /** Bytes on their way to the disk. */
  #writing = 0;
  /** Slots without a process when they were last looked at. */
  #forsaken = new Set<string>();

  /** Throws when no slot can be had, or when what lies there cannot be read. */
  static async open(options: ShelfOptions, seen: Seen): Promise<Shelf> {
    const slot = await Slot.claim(options.directory, options.databaseId);
    const strangers = Slot.strangers(options.directory, options.databaseId);
    if (strangers.length > 0) {
      options.log.warn({ strangers }, 'the spool holds messages for another database: they are left alone');
    }
    try {
      return new Shelf(options, slot, seen);
    } catch (error) {
      await slot.release();
      throw error;
    }
  }

  private constructor(options: ShelfOptions, slot: Slot, seen: Seen) {
    this.#options = options;
    this.#slot = slot;
    this.#seen = seen;
    this.#room = new SpoolRoom(slot.path, options.bytesMax);
    finishLeftOvers(slot.path, options.log);
    for (const name of finishedNames(slot.path)) this.#shelve(name);
    for (const name of readdirSync(slot.failedPath)) this.#countFailed(join(slot.failedPath, name));
    this.#writer = new SpoolWriter({
      directory: slot.path,
      eventsPerFile: options.eventsPerFile,
      fileBytesMax: options.fileBytesMax,
      lastName: this.#files.at(-1)?.name ?? null,
      finished: (file) => this.#insert(file),
    });
  }

  get path(): string {
    return this.#slot.path;
  }

  /** Messages that are still to be stored. */
  get events(): number {
    return this.#files.reduce((sum, file) => sum + file.events, this.#writer.growingEvents);
  }

  /** On disk. */
  get bytes(): number {
    return this.#files.reduce((sum, file) => sum + file.bytes, this.#writer.growingBytes);
  }

  get failed(): { readonly count: number; readonly bytes: number; readonly events: number } {
    return this.#failed;
  }

  /** Throws a SpoolFull, or what the disk says; then nothing of it is kept. */
  async append(bytes: Buffer, events: number): Promise<void> {
    this.#room.take(bytes.length, this.bytes + this.#writing + this.#failed.bytes);
    this.#writing += bytes.length;
    try {
      await this.#writer.append(bytes, events);
    } finally {
      this.#writing -= bytes.length;
    }
  }

  /** The oldest file, finished for this when it is the only one. Null: nothing is there. */
  async oldest(): Promise<SpoolFile | null> {
    if (this.#files.length === 0 && this.#writer.growingEvents > 0) await this.#writer.finish();
    return this.#files[0] ?? null;
  }

  /** What is in it. Payloads are views into one buffer. */
  async read(file: SpoolFile): Promise<ReturnType<typeof spooledUnits>> {
    return spooledUnits(await readSpoolFile(file.path, file.bytes));
  }

  /** So many more messages are stored, and with them everything before `position`. */
  stored(file: SpoolFile, position: number, events: number): void {
    file.events -= events;
    file.position = position;
    try {
      writePosition(file.path, position);
    } catch (error) {
      this.#options.log.warn({ err: error, file: file.path }, 'how far a spool file is stored was not noted');
    }
  }

  /** All of it is stored or put aside. A file with damage is kept, for whoever may read it. */
  done(file: SpoolFile, damaged: boolean): void {
    this.#files.splice(this.#files.indexOf(file), 1);
    if (damaged) {
      const kept = this.#failedPath(file.name.replace(/buf$/, 'damaged'));
      renameSync(file.path, kept);
      this.#countFailed(kept);
    }
    removeFile(file.path);
  }

  /** What cannot be stored is kept in a file that can be moved back once its cause is gone. */
  putAside(file: SpoolFile, records: Buffer, events: number): void {
    const path = this.#failedPath(file.name);
    const fresh = !existsSync(path);
    appendFileSync(path, records, { mode: 0o600, flush: true });
    if (fresh) {
      syncDirectory(this.#slot.failedPath);
      this.#failed.count++;
    }
    this.#failed.bytes += records.length;
    this.#failed.events += events;
  }

  /**
   * Takes over what processes left behind that are gone, into this slot, and files that somebody has put back. A process
   * that has just gone may be starting again: its slot is left alone until the next look. Answers the number of files.
   */
  async adopt(): Promise<number> {
    const { directory, databaseId } = this.#options;
    const forsaken = new Set<string>();
    let files = this.#putBack();
    for (const path of Slot.others(directory, databaseId, this.#slot)) {
      const other = await Slot.take(path, databaseId);
      if (other === null) continue;
      try {
        if (this.#forsaken.has(path)) files += this.#move(other);
        else forsaken.add(path);
      } finally {
        await other.release();
      }
    }
    this.#forsaken = forsaken;
    return files;
  }

  /** What is being written is finished first. */
  async close(): Promise<void> {
    await this.#writer.finish().catch((error: unknown) => {
      this.#options.log.error({ err: error, path: this.path }, 'a spool file could not be finished');
    });
    await this.#slot.release();
  }

  #putBack(): number {
    const known = new Set(this.#files.map(({ name }) => name));
    const strangers = finishedNames(this.path).filter((name) => !known.has(name));
    for (const name of strangers) this.#shelve(name);
    if (strangers.length === 0) return 0;
    Object.assign(this.#failed, { count: 0, bytes: 0, events: 0 });
    for (const name of readdirSync(this.#slot.failedPath)) this.#countFailed(this.#failedPath(name));
    return strangers.length;
  }

  #move(other: Slot): number {
    finishLeftOvers(other.path, this.#options.log);
    const names = finishedNames(other.path);
    for (const name of names) {
      const from = join(other.path, name);
      const free = freeName(this.path, name);
      const to = join(this.path, free);
      const position = readPosition(from);
      if (position > 0) writePosition(to, position);
      renameSync(from, to);
      removeFile(from);
      this.#shelve(free);
    }
    for (const name of readdirSync(other.failedPath)) {
      const to = this.#failedPath(freeName(this.#slot.failedPath, name));
      renameSync(join(other.failedPath, name), to);
      this.#countFailed(to);
    }
    for (const path of [this.path, this.#slot.failedPath, other.path]) syncDirectory(path);
    this.#options.log.warn(
      { from: other.path, files: names.length },
      'took over the spool of a broker that is gone',
    );
    return names.length;
  }

  /** A file of an earlier process: looks through it for what is still to be stored. */
  #shelve(name: string): void {
    const path = join(this.path, name);
    const bytes = readFileSync(path);
    const position = readPosition(path);
    let events = 0;
    for (const piece of spooledUnits(bytes)) {
      if (!('records' in piece) || piece.end <= position) continue;
      events += piece.records.length;
      this.#seen(piece);
    }
    this.#insert({ name, path, bytes: bytes.length, events, position });
  }

  #insert(file: SpoolFile): void {
    let at = this.#files.length;
    while (at > 0 && this.#files[at - 1]!.name > file.name) at--;
    this.#files.splice(at, 0, file);
  }

  #failedPath(name: string): string {
    return join(this.#slot.failedPath, name);
  }

  #countFailed(path: string): void {
    const { size } = statSync(path);
    this.#failed.count++;
    this.#failed.bytes += size;
    if (!FINISHED.test(path.slice(path.lastIndexOf('/') + 1))) return;
    for (const piece of spooledUnits(readFileSync(path))) {
      if ('records' in piece) this.#failed.events += piece.records.length;
    }
  }
}

/** Files that their writer did not finish, since it died: their torn ends are cut off. */
function finishLeftOvers(path: string, log: StoreLog): void {
  for (const name of readdirSync(path).filter((each) => UNFINISHED.test(each))) {
    const from = join(path, name);
    const cut = cutTornEnd(from);
    if (cut > 0)
      log.warn({ file: from, bytes: cut }, 'a spool file ended in the middle of a message: cut off');
    if (statSync(from).size === 0) removeFile(from);
    else renameSync(from, from.replace(/tmp$/, 'buf'));
  }
  // The position of a file that is gone.
  for (const name of readdirSync(path).filter((each) => each.endsWith('.pos'))) {
    const file = join(path, name.replace(/pos$/, 'buf'));
    if (!existsSync(file)) removeFile(file);
  }
  syncDirectory(path);
}

/** Two processes may have begun files in the same millisecond. */
function freeName(path: string, name: string): string {
  for (let free = name; ; ) {
    if (!existsSync(join(path, free))) return free;
    free = free.replace(
      /-(\d{8})/,
      (_, n: string) => `-${String((Number(n) + 1) % 100_000_000).padStart(8, '0')}`,
    );
  }
}

function finishedNames(path: string): string[] {
  return readdirSync(path)
    .filter((name) => FINISHED.test(name))
    .sort();
}
