/** The types of columns, as far as they were asked for: an encoder must know them when the stream announces a relation. */
import type { SqlSession } from '../session/types.ts';
import type { ColumnType } from './values.ts';

/** A domain stands for the type at its end. Only true arrays have elements: others are printed as plain words. */
const TYPES = `
WITH RECURSIVE chain AS (
  SELECT t.oid AS asked, t.oid, t.typtype, t.typbasetype, t.typelem, t.typdelim, t.typsubscript
    FROM pg_catalog.pg_type AS t WHERE t.oid = ANY ($1::pg_catalog.oid[])
  UNION ALL
  SELECT c.asked, t.oid, t.typtype, t.typbasetype, t.typelem, t.typdelim, t.typsubscript
    FROM chain AS c JOIN pg_catalog.pg_type AS t ON t.oid = c.typbasetype WHERE c.typtype = 'd'
)
SELECT asked, oid, typtype, typdelim,
       CASE WHEN typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc THEN typelem ELSE 0 END
  FROM chain WHERE typtype <> 'd'`;

export class TypeBook {
  readonly #known = new Map<number, ColumnType | null>();

  /** Undefined: unknown, or it does not exist (any more): its values are strings. */
  get(oid: number): ColumnType | undefined {
    return this.#known.get(oid) ?? undefined;
  }

  /** Those that were never asked for. */
  unknown(oids: Iterable<number>): number[] {
    return [...new Set(oids)].filter((oid) => !this.#known.has(oid));
  }

  /** Asks the catalog for what is not known yet. Throws ConnectorFault. */
  async learn(session: SqlSession, oids: Iterable<number>): Promise<void> {
    const asked = this.unknown(oids);
    if (asked.length === 0) return;
    const { rows } = await session.query(TYPES, [`{${asked.join(',')}}`]);
    const elements = rows.map((row) => Number(row[4])).filter((oid) => oid !== 0);
    // An element may be a domain over an array, and so on; each step goes one level down.
    if (elements.length > 0) await this.learn(session, elements);
    // Not those that were elements as well: they are known by now, and arrays of them may come first.
    for (const oid of this.unknown(asked)) this.#known.set(oid, null);
    for (const [name, oid, kind, delimiter, element] of rows) {
      this.#known.set(Number(name), {
        oid: Number(oid),
        kind: kind!,
        delimiter: delimiter!,
        element: element === '0' ? null : (this.get(Number(element)) ?? null),
      });
    }
  }
}
