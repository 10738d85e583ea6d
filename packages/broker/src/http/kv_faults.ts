import { EngineError } from '../engine/errors.ts';
import { ClientGone } from './body.ts';
import { Fault, type FaultCode } from './errors.ts';

/** The codes of the engine that the wire has a status for. */
const CODES: ReadonlySet<string> = new Set<FaultCode>([
  'kv_bad_request',
  'kv_quota_exceeded',
  'feature_gated',
  'kv_reserved_namespace',
  'payload_too_large',
  'rate_limited',
  'kv_disabled',
  'kv_unavailable',
]);

/** Anything thrown by a KV route. `error` of the answer is always one of the codes, never a sentence: clients go by it. */
export function kvFaultOf(error: unknown): Fault | ClientGone {
  if (error instanceof Fault || error instanceof ClientGone) return error;
  if (!(error instanceof EngineError)) return coded('kv_failed', 'internal error', undefined, error);
  const { code, reason, message, field, retryAfterSeconds } = error;
  if (CODES.has(code)) return coded(code as FaultCode, message, reason, error, field, retryAfterSeconds);
  const why = error.kind === 'in_doubt' ? 'in_doubt' : code;
  return coded('kv_failed', message, why, error, field);
}

function coded(
  code: FaultCode,
  sentence: string,
  reason: string | undefined,
  cause: unknown,
  field?: string,
  retryAfterSeconds?: number,
): Fault {
  const error = code === 'kv_failed' ? 'kv_unavailable' : code;
  const extra = { ...(reason === undefined ? {} : { reason }), message: sentence };
  return new Fault(code, { message: error, code: error, field, retryAfterSeconds, cause, extra });
}
