/** Statements that one session has prepared, by their text. */
import type { SqlParam, SqlResult, SqlSession } from '../session/types.ts';

const STATEMENTS_MAX = 256;

export class Prepared {
  readonly session: SqlSession;
  readonly #names = new Map<string, string>();
  #next = 0;

  constructor(session: SqlSession) {
    this.session = session;
  }

  /** Sends it; see SqlSession.query. The statement that was not used for the longest time makes room for a new one. */
  run(text: string, params: readonly SqlParam[]): Promise<SqlResult> {
    let name = this.#names.get(text);
    if (name === undefined) {
      name = `sink_${++this.#next}`;
      if (this.#names.size >= STATEMENTS_MAX) this.#forgetOne();
    } else this.#names.delete(text);
    this.#names.set(text, name);
    return this.session.query(text, params, { name });
  }

  #forgetOne(): void {
    const [text, name] = this.#names.entries().next().value!;
    this.#names.delete(text);
    // In a transaction that has failed it is refused, which costs the server the memory of one statement.
    this.session.query(`DEALLOCATE ${name}`).catch(() => {});
  }
}
