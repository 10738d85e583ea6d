/**
 * Who may have memory. Without a gate a cache at its cap thrashes: a push to an evicted partition loads its whole
 * window, which evicts a busy one, which loads its window again. So loading a window is admitted only if
 * everything else plus the expected size stays under 90 % of the cap; the headroom is what makes a stable resident set
 * plus *suppressed* overflow out of the ping-pong. A suppressed partition is simply probed by the database, and is not
 * considered again for 30 seconds.
 *
 * Three numbers say how large a window will be: what is resident of it now, what it was when it went (a hint), or
 * nothing, for a partition never met: then it counts as empty and is admitted, and its true size, which the first
 * page of the hydration tells, is judged before more is loaded.
 */
import type { Clock } from '../clock.ts';

const ADMIT_SHARE = 0.9;
const COOLDOWN_MS = 30_000;
const FAILURE_PAUSE_MS = 1_000;
const WARN_EVERY_MS = 60_000;
/** Entries of each helper map; beyond it the oldest are forgotten, which costs a re-measured estimate. */
export const HELPER_ENTRIES_MAX = 100_000;

export interface GateLog {
  warn(facts: object, message: string): void;
}

interface Hint {
  readonly bytes: number;
  readonly windowSeconds: number;
}

interface Pause {
  readonly untilMs: number;
  readonly suppressed: boolean;
}

export class MemoryGate {
  readonly maxBytes: number;
  /** Bytes of the resident windows. */
  residentBytes = 0;
  /** Bytes promised to hydrations that are under way. */
  reservedBytes = 0;
  readonly #clock: Clock;
  readonly #log: GateLog;
  readonly #pauses = new Map<number, Pause>();
  readonly #hints = new Map<number, Hint>();
  #suppressedSince = 0;
  #warnedAtMs = Number.NEGATIVE_INFINITY;

  constructor(maxBytes: number, clock: Clock, log: GateLog) {
    this.maxBytes = maxBytes;
    this.#clock = clock;
    this.#log = log;
  }

  get usedBytes(): number {
    return this.residentBytes + this.reservedBytes;
  }

  /** Bytes that have to go before `bytes` more fit under the mark for admissions; 0 or less: they fit. */
  excess(bytes: number): number {
    return this.usedBytes + bytes - this.maxBytes * ADMIT_SHARE;
  }

  /** The expected size, scaled by the window's length, or null for a partition that was never measured. */
  estimate(partitionId: number, windowSeconds: number): number | null {
    const hint = this.#hints.get(partitionId);
    return hint === undefined ? null : scaleBytes(hint.bytes, hint.windowSeconds, windowSeconds);
  }

  /** Keeps the size of a window that is not resident (any more), for the next estimate. */
  measured(partitionId: number, bytes: number, windowSeconds: number): void {
    remember(this.#hints, partitionId, { bytes, windowSeconds });
  }

  /** Whether the partition is to be left alone for now: suppressed, or its last hydration has just failed. */
  paused(partitionId: number): boolean {
    const pause = this.#pauses.get(partitionId);
    return pause !== undefined && this.#clock.now() < pause.untilMs;
  }

  suppress(partitionId: number, bytes: number, windowSeconds: number): void {
    const now = this.#clock.now();
    this.measured(partitionId, bytes, windowSeconds);
    remember(this.#pauses, partitionId, { untilMs: now + COOLDOWN_MS, suppressed: true });
    this.#suppressedSince++;
    if (now - this.#warnedAtMs < WARN_EVERY_MS) return;
    this.#warnedAtMs = now;
    this.#log.warn(
      {
        partitionId,
        windowBytes: bytes,
        cacheBytes: this.usedBytes,
        cacheBytesMax: this.maxBytes,
        suppressions: this.#suppressedSince,
      },
      'the dedup cache is full: some partitions are checked for duplicates by the database on every push ' +
        '(QUEEN_DEDUP_CACHE_MB)',
    );
    this.#suppressedSince = 0;
  }

  /** After a hydration that failed: a short pause, so that a database in trouble is not asked on every flush. */
  failed(partitionId: number): void {
    const untilMs = this.#clock.now() + FAILURE_PAUSE_MS;
    remember(this.#pauses, partitionId, { untilMs, suppressed: false });
  }

  admitted(partitionId: number): void {
    this.#pauses.delete(partitionId);
  }

  forget(partitionId: number): void {
    this.#pauses.delete(partitionId);
    this.#hints.delete(partitionId);
  }

  /** Partitions that are suppressed now. Walks the helper map: for a gauge, not for a push. */
  suppressedPartitions(): number {
    const now = this.#clock.now();
    let count = 0;
    for (const [partitionId, pause] of this.#pauses) {
      if (now >= pause.untilMs) this.#pauses.delete(partitionId);
      else if (pause.suppressed) count++;
    }
    return count;
  }
}

/** `bytes` of a window of `fromSeconds`, as expected for one of `toSeconds` at the same rate. */
export function scaleBytes(bytes: number, fromSeconds: number, toSeconds: number): number {
  return fromSeconds <= 0 ? bytes : Math.ceil(bytes * (toSeconds / fromSeconds));
}

function remember<Value>(map: Map<number, Value>, partitionId: number, value: Value): void {
  map.delete(partitionId);
  map.set(partitionId, value);
  if (map.size <= HELPER_ENTRIES_MAX) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    break;
  }
}
