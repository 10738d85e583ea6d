/**
 * Opens connections to whichever of the given servers accepts writes, and gives every new session the
 * settings that the broker relies on.
 */
import { Connection, type ConnectOptions } from './connection.ts';
import { StoreError } from './errors.ts';
import { type Host, hostName } from './hosts.ts';
import type { StoreLog } from './log.ts';

export interface SessionOptions extends ConnectOptions {
  readonly statementTimeoutMs: number;
  /** How long a transaction may wait for its broker before the server ends it and frees its locks. */
  readonly idleInTransactionMs: number;
}

/**
 * The server's own bounds are a second belt. `statement_timeout` lies above the broker's, which acts first;
 * the keepalives make the server notice a broker that vanished without a word within about 25 seconds,
 * and `client_connection_check_interval` makes it look while a statement is running.
 */
const STATEMENT_BELT_MS = 10_000;
const SESSION_SETTINGS: readonly (readonly [name: string, value: string])[] = [
  ['lock_timeout', '0'],
  ['default_transaction_isolation', 'read committed'],
  ['tcp_keepalives_idle', '10'],
  ['tcp_keepalives_interval', '5'],
  ['tcp_keepalives_count', '3'],
  ['client_connection_check_interval', '5s'],
];

interface SessionFacts {
  recovering: boolean;
  read_only: string;
  synchronous_commit: string;
}

const SETUP = {
  name: '',
  text: `SELECT pg_is_in_recovery() AS recovering,
                current_setting('transaction_read_only') AS read_only,
                current_setting('synchronous_commit') AS synchronous_commit,
                count(set_config(s.name, s.value, false)) AS settings
           FROM unnest($1::text[], $2::text[]) AS s(name, value)`,
};

export class Primary {
  readonly #hosts: readonly Host[];
  readonly #options: SessionOptions;
  readonly #log: StoreLog;
  #current = 0;
  #warnedOff = false;

  constructor(hosts: readonly Host[], options: SessionOptions, log: StoreLog) {
    if (hosts.length === 0) throw new RangeError('no database host is given');
    this.#hosts = hosts;
    this.#options = options;
    this.#log = log;
  }

  /** Milliseconds that the server allows a statement before it ends it by itself. */
  get serverTimeoutMs(): number {
    return this.#options.statementTimeoutMs + STATEMENT_BELT_MS;
  }

  /**
   * A connection to the server that accepts writes: first the one that did last time, then all in the given
   * order. Throws a StoreError (`unavailable`, code `connection`) that says what each of them answered.
   */
  async connect(): Promise<Connection> {
    const failures: StoreError[] = [];
    const order = [this.#current, ...this.#hosts.keys()].filter((n, at) => at === 0 || n !== this.#current);
    for (const index of order) {
      const host = this.#hosts[index]!;
      try {
        const connection = await this.#open(host);
        if (index !== this.#current) {
          this.#log.info({ host: hostName(host) }, 'PostgreSQL: another host accepts writes now');
        }
        this.#current = index;
        return connection;
      } catch (error) {
        failures.push(
          error instanceof StoreError
            ? error
            : new StoreError('unavailable', 'connection', `${hostName(host)}: ${String(error)}`, {
                cause: error,
              }),
        );
      }
    }
    if (failures.length === 1) throw failures[0]!;
    const message = `no host accepts writes (${failures.map((failure) => failure.message).join('; ')})`;
    throw new StoreError('unavailable', 'connection', message, { sqlState: failures[0]!.sqlState });
  }

  async #open(host: Host): Promise<Connection> {
    const connection = await Connection.open(host, this.#options);
    try {
      const facts = await this.#setUp(connection);
      if (facts.recovering || facts.read_only === 'on') {
        const state = facts.recovering ? 'in recovery (a standby)' : 'read-only';
        throw new StoreError('unavailable', 'connection', `${hostName(host)}: ${state}`, {
          sqlState: '25006',
        });
      }
      this.#checkDurability(facts.synchronous_commit);
      return connection;
    } catch (error) {
      void connection.close();
      throw error;
    }
  }

  async #setUp(connection: Connection): Promise<SessionFacts> {
    const { statementTimeoutMs, idleInTransactionMs, connectTimeoutMs } = this.#options;
    const settings = [
      ...SESSION_SETTINGS,
      ['statement_timeout', String(statementTimeoutMs + STATEMENT_BELT_MS)] as const,
      ['idle_in_transaction_session_timeout', String(idleInTransactionMs)] as const,
    ];
    const params = [
      textArrayLiteral(settings.map(([name]) => name)),
      textArrayLiteral(settings.map(([, v]) => v)),
    ];
    const rows = await connection.run(SETUP, params, { timeoutMs: connectTimeoutMs, position: 'alone' });
    return rows[0] as SessionFacts;
  }

  #checkDurability(synchronousCommit: string): void {
    if (synchronousCommit !== 'off' || this.#warnedOff) return;
    this.#warnedOff = true;
    this.#log.warn(
      { synchronous_commit: synchronousCommit },
      'PostgreSQL runs with synchronous_commit = off: a crash of the server may lose messages that were acknowledged',
    );
  }
}

function textArrayLiteral(values: readonly string[]): string {
  return `{${values.map((value) => JSON.stringify(value)).join(',')}}`;
}
