/**
 * What another part of the engine takes along in a transaction: its rows are locked after the KV rows and before anything of
 * the log, as a whole, and commit or vanish with the rest.
 */
import type { Queryable } from '../../store/database.ts';
import type { Origin } from '../kv/operations.ts';
import type { TimerOperation, TimerResult } from '../timers/face.ts';
import type { TenantId } from '../types.ts';
import type { RefusalReason } from './types.ts';

export interface RiderRefusal {
  reason: RefusalReason;
  error: string;
  /** Within the rider's own operations; null: none in particular. */
  index: number | null;
}

export type RiderOutcome =
  | { refusal: null; results: readonly TimerResult[] }
  | { refusal: RiderRefusal; results: null };

export interface Rider {
  /**
   * Does its part on the open transaction. It may lock rows of its own only, in their order, and swallows no error. After
   * a rollback it may be called again, on another transaction.
   */
  run(tx: Queryable): Promise<RiderOutcome>;
  /** The transaction in which it ran last is committed. */
  committed(): void;
}

export interface RiderRequest {
  tenant: TenantId;
  origin: Origin;
  producerSub: string | null;
  operations: readonly TimerOperation[];
}

/** Judges the operations before anything is written. Throws EngineError. */
export type PrepareRider = (request: RiderRequest) => Promise<Rider>;
