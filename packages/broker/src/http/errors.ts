/**
 * Every way in which the wire says no: one table of code, status and sentence. A handler throws a Fault; whatever
 * else comes flying is turned into one by `faultOf`, so that no answer is ever improvised.
 */
import { EngineError } from '../engine/errors.ts';
import { BodyFault } from '../log/json/fault.ts';

interface FaultKind {
  readonly status: number;
  /** What is said when the thrower adds nothing of its own. */
  readonly sentence: string;
}

export const FAULTS = {
  // What the transport refuses before a handler runs.
  malformed_http: { status: 400, sentence: 'the request is not well-formed HTTP/1.1' },
  request_timeout: { status: 408, sentence: 'the request did not arrive in time; send it again' },
  body_too_large: { status: 413, sentence: 'the request body is too large' },
  unsupported_encoding: {
    status: 415,
    sentence: 'a compressed request body is not supported: send the JSON without Content-Encoding',
  },
  expectation_failed: { status: 417, sentence: 'only "Expect: 100-continue" is supported' },
  headers_too_large: { status: 431, sentence: 'the request line and headers are too large' },
  no_such_route: { status: 404, sentence: 'Not Found' },
  method_not_allowed: { status: 405, sentence: 'Method Not Allowed' },
  malformed_url: { status: 400, sentence: 'the URL holds a malformed percent escape or invalid UTF-8' },

  // What the caller got wrong.
  bad_body: { status: 400, sentence: 'bad body' },
  bad_query: { status: 400, sentence: 'bad query parameter' },
  bad_name: { status: 400, sentence: 'bad name' },
  bad_mode: { status: 400, sentence: 'mode must be "merge" or "replace"' },
  conflation_needs_group: { status: 400, sentence: 'conflation=true needs a consumerGroup' },
  conflation_with_auto_ack: { status: 400, sentence: 'conflation=true cannot be combined with autoAck=true' },
  scope_missing: { status: 400, sentence: 'namespace or task is required' },
  queue_not_found: { status: 404, sentence: 'Queue not found' },
  partition_not_found: { status: 404, sentence: 'Partition not found' },
  message_not_found: { status: 404, sentence: 'Message not found' },
  bad_tenant: { status: 400, sentence: 'invalid x-queen-tenant header (must be a UUID)' },

  // Who the caller is, and what that one may do.
  auth_required: { status: 401, sentence: 'Authentication required' },
  token_header: { status: 401, sentence: 'Bad token header' },
  token_algorithm: { status: 401, sentence: 'Unsupported token algorithm' },
  token_signature: { status: 401, sentence: 'Invalid token signature' },
  token_expired: { status: 401, sentence: 'Token has expired' },
  token_not_yet_valid: { status: 401, sentence: 'Token not yet valid' },
  token_issued_in_future: { status: 401, sentence: 'Token issued in the future' },
  token_issuer: { status: 401, sentence: 'Invalid token issuer' },
  token_audience: { status: 401, sentence: 'Invalid token audience' },
  token_key_unknown: { status: 401, sentence: 'Unknown key ID' },
  forbidden: { status: 403, sentence: 'Insufficient permissions' },
  cross_site: {
    status: 403,
    sentence:
      'a page of another site may not use a broker without tokens (Sec-Fetch-Site: cross-site): turn them on with JWT_ENABLED',
  },

  // KV.
  kv_bad_request: { status: 400, sentence: 'kv_bad_request' },
  payload_too_large: { status: 413, sentence: 'payload_too_large' },
  kv_quota_exceeded: { status: 403, sentence: 'kv_quota_exceeded' },
  feature_gated: { status: 403, sentence: 'feature_gated' },
  kv_reserved_namespace: { status: 403, sentence: 'kv_reserved_namespace' },
  rate_limited: { status: 429, sentence: 'rate_limited' },
  kv_disabled: { status: 503, sentence: 'kv_disabled' },
  kv_unavailable: { status: 503, sentence: 'kv_unavailable' },
  kv_failed: { status: 500, sentence: 'kv_unavailable' },

  // Timers.
  timers_bad_request: { status: 400, sentence: 'timers_bad_request' },
  timer_horizon_exceeded: { status: 403, sentence: 'timer_horizon_exceeded' },
  timers_quota_exceeded: { status: 403, sentence: 'timers_quota_exceeded' },
  timers_disabled: { status: 503, sentence: 'timers_disabled' },
  timers_unavailable: { status: 503, sentence: 'timers_unavailable' },
  timers_failed: { status: 500, sentence: 'timers_unavailable' },

  // Connectors.
  bad_request: { status: 400, sentence: 'bad request' },
  bad_connector_name: { status: 400, sentence: 'bad connector name' },
  invalid_connector: { status: 400, sentence: 'the connector document is not valid' },
  egress_refused: { status: 400, sentence: 'the host must not be reached from here' },
  encryption_required: { status: 400, sentence: 'the broker has no key to seal a password with' },
  not_a_source: { status: 400, sentence: 'the connector is not a source' },
  connector_not_found: { status: 404, sentence: 'there is no such connector' },
  kind_change: { status: 409, sentence: 'a connector cannot change its kind' },
  conflict: { status: 409, sentence: 'somebody else has changed it meanwhile' },
  deleting: { status: 409, sentence: 'the connector is being deleted' },
  unreadable_document: { status: 409, sentence: 'the stored document cannot be read' },
  document_too_large: { status: 413, sentence: 'the stored document is too large' },
  seal_failed: { status: 500, sentence: 'the password could not be sealed' },

  // What went wrong here.
  overloaded: { status: 429, sentence: 'too much is in flight, try again shortly' },
  pool: { status: 500, sentence: 'pool' },
  in_doubt: { status: 500, sentence: 'the outcome is unknown: look before you repeat' },
  unavailable: { status: 500, sentence: 'the database did not carry this out; nothing was written' },
  auth_secret_missing: { status: 500, sentence: 'HS secret not configured' },
  auth_rsa_key_bad: { status: 500, sentence: 'invalid RSA public key PEM' },
  auth_ed_key_bad: { status: 500, sentence: 'invalid Ed public key PEM' },
  frame_decode_failed: { status: 500, sentence: 'frame decode failed' },
  maintenance: { status: 503, sentence: 'pushes are paused for maintenance, try again when they are back' },
  internal: { status: 500, sentence: 'internal error' },
} as const satisfies Record<string, FaultKind>;

