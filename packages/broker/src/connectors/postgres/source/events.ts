/**
 * From a row's change to its events: which there are, to which partition each goes, and its JSON, written from the received
 * bytes without an object in between.
 *
 * One encoder a relation, made when the stream announces the relation, with the columns as the stream has them: an event is
 * rendered with the shape that was in force when the change was made.
 */
import { JsonWriter } from '../../../log/json/writer.ts';
import { formatLsn } from '../replication/lsn.ts';
import type { Relation, Tuple } from '../replication/pgoutput.ts';
import { partitionName, SINGLE_PARTITION } from './partition_name.ts';
import { cellText, filled, isUnchanged, sameCell } from './rows.ts';
import { type ColumnType, type ValueForm, valueForm, writeValue } from './values.ts';

/** What the catalog and the connector's document say about a table. */
export interface TableShape {
  /** Names of the key columns, in the order of the key. At least one. */
  readonly key: readonly string[];
  /** Columns whose values name the partition; null: one partition for the whole table. */
  readonly partitionBy: readonly string[] | null;
  /** Undefined: not known (any more); its values are strings then. */
  readonly typeOf: (oid: number) => ColumnType | undefined;
}

/** The relation lacks a column that names its rows or their partitions. */
export class RelationChanged extends Error {
  constructor(table: string, column: string) {
    super(
      `${table} has no column "${column}" any more, which the connector uses as key or partition: adapt the document or the table`,
    );
    this.name = 'RelationChanged';
  }
}

export interface RowEvent {
  readonly partition: string;
  /** Which event of its change it is: '' or `.1`, the end of its id. */
  readonly suffix: string;
  readonly payload: Buffer;
}

/** A row that moved to another key and of which these columns were not sent: they are to be read back, by the new key. */
export interface MissingColumns {
  readonly key: readonly (string | null)[];
  readonly columns: readonly number[];
}

/** Ends every event of a transaction; only the index of the change differs. */
export class EventPlace {
  readonly #tail: string;

  /** `xid`: null for rows that were read rather than changed. `micros`: since 1970. */
  constructor(lsn: bigint, xid: number | null, micros: bigint) {
    const change = xid === null ? '' : `,"xid":${xid}`;
    this.#tail = `,"lsn":"${formatLsn(lsn)}"${change},"ts":"${isoMicros(micros)}","seq":`;
  }

  write(writer: JsonWriter, seq: number): void {
    writer.ascii(this.#tail);
    writer.integer(seq);
    writer.ascii('}');
  }
}

const MICROS = 1_000_000n;

/** `2026-10-03T06:14:43.797508Z`. */
export function isoMicros(micros: bigint): string {
  const fraction = ((micros % MICROS) + MICROS) % MICROS;
  const seconds = new Date(Number((micros - fraction) / 1000n)).toISOString().slice(0, -5);
  return `${seconds}.${String(fraction).padStart(6, '0')}Z`;
}

type Operation = 'c' | 'u' | 'd' | 'r';

export class TableEncoder {
  readonly relation: Relation;
  readonly table: string;
  /** Positions of the key columns, in the order of the key. */
  readonly key: readonly number[];
  readonly #partition: readonly number[] | null;
  readonly #forms: readonly ValueForm[];
  /** `"name":` a column, and the name alone. */
  readonly #members: readonly string[];
  readonly #names: readonly string[];
  readonly #tableJson: string;
  readonly #all: readonly number[];
  #typical = 256;

