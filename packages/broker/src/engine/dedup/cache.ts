/**
 * The deduplication cache: per partition the hashes of the window, so that a push can tell the database up to which
 * offset none of its transactionIds occurs, and the probe runs over the rest only. In the steady state that rest is
 * empty, and deduplication costs a comparison in this process and no query.
 *
 * INVARIANT. If `vouch` answers v, then at the moment of any later probe no hash of the bundle occurs at an offset
 * at or below v inside the window. The answer -1 claims nothing and is always right, so every doubt becomes -1; the
 * verdict itself is always the database's.
 *
 * ARGUMENT. The log of a partition only grows: what is stored at or below an offset never changes, so a statement about
 * offsets at or below v cannot become false by waiting, only the window start moves, forward (see
 * partition_window.ts for why a clock that steps back does not move it back). It remains that an entry knows every
 * in-window hash at or below its `verifiedUpto`. That holds
 * - at birth: the rows are read in, or after, the snapshot that told `last_offset`, and every row at or below that
 *   offset was committed by then. An entry is not visible before its last row is in; a failed one never is.
 * - when a commit is appended: only if its base is `verifiedUpto + 1`, so no offset in between is skipped.
 * - when something expires: only whole blocks older than the window.
 * Nothing else moves `verifiedUpto`. A different window length than asked for, or a gap, makes the entry mute until a
 * full hydration has replaced it.
 *
 * INTERLEAVINGS. JavaScript runs one at a time, so only what crosses an `await` can interleave: a hydration that is
 * on its way, with commits, evictions, forgetting and other hydrations of the same partition. Let S be its snapshot,
 * with `last_offset` L, and C a commit of this broker at B..E that is reported while it is under way.
 * - C is in S (E <= L): its row came with the answer. The report says nothing new and is skipped.
 * - C is not in S (B > L): the entry is born as of L, which is right without C; then the noted commits above L
 *   are applied in the order of their offsets by the rule for commits, each continuing directly or leaving a gap.
 * - C is in S but reported after the landing: it lies at or below the offset of birth and its hashes are all there, so it
 *   is recognised as known. Were one of them missing, the allocator would have given an offset twice: rebuild.
 * - C's outcome is in doubt and never reported: the next commit leaves a gap. Until then v is below C, and the probe
 *   covers it.
 * - Another broker's commit: like the last.
 * - The entry is evicted or replaced between `vouch` and `committed`: the vouch stays true (the log only grows); the
 *   commit goes to whichever entry is there by the same rule, or nowhere.
 * - Forgotten, or wanted for another window meanwhile: the hydration is cancelled and its answer dropped. At most one
 *   hydration of a partition may land, the one in the table.
 *
 * MEMORY. See memory_gate.ts for admissions. Growth of a resident entry is not gated, but when it exceeds the cap,
 * entries unused for five seconds go, the longest unused first; when there is none, the one that grew goes itself
 * and is suppressed: a partition in use is never evicted for another.
 *
 * REJECTED. A map from hash to offset: it would name duplicates without the database, but it doubles in lockstep over
 * all partitions, costs four times the memory, needs reference counts to expire, and its verdict would have to be
 * exact instead of merely sound. Filling a gap by reading only the rows above `verifiedUpto`: cheaper, but then
 * completeness would rest on a chain of repairs instead of on one statement; a gap is rebuilt as a whole, and brokers
 * that keep interleaving on a partition wait longer before each rebuild, since the probe is cheaper for them.
 */
import type { Clock } from '../clock.ts';
import { Hydration, type WindowRow, type WindowSource, type WindowStart } from './hydration.ts';
import { type GateLog, MemoryGate, scaleBytes } from './memory_gate.ts';
import { PartitionWindow, windowBytes } from './partition_window.ts';
import { UseOrder } from './use_order.ts';

