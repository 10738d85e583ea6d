/**
 * A PostgreSQL of a page: one table, row locks, a log in which commits stand, and the moment after a commit in which it is in the
 * log and nobody sees it yet. And a session that answers the statements of the snapshot's reader, one at a time,
 * when the test lets it.
 */
import { ConnectorFault } from '../../../src/connectors/postgres/fault.ts';
import type { SqlResult, SqlSession } from '../../../src/connectors/postgres/session/types.ts';
import { Visibility } from '../../../src/connectors/postgres/source/snapshot/visibility.ts';
import { cellsOf } from '../row_of.ts';

/** `v` is new with each version; the others are large columns, which an update may leave out. */
export interface Row {
  v: number;
  w: number;
  x: number;
}

export type Change =
  | { kind: 'insert'; id: number; row: Row }
  | { kind: 'update'; id: number; to: number; row: Row; unchanged: ('w' | 'x')[] }
  | { kind: 'delete'; id: number; at: number }
  | { kind: 'truncate'; at: number };

export type LogEntry =
  | { kind: 'transaction'; xid: number; changes: readonly Change[] }
  | { kind: 'message'; content: string };

export interface Transaction {
  readonly xid: number;
  readonly changes: Change[];
  readonly locks: Set<number>;
  exclusive: boolean;
  committed: boolean;
  ended: boolean;
}

export class UpstreamModel {
  readonly log: LogEntry[] = [];
  readonly running = new Set<Transaction>();
  #committed: Transaction[] = [];
  #next: number;
  #latestEnded: number;
  #counter = 0;
  /** Sessions that hold the table against a truncate. */
  readonly readers = new Set<object>();

  /** @param first number of the first transaction */
  constructor(first: number) {
    this.#next = first;
    this.#latestEnded = first - 1;
  }

  /** Newer than any number so far. */
  stamp(): number {
    return ++this.#counter;
  }

  begin(): Transaction {
    const transaction: Transaction = {
      xid: this.#next++,
      changes: [],
      locks: new Set(),
      exclusive: false,
      committed: false,
      ended: false,
    };
    this.running.add(transaction);
    return transaction;
  }

  /** Begun and ended, with nothing in between. */
  youngest(): number {
    const transaction = this.begin();
    this.end(transaction);
    return transaction.xid;
  }

  /** In the log; held by whoever waits for its end. */
  commit(transaction: Transaction): void {
    transaction.committed = true;
    this.#committed.push(transaction);
    const { xid, changes } = transaction;
    if (changes.length > 0) this.log.push({ kind: 'transaction', xid, changes });
  }

  /** Visible from now on, and its locks are free. */
  end(transaction: Transaction): void {
    transaction.ended = true;
    this.running.delete(transaction);
    this.#latestEnded = Math.max(this.#latestEnded, transaction.xid);
  }

  mayLock(transaction: Transaction, keys: readonly number[]): boolean {
    for (const other of this.running) {
      if (other === transaction) continue;
      if (other.exclusive || keys.some((key) => other.locks.has(key))) return false;
    }
    return true;
  }

  mayLockAll(transaction: Transaction): boolean {
    if (this.readers.size > 0) return false;
    for (const other of this.running) {
      if (other !== transaction && (other.exclusive || other.locks.size > 0)) return false;
    }
    return true;
  }

  get exclusivelyLocked(): boolean {
    return [...this.running].some(({ exclusive }) => exclusive);
  }

  snapshot(): Visibility {
    const xmax = this.#latestEnded + 1;
    const running = [...this.running].map(({ xid }) => xid).filter((xid) => xid < xmax);
    const xmin = Math.min(xmax, ...running);
    return new Visibility(BigInt(xmin), BigInt(xmax), running.map(BigInt));
  }

