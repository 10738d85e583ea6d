/**
 * Reads the configured tables from the upstream's catalog, and refuses what cannot be captured before anything of it is
 * published: as soon as a table without a usable key is in a publication, PostgreSQL refuses the application's own
 * updates on it.
 */
import { textArray } from '../../../store/arrays.ts';
import type { SourceTable } from '../document/types.ts';
import { ConnectorFault, type FaultCode } from '../fault.ts';
import type { SqlSession } from '../session/types.ts';
import type { CatalogColumn, CatalogTable } from './catalog.ts';
import { checkParts } from './parts.ts';
import type { TypeBook } from './types.ts';

const TABLES = `
SELECT w.position, c.oid, c.relkind, c.relpersistence, c.relreplident, c.relispartition
  FROM ROWS FROM (unnest($1::text[]), unnest($2::text[])) WITH ORDINALITY AS w(schema, name, position)
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = w.schema
  LEFT JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.name
 ORDER BY w.position`;

const COLUMNS = `
SELECT a.attrelid, a.attnum, a.attname, a.atttypid, pg_catalog.format_type(a.atttypid, a.atttypmod),
       CASE WHEN a.attcollation <> t.typcollation
            THEN pg_catalog.quote_ident(ln.nspname) || '.' || pg_catalog.quote_ident(l.collname) END,
       a.attgenerated <> ''
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
  LEFT JOIN pg_catalog.pg_namespace AS ln ON ln.oid = l.collnamespace
 WHERE a.attrelid = ANY ($1::pg_catalog.oid[]) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum`;

/** The columns of the primary key and of the replica identity's index. */
export const KEYS = `
SELECT i.indrelid, i.indisprimary, i.indisreplident, i.indimmediate, a.attname
  FROM pg_catalog.pg_index AS i
 CROSS JOIN LATERAL ROWS FROM (unnest(i.indkey::pg_catalog.int2[])) WITH ORDINALITY AS k(attnum, position)
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
 WHERE i.indrelid = ANY ($1::pg_catalog.oid[]) AND (i.indisprimary OR i.indisreplident)
   AND k.position <= i.indnkeyatts AND i.indisvalid
 ORDER BY i.indexrelid, k.position`;

interface TableKey {
  readonly columns: readonly string[];
  /** False: deferrable, which PostgreSQL does not take for an identity. */
  readonly immediate: boolean;
}

interface TableKeys {
  readonly primary: TableKey | null;
  readonly replica: TableKey | null;
}

const KINDS: Readonly<Record<string, string>> = {
  v: 'a view',
  m: 'a materialized view',
  f: 'a foreign table',
  S: 'a sequence',
  c: 'a composite type',
  i: 'an index',
  I: 'an index',
};

/** In the order of the document. Throws ConnectorFault. */
export async function readTables(
  session: SqlSession,
  wanted: readonly SourceTable[],
  types: TypeBook,
): Promise<CatalogTable[]> {
  const { rows } = await session.query(TABLES, [
    textArray(wanted.map(({ schema }) => schema)),
    textArray(wanted.map(({ table }) => table)),
  ]);
  const found = rows.map((row, i) => tableOf(row, wanted[i]!));
  const oids = `{${found.map(({ oid }) => oid).join(',')}}`;
  const [columns, keys] = await Promise.all([readColumns(session, oids, types), readKeys(session, oids)]);
  const tables = found.map(({ oid, kind, identity, source }): CatalogTable => {
    const name = `${source.schema}.${source.table}`;
    const table = {
      oid,
      schema: source.schema,
      name: source.table,
      kind,
      identity: identity as CatalogTable['identity'],
      columns: (columns.get(oid) ?? []).filter(({ generated }) => !generated),
      key: keyOf(name, identity, keys.get(oid) ?? { primary: null, replica: null }),
      source,
    };
    const unsent = table.key.find((column) => !table.columns.some((one) => one.name === column));
    if (unsent !== undefined) {
      throw fault(
        'replica_identity',
        name,
        `has the generated column "${unsent}" in its key, which is not published`,
      );
    }
    checkPartitionBy(table, columns.get(oid) ?? []);
    return table;
  });
  await checkParts(session, tables);
  return tables;
}

interface Found {
  readonly oid: number;
  readonly kind: 'r' | 'p';
  readonly identity: string;
  readonly source: SourceTable;
}

