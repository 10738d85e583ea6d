/**
 * How far into the upstream's log (and its tables) the queues already are: an entry in KV that is written by the very
 * transaction that writes the messages, and only if nobody has written it since. What it covers is in the queues, what
 * it does not cover is not; everything else that a source does rests on that (see commit.ts).
 */
import { ConnectorFault } from '../fault.ts';
import { formatLsn, parseLsn } from '../replication/lsn.ts';
import { parseSnapshotState, type SnapshotState } from './snapshot/state.ts';

/** A transaction that was too large for one bundle and is in the queues up to a point. */
interface InTransaction {
  readonly commitLsn: bigint;
  /** So many of its row changes, mapped or not, are in. At least 1. */
  readonly done: number;
}

/** What the queues hold. */
export interface Place {
  /** Every transaction that ends at or before it is in the queues as a whole. */
  readonly lsn: bigint;
  readonly inTxn: InTransaction | null;
  /** Null: nothing is left to copy. */
  readonly snapshot: SnapshotState | null;
}

export interface Pointer extends Place {
  /** Eight lower-case hex digits: new each time that the source begins from a new snapshot. */
  readonly epoch: string;
  readonly systemId: string;
  readonly timeline: number;
  readonly slot: string;
  /** The request for a new beginning that this epoch answered. */
  readonly resyncedAt: string | null;
  /** RFC 3339 in UTC. */
  readonly updatedAt: string;
}

const VERSION = 1;
const EPOCH = /^[0-9a-f]{8}$/;

/** As it is stored. */
export function renderPointer(pointer: Pointer): string {
  const { epoch, systemId, timeline, slot, lsn, inTxn, snapshot, resyncedAt, updatedAt } = pointer;
  return JSON.stringify({
    v: VERSION,
    epoch,
    systemId,
    timeline,
    slot,
    lsn: formatLsn(lsn),
    inTxn: inTxn === null ? null : { commitLsn: formatLsn(inTxn.commitLsn), done: inTxn.done },
    snapshot,
    resyncedAt,
    updatedAt,
  });
}

/** Throws ConnectorFault `pointer_corrupt`. */
export function parsePointer(text: string): Pointer {
  try {
    const value = object(JSON.parse(text), 'it');
    if (value.v !== VERSION) {
      throw new Error(
        typeof value.v === 'number' && value.v > VERSION ? 'it was written by a newer broker' : 'v is not 1',
      );
    }
    const pointer: Pointer = {
      epoch: asText(value.epoch, 'epoch'),
      systemId: asText(value.systemId, 'systemId'),
      timeline: count(value.timeline, 'timeline'),
      slot: asText(value.slot, 'slot'),
      lsn: lsn(value.lsn, 'lsn'),
      inTxn: value.inTxn === null ? null : inTransaction(value.inTxn),
      snapshot: value.snapshot === null ? null : parseSnapshotState(value.snapshot),
      resyncedAt: value.resyncedAt === null ? null : asText(value.resyncedAt, 'resyncedAt'),
      updatedAt: asText(value.updatedAt, 'updatedAt'),
    };
    const fault = pointerFault(pointer);
    if (fault !== null) throw new Error(fault);
    return pointer;
  } catch (error) {
    throw corrupt(error instanceof Error ? error.message : String(error));
  }
}

/** Of a pointer that cannot be read, the request it answered, if even that can be told. */
export function resyncedAtOf(text: string): string | null {
  try {
    const { resyncedAt } = JSON.parse(text) as { resyncedAt?: unknown };
    return typeof resyncedAt === 'string' ? resyncedAt : null;
  } catch {
    return null;
  }
}

/** Both say the same of what is in the queues. */
export function samePlace(one: Pointer, other: Pointer): boolean {
  return placeText(one) === placeText(other);
}

function placeText({ epoch, lsn, inTxn, snapshot }: Pointer): string {
  const split = inTxn === null ? null : [formatLsn(inTxn.commitLsn), inTxn.done];
  // Through the parser, so that the order of the fields is that of the code and not of whoever wrote them.
  const copied =
    snapshot === null ? null : parseSnapshotState(JSON.parse(JSON.stringify(snapshot)) as unknown);
  return JSON.stringify([epoch, formatLsn(lsn), split, copied]);
}

/** Why the pointer contradicts itself; null: it does not. */
export function pointerFault({ epoch, lsn, inTxn, snapshot }: Pointer): string | null {
  if (!EPOCH.test(epoch)) return 'its epoch is not eight hex digits';
  if (inTxn !== null && inTxn.done < 1) return 'inTxn.done is not at least 1';
  if (inTxn !== null && inTxn.commitLsn < lsn) return 'inTxn.commitLsn lies before lsn';
  if (snapshot !== null && snapshot.table !== snapshot.tables[0]) {
    return 'snapshot.table is not the first of snapshot.tables';
  }
  return null;
}

/** Asserted before each write: a pointer that goes back would make the upstream forget what nobody has. */
export function assertFollows(before: Pointer, after: Pointer): void {
  const fault =
    pointerFault(after) ??
    (after.epoch === before.epoch && after.lsn < before.lsn ? 'its lsn would go back' : null) ??
    (after.epoch === before.epoch &&
    after.inTxn !== null &&
    before.inTxn?.commitLsn === after.inTxn.commitLsn &&
    after.inTxn.done < before.inTxn.done
      ? 'inTxn.done would go back'
      : null);
  if (fault !== null) throw corrupt(fault);
}

function corrupt(why: string): ConnectorFault {
  return new ConnectorFault(
    'pointer_corrupt',
    `the source's pointer is not usable: ${why}. POST …/resync begins anew`,
  );
}

function inTransaction(value: unknown): InTransaction {
  const { commitLsn, done } = object(value, 'inTxn');
  return { commitLsn: lsn(commitLsn, 'inTxn.commitLsn'), done: count(done, 'inTxn.done') };
}

function object(value: unknown, path: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error(`${path} is not an object`);
  }
  return value as Record<string, unknown>;
}

function asText(value: unknown, path: string): string {
  if (typeof value !== 'string') throw new Error(`${path} is not a text`);
  return value;
}

function count(value: unknown, path: string): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new Error(`${path} is not a count`);
  }
  return value;
}

function lsn(value: unknown, path: string): bigint {
  const parsed = parseLsn(asText(value, path));
  if (parsed === null) throw new Error(`${path} is not a position`);
  return parsed;
}
