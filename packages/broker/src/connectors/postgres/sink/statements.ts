/**
 * The SQL of a run. Its rows travel as one JSON array for each record set, and PostgreSQL converts them itself, by the rules of
 * `jsonb_populate_record`: a record definition with just the columns that the messages name gives the same conversion and
 * leaves the others out of it, which a whole row type could not (a NOT NULL domain refuses the NULL of an unnamed one).
 *
 * Record sets, each present if it has columns: the messages (or an event's `after`), values of `json` columns as text, facts
 * of the messages, and for a move the old keys. They are zipped by ROWS FROM.
 */
import type { RowOperation, Shape, TruncateOperation } from './operations.ts';
import type { Target, TargetColumn } from './target.ts';

type RowKind = RowOperation['kind'];

const SHAPES_MAX = 1000;

/** Statements that are run one after the other with the same parameters, one JSON array a record set. */
export class StatementTexts {
  readonly #target: Target;
  /** `jsonb` as for any message; `json` keeps what `jsonb` would spell anew. */
  readonly #json: 'json' | 'jsonb';
  readonly #known = new Map<string, readonly string[]>();

  constructor(target: Target, json: 'json' | 'jsonb') {
    this.#target = target;
    this.#json = json;
  }

  of(kind: RowKind, shape: Shape): readonly string[] {
    const id = `${kind} ${shape.id}`;
    let texts = this.#known.get(id);
    if (texts === undefined) {
      // Producers that name columns in ever new combinations must not fill the memory.
      if (this.#known.size >= SHAPES_MAX) this.#known.clear();
      texts = new Writer(this.#target, this.#json, shape, kind === 'move').texts(kind);
      this.#known.set(id, texts);
    }
    return texts;
  }

  truncate({ restartIdentity }: TruncateOperation): string {
    const { name, referenced } = this.#target;
    if (referenced) return `DELETE FROM ${name}`;
    return `TRUNCATE ${name}${restartIdentity ? ' RESTART IDENTITY' : ''}`;
  }
}

/** One column of the statement and where its value comes from. */
interface Filled {
  readonly column: number;
  readonly quoted: string;
  /** Of the source, aliased `s`. */
  readonly value: string;
}

class Writer {
  readonly #target: Target;
  readonly #filled: readonly Filled[];
  /** `ROWS FROM (…) AS x(…)` with a select list that gives the columns their names. */
  readonly #source: string;
  readonly #key: readonly { quoted: string; equals: string; old: string; value: string }[];

  constructor(target: Target, json: 'json' | 'jsonb', shape: Shape, moves: boolean) {
    this.#target = target;
    const sets: string[] = [];
    const aliases: string[] = [];
    const set = (
      type: 'json' | 'jsonb',
      columns: readonly { quoted: string; type: string }[],
      prefix: string,
    ) => {
      if (columns.length === 0) return;
      const list = columns.map(({ quoted, type: of }) => `${quoted} ${of}`).join(', ');
      sets.push(
        `pg_catalog.${type}_to_recordset($${sets.length + 1}::pg_catalog.text::pg_catalog.${type}) AS (${list})`,
      );
      for (const index of columns.keys()) aliases.push(`${prefix}${index}`);
    };
    const named = (columns: readonly number[]) => columns.map((column) => target.columns[column]!);
    set(json, named(shape.columns), 'c');
    set(
      'json',
      named(shape.raw).map(({ quoted }) => ({ quoted, type: 'pg_catalog.text' })),
      'r',
    );
    set('json', named(shape.metadata), 'm');
    const keys = target.key.map(({ column }) => target.columns[column]!);
    if (moves) set('json', keys, 'k');
    this.#source = `ROWS FROM (${sets.join(', ')}) AS s(${aliases.join(', ')})`;
    const fill =
      (prefix: string, cast = '') =>
      (column: number, index: number) => ({
        column,
        quoted: target.columns[column]!.quoted,
        value: `s.${prefix}${index}${cast}`,
      });
    this.#filled = [
      ...shape.columns.map(fill('c')),
      ...shape.raw.map(fill('r', '::pg_catalog.json')),
      ...shape.metadata.map(fill('m')),
    ];
    this.#key = target.key.map(({ column, equals }, index) => ({
      quoted: target.columns[column]!.quoted,
      equals,
      old: `s.k${index}`,
      value: this.#filled.find((filled) => filled.column === column)?.value ?? '',
    }));
  }

  texts(kind: RowKind): readonly string[] {
    switch (kind) {
      case 'append':
        return [`${this.#insertHead()} SELECT ${this.#values()} FROM ${this.#source}`];
      case 'upsert':
        return [`${this.#insertHead()} SELECT ${this.#values()} FROM ${this.#source} ${this.#onConflict()}`];
      case 'partial':
        return [this.#partial('')];
      case 'delete':
        return [`DELETE FROM ${this.#target.name} AS t USING ${this.#source} WHERE ${this.#atKey('t')}`];
      case 'move':
        return this.#move();
    }
  }

  /**
   * What exists is updated, what does not is inserted. One statement sees one snapshot, so a row that was there before is
   * never inserted, also when a trigger suppresses its update or another session deletes it meanwhile (then ours came first);
   * one that another session inserts meanwhile is met by the conflict.
   */
  #partial(where: string): string {
    const source = `s AS (SELECT * FROM ${this.#source}${where})`;
    const list = this.#settable()
      .map(({ quoted, value }) => `${quoted} = ${value}`)
      .join(', ');
    const update =
      list === ''
        ? ''
        : `, u AS (UPDATE ${this.#target.name} AS t SET ${list} FROM s WHERE ${this.#atKey('t')})`;
    return (
      `WITH ${source}${update} ${this.#insertHead()} SELECT ${this.#values()} FROM s ` +
      `WHERE NOT EXISTS (SELECT FROM ${this.#target.name} AS o WHERE ${this.#atKey('o')}) ${this.#onConflict()}`
    );
  }

  /**
   * Rows that are not at their old key are written at the new one; a stale row there gives way to one that is; then those
   * move. They keep whatever the event does not name.
   */
  #move(): string[] {
    const old = `SELECT FROM ${this.#target.name} AS o WHERE ${this.#atOldKey('o')}`;
    const source = `s AS (SELECT * FROM ${this.#source} WHERE EXISTS (${old}))`;
    return [
      this.#partial(` WHERE NOT EXISTS (${old})`),
      `WITH ${source} DELETE FROM ${this.#target.name} AS t USING s WHERE ${this.#atKey('t')}`,
      this.#target.key.some(({ column }) => this.#target.columns[column]!.always)
        ? this.#reinsert()
        : this.#moveInPlace(),
    ];
  }

  #moveInPlace(): string {
    const list = this.#filled
      .filter(({ column }) => !this.#target.columns[column]!.always)
      .map(({ quoted, value }) => `${quoted} = ${value}`)
      .join(', ');
    return `UPDATE ${this.#target.name} AS t SET ${list} FROM ${this.#source} WHERE ${this.#atOldKey('t')}`;
  }

  /** An identity that is always generated cannot be updated, but it can be inserted. */
  #reinsert(): string {
    const { name, columns } = this.#target;
    const valueFor = (column: TargetColumn, index: number) =>
      this.#filled.find((filled) => filled.column === index)?.value ?? `t.${column.quoted}`;
    const kept = columns.map((column, index) => `${valueFor(column, index)} AS w${index}`).join(', ');
    return (
      `WITH d AS (DELETE FROM ${name} AS t USING ${this.#source} WHERE ${this.#atOldKey('t')} RETURNING ${kept}) ` +
      `INSERT INTO ${name} (${columns.map(({ quoted }) => quoted).join(', ')}) OVERRIDING SYSTEM VALUE ` +
      `SELECT ${columns.map((_, index) => `d.w${index}`).join(', ')} FROM d`
    );
  }

  #insertHead(): string {
    const columns = this.#filled.map(({ quoted }) => quoted).join(', ');
    const overriding = this.#filled.some(({ column }) => this.#target.columns[column]!.identity)
      ? ' OVERRIDING SYSTEM VALUE'
      : '';
    return `INSERT INTO ${this.#target.name} (${columns})${overriding}`;
  }

  #values(): string {
    return this.#filled.map(({ value }) => value).join(', ');
  }

  #onConflict(): string {
    const key = this.#key.map(({ quoted }) => quoted).join(', ');
    const list = this.#settable()
      .map(({ quoted }) => `${quoted} = EXCLUDED.${quoted}`)
      .join(', ');
    return `ON CONFLICT (${key}) DO ${list === '' ? 'NOTHING' : `UPDATE SET ${list}`}`;
  }

  #settable(): readonly Filled[] {
    const isKey = (index: number) => this.#target.key.some(({ column }) => column === index);
    return this.#filled.filter(({ column }) => !isKey(column) && !this.#target.columns[column]!.always);
  }

  #atKey(alias: string): string {
    return this.#key
      .map(({ quoted, equals, value }) => `${alias}.${quoted} ${equals} ${value}`)
      .join(' AND ');
  }

  #atOldKey(alias: string): string {
    return this.#key.map(({ quoted, equals, old }) => `${alias}.${quoted} ${equals} ${old}`).join(' AND ');
  }
}

/** The JSON array of one record set of a run. */
export function recordSet(operations: readonly RowOperation[], set: number): Buffer {
  const parts: Buffer[] = [];
  for (const { records } of operations) {
    parts.push(parts.length === 0 ? OPEN : COMMA, records[set]!);
  }
  parts.push(CLOSE);
  return Buffer.concat(parts);
}

const OPEN = Buffer.from('[');
const COMMA = Buffer.from(',');
const CLOSE = Buffer.from(']');
