/**
 * Rows put straight into the log, so that the ack path is tested by itself: a lane with real segments and
 * sidecar rows, and leases as a pop leaves them.
 */
import { randomUUID } from 'node:crypto';
import type { TestContext } from 'node:test';
import { freshDatabase, type TestDatabase } from '../../../../test/kit/postgres.ts';
import { AckPath, type AckSettings } from '../../src/engine/ack/path.ts';
import type { AckRegistry } from '../../src/engine/ack/registry.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { type AckItem, type AckStatus, type AckVerdict, DEFAULT_TENANT } from '../../src/engine/types.ts';
import type { Announcer } from '../../src/engine/wake/announcer.ts';
import type { Frame } from '../../src/log/frame.ts';
import { hashTransactionIds } from '../../src/log/hash.ts';
import { packSegment } from '../../src/log/segment.ts';
import { parseUuid } from '../../src/log/uuid.ts';
import { byteaArray, int8Array } from '../../src/store/arrays.ts';
import { type Database, type Param, type Queryable, statement } from '../../src/store/database.ts';

export const GROUP = 'g';

/** Runs any text; the name is derived from it. */
export async function sql<Row extends object>(
  db: Queryable,
  text: string,
  params: Param[] = [],
): Promise<Row[]> {
  let hash = 5381;
  for (const char of text) hash = (hash * 33 + char.charCodeAt(0)) >>> 0;
  return db.query<Row>(statement(`test_${hash}_${text.length}`, text), params);
}

export interface Row {
  committed: number;
  batch_end: number | null;
  worker_id: string | null;
  lease_expires_at: number | null;
  lease_acquired_at: number | null;
  lease_conflated: boolean;
  batch_retry_count: number;
  attempt_offset: number | null;
  attempt_count: number;
  total_consumed: number;
}

export interface DeadLetter {
  partition_id: number;
  consumer_group: string;
  offset: number;
  message_id: string | null;
  transaction_id: string;
  payload: Buffer | null;
  error: string | null;
  retry_count: number;
}

export class Bench {
  readonly test: TestDatabase;
  readonly db: Database;
  /** `partition/group` of each release with a backlog, `…@cursor` of one without. */
  readonly releases: string[] = [];
  readonly announcer: Announcer = {
    pushed() {},
    released: (partitionId, group, committed) => {
      this.releases.push(`${partitionId}/${group}${committed === undefined ? '' : `@${committed}`}`);
    },
    queueDeleted() {},
  };

  constructor(test: TestDatabase, db: Database) {
    this.test = test;
    this.db = db;
  }

  static async open(t: TestContext): Promise<Bench> {
    const test = await freshDatabase(t);
    const db = await test.open();
    t.after(() => db.close());
    return new Bench(test, db);
  }

  path(
    options: { db?: Queryable; registry?: AckRegistry | null; settings?: Partial<AckSettings> } = {},
  ): AckPath {
    return new AckPath({
      db: options.db ?? this.db,
      admission: { run: (_lane, work) => work() },
      announcer: this.announcer,
      registry: options.registry ?? null,
      clock: systemClock,
      settings: { fusion: false, fusionShards: 8, fusionHoldMs: 3, tenancy: false, ...options.settings },
      log: { warn() {}, error() {} },
    });
  }

  /** A queue with one partition. Options are column values. */
  async lane(options: { tenant?: string; retryLimit?: number; deadLetters?: boolean } = {}): Promise<number> {
    const [row] = await sql<{ id: number }>(
      this.db,
      `WITH q AS (INSERT INTO queen.queues (tenant_id, name, retry_limit, dead_letter_queue, dlq_after_max_retries)
                  VALUES ($1::uuid, $2, $3::int, $4::boolean, $4::boolean) RETURNING id)
       INSERT INTO queen.log_partitions (queue_id) SELECT id FROM q RETURNING id`,
      [options.tenant ?? DEFAULT_TENANT, randomUUID(), options.retryLimit ?? 3, options.deadLetters ?? true],
    );
    return row!.id;
  }

  /** Appends one segment of messages with these transactionIds. Returns their frames. */
  async append(partitionId: number, txns: readonly string[], seal: Partial<Frame> = {}): Promise<Frame[]> {
    const frames = txns.map((transactionId): Frame => {
      return {
        messageId: parseUuid(randomUUID())!,
        traceId: null,
        transactionId,
        producerSub: null,
        encrypted: false,
        payload: Buffer.from(JSON.stringify({ txn: transactionId, pad: 'x'.repeat(20) })),
        ...seal,
      };
    });
    await sql(
      this.db,
      `SELECT verdicts FROM queen.log_push($1::bigint[], ARRAY[$2::int], ARRAY[-1::bigint], ARRAY[NULL::int],
                                              $3::bytea[], $4::bytea[])`,
      [
        int8Array([partitionId]),
        frames.length,
        byteaArray([hashTransactionIds(txns)]),
        byteaArray([await packSegment(frames, 3)]),
      ],
    );
    return frames;
  }

