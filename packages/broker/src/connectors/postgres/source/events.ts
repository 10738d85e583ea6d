/**
 * From a row's change to its events: which there are, to which partition each goes, and its JSON, written from the received
 * bytes without an object in between.
 *
 * One encoder a relation, made when the stream announces the relation, with the columns as the stream has them: an event is
 * rendered with the shape that was in force when the change was made.
 */
import { formatInstant } from '../../../log/instants.ts';
import { JsonWriter } from '../../../log/json/writer.ts';
import { formatLsn } from '../replication/lsn.ts';
import { CELL, type Relation, type Tuple } from '../replication/pgoutput.ts';
import { partitionName, SINGLE_PARTITION } from './partition_name.ts';
import { cellText, filled, isUnchanged, keyTexts, sameCell } from './rows.ts';
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
  readonly key: readonly string[];
  readonly columns: readonly number[];
}

/** Ends every event of a transaction; only the index of the change differs. */
export class EventPlace {
  readonly #tail: Buffer;

  /** `xid`: null for rows that were read rather than changed. `micros`: since 1970. */
  constructor(lsn: bigint, xid: number | null, micros: number) {
    const change = xid === null ? '' : `,"xid":${xid}`;
    this.#tail = Buffer.from(`,"lsn":"${formatLsn(lsn)}"${change},"ts":"${formatInstant(micros)}","seq":`);
  }

