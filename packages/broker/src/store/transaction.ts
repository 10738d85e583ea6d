/** The inside of Database.transaction: one connection between BEGIN and COMMIT. */
import type { Connection, Param } from './connection.ts';
import type { Queryable, QueryOptions, Statement } from './database.ts';
import { StoreError } from './errors.ts';

const COMMIT = { name: '', text: 'COMMIT' };
const ROLLBACK = { name: '', text: 'ROLLBACK' };

export class Transaction implements Queryable {
  readonly #connection: Connection;
  readonly #timeoutMs: number;
  readonly #onStatement: () => void;
  #begun = false;
  #over = false;
  #failure: { error: unknown } | undefined;

  constructor(connection: Connection, timeoutMs: number, onStatement: () => void) {
    this.#connection = connection;
    this.#timeoutMs = timeoutMs;
    this.#onStatement = onStatement;
  }

  async query<Row extends object>(
    statement: Statement,
    params: readonly Param[] = [],
    options: QueryOptions = {},
  ): Promise<Row[]> {
    if (this.#over) throw new StoreError('refused', 'sql', 'the transaction is over');
    if (this.#failure !== undefined) throw this.#failure.error;
    const position = this.#begun ? 'inside' : 'begin';
    this.#begun = true;
    this.#onStatement();
    try {
      const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
      return (await this.#connection.run(statement, params, { timeoutMs, position })) as Row[];
    } catch (error) {
      this.#failure ??= { error };
      throw error;
    }
  }

  async commit(): Promise<void> {
    this.#over = true;
    if (this.#failure !== undefined) throw this.#failure.error;
    if (!this.#begun) return;
    await this.#connection.run(COMMIT, [], { timeoutMs: this.#timeoutMs, position: 'commit' });
    this.#begun = false;
  }

  /** Never throws: a connection that cannot roll back is broken, and the server rolls back when it is closed. */
  async rollback(): Promise<void> {
    this.#over = true;
    if (!this.#begun || this.#connection.broken) {
      this.#begun = false;
      return;
    }
    this.#begun = false;
    try {
      await this.#connection.run(ROLLBACK, [], { timeoutMs: this.#timeoutMs, position: 'inside' });
    } catch {
      this.#connection.broken = true;
    }
  }
}
