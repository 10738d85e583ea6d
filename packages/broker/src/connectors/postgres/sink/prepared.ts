/** A session of a worker: its own settings, and the statements that it has prepared, by their text. */
import { ConnectorFault } from '../fault.ts';
import type { SqlOptions, SqlParam, SqlResult, SqlSession } from '../session/types.ts';

const STATEMENTS_MAX = 256;
const SHOW_IDLE = "SELECT pg_catalog.current_setting('idle_in_transaction_session_timeout')";

/**
 * A plan that was made for a small table stays in use while it grows. So none gets older than this; planning each time would
 * cost a statement of one row several times its execution.
 */
const PLAN_MS_MAX = 10_000;

type RunOptions = Pick<SqlOptions, 'textParams' | 'joined'>;

interface Name {
  readonly name: string;
  readonly since: number;
}

export class Prepared {
  readonly session: SqlSession;
  /** As the server prints it. */
  #idleTimeout: string | null = null;
  readonly #names = new Map<string, Name>();
  readonly #now: () => number;
  /** Given up, and still in the memory of the server. */
  readonly #given: string[] = [];
  #next = 0;

  /** @param now monotonic milliseconds */
  constructor(session: SqlSession, now: () => number) {
    this.session = session;
    this.#now = now;
  }

  /** A transaction whose broker has vanished is ended by the server after so long, so that it does not hold progress rows. */
  async settle(idleSeconds: number): Promise<void> {
    const { rows } = await this.session.query(
      `SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', '${idleSeconds}s', false), ` +
        SHOW_IDLE.slice('SELECT '.length),
    );
    this.#idleTimeout = rows[0]![1]!;
  }

  /** Throws when the transaction that is open has other settings than this session. Sent with what comes behind it. */
  async assertKept(): Promise<SqlResult> {
    const result = await this.run(SHOW_IDLE, [], { joined: true });
    if (this.#idleTimeout === null || result.rows[0]![0] === this.#idleTimeout) return result;
    throw new ConnectorFault(
      'postgres',
      'the settings of the session are lost: a pooler hands out other sessions (session pooling is needed)',
    );
  }

  /** Sends it; see SqlSession.query. The statement that was not used for the longest time makes room for a new one. */
  run(text: string, params: readonly SqlParam[], options: RunOptions = {}): Promise<SqlResult> {
    const now = this.#now();
    let known = this.#names.get(text);
    if (known !== undefined && now - known.since > PLAN_MS_MAX) {
      this.#forget(text, known);
      known = undefined;
    }
    if (known === undefined) {
      if (this.#names.size >= STATEMENTS_MAX) this.#forget(...this.#names.entries().next().value!);
      known = { name: `sink_${++this.#next}`, since: now };
    } else this.#names.delete(text);
    this.#names.set(text, known);
    return this.session.query(text, params, { ...options, name: known.name });
  }

  /** Frees statements that are not used any more. Between transactions: one that the server never got would end one. */
  tidy(): void {
    for (const name of this.#given.splice(0)) this.session.query(`DEALLOCATE ${name}`).catch(() => {});
  }

  #forget(text: string, { name }: Name): void {
    this.#names.delete(text);
    this.#given.push(name);
  }
}
