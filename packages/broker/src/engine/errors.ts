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
  readonly retryAfterSeconds: number | undefined;

  constructor(
    kind: FailureKind,
    code: string,
    message: string,
    extra: { field?: string; retryAfterSeconds?: number; cause?: unknown } = {},
  ) {
    super(message, extra.cause === undefined ? undefined : { cause: extra.cause });
    this.name = 'EngineError';
    this.kind = kind;
    this.code = code;
    this.field = extra.field;
    this.retryAfterSeconds = extra.retryAfterSeconds;
  }
}

export function refused(code: string, message: string, field?: string): EngineError {
  return new EngineError('refused', code, message, field === undefined ? {} : { field });
}
