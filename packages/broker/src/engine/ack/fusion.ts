/**
 * Whole-batch completions of many requests in one statement and one commit. An ack costs a commit, and a commit costs a
 * flush of the write-ahead log: what arrives during one flush shares the next.
 *
 * Completions map to shards by partition; a shard has one flush in flight and starts the next the moment that one ends,
 * so nothing waits for a timer and a lone ack is sent at once. The flush is the ordinary decision procedure with one
 * completed offset a row, so it cannot leave a row otherwise than an ack by transactionId would.
 */

import type { AckGroupArgs } from '../../store/ack.ts';
import { ACK_CODE, type AckGroupRow } from '../../store/ack.ts';
import { StoreError } from '../../store/errors.ts';

export interface Completion {
  tenant: string;
  partitionId: number;
  group: string;
  worker: string;
  /** The lowest message of the batch: the cursor must still be below it. */
  first: number;
  /** The offset up to which everything is completed. */
  position: number;
}

interface Pending extends Completion {
  /** Names the consumer row. */
  readonly row: string;
  readonly waiters: { resolve(row: AckGroupRow): void; reject(error: unknown): void }[];
}

interface Shard {
  /** By row and worker, in the order of arrival. */
  readonly pending: Map<string, Pending>;
  busy: boolean;
}

/** Rows a flush may hold locked until its commit. */
const ROWS_A_FLUSH_MAX = 512;

export class AckFusion {
  readonly #shards: Shard[];
  readonly #flush: (groups: AckGroupArgs[]) => Promise<AckGroupRow[]>;
  /** Flushes, and the completions in them, since the start. */
  readonly counters: { flushes: number; items: number } = { flushes: 0, items: 0 };

  constructor(options: { shards: number; flush: (groups: AckGroupArgs[]) => Promise<AckGroupRow[]> }) {
    this.#shards = Array.from({ length: Math.max(1, options.shards) }, () => ({
      pending: new Map(),
      busy: false,
    }));
    this.#flush = options.flush;
  }

  /** The procedure's answer for the row. Rejects when the flush failed: then nothing is known to be committed. */
  submit(completion: Completion): Promise<AckGroupRow> {
    const shard = this.#shards[completion.partitionId % this.#shards.length]!;
    const answer = new Promise<AckGroupRow>((resolve, reject) => {
      const row = `${completion.tenant}\u001f${completion.partitionId}\u001f${completion.group}`;
      const key = `${row}\u001f${completion.worker}`;
      const same = shard.pending.get(key);
      if (same === undefined) {
        shard.pending.set(key, { ...completion, row, waiters: [{ resolve, reject }] });
      } else {
        same.first = Math.min(same.first, completion.first);
        same.position = Math.max(same.position, completion.position);
        same.waiters.push({ resolve, reject });
      }
    });
    if (!shard.busy) void this.#drive(shard);
    return answer;
  }

  get waiting(): number {
    return this.#shards.reduce((sum, shard) => sum + shard.pending.size, 0);
  }

  async #drive(shard: Shard): Promise<void> {
    shard.busy = true;
    while (shard.pending.size > 0) {
      const batch = takeBatch(shard);
      this.counters.flushes++;
      this.counters.items += batch.length;
      await this.#settle(batch);
    }
    shard.busy = false;
  }

  async #settle(batch: readonly Pending[]): Promise<void> {
    try {
      const rows = await this.#flush(batch.map(completionArgs));
      batch.forEach((pending, i) => {
        for (const waiter of pending.waiters) waiter.resolve(rows[i]!);
      });
    } catch (error) {
      // The statement itself was refused, say by a row that cannot be read: nothing was written, and one partition's
      // trouble must not become that of whoever shared its flush.
      if (batch.length > 1 && error instanceof StoreError && error.kind === 'refused') {
        for (const pending of batch) await this.#settle([pending]);
      } else {
        for (const pending of batch) for (const waiter of pending.waiters) waiter.reject(error);
      }
    }
  }
}

/** The next flush: no consumer row twice, so a second worker of a row waits for the flush after. */
function takeBatch(shard: Shard): Pending[] {
  const rows = new Set<string>();
  const batch: Pending[] = [];
  for (const [key, pending] of shard.pending) {
    if (batch.length >= ROWS_A_FLUSH_MAX) break;
    if (rows.has(pending.row)) continue;
    rows.add(pending.row);
    batch.push(pending);
    shard.pending.delete(key);
  }
  return batch;
}

/** A completion as the decision procedure takes it. */
export function completionArgs(pending: Completion): AckGroupArgs {
  return {
    tenant: pending.tenant,
    partitionId: pending.partitionId,
    group: pending.group,
    lease: pending.worker,
    codes: [ACK_CODE.completed, ACK_CODE.completed],
    offsets: [pending.first, pending.position],
    hashes: null,
  };
}
