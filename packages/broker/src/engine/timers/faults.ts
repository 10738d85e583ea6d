/** The refusals of timers: a code that the wire names, and a finer reason beneath it. */
import { EngineError, fromStore } from '../errors.ts';

const RETRY_AFTER_SECONDS = 1;

export function timersFault(reason: string, message: string, field?: string): EngineError {
  return new EngineError('refused', 'timers_bad_request', message, more(reason, field));
}

export function timersRefused(
  code: 'payload_too_large' | 'timer_horizon_exceeded' | 'timers_quota_exceeded',
  message: string,
  field?: string,
): EngineError {
  return new EngineError('refused', code, message, more(code, field));
}

/** Scheduling is switched off: nothing was done, and nothing will be until somebody turns it on. */
export function timersDisabled(): EngineError {
  return new EngineError('unavailable', 'timers_disabled', 'scheduling is switched off on this cluster', {
    retryAfterSeconds: 5,
  });
}

/** What a call of the store, or the wait for a connection, threw. */
export function timersFailure(error: unknown): EngineError {
  const failure = fromStore(error);
  if (failure.kind !== 'unavailable' || failure.code.startsWith('timers_')) return failure;
  return new EngineError('unavailable', 'timers_unavailable', failure.message, {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause: failure.cause ?? failure,
  });
}

function more(reason: string, field: string | undefined): { reason: string; field?: string } {
  return field === undefined ? { reason } : { reason, field };
}