  /** Throws RelationChanged. */
  constructor(relation: Relation, shape: TableShape) {
    this.relation = relation;
    this.table = `${relation.schema}.${relation.name}`;
    const position = (name: string): number => {
      const at = relation.columns.findIndex((column) => column.name === name);
      if (at < 0) throw new RelationChanged(this.table, name);
      return at;
    };
    this.key = shape.key.map(position);
    this.#partition = shape.partitionBy?.map(position) ?? null;
    this.#forms = relation.columns.map(({ typeOid }) => {
      const type = shape.typeOf(typeOid);
      return type === undefined ? 'string' : valueForm(type);
    });
    this.#names = relation.columns.map(({ name }) => JSON.stringify(name));
    this.#members = this.#names.map((name) => `${name}:`);
    this.#tableJson = JSON.stringify(this.table);
    this.#all = relation.columns.map((_, i) => i);
  }

  insert(place: EventPlace, seq: number, after: Tuple): RowEvent[] {
    return [this.#event('c', place, seq, '', after, { after, before: null })];
  }

  /** A row that a snapshot read. */
  row(place: EventPlace, seq: number, row: Tuple): RowEvent {
    return this.#event('r', place, seq, '', row, { after: row, before: null });
  }

  /**
   * Of a row that the stream brought up to date, the columns that it never carried: an update that changes nothing
   * but makes them known.
   */
  fill(place: EventPlace, seq: number, row: Tuple, columns: readonly number[]): RowEvent {
    const unchanged = this.#all.filter((column) => !this.key.includes(column) && !columns.includes(column));
    const after = this.#all.filter((column) => !unchanged.includes(column));
    return this.#event('u', place, seq, '', row, {
      after: row,
      before: null,
      afterColumns: after,
      unchanged,
    });
  }

  delete(place: EventPlace, seq: number, identity: 'K' | 'O', before: Tuple): RowEvent[] {
    return [this.#event('d', place, seq, '', before, { after: null, before, whole: identity === 'O' })];
  }

  /** What is to be read before {@link update} can be asked; null: nothing. */
  missing(identity: 'K' | 'O' | null, before: Tuple | null, after: Tuple): MissingColumns | null {
    if (identity !== 'K' || before === null) return null;
    const row = filled(after, before, this.key);
    if (this.#sameKey(before, row)) return null;
    const columns = this.#all.filter((column) => isUnchanged(row, column));
    return columns.length === 0 ? null : { key: this.key.map((column) => cellText(row, column)), columns };
  }

  /** `read`: the columns that were {@link missing}, in a row of their own; null: not asked for, or the row is gone. */
  update(
    place: EventPlace,
    seq: number,
    identity: 'K' | 'O' | null,
    before: Tuple | null,
    after: Tuple,
    read: Tuple | null = null,
  ): RowEvent[] {
    if (before === null || identity === null) {
      return [this.#event('u', place, seq, '', after, { after, before: null })];
    }
    const whole = identity === 'O';
    // What names the row is in the old key, if not in the new row.
    const known = filled(after, before, whole ? this.#all : this.key);
    const row = read === null ? known : filled(known, read, this.#all);
    const keyKept = this.#sameKey(before, row);
    if (whole || !keyKept) {
      if (this.#samePartition(before, row)) {
        return [this.#event('u', place, seq, '', row, { after: row, before, whole })];
      }
      return [
        this.#event('d', place, seq, '', before, { after: null, before, whole }),
        this.#event('c', place, seq, '.1', row, { after: row, before: null }),
      ];
    }
    return [this.#event('u', place, seq, '', row, { after: row, before: null })];
  }

  partitionOf(row: Tuple): string {
    if (this.#partition === null) return SINGLE_PARTITION;
    return partitionName(this.#partition.map((column) => cellText(row, column)));
  }

  #sameKey(one: Tuple, other: Tuple): boolean {
    return this.key.every((column) => sameCell(one, other, column));
  }

  #samePartition(one: Tuple, other: Tuple): boolean {
    return this.#partition === null || this.#partition.every((column) => sameCell(one, other, column));
  }

  /** `row`: carries the key and the partition's columns. */
  #event(
    op: Operation,
    place: EventPlace,
    seq: number,
    suffix: string,
    row: Tuple,
    content: {
      after: Tuple | null;
      before: Tuple | null;
      /** `before` is the whole old row, not only its key. */
      whole?: boolean;
      afterColumns?: readonly number[];
      unchanged?: readonly number[];
    },
  ): RowEvent {
    const { after, before } = content;
    const writer = new JsonWriter(this.#typical);
    writer.ascii('{"op":"');
    writer.ascii(op);
    writer.ascii('","table":');
    writer.text(this.#tableJson);
    writer.ascii(',"key":');
    this.#object(writer, row, this.key);
    writer.ascii(',"after":');
    const unchanged = content.unchanged ?? this.#unchangedOf(after);
    if (after === null) writer.ascii('null');
    else this.#object(writer, after, content.afterColumns ?? this.#sent(after, unchanged));
    writer.ascii(',"before":');
    if (before === null) writer.ascii('null');
    else this.#object(writer, before, content.whole === true ? this.#all : this.key);
    if (unchanged.length > 0) {
      writer.ascii(',"unchanged":[');
      unchanged.forEach((column, i) => {
        if (i > 0) writer.ascii(',');
        writer.text(this.#names[column]!);
      });
      writer.ascii(']');
    }
    place.write(writer, seq);
    const payload = writer.bytes();
    // The next one of this table will be about as long.
    this.#typical = Math.min(65_536, payload.length + 64);
    return { partition: this.partitionOf(row), suffix, payload };
  }

  #unchangedOf(row: Tuple | null): readonly number[] {
    return row === null ? [] : this.#all.filter((column) => isUnchanged(row, column));
  }

  #sent(row: Tuple, unchanged: readonly number[]): readonly number[] {
    return unchanged.length === 0 ? this.#all : this.#all.filter((column) => !isUnchanged(row, column));
  }

  #object(writer: JsonWriter, row: Tuple, columns: readonly number[]): void {
    writer.ascii('{');
    for (let i = 0; i < columns.length; i++) {
      const column = columns[i]!;
      if (i > 0) writer.ascii(',');
      writer.text(this.#members[column]!);
      const value = row.starts[column]!;
      if (row.kinds[column] === 0) writer.ascii('null');
      else writeValue(writer, this.#forms[column]!, row.bytes, value, row.ends[column]!);
    }
    writer.ascii('}');
  }
}
