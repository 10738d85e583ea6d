/**
 * The copy of the tables' present rows, chunk by chunk, beside the running stream: emits the markers, reads between them, and
 * hands the rows out where the second marker comes back. What may be written, and why, is in `window.ts`; what a
 * chunk must see at all, in `base.ts`.
 *
 * One object for the life of a stream. Whoever owns the stream tells it of every change and marker, in order, and
 * asks it now and then to go on.
 */
import { randomInt } from 'node:crypto';
import type { Clock } from '../../../../engine/clock.ts';
import type { StoreLog } from '../../../../store/log.ts';
import type { SourceSettings } from '../../document/types.ts';
import { ConnectorFault } from '../../fault.ts';
import { pause } from '../../pause.ts';
import type { Relation } from '../../replication/pgoutput.ts';
import type { SqlSession } from '../../session/types.ts';
import type { CatalogTable } from '../catalog.ts';
import { keyTexts } from '../rows.ts';
import { ChunkBase } from './base.ts';
import { type ChunkRows, chunkRows, encoderOf } from './chunk_rows.ts';
import { type Chunk, ChunkReader } from './reader.ts';
import type { SnapshotState } from './state.ts';
import { keyText, type RowChange, Touches } from './touches.ts';
import type { Visibility } from './visibility.ts';
import { ChunkWindow } from './window.ts';

export interface SnapshotDeps {
  readonly state: SnapshotState | null;
  readonly tables: readonly CatalogTable[];
  readonly settings: Pick<SourceSettings, 'snapshotChunkRows' | 'maxBundleBytes'>;
  readonly epoch: string;
  /** Opens a session that nobody else uses: what runs on it beside a chunk would see the past. */
  readonly session: () => Promise<SqlSession>;
  readonly clock: Clock;
  readonly log: StoreLog;
  /** Reads one table's catalog anew. Null: it is gone. */
  readonly reread?: (table: CatalogTable) => Promise<CatalogTable | null>;
  /** What a slow step waits for, for the status; null: it goes on. */
  readonly detail?: (text: string | null) => void;
  /** Keys that are remembered at a time. */
  readonly keysMax?: number;
}

/** A chunk between its first marker and its second one. */
interface Flight {
  readonly number: number;
  /** Null: it is still being read. */
  chunk: Chunk | null;
}

const CHUNK_ROWS_MIN = 100;
const CHUNK_BYTES_MIN = 16 * 1024 * 1024;
const BUNDLES_A_CHUNK = 4;
/** Between two looks at whether a chunk may be read, and how many of them make one call of pump. */
const AGAIN_MS = 50;
const TRIES = 20;
/** After a failure that passes by itself, and between two looks at the catalog. */
const PAUSE_MS = 1_000;
/** Looks at the catalog before an altered table is an error. */
const LOOKS_MAX = 5;
/** Cancelled, serialization failure or recovery conflict, deadlock, lock not available. */
const PASSING: ReadonlySet<string> = new Set(['57014', '40001', '40P01', '55P03']);
/** No such column, no such table. */
const ALTERED: ReadonlySet<string> = new Set(['42703', '42P01']);

export class Snapshot {
  readonly #deps: SnapshotDeps;
  readonly #tables: Map<string, CatalogTable>;
  readonly #window: ChunkWindow;
  readonly #touches: Touches;
  readonly #reader: ChunkReader;
  /** Where the copy is; its base is kept apart. */
  #at: SnapshotState | null;
  readonly #base: ChunkBase;
  /** While the base is not known: what has to be over first. */
  #settlesAt: bigint | null = null;
  #printed: SnapshotState | null = null;
  #flight: Flight | null = null;
  #number = randomInt(2 ** 47);
  #limit: number;
  #pumping = false;
  #pausedUntil = 0;
  #looks = 0;

