/** Tells the window of a snapshot what the stream changes, in terms of keys. */
import type { PgoutputMessage, Relation, Tuple } from '../../replication/pgoutput.ts';
import type { CatalogTable } from '../catalog.ts';
import { isUnchanged, sameCell } from '../rows.ts';
import type { ChunkWindow } from './window.ts';

export type RowChange = Extract<PgoutputMessage, { kind: 'insert' | 'update' | 'delete' }>;

/** Where the columns of a key are in a row of the stream. */
interface KeyPositions {
  readonly relation: Relation;
  readonly key: readonly number[];
  readonly others: readonly number[];
}

const NO_NAMES: readonly string[] = [];

export class Touches {
  readonly #window: ChunkWindow;
  readonly #positions = new Map<string, KeyPositions | null>();

  constructor(window: ChunkWindow) {
    this.#window = window;
  }

  note(name: string, table: CatalogTable, relation: Relation, xid: number, change: RowChange): void {
    const at = this.#find(name, table, relation);
    const window = this.#window;
    if (at === null) {
      window.vague(xid);
      return;
    }
    switch (change.kind) {
      case 'insert':
        window.wrote(name, xid, keyText(change.after, at.key), NO_NAMES);
        return;
      case 'delete':
        window.removed(name, xid, keyText(change.before, at.key));
        return;
      case 'update':
        noteUpdate(window, name, xid, at, change);
    }
  }

  #find(name: string, table: CatalogTable, relation: Relation): KeyPositions | null {
    const known = this.#positions.get(name);
    if (known?.relation === relation) return known;
    const key = table.key.map((wanted) => relation.columns.findIndex((column) => column.name === wanted));
    const others = relation.columns.map((_, i) => i).filter((i) => !key.includes(i));
    const found = carries(relation, key) ? { relation, key, others } : null;
    this.#positions.set(name, found);
    return found;
  }
}

/** Whether old rows come with these columns. The identity may have been changed since the catalog was read, or since the stream. */
function carries({ identity, columns }: Relation, key: readonly number[]): boolean {
  return key.every((at) => at >= 0 && (identity === 'f' || identity === 'n' || columns[at]!.key));
}

function noteUpdate(
  window: ChunkWindow,
  name: string,
  xid: number,
  { relation, key, others }: KeyPositions,
  { identity, before, after }: Extract<RowChange, { kind: 'update' }>,
): void {
  if (before === null) {
    window.wrote(name, xid, keyText(after, key), unchangedNames(relation, others, after));
    return;
  }
  // What of a key was not sent is what it was.
  const now = keyText(after, key, before);
  const moved = !key.every((column) => isUnchanged(after, column) || sameCell(before, after, column));
  if (moved) window.removed(name, xid, keyText(before, key));
  // The event of a moved row is completed from the table, and a whole old row completes any event.
  const whole = moved || identity === 'O';
  window.wrote(name, xid, now, whole ? NO_NAMES : unchangedNames(relation, others, after));
}

function unchangedNames(relation: Relation, columns: readonly number[], row: Tuple): readonly string[] {
  let names: string[] | null = null;
  for (const column of columns) {
    if (!isUnchanged(row, column)) continue;
    names ??= [];
    names.push(relation.columns[column]!.name);
  }
  return names ?? NO_NAMES;
}

/**
 * Tells rows apart as the texts of their keys do: no text of PostgreSQL has a zero byte.
 * @param fallback of cells that were not sent
 */
export function keyText(row: Tuple, key: readonly number[], fallback: Tuple = row): string {
  let text = '';
  for (let i = 0; i < key.length; i++) {
    const column = key[i]!;
    const from = isUnchanged(row, column) ? fallback : row;
    if (i > 0) text += '\0';
    text += from.bytes.toString('latin1', from.starts[column], from.ends[column]);
  }
  return text;
}
