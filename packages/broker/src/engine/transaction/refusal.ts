import type { Refusal, RefusalReason } from './types.ts';

/** Ends a transaction: what it has written so far is rolled back. */
export class Rollback extends Error {
  /** Null: nothing is wrong with the request; what was remembered of its lanes has been corrected, do it again. */
  readonly refusal: Refusal | null;

  constructor(refusal: Refusal | null) {
    super(refusal?.error ?? 'the transaction is to be repeated');
    this.name = 'Rollback';
    this.refusal = refusal;
  }
}

export function refuse(
  reason: RefusalReason,
  error: string,
  failedIndex: number | null,
  kv?: Refusal['kv'],
): Rollback {
  return new Rollback({ reason, error, failedIndex, ...(kv === undefined ? {} : { kv }) });
}
