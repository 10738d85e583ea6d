/** The queue procedures (sql/040_queues.sql), one function each: parameters named, results decoded. */
import type { Queryable } from './database.ts';
import { statement } from './database.ts';

/** Options by wire name, as `queen.queue_options` gives them. */
export type StoredOptions = Record<string, string | number | boolean>;

export interface ConfiguredQueue {
  queueId: number;
  created: boolean;
  options: StoredOptions;
}

export interface ListedQueue {
  id: number;
  name: string;
  namespace: string;
  task: string;
  createdAtMicros: number;
  partitions: number;
  total: number;
  pending: number;
  processing: number;
  retainedBytes: number;
  segments: number;
}

export interface StoredQueue {
  id: number;
  name: string;
  createdAtMicros: number;
  options: StoredOptions;
  retainedBytes: number;
  segments: number;
  /** The policy of the group that was asked for; false without one. */
  conflation: boolean;
}

export interface CountedPartition {
  id: number;
  name: string;
  createdAtMicros: number;
  oldestAtMicros: number | null;
  newestAtMicros: number | null;
  total: number;
  pending: number;
  processing: number;
  deadLetter: number;
}

const CONFIGURE = statement(
  'queue_configure',
  'SELECT queue_id, created, options FROM queen.queue_configure($1::uuid, $2::text, $3::boolean, $4::jsonb)',
);
const LIST = statement(
  'queue_list',
  `SELECT id, name, namespace, task, created_at AS "createdAtMicros", partitions, total, pending, processing,
          retained_bytes AS "retainedBytes", segments
     FROM queen.queue_list($1::uuid)`,
);
const READ = statement(
  'queue_read',
  `SELECT id, name, created_at AS "createdAtMicros", options, retained_bytes AS "retainedBytes", segments,
          conflation
     FROM queen.queue_read($1::uuid, $2::text, $3::text)`,
);
const PARTITIONS = statement(
  'queue_partitions',
  `SELECT id, name, created_at AS "createdAtMicros", oldest_at AS "oldestAtMicros",
          newest_at AS "newestAtMicros", total, pending, processing, dead AS "deadLetter"
     FROM queen.queue_partitions($1::uuid, $2::bigint, $3::text)`,
);
const DELETE = statement('queue_delete', 'SELECT queen.queue_delete($1::uuid, $2::text) AS deleted');

const SEALED = statement(
  'queue_sealed',
  'SELECT name::text AS name FROM queen.queues WHERE encryption_enabled ORDER BY name LIMIT 1',
);

/** The name of a queue that encrypts, whoever's it is; null: there is none. */
export async function sealedQueue(db: Queryable): Promise<string | null> {
  const [row] = await db.query<{ name: string }>(SEALED, [], { readOnly: true });
  return row?.name ?? null;
}

/** A queue of a million partitions takes longer than an ordinary statement may. */
const DELETE_TIMEOUT_MS = 600_000;

/**
 * Merges `options` (wire names; null: back to the default) into the queue, creating it when absent. With
 * `replace` every option that is not named goes back to its default. Serialised by the queue's row lock.
 */
export async function configureQueue(
  db: Queryable,
  tenant: string,
  queue: string,
  replace: boolean,
  options: Record<string, unknown>,
): Promise<ConfiguredQueue> {
  const rows = await db.query<{ queue_id: number; created: boolean; options: string }>(CONFIGURE, [
    tenant,
    queue,
    replace,
    JSON.stringify(options),
  ]);
  const row = rows[0]!;
  return { queueId: row.queue_id, created: row.created, options: JSON.parse(row.options) as StoredOptions };
}

/** Every queue of the tenant with its counters, by name. One set-based statement. */
export function listQueues(db: Queryable, tenant: string): Promise<ListedQueue[]> {
  return db.query<ListedQueue>(LIST, [tenant]);
}

/** Null: no such queue. `group` only decides `conflation`. */
export async function readQueue(
  db: Queryable,
  tenant: string,
  queue: string,
  group: string | null,
): Promise<StoredQueue | null> {
  const rows = await db.query<Omit<StoredQueue, 'options'> & { options: string }>(READ, [
    tenant,
    queue,
    group,
  ]);
  const row = rows[0];
  return row === undefined ? null : { ...row, options: JSON.parse(row.options) as StoredOptions };
}

/** The partitions of a queue with their counters, by name: of one group, or of the furthest behind (null). */
export function queuePartitions(
  db: Queryable,
  tenant: string,
  queueId: number,
  group: string | null,
): Promise<CountedPartition[]> {
  return db.query<CountedPartition>(PARTITIONS, [tenant, queueId, group]);
}

/**
 * Deletes the queue in one transaction, and everything of it that anybody could see. Its segments and hashes are left to
 * `garbageStep`. False: there was none.
 */
export async function deleteQueue(db: Queryable, tenant: string, queue: string): Promise<boolean> {
  const rows = await db.query<{ deleted: boolean }>(DELETE, [tenant, queue], {
    timeoutMs: DELETE_TIMEOUT_MS,
  });
  return rows[0]!.deleted;
}
