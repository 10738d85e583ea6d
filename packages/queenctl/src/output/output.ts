import { styleText } from 'node:util';
import { jsonText } from './exact_json.ts';
import { type Column, facts, Lines, table } from './table.ts';
import { harmless } from './text.ts';
import { yamlOf } from './yaml.ts';

export const FORMATS = ['table', 'json', 'yaml'] as const;
export type Format = (typeof FORMATS)[number];

type Style = Parameters<typeof styleText>[0];
type Pairs = Parameters<typeof facts>[0];

/**
 * What is printed, and where: data goes to standard output in the format that was asked for, what is said about the work
 * to standard error. With `json` a command prints one document; what has no end, or is one message after the other, is one
 * document a line.
 */
export class Output {
  readonly format: Format;
  readonly #quiet: boolean;

  constructor(format: Format, quiet: boolean) {
    this.format = format;
    this.#quiet = quiet;
  }

  get forPeople(): boolean {
    return this.format === 'table';
  }

  /** Columns of the terminal; undefined when standard output is none. */
  get width(): number | undefined {
    return process.stdout.isTTY ? process.stdout.columns : undefined;
  }

  /** Rows as a table, or an array. @param none what people are told when there are no rows */
  rows<T>(rows: readonly T[], columns: readonly Column<T>[], none: string): void {
    if (!this.forPeople) this.#document(rows);
    else if (rows.length === 0) this.note(none);
    else this.write(table(rows, columns, this.width));
  }

  /** One thing: its document, or what people see of it. */
  one(document: unknown, human: () => string): void {
    if (this.forPeople) this.write(human());
    else this.#document(document);
  }

  /** One thing with names for what it has. */
  facts(document: unknown, pairs: Pairs): void {
    this.one(document, () => facts(pairs));
  }

  /** Prints things one after the other: a document a line, or lines under each other. */
  stream<T>(columns: readonly Column<T>[]): (item: T) => void {
    const lines = new Lines(columns, this.width);
    return (item) => {
      if (this.format === 'table') this.write(lines.line(item));
      else if (this.format === 'json') this.write(`${jsonText(item)}\n`);
      else this.write(`---\n${yamlOf(item)}`);
    };
  }

  /** For people, beside the data: to standard error, unless they want quiet. */
  note(text: string): void {
    if (!this.#quiet) process.stderr.write(`${text}\n`);
  }

  /** What must not go unseen. */
  warn(text: string): void {
    process.stderr.write(`${styled('yellow', 'warning:', process.stderr)} ${harmless(text)}\n`);
  }

  write(text: string): void {
    process.stdout.write(text);
  }

  /** Coloured where standard output is a terminal and NO_COLOR is not set. */
  colour(style: Style, text: string): string {
    return styled(style, text, process.stdout);
  }

  /** Standard error when progress may be drawn on it; else null. */
  get progress(): NodeJS.WriteStream | null {
    return this.#quiet || !process.stderr.isTTY ? null : process.stderr;
  }

  #document(document: unknown): void {
    this.write(this.format === 'yaml' ? yamlOf(document) : `${jsonText(document, 2)}\n`);
  }
}

export function styled(style: Style, text: string, stream: NodeJS.WriteStream): string {
  return styleText(style, text, { stream });
}