  /** A lease on `(committed, batchEnd]`, as a claim leaves it. Null worker: the row without a lease. */
  async consumer(
    partitionId: number,
    row: {
      group?: string;
      committed?: number;
      batchEnd?: number | null;
      worker?: string | null;
      leaseSeconds?: number;
      retries?: number;
      conflated?: boolean;
      attempts?: number;
    } = {},
  ): Promise<void> {
    const committed = row.committed ?? -1;
    const leased = row.batchEnd !== undefined && row.batchEnd !== null;
    await sql(
      this.db,
      `INSERT INTO queen.log_consumers (partition_id, consumer_group, committed, batch_end, worker_id, lease_expires_at,
                                        lease_acquired_at, lease_conflated, batch_retry_count, attempt_offset, attempt_count)
       VALUES ($1::bigint, $2, $3::bigint, $4::bigint, $5, 
               CASE WHEN $4::bigint IS NOT NULL THEN queen.clock() + $6::int * interval '1 second' END,
               CASE WHEN $4::bigint IS NOT NULL THEN queen.clock() END, $7::boolean, $8::int, $9::bigint, $10::int)
       ON CONFLICT (partition_id, consumer_group) DO UPDATE SET committed = excluded.committed, batch_end = excluded.batch_end,
         worker_id = excluded.worker_id, lease_expires_at = excluded.lease_expires_at,
         lease_acquired_at = excluded.lease_acquired_at, lease_conflated = excluded.lease_conflated,
         batch_retry_count = excluded.batch_retry_count, attempt_offset = excluded.attempt_offset,
         attempt_count = excluded.attempt_count`,
      [
        partitionId,
        row.group ?? GROUP,
        committed,
        row.batchEnd ?? null,
        leased ? (row.worker === undefined ? 'w1' : row.worker) : null,
        row.leaseSeconds ?? 60,
        row.conflated ?? false,
        row.retries ?? 0,
        leased ? committed + 1 : null,
        row.attempts ?? (leased ? 1 : 0),
      ],
    );
  }

  async row(partitionId: number, group = GROUP): Promise<Row> {
    const rows = await sql<Row>(
      this.db,
      `SELECT committed, batch_end, worker_id, lease_expires_at, lease_acquired_at, lease_conflated, batch_retry_count,
              attempt_offset, attempt_count, total_consumed
         FROM queen.log_consumers WHERE partition_id = $1::bigint AND consumer_group = $2`,
      [partitionId, group],
    );
    return rows[0]!;
  }

  deadLetters(partitionId: number): Promise<DeadLetter[]> {
    return sql<DeadLetter>(
      this.db,
      `SELECT partition_id, consumer_group, "offset", message_id, transaction_id, payload, error, retry_count
         FROM queen.log_dlq WHERE partition_id = $1::bigint ORDER BY "offset", consumer_group`,
      [partitionId],
    );
  }

  /** Removes the sidecar rows below `offset`, as the purge does. */
  async purge(partitionId: number, offset: number): Promise<void> {
    await sql(
      this.db,
      'DELETE FROM queen.log_txns WHERE partition_id = $1::bigint AND end_offset < $2::bigint',
      [partitionId, offset],
    );
    await sql(
      this.db,
      'UPDATE queen.log_partitions SET txns_start = $2::bigint, oldest_txn_at = NULL WHERE id = $1::bigint',
      [partitionId, offset],
    );
  }
}

export interface ItemSpec {
  txn?: string;
  offset?: number;
  status?: AckStatus;
  lease?: string | null;
  error?: string | null;
}

export function item(partitionId: number | string, spec: ItemSpec): AckItem {
  return {
    partitionId: String(partitionId),
    leaseId: spec.lease === undefined ? 'w1' : spec.lease,
    status: spec.status ?? 'completed',
    error: spec.error ?? null,
    transactionId: spec.txn ?? '',
    ...(spec.offset === undefined ? {} : { offset: spec.offset }),
  };
}

/** Acks for `GROUP`, in the default tenant. */
export function ack(path: AckPath, partitionId: number, specs: readonly ItemSpec[]): Promise<AckVerdict[]> {
  return path.ack({
    tenant: DEFAULT_TENANT,
    group: GROUP,
    items: specs.map((spec) => item(partitionId, spec)),
  });
}

/** Damages the stored segment with this base offset. */
export async function flipByte(bench: Bench, lane: number, base: number): Promise<void> {
  await sql(
    bench.db,
    `UPDATE queen.log_segments SET blob = set_byte(blob, length(blob) / 2, get_byte(blob, length(blob) / 2) # 1)
      WHERE partition_id = $1::bigint AND base_offset = $2::bigint`,
    [lane, base],
  );
}
