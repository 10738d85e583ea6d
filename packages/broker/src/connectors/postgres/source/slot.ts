/**
 * The replication slot of a source. PostgreSQL keeps the log behind it for as long as it exists, so it is the one thing that
 * must neither be lost nor forgotten: without it there is a gap, with it and nobody reading the upstream's disk fills.
 *
 * A slot and a pointer belong together. A slot without a pointer is taken over where it stands (a crash came between the two, or
 * somebody made it by hand); a pointer without its slot means that changes are missing, which is said and never
 * papered over.
 */
import { ConnectorFault } from '../fault.ts';
import { quoteName } from '../identifiers.ts';
import type { ReplicationConnection } from '../replication/connection.ts';
import { formatLsn, parseLsn } from '../replication/lsn.ts';
import type { SqlSession } from '../session/types.ts';
import type { Pointer } from './pointer.ts';
import { baseOf, type SnapshotBase } from './snapshot/state.ts';

export interface SlotRow {
  readonly type: string;
  readonly plugin: string | null;
  /** It belongs to the database that we are connected to. */
  readonly here: boolean;
  readonly temporary: boolean;
  readonly twoPhase: boolean;
  readonly activePid: number | null;
  readonly confirmed: bigint | null;
  readonly walStatus: string | null;
  readonly invalidation: string | null;
  /** What the server keeps for it, in bytes. */
  readonly lagBytes: bigint | null;
}

const SLOT = `
SELECT s.slot_type, s.plugin, s.database = pg_catalog.current_database(), s.temporary, s.two_phase,
       s.active_pid, s.confirmed_flush_lsn, s.wal_status, s.invalidation_reason,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL
            ELSE pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.confirmed_flush_lsn)::pg_catalog.int8 END
  FROM pg_catalog.pg_replication_slots AS s WHERE s.slot_name = $1`;

/** Null: there is none. */
export async function readSlot(session: SqlSession, slot: string): Promise<SlotRow | null> {
  const { rows } = await session.query(SLOT, [slot]);
  const row = rows[0];
  if (row === undefined) return null;
  const [type, plugin, here, temporary, twoPhase, pid, confirmed, walStatus, invalidation, lag] = row;
  return {
    type: type!,
    plugin: plugin ?? null,
    here: here === 't',
    temporary: temporary === 't',
    twoPhase: twoPhase === 't',
    activePid: pid === null || pid === undefined ? null : Number(pid),
    confirmed: confirmed === null || confirmed === undefined ? null : parseLsn(confirmed),
    walStatus: walStatus ?? null,
    invalidation: invalidation ?? null,
    lagBytes: lag === null || lag === undefined ? null : BigInt(lag),
  };
}

type SlotVerdict =
  /** Somebody reads from it. */
  | { readonly kind: 'busy'; readonly pid: number }
  | { readonly kind: 'create' }
  /** Begin where it stands. */
  | { readonly kind: 'adopt'; readonly lsn: bigint }
  | { readonly kind: 'go' }
  /** The pointer is behind the slot: unless it has moved meanwhile, somebody else has consumed the slot. */
  | { readonly kind: 'ahead'; readonly confirmed: bigint };

/** What a slot and a pointer mean together. Throws ConnectorFault. */
export function judgeSlot(slot: string, row: SlotRow | null, pointer: Pointer | null): SlotVerdict {
  if (pointer !== null && pointer.slot !== slot) {
    throw new ConnectorFault(
      'slot_changed',
      `the source has been reading from slot ${pointer.slot} and the document names ${slot}: put the name back, or begin anew with POST …/resync`,
    );
  }
  if (row === null) {
    if (pointer === null) return { kind: 'create' };
    throw new ConnectorFault(
      'slot_lost',
      `slot ${slot} is gone, and with it changes that were not read yet: begin anew with POST …/resync`,
    );
  }
  assertFits(slot, row);
  if (row.activePid !== null) return { kind: 'busy', pid: row.activePid };
  const { confirmed } = row;
  if (confirmed === null)
    throw mismatch(slot, 'has no position yet: it is still being made by somebody else');
  if (pointer === null) return { kind: 'adopt', lsn: confirmed };
  return confirmed > pointer.lsn ? { kind: 'ahead', confirmed } : { kind: 'go' };
}

function assertFits(slot: string, row: SlotRow): void {
  const what = strangeness(row);
  if (what !== null) throw mismatch(slot, what);
  assertValid(slot, row);
}

/** Whether a source may have made it, or can have taken it over. What is not ours is neither read nor dropped. */
export function isOurs(row: SlotRow): boolean {
  return strangeness(row) === null;
}

