/**
 * One random history: transactions, commits that are not visible at once, chunks, a stream that is behind, owners that die. What
 * the queues hold is folded as it comes; the table must come out of it, and no event may be older than one before it.
 */
import { CELL, type Relation, type Tuple } from '../../../src/connectors/postgres/replication/pgoutput.ts';
import type { CatalogTable } from '../../../src/connectors/postgres/source/catalog.ts';
import { shapeOf } from '../../../src/connectors/postgres/source/snapshot/select.ts';
import type { Snapshot } from '../../../src/connectors/postgres/source/snapshot/snapshot.ts';
import {
  baseOf,
  firstState,
  parseSnapshotState,
  type SnapshotState,
} from '../../../src/connectors/postgres/source/snapshot/state.ts';
import { printVisibility } from '../../../src/connectors/postgres/source/snapshot/visibility.ts';
import { silentLog } from '../../../src/store/log.ts';
import { rowOf } from '../row_of.ts';
import { type Change, ModelSession, type Row, type Transaction, UpstreamModel } from './upstream_model.ts';

export type SnapshotClass = typeof Snapshot;

const NAME = 'public.t';
const KEYS = 6;
const STEPS = 220;
const WARM_UP = 25;
const DRAIN_MAX = 20_000;

const COLUMNS = ['id', 'v', 'w', 'x'];
const TYPE = { oid: 23, kind: 'b', element: null, delimiter: ',' };
const TABLE: CatalogTable = {
  oid: 16_400,
  schema: 'public',
  name: 't',
  kind: 'r',
  identity: 'd',
  columns: COLUMNS.map((name, i) => ({
    name,
    attnum: i + 1,
    type: TYPE,
    formatType: 'integer',
    collation: null,
    generated: false,
  })),
  key: ['id'],
  source: { schema: 'public', table: 't', queue: 'q', partitionBy: 'key' },
};
const RELATION: Relation = {
  kind: 'relation',
  oid: 16_400,
  schema: 'public',
  name: 't',
  identity: 'd',
  columns: COLUMNS.map((name) => ({ name, key: name === 'id', typeOid: 23, typeModifier: -1 })),
};

/** The same numbers for the same seed. */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

class Complaint extends Error {}

/** What a consumer knows that folds the events. */
class Consumer {
  readonly rows = new Map<number, Partial<Row>>();
  /** Of each key, the newest that was told of it. */
  readonly #newest = new Map<number, number>();
  #truncatedAt = 0;

  change(change: Change): void {
    switch (change.kind) {
      case 'insert':
        this.#next(change.id, change.row.v);
        this.rows.set(change.id, { ...change.row });
        return;
      case 'delete':
        this.#next(change.id, change.at);
        this.rows.delete(change.id);
        return;
      case 'truncate':
        this.#truncatedAt = change.at;
        this.rows.clear();
        return;
      case 'update':
        if (change.to === change.id) this.#update(change);
        else this.#move(change);
    }
  }

  #update({ id, row, unchanged }: Extract<Change, { kind: 'update' }>): void {
    this.#next(id, row.v);
    const carried: Partial<Row> = { ...row };
    for (const column of unchanged) delete carried[column];
    this.rows.set(id, { ...this.rows.get(id), ...carried });
  }

  /** Two events, of which the second one is completed. */
  #move({ id, to, row }: Extract<Change, { kind: 'update' }>): void {
    this.#next(id, row.v);
    this.rows.delete(id);
    this.#next(to, row.v);
    this.rows.set(to, { ...row });
  }

  read(id: number, row: Row): void {
    if (row.v < this.#told(id)) throw new Complaint(`row ${id} of version ${row.v} after ${this.#told(id)}`);
    this.#newest.set(id, row.v);
    this.rows.set(id, row);
  }

  fill(id: number, values: Partial<Row>): void {
    const row = this.rows.get(id);
    if (row === undefined) throw new Complaint(`row ${id} is filled and is not there`);
    for (const column of ['w', 'x'] as const) {
      if ((values[column] ?? Infinity) < (row[column] ?? 0)) {
        throw new Complaint(`row ${id}: ${column} ${values[column]} after ${row[column]}`);
      }
    }
    Object.assign(row, values);
  }

  #told(id: number): number {
    return Math.max(this.#newest.get(id) ?? 0, this.#truncatedAt);
  }

  #next(id: number, version: number): void {
    if (version <= this.#told(id)) throw new Complaint(`change ${version} of ${id} after ${this.#told(id)}`);
    this.#newest.set(id, version);
  }
}

