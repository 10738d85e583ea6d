/** The tables of a source as the upstream's catalog describes them. */
import type { SourceTable } from '../document/types.ts';
import type { ColumnType } from './values.ts';

export interface CatalogColumn {
  readonly name: string;
  readonly attnum: number;
  readonly type: ColumnType;
  /** `numeric(12,2)`: exact, for casts. */
  readonly formatType: string;
  /** Quoted and with its schema; null: the type's own. */
  readonly collation: string | null;
  readonly generated: boolean;
}

export interface CatalogTable {
  readonly oid: number;
  readonly schema: string;
  readonly name: string;
  /** `p`: partitioned. */
  readonly kind: 'r' | 'p';
  /** Replica identity: default, an index, the full row. */
  readonly identity: 'd' | 'i' | 'f';
  /** What is published of it, in the order of the table. */
  readonly columns: readonly CatalogColumn[];
  /** Names of the key's columns, in the order of its index. */
  readonly key: readonly string[];
  /** Where its events go. */
  readonly source: SourceTable;
}
