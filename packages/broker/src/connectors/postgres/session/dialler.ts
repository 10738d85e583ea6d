/**
 * From a document to a session: password, name, address, TLS, start, settings.
 *
 * `connectTimeoutMs` bounds the whole way. A name with several addresses gives each of them its share of what is left,
 * so that one that swallows packets does not take the time of the others.
 */
import pg from 'pg';
import { isServerError, type ServerError } from '../../../store/errors.ts';
import type { ConnectionSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { ReplicationConnection } from '../replication/connection.ts';
import { type Lookup, resolveHost } from './egress.ts';
import { connectFault, passwordMissing, sessionFault } from './faults.ts';
import { openSocket, type SecuredSocket, type SecureTarget } from './secure.ts';
import { type SessionRole, settingsOf, settle, startupOptions } from './settings.ts';
import { PgSession, type StartedConnection } from './sql.ts';
import { startClient } from './start.ts';
import type { Dialler, SqlSession } from './types.ts';
import { strictWire } from './wire.ts';

export interface DiallerDeps {
  readonly connection: ConnectionSettings;
  /** The password in the clear, null: there is none. Throws ConnectorFault `unseal`. */
  readonly password: () => string | null;
  readonly allowPrivate: boolean;
  readonly lookup?: Lookup;
}

/** What PostgreSQL keeps of an application_name, in bytes. */
const APPLICATION_NAME_BYTES_MAX = 63;
const UNSUPPORTED_OPTION = /unsupported startup parameter/i;
const MILLISECONDS_MIN = 100;

export class PgDialler implements Dialler {
  readonly #deps: DiallerDeps;

  constructor(deps: DiallerDeps) {
    this.#deps = deps;
  }

  sql(applicationName: string, role: SessionRole, signal?: AbortSignal): Promise<SqlSession> {
    return this.#dial(signal, async (target, attempt) => {
      try {
        return await this.#openSql(target, attempt, applicationName, role, false);
      } catch (error) {
        if (!(isServerError(error) && UNSUPPORTED_OPTION.test(error.message))) throw error;
        // A pooler: it takes settings as statements, if at all.
        return this.#openSql(target, attempt, applicationName, role, true);
      }
    });
  }

  replication(applicationName: string, signal?: AbortSignal): Promise<ReplicationConnection> {
    const { host, database, user } = this.#deps.connection;
    return this.#dial(signal, async (target, attempt) => {
      const { socket } = await openSocket(target, attempt);
      const abort = () => socket.destroy(attempt.reason);
      attempt.addEventListener('abort', abort, { once: true });
      try {
        return await ReplicationConnection.open({
          host,
          wire: strictWire(socket, 'decoded'),
          database,
          user,
          password: this.#password,
          applicationName: cutBytes(applicationName),
        });
      } catch (error) {
        throw isServerError(error) && UNSUPPORTED_OPTION.test(error.message) ? poolerInTheWay(error) : error;
      } finally {
        attempt.removeEventListener('abort', abort);
      }
    });
  }

  async #openSql(
    target: SecureTarget,
    attempt: AbortSignal,
    applicationName: string,
    role: SessionRole,
    bySet: boolean,
  ): Promise<SqlSession> {
    const secured = await openSocket(target, attempt);
    const abort = () => secured.socket.destroy(attempt.reason);
    attempt.addEventListener('abort', abort, { once: true });
    let session: PgSession | null = null;
    try {
      const options = bySet ? null : startupOptions(settingsOf(role));
      session = new PgSession(await this.#start(secured, applicationName, options));
      session.serverVersion = (await settle(session, role, bySet)).serverVersion;
      return session;
    } catch (error) {
      secured.socket.destroy();
      await session?.close();
      throw attempt.aborted ? attempt.reason : error;
    } finally {
      attempt.removeEventListener('abort', abort);
    }
  }

  async #start(
    { socket, ssl }: SecuredSocket,
    applicationName: string,
    options: string | null,
  ): Promise<StartedConnection> {
    const { host, database, user } = this.#deps.connection;
    const wire = strictWire(socket, 'raw');
    const client = new pg.Client({
      host,
      database,
      user,
      password: this.#password,
      ssl: false,
      application_name: cutBytes(applicationName),
      connection: wire,
    } as pg.ClientConfig);
    // Set here, since an absent one would be taken from the environment of the broker.
    const { connectionParameters } = client as unknown as { connectionParameters: { options: string } };
    connectionParameters.options = options ?? '';
    await startClient(client);
    const { processID: processId, secretKey } = client as unknown as { processID: number; secretKey: number };
    return { wire, socket, host, ssl, processId, secretKey };
  }

  /** A function, since an absent password would send pg to the environment and to ~/.pgpass. */
  readonly #password = (): string => {
    const password = this.#deps.password();
    if (password === null) throw passwordMissing(this.#deps.connection.host);
    return password;
  };

  /** A server or a pooler may quote what it was given. */
  #withoutPassword(fault: ConnectorFault): ConnectorFault {
    if (fault.code === 'unseal') return fault;
    const password = this.#deps.password();
    if (password === null || password === '' || !fault.message.includes(password)) return fault;
    const { code, retry, sqlState } = fault;
    return new ConnectorFault(code, fault.message.replaceAll(password, '…'), { retry, sqlState });
  }

  /** Tries the addresses of the host in turn. Throws ConnectorFault: what the last one said. */
  async #dial<T>(
    signal: AbortSignal | undefined,
    open: (target: SecureTarget, attempt: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { host, port, sslMode, sslRootCert, connectTimeoutMs } = this.#deps.connection;
    const { allowPrivate, lookup } = this.#deps;
    const deadline = performance.now() + connectTimeoutMs;
    const left = () => Math.max(MILLISECONDS_MIN, deadline - performance.now());
    if (signal?.aborted) throw stopped();
    const addresses = await resolveHost(host, {
      allowPrivate,
      timeoutMs: connectTimeoutMs,
      ...(lookup === undefined ? {} : { lookup }),
    });
    let last: ConnectorFault | undefined;
    for (let i = 0; i < addresses.length; i++) {
      const shareMs = Math.round(left() / (addresses.length - i));
      const target = { host, address: addresses[i]!, port, sslMode, rootCertificates: sslRootCert };
      try {
        return await bounded(shareMs, host, signal, (attempt) => open(target, attempt));
      } catch (error) {
        last = this.#withoutPassword(connectFault(error, `${host}:${port}`));
        // A server that answered has spoken for all of them; so has somebody who wants no answer any more.
        if (last.sqlState !== null || last.retry !== 'backoff') throw last;
      }
    }
    throw last ?? sessionFault(new Error(`the host name ${host} has no address`));
  }
}

