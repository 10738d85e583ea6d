import { EngineError } from '../engine/errors.ts';
import { ClientGone } from './body.ts';
import { Fault, type FaultCode } from './errors.ts';

/** The codes of the engine that the wire has a status for. */
const CODES: ReadonlySet<string> = new Set<FaultCode>([
  'timers_bad_request',
  'timer_horizon_exceeded',
  'timers_quota_exceeded',
  'feature_gated',
  'payload_too_large',
  'rate_limited',
  'timers_disabled',
  'timers_unavailable',
]);

/** Schedules that are refused for what they are in a batch of their own may pass there, and cancellations always do. */
const BLOCKS: ReadonlySet<string> = new Set([
  'timers_quota_exceeded',
  'feature_gated',
  'rate_limited',
  'timers_disabled',
]);

/** Whether cancellations that came along would have been carried out alone. */
export function blocksSchedulesOnly(error: unknown): boolean {
  return error instanceof EngineError && BLOCKS.has(error.code);
}

/** Anything thrown by a timer route. `error` of the answer is always one of the codes, never a sentence: clients go by it. */
export function timersFaultOf(error: unknown): Fault | ClientGone {
  if (error instanceof ClientGone) return error;
  if (error instanceof Fault) {
    const { kind, message, field } = error;
    if (kind !== 'bad_query') return error;
    return coded('timers_bad_request', message, 'timers_bad_query', error, field);
  }
  if (!(error instanceof EngineError)) return coded('timers_failed', 'internal error', undefined, error);
  const { code, reason, message, field, retryAfterSeconds } = error;
  if (CODES.has(code)) return coded(code as FaultCode, message, reason, error, field, retryAfterSeconds);
  const why = error.kind === 'in_doubt' ? 'in_doubt' : code;
  return coded('timers_failed', message, why, error, field);
}

function coded(
  code: FaultCode,
  sentence: string,
  reason: string | undefined,
  cause: unknown,
  field?: string,
  retryAfterSeconds?: number,
): Fault {
  const error = code === 'timers_failed' ? 'timers_unavailable' : code;
  const extra = { ...(reason === undefined ? {} : { reason }), message: sentence };
  return new Fault(code, { message: error, code: error, field, retryAfterSeconds, cause, extra });
}
