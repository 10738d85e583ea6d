/** How far a snapshot is: the part of a source's pointer that says what is still to be copied. */
import { parseVisibility } from './visibility.ts';

/** More transactions than these are not listed: who takes over waits until all of them have ended. */
export const DELIVERED_MAX = 1_000;

/** What a chunk must see to be worth anything, for whoever reads it. */
export interface SnapshotBase {
  /** As `pg_current_snapshot()` prints it: what was done when the stream began. It never carries that. */
  readonly sees: string;
  /**
   * Transactions, by their whole numbers, whose changes are in the queues and which may not be visible yet. Null: too many to
   * list.
   */
  readonly delivered: readonly string[] | null;
}

export interface SnapshotState {
  /** `schema.name` of the tables still to do, in order. Never empty. */
  readonly tables: readonly string[];
  /** The first of them. */
  readonly table: string;
  /** The key of the last row read, as printed, in the order of the key; null: none yet. */
  readonly after: readonly string[] | null;
  /** Rows of `table` read so far. */
  readonly rows: number;
  /** Null: the slot was found, and nobody knows what was visible when it was made. */
  readonly base: SnapshotBase | null;
}

/** Null: there is no table to copy. */
export function firstState(tables: readonly string[], base: SnapshotBase | null): SnapshotState | null {
  const [table] = tables;
  return table === undefined ? null : { tables, table, after: null, rows: 0, base };
}

/** `sees`: what `pg_current_snapshot()` printed in the transaction that made the slot. Throws Error. */
export function baseOf(sees: string): SnapshotBase {
  if (parseVisibility(sees) === null) throw new Error(`"${sees}" is not a snapshot`);
  return { sees, delivered: [] };
}

const STATE_FIELDS = new Set(['tables', 'table', 'after', 'rows', 'base']);

/** Reads what was stored. Throws Error with a sentence when it is none. */
export function parseSnapshotState(value: unknown): SnapshotState {
  const state = record(value, 'snapshot');
  for (const field of Object.keys(state)) {
    if (!STATE_FIELDS.has(field)) throw new Error(`snapshot.${field} is not known`);
  }
  const tables = texts(state.tables, 'snapshot.tables');
  if (tables.length === 0) throw new Error('snapshot.tables is empty');
  if (state.table !== tables[0]) throw new Error('snapshot.table is not the first of snapshot.tables');
  const after = state.after === null ? null : texts(state.after, 'snapshot.after');
  if (after?.length === 0) throw new Error('snapshot.after is empty');
  const { rows } = state;
  if (typeof rows !== 'number' || !Number.isSafeInteger(rows) || rows < 0) {
    throw new Error('snapshot.rows is not a count');
  }
  return {
    tables,
    table: tables[0]!,
    after,
    rows,
    base: state.base === null ? null : parseBase(state.base),
  };
}

function parseBase(value: unknown): SnapshotBase {
  const base = record(value, 'snapshot.base');
  if (typeof base.sees !== 'string' || parseVisibility(base.sees) === null) {
    throw new Error('snapshot.base.sees is not a snapshot');
  }
  const delivered = base.delivered === null ? null : texts(base.delivered, 'snapshot.base.delivered');
  if (delivered?.some((xid) => !/^\d{1,20}$/.test(xid))) {
    throw new Error('snapshot.base.delivered is not a list of transactions');
  }
  return { sees: base.sees, delivered };
}

function record(value: unknown, path: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error(`${path} is not an object`);
  }
  return value as Record<string, unknown>;
}

function texts(value: unknown, path: string): string[] {
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string')) {
    throw new Error(`${path} is not a list of texts`);
  }
  return value;
}
