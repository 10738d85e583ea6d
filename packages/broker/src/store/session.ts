/**
 * A connection outside the pool, for what belongs to a session: LISTEN and advisory locks. It does not come
 * back by itself: whoever holds it must learn of the loss, since notifications or the lock are lost with it.
 */
import type { Connection, Param } from './connection.ts';
import type { Queryable, QueryOptions, Statement } from './database.ts';

const HEARTBEAT_MS = 10_000;
const HEARTBEAT_TIMEOUT_MS = 5_000;
const PING = { name: '', text: 'SELECT' };

export class Session implements Queryable {
  readonly #connection: Connection;
  readonly #timeoutMs: number;
  readonly #heartbeat: NodeJS.Timeout;
  #busy = 0;

  /** Made by Database.session(). The heartbeat ends a session whose peer has silently gone. */
  constructor(connection: Connection, timeoutMs: number) {
    this.#connection = connection;
    this.#timeoutMs = timeoutMs;
    this.#heartbeat = setInterval(() => void this.#beat(), HEARTBEAT_MS);
    this.#heartbeat.unref();
    connection.onClose(() => clearInterval(this.#heartbeat));
  }

  get processId(): number {
    return this.#connection.processId;
  }

  async query<Row extends object>(
    statement: Statement,
    params: readonly Param[] = [],
    options: QueryOptions = {},
  ): Promise<Row[]> {
    this.#busy++;
    try {
      const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
      return (await this.#connection.run(statement, params, { timeoutMs, position: 'alone' })) as Row[];
    } finally {
      this.#busy--;
      // A timed-out statement may still be cancelled on the server: the session is over.
      if (this.#connection.broken) void this.#connection.close();
    }
  }

  onNotification(listener: (channel: string, payload: string) => void): void {
    this.#connection.onNotification(listener);
  }

  /** Called once, after the connection is gone for whatever reason; at once when it already is. */
  onClose(listener: () => void): void {
    this.#connection.onClose(listener);
  }

  close(): Promise<void> {
    clearInterval(this.#heartbeat);
    return this.#connection.close();
  }

  async #beat(): Promise<void> {
    if (this.#busy > 0) return;
    try {
      await this.query(PING, [], { timeoutMs: Math.min(HEARTBEAT_TIMEOUT_MS, this.#timeoutMs) });
    } catch {
      this.#connection.destroy();
    }
  }
}