/** Aborts what `open` does when the time is up or `signal` says so. */
async function bounded<T>(
  timeoutMs: number,
  host: string,
  signal: AbortSignal | undefined,
  open: (attempt: AbortSignal) => Promise<T>,
): Promise<T> {
  const attempt = new AbortController();
  const timer = setTimeout(
    () => attempt.abort(new ConnectorFault('io', `no connection to ${host} within ${timeoutMs} ms`)),
    timeoutMs,
  );
  const stop = () => attempt.abort(stopped());
  signal?.addEventListener('abort', stop, { once: true });
  if (signal?.aborted) stop();
  try {
    return await open(attempt.signal);
  } catch (error) {
    throw attempt.signal.aborted ? attempt.signal.reason : error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  }
}

function poolerInTheWay(error: ServerError): ConnectorFault {
  const text = `a source needs PostgreSQL itself, and a pooler has answered: ${error.message} (SQLSTATE ${error.code})`;
  return new ConnectorFault('postgres', text, { sqlState: error.code, cause: error });
}

function stopped(): ConnectorFault {
  return new ConnectorFault('stopped', 'asked to stop');
}

/** At most 63 bytes, none of them half a character. */
export function cutBytes(text: string): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= APPLICATION_NAME_BYTES_MAX) return text;
  let end = APPLICATION_NAME_BYTES_MAX;
  while ((bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}
