/**
 * What this broker delivered lately: for each leased batch who has it, where it ends and what was in it. An ack of exactly
 * that needs no look-up of hashes: "advance this worker to the end of its batch" is the same decision.
 *
 * A hint. The procedure re-checks worker, lease and position under the row lock, so a wrong entry costs a round trip
 * and a missing one the look-up. One kind of batch would be answered differently and is never remembered: one
 * that holds a transactionId twice (possible without deduplication), where a name stands for the lower message only.
 *
 * It also remembers which rows a lease covers, because leases have no index (see 030_lease_extend.sql). An answer is given
 * only while nothing of that lease was forgotten.
 */
import type { Clock } from '../clock.ts';

export interface DeliveredBatch {
  tenant: string;
  partitionId: number;
  group: string;
  worker: string;
  /** Offset of the last message. */
  batchEnd: number;
  /** In the order of delivery. */
  transactionIds: readonly string[];
  /** 0: unknown. */
  leaseSeconds: number;
}

export interface RegistryEntry {
  readonly worker: string;
  readonly batchEnd: number;
  readonly transactionIds: readonly string[];
  readonly bytes: number;
  expiresAt: number;
}

interface LeaseEntry {
  readonly tenant: string;
  readonly rows: Map<string, { partitionId: number; group: string }>;
  bytes: number;
  expiresAt: number;
}

const GRACE_MS = 10_000;
const UNKNOWN_LEASE_MS = 60_000;
const SWEEP_MS = 5_000;
const ENTRY_BYTES = 160;
const ID_BYTES = 48;

export class AckRegistry {
  readonly #clock: Clock;
  readonly #bytesMax: number;
  readonly #batches = new Map<string, RegistryEntry>();
  readonly #leases = new Map<string, LeaseEntry>();
  #bytes = 0;
  #sweptAt: number;

  constructor(options: { clock: Clock; bytesMax?: number }) {
    this.#clock = options.clock;
    this.#bytesMax = options.bytesMax ?? 64 * 1024 * 1024;
    this.#sweptAt = options.clock.now();
  }