const RECENT_USE_MS = 5_000;
/** An entry unused for so long makes room for a partition that was suppressed or evicted before. */
const UNUSED_MS = 30_000;
/** Accuracy of the order of use: re-ordering the table on every call would cost more than the vouch. */
const TOUCH_MS = 500;
/** A second gap in a row that follows a hydration sooner than this delays the next one, and each further one twice as long. */
const QUIET_MS = 10_000;
const REBUILD_PAUSE_MS = 250;
const REBUILD_PAUSE_MS_MAX = 30_000;
const STATEMENTS_MAX = 4;
const PARTITIONS_A_STATEMENT = 64;
const DONE = Promise.resolve();

export interface DedupCacheOptions {
  /** False: never vouches, never reads. */
  enabled: boolean;
  maxBytes: number;
  hydrate: WindowSource;
  clock: Clock;
  log: GateLog;
}

export interface DedupStats {
  bytes: number;
  maxBytes: number;
  hashes: number;
  residentPartitions: number;
  suppressedPartitions: number;
  hydratingPartitions: number;
  vouchedTotal: number;
  unvouchedTotal: number;
  /** Unvouched because a hash was there: probably duplicates. */
  localHitsTotal: number;
  gapsTotal: number;
  evictionsTotal: number;
  suppressionsTotal: number;
  hydrations: { loaded: number; failed: number; suppressed: number; dropped: number };
}

export class DedupCache {
  readonly #enabled: boolean;
  readonly #source: WindowSource;
  readonly #clock: Clock;
  readonly #log: GateLog;
  readonly #gate: MemoryGate;
  readonly #entries = new Map<number, PartitionWindow>();
  /** The same ones. */
  readonly #order = new UseOrder<PartitionWindow>();
  readonly #hydrations = new Map<number, Hydration>();
  #queue: Hydration[] = [];
  #statements = 0;
  #pumping = false;
  #failureLoggedAtMs = Number.NEGATIVE_INFINITY;
  readonly #count = { vouched: 0, unvouched: 0, localHits: 0, gaps: 0, evictions: 0, suppressions: 0 };
  readonly #outcomes = { loaded: 0, failed: 0, suppressed: 0, dropped: 0 };

  constructor(options: DedupCacheOptions) {
    this.#enabled = options.enabled;
    this.#source = options.hydrate;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#gate = new MemoryGate(options.maxBytes, options.clock, options.log);
  }

