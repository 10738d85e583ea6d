/** The events of a chunk, made when they are asked for: a chunk of many rows is not there twice. */

import { lsnDigits } from '../../replication/lsn.ts';
import type { Relation } from '../../replication/pgoutput.ts';
import type { CatalogTable } from '../catalog.ts';
import { EventPlace, type RowEvent, type TableEncoder } from '../events.ts';
import { keyTexts } from '../rows.ts';
import { encoderFor } from '../shape.ts';
import { type ColumnType, EncodingFault } from '../values.ts';
import { type Chunk, notUtf8 } from './reader.ts';
import type { SnapshotBase, SnapshotState } from './state.ts';

interface ChunkRow {
  readonly table: CatalogTable;
  readonly payload: Buffer;
  readonly partition: string;
  /** Ends the message's id: `s:<hw>:<seq>`, of a fill `s:<hw>:f<seq>`. */
  readonly idSuffix: string;
  /** For the pointer of a bundle whose last row this is. */
  readonly stateAfter: SnapshotState | null;
}

export interface ChunkRows {
  /** Each time it is walked, its rows are rendered anew: walk it once. */
  readonly rows: Iterable<ChunkRow>;
  /** The state when all of it is written, also when there was no row to write. Null: all tables are copied. */
  readonly end: SnapshotState | null;
}

interface ChunkContent {
  readonly chunk: Chunk;
  /** Of each row: null, it is written; else the columns that are to be filled. Null: all rows are written. */
  readonly fates: readonly (ReadonlySet<string> | null)[] | null;
  /** Of the second marker. */
  readonly lsn: bigint;
  readonly from: SnapshotState;
  readonly end: SnapshotState | null;
  readonly base: () => SnapshotBase | null;
}

export function chunkRows(content: ChunkContent): ChunkRows {
  return { rows: { [Symbol.iterator]: () => survivors(content) }, end: content.end };
}

function* survivors({ chunk, fates, lsn, from, end, base }: ChunkContent): Generator<ChunkRow, void> {
  const { table, rows } = chunk;
  const encoder = encoderOf(table);
  const place = new EventPlace(lsn, null, chunk.micros);
  const id = `s:${lsnDigits(lsn)}:`;
  const survives = (i: number) => fates === null || fates[i] === null || fates[i]!.size > 0;
  let last = rows.length - 1;
  while (last >= 0 && !survives(last)) last--;
  for (let seq = 0; seq <= last; seq++) {
    if (!survives(seq)) continue;
    const row = rows[seq]!;
    const missing = fates?.[seq] ?? null;
    const { payload, partition } = written(encoder.table, () =>
      missing === null
        ? encoder.row(place, seq, row)
        : encoder.fill(place, seq, row, columnsOf(table, missing)),
    );
    const behind = { ...from, after: keyTexts(row, encoder.key), rows: from.rows + seq + 1, base: base() };
    yield {
      table,
      payload,
      partition,
      idSuffix: `${id}${missing === null ? '' : 'f'}${seq}`,
      stateAfter: seq === last ? end : behind,
    };
  }
}

function written(table: string, write: () => RowEvent): RowEvent {
  try {
    return write();
  } catch (error) {
    throw error instanceof EncodingFault ? notUtf8(table, error) : error;
  }
}

/** A column that the stream had and the table has no more has no value to fill. */
function columnsOf(table: CatalogTable, names: ReadonlySet<string>): number[] {
  return table.columns.flatMap(({ name }, i) => (names.has(name) ? [i] : []));
}

const encoders = new WeakMap<CatalogTable, TableEncoder>();

/** Writes rows as the stream's encoder does, by the same columns. Throws ConnectorFault `relation_changed`. */
export function encoderOf(table: CatalogTable): TableEncoder {
  const known = encoders.get(table);
  if (known !== undefined) return known;
  const types = new Map<number, ColumnType>();
  const relation: Relation = {
    kind: 'relation',
    oid: table.oid,
    schema: table.schema,
    name: table.name,
    identity: table.identity,
    columns: table.columns.map(({ name, type }) => {
      types.set(type.oid, type);
      return { name, key: table.key.includes(name), typeOid: type.oid, typeModifier: -1 };
    }),
  };
  const encoder = encoderFor(relation, table, (oid) => types.get(oid));
  encoders.set(table, encoder);
  return encoder;
}
