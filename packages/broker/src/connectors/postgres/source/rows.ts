/** Row versions as they were received, and what is put together from two of them. */
import { invariant } from '../../../store/invariant.ts';
import { CELL, type Tuple } from '../replication/pgoutput.ts';

/** The text of a cell; null for NULL. An unchanged cell has no text: ask {@link isUnchanged} first. */
export function cellText(tuple: Tuple, column: number): string | null {
  return tuple.kinds[column] === CELL.text
    ? tuple.bytes.toString('utf8', tuple.starts[column], tuple.ends[column])
    : null;
}

/** The values of a row's key as they were printed. A key has no NULL. */
export function keyTexts(row: Tuple, key: readonly number[]): string[] {
  return key.map((column) => cellText(row, column) ?? '');
}

export function isUnchanged(tuple: Tuple, column: number): boolean {
  return tuple.kinds[column] === CELL.unchanged;
}

/** Whether both print the same, or are both NULL. */
export function sameCell(one: Tuple, other: Tuple, column: number): boolean {
  if (one.kinds[column] !== other.kinds[column]) return false;
  if (one.kinds[column] !== CELL.text) return true;
  const length = one.ends[column]! - one.starts[column]!;
  if (other.ends[column]! - other.starts[column]! !== length) return false;
  return (
    one.bytes.compare(
      other.bytes,
      other.starts[column],
      other.ends[column],
      one.starts[column],
      one.ends[column],
    ) === 0
  );
}

/** A row as a query returned its values: all of them lie in one piece of memory, which is not copied. */
export function rowOfBytes(cells: readonly (Buffer | null)[]): Tuple {
  const kinds = new Uint8Array(cells.length);
  const starts = new Uint32Array(cells.length);
  const ends = new Uint32Array(cells.length);
  let memory: ArrayBufferLike | null = null;
  for (let i = 0; i < cells.length; i++) {
    const cell = cells[i]!;
    if (cell === null) continue;
    memory ??= cell.buffer;
    invariant(cell.buffer === memory, 'row_in_one_piece', { column: i });
    kinds[i] = CELL.text;
    starts[i] = cell.byteOffset;
    ends[i] = cell.byteOffset + cell.length;
  }
  return { bytes: Buffer.from(memory ?? EMPTY), kinds, starts, ends };
}

const EMPTY = new ArrayBuffer(0);

/** `row` with those of its unchanged cells among `columns` taken from `from`. */
export function filled(row: Tuple, from: Tuple, columns: readonly number[]): Tuple {
  const wanted = columns.filter((column) => isUnchanged(row, column) && !isUnchanged(from, column));
  if (wanted.length === 0) return row;
  const kinds = row.kinds.slice();
  const starts = row.starts.slice();
  const ends = row.ends.slice();
  // The received bytes around the row are not copied with it.
  const [begin, end] = extent(row);
  const pieces = [row.bytes.subarray(begin, end)];
  let at = end - begin;
  for (let i = 0; i < kinds.length; i++) {
    if (kinds[i] !== CELL.text) continue;
    starts[i]! -= begin;
    ends[i]! -= begin;
  }
  for (const column of wanted) {
    kinds[column] = from.kinds[column]!;
    const piece = from.bytes.subarray(from.starts[column], from.ends[column]);
    pieces.push(piece);
    starts[column] = at;
    at += piece.length;
    ends[column] = at;
  }
  return { bytes: Buffer.concat(pieces, at), kinds, starts, ends };
}

/** Where the first text begins and the last one ends. */
function extent({ kinds, starts, ends }: Tuple): [begin: number, end: number] {
  let begin = -1;
  let end = 0;
  for (let i = 0; i < kinds.length; i++) {
    if (kinds[i] !== CELL.text) continue;
    if (begin < 0 || starts[i]! < begin) begin = starts[i]!;
    if (ends[i]! > end) end = ends[i]!;
  }
  return [Math.max(0, begin), end];
}
