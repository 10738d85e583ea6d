/** Why a connector does not run, by a code that its status shows, and when it is worth another try. */

/**
 * `backoff`: 1 s, doubling to 30 s. `later`: look again after 30 s, somebody has to do something first. `document`: only a
 * change of the document helps. `never`: it was asked to stop.
 */
export type Retry = 'backoff' | 'later' | 'document' | 'never';

export type FaultCode = keyof typeof RETRY;

const RETRY = {
  config: 'document',
  unseal: 'document',
  io: 'backoff',
  /** Any answer of a server without a code of its own; a passing SQLSTATE says `backoff` for itself. */
  postgres: 'later',
  queen: 'backoff',
  queen_refused: 'later',
  fenced: 'backoff',
  stopped: 'never',
  auth_method: 'later',
  egress: 'later',
  version: 'later',
  wal_level: 'later',
  not_primary: 'backoff',
  privilege: 'later',
  table_missing: 'later',
  replica_identity: 'later',
  partition_by: 'later',
  unsupported_table: 'later',
  publication: 'later',
  slot_lost: 'later',
  slot_invalidated: 'later',
  slot_mismatch: 'later',
  slot_changed: 'later',
  slot_ahead: 'later',
  system_changed: 'later',
  pointer_corrupt: 'later',
  relation_changed: 'later',
  encoding: 'later',
  duplicate: 'later',
  no_key: 'later',
  progress_table: 'later',
  statement: 'later',
  metadata_column: 'later',
  progress_ahead: 'later',
  panic: 'backoff',
} as const satisfies Record<string, Retry>;

export class ConnectorFault extends Error {
  readonly code: FaultCode;
  readonly retry: Retry;
  /** What the server said, where it was one. */
  readonly sqlState: string | null;

  /** `message`: a sentence that names the fix; it must hold neither a password nor a URL. */
  constructor(
    code: FaultCode,
    message: string,
    options: { retry?: Retry; sqlState?: string | null; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'ConnectorFault';
    this.code = code;
    this.retry = options.retry ?? RETRY[code];
    this.sqlState = options.sqlState ?? null;
  }
}
