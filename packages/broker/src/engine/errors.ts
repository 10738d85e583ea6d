import { StoreError } from '../store/errors.ts';
import { InvariantError } from '../store/invariant.ts';

/**
 * Every failure that leaves the engine is one of four kinds, and the middle two are never mixed up:
 *
 * - `refused`: the request is wrong or not allowed; the same call fails again.
 * - `overloaded`: nothing was taken; repeat after `retryAfterSeconds`.
 * - `unavailable`: nothing was written; the caller may repeat at once.
 * - `in_doubt`: the commit's fate is unknown; the caller must look before it repeats (a push with the same
 *   transaction ids looks by itself: a stored one answers `duplicate`).
 */
export type FailureKind = 'refused' | 'overloaded' | 'unavailable' | 'in_doubt';

export class EngineError extends Error {
  readonly kind: FailureKind;
  /** Stable, machine readable, snake case. */
  readonly code: string;
  /** The request field that was wrong, when there is one. */
  readonly field: string | undefined;
  /** A finer code beneath `code`, where the wire has one. */
  readonly reason: string | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(
    kind: FailureKind,
    code: string,
    message: string,
    extra: { field?: string; reason?: string; retryAfterSeconds?: number; cause?: unknown } = {},
  ) {
    super(message, extra.cause === undefined ? undefined : { cause: extra.cause });
    this.name = 'EngineError';
    this.kind = kind;
    this.code = code;
    this.field = extra.field;
    this.reason = extra.reason;
    this.retryAfterSeconds = extra.retryAfterSeconds;
  }
}

export function refused(code: string, message: string, field?: string): EngineError {
  return new EngineError('refused', code, message, field === undefined ? {} : { field });
}

/**
 * What a call of the store threw, as the engine says it. The message of a statement error is kept for the log
 * in `cause` and not shown to callers: it may quote data. A broken invariant is `in_doubt`, since it may have
 * been noticed in the answer to something that was written.
 */
export function fromStore(error: unknown): EngineError {
  if (error instanceof EngineError) return error;
  if (error instanceof InvariantError) {
    return new EngineError('in_doubt', 'invariant', `internal error (${error.code})`, { cause: error });
  }
  if (!(error instanceof StoreError)) {
    return new EngineError('in_doubt', 'internal', 'internal error', { cause: error });
  }
  return new EngineError(error.kind, storeCode(error), storeSentence(error), { cause: error });
}

function storeCode(error: StoreError): string {
  if (error.code === 'pool') return 'pool';
  if (error.code === 'timeout') return 'database_timeout';
  return error.code === 'connection' ? 'database_connection' : 'database_error';
}

function storeSentence(error: StoreError): string {
  const state = error.sqlState === null ? '' : ` (SQLSTATE ${error.sqlState})`;
  switch (error.code) {
    case 'pool':
      return 'no database connection';
    case 'timeout':
      return `the database did not finish in time${state}`;
    case 'connection':
      return `the database connection was lost${state}`;
    default:
      return `the database refused the statement${state}`;
  }
}
