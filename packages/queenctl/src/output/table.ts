import { harmless } from './text.ts';

export type Value = string | number | boolean | null | undefined;

export interface Column<T> {
  readonly title: string;
  readonly of: (row: T) => Value;
  /** Numbers stand at the right. */
  readonly right?: boolean;
  /** Cut to the width of a terminal; the last column at most. */
  readonly cut?: boolean;
}

const GAP = '  ';
const CUT_MIN = 16;

/**
 * Aligned columns under their titles, each line with its end.
 *
 * @param width of the terminal; undefined: nothing is cut
 */
export function table<T>(rows: readonly T[], columns: readonly Column<T>[], width?: number): string {
  const cells = rows.map((row) => columns.map(({ of }) => cell(of(row))));
  const lines = [columns.map(({ title }) => title), ...cells];
  const widths = columns.map((_, at) => Math.max(...lines.map((line) => lengthOf(line[at]!))));
  return lines.map((line) => `${aligned(line, columns, widths, width)}\n`).join('');
}

/** Rows that come one after the other: columns grow with what they have seen. */
export class Lines<T> {
  readonly #columns: readonly Column<T>[];
  readonly #widths: number[];
  readonly #width: number | undefined;

  constructor(columns: readonly Column<T>[], width: number | undefined) {
    this.#columns = columns;
    this.#widths = columns.map(() => 0);
    this.#width = width;
  }

  line(row: T): string {
    const line = this.#columns.map(({ of }) => cell(of(row)));
    line.forEach((text, at) => {
      this.#widths[at] = Math.max(this.#widths[at]!, lengthOf(text));
    });
    return `${aligned(line, this.#columns, this.#widths, this.#width)}\n`;
  }
}

/** Names and what they are, one a line. */
export function facts(pairs: readonly (readonly [string, Value])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${`${name}:`.padEnd(width + 1)}${GAP}${cell(value)}\n`).join('');
}

function aligned<T>(
  line: readonly string[],
  columns: readonly Column<T>[],
  widths: readonly number[],
  width: number | undefined,
): string {
  let text = '';
  for (const [at, value] of line.entries()) {
    const { right, cut } = columns[at]!;
    const space = ' '.repeat(Math.max(0, widths[at]! - lengthOf(value)));
    const last = at === line.length - 1;
    let shown = right === true ? space + value : last ? value : value + space;
    if (cut === true && width !== undefined)
      shown = shortened(shown, Math.max(CUT_MIN, width - lengthOf(text) - 2));
    text += (at === 0 ? '' : GAP) + shown;
  }
  return text.trimEnd();
}

function shortened(text: string, length: number): string {
  return lengthOf(text) <= length ? text : `${[...text].slice(0, length - 1).join('')}…`;
}

function cell(value: Value): string {
  if (value === null || value === undefined || value === '') return '-';
  return harmless(String(value));
}

function lengthOf(text: string): number {
  let length = 0;
  for (const _ of text) length++;
  return length;
}
