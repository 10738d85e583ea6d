/**
 * One decision for each group of acks, in at most two statements, and the dead letter that a decision may ask for.
 * Whoever calls decides where it runs: the ack path outside any transaction, others on a transaction of theirs.
 */
import { hashTransactionIds } from '../../log/hash.ts';
import { formatUuid } from '../../log/uuid.ts';
import {
  ACK_CODE,
  type AckGroupArgs,
  type AckGroupRow,
  CAUTION,
  type HandOffRow,
  logAck,
  logAckHandOff,
  OUTCOME,
} from '../../store/ack.ts';
import { type AckGroup, storableText } from './groups.ts';
import { locate, messageAt, type Run, UnreadableSegment } from './segments.ts';

export interface Decision {
  readonly group: AckGroup;
  readonly row: AckGroupRow;
}

/** What a search of the leased segments did. */
export interface Search {
  group: AckGroup;
  found: number;
  missing: number;
}

/**
 * Decides groups that name different consumer rows. Items that the sidecar cannot tell, of groups that hold a live
 * lease, are looked for in the leased segments first: an unresolved failure must not be overtaken by a resolved
 * completion behind it. A group whose segments cannot be read is reported to `unreadable` and has no decision.
 */
export async function decide(
  run: Run,
  groups: readonly AckGroup[],
  report: { searched(search: Search): void; unreadable(group: AckGroup, error: UnreadableSegment): void },
): Promise<Decision[]> {
  const args = groups.map((group) => argsOf(group));
  const rows = await run((db) => logAck(db, args, CAUTION.defer));
  return decideFrom(run, groups, rows, report);
}

/** The same from the answers that the procedure gave with {@link CAUTION.defer}. */
export async function decideFrom(
  run: Run,
  groups: readonly AckGroup[],
  rows: readonly AckGroupRow[],
  report: { searched(search: Search): void; unreadable(group: AckGroup, error: UnreadableSegment): void },
): Promise<Decision[]> {
  const decisions: Decision[] = [];
  for (const [i, group] of groups.entries()) {
    const row = rows[i]!;
    if (row.outcome !== OUTCOME.unresolved) {
      decisions.push({ group, row });
      continue;
    }
    try {
      decisions.push({ group, row: await decideBySegments(run, group, argsOf(group), row, report.searched) });
    } catch (error) {
      if (!(error instanceof UnreadableSegment)) throw error;
      report.unreadable(group, error);
    }
  }
  return decisions;
}

/** Positions from the leased segments, then the procedure again, which checks everything anew. */
async function decideBySegments(
  run: Run,
  group: AckGroup,
  args: AckGroupArgs,
  row: AckGroupRow,
  searched: (search: Search) => void,
): Promise<AckGroupRow> {
  const open = group.items.filter((_, i) => row.offsets[i]! < 0 && !row.below[i]);
  const wanted = new Set(open.map((item) => item.transactionId));
  const newestFirst = row.conflated !== null;
  const found = await locate(run, group.partitionId, row.before + 1, row.batchEnd ?? -1, wanted, newestFirst);
  searched({ group, found: found.size, missing: wanted.size - found.size });
  const offsets = group.items.map((item, i) => {
    if (row.offsets[i]! >= 0 || row.below[i]) return args.offsets[i]!;
    return item.offset ?? found.get(item.transactionId) ?? -1;
  });
  const [second] = await run((db) => logAck(db, [{ ...args, offsets }], CAUTION.none));
  return second!;
}

export function argsOf(group: AckGroup): AckGroupArgs {
  const { tenant, partitionId, lease, items } = group;
  const offsets = items.map((item) => item.offset ?? -1);
  return {
    tenant,
    partitionId,
    group: group.group,
    lease,
    codes: items.map((item) => ACK_CODE[item.status]),
    offsets,
    hashes: offsets.some((offset) => offset < 0)
      ? hashTransactionIds(items.map((item) => item.transactionId))
      : null,
  };
}

/** Reads the message that the decision sent to the dead letters and hands it off. Throws UnreadableSegment. */
export async function handOff(run: Run, { group, row }: Decision): Promise<HandOffRow> {
  const offset = row.signal!;
  const frame = await messageAt(run, group.partitionId, offset);
  const named = group.items[row.offsets.indexOf(offset)]!;
  return run((db) =>
    logAckHandOff(db, {
      tenant: group.tenant,
      partitionId: group.partitionId,
      group: group.group,
      holder: row.holder,
      fenced: group.lease !== '',
      offset,
      messageId: frame === null ? null : formatUuid(frame.messageId),
      transactionId: storableText(frame?.transactionId ?? named.transactionId),
      payload: frame?.payload ?? null,
      error: storableText(reasonOf(group, row)),
    }),
  );
}

/** Why: the error of the item that signalled, else the first error of the group. */
function reasonOf(group: AckGroup, row: AckGroupRow): string {
  let strongest = -1;
  let own: string | null = null;
  group.items.forEach((item, i) => {
    const code = ACK_CODE[item.status];
    if (row.offsets[i] !== row.signal || code < strongest) return;
    if (code > strongest) own = null;
    strongest = code;
    own ??= item.error || null;
  });
  return own ?? group.items.find((item) => item.error)?.error ?? 'Retries exhausted';
}
