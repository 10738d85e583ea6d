/**
 * The SQL that reads a table's rows as the stream sends them: the published columns, printed by their types' output
 * functions. A cast to text would print some types otherwise (`char(n)` without its padding, `inet` with its mask).
 */
import { qualified, quoteName } from '../../identifiers.ts';

/** What of a column in the catalog is needed to read it. */
interface SelectedColumn {
  readonly name: string;
  readonly attnum: number;
  /** With domains followed to their base type. */
  readonly type: { readonly oid: number };
  /** As a cast needs it. */
  readonly formatType: string;
  /** Quoted, with its schema. Null: the default one, or none. */
  readonly collation: string | null;
}

interface SelectedTable {
  readonly oid: number;
  readonly schema: string;
  readonly name: string;
  /** `r`: without what inherits from it; `p`: with all its parts. */
  readonly kind: 'r' | 'p';
  readonly columns: readonly SelectedColumn[];
  /** Names of columns. */
  readonly key: readonly string[];
}

/** Types below are PostgreSQL's own. */
const FIRST_NORMAL_OID = 16_384;

/** The columns of an event, in their order. */
function selectList(table: SelectedTable): string {
  return table.columns.map(({ name }) => `t.${quoteName(name)}`).join(', ');
}

/** The table, named `t`. */
function fromTable(table: SelectedTable): string {
  return `${relation(table)} AS t`;
}

/** As `FROM` and `LOCK TABLE` take it. */
export function relation({ kind, schema, name }: SelectedTable): string {
  return `${kind === 'r' ? 'ONLY ' : ''}${qualified(schema, name)}`;
}

/**
 * The first rows behind a key, in the order of the key.
 *
 * One comparison of rows, since of nothing else the planner makes one scan of the index; values as texts that are cast
 * back, so that what was printed is compared as what it was. The order is that of the columns' own types and
 * collations on both sides: `after` and ORDER BY must agree, whatever order the index keeps.
 *
 * @param after values of the key as they were printed; null: from the beginning.
 */
export function chunkQuery(table: SelectedTable, after: readonly string[] | null, limit: number): string {
  const key = keyColumns(table);
  const names = key.map(({ name }) => `t.${quoteName(name)}`);
  const behind =
    after === null
      ? ''
      : ` WHERE (${names.join(', ')}) > (${key.map((column, i) => castBack(column, after[i]!)).join(', ')})`;
  return `SELECT ${selectList(table)} FROM ${fromTable(table)}${behind} ORDER BY ${names.join(', ')} LIMIT ${limit}`;
}

/** The rows of the table that have one of these keys. Keys as they were printed, none with a NULL. */
export function keyQuery(table: SelectedTable, keys: readonly (readonly string[])[]): string {
  const key = keyColumns(table);
  const names = key.map(({ name }) => `t.${quoteName(name)}`).join(', ');
  const rows = keys.map((values) => `(${key.map((column, i) => castBack(column, values[i]!)).join(', ')})`);
  return `SELECT ${selectList(table)} FROM ${fromTable(table)} WHERE (${names}) IN (${rows.join(', ')})`;
}

/**
 * The column numbers and names of the table as this transaction has them, and the schemas of its key's types: operators
 * of types that came with an extension are found through the search path, like it or not.
 */
export function shapeQuery(table: SelectedTable): string {
  const userTypes = keyColumns(table).flatMap(({ type }) => (type.oid < FIRST_NORMAL_OID ? [] : [type.oid]));
  return (
    `SELECT (SELECT pg_catalog.string_agg(a.attnum || ' ' || a.attname, E'\\n' ORDER BY a.attnum) ` +
    `FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = ${table.oid} AND a.attnum > 0 AND NOT a.attisdropped ` +
    `AND (a.attgenerated = '' OR a.attnum IN (${table.columns.map(({ attnum }) => attnum).join(', ')}))), ` +
    (userTypes.length === 0
      ? 'NULL'
      : `(SELECT pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(n.nspname), ', ') FROM pg_catalog.pg_type AS y ` +
        `JOIN pg_catalog.pg_namespace AS n ON n.oid = y.typnamespace WHERE y.oid IN (${userTypes.join(', ')}))`)
  );
}

/** What {@link shapeQuery} answers for a table that is still as the catalog was read. */
export function shapeOf(table: SelectedTable): string {
  return table.columns.map(({ attnum, name }) => `${attnum} ${name}`).join('\n');
}

function keyColumns({ schema, name, columns, key }: SelectedTable): SelectedColumn[] {
  return key.map((wanted) => {
    const column = columns.find((one) => one.name === wanted);
    if (column === undefined) throw new Error(`${schema}.${name} has no key column "${wanted}"`);
    return column;
  });
}

function castBack({ formatType, collation }: SelectedColumn, value: string): string {
  const typed = `CAST(${literal(value)} AS ${formatType})`;
  return collation === null ? typed : `${typed} COLLATE ${collation}`;
}

/** A text that reads the same whatever `standard_conforming_strings` says. */
export function literal(text: string): string {
  return `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}
