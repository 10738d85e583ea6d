/** The leases by which each background job runs once a period over all brokers (sql/050_retention.sql). */
import type { Queryable } from './database.ts';
import { statement } from './database.ts';

export interface MaintenanceClaim {
  /** The number that renewal and release must show. Null: not claimed. */
  fence: number | null;
  /** When not claimed: milliseconds until it is worth another look. Null: the task is switched off. */
  waitMs: number | null;
}

const ENSURE = statement('maintenance_ensure', 'SELECT queen.maintenance_ensure($1::text, $2::bigint)::text');
const CLAIM = statement(
  'maintenance_claim',
  'SELECT fence, wait_ms AS "waitMs" FROM queen.maintenance_claim($1::text, $2::text, $3::bigint)',
);
const RENEW = statement(
  'maintenance_renew',
  'SELECT queen.maintenance_renew($1::text, $2::bigint, $3::bigint) AS held',
);
const RELEASE = statement(
  'maintenance_release',
  'SELECT queen.maintenance_release($1::text, $2::bigint) AS wait_ms',
);

/** Inserts the task if it is missing; a changed period takes effect, the switch stays as it is. */
export async function ensureTask(db: Queryable, task: string, periodMs: number): Promise<void> {
  await db.query(ENSURE, [task, periodMs]);
}

/** Claims the task if it is due and free. A claim that is not renewed ends after `leaseMs`. */
export async function claimTask(
  db: Queryable,
  task: string,
  holder: string,
  leaseMs: number,
): Promise<MaintenanceClaim> {
  const rows = await db.query<MaintenanceClaim>(CLAIM, [task, holder, leaseMs]);
  return rows[0] ?? { fence: null, waitMs: null };
}

/** False: another broker has taken over, and this one must stop. */
export async function renewTask(
  db: Queryable,
  task: string,
  fence: number,
  leaseMs: number,
): Promise<boolean> {
  const rows = await db.query<{ held: boolean }>(RENEW, [task, fence, leaseMs]);
  return rows[0]!.held;
}

/**
 * Ends the run and moves the due time by one period. Answers the milliseconds until the next run is due; null:
 * the fence is not the latest, and nothing changed.
 */
export async function releaseTask(db: Queryable, task: string, fence: number): Promise<number | null> {
  const rows = await db.query<{ wait_ms: number | null }>(RELEASE, [task, fence]);
  return rows[0]!.wait_ms;
}
