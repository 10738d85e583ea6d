/**
 * What can go wrong, in five kinds that call for different things:
 *
 *   refused      the request has to change; the same one fails again
 *   overloaded   nothing was taken, the broker asks to come back later
 *   unavailable  nothing was carried out, or it was only to be read; it may be tried again
 *   in_doubt     nobody knows whether it was carried out: look before you repeat
 *   aborted      your signal, or the end of the client
 *
 * The client has repeated what may be repeated before it throws one of the middle three.
 */
export type ErrorKind = 'refused' | 'overloaded' | 'unavailable' | 'in_doubt' | 'aborted';

export interface ErrorFacts {
  /** A stable word: the broker's, or one of this library (`network`, `timeout`, `closed`, …). */
  code: string;
  /** HTTP status, when there was an answer. */
  status?: number | undefined;
  /** The finer code that keys, timers and transactions give. */
  reason?: string | undefined;
  /** The field of the request that is to blame. */
  field?: string | undefined;
  retryAfterSeconds?: number | undefined;
  /** The broker's answer, decoded. */
  body?: unknown;
  /** Base URL of the broker that was asked last. */
  broker?: string | undefined;
  cause?: unknown;
}

export abstract class QueenError extends Error {
  abstract readonly kind: ErrorKind;
  readonly code: string;
  readonly status: number | undefined;
  readonly reason: string | undefined;
  readonly field: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly body: unknown;
  readonly broker: string | undefined;

  constructor(message: string, facts: ErrorFacts) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.code = facts.code;
    this.status = facts.status;
    this.reason = facts.reason;
    this.field = facts.field;
    this.retryAfterSeconds = facts.retryAfterSeconds;
    this.body = facts.body;
    this.broker = facts.broker;
  }
}

export class RefusedError extends QueenError {
  readonly kind = 'refused';
}

export class OverloadedError extends QueenError {
  readonly kind = 'overloaded';
}

export class UnavailableError extends QueenError {
  readonly kind = 'unavailable';
}

export class InDoubtError extends QueenError {
  readonly kind = 'in_doubt';
}

export class AbortedError extends QueenError {
  readonly kind = 'aborted';
}

/** The error for a signal that has fired; its reason becomes the cause. */
export function abortedBy(signal: AbortSignal): AbortedError {
  if (signal.reason instanceof AbortedError) return signal.reason;
  return new AbortedError('the call was aborted', { code: 'aborted', cause: signal.reason });
}

/** The error of everything that is asked of a client that was closed. */
export function closed(what: string): AbortedError {
  return new AbortedError(`the ${what} is closed`, { code: 'closed' });
}

/** Calls the owner's function for errors; what that one throws, at once or later, is not our affair. */
export function tell(onError: () => unknown): void {
  (async () => onError())().catch((thrown) => console.error(thrown));
}

/** The text of anything that was thrown. */
export function sentenceOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
