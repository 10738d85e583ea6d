/**
 * How a source comes to its slot and its pointer: found together, made together, taken over where only the slot is left, or
 * made anew when a new beginning was asked for. Each step tolerates that an earlier life died in the middle of it.
 *
 * The order: publication, slot, pointer. A slot cannot decode with a publication that is younger than itself; and a crash
 * between slot and pointer leaves a slot that nobody has read from, which is taken over where it stands.
 */
import { randomBytes } from 'node:crypto';
import { buggify } from '../../../observability/buggify.ts';
import type { SourceDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { instantNow } from '../instants.ts';
import type { ReplicationConnection, SystemFacts } from '../replication/connection.ts';
import type { SqlSession } from '../session/types.ts';
import type { UnitStatus } from '../unit.ts';
import { type Pointer, parsePointer, renderPointer, resyncedAtOf, samePlace } from './pointer.ts';
import { createSlot, dropSlot, endOwnSender, isOurs, judgeSlot, readSlot, slotAhead } from './slot.ts';
import { firstState, type SnapshotBase } from './snapshot/state.ts';
import type { Entry, SourceState } from './state.ts';
import type { Pause } from './time.ts';

interface Beginning {
  readonly pointer: Pointer;
  readonly version: number;
}

export interface BeginningOptions {
  readonly document: SourceDocument;
  readonly state: SourceState;
  readonly key: string;
  readonly session: SqlSession;
  /** Its own: making a slot occupies it. */
  readonly replication: ReplicationConnection;
  readonly system: SystemFacts;
  readonly applicationName: string;
  readonly status: UnitStatus;
  readonly pause: Pause;
  /** For how long the lease has been held. */
  readonly heldMs: () => number;
  readonly leaseTtlMs: number;
}

const BUSY_MS = 2_000;

/** Answers when the slot is free and fits the pointer. Throws ConnectorFault. */
export async function settleSlot(options: BeginningOptions): Promise<Beginning> {
  const { document, session, state, key, status } = options;
  const { slot } = document.source;
  for (;;) {
    // Read anew each time: as long as another reader holds the slot, it may still be committing.
    const found = await state.read(key);
    const former = found === null ? null : readPointer(found, document);
    if (former === 'corrupt' || wantsResync(document, former)) return resync(options, found, former);
    const row = await readSlot(session, slot);
    const verdict = judgeSlot(slot, row, former);
    if (verdict.kind === 'busy') {
      await waitForSlot(options, verdict.pid);
      continue;
    }
    if (status.phase === 'waiting_for_slot') status.enter('connecting');
    switch (verdict.kind) {
      case 'create':
        return create(options, document.source.snapshot === 'initial', 0, null);
      case 'adopt': {
        const copies = document.source.snapshot === 'initial';
        return write(options, first(options, verdict.lsn, null, copies, null), 0);
      }
      case 'ahead':
        await assertUnmoved(options, found!);
        throw slotAhead(slot, verdict.confirmed, former!.lsn);
      case 'go':
        return { pointer: former!, version: found!.version };
    }
  }
}

/** `corrupt`: it cannot be read, and a new beginning was asked for since. Else throws what is wrong with it. */
function readPointer(found: Entry, { resyncRequestedAt }: SourceDocument): Pointer | 'corrupt' {
  try {
    return parsePointer(found.value);
  } catch (error) {
    if (isLater(resyncRequestedAt, resyncedAtOf(found.value))) return 'corrupt';
    throw error;
  }
}

function wantsResync({ resyncRequestedAt }: SourceDocument, former: Pointer | null): boolean {
  return isLater(resyncRequestedAt, former?.resyncedAt ?? null);
}

/** Both RFC 3339 in UTC with as many digits, so that they sort as the times do. Null: never. */
function isLater(requested: string | null, answered: string | null): boolean {
  return requested !== null && (answered === null || requested > answered);
}

/** Another reader holds the slot: one of our own that is dead but not buried, or a stranger. */
async function waitForSlot(options: BeginningOptions, pid: number): Promise<void> {
  const { session, status, applicationName, heldMs, leaseTtlMs, pause } = options;
  status.enter('waiting_for_slot', { activePid: pid });
  status.show({ activePid: pid });
  // Held for a whole life of the lease, nobody but a dead or fenced process can be on the other side.
  if (heldMs() >= leaseTtlMs) await endOwnSender(session, pid, applicationName);
  await pause(BUSY_MS);
  status.show({ activePid: undefined });
}

async function assertUnmoved({ state, key }: BeginningOptions, found: Entry): Promise<void> {
  const now = await state.read(key);
  if (now?.version === found.version) return;
  throw new ConnectorFault('fenced', 'another owner has moved the pointer: this one stops');
}

/** A new beginning: the slot goes, another one comes, and everything is copied again under ids of its own. */
async function resync(
  options: BeginningOptions,
  found: Entry | null,
  former: Pointer | 'corrupt' | null,
): Promise<Beginning> {
  const { document, session, pause } = options;
  const { slot } = document.source;
  const slots = new Set([slot]);
  if (former !== null && former !== 'corrupt') slots.add(former.slot);
  for (const one of slots) {
    const row = await readSlot(session, one);
    if (row === null || !isOurs(row)) {
      if (one !== slot || row === null) continue;
      // Says what is wrong with it: it is not ours to drop.
      judgeSlot(slot, row, null);
    }
    for (let holder = await dropSlot(session, one, pause); holder !== null; ) {
      await waitForSlot(options, holder);
      holder = await dropSlot(session, one, pause);
    }
  }
  return create(options, true, found?.version ?? 0, document.resyncRequestedAt);
}

/** `expect`: the version of the pointer that is to be replaced; 0: there is none. */
async function create(
  options: BeginningOptions,
  copies: boolean,
  expect: number,
  resyncedAt: string | null,
): Promise<Beginning> {
  const { document, replication, status } = options;
  status.show({
    detail: 'making the replication slot, which waits until transactions that run now have ended',
  });
  const { lsn, base } = await createSlot(replication, document.source.slot);
  buggify('source.slot_created');
  status.show({ detail: undefined });
  return write(options, first(options, lsn, base, copies, resyncedAt), expect);
}

function first(
  { document, system }: BeginningOptions,
  lsn: bigint,
  base: SnapshotBase | null,
  copies: boolean,
  resyncedAt: string | null,
): Pointer {
  const { slot, tables } = document.source;
  const names = tables.map(({ schema, table }) => `${schema}.${table}`);
  return {
    epoch: randomBytes(4).toString('hex'),
    systemId: system.systemId,
    timeline: system.timeline,
    slot,
    lsn,
    inTxn: null,
    snapshot: copies ? firstState(names, base) : null,
    resyncedAt,
    updatedAt: instantNow(),
  };
}

/** Throws ConnectorFault `fenced` when somebody else was faster. */
async function write({ state, key }: BeginningOptions, pointer: Pointer, expect: number): Promise<Beginning> {
  let found: Entry | null;
  try {
    const result = await state.put(key, renderPointer(pointer), expect, null);
    if (result.applied) return { pointer, version: result.version };
    found = result.found;
  } catch (error) {
    // Perhaps it was written all the same; if not, the next start adopts the slot.
    found = await state.read(key);
    if (found === null) throw error;
  }
  const other = found === null ? null : parsePointer(found.value);
  if (other !== null && samePlace(other, pointer)) return { pointer: other, version: found!.version };
  throw new ConnectorFault('fenced', 'another owner has written the pointer: this one stops');
}