function tableOf(row: readonly (string | null)[], source: SourceTable): Found {
  const [, oid, kind, persistence, identity] = row;
  const name = `${source.schema}.${source.table}`;
  if (oid === null || oid === undefined) {
    throw new ConnectorFault(
      'table_missing',
      `table ${name} does not exist (names are taken as written, without folding): create it or take it out of source.tables`,
    );
  }
  if (kind !== 'r' && kind !== 'p') {
    throw new ConnectorFault(
      'table_missing',
      `${name} is ${KINDS[kind ?? ''] ?? 'not a table'}, not a table`,
    );
  }
  if (persistence !== 'p') {
    const what = persistence === 'u' ? 'unlogged' : 'temporary';
    throw fault('unsupported_table', name, `is ${what}: its changes are not in the log`);
  }
  return { oid: Number(oid), kind, identity: identity ?? '', source };
}

async function readColumns(
  session: SqlSession,
  oids: string,
  types: TypeBook,
): Promise<Map<number, CatalogColumn[]>> {
  const { rows } = await session.query(COLUMNS, [oids]);
  await types.learn(
    session,
    rows.map((row) => Number(row[3])),
  );
  const columns = new Map<number, CatalogColumn[]>();
  for (const [oid, attnum, name, type, formatType, collation, generated] of rows) {
    const table = Number(oid);
    const list = columns.get(table) ?? [];
    columns.set(table, list);
    list.push({
      name: name!,
      attnum: Number(attnum),
      type: types.get(Number(type)) ?? { oid: Number(type), kind: 'b', element: null, delimiter: ',' },
      formatType: formatType!,
      collation: collation ?? null,
      generated: generated === 't',
    });
  }
  return columns;
}

/** By table. */
export async function readKeys(session: SqlSession, oids: string): Promise<Map<number, TableKeys>> {
  const { rows } = await session.query(KEYS, [oids]);
  const keys = new Map<number, { primary: MutableKey | null; replica: MutableKey | null }>();
  for (const [oid, primary, replica, immediate, column] of rows) {
    const table = Number(oid);
    const entry = keys.get(table) ?? { primary: null, replica: null };
    keys.set(table, entry);
    const add = (key: MutableKey | null): MutableKey => {
      const grown = key ?? { columns: [], immediate: immediate === 't' };
      grown.columns.push(column!);
      return grown;
    };
    if (primary === 't') entry.primary = add(entry.primary);
    if (replica === 't') entry.replica = add(entry.replica);
  }
  return keys;
}

interface MutableKey {
  columns: string[];
  immediate: boolean;
}

/** The columns that name a row in the stream, in the order of their index. */
function keyOf(name: string, identity: string, { primary, replica }: TableKeys): readonly string[] {
  if (identity === 'n') {
    throw fault(
      'replica_identity',
      name,
      'has REPLICA IDENTITY NOTHING: ALTER TABLE … REPLICA IDENTITY DEFAULT, or USING INDEX a unique index',
    );
  }
  if (identity === 'i') {
    if (replica !== null) return replica.columns;
    throw fault(
      'replica_identity',
      name,
      'has lost the index of its replica identity: set another one with ALTER TABLE … REPLICA IDENTITY',
    );
  }
  if (primary === null) {
    throw fault(
      'replica_identity',
      name,
      identity === 'f'
        ? 'has no primary key, without which its rows cannot be told apart: add one'
        : 'has no primary key: add one, or set a unique index with ALTER TABLE … REPLICA IDENTITY USING INDEX',
    );
  }
  if (identity === 'd' && !primary.immediate) {
    throw fault(
      'replica_identity',
      name,
      'has a deferrable primary key, which PostgreSQL does not take for a replica identity: make it NOT DEFERRABLE, or set another unique index',
    );
  }
  return primary.columns;
}

function checkPartitionBy(table: CatalogTable, all: readonly CatalogColumn[]): void {
  const { partitionBy } = table.source;
  if (typeof partitionBy === 'string') return;
  const name = `${table.schema}.${table.name}`;
  for (const column of partitionBy) {
    if (!table.columns.some((one) => one.name === column)) {
      const why = all.some((one) => one.name === column)
        ? 'is generated and not published'
        : 'does not exist';
      throw fault('partition_by', name, `cannot be partitioned by column "${column}", which ${why}`);
    }
    if (table.identity !== 'f' && !table.key.includes(column)) {
      throw fault(
        'partition_by',
        name,
        `cannot be partitioned by column "${column}": it is not part of the key, and the log carries the old value of others only under REPLICA IDENTITY FULL`,
      );
    }
  }
}

function fault(code: FaultCode, table: string, what: string): ConnectorFault {
  return new ConnectorFault(code, `table ${table} ${what}`);
}
