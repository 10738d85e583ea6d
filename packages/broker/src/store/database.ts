/**
 * The one door to PostgreSQL: statements prepared by name, binary results, a deadline on everything, and
 * failures sorted by what they may have written (errors.ts).
 *
 * Rows are objects by column name. bool, int2/4/8, float8 and oid become JS values (an int8 beyond 2^53 throws
 * instead of rounding), text-like types, uuid and json(b) strings, bytea a Buffer, timestamptz integer
 * microseconds since 1970, one-dimensional arrays of these JS arrays with null elements.
 */
import type { Connection, Param } from './connection.ts';
import { StoreError } from './errors.ts';
import type { Host } from './hosts.ts';
import { invariant } from './invariant.ts';
import { type StoreLog, silentLog } from './log.ts';
import { Pool } from './pool.ts';
import { Primary, type SessionOptions } from './primary.ts';
import { Session } from './session.ts';
import { Transaction } from './transaction.ts';

export type { Param } from './connection.ts';
export { type Host, parseHosts } from './hosts.ts';
export type { Session } from './session.ts';

export interface Statement {
  readonly name: string;
  readonly text: string;
}

export interface QueryOptions {
  /** Milliseconds until the statement is cancelled on the server. Default: the database's statement timeout. */
  readonly timeoutMs?: number;
  /** The statement can write nothing, so that losing its answer leaves nothing in doubt. */
  readonly readOnly?: boolean;
}

export interface Queryable {
  query<Row extends object>(
    statement: Statement,
    params?: readonly Param[],
    options?: QueryOptions,
  ): Promise<Row[]>;
}

export interface TlsOptions {
  /** Verify the certificate and the host's name. */
  readonly rejectUnauthorized: boolean;
  /** PEM text of the root certificate; the system's own when absent. */
  readonly ca?: string;
}

export interface DatabaseOptions {
  /** The first that accepts writes is used. `host` may be the directory of a unix socket. */
  readonly hosts: readonly Host[];
  readonly database: string;
  readonly user: string;
  readonly password: string | null;
  readonly ssl: TlsOptions | false;
  readonly poolSize: number;
  readonly statementTimeoutMs: number;
  readonly applicationName: string;
  /** How long a caller waits for a connection. Default 5,000. */
  readonly acquireTimeoutMs?: number;
  /** For each host. Default 3,000. */
  readonly connectTimeoutMs?: number;
  /** Default 10,000. */
  readonly idleInTransactionMs?: number;
  readonly log?: StoreLog;
}

const statements = new Map<string, string>();
const NAME_BYTES_MAX = 63;

/**
 * Declares a statement, once, at module level: it is prepared under its name on each connection that meets
 * it. Two texts under one name are refused here, since a connection would run whichever it saw first.
 */
export function statement(name: string, text: string): Statement {
  invariant(name !== '' && Buffer.byteLength(name) <= NAME_BYTES_MAX, 'statement_name', { name });
  const known = statements.get(name);
  invariant(known === undefined || known === text, 'statement_name_taken', { name });
  statements.set(name, text);
  return Object.freeze({ name, text });
}

export class Database implements Queryable {
  /** Statements that were sent, transactions' BEGIN, COMMIT and ROLLBACK not counted. */
  statementsTotal = 0;
  /** Statements that failed, by kind. */
  readonly errors: { refused: number; unavailable: number; in_doubt: number } = {
    refused: 0,
    unavailable: 0,
    in_doubt: 0,
  };
  readonly #primary: Primary;
  readonly #pool: Pool;
  readonly #timeoutMs: number;

  private constructor(options: DatabaseOptions) {
    const log = options.log ?? silentLog;
    this.#timeoutMs = options.statementTimeoutMs;
    this.#primary = new Primary(options.hosts, sessionOptions(options), log);
    this.#pool = new Pool({
      size: options.poolSize,
      acquireTimeoutMs: options.acquireTimeoutMs ?? 5_000,
      connect: () => this.#primary.connect(),
    });
  }

  /** Throws a StoreError of code `pool` when no server that accepts writes can be reached in time. */
  static async open(options: DatabaseOptions): Promise<Database> {
    const database = new Database(options);
    try {
      database.#pool.release(await database.#pool.acquire());
      return database;
    } catch (error) {
      await database.close();
      throw error;
    }
  }

  /** One statement, a transaction of its own. */
  async query<Row extends object>(
    statement: Statement,
    params: readonly Param[] = [],
    options: QueryOptions = {},
  ): Promise<Row[]> {
    const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
    const position = options.readOnly === true ? 'inside' : 'alone';
    for (let attempt = 0; ; attempt++) {
      const connection = await this.#acquire();
      try {
        this.statementsTotal++;
        return (await connection.run(statement, params, { timeoutMs, position })) as Row[];
      } catch (error) {
        this.#count(error);
        // The connection had died unnoticed, or its prepared statement was overtaken: nothing was executed.
        if (attempt > 0 || !isStale(error)) throw error;
      } finally {
        this.#pool.release(connection);
      }
    }
  }

  /**
   * Runs `work` between BEGIN and COMMIT (read committed). When it throws, everything is rolled back and the
   * error is passed on; a statement's error that `work` swallowed still ends the transaction and is thrown
   * at its end. Locks of the transaction are bounded by the statement timeout and `idleInTransactionMs`.
   */
  async transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T> {
    const connection = await this.#acquire();
    const transaction = new Transaction(connection, this.#timeoutMs, () => {
      this.statementsTotal++;
    });
    try {
      const value = await work(transaction);
      await transaction.commit();
      return value;
    } catch (error) {
      this.#count(error);
      await transaction.rollback();
      throw error;
    } finally {
      this.#pool.release(connection);
    }
  }

  /**
   * `listener` is called when another server has taken over or the same one was restored: a standby that lagged
   * may know less than this process has seen.
   */
  onServerReplaced(listener: () => void): void {
    this.#primary.onReplaced = listener;
  }

  /** A connection of its own outside the pool, to the server that accepts writes. */
  async session(): Promise<Session> {
    return new Session(await this.#primary.connect(), this.#timeoutMs);
  }

  /** `size` = open connections, of which `idle` are free; `waiting` = callers without one. */
  stats(): { size: number; idle: number; active: number; waiting: number } {
    return this.#pool.stats();
  }

  /** Waits for what is running; newcomers are refused. Sessions are closed by those who hold them. */
  close(): Promise<void> {
    return this.#pool.close();
  }

  async #acquire(): Promise<Connection> {
    try {
      return await this.#pool.acquire();
    } catch (error) {
      this.#count(error);
      throw error;
    }
  }

  #count(error: unknown): void {
    if (!(error instanceof StoreError)) return;
    this.errors[error.kind]++;
    // No answer at all, or a server that turned read-only: the idle connections lead to the same server.
    if (error.sqlState === '25006' || (error.code === 'timeout' && error.sqlState === null)) {
      this.#pool.distrustIdle();
    }
  }
}

/** What a connection needs of the options, with the defaults filled in. */
export function sessionOptions(options: DatabaseOptions): SessionOptions {
  return {
    database: options.database,
    user: options.user,
    password: options.password,
    ssl: options.ssl,
    applicationName: options.applicationName,
    statementTimeoutMs: options.statementTimeoutMs,
    connectTimeoutMs: options.connectTimeoutMs ?? 3_000,
    idleInTransactionMs: options.idleInTransactionMs ?? 10_000,
  };
}

function isStale(error: unknown): boolean {
  if (!(error instanceof StoreError) || error.kind !== 'unavailable') return false;
  return error.code === 'connection' || error.sqlState === '26000' || error.sqlState === '0A000';
}
