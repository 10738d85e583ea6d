/**
 * A connection that copies a replication slot: what the server sends is handed on as it arrives, and the positions that are
 * safe are told back.
 *
 * Received bytes are views into a buffer that the next read reuses: whoever is called must be done with them when it
 * returns. Reading is paused and resumed by the consumer; what one read had already brought still comes after a
 * pause, 64 KiB at most.
 *
 * Source: "Streaming Replication Protocol" in PostgreSQL's documentation (18, chapter 54.4).
 */
import type { Socket } from 'node:net';
import pg from 'pg';
import type { Wire } from '../../../store/wire.ts';
import { quoteName } from '../identifiers.ts';
import { sessionFault } from '../session/faults.ts';
import {
  assertKept,
  NO_TRANSACTION_TIMEOUT,
  PATIENCE,
  PRINTING,
  startupOptions,
} from '../session/settings.ts';
import { startClient } from '../session/start.ts';
import { formatLsn, parseLsn } from './lsn.ts';
import { ProtocolViolation } from './pgoutput.ts';

interface ReplicationOptions {
  readonly host: string;
  /** Over a socket that is connected and secured, with rows as pg decodes them. */
  readonly wire: Wire;
  readonly database: string;
  readonly user: string;
  /** Called when the server asks for it; what it throws is what the opening throws. */
  readonly password: () => string;
  readonly applicationName: string;
}

/** What an upstream says of itself. */
export interface SystemFacts {
  readonly systemId: string;
  readonly timeline: number;
  /** The end of what is flushed. */
  readonly walEnd: bigint;
}

export interface StreamHandler {
  /** A message of the plug-in, in `bytes[from..to]`. */
  data(bytes: Buffer, from: number, to: number): void;
  /** The server has sent all it has up to `walEnd`. `reply`: it wants to hear from us at once. */
  keepalive(walEnd: bigint, reply: boolean): void;
}

export interface StartOptions {
  readonly slot: string;
  readonly publication: string;
  /** Whole transactions that ended at or before it are not sent again, as far as the slot allows. */
  readonly from: bigint;
}

const SETTINGS = { ...PRINTING, ...PATIENCE };
const SENDER_TIMEOUT_MS =
  "EXTRACT(EPOCH FROM pg_catalog.current_setting('wal_sender_timeout')::pg_catalog.interval)::pg_catalog.float8 * 1000";

const XLOG_DATA = 0x77;
const XLOG_HEAD_BYTES = 25;
const KEEPALIVE = 0x6b;
const KEEPALIVE_BYTES = 18;
const STATUS = 0x72;
const STATUS_BYTES = 34;
const MICROS_TO_2000 = 946_684_800_000_000n;

/** What pg's connection has beyond its published types. */
interface CopyConnection {
  stream: Socket;
  on(event: 'copyData', listener: (message: { chunk: Buffer }) => void): void;
  once(event: 'replicationStart', listener: () => void): void;
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
}

export class ReplicationConnection {
  readonly #client: pg.Client;
  readonly #wire: CopyConnection;
  #copying: Promise<void> | null = null;
  #handler: StreamHandler | null = null;
  #violation: Error | null = null;
  #senderTimeoutMs = 0;

