/**
 * Whether the upstream is still the database that the pointer speaks of. A position in the log means something only within
 * one history of it: a server that was set back, or a standby that was promoted without the last of it, uses the same
 * positions again for other changes.
 */
import { ConnectorFault } from '../fault.ts';
import type { ReplicationConnection, SystemFacts } from '../replication/connection.ts';
import { formatLsn, parseLsn } from '../replication/lsn.ts';
import type { SqlSession } from '../session/types.ts';
import type { Pointer } from './pointer.ts';

const VERSION_MIN = 170_000;
const NO_SUCH_FILE = '58P01';

/** What the server must be. Throws ConnectorFault. */
export async function checkServer(session: SqlSession): Promise<void> {
  if (session.serverVersion < VERSION_MIN) {
    const major = Math.floor(session.serverVersion / 10_000);
    throw new ConnectorFault(
      'version',
      `the server is PostgreSQL ${major}: a source needs 17 or later, with failover slots`,
    );
  }
  const { rows } = await session.query(
    `SELECT pg_catalog.current_setting('wal_level'), pg_catalog.pg_is_in_recovery()`,
  );
  const [level, standby] = rows[0] ?? [];
  if (standby === 't') {
    throw new ConnectorFault(
      'not_primary',
      'the server is a standby: name the primary in connection.host (a promotion may be under way)',
    );
  }
  if (level !== 'logical') {
    throw new ConnectorFault('wal_level', `wal_level is ${level}: set it to logical and restart the server`);
  }
}

/** A line of a history file: the timeline that ended, and where. */
export function branchPoint(history: string, timeline: number): bigint | null {
  for (const line of history.split('\n')) {
    const [id, at] = line.trim().split(/\s+/);
    if (id !== undefined && at !== undefined && Number(id) === timeline) return parseLsn(at);
  }
  return null;
}

/** `branch`: where the pointer's timeline ended, if it is not the present one; null: it is no ancestor. */
export function judgeSystem(facts: SystemFacts, pointer: Pointer, branch: bigint | null): void {
  if (facts.systemId !== pointer.systemId) {
    throw changed(
      `it has the system identifier ${facts.systemId}, the source was reading ${pointer.systemId}`,
    );
  }
  const at = formatLsn(pointer.lsn);
  if (facts.timeline !== pointer.timeline && (branch === null || branch < pointer.lsn)) {
    throw changed(
      `it is on timeline ${facts.timeline}, which left timeline ${pointer.timeline} before ${at}, up to where the queues have it`,
    );
  }
  if (facts.walEnd < pointer.lsn) {
    throw changed(`its log ends at ${formatLsn(facts.walEnd)}, and the queues have it up to ${at}`);
  }
}

function changed(why: string): ConnectorFault {
  return new ConnectorFault(
    'system_changed',
    `the upstream is not the database any more that was being read (restored, or promoted without its last changes): ${why}. Begin anew with POST …/resync`,
  );
}

/** Throws ConnectorFault `system_changed`. */
export async function checkSystem(
  connection: ReplicationConnection,
  facts: SystemFacts,
  pointer: Pointer,
): Promise<void> {
  let branch: bigint | null = null;
  if (facts.systemId === pointer.systemId && facts.timeline !== pointer.timeline) {
    branch = branchPoint(await historyOf(connection, facts.timeline), pointer.timeline);
  }
  judgeSystem(facts, pointer, branch);
}

/** Of the first timeline, and where somebody has cleared the directory of the log, there is none. */
async function historyOf(connection: ReplicationConnection, timeline: number): Promise<string> {
  try {
    const [history] = await connection.command(`TIMELINE_HISTORY ${timeline}`);
    return history?.[1] ?? '';
  } catch (error) {
    if (error instanceof ConnectorFault && error.sqlState === NO_SUCH_FILE) return '';
    throw error;
  }
}