export type FaultCode = keyof typeof FAULTS;

interface FaultExtra {
  message?: string | undefined;
  field?: string | undefined;
  retryAfterSeconds?: number | undefined;
  cause?: unknown;
  /** More keys for the envelope, in front of nothing that it holds already. */
  extra?: Record<string, unknown> | undefined;
  /** Another code than the table's, when the engine has a finer one. */
  code?: string | undefined;
}

export class Fault extends Error {
  readonly kind: FaultCode;
  readonly code: string;
  readonly status: number;
  readonly field: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly extra: Record<string, unknown> | undefined;

  constructor(kind: FaultCode, more: FaultExtra = {}) {
    super(
      more.message ?? FAULTS[kind].sentence,
      more.cause === undefined ? undefined : { cause: more.cause },
    );
    this.name = 'Fault';
    this.kind = kind;
    this.code = more.code ?? kind;
    this.status = FAULTS[kind].status;
    this.field = more.field;
    this.retryAfterSeconds = more.retryAfterSeconds;
    this.extra = more.extra;
  }

  /** The same with more keys in the envelope. */
  with(extra: Record<string, unknown>): Fault {
    const { kind, message, field, retryAfterSeconds, cause, code } = this;
    return new Fault(kind, {
      message,
      field,
      retryAfterSeconds,
      cause,
      code,
      extra: { ...this.extra, ...extra },
    });
  }

  /** The JSON envelope. */
  envelope(): Record<string, unknown> {
    const envelope: Record<string, unknown> = { error: this.message, code: this.code };
    if (this.field !== undefined) envelope.field = this.field;
    return this.extra === undefined ? envelope : { ...envelope, ...this.extra };
  }
}

export function badBody(detail: string, field?: string): Fault {
  return new Fault('bad_body', { message: `bad body: ${detail}`, field: field === '' ? undefined : field });
}

export function badQuery(name: string, detail: string): Fault {
  return new Fault('bad_query', { message: `bad query parameter ${name}: ${detail}`, field: name });
}

/** How a route words a failure of the engine. */
export interface Wording {
  /** The text of a 500 that is not about connections; the detail of the failure is its argument. */
  failed: (detail: string) => string;
}

const PLAIN: Wording = { failed: (detail) => detail };

/** Turns anything thrown into the Fault to answer. */
export function faultOf(error: unknown, wording: Wording = PLAIN): Fault {
  if (error instanceof Fault) return error;
  if (error instanceof BodyFault) return badBody(error.message, error.field);
  if (!(error instanceof EngineError)) return new Fault('internal', { cause: error });
  switch (error.kind) {
    case 'refused':
      return refusedFault(error, wording);
    case 'overloaded':
      return new Fault('overloaded', {
        message: error.message,
        retryAfterSeconds: error.retryAfterSeconds ?? 1,
      });
    case 'unavailable':
      if (error.code === 'pool') return new Fault('pool', { cause: error });
      return new Fault('unavailable', {
        message: wording.failed(error.message),
        code: error.code,
        cause: error,
      });
    case 'in_doubt':
      return new Fault('in_doubt', { message: wording.failed(error.message), cause: error });
  }
}

/** Refusals that no caller can do anything about: what is stored, or what we sent, is at fault. */
const OURS: ReadonlySet<string> = new Set(['database_error', 'corrupt_segment']);

/** The checks in front of the engine see to it that no input leads to one of ours. */
function refusedFault(error: EngineError, wording: Wording): Fault {
  const { message, code, field } = error;
  if (OURS.has(code)) return new Fault('internal', { message: wording.failed(message), code, cause: error });
  return new Fault('bad_body', { message, field, code });
}
