/**
 * Reads one chunk: the rows behind a key, in the order of the key, in one short read-only transaction of its own.
 *
 * The session is the reader's alone: whatever else ran on it inside of the transaction would see the past. Rows come
 * through a cursor, so that a chunk of large rows is cut by its bytes and not only by their number.
 */
import { ConnectorFault } from '../../fault.ts';
import { quoteName } from '../../identifiers.ts';
import type { Tuple } from '../../replication/pgoutput.ts';
import type { SqlSession } from '../../session/types.ts';
import type { CatalogTable } from '../catalog.ts';
import { rowOfBytes } from '../rows.ts';
import { SqlKeeper } from '../sql_keeper.ts';
import { chunkQuery, relation, shapeOf, shapeQuery } from './select.ts';
import { parseVisibility, type Visibility } from './visibility.ts';

export interface Chunk {
  readonly table: CatalogTable;
  readonly rows: readonly Tuple[];
  readonly visibility: Visibility;
  /** When it was read, by the upstream's clock: microseconds since 1970. */
  readonly micros: number;
  /** There is nothing behind it. */
  readonly last: boolean;
}

interface ChunkReaderDeps {
  /** Opens a session that nobody else uses. */
  readonly open: () => Promise<SqlSession>;
  /** Of the markers. */
  readonly prefix: string;
  /** A chunk that has reached it is cut. */
  readonly bytesMax: number;
}

/**
 * Rows that one answer brings at most: so many may all be longer than those before them. The first answer is small, since
 * nobody knows yet how long the rows are.
 */
const FETCH_ROWS_MAX = 400;
const FETCH_ROWS_FIRST = 50;
const CURSOR = quoteName('queen_chunk');
const SEEN =
  'SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, ' +
  '(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::pg_catalog.int8';

export class ChunkReader {
  readonly #deps: ChunkReaderDeps;
  readonly #keeper: SqlKeeper;

  constructor(deps: ChunkReaderDeps) {
    this.#deps = deps;
    this.#keeper = new SqlKeeper(deps.open);
  }

  /** Writes a marker into the upstream's log. `flush`: and sees to it that the stream may bring it at once. */
  async mark(content: string, flush: boolean): Promise<void> {
    const session = await this.#keeper.session();
    try {
      await session.query('SELECT pg_catalog.pg_logical_emit_message(false, $1, $2, $3)', [
        this.#deps.prefix,
        content,
        String(flush),
      ]);
    } catch (error) {
      throw withoutRight(
        error,
        'the snapshot needs EXECUTE on pg_logical_emit_message(boolean, text, text, boolean)',
      );
    }
  }

  /** What a query sees that is run now. */
  async look(): Promise<Visibility> {
    const session = await this.#keeper.session();
    const { rows } = await session.query(SEEN);
    return visibilityOf(rows[0]![0]!);
  }

  /**
   * The number of a transaction that ended just now: younger than all that have changed anything so far, also those that
   * a snapshot does not know of yet.
   */
  async youngest(): Promise<bigint> {
    const session = await this.#keeper.session();
    const { rows } = await session.query('SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text');
    return BigInt(rows[0]![0]!);
  }

  /** Processes that have changed something and have not ended their transaction, the oldest first. */
  async writers(): Promise<string[]> {
    const session = await this.#keeper.session();
    const { rows } = await session.query(
      'SELECT pid::pg_catalog.text FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL ' +
        'AND pid <> pg_catalog.pg_backend_pid() ORDER BY xact_start LIMIT 10',
    );
    return rows.map(([pid]) => pid!);
  }

  /**
   * `altered`: the table is not any more what the catalog said of it. `refused`: `admits` says no to the snapshot.
   * Throws ConnectorFault; the transaction is over in any case, or the session is.
   */
  async read(
    table: CatalogTable,
    after: readonly string[] | null,
    limit: number,
    admits: (visibility: Visibility) => boolean,
  ): Promise<Chunk | 'altered' | 'refused'> {
    const session = await this.#keeper.session();
    try {
      return await this.#read(session, table, after, limit, admits);
    } catch (error) {
      // Without a transaction this is a warning; a session that cannot even do that is thrown away.
      await session.query('ROLLBACK').catch(() => session.close());
      const name = `${table.schema}.${table.name}`;
      if (error instanceof ConnectorFault && error.sqlState === BAD_ENCODING) throw notUtf8(name, error);
      throw withoutRight(
        error,
        `the snapshot cannot read ${name}: the role needs SELECT on it, and no row-level policy may hide rows from it`,
      );
    }
  }

