/** Many dead letters are replayed one after the other: the broker moves each in a transaction of its own. */
import { ApiError } from './client.ts';
import {
  type DeadLetter,
  type DeadLetterFilter,
  type Destination,
  listDeadLetters,
  replay,
} from './dead_letters.ts';

export interface ReplayTally {
  moved: number;
  /** Somebody else replayed or removed them meanwhile. */
  gone: number;
  /** They are dead letters still. */
  kept: number;
  /** Why, the first reason first. */
  reasons: readonly { code: string; message: string; count: number }[];
}

type Which =
  | { kind: 'some'; letters: readonly Pick<DeadLetter, 'id'>[] }
  | { kind: 'matching'; filter: DeadLetterFilter };

const PAGE = 100;

/**
 * The oldest first, so that messages of a partition keep the order in which they failed. What one dead letter is refused
 * for keeps it and the next one's turn comes; what would stop all of them (no answer, no right, a pause) rejects. An abort
 * ends it after the one that is under way.
 */
export async function replayMatching(
  which: Which,
  to: Destination,
  onTally: (tally: ReplayTally) => void,
  signal: AbortSignal,
): Promise<ReplayTally> {
  let tally: ReplayTally = { moved: 0, gone: 0, kept: 0, reasons: [] };
  const letters =
    which.kind === 'some'
      ? [...which.letters].reverse()
      : oldestFirst(which.filter, signal, () => tally.kept);
  for await (const { id } of letters) {
    if (signal.aborted) break;
    tally = await one(id, to, tally);
    onTally(tally);
  }
  return tally;
}

async function one(id: string, to: Destination, tally: ReplayTally): Promise<ReplayTally> {
  try {
    const { result } = await replay(id, to);
    if (result === 'moved') return { ...tally, moved: tally.moved + 1 };
    return kept(tally, 'duplicate', 'The destination holds it already');
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 404) return { ...tally, gone: tally.gone + 1 };
    const others = [0, 401, 403, 429];
    if (others.includes(error.status) || error.status >= 500) throw error;
    return kept(tally, error.code, error.message);
  }
}

function kept(tally: ReplayTally, code: string, message: string): ReplayTally {
  const known = tally.reasons.some((each) => each.code === code);
  const reasons = known
    ? tally.reasons.map((each) => (each.code === code ? { ...each, count: each.count + 1 } : each))
    : [...tally.reasons, { code, message, count: 1 }];
  return { ...tally, kept: tally.kept + 1, reasons };
}

/** Page by page from the end of the list, where those lie that are kept; without those that fail meanwhile. */
async function* oldestFirst(
  filter: DeadLetterFilter,
  signal: AbortSignal,
  keptSoFar: () => number,
): AsyncGenerator<Pick<DeadLetter, 'id'>> {
  const newest = await listDeadLetters(filter, { limit: 1, offset: 0 }, signal);
  const bounded = { ...filter, to: newest.messages[0]?.failedAt ?? null };
  const seen = new Set<string>();
  let { total } = newest;
  while (total > keptSoFar()) {
    const left = total - keptSoFar();
    const limit = Math.min(PAGE, left);
    const page = await listDeadLetters(bounded, { limit, offset: left - limit }, signal);
    const unseen = page.messages.filter(({ id }) => !seen.has(id)).reverse();
    if (unseen.length === 0 && page.total >= total) return;
    for (const letter of unseen) {
      seen.add(letter.id);
      yield letter;
    }
    total = (await listDeadLetters(bounded, { limit: 1, offset: 0 }, signal)).total;
  }
}
