/**
 * Judges what a source has written into queues, knowing nothing of how it came there:
 *
 * - every id is there once, and says of its message what the message says;
 * - within a partition positions only grow, and every key has one partition;
 * - of each upstream transaction exactly the changes are there that it is known to have made, in one transaction of the
 *   store when they fit into a bundle;
 * - each event follows from the one before it: a row that is inserted was not there, one that is changed or deleted was,
 *   and a row has the seal that goes with its values;
 * - all of them, folded in order, are the upstream's tables, to the character.
 */
import { type ChangeEvent, type Row, readEvent, type StoredMessage } from './change_events.ts';

export interface TableState {
  queue: string;
  /** `schema.name` */
  table: string;
  key: readonly string[];
  partitionBy: 'key' | 'single' | readonly string[];
  columns: readonly string[];
  rows: readonly Row[];
}

export interface SourceHistory {
  messages: readonly StoredMessage[];
  tables: readonly TableState[];
  /** From there on every row has been seen: until then a change may be of a row that the copy has not come to. */
  copiedBy: bigint;
  /** A transaction with at most so many messages is stored whole. */
  bundleMessages: number;
  /** A row of this table is written by each transaction, and says how many changes it made beside that row. */
  journal?: { table: string; column: string };
  /**
   * What is wrong with a row, seen for itself or after `former`. Only whole rows come here. `ahead`: its large values may be
   * newer than the rest.
   */
  judgeRow?: (table: string, row: Row, former: Row | null, ahead: boolean) => string | null;
  /** Rows that nobody was told the end of: `table key`. */
  lost?: ReadonlySet<string>;
}

interface Read extends StoredMessage {
  event: ChangeEvent;
  epoch: string;
  suffix: number;
}

/** What is wrong, in sentences; nothing when all is well. */
export function checkChanges(history: SourceHistory): string[] {
  const faults: string[] = [];
  const read = readAll(history.messages, faults);
  checkTransactions(history, read, faults);
  const partitions = Map.groupBy(read, ({ queue, partition }) => `${queue}/${partition}`);
  const tables = new Map(history.tables.map((state) => [`${state.queue} ${state.table}`, state]));
  const folded = new Map<string, Fold>();
  for (const [place, messages] of partitions) {
    messages.sort((one, other) => one.offset - other.offset);
    checkOrder(place, messages, faults);
    for (const message of messages) {
      const state = tables.get(`${message.queue} ${message.event.table}`);
      if (state === undefined) {
        faults.push(`${message.id}: nothing of ${message.event.table} belongs into ${message.queue}`);
        continue;
      }
      checkPlace(state, message, faults);
      const name = `${place} ${state.table}`;
      let fold = folded.get(name);
      if (fold === undefined) {
        fold = new Fold(history, state, faults);
        folded.set(name, fold);
      }
      fold.apply(message);
    }
  }
  for (const state of history.tables) {
    const folds = [...folded.values()].filter((fold) => fold.state === state);
    compare(state, folds, history.lost ?? new Set(), faults);
  }
  return faults;
}

const ID = /^pg:([0-9a-f]{8}):(s:)?([0-9A-F]{16}):(f?)(\d+)(?:\.(\d+))?$/;

function readAll(messages: readonly StoredMessage[], faults: string[]): Read[] {
  const ids = new Set<string>();
  return messages.flatMap((message) => {
    const where = `${message.queue}/${message.partition} ${message.offset}`;
    if (ids.has(message.id)) faults.push(`${message.id} is there twice, the second time at ${where}`);
    ids.add(message.id);
    const match = ID.exec(message.id);
    if (match === null) {
      faults.push(`${where}: ${message.id} is no id of a source`);
      return [];
    }
    let event: ChangeEvent;
    try {
      event = readEvent(message.text);
    } catch (error) {
      faults.push(`${message.id}: ${error}: ${message.text.slice(0, 200)}`);
      return [];
    }
    const [, epoch, copied, lsn, fill, seq, suffix] = match;
    const agrees =
      BigInt(`0x${lsn}`) === event.lsn &&
      Number(seq) === event.seq &&
      (copied !== undefined) === (event.xid === null) &&
      (suffix === undefined || (event.op === 'c' && suffix === '1') || event.op === 't') &&
      (copied === undefined || event.op === (fill === 'f' ? 'u' : 'r'));
    if (!agrees) faults.push(`${message.id} does not go with ${message.text.slice(0, 200)}`);
    return [{ ...message, event, epoch: epoch!, suffix: Number(suffix ?? 0) }];
  });
}

