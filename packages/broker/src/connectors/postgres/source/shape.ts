/**
 * With which columns a relation of the stream names its rows.
 *
 * The stream decides, not the catalog: what is read after a restart may be older than the catalog, and an index may be
 * exchanged while the stream goes on. The catalog only knows in which order the key's columns stand.
 */
import { ConnectorFault } from '../fault.ts';
import type { Relation } from '../replication/pgoutput.ts';
import type { CatalogTable } from './catalog.ts';
import { RelationChanged, TableEncoder, type TableShape } from './events.ts';

const FULL = 'f';

/** Throws ConnectorFault `relation_changed`. */
export function encoderFor(
  relation: Relation,
  table: CatalogTable,
  typeOf: TableShape['typeOf'],
): TableEncoder {
  const key = keyOf(relation, table);
  const { partitionBy } = table.source;
  const columns = partitionBy === 'key' ? key : partitionBy === 'single' ? null : partitionBy;
  const name = `${relation.schema}.${relation.name}`;
  const flagged = new Set(flaggedColumns(relation));
  // Outside of the key the old value is not sent: a deleted row would go to no partition of its own.
  const lost = columns?.find(
    (column) => relation.identity !== FULL && flagged.size > 0 && !flagged.has(column),
  );
  if (lost !== undefined) {
    throw changed(
      `${name} does not carry the old value of column "${lost}", by which it is partitioned, any more: set REPLICA IDENTITY FULL again, or adapt source.tables`,
    );
  }
  try {
    return new TableEncoder(relation, { key, partitionBy: columns, typeOf });
  } catch (error) {
    if (error instanceof RelationChanged) throw changed(error.message);
    throw error;
  }
}

function keyOf(relation: Relation, { key }: CatalogTable): readonly string[] {
  const flagged = flaggedColumns(relation);
  // The full row is an identity without a key of its own; without any identity only inserts come.
  if (relation.identity === FULL || flagged.length === 0) return key;
  const same = flagged.length === key.length && key.every((column) => flagged.includes(column));
  return same ? key : flagged;
}

function flaggedColumns({ columns }: Relation): string[] {
  return columns.filter((column) => column.key).map(({ name }) => name);
}

function changed(what: string): ConnectorFault {
  return new ConnectorFault('relation_changed', what);
}
