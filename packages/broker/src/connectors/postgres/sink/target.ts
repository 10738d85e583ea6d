/** The table that a sink writes, as its catalog describes it, and whether the sink can work with it. */
import { type KnownKeys, knownKeys } from '../../../log/json/reader.ts';
import type { MetadataFact, SinkSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { qualified, quoteName } from '../identifiers.ts';
import type { SqlSession } from '../session/types.ts';
import { all } from './all.ts';
import { type KeyText, keyTextOf } from './key_text.ts';

/** A column that can be written: neither dropped nor generated. */
export interface TargetColumn {
  readonly name: string;
  readonly quoted: string;
  /** With its modifier, as SQL writes it. */
  readonly type: string;
  /** A row may be inserted without it. */
  readonly optional: boolean;
  /** An identity of its own: it can be inserted, and never updated. */
  readonly always: boolean;
  readonly identity: boolean;
  /** Type `json`, which keeps characters as they are. */
  readonly keepsText: boolean;
}

export interface KeyColumn {
  /** Position among the target's columns. */
  readonly column: number;
  /** The equality of the index, with its schema: a search path may hide another one. */
  readonly equals: string;
  readonly text: KeyText;
}

export interface Target {
  readonly name: string;
  readonly columns: readonly TargetColumn[];
  /** Their names, to find them in a message. */
  readonly known: KnownKeys;
  /** Empty where the mode needs none. */
  readonly key: readonly KeyColumn[];
  /** Two texts of a key are equal when, and only when, the database takes them for one. */
  readonly keyTextsDecide: boolean;
  readonly hasChecks: boolean;
  /** Foreign keys of other tables point to it: it cannot be truncated. */
  readonly referenced: boolean;
  /** Positions of the columns for facts of the message. */
  readonly metadata: readonly { readonly fact: MetadataFact; readonly column: number }[];
  /** Changes when anything of this does. */
  readonly fingerprint: string;
}

const RELATION = `
  SELECT c.oid::pg_catalog.text, c.relkind::pg_catalog.text,
         EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'c'),
         EXISTS (SELECT FROM pg_catalog.pg_constraint k
                 WHERE k.confrelid = c.oid AND k.contype = 'f' AND k.conrelid <> c.oid)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname = $2`;

const COLUMNS = `
  SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
         coalesce(pg_catalog.to_jsonb(a) ->> 'attgenerated', ''), a.attidentity::pg_catalog.text,
         a.attnotnull, a.atthasdef, t.typtype::pg_catalog.text, a.atttypid::pg_catalog.text, a.atttypmod::pg_catalog.text,
         coalesce(pg_catalog.to_jsonb(o) ->> 'collisdeterministic', 'true')
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
  WHERE a.attrelid = ($1::pg_catalog.text)::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped
  ORDER BY a.attnum`;

/** Unique indexes that ON CONFLICT can use, column by column. */
const KEYS = `
  SELECT i.indexrelid::pg_catalog.text, i.indisprimary, i.indisreplident, a.attname, s.nspname, p.oprname
  FROM pg_catalog.pg_index i
  CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k(n)
  JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n]
  JOIN pg_catalog.pg_opclass c ON c.oid = i.indclass[k.n]
  JOIN pg_catalog.pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3
   AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
  JOIN pg_catalog.pg_operator p ON p.oid = m.amopopr
  JOIN pg_catalog.pg_namespace s ON s.oid = p.oprnamespace
  WHERE i.indrelid = ($1::pg_catalog.text)::pg_catalog.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
  ORDER BY i.indexrelid, k.n`;

const JSON_OID = '114';

/**
 * Reads the table and checks it against the document. Throws ConnectorFault: `table_missing`, `no_key`, `metadata_column`, or
 * what the session threw.
 */
export async function readTarget(session: SqlSession, settings: SinkSettings): Promise<Target> {
  const relation = await relationOf(session, settings);
  // Without a search path every type is printed with its schema.
  const [, , columns, keys] = await all([
    session.query('BEGIN'),
    session.query("SET LOCAL search_path = ''"),
    session.query(COLUMNS, [relation.oid]),
    session.query(KEYS, [relation.oid]),
    session.query('ROLLBACK'),
  ]);
  const catalog = columns!.rows.map((row) => catalogColumn(row as string[]));
  const writable = catalog.filter((column) => !column.generated);
  const key = keyOf(settings, writable, keyIndexes(keys!.rows as string[][]));
  const canonical = settings.mode === 'cdc';
  const keyColumns = key.map(({ name, equals }) => {
    const column = writable.findIndex((candidate) => candidate.name === name);
    return { column, equals, text: keyTextOf(writable[column]!, canonical) };
  });
  return {
    name: qualified(settings.schema, settings.table),
    columns: writable,
    known: knownKeys(...writable.map((column) => column.name)),
    key: keyColumns.map(({ column, equals, text }) => ({ column, equals, text: text.of })),
    keyTextsDecide: keyColumns.every(({ text }) => text.decides),
    hasChecks: relation.hasChecks,
    referenced: relation.referenced,
    metadata: metadataOf(settings, writable, key),
    fingerprint: JSON.stringify([relation, columns!.rows, keys!.rows]),
  };
}

async function relationOf(session: SqlSession, { schema, table, mode }: SinkSettings) {
  const { rows } = await session.query(RELATION, [schema, table]);
  const [oid, kind, checks, referenced] = rows[0] ?? [];
  const kinds = mode === 'append' ? ['r', 'p', 'v', 'f'] : ['r', 'p'];
  if (oid == null || !kinds.includes(kind!)) {
    const what = mode === 'append' ? 'a table, view or foreign table' : 'a table';
    const why = oid == null ? 'does not exist' : `is not ${what}`;
    throw new ConnectorFault('table_missing', `${schema}.${table} ${why}: create it, or correct sink.table`);
  }
  return { oid, hasChecks: checks === 't', referenced: referenced === 't' };
}

export interface CatalogColumn extends TargetColumn {
  readonly generated: boolean;
  readonly typeOid: string;
  readonly typeModifier: number;
  readonly deterministic: boolean;
}

function catalogColumn(row: readonly string[]): CatalogColumn {
  const [name, type, generated, identity, notNull, hasDefault, typeKind, oid, modifier, deterministic] =
    row as [string, string, string, string, string, string, string, string, string, string];
  // A domain may refuse the NULL that an unnamed column without a default gets.
  const nullable = notNull === 'f' && typeKind !== 'd';
  return {
    name,
    quoted: quoteName(name),
    type,
    generated: generated !== '',
    identity: identity !== '',
    always: identity === 'a',
    optional: nullable || hasDefault === 't' || identity !== '',
    keepsText: oid === JSON_OID,
    typeOid: oid,
    typeModifier: Number(modifier),
    deterministic: deterministic === 'true',
  };
}

interface KeyIndex {
  readonly primary: boolean;
  readonly replicaIdentity: boolean;
  readonly columns: { readonly name: string; readonly equals: string }[];
}

function keyIndexes(rows: readonly (readonly string[])[]): KeyIndex[] {
  const byIndex = new Map<string, KeyIndex>();
  for (const [index, primary, identity, name, schema, operator] of rows) {
    const known = byIndex.get(index!);
    const entry = known ?? { primary: primary === 't', replicaIdentity: identity === 't', columns: [] };
    if (known === undefined) byIndex.set(index!, entry);
    entry.columns.push({ name: name!, equals: `OPERATOR(${quoteName(schema!)}.${operator})` });
  }
  return [...byIndex.values()];
}

/** The columns that make a row one and the same, each with its equality. */
function keyOf(
  settings: SinkSettings,
  columns: readonly CatalogColumn[],
  indexes: readonly KeyIndex[],
): KeyIndex['columns'] {
  if (settings.mode !== 'upsert' && settings.mode !== 'cdc') return [];
  const writable = (index: KeyIndex) =>
    index.columns.every(({ name }) => columns.some((column) => column.name === name));
  const usable = indexes.filter(writable);
  const asked = settings.key;
  if (asked !== null) {
    const same = (index: KeyIndex) =>
      index.columns.length === asked.length && index.columns.every(({ name }) => asked.includes(name));
    const found = usable.find(same);
    if (found !== undefined) return found.columns;
    throw new ConnectorFault(
      'no_key',
      `${settings.schema}.${settings.table} has no unique index on exactly (${asked.join(', ')}) that is valid, not ` +
        'partial, not deferrable and on plain columns: create one, or correct sink.key',
    );
  }
  const found = usable.find((index) => index.primary) ?? usable.find((index) => index.replicaIdentity);
  if (found !== undefined) return found.columns;
  throw new ConnectorFault(
    'no_key',
    `${settings.schema}.${settings.table} has no primary key that a row can be found by (a deferrable one cannot be ` +
      'used): create one, or name the columns of a unique index in sink.key',
  );
}

function metadataOf(
  settings: SinkSettings,
  columns: readonly CatalogColumn[],
  key: KeyIndex['columns'],
): Target['metadata'] {
  return Object.entries(settings.metadata).map(([fact, name]) => {
    const column = columns.findIndex((candidate) => candidate.name === name);
    const fault = (why: string) =>
      new ConnectorFault(
        'metadata_column',
        `sink.metadata.${fact}: column ${name} of ${settings.schema}.${settings.table} ${why}`,
      );
    if (column < 0) throw fault('does not exist or is generated: add it, or correct the document');
    if (key.some((part) => part.name === name)) throw fault('is part of the key: choose another one');
    return { fact: fact as MetadataFact, column };
  });
}