  /**
   * Loads the partition's window unless it is resident, or the gate keeps it out. Resolves at once when there is
   * nothing to do, and never later than a quarter of a second: a push does not wait for a slow database here. Never
   * rejects. `lastOffset`: the partition's highest offset as the caller last heard of it; -1 (a partition that is
   * empty, as far as known) spares the database: such an entry is complete without reading, and a gap shows if not.
   */
  prepare(partitionId: number, windowSeconds: number, lastOffset: number | null = null): Promise<void> {
    if (!this.#enabled || windowSeconds <= 0) return DONE;
    const entry = this.#entries.get(partitionId);
    if (entry !== undefined && entry.windowSeconds === windowSeconds) {
      if (!entry.broken || this.#clock.now() < entry.rebuildAtMs) return DONE;
    }
    const running = this.#hydrations.get(partitionId);
    if (running !== undefined) {
      if (running.windowSeconds === windowSeconds) return running.ready;
      this.#cancel(running);
    }
    if (this.#gate.paused(partitionId)) return DONE;
    if (entry === undefined && lastOffset === -1) {
      this.#bornEmpty(partitionId, windowSeconds);
      return DONE;
    }
    const reserved = this.#admit(partitionId, windowSeconds, entry);
    if (reserved === null) return DONE;
    const hydration = new Hydration(partitionId, windowSeconds, reserved, this.#clock);
    this.#gate.reservedBytes += reserved;
    this.#hydrations.set(partitionId, hydration);
    this.#queue.push(hydration);
    this.#pumpSoon();
    return hydration.ready;
  }

  /**
   * The offset up to which none of the hashes (16 bytes each) occurs in the window, or -1: cannot vouch (not
   * resident, another window, a gap, suppressed, or one of them may be there).
   */
  vouch(partitionId: number, windowSeconds: number, hashes: Buffer): number {
    const entry = this.#entries.get(partitionId);
    if (
      entry === undefined ||
      entry.broken ||
      entry.windowSeconds !== windowSeconds ||
      hashes.length % 16 !== 0
    ) {
      this.#count.unvouched++;
      return -1;
    }
    this.#touch(entry);
    if (entry.knowsAny(hashes)) {
      this.#count.unvouched++;
      this.#count.localHits++;
      return -1;
    }
    this.#count.vouched++;
    return entry.verifiedUpto;
  }

  /**
   * To be called after a commit that stored these hashes at `base`, `base + 1`, …, with the segment's time from the
   * same answer. Forgetting to call it, or calling it late, costs a gap, never a wrong vouch.
   */
  committed(partitionId: number, base: number, hashes: Buffer, createdAtMicros: number): void {
    if (hashes.length === 0) return;
    this.#hydrations.get(partitionId)?.note(base, hashes, createdAtMicros);
    const entry = this.#entries.get(partitionId);
    if (entry === undefined || entry.broken) return;
    this.#touch(entry);
    const before = entry.bytes;
    const usable =
      hashes.length % 16 === 0 && Number.isSafeInteger(base) && Number.isSafeInteger(createdAtMicros);
    const how = usable ? entry.advance(base, hashes, createdAtMicros) : 'overlap';
    if (how === 'gap' || how === 'overlap') this.#break(entry);
    this.#gate.residentBytes += entry.bytes - before;
    if (this.#gate.usedBytes > this.#gate.maxBytes) this.#shed(entry);
  }

  /** The partition is gone: nothing of it is kept. */
  forget(partitionId: number): void {
    const running = this.#hydrations.get(partitionId);
    if (running !== undefined) this.#cancel(running);
    const entry = this.#entries.get(partitionId);
    if (entry !== undefined) this.#remove(entry);
    this.#gate.forget(partitionId);
  }

  /** Forgets everything. After a failover to a server that may lack commits which this broker saw. */
  clear(): void {
    for (const hydration of [...this.#hydrations.values()]) this.#cancel(hydration);
    for (const entry of [...this.#entries.values()]) this.#remove(entry);
  }

  /** Walks the entries: for gauges that are read now and then. */
  stats(): DedupStats {
    let hashes = 0;
    for (const entry of this.#entries.values()) hashes += entry.hashes;
    return {
      bytes: this.#gate.residentBytes,
      maxBytes: this.#gate.maxBytes,
      hashes,
      residentPartitions: this.#entries.size,
      suppressedPartitions: this.#gate.suppressedPartitions(),
      hydratingPartitions: this.#hydrations.size,
      vouchedTotal: this.#count.vouched,
      unvouchedTotal: this.#count.unvouched,
      localHitsTotal: this.#count.localHits,
      gapsTotal: this.#count.gaps,
      evictionsTotal: this.#count.evictions,
      suppressionsTotal: this.#count.suppressions,
      hydrations: { ...this.#outcomes },
    };
  }

  #touch(entry: PartitionWindow): void {
    const now = this.#clock.now();
    if (now - entry.usedAtMs < TOUCH_MS) return;
    entry.usedAtMs = now;
    this.#order.touch(entry);
  }

  #break(entry: PartitionWindow): void {
    this.#count.gaps++;
    entry.broken = true;
    const now = this.#clock.now();
    const soon = now - entry.bornAtMs < QUIET_MS;
    entry.gaps = soon ? entry.gaps + 1 : 0;
    const pauseMs =
      entry.gaps < 2 ? 0 : Math.min(REBUILD_PAUSE_MS * 2 ** (entry.gaps - 2), REBUILD_PAUSE_MS_MAX);
    entry.rebuildAtMs = now + pauseMs;
  }

  #bornEmpty(partitionId: number, windowSeconds: number): void {
    const entry = new PartitionWindow(partitionId, windowSeconds, this.#clock.now());
    entry.born(-1);
    this.#install(entry);
    if (this.#gate.usedBytes > this.#gate.maxBytes) this.#shed(entry);
  }

  /** The bytes to reserve for a hydration, or null: suppressed. */
  #admit(partitionId: number, windowSeconds: number, resident: PartitionWindow | undefined): number | null {
    // It keeps the room that it has: no gate for the rebuild after a gap.
    if (resident?.windowSeconds === windowSeconds) return 0;
    const own = resident?.bytes ?? 0;
    const estimate =
      resident === undefined
        ? this.#gate.estimate(partitionId, windowSeconds)
        : scaleBytes(own, resident.windowSeconds, windowSeconds);
    if (estimate === null) return 0;
    const more = Math.max(0, estimate - own);
    if (this.#makeRoom(this.#gate.excess(more), UNUSED_MS, partitionId)) return more;
    this.#suppress(partitionId, estimate, windowSeconds);
    return null;
  }

  /** Judged again when the first page has told the size. */
  #admitSize(hydration: Hydration, bytes: number): boolean {
    const { partitionId, windowSeconds } = hydration;
    const resident = this.#entries.get(partitionId);
    const more = Math.max(0, bytes - (resident?.bytes ?? 0));
    this.#gate.reservedBytes -= hydration.reservedBytes;
    hydration.reservedBytes = 0;
    const rebuild = resident?.windowSeconds === windowSeconds;
    const excess = rebuild ? this.#gate.usedBytes + more - this.#gate.maxBytes : this.#gate.excess(more);
    if (more > 0 && !this.#makeRoom(excess, RECENT_USE_MS, partitionId)) {
      this.#suppress(partitionId, bytes, windowSeconds);
      return false;
    }
    hydration.reservedBytes = more;
    this.#gate.reservedBytes += more;
    return true;
  }

  /**
   * Evicts entries that were not used for `unusedMs`, the longest unused first, until `excess` bytes are free. False,
   * with nothing evicted: they would not suffice.
   */
  #makeRoom(excess: number, unusedMs: number, exceptId: number): boolean {
    if (excess <= 0) return true;
    const now = this.#clock.now();
    const victims: PartitionWindow[] = [];
    let free = 0;
    for (const entry of this.#order) {
      if (now - entry.usedAtMs < unusedMs) break;
      if (entry.partitionId === exceptId) continue;
      victims.push(entry);
      free += entry.bytes;
      if (free >= excess) break;
    }
    if (free < excess) return false;
    for (const victim of victims) this.#evict(victim);
    return true;
  }

  /** The cap is exceeded because `grown` grew. */
  #shed(grown: PartitionWindow): void {
    const over = this.#gate.usedBytes - this.#gate.maxBytes;
    if (this.#makeRoom(over, RECENT_USE_MS, grown.partitionId)) return;
    this.#suppress(grown.partitionId, grown.bytes, grown.windowSeconds);
  }

  #evict(entry: PartitionWindow): void {
    this.#count.evictions++;
    this.#gate.measured(entry.partitionId, entry.bytes, entry.windowSeconds);
    this.#remove(entry);
  }

  /** What is resident of a suppressed partition could not be used, so it goes too. */
  #suppress(partitionId: number, bytes: number, windowSeconds: number): void {
    this.#count.suppressions++;
    const entry = this.#entries.get(partitionId);
    if (entry !== undefined) this.#remove(entry);
    this.#gate.suppress(partitionId, bytes, windowSeconds);
  }

  #remove(entry: PartitionWindow): void {
    this.#gate.residentBytes -= entry.bytes;
    this.#entries.delete(entry.partitionId);
    this.#order.remove(entry);
  }

  #cancel(hydration: Hydration): void {
    if (hydration.cancelled) return;
    hydration.cancelled = true;
    this.#outcomes.dropped++;
    this.#release(hydration);
  }

  #release(hydration: Hydration): void {
    this.#gate.reservedBytes -= hydration.reservedBytes;
    hydration.reservedBytes = 0;
    if (this.#hydrations.get(hydration.partitionId) === hydration) {
      this.#hydrations.delete(hydration.partitionId);
    }
    hydration.end();
  }

  /** One statement for all partitions that a bundle prepares in one go. */
  #pumpSoon(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    queueMicrotask(() => {
      this.#pumping = false;
      this.#pump();
    });
  }