  constructor(deps: SnapshotDeps) {
    this.#deps = deps;
    const { settings, epoch, session } = deps;
    this.#tables = new Map(deps.tables.map((table) => [nameOf(table), table]));
    this.#at = withKnownTables(deps.state, this.#tables);
    this.#base = new ChunkBase(deps.state?.base ?? null);
    this.#window = new ChunkWindow(this.#at?.tables ?? [], deps.keysMax);
    this.#touches = new Touches(this.#window);
    this.#limit = settings.snapshotChunkRows;
    this.#reader = new ChunkReader({
      open: session,
      prefix: `queen:${epoch}`,
      bytesMax: Math.max(CHUNK_BYTES_MIN, BUNDLES_A_CHUNK * settings.maxBundleBytes),
    });
  }

  /** Nothing is left to be copied. */
  get done(): boolean {
    return this.#at === null;
  }

  /**
   * For the pointer of whatever is written next: where the copy is with all that was handed out so far, and the transactions
   * that the stream has brought so far, which whoever takes over must see. Null: nothing is left.
   */
  get state(): SnapshotState | null {
    if (this.#at === null) return null;
    const base = this.#base.print();
    if (this.#printed === null || this.#printed.base !== base) this.#printed = { ...this.#at, base };
    return this.#printed;
  }

  /**
   * Reads the next chunk if none is on its way; returns when it is read and both markers are in the log. Throws
   * ConnectorFault; what passes by itself only makes it wait.
   */
  async pump(): Promise<void> {
    if (this.#pumping || this.#flight !== null || this.#at === null) return;
    if (this.#deps.clock.now() < this.#pausedUntil) return;
    this.#pumping = true;
    try {
      for (let attempt = 1; ; attempt++) {
        if (await this.#ready()) return await this.#send(this.#at);
        if (attempt === TRIES) return;
        await pause(this.#deps.clock, AGAIN_MS);
      }
    } catch (error) {
      this.#abandon();
      await this.#failed(error);
    } finally {
      this.#pumping = false;
    }
  }

  /** A change of a row, in the order of the stream; also of a transaction that was sent again and is skipped. */
  changed(table: CatalogTable, relation: Relation, xid: number, change: RowChange): void {
    const name = nameOf(table);
    if (!this.#window.watches(name)) return;
    this.#base.carried(xid);
    this.#touches.note(name, table, relation, xid, change);
  }

  truncated(table: CatalogTable, xid: number): void {
    const name = nameOf(table);
    if (!this.#window.watches(name)) return;
    this.#base.carried(xid);
    this.#window.truncated(name, xid);
  }

  /**
   * A message under our prefix came by outside of a transaction. Null: it is none of ours, or there is nothing to write.
   * Else what is to be written here, before anything that comes later.
   */
  marker(content: string, lsn: bigint): ChunkRows | null {
    const flight = this.#flight;
    if (flight === null) return null;
    if (content === `lw:${flight.number}`) {
      this.#window.open();
      return null;
    }
    const { chunk } = flight;
    if (content !== `hw:${flight.number}` || chunk === null || this.#at === null) return null;
    this.#flight = null;
    if (!this.#window.usable(chunk.visibility)) {
      if (this.#window.spoiled) this.#limit = Math.max(CHUNK_ROWS_MIN, this.#limit >> 1);
      this.#window.abandon();
      return null;
    }
    return this.#handOut(chunk, this.#at, lsn);
  }

  /** Never rejects. */
  close(): Promise<void> {
    return this.#reader.close();
  }

  #handOut(chunk: Chunk, from: SnapshotState, lsn: bigint): ChunkRows {
    const { table, rows, visibility } = chunk;
    const name = nameOf(table);
    const { key } = encoderOf(table);
    const untouched = this.#window.untouched(name);
    const fates = untouched
      ? null
      : rows.map((row) => this.#window.fate(name, keyText(row, key), visibility));
    this.#window.close(visibility);
    this.#base.saw(visibility);
    this.#at = stateBehind(chunk, from, key);
    if (chunk.last) this.#window.forget(name);
    this.#printed = null;
    this.#limit = Math.min(this.#deps.settings.snapshotChunkRows, 2 * this.#limit);
    return chunkRows({ chunk, fates, lsn, from, end: this.state, base: () => this.#base.print() });
  }

  /** Whether a chunk may be read now, as far as is known without reading it. */
  async #ready(): Promise<boolean> {
    if (this.#base.settled) return true;
    // Nobody knows what was done and yet invisible when the stream began, or was handed over: so let all of it end.
    if (!this.#base.known) this.#settlesAt ??= await this.#reader.youngest();
    const visibility = await this.#reader.look();
    if (this.#base.known) return this.#base.admits(visibility) || this.#waitFor(visibility);
    if (visibility.xmin <= this.#settlesAt!) return this.#waitFor(visibility);
    this.#base.saw(visibility);
    return true;
  }

  async #waitFor(visibility: Visibility): Promise<false> {
    if (this.#deps.detail === undefined) return false;
    const pids = await this.#reader.writers();
    this.#deps.detail(
      `the snapshot waits until transactions that were running when it began have ended (the oldest is ${visibility.xmin}; processes that write: ${pids.join(', ') || 'none'})`,
    );
    return false;
  }

  /** First marker, rows, second marker. */
  async #send(at: SnapshotState): Promise<void> {
    const table = this.#tables.get(at.table)!;
    const flight: Flight = { number: ++this.#number, chunk: null };
    this.#flight = flight;
    await this.#reader.mark(`lw:${flight.number}`, false);
    const after = at.after?.length === table.key.length ? at.after : null;
    const admits = (visibility: Visibility) => this.#base.admits(visibility);
    const chunk = await this.#reader.read(table, after, this.#limit, admits);
    if (chunk === 'altered') {
      this.#abandon();
      await this.#lookAgain(table, null);
    } else if (chunk === 'refused') {
      this.#abandon();
    } else {
      this.#looks = 0;
      this.#window.saw(chunk.visibility);
      flight.chunk = chunk;
      await this.#reader.mark(`hw:${flight.number}`, true);
      this.#deps.detail?.(null);
    }
  }

  /** Its markers may still come by; nobody knows them any more. */
  #abandon(): void {
    this.#flight = null;
    this.#window.abandon();
  }

  async #failed(error: unknown): Promise<void> {
    const state = error instanceof ConnectorFault ? error.sqlState : null;
    if (state !== null && PASSING.has(state)) {
      this.#deps.log.warn({ sqlState: state }, 'a chunk of the snapshot is read again');
      this.#pausedUntil = this.#deps.clock.now() + PAUSE_MS;
      return;
    }
    const table = this.#at === null ? undefined : this.#tables.get(this.#at.table);
    if (state === null || !ALTERED.has(state) || table === undefined) throw error;
    await this.#lookAgain(table, error);
  }

  /** The table was altered since its catalog was read. */
  async #lookAgain(table: CatalogTable, cause: unknown): Promise<void> {
    const { reread, log, clock } = this.#deps;
    const name = nameOf(table);
    if (reread === undefined || ++this.#looks > LOOKS_MAX) {
      throw new ConnectorFault(
        'relation_changed',
        `${name} was altered while its rows were copied: the connector starts again with the table as it is now`,
        { retry: 'backoff', ...(cause === null ? {} : { cause }) },
      );
    }
    if (this.#looks > 1) this.#pausedUntil = clock.now() + PAUSE_MS;
    log.info({ table: name }, 'a table was altered during its snapshot; its catalog is read again');
    const now = await reread(table);
    if (now !== null) this.#tables.set(name, now);
    else this.#pausedUntil = clock.now() + PAUSE_MS;
  }
}

function nameOf({ schema, name }: CatalogTable): string {
  return `${schema}.${name}`;
}

/** Tables that the document does not name any more are not copied. */
function withKnownTables(
  state: SnapshotState | null,
  known: ReadonlyMap<string, CatalogTable>,
): SnapshotState | null {
  if (state === null) return null;
  const tables = state.tables.filter((table) => known.has(table));
  const [table] = tables;
  if (table === undefined) return null;
  return table === state.table ? { ...state, tables } : { ...state, tables, table, after: null, rows: 0 };
}

function stateBehind(
  { rows, last }: Chunk,
  from: SnapshotState,
  key: readonly number[],
): SnapshotState | null {
  const row = rows.at(-1);
  if (!last) {
    return row === undefined ? from : { ...from, after: keyTexts(row, key), rows: from.rows + rows.length };
  }
  const [, ...tables] = from.tables;
  const [table] = tables;
  return table === undefined ? null : { ...from, tables, table, after: null, rows: 0 };
}