function checkTransactions(history: SourceHistory, read: readonly Read[], faults: string[]): void {
  // A chunk may lie where the next transaction's commit begins.
  const what = ({ event: { lsn, xid } }: Read) =>
    `the ${xid === null ? 'chunk' : 'transaction'} at ${hex(lsn)}`;
  for (const [name, messages] of Map.groupBy(read, what)) checkTogether(history, name, messages, faults);
}

function checkTogether(
  history: SourceHistory,
  what: string,
  messages: readonly Read[],
  faults: string[],
): void {
  const same = (of: (message: Read) => string | null) => new Set(messages.map(of)).size === 1;
  if (!same(({ event }) => event.xid)) faults.push(`${what} has two xids`);
  if (!same(({ event }) => event.ts)) faults.push(`${what} has two times`);
  if (!same(({ epoch }) => epoch)) faults.push(`${what} has two epochs`);
  checkPairs(what, messages, faults);
  if (messages[0]!.event.xid === null) return;
  const whole = messages.length <= history.bundleMessages;
  if (whole && !same(({ stored }) => stored)) faults.push(`${what} was not stored at once`);
  if (history.journal !== undefined) checkCount(history.journal, what, messages, faults);
}

/** One event a change, but for a row that changes its partition: gone there, new here. */
function checkPairs(what: string, messages: readonly Read[], faults: string[]): void {
  for (const [seq, events] of Map.groupBy(messages, ({ event }) => event.seq)) {
    const ops = events.sort((one, other) => one.suffix - other.suffix).map(({ event }) => event.op);
    const fits = ops.every((op) => op === 't') || ops.length === 1 || ops.join() === 'd,c';
    if (!fits || events[0]!.suffix !== 0) faults.push(`${what}: its change ${seq} is told as ${ops}`);
  }
}

function checkCount(
  journal: NonNullable<SourceHistory['journal']>,
  what: string,
  messages: readonly Read[],
  faults: string[],
): void {
  const notes = messages.filter(({ event }) => event.op === 'c' && event.table === journal.table);
  if (notes.length !== 1) {
    faults.push(`${what} has ${notes.length} rows of the journal`);
    return;
  }
  const expected = Number(notes[0]!.event.after?.get(journal.column)) + 1;
  const seqs = new Set(messages.map(({ event }) => event.seq));
  if (seqs.size !== expected || Math.max(...seqs) !== expected - 1) {
    faults.push(`${what} made ${expected} changes, and ${seqs.size} are there, up to ${Math.max(...seqs)}`);
  }
}

function checkOrder(place: string, messages: readonly Read[], faults: string[]): void {
  messages.forEach(({ offset }, i) => {
    if (offset !== i) faults.push(`${place}: the message of offset ${i} has offset ${offset}`);
  });
  for (let i = 1; i < messages.length; i++) {
    const [former, message] = [messages[i - 1]!, messages[i]!];
    const [one, other] = [former.event, message.event];
    // The record of a commit may begin where the marker of a chunk ends: the chunk came first.
    const after = Number(other.xid !== null) - Number(one.xid !== null);
    const grows =
      other.lsn > one.lsn ||
      (other.lsn === one.lsn &&
        (after > 0 ||
          (after === 0 &&
            (other.seq > one.seq || (other.seq === one.seq && message.suffix > former.suffix)))));
    if (!grows) faults.push(`${place}: ${message.id} comes after ${former.id}`);
  }
}

function checkPlace(state: TableState, { id, partition, event }: Read, faults: string[]): void {
  const { key, after, before } = event;
  if (event.op === 't') return;
  const source = after ?? before ?? new Map();
  if (key === null || [...key].some(([column, value]) => source.get(column) !== value)) {
    faults.push(`${id}: its key is not its row's`);
    return;
  }
  const by = state.partitionBy === 'key' ? state.key : state.partitionBy;
  const wanted = by === 'single' ? 'all' : nameOf(by.map((column) => source.get(column) ?? null));
  if (partition !== wanted) faults.push(`${id} is in partition ${partition} and not in ${wanted}`);
}