  private constructor(options: ReplicationOptions) {
    const { host, wire, database, user, password, applicationName } = options;
    this.#client = new pg.Client({
      host,
      database,
      user,
      password,
      ssl: false,
      application_name: applicationName,
      connection: wire,
      options: startupOptions(SETTINGS),
      replication: 'database',
    } as pg.ClientConfig);
    this.#wire = wire as unknown as CopyConnection;
    this.#wire.on('copyData', ({ chunk }) => this.#received(chunk));
  }

  /** Throws what the server or the network answered. */
  static async open(options: ReplicationOptions): Promise<ReplicationConnection> {
    const connection = new ReplicationConnection(options);
    try {
      await startClient(connection.#client);
      await connection.#settle();
      return connection;
    } catch (error) {
      await connection.close();
      throw error;
    }
  }

  /** After so long without a word from us the server cuts the connection; 0: it never does. */
  get senderTimeoutMs(): number {
    return this.#senderTimeoutMs;
  }

  async identify(): Promise<SystemFacts> {
    const { rows } = await this.#client.query('IDENTIFY_SYSTEM');
    const walEnd = parseLsn(rows[0]?.xlogpos ?? '');
    if (walEnd === null) throw new ProtocolViolation('IDENTIFY_SYSTEM does not say where the log ends');
    return { systemId: String(rows[0].systemid), timeline: Number(rows[0].timeline), walEnd };
  }

  /**
   * A command of the replication protocol, or a statement, before the copy begins: rows of texts. Throws ConnectorFault.
   */
  async command(text: string): Promise<(string | null)[][]> {
    try {
      const types = { getTypeParser: () => String };
      const { rows } = await this.#client.query<(string | null)[]>({ text, rowMode: 'array', types });
      return rows;
    } catch (error) {
      throw sessionFault(error);
    }
  }

  /**
   * Begins the copy; resolves when the server has agreed to it. The handler is called from then on, one message at a
   * time. Throws what the server refused it with.
   */
  async start({ slot, publication, from }: StartOptions, handler: StreamHandler): Promise<void> {
    const started = new Promise<void>((resolve) => this.#wire.once('replicationStart', resolve));
    this.#handler = handler;
    const query = this.#client.query(
      `START_REPLICATION SLOT ${quoteName(slot)} LOGICAL ${formatLsn(from)} ` +
        `(proto_version '1', publication_names '${quoteName(publication).replaceAll("'", "''")}', messages 'true')`,
    );
    this.#copying = query.then(
      () => {
        if (this.#violation !== null) throw this.#violation;
      },
      (error: unknown) => {
        throw this.#violation ?? error;
      },
    );
    await Promise.race([started, this.#copying]);
  }

  /** Resolves when the copy has ended in order, rejects when it broke. Only after {@link start}. */
  ended(): Promise<void> {
    return this.#copying ?? Promise.resolve();
  }

  pause(): void {
    this.#wire.stream.pause();
  }

  resume(): void {
    this.#wire.stream.resume();
  }

  /**
   * Tells how far was received and how far is safe: the server may forget what lies before `flushed`, and waits for
   * it when it shuts down.
   */
  confirm(received: bigint, flushed: bigint): void {
    if (!this.#wire.stream.writable) return;
    const status = Buffer.alloc(STATUS_BYTES);
    status[0] = STATUS;
    status.writeBigUInt64BE(received, 1);
    status.writeBigUInt64BE(flushed, 9);
    status.writeBigUInt64BE(flushed, 17);
    status.writeBigInt64BE(BigInt(Date.now()) * 1000n - MICROS_TO_2000, 25);
    this.#wire.sendCopyFromChunk(status);
  }

  /** Ends the copy in order, so that the slot is free when it resolves. What still arrives is thrown away. */
  async stop(): Promise<void> {
    if (this.#copying === null) return;
    this.#handler = null;
    this.#wire.endCopyFrom();
    this.resume();
    await this.#copying;
  }

  /** Never rejects. */
  async close(): Promise<void> {
    this.#handler = null;
    this.#wire.stream.destroy();
    await this.#copying?.catch(() => {});
  }

  /** Reads the settings back. Throws ConnectorFault when they were not kept. */
  async #settle(): Promise<void> {
    const wanted = Object.entries({ ...SETTINGS, client_encoding: 'UTF8' });
    const names = wanted.map(([name]) => `pg_catalog.current_setting('${name}')`);
    const [found] = await this.command(
      `SELECT ${names.join(', ')}, ${SENDER_TIMEOUT_MS}, ${NO_TRANSACTION_TIMEOUT}`,
    );
    for (const [i, [name, value]] of wanted.entries()) assertKept(name, value, found?.[i] ?? '');
    this.#senderTimeoutMs = Number(found?.[wanted.length]);
  }

  #received(chunk: Buffer): void {
    const handler = this.#handler;
    if (handler === null) return;
    try {
      if (chunk[0] === XLOG_DATA && chunk.length > XLOG_HEAD_BYTES) {
        handler.data(chunk, XLOG_HEAD_BYTES, chunk.length);
      } else if (chunk[0] === KEEPALIVE && chunk.length === KEEPALIVE_BYTES) {
        handler.keepalive(chunk.readBigUInt64BE(1), chunk[KEEPALIVE_BYTES - 1] === 1);
      } else throw new ProtocolViolation(`the replication stream is not understood: ${chunk.length} bytes`);
    } catch (error) {
      // As the end of the copy: an exception thrown here would end the process.
      this.#violation ??= error instanceof Error ? error : new Error(String(error));
      this.#handler = null;
      this.#wire.stream.destroy(this.#violation);
    }
  }
}
