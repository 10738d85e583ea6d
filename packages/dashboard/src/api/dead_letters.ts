/** Dead letters: what could not be processed. */
import { at, get, post, remove } from './client.ts';
import type { RawJson } from './json_text.ts';

export interface DeadLetter {
  id: string;
  transactionId: string;
  partitionId: string;
  queue: string;
  partition: string;
  consumerGroup: string;
  errorMessage: string | null;
  /** Failures that were forgiven before. */
  retryCount: number;
  failedAt: string;
  /** `null` as text: retention was faster than the failure, or it was left out. */
  data: RawJson;
  /** It was stored encrypted. */
  isEncrypted?: boolean;
}

export interface DeadLetterFilter {
  queue?: string | null;
  consumerGroup?: string | null;
  /** Not after this instant. */
  to?: string | null;
}

export interface DeadLetterPage {
  messages: DeadLetter[];
  pagination: { limit: number; offset: number };
  total: number;
}

/** The newest first, without payloads. */
export const listDeadLetters = (
  filter: DeadLetterFilter,
  page: { limit: number; offset: number },
  signal?: AbortSignal,
) =>
  get<DeadLetterPage>('/api/v1/dlq', {
    query: { ...filter, ...page, data: false },
    raw: ['data'],
    signal,
  });

export const getDeadLetter = (id: string, signal: AbortSignal) =>
  get<DeadLetter>(at`/api/v1/dlq/${id}`, { raw: ['data'], signal });

export interface Replayed {
  result: 'moved' | 'duplicate';
  queue: string;
  partition: string;
  replayedAs: { offset: number; transaction_id: string };
}

/** Null: where it came from. */
export interface Destination {
  queue: string | null;
  partition: string | null;
}

export const replay = (id: string, to: Destination, signal?: AbortSignal) =>
  post<Replayed>(at`/api/v1/dlq/${id}/replay`, { body: to, signal });

/** Those of a queue, of one group or of all. */
export const purge = (queue: string, consumerGroup: string | null) =>
  remove<{ deleted: number }>('/api/v1/dlq', { query: { queue, consumerGroup } });

/** Dead letters of a queue by what their errors have in common, the most frequent first. */
export interface Reasons {
  signatures: { text: string; n: number; share: number }[];
}

export const getReasons = (queue: string, compared: number, signal: AbortSignal) =>
  get<Reasons>('/api/v1/analytics/dlq-signatures', { query: { queue, limit: compared }, signal });
