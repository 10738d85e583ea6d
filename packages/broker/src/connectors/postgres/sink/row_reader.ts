/** From a message of an `append` or `upsert` sink to the row that it names. */

import { PayloadFault } from './faults.ts';
import type { Members } from './members.ts';
import { isNull, kindOf, membersOf } from './members.ts';
import { createdAtText, type Message } from './message.ts';
import type { RowOperation, Shape } from './operations.ts';
import { spanText } from './paths.ts';
import type { Target } from './target.ts';

const SHAPES_MAX = 1000;

/** A shape and what an upsert of it is. */
interface Known {
  readonly shape: Shape;
  readonly kind: 'append' | 'upsert' | 'partial';
}

/** Shapes of one target, by the columns that they name. */
export class Shapes {
  readonly #target: Target;
  readonly #append: boolean;
  readonly #splitsJson: boolean;
  readonly #known = new Map<string, Known>();
  #apart = 0;

  /** @param splitsJson columns of type `json` take the message's own characters */
  constructor(target: Target, append: boolean, splitsJson: boolean) {
    this.#target = target;
    this.#append = append;
    this.#splitsJson = splitsJson;
  }

  of(named: readonly number[], metadata: readonly number[]): Known {
    const id = named.join(',');
    let known = this.#known.get(id);
    if (known === undefined) {
      const { columns } = this.#target;
      const raw = this.#splitsJson ? named.filter((column) => columns[column]!.keepsText) : [];
      const shape = { id, columns: named.filter((column) => !raw.includes(column)), raw, metadata };
      known = { shape, kind: this.#append ? 'append' : this.#upsertKind([...named, ...metadata]) };
      // Producers that name columns in ever new combinations must not fill the memory.
      if (this.#known.size >= SHAPES_MAX) this.#known.clear();
      this.#known.set(id, known);
    }
    return known;
  }

  /**
   * The name under which operations of a shape share statements. Where texts of keys do not decide which rows are meant, a
   * statement that joins by key could meet one row twice and would silently take either: each gets one of its own.
   */
  share(shape: Shape, kind: RowOperation['kind']): string {
    const joins = kind === 'partial' || kind === 'move';
    return joins && !this.#target.keyTextsDecide ? `${shape.id}#${++this.#apart}` : shape.id;
  }

  /** An insert builds the whole row before it looks for a conflict, so what it leaves out must be free to be left out. */
  #upsertKind(named: readonly number[]): 'upsert' | 'partial' {
    const { columns, hasChecks } = this.#target;
    const left = columns.filter((column, index) => !column.always && !named.includes(index));
    const legal = left.length === 0 || (!hasChecks && left.every((column) => column.optional));
    return legal ? 'upsert' : 'partial';
  }
}

/** Texts of the key's columns, each in quotes where it is one of several. Throws PayloadFault. */
export function keyOfRow(target: Target, spanOf: (column: number) => Buffer | undefined): string {
  const texts = target.key.map(({ column, text }) => {
    const span = spanOf(column);
    const { name } = target.columns[column]!;
    if (span === undefined) throw new PayloadFault(`key column ${name} is missing`);
    if (isNull(span)) throw new PayloadFault(`key column ${name} is null`);
    return text(spanText(span)!);
  });
  return texts.length === 1 ? texts[0]! : JSON.stringify(texts);
}

/**
 * The record of these columns and of nothing else: PostgreSQL reads a whole record even for a few columns of it, and
 * refuses some of what JSON may hold. Mostly that is the text as it came.
 *
 * @param members of the text @param spans where some of the columns are not told in the text itself
 */
export function recordFor(
  target: Target,
  columns: readonly number[],
  members: Members,
  text: Buffer,
  spans: Members['spans'] = members.spans,
): Buffer {
  const told = (column: number) => members.spans[column] !== undefined;
  if (members.count === columns.length && columns.every(told)) return text;
  return recordOf(target, columns, (column) => spans[column]!);
}

/** A JSON object of these columns. */
export function recordOf(
  target: Target,
  columns: readonly number[],
  spanOf: (column: number) => Buffer,
): Buffer {
  const parts: Buffer[] = [];
  for (const column of columns) {
    const name = JSON.stringify(target.columns[column]!.name);
    parts.push(Buffer.from(`${parts.length === 0 ? '{' : ','}${name}:`), spanOf(column));
  }
  parts.push(Buffer.from('}'));
  return Buffer.concat(parts);
}

export class RowReader {
  readonly #target: Target;
  readonly #upserts: boolean;
  readonly #shapes: Shapes;
  readonly #metadata: readonly number[];
  readonly #wholePayload: boolean;

  constructor(target: Target, mode: 'append' | 'upsert') {
    this.#target = target;
    this.#upserts = mode === 'upsert';
    this.#shapes = new Shapes(target, mode === 'append', false);
    this.#metadata = target.metadata.map(({ column }) => column);
    this.#wholePayload = target.metadata.some(({ fact }) => fact === 'payload');
  }

  /** Throws PayloadFault. */
  read(message: Message): RowOperation {
    const members = this.#members(message.payload);
    const named = members.named.filter((column) => !this.#metadata.includes(column));
    if (named.length + this.#metadata.length === 0) throw new PayloadFault('it names no column of the table');
    const { shape, kind } = this.#shapes.of(named, this.#metadata);
    const keys = this.#upserts ? [keyOfRow(this.#target, (column) => members.spans[column])] : [];
    const records = named.length > 0 ? [recordFor(this.#target, named, members, message.payload)] : [];
    if (this.#metadata.length > 0) records.push(this.#facts(message));
    return {
      kind,
      shape: this.#shapes.share(shape, kind),
      columnsOf: shape,
      keys,
      records,
      bytes: records.reduce((sum, record) => sum + record.length, 0),
    };
  }

  #members(payload: Buffer): Members {
    const members = membersOf(payload, this.#target.known);
    if (members !== null) return members;
    if (this.#wholePayload) return { count: 0, spans: [], named: [] };
    throw new PayloadFault(`not a JSON object (${kindOf(payload)})`);
  }

  /** Facts of the message as a JSON object by the names of their columns. */
  #facts(message: Message): Buffer {
    const parts: Buffer[] = [];
    for (const { fact, column } of this.#target.metadata) {
      const name = JSON.stringify(this.#target.columns[column]!.name);
      parts.push(Buffer.from(`${parts.length === 0 ? '{' : ','}${name}:`));
      parts.push(fact === 'payload' ? message.payload : Buffer.from(factText(message, fact)));
    }
    return Buffer.concat([...parts, Buffer.from('}')]);
  }
}

function factText(
  message: Message,
  fact: 'partition' | 'partitionId' | 'offset' | 'transactionId' | 'createdAt',
) {
  if (fact === 'offset') return String(message.offset);
  return JSON.stringify(fact === 'createdAt' ? createdAtText(message) : message[fact]);
}