  #pump(): void {
    while (this.#statements < STATEMENTS_MAX && this.#queue.length > 0) {
      const batch = this.#queue.splice(0, PARTITIONS_A_STATEMENT).filter((hydration) => !hydration.cancelled);
      if (batch.length === 0) continue;
      this.#statements++;
      void this.#hydrate(batch).finally(() => {
        this.#statements--;
        this.#pump();
      });
    }
  }

  async #hydrate(batch: Hydration[]): Promise<void> {
    let starts: (WindowStart | null)[];
    try {
      starts = await this.#source.open(batch);
      if (starts.length !== batch.length)
        throw new Error(`${starts.length} windows for ${batch.length} requests`);
    } catch (error) {
      for (const hydration of batch) this.#fail(hydration, error);
      return;
    }
    await Promise.all(batch.map((hydration, i) => this.#load(hydration, starts[i]!)));
  }

  async #load(hydration: Hydration, start: WindowStart | null): Promise<void> {
    try {
      if (hydration.cancelled) return;
      if (start === null) return this.#cancel(hydration);
      if (!this.#admitSize(hydration, windowBytes(start.hashes))) {
        this.#outcomes.suppressed++;
        return this.#release(hydration);
      }
      const entry = new PartitionWindow(hydration.partitionId, hydration.windowSeconds, this.#clock.now());
      for (let rows = start.rows; rows.length > 0; ) {
        loadRows(entry, rows);
        const last = rows.at(-1)!;
        if (last.endOffset >= start.lastOffset) break;
        rows = await this.#source.next(hydration.partitionId, last.baseOffset, start.lastOffset);
        if (hydration.cancelled) return;
      }
      this.#land(hydration, entry, start.lastOffset);
    } catch (error) {
      this.#fail(hydration, error);
    }
  }

  /** The one place where an entry with hashes becomes visible. */
  #land(hydration: Hydration, entry: PartitionWindow, lastOffset: number): void {
    const { partitionId } = hydration;
    const before = this.#entries.get(partitionId);
    if (before !== undefined) {
      entry.gaps = before.gaps;
      this.#remove(before);
    }
    entry.born(lastOffset);
    this.#outcomes.loaded++;
    this.#install(entry);
    this.#release(hydration);
    for (const commit of hydration.notedAbove(lastOffset)) {
      // Not by committed(): it would note them again if another hydration had begun.
      if (entry.broken) break;
      const bytes = entry.bytes;
      const how = entry.advance(commit.base, commit.hashes, commit.createdAtMicros);
      if (how !== 'appended') this.#break(entry);
      this.#gate.residentBytes += entry.bytes - bytes;
    }
    if (this.#gate.usedBytes > this.#gate.maxBytes) this.#shed(entry);
  }

  #install(entry: PartitionWindow): void {
    this.#entries.set(entry.partitionId, entry);
    this.#order.add(entry);
    this.#gate.residentBytes += entry.bytes;
    this.#gate.admitted(entry.partitionId);
  }

  #fail(hydration: Hydration, error: unknown): void {
    if (hydration.cancelled) return;
    this.#outcomes.failed++;
    this.#gate.failed(hydration.partitionId);
    this.#release(hydration);
    const now = this.#clock.now();
    if (now - this.#failureLoggedAtMs < 60_000) return;
    this.#failureLoggedAtMs = now;
    this.#log.warn(
      { partitionId: hydration.partitionId, err: error },
      'a deduplication window could not be read',
    );
  }
}

function loadRows(entry: PartitionWindow, rows: readonly WindowRow[]): void {
  for (const { baseOffset, endOffset, createdAtMicros, hashes } of rows) {
    if (!entry.load(baseOffset, endOffset, createdAtMicros, hashes)) {
      throw new Error(`sidecar row ${baseOffset}..${endOffset} holds ${hashes.length} bytes of hashes`);
    }
  }
}
