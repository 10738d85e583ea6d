/**
 * Columns that an update did not send although the row has another key now: a consumer that knows the new key alone would
 * never see them. They are read from the table, by the new key; a value may be newer than the change, and the event of
 * whatever made it newer follows. A row that is gone again keeps them unsent: the change that took it away follows.
 */
import { ConnectorFault } from '../fault.ts';
import { CELL, type Tuple } from '../replication/pgoutput.ts';
import type { SqlSession } from '../session/types.ts';
import type { CatalogTable } from './catalog.ts';
import type { Mapped } from './reader.ts';
import { keyQuery } from './snapshot/select.ts';
import { visible } from './visible.ts';

export interface Wanted {
  readonly mapped: Mapped;
  /** Of the change. */
  readonly xid: number;
  readonly key: readonly string[];
  readonly columns: readonly number[];
  found: Tuple | null;
}

/** Table or column are not there any more. */
const GONE = new Set(['42P01', '42703', '3F000']);

/** Fills in what is found, in one query a relation. Throws ConnectorFault. */
export async function readBack(
  session: SqlSession,
  wanted: readonly Wanted[],
  pause: (ms: number) => Promise<void>,
): Promise<void> {
  await visible(session, new Set(wanted.map(({ xid }) => xid)), pause);
  const byRelation = Map.groupBy(wanted, ({ mapped }) => mapped);
  for (const [mapped, list] of byRelation) await readOne(session, mapped, list);
}

async function readOne(session: SqlSession, mapped: Mapped, wanted: readonly Wanted[]): Promise<void> {
  const { relation, encoder } = mapped;
  const needed = new Set([...encoder.key, ...wanted.flatMap(({ columns }) => columns)]);
  const columns = [...needed].sort((a, b) => a - b);
  const query = keyQuery(
    selected(mapped, columns),
    wanted.map(({ key }) => key),
  );
  const rows = await session.bytes(query).catch((error: unknown) => {
    if (error instanceof ConnectorFault && GONE.has(error.sqlState ?? '')) return [];
    throw error;
  });
  const keyAt = encoder.key.map((column) => columns.indexOf(column));
  const byKey = new Map(
    rows.map((row) => [keyText(keyAt.map((at) => row[at]?.toString('utf8') ?? null)), row]),
  );
  for (const one of wanted) {
    const row = byKey.get(keyText(one.key));
    one.found = row === undefined ? null : tupleOf(relation.columns.length, columns, row);
  }
}

/** The table as the stream has it, as far as the catalog still knows its columns. */
function selected({ table, relation, encoder }: Mapped, columns: readonly number[]): CatalogTable {
  return {
    ...table,
    key: encoder.key.map((column) => relation.columns[column]!.name),
    columns: columns.map((column) => {
      const { name, typeOid } = relation.columns[column]!;
      const known = table.columns.find((one) => one.name === name);
      return (
        known ?? {
          name,
          attnum: 0,
          type: { oid: typeOid, kind: 'b', element: null, delimiter: ',' },
          formatType: 'text',
          collation: null,
          generated: false,
        }
      );
    }),
  };
}

function keyText(values: readonly (string | null)[]): string {
  return JSON.stringify(values);
}

/** A row of `width` columns of which only some are known. */
function tupleOf(width: number, columns: readonly number[], row: readonly (Buffer | null)[]): Tuple {
  const kinds = new Uint8Array(width).fill(CELL.unchanged);
  const starts = new Uint32Array(width);
  const ends = new Uint32Array(width);
  let at = 0;
  columns.forEach((column, i) => {
    const value = row[i];
    if (value === null || value === undefined) {
      kinds[column] = CELL.null;
      return;
    }
    kinds[column] = CELL.text;
    starts[column] = at;
    at += value.length;
    ends[column] = at;
  });
  const texts = row.filter((value): value is Buffer => value !== null && value !== undefined);
  return { bytes: Buffer.concat(texts), kinds, starts, ends };
}
