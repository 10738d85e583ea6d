/** Messages: lists, one in detail, by offset, by id. Payloads stay text. */
import { ApiError, at, get, post, remove } from './client.ts';
import type { RawJson } from './json_text.ts';

export type MessageStatus = 'pending' | 'processing' | 'completed' | 'dead_letter';

export interface MessageRow {
  id: string | null;
  transactionId: string | null;
  partitionId: string;
  queue: string;
  partition: string;
  status: MessageStatus;
  busStatus: { consumedBy: number; totalGroups: number };
  offset: number;
  createdAt: string;
  isEncrypted: boolean;
  /** The JSON word null when there was no room for it. */
  data: RawJson;
  /** Its segment cannot be read. */
  error?: string;
}

export interface MessageQuery {
  queue?: string;
  partition?: string;
  status?: string;
  from?: string;
  limit: number;
  offset: number;
}

const RAW = ['data', 'payload'] as const;

/** The newest first. */
export const listMessages = (query: MessageQuery, signal: AbortSignal) =>
  get<{ messages: MessageRow[] }>('/api/v1/messages', { query: { ...query }, signal, raw: RAW });

export interface MessageDetail {
  id: string;
  transactionId: string;
  traceId: string | null;
  producerSub: string | null;
  createdAt: string;
  partitionId: string;
  partition: string;
  offset: number;
  queue: string;
  namespace: string;
  task: string;
  isEncrypted: boolean;
  status: MessageStatus;
  errorMessage: string | null;
  retryCount: number;
  leaseExpiresAt: string | null;
  consumerGroups: { group: string; status: MessageStatus; leaseExpiresAt: string | null }[];
  data: RawJson;
}

export const getMessage = (partitionId: string, transactionId: string, signal: AbortSignal) =>
  get<MessageDetail>(at`/api/v1/messages/${partitionId}/${transactionId}`, { signal, raw: RAW });

export interface FoundMessage {
  transactionId: string;
  queue: string;
  partition: string;
  partitionId: string;
  offset: number;
  createdAt: string;
  deadLetter: boolean;
}

/** Where a transactionId is; `queue` '': in all of them. */
export const findMessages = (transactionId: string, queue: string, signal: AbortSignal) =>
  get<{ messages: FoundMessage[] }>('/api/v1/messages/find', { query: { transactionId, queue }, signal });

export interface FetchedRecord {
  offset: number;
  transactionId: string;
  payload: RawJson;
  ts: string;
}

export interface Fetched {
  records: FetchedRecord[];
  highWatermark: number;
  logStartOffset: number;
  error?: string;
}

/** Bytes of payload that one look into a partition may cost; one message comes always. */
const FETCH_BYTES = 512 * 1024;

/** What stands from an offset on. */
export async function fetchRecords(
  queue: string,
  partition: string,
  offset: number,
  signal: AbortSignal,
): Promise<Fetched> {
  const body = { entries: [{ queue, partition, offset, maxBytes: FETCH_BYTES }], maxWaitMs: 0 };
  const { entries } = await post<{ entries: Fetched[] }>('/api/v1/fetch', { body, signal, raw: RAW });
  return entries[0]!;
}

/** Pushes its newest dead letter again, at the end of its partition. */
export const retryMessage = (partitionId: string, transactionId: string) =>
  post<{ result: 'moved' | 'duplicate' }>(at`/api/v1/messages/${partitionId}/${transactionId}/retry`);

/** Removes its dead letters, or finds that somebody was faster. */
export async function removeDeadLetters(partitionId: string, transactionId: string): Promise<void> {
  try {
    await remove(at`/api/v1/messages/${partitionId}/${transactionId}`);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 404)) throw error;
  }
}