function nameOf(values: readonly (string | null)[]): string {
  if (values.length === 1) return values[0] ?? '\\N';
  return values.map((value) => value?.replace(/[\\|]/g, '\\$&') ?? '\\N').join('|');
}

/** One table as one partition tells it. */
class Fold {
  readonly state: TableState;
  readonly rows = new Map<string, { row: Row; epoch: string }>();
  /**
   * Rows that changed their key, by it, until an event brings large values again: those that the change had left out were read
   * from the table, where they may have been newer.
   */
  readonly #ahead = new Set<string>();
  readonly #history: SourceHistory;
  readonly #faults: string[];

  constructor(history: SourceHistory, state: TableState, faults: string[]) {
    this.#history = history;
    this.state = state;
    this.#faults = faults;
  }

  apply({ id, event, epoch, suffix }: Read): void {
    const { op, key, after, before, xid } = event;
    const complain = (text: string) => this.#faults.push(`${id} (${op}): ${text}`);
    if (op === 't') {
      this.rows.clear();
      return;
    }
    if (key === null || (after === null) !== (op === 'd')) return void complain('it is not whole');
    const now = keyOf(this.state, key);
    const then = before === null ? now : keyOf(this.state, before);
    const known = this.rows.get(then);
    // Of an earlier beginning: what happened since is not known.
    const former = known?.epoch === epoch ? known.row : null;
    const unseen = known === undefined && event.lsn > this.#history.copiedBy;
    if (op === 'd') {
      if (unseen) complain('the row was not there');
      this.rows.delete(then);
      return;
    }
    if (op === 'c' && former !== null) complain('the row is there already');
    if (op === 'u' && xid !== null && unseen) complain('the row was not there');
    if (then !== now) {
      if (this.rows.has(now)) complain('it moves to where a row is');
      this.rows.delete(then);
    }
    const kept = new Map([...(known?.row ?? [])].filter(([column]) => event.unchanged.includes(column)));
    const row = new Map([...kept, ...after!]);
    if (xid === null && former !== null) {
      const older = [...after!].find(([column, value]) => former.has(column) && former.get(column) !== value);
      if (older !== undefined) complain(`${older[0]} is not what it was last`);
    }
    this.rows.set(now, { row, epoch });
    const moved = then !== now || (op === 'c' && suffix > 0);
    if (then !== now) this.#ahead.delete(then);
    if (moved) this.#ahead.add(now);
    else if (event.unchanged.length === 0) this.#ahead.delete(now);
    if (this.state.columns.every((column) => row.has(column))) {
      const wrong = this.#history.judgeRow?.(
        this.state.table,
        row,
        op === 'u' && xid !== null ? former : null,
        this.#ahead.has(now),
      );
      if (wrong !== null && wrong !== undefined) complain(wrong);
    }
  }
}

function compare(
  state: TableState,
  folds: readonly Fold[],
  lost: ReadonlySet<string>,
  faults: string[],
): void {
  const folded = new Map<string, Row>();
  for (const { rows } of folds) {
    for (const [key, { row }] of rows) {
      if (folded.has(key)) faults.push(`${state.table} ${key} is in two partitions`);
      folded.set(key, row);
    }
  }
  for (const row of state.rows) {
    const key = keyOf(state, row);
    const found = folded.get(key);
    folded.delete(key);
    if (found === undefined) {
      faults.push(`${state.table} ${key} is not in the queue`);
      continue;
    }
    for (const column of state.columns) {
      const [wanted, there] = [row.get(column), found.get(column)];
      if (wanted !== there)
        faults.push(`${state.table} ${key}: ${column} is ${cut(there)}, not ${cut(wanted)}`);
    }
  }
  for (const key of folded.keys()) {
    if (!lost.has(`${state.table} ${key}`)) faults.push(`${state.table} ${key} is not in the table`);
  }
}

export function keyOf({ key }: Pick<TableState, 'key'>, row: Row): string {
  return JSON.stringify(key.map((column) => row.get(column) ?? null));
}

function cut(value: string | null | undefined): string {
  return value === undefined ? 'missing' : value === null ? 'null' : JSON.stringify(value.slice(0, 80));
}

function hex(lsn: bigint): string {
  return `${(lsn >> 32n).toString(16)}/${(lsn & 0xffffffffn).toString(16)}`.toUpperCase();
}
