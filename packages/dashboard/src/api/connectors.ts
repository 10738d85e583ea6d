/** Connectors: tables of PostgreSQL into queues and queues into tables. */
import { at, get, post, put, remove } from './client.ts';

export type Phase =
  | 'disabled'
  | 'starting'
  | 'standby'
  | 'connecting'
  | 'waiting_for_slot'
  | 'snapshot'
  | 'streaming'
  | 'running'
  | 'error'
  | 'torn_down'
  | 'stopped'
  /** The broker that was asked has not seen it yet. */
  | 'unknown';

/** What the broker that was asked sees; what it does not run itself is null or missing. */
export interface ConnectorStatus {
  phase: Phase;
  since?: string;
  error?: { code: string; message: string; at: string } | null;
  retryInMs?: number;
  detail?: string;
  owner?: string;
  activePid?: number;

  /** Of a source. */
  slot?: string;
  slotLagBytes?: number | null;
  walStatus?: string | null;
  pointerLsn?: string | null;
  lastCommitAt?: string | null;
  truncatesSkipped?: number;
  /** Tables that are to be copied and those that are, the one that is under way, and rows of it so far. */
  snapshot?: { tables: number; done: number; table: string | null; rows: number } | null;
  transactions?: number;
  messages?: number;

  /** Of a sink. */
  group?: string;
  lastAppliedAt?: string | null;
  lastError?: { code: string; message: string; at: string } | null;
  applied?: number;
  skipped?: number;
  dlq?: number;
  [more: string]: unknown;
}

interface Connection {
  host: string;
  port: number;
  database: string;
  user: string;
  passwordSet: boolean;
}

/** What is stored may not be readable by the rules of this broker; then parts of it are missing. */
export interface Connector {
  name: string;
  kind?: 'source' | 'sink';
  enabled?: boolean;
  connection?: Connection;
  source?: {
    tables: { table: string; queue: string }[];
    slot: string;
    publication: string;
    managePublication: boolean;
  };
  sink?: { queue: string; table: string; mode: string; consumerGroup: string };
  updatedAt?: string;
  deleting?: { requestedAt: string };
  status: ConnectorStatus;
  state: { pointer: unknown; lease: unknown } | null;
}

export const listConnectors = async (signal: AbortSignal): Promise<Connector[]> =>
  (await get<{ connectors: Connector[] }>('/api/v1/connectors', { signal })).connectors;

export const getConnector = (name: string, signal?: AbortSignal) =>
  get<Connector>(at`/api/v1/connectors/${name}`, { signal });

/** `text`: the document, sent as it is. */
export const putConnector = (name: string, text: string) =>
  put<Connector>(at`/api/v1/connectors/${name}`, { text });

/** Pauses or goes on, with everything else as it is. */
export async function enableConnector(name: string, enabled: boolean): Promise<void> {
  const now = await getConnector(name);
  await put(at`/api/v1/connectors/${name}`, { body: { ...documentOf(now), enabled } });
}

/** `deleting`: its owner has something to take down first. */
export const deleteConnector = (name: string, dropSlot: boolean) =>
  remove<{ deleting?: boolean; warning?: string }>(at`/api/v1/connectors/${name}`, { query: { dropSlot } });

export const resyncConnector = (name: string) => post(at`/api/v1/connectors/${name}/resync`);

/** What a person writes of it: without the name, and without what the broker adds. */
export function documentOf({ kind, enabled, connection, source, sink }: Connector): object {
  return {
    kind,
    enabled,
    connection,
    ...(source === undefined ? {} : { source }),
    ...(sink === undefined ? {} : { sink }),
  };
}
