import { type AckGroupRow, type HandOffRow, OUTCOME } from '../../store/ack.ts';
import { StoreError } from '../../store/errors.ts';
import type { AckVerdict } from '../types.ts';
import type { AckGroup } from './groups.ts';

/** The sentences of the wire. Clients match on some of them. */
export const ACK_ERROR = {
  consumerNotFound: 'consumer not found',
  lease: 'invalid or expired lease',
  committed: 'already committed: the cursor moved past this message before this ack',
  unresolvable:
    'unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers',
  notOwned: 'partition not owned by tenant',
  flushFailed: 'ack flush failed; lease will expire and redeliver',
  pool: 'pool',
} as const;

/** What an item hears when the database did not answer. */
export function failureText(error: unknown): string {
  return error instanceof StoreError && error.code === 'pool' ? ACK_ERROR.pool : ACK_ERROR.flushFailed;
}

export function failed(error: string): AckVerdict {
  return { success: false, error, leaseReleased: false, dlq: false, noop: false };
}

/** What became of the dead letter that a decision asked for: the procedure's answer, or why it was not made. */
export type HandOff = { row: HandOffRow } | { error: string };

/**
 * One verdict an item of `group`. `handOff` is there iff the decision asked for one. `tenancy`: several tenants share
 * the database, and a partition that does not exist must look like one of another tenant.
 */
export function groupVerdicts(
  group: AckGroup,
  row: AckGroupRow,
  handOff: HandOff | null,
  tenancy: boolean,
): AckVerdict[] {
  const refusal = refusalText(row.outcome, tenancy);
  if (refusal !== null) return group.items.map(() => failed(refusal));
  const handed =
    handOff !== null && 'row' in handOff && handOff.row.outcome === OUTCOME.decided ? handOff.row : null;
  const handOffError = handOff === null || handed !== null ? null : handOffText(handOff);
  // A prefix and a dead letter each skip their own.
  const conflated = row.conflated === null ? null : row.conflated + (handed?.conflated ?? 0);
  return group.items.map((item, i) => {
    const at = row.offsets[i]!;
    const completed = item.status === 'completed';
    const verdict: AckVerdict = {
      success: true,
      error: null,
      leaseReleased: row.released || handed !== null,
      dlq: false,
      noop: false,
    };
    if (conflated !== null) verdict.conflated = conflated;
    if (at < 0) {
      if (!row.below[i]) return { ...verdict, success: false, error: ACK_ERROR.unresolvable };
      if (!completed) return { ...verdict, success: false, error: ACK_ERROR.committed };
      return { ...verdict, noop: true };
    }
    if (at !== row.signal) return verdict;
    if (row.outcome === OUTCOME.dropped) return { ...verdict, dropped: true };
    if (handed !== null) return { ...verdict, dlq: true };
    return handOffError === null || completed ? verdict : { ...verdict, success: false, error: handOffError };
  });
}

/** Why a group was not decided at all; null: it was. */
export function refusalText(outcome: number, tenancy: boolean): string | null {
  switch (outcome) {
    case OUTCOME.lease:
      return ACK_ERROR.lease;
    case OUTCOME.noConsumer:
      return ACK_ERROR.consumerNotFound;
    case OUTCOME.foreignPartition:
      return ACK_ERROR.notOwned;
    case OUTCOME.noPartition:
      return tenancy ? ACK_ERROR.notOwned : ACK_ERROR.consumerNotFound;
    default:
      return null;
  }
}

function handOffText(handOff: HandOff): string {
  if ('error' in handOff) return handOff.error;
  switch (handOff.row.outcome) {
    case OUTCOME.committed:
      return ACK_ERROR.committed;
    case OUTCOME.noConsumer:
      return ACK_ERROR.consumerNotFound;
    default:
      return ACK_ERROR.lease;
  }
}
