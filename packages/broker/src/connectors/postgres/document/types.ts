/** A connector as it was asked for: every field settled, defaults filled in. Parsed by `parse.ts`, stored as JSON. */

export type SslMode = 'disable' | 'prefer' | 'require' | 'verify-full';

export interface ConnectionSettings {
  /** IPv6 without its brackets. */
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  /** The sealed password as it is stored; null: there is none. */
  readonly passwordSealed: string | null;
  readonly sslMode: SslMode;
  /** PEM. Null: the system's roots. */
  readonly sslRootCert: string | null;
  /** Bounds the whole set-up of a connection. */
  readonly connectTimeoutMs: number;
}

export interface SourceTable {
  readonly schema: string;
  readonly table: string;
  readonly queue: string;
  readonly partitionBy: 'key' | 'single' | readonly string[];
}

export interface SourceSettings {
  readonly tables: readonly SourceTable[];
  readonly slot: string;
  readonly publication: string;
  readonly managePublication: boolean;
  readonly snapshot: 'initial' | 'never';
  readonly snapshotChunkRows: number;
  readonly maxBundleMessages: number;
  readonly maxBundleBytes: number;
  readonly lingerMs: number;
  readonly heartbeatSeconds: number;
  readonly onTruncate: 'skip' | 'emit';
}

export type SinkMode = 'append' | 'upsert' | 'cdc' | 'sql';

/** Facts of a message that may be written into columns of their own. */
export type MetadataFact = 'partition' | 'partitionId' | 'offset' | 'transactionId' | 'createdAt' | 'payload';

export interface SinkSettings {
  readonly queue: string;
  readonly consumerGroup: string;
  readonly subscriptionMode: 'all' | 'new';
  readonly schema: string;
  readonly table: string;
  readonly mode: SinkMode;
  /** Null: the table's own key. */
  readonly key: readonly string[] | null;
  /** Null outside of mode `sql`, as `params`. */
  readonly statement: string | null;
  /** Paths as they were written. */
  readonly params: readonly string[] | null;
  /** Column by fact. */
  readonly metadata: Readonly<Partial<Record<MetadataFact, string>>>;
  readonly batch: number;
  readonly workers: number;
  readonly leaseSeconds: number;
  readonly maxAttempts: number;
  readonly progressTable: { readonly schema: string; readonly table: string };
  readonly createProgressTable: boolean;
}

interface DocumentHead {
  readonly name: string;
  readonly enabled: boolean;
  readonly connection: ConnectionSettings;
  /** RFC 3339 in UTC with microseconds, as the next two. */
  readonly updatedAt: string;
  readonly resyncRequestedAt: string | null;
  /** The source is to take its slot down, and then itself. */
  readonly deleting: { readonly dropSlot: boolean; readonly requestedAt: string } | null;
}

export interface SourceDocument extends DocumentHead {
  readonly kind: 'source';
  readonly source: SourceSettings;
}

export interface SinkDocument extends DocumentHead {
  readonly kind: 'sink';
  readonly sink: SinkSettings;
}

export type ConnectorDocument = SourceDocument | SinkDocument;
