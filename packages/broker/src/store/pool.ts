/**
 * The pool of connections.
 *
 * Why not pg.Pool: it dials once a waiter and at once, so that a thousand requests meet a server that is
 * down with a thousand connects, and it fails every waiter whose own connect failed although others could
 * be served by a connection that comes back; it binds one address; and it cannot drop what is idle when one
 * connection has shown that the server behind all of them is gone. What remains of a pool is little.
 *
 * Waiters are served in the order they came, by whichever connection is free first: one that was returned or
 * a new one. Dialling is the pool's business and not the waiters': at most a few at once, with a growing
 * pause after a failure, for as long as somebody waits. A waiter only ever fails by its own deadline (with
 * the last failure to dial in its message) or by a failure that waiting cannot heal.
 */
import type { Connection } from './connection.ts';
import { StoreError } from './errors.ts';

export interface PoolOptions {
  readonly size: number;
  readonly acquireTimeoutMs: number;
  readonly connect: () => Promise<Connection>;
}

interface Waiter {
  give(connection: Connection): void;
  fail(error: StoreError): void;
}

interface Idle {
  connection: Connection;
  sinceMs: number;
}

const DIALS_AT_ONCE = 8;
const PAUSE_MIN_MS = 50;
const PAUSE_MAX_MS = 1_000;
const SWEEP_MS = 15_000;
const IDLE_MS = 60_000;
const IDLE_KEPT = 4;

export class Pool {
  readonly #options: PoolOptions;
  readonly #all = new Set<Connection>();
  readonly #idle: Idle[] = [];
  readonly #waiting = new Set<Waiter>();
  readonly #sweeper: NodeJS.Timeout;
  #dialling = 0;
  #pauseMs = 0;
  #pauseTimer: NodeJS.Timeout | undefined;
  #lastFailure: StoreError | undefined;
  #closing: Promise<void> | undefined;
  #drained: (() => void) | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#sweeper.unref();
  }

  stats(): { size: number; idle: number; active: number; waiting: number } {
    const size = this.#all.size;
    const idle = this.#idle.length;
    return { size, idle, active: size - idle, waiting: this.#waiting.size };
  }

  /** Throws a StoreError of code `pool` when no connection comes within the acquire timeout. */
  acquire(): Promise<Connection> {
    if (this.#closing !== undefined) return Promise.reject(poolError('the pool is closed', undefined));
    while (this.#waiting.size === 0) {
      const idle = this.#idle.pop();
      if (idle === undefined) break;
      if (!idle.connection.broken) return Promise.resolve(idle.connection);
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        give: (connection) => {
          clearTimeout(timer);
          this.#waiting.delete(waiter);
          resolve(connection);
        },
        fail: (error) => {
          clearTimeout(timer);
          this.#waiting.delete(waiter);
          reject(error);
        },
      };
      const timer = setTimeout(() => {
        const wait = `no database connection within ${this.#options.acquireTimeoutMs} ms`;
        waiter.fail(poolError(wait, this.#lastFailure));
      }, this.#options.acquireTimeoutMs);
      this.#waiting.add(waiter);
      this.#dial();
    });
  }

  /** Gives a connection back; a broken one is closed and replaced when somebody waits. */
  release(connection: Connection): void {
    if (connection.broken || this.#closing !== undefined) {
      void connection.close();
      this.#forget(connection);
      return;
    }
    this.#offer(connection);
  }

  /** The server behind the connections may be gone or may have lost its role: what is idle is dropped. */
  distrustIdle(): void {
    for (const { connection } of this.#idle.splice(0)) {
      void connection.close();
      this.#forget(connection);
    }
  }

  /** Refuses newcomers, waits until what is in use has come back, closes everything. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    clearInterval(this.#sweeper);
    clearTimeout(this.#pauseTimer);
    for (const waiter of [...this.#waiting]) waiter.fail(poolError('the pool is closed', undefined));
    const closing = this.#idle.splice(0).map(({ connection }) => {
      this.#all.delete(connection);
      return connection.close();
    });
    if (this.#all.size > 0 || this.#dialling > 0) {
      await new Promise<void>((resolve) => {
        this.#drained = resolve;
      });
    }
    await Promise.all(closing);
  }

  #offer(connection: Connection): void {
    for (const waiter of this.#waiting) {
      waiter.give(connection);
      return;
    }
    this.#idle.push({ connection, sinceMs: performance.now() });
  }

  #forget(connection: Connection): void {
    this.#all.delete(connection);
    const at = this.#idle.findIndex((idle) => idle.connection === connection);
    if (at >= 0) this.#idle.splice(at, 1);
    if (this.#closing === undefined) this.#dial();
    else if (this.#all.size === 0 && this.#dialling === 0) this.#drained?.();
  }

  #dial(): void {
    while (
      this.#pauseTimer === undefined &&
      this.#dialling < DIALS_AT_ONCE &&
      this.#dialling < this.#waiting.size &&
      this.#all.size + this.#dialling < this.#options.size
    ) {
      // After a failure one probe at a time finds out whether the server is back.
      if (this.#pauseMs > 0 && this.#dialling > 0) return;
      this.#dialling++;
      void this.#connect();
    }
  }

  async #connect(): Promise<void> {
    try {
      const connection = await this.#options.connect();
      this.#dialling--;
      this.#pauseMs = 0;
      this.#lastFailure = undefined;
      this.#all.add(connection);
      connection.onClose(() => this.#forget(connection));
      this.release(connection);
      this.#dial();
    } catch (error) {
      this.#dialling--;
      this.#failed(error instanceof StoreError ? error : poolError(String(error), undefined));
    }
  }

  #failed(error: StoreError): void {
    this.#lastFailure = error;
    if (this.#closing !== undefined) {
      if (this.#all.size === 0 && this.#dialling === 0) this.#drained?.();
      return;
    }
    if (this.#all.size === 0 && error.lasting) {
      const answer = error.kind === 'refused' ? error : poolError('no database connection', error);
      for (const waiter of [...this.#waiting]) waiter.fail(answer);
    }
    this.#pauseMs = Math.min(PAUSE_MAX_MS, Math.max(PAUSE_MIN_MS, this.#pauseMs * 2));
    if (this.#pauseTimer !== undefined) return;
    const spread = this.#pauseMs * (0.75 + Math.random() / 2);
    this.#pauseTimer = setTimeout(() => {
      this.#pauseTimer = undefined;
      this.#dial();
    }, spread);
    this.#pauseTimer.unref();
  }

  #sweep(): void {
    const before = performance.now() - IDLE_MS;
    while (this.#idle.length > IDLE_KEPT && this.#idle[0]!.sinceMs < before) {
      const { connection } = this.#idle.shift()!;
      void connection.close();
      this.#forget(connection);
    }
  }
}

function poolError(message: string, cause: StoreError | undefined): StoreError {
  return new StoreError(
    'unavailable',
    'pool',
    cause === undefined ? message : `${message} (${cause.message})`,
    {
      sqlState: cause?.sqlState ?? null,
      lasting: cause?.lasting ?? false,
      cause,
    },
  );
}
