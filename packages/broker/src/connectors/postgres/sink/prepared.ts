/** A session of a worker: its own settings, and the statements that it has prepared, by their text. */
import { ConnectorFault } from '../fault.ts';
import type { SqlParam, SqlResult, SqlSession } from '../session/types.ts';

const STATEMENTS_MAX = 256;
const SHOW_IDLE = "SELECT pg_catalog.current_setting('idle_in_transaction_session_timeout')";

/** Plans for any row count are never made: a table may be empty when a sink starts. Unknown to servers before 12. */
const PLANS_SINCE = 120_000;

export class Prepared {
  readonly session: SqlSession;
  /** As the server prints it. */
  #idleTimeout: string | null = null;
  readonly #names = new Map<string, string>();
  #next = 0;

  constructor(session: SqlSession) {
    this.session = session;
  }

  /**
   * A transaction whose broker has vanished is ended by the server, so that it does not hold progress rows.
   * @param plansEach plan each time, for what is there then
   */
  async settle(idleSeconds: number, plansEach: boolean): Promise<void> {
    const { rows } = await this.session.query(
      `SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', '${idleSeconds}s', false), ` +
        SHOW_IDLE.slice('SELECT '.length),
    );
    this.#idleTimeout = rows[0]![1]!;
    if (plansEach && this.session.serverVersion >= PLANS_SINCE) {
      await this.session.query("SELECT pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', false)");
    }
  }

  /** Throws when the transaction that is open has other settings than this session. */
  async assertKept(): Promise<SqlResult> {
    const result = await this.run(SHOW_IDLE, []);
    if (this.#idleTimeout === null || result.rows[0]![0] === this.#idleTimeout) return result;
    throw new ConnectorFault(
      'postgres',
      'the settings of the session are lost: a pooler hands out other sessions (session pooling is needed)',
    );
  }

  /** Sends it; see SqlSession.query. `textParams`: all of them are declared so. The statement that was not used for the longest time makes room for a new one. */
  run(text: string, params: readonly SqlParam[], textParams = false): Promise<SqlResult> {
    let name = this.#names.get(text);
    if (name === undefined) {
      name = `sink_${++this.#next}`;
      if (this.#names.size >= STATEMENTS_MAX) this.#forgetOne();
    } else this.#names.delete(text);
    this.#names.set(text, name);
    return this.session.query(text, params, { name, textParams });
  }

  #forgetOne(): void {
    const [text, name] = this.#names.entries().next().value!;
    this.#names.delete(text);
    // In a transaction that has failed it is refused, which costs the server the memory of one statement.
    this.session.query(`DEALLOCATE ${name}`).catch(() => {});
  }
}
