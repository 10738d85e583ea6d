/**
 * The end of a source: slot, publication, pointer, in this order, since a slot that nobody reads fills the upstream's disk. Each
 * step tolerates that it was done before.
 */
import type { SourceDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { quoteName } from '../identifiers.ts';
import type { SqlSession } from '../session/types.ts';
import { parsePointer } from './pointer.ts';
import { dropSlot, isOurs, readSlot } from './slot.ts';
import type { Entry, SourceState } from './state.ts';
import type { Pause } from './time.ts';

interface TeardownOptions {
  readonly state: SourceState;
  readonly key: string;
  /** The pointer, as it is stored. */
  readonly found: Entry | null;
  readonly pause: Pause;
}

/** Throws ConnectorFault. */
export async function tearDown(
  { source }: SourceDocument,
  session: SqlSession,
  { state, key, found, pause }: TeardownOptions,
): Promise<void> {
  for (const slot of new Set([source.slot, ...formerSlot(found)])) {
    const row = await readSlot(session, slot);
    // The document may name a slot of somebody else, which was refused and never ours.
    if (row === null || !isOurs(row)) continue;
    const holder = await dropSlot(session, slot, pause);
    if (holder === null) continue;
    throw new ConnectorFault(
      'io',
      `slot ${slot} is in use by process ${holder}: end it, or delete the connector with dropSlot=false`,
    );
  }
  if (source.managePublication) {
    await session.query(`DROP PUBLICATION IF EXISTS ${quoteName(source.publication)}`);
  }
  await state.remove(key, null);
}

/** The document may have been given another name since. */
function formerSlot(found: Entry | null): string[] {
  try {
    return found === null ? [] : [parsePointer(found.value).slot];
  } catch {
    return [];
  }
}