export interface WorldOptions {
  readonly seed: number;
  readonly Snapshot: SnapshotClass;
}

class World {
  readonly #random: () => number;
  readonly #Snapshot: SnapshotClass;
  readonly #upstream: UpstreamModel;
  readonly #consumer = new Consumer();
  readonly #open: Transaction[] = [];
  readonly #full: boolean;
  readonly #truncates: boolean;
  readonly #keysMax: number | undefined;
  readonly #chunkRows: number;
  /** What was committed with the messages: where the stream goes on, and the snapshot. */
  #pointer: { at: number; state: SnapshotState | null } = { at: 0, state: null };
  #snapshot!: Snapshot;
  #session: ModelSession | null = null;
  /** Where the slot was made: what lies before is never sent. */
  #first = 0;
  /** The next entry of the log. */
  #at = 0;
  #now = 0;
  #pumpFault: unknown = null;
  readonly #dead = new Set<Snapshot>();
  /** Keys that the stream brought since the first marker of a chunk, and whether it brought the whole row last. */
  #between: Map<number, boolean> | null = null;

  constructor({ seed, Snapshot }: WorldOptions) {
    this.#random = random(seed);
    this.#Snapshot = Snapshot;
    this.#upstream = new UpstreamModel(this.#pick([750, 2 ** 32 - 6, 3 * 2 ** 32 - 3]));
    this.#full = this.#chance(0.1);
    this.#truncates = this.#chance(0.4);
    this.#keysMax = this.#chance(0.25) ? this.#pick([0, 1, 2, 3]) : undefined;
    this.#chunkRows = this.#pick([1, 2, 3, 10]);
  }

  async run(): Promise<void> {
    for (let i = 0; i < WARM_UP; i++) this.#write();
    this.#begin();
    for (let i = 0; i < STEPS; i++) await this.#step();
    await this.#drain();
    this.#compare();
  }

  #begin(): void {
    const { log } = this.#upstream;
    const adopted = this.#chance(0.3);
    const base = adopted ? null : baseOf(printVisibility(this.#upstream.slotSnapshot()));
    const at = adopted ? Math.floor(this.#random() * (log.length + 1)) : log.length;
    this.#pointer = { at, state: firstState([NAME], base) };
    this.#first = at;
    this.#live();
  }

  /** An owner begins where the last one has left off; what was confirmed late is sent again, and skipped. */
  #live(): void {
    const { state, at } = this.#pointer;
    let now = this.#now;
    const clock = {
      now: () => (now += 10_000),
      after(_ms: number, work: () => void) {
        const handle = setImmediate(work);
        return { cancel: () => clearImmediate(handle) };
      },
    };
    this.#between = null;
    this.#snapshot = new this.#Snapshot({
      state: state === null ? null : parseSnapshotState(JSON.parse(JSON.stringify(state))),
      tables: [TABLE],
      settings: { snapshotChunkRows: this.#chunkRows, maxBundleBytes: 65_536 },
      epoch: 'e',
      session: async () => {
        this.#session = new ModelSession(this.#upstream, shapeOf(TABLE));
        return this.#session;
      },
      clock,
      log: silentLog,
      ...(this.#keysMax === undefined ? {} : { keysMax: this.#keysMax }),
    });
    const again = this.#chance(0.5) ? 0 : Math.floor(this.#random() * 4);
    this.#at = at;
    for (const entry of this.#upstream.log.slice(Math.max(this.#first, at - again), at)) {
      if (entry.kind === 'transaction') for (const change of entry.changes) this.#note(entry.xid, change);
    }
  }

  async #die(): Promise<void> {
    this.#now += 1_000_000;
    this.#dead.add(this.#snapshot);
    void this.#snapshot.close();
    await this.#session?.close();
    this.#session = null;
    await settled();
    this.#live();
    if (this.#chance(0.7)) return;
    // The stream is slow to come back.
    this.#pump();
    for (let i = 0; i < 15; i++) await this.#serve();
  }

  async #step(): Promise<void> {
    const dice = this.#random();
    if (dice < 0.4) this.#write();
    else if (dice < 0.6) await this.#decode();
    else if (dice < 0.9) await this.#serve();
    else if (dice < 0.98) this.#pump();
    else await this.#die();
    if (this.#pumpFault !== null) throw this.#pumpFault;
  }

  #pump(): void {
    const snapshot = this.#snapshot;
    snapshot.pump().catch((error: unknown) => {
      if (!this.#dead.has(snapshot)) this.#pumpFault = error;
    });
  }

  async #serve(): Promise<void> {
    this.#session?.step();
    await settled();
  }

