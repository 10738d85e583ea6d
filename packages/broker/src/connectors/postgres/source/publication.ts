/**
 * The publication of a source: made and kept as the document wants it, or only looked at when somebody else keeps it. Touched
 * only when something differs, since each change of it makes every decoder of the database forget what it knows.
 */
import { textArray } from '../../../store/arrays.ts';
import type { SourceSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { quoteName } from '../identifiers.ts';
import type { SqlResult, SqlSession } from '../session/types.ts';
import type { CatalogTable } from './catalog.ts';
import { relation } from './snapshot/select.ts';

const PUBLICATION = `
SELECT p.oid, p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot,
       EXISTS (SELECT FROM pg_catalog.pg_publication_namespace AS n WHERE n.pnpubid = p.oid)`;
const PUBLICATION_FROM = ' FROM pg_catalog.pg_publication AS p WHERE p.pubname = $1';
const MEMBERS = `
SELECT r.prrelid, r.prqual IS NOT NULL, r.prattrs IS NOT NULL
  FROM pg_catalog.pg_publication_rel AS r WHERE r.prpubid = $1::pg_catalog.oid`;
const PUBLISHED = `
SELECT t.schemaname, t.tablename, t.rowfilter, pg_catalog.array_to_json(t.attnames)
  FROM pg_catalog.pg_publication_tables AS t
 WHERE t.pubname = $1 AND (t.schemaname, t.tablename) IN (SELECT * FROM unnest($2::text[], $3::text[]))`;

interface Publication {
  readonly oid: string;
  /** Of all tables, or of all in some schemas: its list is not ours to change. */
  readonly general: boolean;
  readonly operations: { insert: boolean; update: boolean; delete: boolean; truncate: boolean };
  readonly viaRoot: boolean;
  /** Generated columns are not published, or the server does not know of such. */
  readonly generatedOff: boolean;
}

const GENERATED_SINCE = 180_000;

/**
 * Makes the publication fit, if it is ours to make, and answers the tables with the columns that it publishes. Throws
 * ConnectorFault.
 */
export async function settlePublication(
  session: SqlSession,
  settings: SourceSettings,
  tables: readonly CatalogTable[],
): Promise<CatalogTable[]> {
  if (settings.managePublication) await manage(session, settings, tables);
  const found = await readPublication(session, settings.publication);
  if (found === null) {
    throw fault(
      settings,
      'does not exist: create it as the owner of the tables, or set source.managePublication',
    );
  }
  checkOptions(settings, found, tables);
  return publishedColumns(session, settings, found, tables);
}

/** Which of the tables are published, by `schema.name`. */
export async function publishedTables(
  session: SqlSession,
  publication: string,
  tables: readonly CatalogTable[],
): Promise<Set<string>> {
  const rows = await readPublished(session, publication, tables);
  return new Set(rows.map(([schema, name]) => `${schema}.${name}`));
}

async function readPublished(
  session: SqlSession,
  publication: string,
  tables: readonly CatalogTable[],
): Promise<SqlResult['rows']> {
  const { rows } = await session.query(PUBLISHED, [
    publication,
    textArray(tables.map(({ schema }) => schema)),
    textArray(tables.map(({ name }) => name)),
  ]);
  return rows;
}

async function manage(
  session: SqlSession,
  settings: SourceSettings,
  tables: readonly CatalogTable[],
): Promise<void> {
  const name = quoteName(settings.publication);
  const list = tables.map(relation).join(', ');
  const gencols = session.serverVersion >= GENERATED_SINCE ? ', publish_generated_columns = none' : '';
  const options = `publish = 'insert, update, delete, truncate', publish_via_partition_root = true${gencols}`;
  try {
    const found = await readPublication(session, settings.publication);
    if (found === null) {
      await session.query(`CREATE PUBLICATION ${name} FOR TABLE ${list} WITH (${options})`);
      return;
    }
    if (found.general) return;
    if (!(await sameMembers(session, found, tables))) {
      await session.query(`ALTER PUBLICATION ${name} SET TABLE ${list}`);
    }
    const { insert, update, delete: deletes, truncate } = found.operations;
    if (!(insert && update && deletes && truncate && found.viaRoot && found.generatedOff)) {
      await session.query(`ALTER PUBLICATION ${name} SET (${options})`);
    }
  } catch (error) {
    if (!(error instanceof ConnectorFault) || error.sqlState !== '42501') throw error;
    throw fault(
      settings,
      `cannot be managed (${error.message}): the role must own the tables and have CREATE on the database, or set source.managePublication to false and have the owner create it`,
      error,
    );
  }
}

async function sameMembers(
  session: SqlSession,
  { oid }: Publication,
  tables: readonly CatalogTable[],
): Promise<boolean> {
  const { rows } = await session.query(MEMBERS, [oid]);
  const wanted = new Set(tables.map((table) => table.oid));
  return (
    rows.length === wanted.size &&
    rows.every(([member, filter, list]) => wanted.has(Number(member)) && filter === 'f' && list === 'f')
  );
}

async function readPublication(session: SqlSession, name: string): Promise<Publication | null> {
  const generated = session.serverVersion >= GENERATED_SINCE ? ", p.pubgencols = 'n'" : ', true';
  const { rows } = await session.query(`${PUBLICATION}${generated}${PUBLICATION_FROM}`, [name]);
  const row = rows[0];
  if (row === undefined) return null;
  const [oid, ...flags] = row;
  const [all, insert, update, deletes, truncate, viaRoot, schemas, generatedOff] = flags.map(
    (flag) => flag === 't',
  );
  return {
    oid: oid!,
    general: all! || schemas!,
    operations: { insert: insert!, update: update!, delete: deletes!, truncate: truncate! },
    viaRoot: viaRoot!,
    generatedOff: generatedOff!,
  };
}

function checkOptions(
  settings: SourceSettings,
  { operations, viaRoot }: Publication,
  tables: readonly CatalogTable[],
): void {
  const missing = (['insert', 'update', 'delete'] as const).filter((one) => !operations[one]);
  if (missing.length > 0) throw fault(settings, `does not publish ${missing.join(', ')}: add it`);
  if (settings.onTruncate === 'emit' && !operations.truncate) {
    throw fault(settings, 'does not publish truncate, which source.onTruncate "emit" needs: add it');
  }
  const root = tables.find(({ kind }) => kind === 'p');
  if (root !== undefined && !viaRoot) {
    throw fault(
      settings,
      `publishes the partitions of ${root.schema}.${root.name} under their own names: set publish_via_partition_root`,
    );
  }
}

async function publishedColumns(
  session: SqlSession,
  settings: SourceSettings,
  { oid }: Publication,
  tables: readonly CatalogTable[],
): Promise<CatalogTable[]> {
  const [published, members] = await Promise.all([
    readPublished(session, settings.publication, tables),
    session.query(MEMBERS, [oid]),
  ]);
  const listed = new Set(members.rows.filter((row) => row[2] === 't').map((row) => Number(row[0])));
  return tables.map((table) => {
    const name = `${table.schema}.${table.name}`;
    const row = published.find(([schema, one]) => schema === table.schema && one === table.name);
    if (row === undefined) throw fault(settings, `does not carry table ${name}: add it`);
    if (row[2] !== null) {
      throw fault(settings, `filters rows of ${name}, which the snapshot would not: publish all of them`);
    }
    const names = new Set(JSON.parse(row[3] ?? '[]') as string[]);
    if (listed.has(table.oid) || table.columns.some((column) => !names.has(column.name))) {
      throw fault(settings, `publishes only some columns of ${name}: publish the whole table`);
    }
    if (names.size > table.columns.length) {
      throw fault(
        settings,
        `publishes generated columns of ${name}, which nobody can write into a copy: set publish_generated_columns to none`,
      );
    }
    return table;
  });
}

function fault({ publication }: SourceSettings, what: string, cause?: unknown): ConnectorFault {
  return new ConnectorFault('publication', `publication ${publication} ${what}`, { cause });
}
