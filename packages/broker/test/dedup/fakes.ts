/** A clock driven by hand, a window source driven by hand, and hashes, for the tests of the cache. */
import type { Clock, Timer } from '../../src/engine/clock.ts';
import { DedupCache } from '../../src/engine/dedup/cache.ts';
import type {
  WindowRequest,
  WindowRow,
  WindowSource,
  WindowStart,
} from '../../src/engine/dedup/hydration.ts';

export class FakeClock implements Clock {
  #nowMs = 1_000;
  #timers: { atMs: number; work: () => void }[] = [];

  now(): number {
    return this.#nowMs;
  }

  after(ms: number, work: () => void): Timer {
    const timer = { atMs: this.#nowMs + ms, work };
    this.#timers.push(timer);
    return {
      cancel: () => {
        this.#timers = this.#timers.filter((other) => other !== timer);
      },
    };
  }

  advance(ms: number): void {
    this.#nowMs += ms;
    const due = this.#timers.filter((timer) => timer.atMs <= this.#nowMs);
    this.#timers = this.#timers.filter((timer) => timer.atMs > this.#nowMs);
    for (const timer of due) timer.work();
  }

  get pending(): number {
    return this.#timers.length;
  }
}

/** A hash for a number, 16 bytes, uniform as the real ones are; distinct for distinct numbers. */
export function hashOf(id: number): Buffer {
  return hashesOf([id]);
}

export function hashesOf(ids: readonly number[]): Buffer {
  const out = Buffer.allocUnsafe(ids.length * 16);
  for (const [i, id] of ids.entries()) {
    for (let word = 0; word < 4; word++)
      out.writeInt32LE(mix((id | 0) + word * 0x9e3779b9), i * 16 + word * 4);
  }
  return out;
}

/** The finalizer of MurmurHash3: a bijection of 32-bit numbers. */
function mix(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}

export function range(first: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => first + i);
}

export function row(baseOffset: number, ids: readonly number[], createdAtMicros = 0): WindowRow {
  return { baseOffset, endOffset: baseOffset + ids.length - 1, createdAtMicros, hashes: hashesOf(ids) };
}

/** A log of one partition from rows of `size` hashes each. */
export function rowsOf(hashes: number, size = 500, firstId = 0): WindowRow[] {
  const rows: WindowRow[] = [];
  for (let at = 0; at < hashes; at += size)
    rows.push(row(at, range(firstId + at, Math.min(size, hashes - at))));
  return rows;
}

interface Asked {
  requests: WindowRequest[];
  answer: (starts: (WindowStart | null)[]) => void;
  fail: (error: Error) => void;
}

/** Keeps each question until the test answers it, unless `rows` answers at once. */
export class FakeSource implements WindowSource {
  asked: Asked[] = [];
  opened = 0;
  pages = 0;
  pageRows = 1_000_000;
  /** By partition id; a partition without an entry has to be answered by hand. */
  readonly rows = new Map<number, WindowRow[]>();

  open(requests: readonly WindowRequest[]): Promise<(WindowStart | null)[]> {
    this.opened += requests.length;
    if (requests.every(({ partitionId }) => this.rows.has(partitionId))) {
      return Promise.resolve(requests.map(({ partitionId }) => this.start(this.rows.get(partitionId)!)));
    }
    const { promise, resolve, reject } = Promise.withResolvers<(WindowStart | null)[]>();
    this.asked.push({ requests: [...requests], answer: resolve, fail: reject });
    return promise;
  }

  next(partitionId: number, afterBase: number, lastOffset: number): Promise<WindowRow[]> {
    this.pages++;
    const rows = this.rows.get(partitionId) ?? [];
    const rest = rows.filter((r) => r.baseOffset > afterBase && r.endOffset <= lastOffset);
    return Promise.resolve(rest.slice(0, this.pageRows));
  }

  start(rows: WindowRow[], lastOffset = rows.at(-1)?.endOffset ?? -1): WindowStart {
    const hashes = rows.reduce((sum, r) => sum + r.hashes.length / 16, 0);
    return { lastOffset, hashes, rows: rows.slice(0, this.pageRows) };
  }
}

export interface Bench {
  cache: DedupCache;
  clock: FakeClock;
  source: FakeSource;
  warnings: { facts: object; message: string }[];
}

export function bench(options: { maxBytes?: number; enabled?: boolean } = {}): Bench {
  const clock = new FakeClock();
  const source = new FakeSource();
  const warnings: Bench['warnings'] = [];
  const cache = new DedupCache({
    enabled: options.enabled ?? true,
    maxBytes: options.maxBytes ?? 64 * 1024 * 1024,
    hydrate: source,
    clock,
    log: { warn: (facts, message) => warnings.push({ facts, message }) },
  });
  return { cache, clock, source, warnings };
}

/** Lets everything that is ready run. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
}
