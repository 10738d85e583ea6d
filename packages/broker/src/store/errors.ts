/**
 * What can go wrong between a statement and its answer, sorted by the only question that matters to a
 * caller: has something been written?
 *
 * - `refused`: the server answered that the statement itself is wrong. Nothing was written, the same call
 *   fails again.
 * - `unavailable`: nothing was written and the same call may be repeated.
 * - `in_doubt`: the statement was sent, may have committed, and no answer came.
 *
 * When in doubt, in_doubt: the other two are claims, and each is made only where it can be proved.
 */
export type StoreErrorKind = 'refused' | 'unavailable' | 'in_doubt';
/** `pool`: no connection could be had. `timeout`: the statement's time was up. `connection`: it was lost. `sql`: the server answered with an error. */
export type StoreErrorCode = 'pool' | 'timeout' | 'connection' | 'sql';

export class StoreError extends Error {
  readonly kind: StoreErrorKind;
  readonly code: StoreErrorCode;
  /** The server's five characters, when it answered. */
  readonly sqlState: string | null;
  /** Detail, hint and context of the server's answer, for the log. May quote data. */
  readonly detail: string | null;
  /** Waiting does not heal it: a wrong password, certificate, database. Somebody has to change a setting. */
  readonly lasting: boolean;

  constructor(
    kind: StoreErrorKind,
    code: StoreErrorCode,
    message: string,
    extra: { sqlState?: string | null; detail?: string | null; lasting?: boolean; cause?: unknown } = {},
  ) {
    super(message, extra.cause === undefined ? undefined : { cause: extra.cause });
    this.name = 'StoreError';
    this.kind = kind;
    this.code = code;
    this.sqlState = extra.sqlState ?? null;
    this.detail = extra.detail ?? null;
    this.lasting = extra.lasting ?? false;
  }
}

/**
 * The server cannot carry Queen, and no retry changes that; the message is a sentence for the operator.
 * `requirement` is stable and machine readable: `server_too_old`, `server_encoding`, `pooler_mode`.
 */
export class ServerRequirementError extends StoreError {
  readonly requirement: string;

  constructor(requirement: string, message: string) {
    super('refused', 'connection', message, { lasting: true });
    this.name = 'ServerRequirementError';
    this.requirement = requirement;
  }
}

/** An ErrorResponse of the server, as pg hands it out. */
export interface ServerError extends Error {
  code: string;
  /** ERROR, FATAL or PANIC, never translated. */
  severity: string | undefined;
  detail?: string | undefined;
  hint?: string | undefined;
  where?: string | undefined;
}

/** SQLSTATE is five of [0-9A-Z]; the codes of socket errors (ECONNRESET) are never that short. */
export function isServerError(error: unknown): error is ServerError {
  return (
    error instanceof Error && 'severity' in error && /^[0-9A-Z]{5}$/.test(String((error as ServerError).code))
  );
}

/** The statement was rolled back for a passing reason: conflict, lock, resources, cancellation, read-only server. */
export function isPassing(sqlState: string): boolean {
  return (
    sqlState === '40001' || // serialization failure
    sqlState === '40P01' || // deadlock
    sqlState === '55P03' || // lock not available
    sqlState === '57014' || // cancelled
    sqlState === '25006' || // the server became read-only: another host is the one to ask
    sqlState === '26000' || // the prepared statement is gone
    sqlState.startsWith('53') || // resources: disk full, out of memory, too many connections
    sqlState.startsWith('57P') || // shutting down, starting up
    (sqlState.startsWith('08') && sqlState !== '08P01') || // a connection of the server's own, not a wrong message
    sqlState.startsWith('58') // input/output error of the server
  );
}

/** The server's answer to a statement that was rolled back, as a StoreError. */
export function fromServer(error: ServerError): StoreError {
  const passing = isPassing(error.code) || isStalePlan(error);
  const detail = [error.detail, error.hint, error.where].filter((part) => part !== undefined).join('; ');
  return new StoreError(
    passing ? 'unavailable' : 'refused',
    error.code === '57014' ? 'timeout' : 'sql',
    error.message,
    {
      sqlState: error.code,
      detail: detail === '' ? null : detail,
      cause: error,
    },
  );
}

/** Whether a failure to connect is of the lasting sort: rejected by the server, or no trust in its certificate. */
export function isLastingRefusal(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // 28: authentication. 3D: no such database.
  if (isServerError(error)) return /^(28|3D)/.test(error.code);
  const code = String((error as NodeJS.ErrnoException).code ?? '');
  return /^(SASL|The server does not support SSL)/.test(error.message) || /CERT|^ERR_TLS/.test(code);
}

/** A prepared statement that was overtaken by a change of the schema. Raised before anything is executed. */
export function isStalePlan(error: ServerError): boolean {
  return error.code === '0A000' && error.message.includes('cached plan');
}