  write(writer: JsonWriter, seq: number): void {
    writer.raw(this.#tail, 0, this.#tail.length);
    writer.integer(seq);
  }
}

type Operation = 'c' | 'u' | 'd' | 'r';

const OPERATIONS: readonly Operation[] = ['c', 'u', 'd', 'r'];
/** All events are written one after the other into one piece of memory, and a new one when it is full. */
const WRITER_BYTES = 64 * 1024;
const shared = new JsonWriter(WRITER_BYTES);

const AFTER = Buffer.from('},"after":{');
const NO_AFTER = Buffer.from('},"after":null');
const BEFORE = Buffer.from(',"before":{');
const NO_BEFORE = Buffer.from(',"before":null');
const NOTHING: readonly number[] = [];

export class TableEncoder {
  readonly relation: Relation;
  readonly table: string;
  /** Positions of the key columns, in the order of the key. */
  readonly key: readonly number[];
  readonly #partition: readonly number[] | null;
  readonly #forms: readonly ValueForm[];
  /** `"name":` of each column, and what stands before the value of one that is not the first. */
  readonly #members: readonly Buffer[];
  readonly #nextMembers: readonly Buffer[];
  readonly #names: readonly string[];
  /** `{"op":"c","table":"public.t","key":{` */
  readonly #heads: Readonly<Record<Operation, Buffer>>;
  readonly #all: readonly number[];

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
    this.#members = this.#names.map((name) => Buffer.from(`${name}:`));
    this.#nextMembers = this.#names.map((name) => Buffer.from(`,${name}:`));
    const table = JSON.stringify(this.table);
    this.#heads = Object.fromEntries(
      OPERATIONS.map((op) => [op, Buffer.from(`{"op":"${op}","table":${table},"key":{`)]),
    ) as Record<Operation, Buffer>;
    this.#all = relation.columns.map((_, i) => i);
  }

  insert(place: EventPlace, seq: number, after: Tuple): RowEvent[] {
    return [this.#event('c', place, seq, '', after, after, null, false)];
  }

  /** A row that a snapshot read. */
  row(place: EventPlace, seq: number, row: Tuple): RowEvent {
    return this.#event('r', place, seq, '', row, row, null, false);
  }

  /**
   * Of a row that the stream brought up to date, the columns that it never carried: an update that changes nothing
   * but makes them known.
   */
  fill(place: EventPlace, seq: number, row: Tuple, columns: readonly number[]): RowEvent {
    const unchanged = this.#all.filter((column) => !this.key.includes(column) && !columns.includes(column));
    return this.#event('u', place, seq, '', row, row, null, false, unchanged);
  }

  delete(place: EventPlace, seq: number, identity: 'K' | 'O', before: Tuple): RowEvent[] {
    return [this.#event('d', place, seq, '', before, null, before, identity === 'O')];
  }

  /** What is to be read before {@link update} can be asked; null: nothing. */
  missing(identity: 'K' | 'O' | null, before: Tuple | null, after: Tuple): MissingColumns | null {
    if (identity !== 'K' || before === null) return null;
    const row = filled(after, before, this.key);
    if (this.#sameKey(before, row)) return null;
    const columns = this.#all.filter((column) => isUnchanged(row, column));
    return columns.length === 0 ? null : { key: keyTexts(row, this.key), columns };
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
      return [this.#event('u', place, seq, '', after, after, null, false)];
    }
    const whole = identity === 'O';
    // What names the row is in the old key, if not in the new row.
    const known = filled(after, before, whole ? this.#all : this.key);
    const row = read === null ? known : filled(known, read, this.#all);
    if (!whole && this.#sameKey(before, row)) {
      return [this.#event('u', place, seq, '', row, row, null, false)];
    }
    if (this.#samePartition(before, row)) {
      return [this.#event('u', place, seq, '', row, row, before, whole)];
    }
    return [
      this.#event('d', place, seq, '', before, null, before, whole),
      this.#event('c', place, seq, '.1', row, row, null, false),
    ];
  }

  partitionOf(row: Tuple): string {
    if (this.#partition === null) return SINGLE_PARTITION;
    if (this.#partition.length === 1) return partitionName([cellText(row, this.#partition[0]!)]);
    return partitionName(this.#partition.map((column) => cellText(row, column)));
  }

  #sameKey(one: Tuple, other: Tuple): boolean {
    return this.key.every((column) => sameCell(one, other, column));
  }

  #samePartition(one: Tuple, other: Tuple): boolean {
    return this.#partition === null || this.#partition.every((column) => sameCell(one, other, column));
  }

  /**
   * @param row carries the key and the partition's columns
   * @param whole `before` is the whole old row, not only its key
   * @param unchanged columns that are not in `after`
   */
  #event(
    op: Operation,
    place: EventPlace,
    seq: number,
    suffix: string,
    row: Tuple,
    after: Tuple | null,
    before: Tuple | null,
    whole: boolean,
    unchanged: readonly number[] = after === null ? NOTHING : this.#unchangedOf(after),
  ): RowEvent {
    const writer = shared;
    // What an event left behind that could not be finished.
    writer.rewind(0);
    const head = this.#heads[op];
    writer.raw(head, 0, head.length);
    this.#columns(writer, row, this.key);
    if (after === null) writer.raw(NO_AFTER, 0, NO_AFTER.length);
    else {
      writer.raw(AFTER, 0, AFTER.length);
      this.#columns(writer, after, unchanged.length === 0 ? this.#all : this.#without(unchanged));
      writer.ascii('}');
    }
    if (before === null) writer.raw(NO_BEFORE, 0, NO_BEFORE.length);
    else {
      writer.raw(BEFORE, 0, BEFORE.length);
      this.#columns(writer, before, whole ? this.#all : this.key);
      writer.ascii('}');
    }
    if (unchanged.length > 0) this.#list(writer, unchanged);
    place.write(writer, seq);
    writer.ascii('}');
    return { partition: this.partitionOf(row), suffix, payload: writer.cut() };
  }

  #unchangedOf({ kinds }: Tuple): readonly number[] {
    for (let i = 0; i < kinds.length; i++) {
      if (kinds[i] === CELL.unchanged) return this.#all.filter((column) => kinds[column] === CELL.unchanged);
    }
    return NOTHING;
  }

  #without(unchanged: readonly number[]): readonly number[] {
    return this.#all.filter((column) => !unchanged.includes(column));
  }

  #list(writer: JsonWriter, columns: readonly number[]): void {
    writer.ascii(',"unchanged":[');
    columns.forEach((column, i) => {
      if (i > 0) writer.ascii(',');
      writer.text(this.#names[column]!);
    });
    writer.ascii(']');
  }

  #columns(writer: JsonWriter, row: Tuple, columns: readonly number[]): void {
    const { bytes, kinds, starts, ends } = row;
    let members = this.#members;
    for (let i = 0; i < columns.length; i++) {
      const column = columns[i]!;
      const member = members[column]!;
      members = this.#nextMembers;
      writer.raw(member, 0, member.length);
      if (kinds[column] !== CELL.text) writer.ascii('null');
      else writeValue(writer, this.#forms[column]!, bytes, starts[column]!, ends[column]!);
    }
  }
}