  async #drain(): Promise<void> {
    while (this.#open.length > 0) this.#commitSome();
    for (const transaction of [...this.#upstream.running]) this.#upstream.end(transaction);
    for (let i = 0; i < DRAIN_MAX; i++) {
      if (this.#snapshot.done && this.#at === this.#upstream.log.length) return;
      this.#pump();
      await settled();
      await this.#serve();
      await this.#decode();
      if (this.#pumpFault !== null) throw this.#pumpFault;
    }
    throw new Complaint('the snapshot does not come to an end');
  }

  #compare(): void {
    const table = this.#upstream.present(null);
    const { rows } = this.#consumer;
    for (const id of new Set([...table.keys(), ...rows.keys()])) {
      const want = table.get(id);
      const have = rows.get(id);
      if (want?.v !== have?.v || want?.w !== have?.w || want?.x !== have?.x) {
        throw new Complaint(`row ${id} is ${JSON.stringify(have)} and not ${JSON.stringify(want)}`);
      }
    }
  }

  async #decode(): Promise<void> {
    const entry = this.#upstream.log[this.#at];
    if (entry === undefined) return;
    this.#at++;
    if (entry.kind === 'transaction') {
      for (const change of entry.changes) {
        this.#note(entry.xid, change);
        this.#consumer.change(change);
        this.#told(change);
      }
      this.#pointer = { at: this.#at, state: this.#snapshot.state };
      return;
    }
    const chunk = this.#snapshot.marker(entry.content, BigInt(this.#at));
    if (entry.content.startsWith('lw:')) this.#between = new Map();
    if (chunk === null) return;
    for (const { payload, stateAfter } of chunk.rows) {
      if (this.#chance(0.02)) {
        await this.#die();
        return;
      }
      const { op, after, key } = JSON.parse(payload.toString());
      if (op === 'r' && this.#between?.has(key.id)) {
        throw new Complaint(`row ${key.id} is written, and was changed between the markers`);
      }
      if (op === 'r') this.#consumer.read(key.id, { v: after.v, w: after.w, x: after.x });
      else if (this.#between?.get(key.id)) throw new Complaint(`row ${key.id} is filled, and was whole`);
      else this.#consumer.fill(key.id, without(after, 'id'));
      // Each row in a bundle of its own.
      this.#pointer = { at: this.#at, state: stateAfter };
    }
    this.#pointer = { at: this.#at, state: chunk.end };
  }

  #told(change: Change): void {
    const between = this.#between;
    if (between === null) return;
    if (change.kind === 'truncate') {
      for (const id of between.keys()) between.set(id, true);
    } else if (change.kind === 'update' && change.to === change.id) {
      between.set(change.id, (between.get(change.id) ?? false) || change.unchanged.length === 0);
    } else {
      between.set(change.id, true);
      if (change.kind === 'update') between.set(change.to, true);
    }
  }

  #note(xid: number, change: Change): void {
    const low = Number(BigInt.asUintN(32, BigInt(xid)));
    if (change.kind === 'truncate') {
      this.#snapshot.truncated(TABLE, low);
      return;
    }
    const relation = RELATION.oid;
    if (change.kind === 'insert') {
      const after = tuple(change.id, change.row, []);
      this.#snapshot.changed(TABLE, RELATION, low, { kind: 'insert', relation, after });
    } else if (change.kind === 'delete') {
      const before = keyTuple(change.id);
      this.#snapshot.changed(TABLE, RELATION, low, { kind: 'delete', relation, identity: 'K', before });
    } else {
      const { id, to, row, unchanged } = change;
      const moved = id !== to;
      const identity = this.#full ? 'O' : moved || this.#chance(0.2) ? 'K' : null;
      const before =
        identity === null ? null : identity === 'O' ? tuple(id, { ...row, v: row.v }, []) : keyTuple(id);
      const after = tuple(to, row, this.#full ? [] : unchanged);
      this.#snapshot.changed(TABLE, RELATION, low, { kind: 'update', relation, identity, before, after });
    }
  }

  /** Something happens in the upstream. */
  #write(): void {
    const dice = this.#random();
    if (this.#open.length === 0 || (dice < 0.15 && this.#open.length < 3)) {
      this.#open.push(this.#upstream.begin());
    } else if (dice < 0.6) this.#change(this.#pick(this.#open));
    else if (dice < 0.82) this.#commitSome();
    else {
      const waiting = [...this.#upstream.running].filter(({ committed }) => committed);
      if (waiting.length > 0) this.#upstream.end(this.#pick(waiting));
    }
  }

  #commitSome(): void {
    const [transaction] = this.#open.splice(Math.floor(this.#random() * this.#open.length), 1);
    if (transaction === undefined) return;
    if (this.#chance(0.9)) {
      this.#upstream.commit(transaction);
      if (this.#chance(0.4)) this.#upstream.end(transaction);
    } else this.#upstream.end(transaction);
  }

  #change(transaction: Transaction): void {
    const upstream = this.#upstream;
    if (this.#truncates && this.#chance(0.15)) {
      if (!upstream.mayLockAll(transaction)) return;
      transaction.exclusive = true;
      transaction.changes.push({ kind: 'truncate', at: upstream.stamp() });
      return;
    }
    const id = this.#key();
    const to = this.#chance(0.2) ? this.#key() : id;
    if (!upstream.mayLock(transaction, [id, to])) return;
    const table = upstream.present(transaction);
    const row = table.get(id);
    if (to !== id && table.has(to)) return;
    transaction.locks.add(id).add(to);
    const v = upstream.stamp();
    if (row === undefined) {
      transaction.changes.push({ kind: 'insert', id, row: { v, w: v, x: v } });
    } else if (to === id && this.#chance(0.25)) transaction.changes.push({ kind: 'delete', id, at: v });
    else {
      const unchanged = (['w', 'x'] as const).filter(() => this.#chance(this.#full ? 0 : 0.75));
      const next = { v, w: v, x: v };
      for (const column of unchanged) next[column] = row[column];
      transaction.changes.push({ kind: 'update', id, to, row: next, unchanged: [...unchanged] });
    }
  }

  #key(): number {
    return 1 + Math.floor(this.#random() * KEYS);
  }

  #chance(probability: number): boolean {
    return this.#random() < probability;
  }

  #pick<Item>(items: readonly Item[]): Item {
    return items[Math.floor(this.#random() * items.length)]!;
  }
}

function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function without(row: Record<string, number>, column: string): Partial<Row> {
  const { [column]: _, ...rest } = row;
  return rest as Partial<Row>;
}

function tuple(id: number, row: Row, unchanged: readonly string[]): Tuple {
  const made = rowOf([id, row.v, row.w, row.x].map(String));
  for (const column of unchanged) made.kinds[COLUMNS.indexOf(column)] = CELL.unchanged;
  return made;
}

function keyTuple(id: number): Tuple {
  return rowOf([String(id), null, null, null]);
}

/** Null: all was as it must be. Else what was not. */
export async function complaintOf(options: WorldOptions): Promise<string | null> {
  try {
    await new World(options).run();
    return null;
  } catch (error) {
    if (error instanceof Complaint) return error.message;
    return error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
}
