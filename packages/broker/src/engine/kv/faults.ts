/** The refusals of KV: a code that the wire names, and a finer reason beneath it. */
import { EngineError } from '../errors.ts';

export function kvFault(reason: string, message: string, field?: string): EngineError {
  return new EngineError('refused', 'kv_bad_request', message, more(reason, field));
}

export function kvTooLarge(
  reason: 'kv_key_too_large' | 'kv_value_too_large',
  message: string,
  field?: string,
) {
  return new EngineError('refused', 'payload_too_large', message, more(reason, field));
}

export function kvRefused(
  code: 'kv_quota_exceeded' | 'feature_gated' | 'kv_reserved_namespace',
  message: string,
  field?: string,
): EngineError {
  return new EngineError('refused', code, message, more(code, field));
}

/** The switch is off: nothing was done, and nothing will be until somebody turns it on. */
export function kvDisabled(): EngineError {
  return new EngineError('unavailable', 'kv_disabled', 'KV is switched off on this cluster', {
    retryAfterSeconds: 5,
  });
}

function more(reason: string, field: string | undefined): { reason: string; field?: string } {
  return field === undefined ? { reason } : { reason, field };
}