  /** Never rejects. A chunk that is being read fails. */
  close(): Promise<void> {
    return this.#keeper.close();
  }

  async #read(
    session: SqlSession,
    table: CatalogTable,
    after: readonly string[] | null,
    limit: number,
    admits: (visibility: Visibility) => boolean,
  ): Promise<Chunk | 'altered' | 'refused'> {
    const [, , seen, shape] = await Promise.all([
      session.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY'),
      // Before the snapshot is taken: nobody alters the table from here on.
      session.query(`LOCK TABLE ${relation(table)} IN ACCESS SHARE MODE`),
      session.query(SEEN),
      session.query(shapeQuery(table)),
    ]);
    const visibility = visibilityOf(seen.rows[0]![0]!);
    const [columns, schemas] = shape.rows[0]!;
    const verdict = !admits(visibility) ? 'refused' : columns !== shapeOf(table) ? 'altered' : null;
    if (verdict !== null) {
      await session.query('COMMIT');
      return verdict;
    }
    if (schemas != null) {
      // Before what the role has, by which the types themselves may have been named.
      await session.query(
        "SELECT pg_catalog.set_config('search_path', $1::text || ', ' || pg_catalog.current_setting('search_path'), true)",
        [`pg_catalog, ${schemas}`],
      );
    }
    await session.query(`DECLARE ${CURSOR} NO SCROLL CURSOR FOR ${chunkQuery(table, after, limit)}`);
    const rows: Tuple[] = [];
    const last = await this.#fetch(session, limit, rows);
    await session.query('COMMIT');
    return { table, rows, visibility, micros: Number(seen.rows[0]![1]!), last };
  }

  /** Whether the cursor has come to its end before the limit. */
  async #fetch(session: SqlSession, limit: number, rows: Tuple[]): Promise<boolean> {
    const { bytesMax } = this.#deps;
    let bytes = 0;
    let longest = 1;
    let wanted = FETCH_ROWS_FIRST;
    for (;;) {
      wanted = Math.min(wanted, limit - rows.length);
      const fetched = await session.bytes(`FETCH FORWARD ${wanted} FROM ${CURSOR}`);
      for (const cells of fetched) {
        let length = 0;
        for (const cell of cells) length += cell?.length ?? 0;
        bytes += length;
        longest = Math.max(longest, length);
        rows.push(rowOfBytes(cells));
      }
      if (fetched.length < wanted) return true;
      if (rows.length >= limit || bytes >= bytesMax) return false;
      // As many as fit if they are all as long as the longest so far, but not at once.
      const fitting = Math.max(1, Math.floor((bytesMax - bytes) / longest));
      wanted = Math.min(FETCH_ROWS_MAX, 2 * wanted, fitting);
    }
  }
}

function visibilityOf(text: string): Visibility {
  const visibility = parseVisibility(text);
  if (visibility === null) throw new ConnectorFault('postgres', `"${text}" is not a snapshot`);
  return visibility;
}

const INSUFFICIENT_PRIVILEGE = '42501';
const BAD_ENCODING = '22021';

export function notUtf8(table: string, cause: unknown): ConnectorFault {
  return new ConnectorFault(
    'encoding',
    `table ${table} holds a value that is not UTF-8 (a database in SQL_ASCII stores bytes of any encoding): repair the row, or take the table out of source.tables`,
    { cause },
  );
}

function withoutRight(error: unknown, sentence: string): unknown {
  if (!(error instanceof ConnectorFault) || error.sqlState !== INSUFFICIENT_PRIVILEGE) return error;
  return new ConnectorFault('privilege', `${sentence} (${error.message})`, {
    sqlState: error.sqlState,
    cause: error,
  });
}
