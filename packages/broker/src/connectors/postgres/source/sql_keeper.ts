/** A session with the upstream beside the stream: opened when it is asked for, and again when it broke. */
import type { SqlSession } from '../session/types.ts';
import { stopped } from './time.ts';

export class SqlKeeper {
  readonly #open: () => Promise<SqlSession>;
  #current: Promise<SqlSession> | null = null;
  #closed = false;

  constructor(open: () => Promise<SqlSession>) {
    this.#open = open;
  }

  /** Throws ConnectorFault; `stopped` once it was closed. */
  session(): Promise<SqlSession> {
    if (this.#closed) return Promise.reject(stopped());
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

  /** Never rejects. What runs on the session fails. */
  async close(): Promise<void> {
    this.#closed = true;
    const current = this.#current;
    this.#current = null;
    const session = await current?.catch(() => null);
    await session?.close();
  }
}
