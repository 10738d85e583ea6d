/**
 * Opens connections to whichever of the given servers accepts writes, and gives every new session the
 * settings that the broker relies on.
 *
 * The search: the server that was good last time; when it is not, all the others at once, of which the first
 * in the given order that accepts writes is taken. A server that is back but became a standby refuses by
 * its own answer, so that a connection never leads to two different primaries by chance of the network.
 */
import { Connection, type ConnectOptions, SERVER_SLACK_MS } from './connection.ts';
import { ServerRequirementError, StoreError } from './errors.ts';
import { type Host, hostName } from './hosts.ts';
import type { StoreLog } from './log.ts';
import { refuseSharedBackends } from './pooler.ts';

export interface SessionOptions extends ConnectOptions {
  readonly statementTimeoutMs: number;
  /** How long a transaction may wait for its broker before the server ends it and frees its locks. */
  readonly idleInTransactionMs: number;
}

/**
 * Settings of a role or database must not change what the broker's statements mean or how long they last.
 * The keepalives make the server notice a broker that vanished without a word within about 25 seconds, the
 * check interval also while it is busy with a statement of that broker. Compiling plans (jit) costs more
 * than any of these short statements.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  lock_timeout: '0',
  idle_session_timeout: '0',
  transaction_timeout: '0',
  default_transaction_isolation: 'read committed',
  timezone: 'UTC',
  jit: 'off',
  tcp_keepalives_idle: '10',
  tcp_keepalives_interval: '5',
  tcp_keepalives_count: '3',
};
/** Not known on every platform, where setting it is an error. */
const CHECK_INTERVAL = { client_connection_check_interval: '5s' };

/**
 * $3 = process id of the connection's cancel key. When it is not the backend's, a pooler is in between, and
 * the settings are made for this statement only: they must not stay on a server connection of others.
 */
const SETUP = {
  name: '',
  text: `SELECT pg_is_in_recovery() AS recovering,
                current_setting('transaction_read_only') AS read_only,
                current_setting('synchronous_commit') AS synchronous_commit,
                pg_backend_pid() AS pid,
                CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline,
                count(set_config(s.name, s.setting, pg_backend_pid() <> $3::int)) AS settings
           FROM unnest($1::text[], $2::text[]) AS s (name, setting)
           JOIN pg_settings AS known ON lower(known.name) = s.name`,
};

interface SessionFacts {
  recovering: boolean;
  read_only: string;
  synchronous_commit: string;
  pid: number;
  /** Of the write-ahead log, 8 hex digits; every promotion and every restore begins a new one. */
  timeline: string | null;
}

export class Primary {
  readonly #hosts: readonly Host[];
  readonly #options: SessionOptions;
  readonly #log: StoreLog;
  /** Hosts behind a pooler that keeps one backend for one client. */
  readonly #pooledSessions = new Set<Host>();
  /** Another server took over (a failover), or the same one was restored: what was learned before may be untrue. */
  onReplaced: () => void = () => {};
  #identity: string | null = null;
  #current = 0;
  #warnedOff = false;
  #checkInterval = true;

  constructor(hosts: readonly Host[], options: SessionOptions, log: StoreLog) {
    if (hosts.length === 0) throw new RangeError('no database host is given');
    this.#hosts = hosts;
    this.#options = options;
    this.#log = log;
  }