/** Why it cannot be the slot of a source; null: it can. */
function strangeness({ type, plugin, here, temporary, twoPhase }: SlotRow): string | null {
  if (type !== 'logical') return 'is a physical one';
  if (plugin !== 'pgoutput') return `uses the plug-in ${plugin}, not pgoutput`;
  if (!here) return 'belongs to another database of the server';
  if (temporary) return 'is temporary';
  return twoPhase ? 'decodes two-phase commits' : null;
}

/** Throws ConnectorFault `slot_invalidated`. */
export function assertValid(slot: string, { invalidation, walStatus }: SlotRow): void {
  if (invalidation === null && walStatus !== 'lost') return;
  throw new ConnectorFault(
    'slot_invalidated',
    `PostgreSQL has dropped what slot ${slot} held (${invalidation ?? 'wal_removed'}): raise max_slot_wal_keep_size if that was the reason, and begin anew with POST …/resync`,
  );
}

function mismatch(slot: string, what: string): ConnectorFault {
  return new ConnectorFault(
    'slot_mismatch',
    `slot ${slot} ${what}: name another one in source.slot, or drop it`,
  );
}

export function slotAhead(slot: string, confirmed: bigint, pointer: bigint): ConnectorFault {
  return new ConnectorFault(
    'slot_ahead',
    `slot ${slot} was confirmed up to ${formatLsn(confirmed)}, which the queues have only up to ${formatLsn(pointer)}: somebody else has consumed it. Begin anew with POST …/resync`,
  );
}

interface CreatedSlot {
  readonly lsn: bigint;
  /** What was visible when it was made. */
  readonly base: SnapshotBase;
}

/**
 * Makes the slot, one that a standby keeps a copy of. Waits until all transactions that run now have ended. Its first
 * snapshot is used by the transaction that makes it, which can so be asked what it sees.
 */
export async function createSlot(connection: ReplicationConnection, slot: string): Promise<CreatedSlot> {
  await connection.command('BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ');
  const [made] = await connection
    .command(`CREATE_REPLICATION_SLOT ${quoteName(slot)} LOGICAL pgoutput (SNAPSHOT 'use', FAILOVER true)`)
    .catch((error: unknown) => {
      throw creationFault(error);
    });
  const [sees] = await connection.command('SELECT pg_catalog.pg_current_snapshot()');
  await connection.command('COMMIT');
  const lsn = parseLsn(made?.[1] ?? '');
  if (lsn === null) throw new ConnectorFault('postgres', 'the server does not say where the new slot begins');
  return { lsn, base: baseOf(sees?.[0] ?? '') };
}

function creationFault(error: unknown): unknown {
  if (!(error instanceof ConnectorFault)) return error;
  if (error.sqlState === '53400' || error.message.includes('all replication slots are in use')) {
    return new ConnectorFault(
      'postgres',
      `${error.message}: raise max_replication_slots on the server, or drop slots that nobody reads`,
      { sqlState: error.sqlState, retry: 'later', cause: error },
    );
  }
  if (error.sqlState === '42501') {
    return new ConnectorFault('privilege', `${error.message}: the role needs REPLICATION`, { cause: error });
  }
  return error;
}

const OWN_SENDER = `
SELECT pg_catalog.pg_terminate_backend(r.pid) FROM pg_catalog.pg_stat_replication AS r
 WHERE r.pid = $1::int4 AND r.usename = CURRENT_USER AND r.application_name = $2`;

/**
 * Ends a sender of an earlier life of this source, known by its user and its name. One of somebody else, and one that may not
 * be ended, goes on.
 */
export async function endOwnSender(session: SqlSession, pid: number, applicationName: string): Promise<void> {
  try {
    await session.query(OWN_SENDER, [String(pid), applicationName]);
  } catch (error) {
    if (!(error instanceof ConnectorFault) || error.sqlState !== '42501') throw error;
  }
}

const DROP_TRIES = 20;
const DROP_WAIT_MS = 250;

/** What became of a drop: null, it is gone; else who reads from it. */
export async function dropSlot(
  session: SqlSession,
  slot: string,
  pause: (ms: number) => Promise<void>,
): Promise<number | null> {
  for (let attempt = 1; ; attempt++) {
    const row = await readSlot(session, slot);
    if (row === null) return null;
    try {
      if (row.activePid !== null) {
        await session.query('SELECT pg_catalog.pg_terminate_backend($1::int4)', [String(row.activePid)]);
      } else {
        await session.query('SELECT pg_catalog.pg_drop_replication_slot($1)', [slot]);
        return null;
      }
    } catch (error) {
      if (!(error instanceof ConnectorFault)) throw error;
      // Gone, or taken, in this very moment; or a holder that is not ours to end.
      if (!['42704', '55006', '42501'].includes(error.sqlState ?? '')) throw error;
      if (error.sqlState === '42501' && row.activePid === null) throw error;
    }
    if (attempt === DROP_TRIES) return row.activePid ?? 0;
    await pause(DROP_WAIT_MS);
  }
}
