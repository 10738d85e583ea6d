/** The progress table: found as it must be, or made. */
import type { SinkSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { qualified, quoteName } from '../identifiers.ts';
import type { SqlSession } from '../session/types.ts';

const COLUMNS = `
  SELECT a.attname, b.typcategory::pg_catalog.text, pg_catalog.format_type(a.atttypid, NULL)
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_type b ON b.oid = a.atttypid
  WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped`;

/** A unique index that ON CONFLICT (sink, partition_id) finds. */
const KEY = `
  SELECT FROM pg_catalog.pg_index i
  WHERE i.indrelid = pg_catalog.to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 2
    AND (SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = i.indrelid AND a.attname IN ('sink', 'partition_id')
           AND a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:1])) = 2`;

const PRIVILEGES = `
  SELECT pg_catalog.has_schema_privilege($1, 'USAGE')
     AND pg_catalog.has_table_privilege($2, 'SELECT') AND pg_catalog.has_table_privilege($2, 'INSERT')
     AND pg_catalog.has_table_privilege($2, 'UPDATE')`;

/** By category: S strings, N numbers, D times. */
const WANTED: Readonly<Record<string, string>> = {
  sink: 'S',
  partition_id: 'N',
  partition: 'S',
  last_offset: 'N',
  updated_at: 'D',
};
/** Types that hold every offset. */
const WHOLE = new Set(['bigint', 'numeric']);

/** Others that make it at the same moment: then it is there. */
const RACES = new Set(['23505', '42P06', '42P07', '42710']);

function progressTableSql({ schema, table }: SinkSettings['progressTable']): string {
  return (
    `CREATE SCHEMA IF NOT EXISTS ${quoteName(schema)}; ` +
    `CREATE TABLE IF NOT EXISTS ${qualified(schema, table)} (sink text NOT NULL, partition_id bigint NOT NULL, ` +
    'partition text NOT NULL, last_offset bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), ' +
    'PRIMARY KEY (sink, partition_id))'
  );
}

/** Throws ConnectorFault `progress_table`, or what the session threw. */
export async function ensureProgressTable(session: SqlSession, settings: SinkSettings): Promise<void> {
  const { schema, table } = settings.progressTable;
  const look = () => session.query(COLUMNS, [schema, table]).then(({ rows }) => rows);
  let columns = await look();
  if (columns.length === 0) {
    if (!settings.createProgressTable) throw fault(settings, 'does not exist');
    await create(session, settings);
    columns = await look();
    if (columns.length === 0) throw fault(settings, 'could not be created');
  }
  for (const [name, category] of Object.entries(WANTED)) {
    const column = columns.find(([found]) => found === name);
    if (column === undefined) throw fault(settings, `has no column ${name}`);
    const fits = category === 'N' ? WHOLE.has(column[2]!) : column[1] === category;
    if (!fits) throw fault(settings, `has a column ${name} of type ${column[2]}`);
  }
  const quoted = qualified(schema, table);
  const [key, privileges] = await Promise.all([
    session.query(KEY, [quoted]),
    session.query(PRIVILEGES, [schema, quoted]),
  ]);
  if (key.count === 0) throw fault(settings, 'has no primary key (sink, partition_id)');
  if (privileges.rows[0]![0] !== 't') {
    throw fault(settings, 'is there, but this role may not SELECT, INSERT and UPDATE it');
  }
}

async function create(session: SqlSession, settings: SinkSettings): Promise<void> {
  for (const sql of progressTableSql(settings.progressTable).split('; ')) {
    try {
      await session.query(sql);
    } catch (error) {
      const state = error instanceof ConnectorFault ? error.sqlState : null;
      if (state !== null && RACES.has(state)) continue;
      // A schema that is there needs no right to create one: the table decides.
      if (state === '42501' && sql.startsWith('CREATE SCHEMA')) continue;
      if (state === '42501' || state === '3F000')
        throw fault(settings, 'could not be created by this role', state);
      throw error;
    }
  }
}

function fault({ progressTable }: SinkSettings, why: string, sqlState: string | null = null): ConnectorFault {
  return new ConnectorFault(
    'progress_table',
    `the progress table ${progressTable.schema}.${progressTable.table} ${why}. It is made by: ${progressTableSql(progressTable)}`,
    { sqlState },
  );
}
