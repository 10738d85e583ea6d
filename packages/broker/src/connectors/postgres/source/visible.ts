import type { SqlSession } from '../session/types.ts';
import { parseVisibility } from './snapshot/visibility.ts';

const LOOK_AGAIN_MS = 20;

/**
 * Waits until sessions see what these transactions did. A commit is in the log, and its changes in the stream, before it can be
 * seen, for as long as it waits for a standby: until then its rows, and its types, would be looked for where they are not
 * yet. Throws ConnectorFault.
 */
export async function visible(
  session: SqlSession,
  xids: ReadonlySet<number>,
  pause: (ms: number) => Promise<void>,
): Promise<void> {
  for (;;) {
    const { rows } = await session.query('SELECT pg_catalog.pg_current_snapshot()');
    const snapshot = parseVisibility(rows[0]?.[0] ?? '');
    if (snapshot === null || [...xids].every((xid) => snapshot.sees(snapshot.widen(xid)))) return;
    await pause(LOOK_AGAIN_MS);
  }
}
