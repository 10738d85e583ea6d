/** The session on which a source asks its upstream things while the stream goes on; when it breaks, it alone is opened again. */
import type { SqlSession } from '../session/types.ts';

export class SqlKeeper {
  readonly #open: () => Promise<SqlSession>;
  #current: Promise<SqlSession> | null = null;
  #closed = false;

  constructor(open: () => Promise<SqlSession>) {
    this.#open = open;
  }

  /** Throws ConnectorFault. */
  session(): Promise<SqlSession> {
    if (this.#current !== null) return this.#current;
    const opening = this.#open().then((session) => {
      const drop = (): void => {
        if (this.#current === opening) this.#current = null;
      };
      session.onClose(drop);
      if (this.#closed) void session.close();
      return session;
    });
    opening.catch(() => {
      if (this.#current === opening) this.#current = null;
    });
    this.#current = opening;
    return opening;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const current = this.#current;
    this.#current = null;
    const session = await current?.catch(() => null);
    await session?.close();
  }
}