  /** Called for each leased claim of a pop, before it is answered. */
  delivered(batch: DeliveredBatch): void {
    const now = this.#clock.now();
    if (now - this.#sweptAt >= SWEEP_MS) this.#sweep(now);
    const expiresAt =
      now + (batch.leaseSeconds > 0 ? batch.leaseSeconds * 1000 + GRACE_MS : UNKNOWN_LEASE_MS);
    const key = keyOf(batch.tenant, batch.partitionId, batch.group);
    this.#dropBatch(key);
    this.#coverRow(batch, key, expiresAt);
    const ids = batch.transactionIds;
    if (ids.length > 0 && (ids.length === 1 || new Set(ids).size === ids.length)) {
      let bytes = ENTRY_BYTES + ID_BYTES * ids.length;
      for (const id of ids) bytes += id.length;
      this.#batches.set(key, {
        worker: batch.worker,
        batchEnd: batch.batchEnd,
        transactionIds: ids,
        bytes,
        expiresAt,
      });
      this.#bytes += bytes;
    }
    this.#fit();
  }

  /**
   * The batch that `worker` holds, which is forgotten with this call: whatever an ack does, the entry has had its use. The
   * entry of another (newer) lease stays and is not told.
   */
  take(tenant: string, partitionId: number, group: string, worker: string): RegistryEntry | null {
    const key = keyOf(tenant, partitionId, group);
    const entry = this.#batches.get(key);
    if (entry === undefined || entry.worker !== worker) return null;
    this.#dropBatch(key);
    return entry.expiresAt > this.#clock.now() ? entry : null;
  }

  /** The lease no longer covers this row. */
  released(tenant: string, partitionId: number, group: string, worker: string): void {
    const lease = this.#leases.get(worker);
    if (lease === undefined || lease.tenant !== tenant) return;
    if (!lease.rows.delete(keyOf(tenant, partitionId, group))) return;
    lease.bytes -= ENTRY_BYTES;
    this.#bytes -= ENTRY_BYTES;
    if (lease.rows.size === 0) this.#dropLease(worker);
  }

  /** All rows that the lease covers; null when this broker cannot tell. */
  rowsOf(tenant: string, worker: string): { partitionIds: number[]; groups: string[] } | null {
    const lease = this.#leases.get(worker);
    if (lease === undefined || lease.tenant !== tenant || lease.expiresAt <= this.#clock.now()) return null;
    const rows = [...lease.rows.values()];
    return { partitionIds: rows.map((row) => row.partitionId), groups: rows.map((row) => row.group) };
  }

  /** The lease was extended by `seconds` from now. */
  extended(tenant: string, worker: string, seconds: number): void {
    const lease = this.#leases.get(worker);
    if (lease === undefined || lease.tenant !== tenant) return;
    const expiresAt = this.#clock.now() + seconds * 1000 + GRACE_MS;
    lease.expiresAt = Math.max(lease.expiresAt, expiresAt);
    for (const key of lease.rows.keys()) {
      const entry = this.#batches.get(key);
      if (entry?.worker === worker) entry.expiresAt = Math.max(entry.expiresAt, expiresAt);
    }
  }

  stats(): { batches: number; leases: number; bytes: number } {
    return { batches: this.#batches.size, leases: this.#leases.size, bytes: this.#bytes };
  }

  #coverRow(batch: DeliveredBatch, key: string, expiresAt: number): void {
    let lease = this.#leases.get(batch.worker);
    if (lease !== undefined && lease.tenant !== batch.tenant) return;
    if (lease === undefined) {
      lease = { tenant: batch.tenant, rows: new Map(), bytes: ENTRY_BYTES, expiresAt };
      this.#leases.set(batch.worker, lease);
      this.#bytes += ENTRY_BYTES;
    }
    if (!lease.rows.has(key)) {
      lease.bytes += ENTRY_BYTES;
      this.#bytes += ENTRY_BYTES;
    }
    lease.rows.set(key, { partitionId: batch.partitionId, group: batch.group });
    lease.expiresAt = Math.max(lease.expiresAt, expiresAt);
  }

  #dropBatch(key: string): void {
    const entry = this.#batches.get(key);
    if (entry === undefined) return;
    this.#batches.delete(key);
    this.#bytes -= entry.bytes;
  }

  #dropLease(worker: string): void {
    const lease = this.#leases.get(worker);
    if (lease === undefined) return;
    this.#leases.delete(worker);
    this.#bytes -= lease.bytes;
  }

  /** Oldest first. Leases go last: forgetting one costs a scan, forgetting a batch a look-up. */
  #fit(): void {
    for (const key of this.#batches.keys()) {
      if (this.#bytes <= this.#bytesMax) return;
      this.#dropBatch(key);
    }
    for (const worker of this.#leases.keys()) {
      if (this.#bytes <= this.#bytesMax) return;
      this.#dropLease(worker);
    }
  }

  #sweep(now: number): void {
    this.#sweptAt = now;
    for (const [key, entry] of this.#batches) if (entry.expiresAt <= now) this.#dropBatch(key);
    for (const [worker, lease] of this.#leases) if (lease.expiresAt <= now) this.#dropLease(worker);
  }
}

function keyOf(tenant: string, partitionId: number, group: string): string {
  return `${tenant}\u001f${partitionId}\u001f${group}`;
}

/** Do these ids name every message of the batch and nothing else? Repetitions and order do not matter. */
export function namesWholeBatch(entry: RegistryEntry, ids: readonly string[]): boolean {
  const batch = entry.transactionIds;
  if (ids.length < batch.length) return false;
  if (ids.length === batch.length && batch.every((id, i) => id === ids[i])) return true;
  const left = new Set(batch);
  const known = new Set(batch);
  for (const id of ids) {
    if (!known.has(id)) return false;
    left.delete(id);
  }
  return left.size === 0;
}
