/**
 * One connection to PostgreSQL, used by one caller at a time.
 *
 * The argument for what a failed statement is called (see errors.ts):
 *
 * 1. Not sent: nothing happened. `unavailable`.
 * 2. The server answered with an ERROR: it rolled the statement back. `refused` or `unavailable` by SQLSTATE.
 *    One exception: a cancellation that arrives after the command's tag may be late, `in_doubt`.
 * 3. The server answered with a FATAL, or the connection broke, or no answer came. Inside an explicit
 *    transaction only COMMIT can write, so everything else is `unavailable`. A FATAL that was not preceded by
 *    BindComplete reached us from a backend that never started on the statement, since the server's answers
 *    come in order: `unavailable`. (Only from the backend itself: a pooler may say FATAL on behalf of a server
 *    whose answer it has lost.) All else is `in_doubt`.
 *
 * Time: when a statement's time is up the server is asked to cancel it, and the answer is awaited for a
 * short grace, because an answer settles the outcome that would else be in doubt. The connection is
 * discarded whatever comes, since a cancellation may still be on its way to that backend.
 */
import type { Socket } from 'node:net';
import pg from 'pg';
import { Call, type CallRequest, Prepared } from './call.ts';
import { type CancelTarget, cancelStatement } from './cancel.ts';
import { fromServer, isLastingRefusal, isServerError, isStalePlan, StoreError } from './errors.ts';
import { type Host, hostName } from './hosts.ts';
import { invariant } from './invariant.ts';
import { newWire, type Wire } from './wire.ts';

export type Param = null | boolean | number | bigint | string | Buffer;

export interface ConnectOptions {
  readonly database: string;
  readonly user: string;
  readonly password: string | null;
  readonly ssl: object | false;
  readonly applicationName: string;
  readonly connectTimeoutMs: number;
}

export interface RunOptions {
  readonly timeoutMs: number;
  /** `commit`: ends a transaction; `inside`: of one, can write nothing by itself; `alone`: is its own transaction. */
  readonly position: 'alone' | 'begin' | 'inside' | 'commit';
}

/** How long the answer to a cancelled statement is waited for. */
export const CANCEL_GRACE_MS = 1_000;
const CANCEL_ATTEMPT_MS = 2_000;
const CANCEL_ATTEMPTS = 3;
const CLOSE_GRACE_MS = 1_000;
const KEEPALIVE_DELAY_MS = 10_000;
/** The server's own timeout lies this much above ours, which is to act first. */
export const SERVER_SLACK_MS = 5_000;
const RAISE_TIMEOUT = {
  name: 'queen_statement_timeout',
  text: "SELECT set_config('statement_timeout', $1, $2::boolean)",
};

/** What pg.Client has beyond its published types. */
interface ClientInside {
  connection: Wire;
  processID: number;
  secretKey: number;
  query(call: Call): void;
}
type Client = Omit<pg.Client, keyof ClientInside> & ClientInside;

export class Connection {
  readonly host: Host;
  /** No further statement may run here; close it. */
  broken = false;
  closed = false;
  /** What the session's own statement_timeout is, 0 = none. A longer statement raises it first. */
  serverTimeoutMs = 0;
  /** The peer is the backend itself and not a pooler that speaks for it. */
  direct = false;
  readonly #client: Client;
  readonly #options: ConnectOptions;
  readonly #prepared = new Prepared();
  readonly #closeListeners: (() => void)[] = [];
  #call: Call | null = null;
  /** The statement that runs has committed, and was told not to wait until a standby has it. */
  #unreplicated = false;
  #tail: Promise<unknown> = Promise.resolve();

