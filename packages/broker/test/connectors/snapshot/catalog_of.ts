/** A table as the catalog describes it, for tests of what reads it. */
import type { UpstreamDatabase } from '../../../../../test/kit/upstream.ts';
import type { CatalogTable } from '../../../src/connectors/postgres/source/catalog.ts';

export async function catalogOf(
  database: UpstreamDatabase,
  schema: string,
  name: string,
): Promise<CatalogTable> {
  const [table] = await database.sql(
    `SELECT c.oid::int, c.relkind::text AS kind, i.indkey::text AS key FROM pg_class c
       JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
      WHERE n.nspname = $1 AND c.relname = $2`,
    [schema, name],
  );
  const columns = await database.sql(
    `SELECT a.attname AS name, a.attnum, a.atttypid::int AS oid, t.typbasetype::int AS base,
            CASE WHEN tn.nspname = 'pg_catalog' THEN format_type(a.atttypid, a.atttypmod)
                 ELSE quote_ident(tn.nspname) || '.' || quote_ident(t.typname) END AS format,
            CASE WHEN co.collname <> 'default' THEN quote_ident(cn.nspname) || '.' || quote_ident(co.collname) END AS collation
       FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace tn ON tn.oid = t.typnamespace
       LEFT JOIN pg_collation co ON co.oid = a.attcollation
       LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
      WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum`,
    [table!.oid],
  );
  const named = columns.map((column) => ({
    name: column.name as string,
    attnum: column.attnum as number,
    type: {
      oid: ((column.base as number) || column.oid) as number,
      kind: 'b',
      element: null,
      delimiter: ',',
    },
    formatType: column.format as string,
    collation: column.collation as string | null,
    generated: false,
  }));
  const numbers = (table!.key as string).split(' ').map(Number);
  return {
    oid: table!.oid as number,
    schema,
    name,
    kind: table!.kind as 'r' | 'p',
    identity: 'd',
    columns: named,
    key: numbers.map((number) => named.find(({ attnum }) => attnum === number)!.name),
    source: { schema, table: name, queue: 'q', partitionBy: 'key' },
  };
}
