import { RefusedError } from '../errors.ts';
import { type CallOptions, segment, type Transport } from '../wire/transport.ts';

/** How the other PostgreSQL is reached. */
export interface ConnectorConnection {
  /** `postgres://user:password@host:port/database`, instead of the parts. */
  url?: string;
  host?: string;
  port?: number;
  database?: string;
  user?: string;
  /** Never read back. Left out of a document that replaces another one: the stored one is kept; empty: removed. */
  password?: string;
  sslMode?: 'disable' | 'prefer' | 'require' | 'verify-full';
  sslRootCert?: string;
  connectTimeoutMs?: number;
}

export interface SourceSpec {
  tables: { table: string; queue: string; partitionBy?: 'key' | 'single' | string | string[] }[];
  slot?: string;
  publication?: string;
  managePublication?: boolean;
  snapshot?: 'initial' | 'never';
  snapshotChunkRows?: number;
  maxBundleMessages?: number;
  maxBundleBytes?: number;
  lingerMs?: number;
  heartbeatSeconds?: number;
  onTruncate?: 'skip' | 'emit';
}

export interface SinkSpec {
  queue: string;
  mode: 'append' | 'upsert' | 'cdc' | 'sql';
  table?: string;
  consumerGroup?: string;
  subscriptionMode?: 'all' | 'new';
  key?: string[];
  statement?: string;
  params?: string[];
  metadata?: Record<string, string>;
  batch?: number;
  workers?: number;
  leaseSeconds?: number;
  maxAttempts?: number;
  progressTable?: string;
  createProgressTable?: boolean;
}

/** Tables into queues, or a queue into a table. */
export type ConnectorSpec = { enabled?: boolean; connection: ConnectorConnection } & (
  | { kind: 'source'; source: SourceSpec }
  | { kind: 'sink'; sink: SinkSpec }
);

export interface Connector {
  readonly name: string;
  readonly kind: 'source' | 'sink';
  readonly enabled: boolean;
  readonly connection: Readonly<Record<string, unknown>> & { readonly passwordSet?: boolean };
  readonly source?: Readonly<SourceSpec>;
  readonly sink?: Readonly<SinkSpec>;
  /** What the broker that answers knows of it. */
  readonly status?: {
    readonly phase: string;
    readonly error?: { readonly code: string; readonly message: string };
    readonly [key: string]: unknown;
  };
  /** Of a source, the same on every broker. */
  readonly state?: Readonly<Record<string, unknown>>;
}

const CONNECTORS = '/api/v1/connectors';

/** Connectors between queues and tables of PostgreSQL, which the brokers run. */
export class Connectors {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list({ signal }: CallOptions = {}): Promise<Connector[]> {
    const { connectors } = await this.#transport.ask<{ connectors: Connector[] }>({
      method: 'GET',
      path: CONNECTORS,
      repeatable: true,
      signal,
    });
    return connectors;
  }

  /** Null: there is none. */
  async get(name: string, { signal }: CallOptions = {}): Promise<Connector | null> {
    try {
      return await this.#transport.ask<Connector>({
        method: 'GET',
        path: pathOf(name),
        repeatable: true,
        signal,
      });
    } catch (error) {
      if (error instanceof RefusedError && error.code === 'connector_not_found') return null;
      throw error;
    }
  }

  /** Makes it, or replaces all of it. @throws RefusedError `invalid_connector`, `kind_change`, `conflict`, … */
  put(name: string, spec: ConnectorSpec, { signal }: CallOptions = {}): Promise<Connector> {
    return this.#transport.ask({ method: 'PUT', path: pathOf(name), body: spec, repeatable: true, signal });
  }

  /**
   * Deletes it. A source lets go of its slot first, unless `dropSlot` is false.
   *
   * @returns whether it is gone already; otherwise it will be
   */
  async delete(name: string, options: CallOptions & { dropSlot?: boolean } = {}): Promise<boolean> {
    const { status } = await this.#transport.call({
      method: 'DELETE',
      path: pathOf(name),
      query: { dropSlot: options.dropSlot },
      repeatable: true,
      signal: options.signal,
    });
    return status === 200;
  }

  /** Lets a source begin anew, with a snapshot. Not repeated when its answer is lost. */
  async resync(name: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#transport.call({ method: 'POST', path: `${pathOf(name)}/resync`, repeatable: false, signal });
  }
}

function pathOf(name: string): string {
  return `${CONNECTORS}/${segment(name)}`;
}