  private constructor(host: Host, options: ConnectOptions) {
    this.host = host;
    this.#options = options;
    const wire = newWire({ ssl: options.ssl, keepAliveInitialDelayMillis: KEEPALIVE_DELAY_MS });
    this.#client = new pg.Client({
      host: host.host,
      port: host.port,
      database: options.database,
      user: options.user,
      // A function, since an absent password would send pg to the environment and to ~/.pgpass.
      password: () => options.password ?? '',
      ssl: options.ssl,
      application_name: options.applicationName,
      connectionTimeoutMillis: options.connectTimeoutMs,
      connection: wire,
    } as pg.ClientConfig) as unknown as Client;
    this.#client.on('error', () => {
      this.broken = true;
    });
    this.#client.on('end', () => this.#ended());
    // A cancelled wait for a synchronous standby is answered as a success, with a warning. Its words are translated, the place
    // that raises it is not.
    this.#client.on('notice', (notice) => {
      if (notice.routine === 'SyncRepWaitForLSN') this.#unreplicated = true;
    });
    wire.on('parseComplete', () => this.#call?.handleParseComplete());
    wire.on('bindComplete', () => this.#call?.handleBindComplete());
    wire.on('noData', () => this.#call?.handleNoData());
  }

  /** Throws a StoreError of code `connection` (`unavailable`), with the server's answer as its cause. */
  static async open(host: Host, options: ConnectOptions): Promise<Connection> {
    const connection = new Connection(host, options);
    try {
      await connection.#client.connect();
      return connection;
    } catch (error) {
      connection.broken = true;
      connection.destroy();
      const why =
        messageOf(error) === 'timeout expired'
          ? `no answer within ${options.connectTimeoutMs} ms`
          : messageOf(error);
      throw new StoreError('unavailable', 'connection', `${hostName(host)}: ${why}`, {
        sqlState: isServerError(error) ? error.code : null,
        lasting: isLastingRefusal(error),
        cause: error,
      });
    }
  }

  get processId(): number {
    return this.#client.processID;
  }

  onClose(listener: () => void): void {
    if (this.closed) listener();
    else this.#closeListeners.push(listener);
  }

  onNotification(listener: (channel: string, payload: string) => void): void {
    this.#client.on('notification', (message) => listener(message.channel, message.payload ?? ''));
  }

  /** Runs one statement after those that were given before it. Rejects with a StoreError or an InvariantError. */
  run(
    statement: { name: string; text: string },
    params: readonly Param[],
    options: RunOptions,
  ): Promise<object[]> {
    const values = params.map(encode);
    const request: CallRequest = {
      name: statement.name,
      text: statement.text,
      values,
      begin: options.position === 'begin',
    };
    const result = this.#tail.then(() => this.#runWithin(request, options));
    this.#tail = result.catch(() => {});
    return result;
  }

  async #runWithin(request: CallRequest, options: RunOptions): Promise<object[]> {
    const needMs = options.timeoutMs + SERVER_SLACK_MS;
    if (this.serverTimeoutMs > 0 && needMs > this.serverTimeoutMs) {
      // Inside a transaction the setting is local to it, since a rollback would take it back unnoticed.
      const local = options.position === 'inside';
      const raise = { ...RAISE_TIMEOUT, values: [String(needMs), local ? 't' : 'f'], begin: false };
      await this.#run(raise, { timeoutMs: options.timeoutMs, position: 'inside' });
      if (!local) this.serverTimeoutMs = needMs;
    }
    return this.#run(request, options);
  }

  #run(request: CallRequest, options: RunOptions): Promise<object[]> {
    if (this.broken || this.closed) {
      return Promise.reject(
        new StoreError('unavailable', 'connection', 'the connection to PostgreSQL is closed'),
      );
    }
    return new Promise((resolve, reject) => {
      let timedOut = false;
      let graceTimer: NodeJS.Timeout | undefined;
      const call: Call = new Call(request, this.#prepared, (error, rows) => {
        clearTimeout(timer);
        clearTimeout(graceTimer);
        this.#call = null;
        if (timedOut) this.broken = true;
        if (error === undefined && this.#unreplicated) reject(this.#committedAlone());
        else if (error === undefined) resolve(rows);
        else reject(this.#classify(error, call, options, timedOut));
      });
      const timer = setTimeout(() => {
        timedOut = true;
        this.broken = true;
        void this.#cancel();
        graceTimer = setTimeout(() => {
          call.handleError(new Error('no answer from PostgreSQL'));
          this.destroy();
        }, CANCEL_GRACE_MS);
      }, options.timeoutMs);
      this.#call = call;
      this.#client.query(call);
    });
  }

  /** After a failover it may be gone, so it must not be called done. */
  #committedAlone(): StoreError {
    this.#unreplicated = false;
    return new StoreError('in_doubt', 'sql', 'committed, but no synchronous standby has confirmed it', {
      sqlState: '01000',
    });
  }

  #classify(error: unknown, call: Call, options: RunOptions, timedOut: boolean): unknown {
    const mayCommit = options.position === 'alone' || options.position === 'commit';
    if (isServerError(error) && error.severity !== 'FATAL' && error.severity !== 'PANIC') {
      if (isStalePlan(error) || error.code === '26000' || error.code === '25006') this.broken = true;
      if (error.code === '57014' && call.tag !== null && mayCommit) {
        return new StoreError('in_doubt', 'timeout', error.message, { sqlState: error.code, cause: error });
      }
      return fromServer(error);
    }
    if (error instanceof Error && error.name === 'InvariantError') return error;
    this.broken = true;
    const refusedUnread = this.direct && !call.bound && isServerError(error) && isEndOfSession(error.code);
    const started = call.sent && !refusedUnread;
    const kind = mayCommit && started ? 'in_doubt' : 'unavailable';
    const message = timedOut
      ? `no answer within ${options.timeoutMs} ms`
      : `the connection to PostgreSQL was lost: ${messageOf(error)}`;
    return new StoreError(kind, timedOut ? 'timeout' : 'connection', message, {
      sqlState: isServerError(error) ? error.code : null,
      cause: error,
    });
  }

  /** Tries until the request is handed over, in the background: also after the caller was answered. */
  async #cancel(): Promise<void> {
    const target = this.#cancelTarget();
    for (let attempt = 0; attempt < CANCEL_ATTEMPTS; attempt++) {
      if (await cancelStatement(target, CANCEL_ATTEMPT_MS)) return;
    }
  }

  #cancelTarget(): CancelTarget {
    const { host, port } = this.host;
    // The address rather than the name: the request must reach the very server that runs the statement.
    const peer = (this.#client.connection.stream as Socket).remoteAddress ?? host;
    return {
      address: host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host: peer, port },
      serverName: host,
      ssl: this.#options.ssl,
      processId: this.#client.processID,
      secretKey: this.#client.secretKey,
    };
  }

  /** Says goodbye to the server; when that does not help within a second, closes the socket. */
  close(): Promise<void> {
    if (this.closed) return Promise.resolve();
    this.broken = true;
    const done = new Promise<void>((resolve) => this.onClose(resolve));
    const timer = setTimeout(() => this.destroy(), CLOSE_GRACE_MS);
    timer.unref();
    this.#client.end().catch(() => {});
    return done.finally(() => clearTimeout(timer));
  }

  destroy(): void {
    this.broken = true;
    this.#client.connection.stream.destroy();
  }

  #ended(): void {
    this.closed = true;
    this.broken = true;
    for (const listener of this.#closeListeners.splice(0)) listener();
  }
}

/** Shutdown, termination, and the timeouts of an idle session. */
function isEndOfSession(sqlState: string): boolean {
  return sqlState.startsWith('57P') || sqlState === '25P03' || sqlState === '25P04';
}

function encode(param: Param): string | Buffer | null {
  switch (typeof param) {
    case 'string':
      return param;
    case 'number':
      invariant(Number.isFinite(param), 'number_parameter', { param });
      return String(param);
    case 'bigint':
      return String(param);
    case 'boolean':
      return param ? 't' : 'f';
    default:
      invariant(param === null || Buffer.isBuffer(param), 'parameter_type', { type: typeof param });
      return param;
  }
}

function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map((inner) => messageOf(inner)).join('; ');
  }
  return error instanceof Error ? error.message : String(error);
}
