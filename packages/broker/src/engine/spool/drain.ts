/**
 * Brings what lies on disk into the log: file by file, from front to back, so that the messages of a lane come into the
 * log in the order in which they were accepted.
 *
 * Units are stored in batches, each in one transaction. After it what was stored is noted; a process that dies between the
 * two finds the batch again, and the append tells its messages apart by their transactionIds (within the queue's window;
 * with a window of 0 such a batch is stored twice).
 *
 * Two things can keep a batch on disk. Trouble that passes holds up everything: nothing behind it is tried before it, and
 * after some failures in a row nobody tries for a while. What is about the messages themselves (no broker could store
 * them) holds up its batch for some tries and is then put aside, where it is kept and reported.
 */
import { encodeSpoolRecord } from '../../log/spool_record.ts';
import { buggify } from '../../observability/buggify.ts';
import type { Damage, SpooledUnit } from '../../store/spool/reader.ts';
import type { Shelf } from '../../store/spool/shelf.ts';
import type { SpoolFile } from '../../store/spool/writer.ts';
import type { Clock } from '../clock.ts';
import { laneKey } from '../push/unit.ts';
import type { Restored } from './restore.ts';

export interface DrainSettings {
  /** Messages in a transaction; one unit alone may have more. */
  batchEvents: number;
  /** Files in one pass while all goes well; one when it does not. */
  filesAPass: number;
  /** So many failures in a row ... */
  breakerFailures: number;
  /** ... and nobody tries for so long. */
  breakerMs: number;
  /** Messages that cannot be stored are tried so often before they are put aside. */
  lastingTries: number;
}

export const DRAIN_DEFAULTS: Omit<DrainSettings, 'batchEvents'> = {
  filesAPass: 10,
  breakerFailures: 10,
  breakerMs: 5_000,
  lastingTries: 5,
};

export interface DrainDeps {
  shelf: Shelf;
  store: (units: readonly SpooledUnit[]) => Promise<Map<string, Restored>>;
  /** So many messages of a lane are on disk no more. */
  gone: (key: string, messages: number) => void;
  paused: () => boolean;
  clock: Clock;
  settings: DrainSettings;
  log: {
    info(facts: object, message: string): void;
    warn(facts: object, message: string): void;
    error(facts: object, message: string): void;
  };
}

/** Monotonic counts since the start. */
export interface DrainCounters {
  stored: number;
  /** Messages that were in the log already. */
  duplicates: number;
  putAside: number;
  transactions: number;
  failures: number;
  /** Files with a stretch that could not be read. */
  damagedFiles: number;
}

interface OpenFile {
  readonly file: SpoolFile;
  readonly pieces: Iterator<SpooledUnit | Damage, void>;
  damaged: boolean;
  /** The batch that is being stored, without what of it is stored. */
  batch: SpooledUnit[];
  /** Where that batch ends. */
  end: number;
  tries: number;
}

