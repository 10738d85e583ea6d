/** What became of a message, derived from cursors, leases and dead letters: no message carries a status. */
import { QUEUE_MODE_GROUP } from '../types.ts';
import type { ConsumptionMode, MessageStatus } from './face.ts';

/** A group's cursor on one partition. */
export interface Cursor {
  group: string;
  committed: number;
  /** End of the batch that is leased now; null: none. */
  leaseUpto: number | null;
  leaseExpiresAtMicros: number | null;
}

/** What decides for a partition as a whole. */
export interface Consumption {
  /** The lowest cursor that counts; null: nobody consumes. */
  done: number | null;
  /** Live leases of those who count, in step: the batch is `after` < offset <= `upto`. */
  leaseAfter: readonly number[] | null;
  leaseUpto: readonly number[] | null;
}

/** Dead for one group is dead; done is what all who count have done; else it matters whether anybody holds it. */
export function statusOf(offset: number, facts: Consumption, dead: boolean): MessageStatus {
  if (dead) return 'dead_letter';
  if (facts.done !== null && offset <= facts.done) return 'completed';
  const { leaseAfter, leaseUpto } = facts;
  for (let i = 0; leaseAfter !== null && leaseUpto !== null && i < leaseAfter.length; i++) {
    if (offset > leaseAfter[i]! && offset <= leaseUpto[i]!) return 'processing';
  }
  return 'pending';
}

export function statusFor(cursor: Cursor, offset: number, dead: boolean): MessageStatus {
  if (dead) return 'dead_letter';
  if (offset <= cursor.committed) return 'completed';
  return holds(cursor, offset) ? 'processing' : 'pending';
}

/** The group has the message in a live lease. */
export function holds(cursor: Cursor, offset: number): boolean {
  return cursor.leaseUpto !== null && offset > cursor.committed && offset <= cursor.leaseUpto;
}

/**
 * Which cursors count: the named groups; queue mode only on a queue without any, since a single debugging pop must not
 * pin a backlog for ever.
 */
export function consumptionOf(cursors: readonly Cursor[], queueHasNamedGroup: boolean): Consumption {
  const counted = cursors.filter(({ group }) => group !== QUEUE_MODE_GROUP || !queueHasNamedGroup);
  const leased = counted.filter(({ leaseUpto }) => leaseUpto !== null);
  return {
    done: counted.length === 0 ? null : Math.min(...counted.map(({ committed }) => committed)),
    leaseAfter: leased.map(({ committed }) => committed),
    leaseUpto: leased.map(({ leaseUpto }) => leaseUpto!),
  };
}

/** The first moment at which a lease on the message ends; null: nobody has it. */
export function leaseEnd(cursors: readonly Cursor[], offset: number): number | null {
  let end: number | null = null;
  for (const cursor of cursors) {
    const at = holds(cursor, offset) ? cursor.leaseExpiresAtMicros : null;
    if (at !== null && (end === null || at < end)) end = at;
  }
  return end;
}

export function modeOf(cursors: Iterable<Cursor>): ConsumptionMode {
  const named = new Set<string>();
  let hasQueueMode = false;
  for (const { group } of cursors) {
    if (group === QUEUE_MODE_GROUP) hasQueueMode = true;
    else named.add(group);
  }
  return { hasQueueMode, namedGroups: named.size };
}