  /**
   * A connection to the server that accepts writes. Throws a StoreError (`unavailable`, code `connection`)
   * that says what each host answered, or a ServerRequirementError.
   */
  async connect(): Promise<Connection> {
    const failures: StoreError[] = [];
    const current = this.#current;
    const first = await this.#attempt(current);
    if (first instanceof Connection) return first;
    failures.push(first);
    const others = [...this.#hosts.keys()].filter((index) => index !== current);
    const results = await Promise.all(others.map((index) => this.#attempt(index)));
    let found: Connection | undefined;
    results.forEach((result, n) => {
      if (!(result instanceof Connection)) failures.push(result);
      else if (found !== undefined) void result.close();
      else {
        found = result;
        this.#current = others[n]!;
      }
    });
    if (found !== undefined) {
      this.#log.info({ host: hostName(found.host) }, 'PostgreSQL: using the host that accepts writes');
      return found;
    }
    if (failures.length === 1) throw failures[0]!;
    const unfit = failures.find((failure) => failure instanceof ServerRequirementError);
    if (unfit !== undefined) throw unfit;
    const message = `no host accepts writes (${failures.map((failure) => failure.message).join('; ')})`;
    throw new StoreError('unavailable', 'connection', message, {
      sqlState: failures[0]!.sqlState,
      lasting: failures.every((failure) => failure.lasting),
    });
  }

  async #attempt(index: number): Promise<Connection | StoreError> {
    const host = this.#hosts[index]!;
    try {
      return await this.#open(host);
    } catch (error) {
      if (error instanceof StoreError) return error;
      return new StoreError('unavailable', 'connection', `${hostName(host)}: ${String(error)}`, {
        cause: error,
      });
    }
  }

  async #open(host: Host): Promise<Connection> {
    const connection = await Connection.open(host, this.#options);
    try {
      const facts = await this.#setUp(connection, connection.processId);
      if (facts.recovering || facts.read_only === 'on') {
        const state = facts.recovering ? 'in recovery (a standby)' : 'read-only';
        throw new StoreError('unavailable', 'connection', `${hostName(host)}: ${state}`, {
          sqlState: '25006',
        });
      }
      if (facts.pid === connection.processId) connection.direct = true;
      else await this.#acceptPooler(connection, facts.pid);
      this.#checkDurability(facts.synchronous_commit);
      this.#recognise(host, facts.timeline);
      return connection;
    } catch (error) {
      void connection.close();
      throw error;
    }
  }

  /** Settings by set_config: a pooler refuses connections that ask for settings it does not know. */
  async #setUp(connection: Connection, directPid: number): Promise<SessionFacts> {
    const { statementTimeoutMs, idleInTransactionMs, connectTimeoutMs } = this.#options;
    const serverTimeoutMs = statementTimeoutMs + SERVER_SLACK_MS;
    const settings = Object.entries({
      ...SETTINGS,
      ...(this.#checkInterval ? CHECK_INTERVAL : {}),
      statement_timeout: String(serverTimeoutMs),
      idle_in_transaction_session_timeout: String(idleInTransactionMs),
    });
    const names = `{${settings.map(([name]) => name).join(',')}}`;
    const values = `{${settings.map(([, value]) => `"${value}"`).join(',')}}`;
    try {
      const options = { timeoutMs: connectTimeoutMs, position: 'inside' } as const;
      const rows = await connection.run(SETUP, [names, values, directPid], options);
      connection.serverTimeoutMs = serverTimeoutMs;
      return rows[0] as SessionFacts;
    } catch (error) {
      if (!this.#checkInterval || !(error instanceof StoreError) || error.sqlState !== '22023') throw error;
      this.#checkInterval = false;
      return this.#setUp(connection, directPid);
    }
  }

  async #acceptPooler(connection: Connection, pid: number): Promise<void> {
    if (!this.#pooledSessions.has(connection.host)) {
      const second = await Connection.open(connection.host, this.#options);
      try {
        await refuseSharedBackends(connection, pid, second);
      } finally {
        void second.close();
      }
      this.#pooledSessions.add(connection.host);
      this.#log.info(
        { host: hostName(connection.host) },
        'PostgreSQL is reached through a pooler in session mode',
      );
    }
    await this.#setUp(connection, pid);
  }

  #recognise(host: Host, timeline: string | null): void {
    const identity = `${hostName(host)}/${timeline}`;
    const before = this.#identity;
    this.#identity = identity;
    if (before === null || before === identity) return;
    this.#log.warn({ before, now: identity }, 'PostgreSQL: another server has taken over');
    this.onReplaced();
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