export class Drain {
  readonly counters: DrainCounters = {
    stored: 0,
    duplicates: 0,
    putAside: 0,
    transactions: 0,
    failures: 0,
    damagedFiles: 0,
  };
  readonly #deps: DrainDeps;
  #open: OpenFile | null = null;
  /** Of whoever was failed by the database ... */
  #failuresInARow = 0;
  /** ... and of these the tries from here. */
  #ownFailuresInARow = 0;
  #restUntil = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(deps: DrainDeps) {
    this.#deps = deps;
  }

  /** The database took what it was last given. */
  get healthy(): boolean {
    return this.#failuresInARow === 0;
  }

  /** So much has failed in a row that nothing else is to be expected. */
  get down(): boolean {
    return this.#failuresInARow >= this.#deps.settings.breakerFailures;
  }

  /** Somebody else was failed by the database. */
  failedElsewhere(): void {
    this.#failuresInARow++;
  }

  /** The database has shown itself: no more rest. */
  awake(): void {
    this.#restUntil = Number.NEGATIVE_INFINITY;
  }

  /** One pass over some files; true: there may be more to do at once. Never rejects. One at a time. */
  async pass(): Promise<boolean> {
    const { clock, settings, log } = this.#deps;
    if (clock.now() < this.#restUntil) return false;
    const files = this.healthy ? settings.filesAPass : 1;
    try {
      for (let i = 0; i < files; i++) {
        if (!(await this.#file())) return false;
      }
      return true;
    } catch (error) {
      log.error({ err: error }, 'the spool could not be read');
      this.#failed();
      return false;
    }
  }

  /** The pass that runs ends after its batch. */
  stop(): void {
    this.#stopped = true;
  }

  /** True: a file is done. False: there is none, or it has to stay. */
  async #file(): Promise<boolean> {
    this.#open ??= await this.#next();
    const open = this.#open;
    if (open === null) return false;
    for (;;) {
      if (this.#stopped || this.#deps.paused()) return false;
      if (open.batch.length === 0 && !this.#fill(open)) break;
      if (!(await this.#store(open))) return false;
    }
    this.#open = null;
    if (open.damaged) this.counters.damagedFiles++;
    this.#deps.shelf.done(open.file, open.damaged);
    return true;
  }

  async #next(): Promise<OpenFile | null> {
    const { shelf } = this.#deps;
    const file = await shelf.oldest();
    if (file === null) return null;
    return { file, pieces: await shelf.read(file), damaged: false, batch: [], end: file.position, tries: 0 };
  }

  /** The next units. False: the file has none. */
  #fill(open: OpenFile): boolean {
    const { settings, log } = this.#deps;
    let events = 0;
    while (events < settings.batchEvents) {
      const { value, done } = open.pieces.next();
      if (done === true) break;
      const piece = value as SpooledUnit | Damage;
      if (!('records' in piece)) {
        const { at, bytes, reason } = piece;
        open.damaged = true;
        log.error({ file: open.file.path, at, bytes, reason }, 'a part of a spool file is damaged');
        continue;
      }
      if (piece.end <= open.file.position) continue;
      open.batch.push(piece);
      open.end = piece.end;
      events += piece.records.length;
    }
    open.tries = 0;
    return open.batch.length > 0;
  }

  /** One transaction. True: the batch is done, stored or put aside. */
  async #store(open: OpenFile): Promise<boolean> {
    this.counters.transactions++;
    const outcomes = await this.#deps.store(open.batch);
    buggify('spool.stored');
    const left: SpooledUnit[] = [];
    const lasting: SpooledUnit[] = [];
    let gone = 0;
    for (const [key, units] of Map.groupBy(open.batch, keyOf)) {
      const outcome = outcomes.get(key)!;
      if (!('error' in outcome)) {
        this.counters.stored += outcome.stored;
        this.counters.duplicates += outcome.duplicates;
        gone += this.#gone(key, units);
        continue;
      }
      (outcome.lasting ? lasting : left).push(...units);
      this.#told(outcome, key, open);
    }
    const passing = left.length > 0;
    if (lasting.length > 0) {
      open.tries++;
      if (open.tries < this.#deps.settings.lastingTries) left.push(...lasting);
      else gone += await this.#storeApart(open, lasting, left);
    }
    // In the order of the file again.
    open.batch = left.sort((a, b) => a.end - b.end);
    const position = left.length === 0 ? open.end : open.file.position;
    if (gone > 0) this.#deps.shelf.stored(open.file, position, gone);
    if (left.length === 0) {
      this.#failuresInARow = 0;
      this.#ownFailuresInARow = 0;
      return true;
    }
    // Messages that cannot be stored say nothing about the database.
    if (passing) this.#failed();
    return false;
  }

  #gone(key: string, units: readonly SpooledUnit[]): number {
    const messages = units.reduce((sum, unit) => sum + unit.records.length, 0);
    this.#deps.gone(key, messages);
    return messages;
  }

  /** Each by itself, so that one which cannot be stored takes none of its lane along. Answers how many messages are gone. */
  async #storeApart(open: OpenFile, units: readonly SpooledUnit[], left: SpooledUnit[]): Promise<number> {
    let gone = 0;
    const waiting = new Set<string>();
    for (const unit of units) {
      const key = keyOf(unit);
      const outcome = waiting.has(key) ? null : (await this.#deps.store([unit])).get(key)!;
      if (outcome === null || ('error' in outcome && !outcome.lasting)) {
        waiting.add(key);
        left.push(unit);
      } else {
        if ('error' in outcome) this.#putAside(open, unit);
        else {
          this.counters.stored += outcome.stored;
          this.counters.duplicates += outcome.duplicates;
        }
        gone += this.#gone(key, [unit]);
      }
    }
    return gone;
  }

  #putAside(open: OpenFile, { records }: SpooledUnit): void {
    const { queue, partition } = records[0]!;
    this.#deps.shelf.putAside(open.file, Buffer.concat(records.map(encodeSpoolRecord)), records.length);
    this.counters.putAside += records.length;
    this.#deps.log.error(
      { queue, partition, messages: records.length, file: open.file.name },
      'messages that cannot be stored were put aside in the failed directory of the spool',
    );
  }

  #told(outcome: Extract<Restored, { lasting: boolean }>, key: string, open: OpenFile): void {
    // Once for an outage, and for each try of messages that are at fault themselves.
    if (!outcome.lasting && this.#failuresInARow > 0) return;
    const [, queue, partition] = key.split('\u001f');
    const { error } = outcome;
    this.#deps.log.warn(
      { err: error.cause ?? error, queue, partition, lasting: outcome.lasting, tries: open.tries },
      'messages of the spool could not be stored',
    );
  }

  #failed(): void {
    const { clock, settings } = this.#deps;
    this.counters.failures++;
    this.#failuresInARow++;
    this.#ownFailuresInARow++;
    const rests = this.#ownFailuresInARow % settings.breakerFailures === 0;
    if (rests) this.#restUntil = clock.now() + settings.breakerMs;
  }
}

function keyOf(unit: SpooledUnit): string {
  const { tenant, queue, partition } = unit.records[0]!;
  return laneKey(tenant, queue, partition);
}
