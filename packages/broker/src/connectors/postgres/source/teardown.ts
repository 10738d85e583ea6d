/**
 * The end of a source: slot, publication, pointer, in this order, since a slot that nobody reads fills the upstream's disk. Each
 * step tolerates that it was done before.
 */
import type { SourceDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import type { SqlSession } from '../session/types.ts';
import { dropSlot, readSlot } from './slot.ts';
import { identifier } from './snapshot/select.ts';
import type { SourceState } from './state.ts';
import type { Pause } from './time.ts';

/** Throws ConnectorFault. */
export async function tearDown(
  { source }: SourceDocument,
  session: SqlSession,
  state: SourceState,
  key: string,
  pause: Pause,
): Promise<void> {
  const row = await readSlot(session, source.slot);
  // What was never ours stays.
  if (row?.here && row.type === 'logical') {
    const holder = await dropSlot(session, source.slot, pause);
    if (holder !== null) {
      throw new ConnectorFault(
        'io',
        `slot ${source.slot} is in use by process ${holder}: end it, or delete the connector with dropSlot=false`,
      );
    }
  }
  if (source.managePublication) {
    await session.query(`DROP PUBLICATION IF EXISTS ${identifier(source.publication)}`);
  }
  await state.remove(key, null);
}
