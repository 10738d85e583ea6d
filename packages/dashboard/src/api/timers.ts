/** Timers: messages that are pushed later. */
import { at, get, post } from './client.ts';

export interface Timer {
  queue: string;
  timerKey: string;
  partition: string;
  deliverAt: string;
  txn: string;
  messageId: string;
  payloadZstd: boolean;
  /** By whoever scheduled it, or by the broker. */
  encrypted: boolean;
  producerSub: string | null;
  /** Failed tries to fire it. */
  attempts: number;
  lastError: string | null;
  /** It is being fired, and cannot be changed. */
  claimed: boolean;
  createdAt: string;
  updatedAt: string;
}

/** Queues that have pending ones, by name. */
export const listTimerQueues = (after: string, limit: number, signal: AbortSignal) =>
  get<{ queues: string[]; nextAfter: string | null }>('/api/v1/timers', { query: { after, limit }, signal });

/** By key. */
export const listTimers = (
  queue: string,
  page: { prefix: string; after: string; limit: number },
  signal: AbortSignal,
) => get<{ rows: Timer[]; nextAfter: string | null }>(at`/api/v1/timers/${queue}`, { query: page, signal });

/** Base64 of the payload as it is stored. Null: nothing is pending under the key. */
export async function getTimer(
  queue: string,
  timerKey: string,
  signal: AbortSignal,
): Promise<(Timer & { payload: string }) | null> {
  type Answer = ({ found: true } & Timer & { payload: string }) | { found: false };
  const answer = await get<Answer>(at`/api/v1/timers/${queue}/${timerKey}`, { signal });
  return answer.found ? answer : null;
}

export type TimerStatus = 'scheduled' | 'rescheduled' | 'cancelled' | 'absent' | 'too_late';

export interface TimerResult {
  status: TimerStatus;
  deliverAt: string | null;
}

export interface Schedule {
  queue: string;
  timerKey: string;
  partition: string;
  delayMs: number;
  txn: string;
  /** JSON text, sent as it is. */
  payload: string;
}

/** Also over a pending one, which it replaces. */
export async function schedule({ payload, ...rest }: Schedule): Promise<TimerResult> {
  return one({ op: 'schedule', ...rest, payload: base64Of(payload) });
}

export async function cancel(queue: string, timerKey: string): Promise<TimerResult> {
  return one({ op: 'cancel', queue, timerKey });
}

async function one(operation: object): Promise<TimerResult> {
  const { results } = await post<{ results: TimerResult[] }>('/api/v1/timers', {
    body: { operations: [operation] },
  });
  return results[0]!;
}

const CHUNK = 0x8000;

function base64Of(text: string): string {
  const utf8 = new TextEncoder().encode(text);
  let binary = '';
  for (let at = 0; at < utf8.length; at += CHUNK) {
    binary += String.fromCharCode(...utf8.subarray(at, at + CHUNK));
  }
  return btoa(binary);
}

/** The JSON text of a payload that is neither compressed nor encrypted. */
export function payloadText({ payload, payloadZstd, encrypted }: Timer & { payload: string }): string | null {
  if (payloadZstd || encrypted) return null;
  const binary = atob(payload);
  return new TextDecoder().decode(Uint8Array.from(binary, (character) => character.charCodeAt(0)));
}
