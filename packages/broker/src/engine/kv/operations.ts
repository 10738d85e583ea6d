/**
 * KV as the engine's face has it. Values, deltas and bounds are JSON text and never parsed: a number keeps its digits.
 */
import type { TenantId } from '../types.ts';

/** `connector`: the connectors of this process, which own the reserved namespace and are bound by no plan. */
export type Origin = 'client' | 'connector';

/** How long a created key lives, in whole seconds; null: for ever. */
export type Life = number | null;

export type KvOperation =
  | { op: 'get'; ns: string; key: string }
  | { op: 'getMany'; ns: string; keys: readonly string[] }
  | {
      op: 'getPrefix';
      ns: string;
      /** Literal, not empty. */
      prefix: string;
      /** Exclusive. */
      after: string | null;
      /** Null: 100. Clamped to what a page may have. */
      limit: number | null;
      keysOnly: boolean;
    }
  | {
      op: 'put';
      ns: string;
      key: string;
      value: string;
      life: Life;
      /** Null: no condition. 0: nothing lives there. Else the version that lives there. */
      expect: number | null;
      /** Not applied: the whole call is undone. */
      required: boolean;
    }
  | { op: 'putIfAbsent'; ns: string; key: string; value: string; life: Life; required: boolean }
  | { op: 'delete'; ns: string; key: string; expect: number | null; required: boolean }
  | {
      op: 'incr';
      ns: string;
      key: string;
      delta: string;
      /** Of a key that is created; one that lives keeps its own. */
      life: Life;
      min: string | null;
      max: string | null;
      required: boolean;
    };

export interface KvEntry {
  key: string;
  /** JSON text; null with keysOnly. */
  value: string | null;
  version: number;
  expiresAtMicros: number | null;
  updatedAtMicros: number;
}

export type KvReason = 'exists' | 'absent' | 'version' | 'limit' | 'type';

export type KvResult =
  | { op: 'get'; key: string; entry: KvEntry | null }
  /** `missing` in the order of the request; a key that did not fit is in neither list. */
  | { op: 'getMany'; rows: KvEntry[]; missing: string[]; truncated: boolean }
  | { op: 'getPrefix'; rows: KvEntry[]; truncated: boolean; nextAfter: string | null }
  | {
      op: 'put' | 'putIfAbsent' | 'delete' | 'incr';
      key: string;
      applied: boolean;
      /**
       * JSON text. Applied: what was written, or deleted. Not applied: what lives there. Null: nothing.
       */
      value: string | null;
      /** Applied: the new one, or the deleted one's. Not applied: of what lives there. 0: nothing. */
      version: number;
      reason: KvReason | null;
    };

/** A required condition was lost: nothing was written. */
export interface KvPrecondition {
  failedIndex: number;
  reason: KvReason;
  /** Of what lives there; 0 and null: nothing does. */
  version: number;
  value: string | null;
}

export type KvAnswer = { ok: true; results: KvResult[] } | { ok: false; precondition: KvPrecondition };

export interface KvRequest {
  tenant: TenantId;
  origin: Origin;
  operations: readonly KvOperation[];
}

export interface KvListRequest {
  tenant: TenantId;
  namespace: string;
  prefix: string;
  after: string | null;
  limit: number | null;
  keysOnly: boolean;
  includeExpired: boolean;
}

export interface KvListing {
  rows: (KvEntry & { expired: boolean })[];
  truncated: boolean;
  nextAfter: string | null;
  /** Of the values. */
  bytes: number;
}

export interface KvFace {
  /**
   * Applies a whole call, or nothing of it. Throws EngineError: `refused` with the codes `kv_bad_request`,
   * `payload_too_large`, `kv_quota_exceeded`, `feature_gated`, `kv_reserved_namespace` (and a finer `reason`);
   * `overloaded` `rate_limited`; `unavailable` `kv_disabled` and `kv_unavailable`; `in_doubt`.
   */
  kv(request: KvRequest): Promise<KvAnswer>;
  /** In byte order; counts include expired keys that are not swept yet. */
  kvNamespaces(tenant: TenantId): Promise<{ namespace: string; keys: number }[]>;
  kvList(request: KvListRequest): Promise<KvListing>;
}

export function writes(operation: KvOperation): boolean {
  return operation.op !== 'get' && operation.op !== 'getMany' && operation.op !== 'getPrefix';
}