  /** What the log says is done, whether or not it is visible: how a slot sees the world when it is made. */
  slotSnapshot(): Visibility {
    const open = [...this.running].filter(({ committed }) => !committed).map(({ xid }) => xid);
    const xmin = Math.min(this.#next, ...open);
    return new Visibility(BigInt(xmin), BigInt(this.#next), open.map(BigInt));
  }

  rows(sees: (xid: number) => boolean): Map<number, Row> {
    const table = new Map<number, Row>();
    for (const { xid, changes } of this.#committed) {
      if (sees(xid)) for (const change of changes) apply(table, change);
    }
    return table;
  }

  /** As a transaction sees it that holds the locks of what it looks at. */
  present(transaction: Transaction | null): Map<number, Row> {
    const table = this.rows(() => true);
    for (const change of transaction?.changes ?? []) apply(table, change);
    return table;
  }
}

function apply(table: Map<number, Row>, change: Change): void {
  if (change.kind === 'truncate') table.clear();
  else if (change.kind === 'delete') table.delete(change.id);
  else {
    table.delete(change.id);
    table.set(change.kind === 'insert' ? change.id : change.to, change.row);
  }
}

interface Call {
  readonly text: string;
  readonly params: readonly unknown[];
  readonly resolve: (rows: (string | null)[][]) => void;
  readonly reject: (error: unknown) => void;
}

export class ModelSession implements SqlSession {
  readonly processId = 1;
  readonly serverVersion = 180_000;
  readonly #upstream: UpstreamModel;
  readonly #shape: string;
  readonly #calls: Call[] = [];
  #visibility: Visibility | null = null;
  #cursor: (string | null)[][] = [];
  #closed = false;

  constructor(upstream: UpstreamModel, shape: string) {
    this.#upstream = upstream;
    this.#shape = shape;
  }

  get waits(): boolean {
    return this.#calls.length > 0;
  }

  async query(text: string, params: readonly unknown[] = []): Promise<SqlResult> {
    const rows = await this.#ask(text, params);
    return { columns: [], rows, count: rows.length };
  }

  async bytes(text: string): Promise<(Buffer | null)[][]> {
    const rows = await this.#ask(text, []);
    return rows.map(cellsOf);
  }

  prepare(): Promise<number> {
    return Promise.reject(new Error('not asked for'));
  }

  onClose(): void {}

  async close(): Promise<void> {
    this.#closed = true;
    this.#upstream.readers.delete(this);
    for (const call of this.#calls.splice(0)) call.reject(new ConnectorFault('io', 'closed'));
  }

  #ask(text: string, params: readonly unknown[]): Promise<(string | null)[][]> {
    if (this.#closed) return Promise.reject(new ConnectorFault('io', 'closed'));
    return new Promise((resolve, reject) => this.#calls.push({ text, params, resolve, reject }));
  }

  /** Answers the next statement, unless it waits for a lock. */
  step(): void {
    const call = this.#calls[0];
    if (call === undefined || (call.text.startsWith('LOCK ') && this.#upstream.exclusivelyLocked)) return;
    this.#calls.shift();
    call.resolve(this.#answer(call));
  }

  #answer({ text, params }: Call): (string | null)[][] {
    const upstream = this.#upstream;
    if (text.includes('pg_logical_emit_message')) {
      upstream.log.push({ kind: 'message', content: String(params[1]) });
      return [['0/0']];
    }
    if (text.includes('pg_current_snapshot')) {
      this.#visibility ??= upstream.snapshot();
      const { xmin, xmax, running } = this.#visibility;
      if (!upstream.readers.has(this)) this.#visibility = null;
      return [[`${xmin}:${xmax}:${running.join(',')}`, '1700000000000000']];
    }
    if (text.includes('pg_current_xact_id')) return [[String(upstream.youngest())]];
    if (text.includes('pg_attribute')) return [[this.#shape, null]];
    if (text.startsWith('LOCK ')) upstream.readers.add(this);
    else if (text.startsWith('DECLARE ')) this.#cursor = this.#select(text);
    else if (text.startsWith('FETCH ')) return this.#cursor.splice(0, Number(/FORWARD (\d+)/.exec(text)![1]));
    else if (text === 'COMMIT' || text === 'ROLLBACK') {
      upstream.readers.delete(this);
      this.#visibility = null;
    } else if (!text.startsWith('BEGIN')) throw new Error(`not understood: ${text}`);
    return [];
  }

  #select(text: string): (string | null)[][] {
    const limit = Number(/LIMIT (\d+)$/.exec(text)![1]);
    const after = /CAST\(E'(\d+)'/.exec(text)?.[1];
    const visibility = this.#visibility!;
    return [...this.#upstream.rows((xid) => visibility.sees(BigInt(xid)))]
      .filter(([id]) => after === undefined || id > Number(after))
      .sort(([a], [b]) => a - b)
      .slice(0, limit)
      .map(([id, { v, w, x }]) => [id, v, w, x].map(String));
  }
}
