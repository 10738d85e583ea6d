/**
 * Rebuilds rings from PostgreSQL: what a lost notification, another broker or a restart hid is found again here.
 *
 * - A new ring is read in full, page by page, by the first pop that needs it; pops go on with what the pages
 *   found so far.
 * - Every `reseedMs` the recently written partitions of all rings are read in one statement.
 * - Every `fullMs` a ring is read in full again.
 * - Rings that nobody asked for since their last reseed are left alone: the next pop finds them stale.
 */

import type { Queryable } from '../../store/database.ts';
import { type PendingPage, page, type Repair, recent, repairs } from '../../store/hotlist.ts';
import type { StoreLog } from '../../store/log.ts';
import type { Clock, Timer } from '../clock.ts';
import type { GroupRing, HotList } from './hotlist.ts';
import { LEASE_MARGIN_MS } from './ring.ts';

export const PAGE_PARTITIONS = 10_000;
export const PAGES_MAX = 200;
/** Rings in one statement. */
const RINGS_MAX = 256;
const JITTER_MAX_MS = 15_000;
const REPAIRS_POLL_MS = 60_000;

export interface ReseedSettings {
  readonly reseedMs: number;
  /** 0: every reseed is a full one. */
  readonly fullMs: number;
  /** How far back a reseed looks, 120 s at least and a week at most. */
  readonly windowMs: number;
  readonly idleSweepMs: number;
  readonly pagePartitions?: number;
  readonly pagesMax?: number;
}

export interface ReseedDeps {
  hotlist: HotList;
  /** Runs a read under the maintenance lane's admission. */
  read: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  clock: Clock;
  settings: ReseedSettings;
  log: StoreLog;
  /** Microseconds of the database's clock now, or null while it is not known. */
  databaseNow: () => number | null;
  /** The cursors of a group were moved by hand. `partition` null: on the whole queue. */
  onRepair?: (repair: Repair) => void;
  /** Draws from [0, 1). */
  random?: () => number;
}

export class Reseed {
  readonly #deps: ReseedDeps;
  readonly #running = new Map<GroupRing, Seeding>();
  readonly #looks = new Map<string, Promise<void>>();
  readonly #timers = new Map<string, Timer>();
  #repairs: Map<string, string> = new Map();
  #stopped = false;
  #rounds = { windowed: 0, full: 0, pages: 0, repairs: 0, errors: 0 };

  constructor(deps: ReseedDeps) {
    this.#deps = deps;
  }

  start(): void {
    const { reseedMs, idleSweepMs } = this.#deps.settings;
    this.#loop('reseed', reseedMs, () => this.pass());
    this.#loop('repairs', REPAIRS_POLL_MS, () => this.pollRepairs());
    this.#loop('sweep', idleSweepMs, () => Promise.resolve(this.#deps.hotlist.sweep()));
    void this.pollRepairs().catch((err: unknown) => {
      this.#deps.log.warn({ err }, 'repairs not read, trying again later');
    });
  }

  /** Resolves when the looks that were under way have ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const timer of this.#timers.values()) timer.cancel();
    this.#timers.clear();
    await Promise.all(this.#looks.values());
  }

  stats(): { windowed: number; full: number; pages: number; repairs: number; errors: number } {
    return { ...this.#rounds };
  }

  /**
   * Reads on in a ring that is not complete. Resolves after the next page, with false when there is none to come.
   * Rejects with the page's error.
   */
  async progress(ring: GroupRing): Promise<boolean> {
    if (ring.complete || ring.truncated || ring.dropped || this.#stopped) return false;
    await this.#seeding(ring).nextPage();
    return true;
  }

  /** Looks at the recent writes of one ring that was left alone for a while; at once when it was not. */
  async freshen(ring: GroupRing): Promise<void> {
    const { clock, settings } = this.#deps;
    const age = clock.now() - ring.seededAt;
    if (ring.dropped || !ring.complete || age < 2 * settings.reseedMs + JITTER_MAX_MS) return;
    if (age > settings.windowMs) await this.full(ring);
    else await this.#recent([ring]);
  }

  /** Reads the ring in full. */
  async full(ring: GroupRing): Promise<void> {
    await this.#seeding(ring).done;
  }

  /** One look at all rings that are in use. */
  async pass(): Promise<void> {
    const { hotlist, clock, settings } = this.#deps;
    const now = clock.now();
    const full: GroupRing[] = [];
    const due: GroupRing[] = [];
    const windowed: GroupRing[] = [];
    for (const ring of hotlist.rings()) {
      if (ring.usedAt < ring.seededAt) continue;
      // A ring that was left alone for longer than the window has a gap that only a full read closes.
      const gap = ring.seededAt < now - settings.windowMs;
      if (gap || settings.fullMs === 0 || ring.seededFullAt === Number.NEGATIVE_INFINITY) full.push(ring);
      else if (ring.seededFullAt < now - settings.fullMs) due.push(ring);
      else windowed.push(ring);
    }
    // Rings that were made together come due together; a share of them a pass keeps the load even.
    due.sort((a, b) => a.seededFullAt - b.seededFullAt);
    const share = Math.ceil(
      ((due.length + windowed.length) * settings.reseedMs) / Math.max(settings.fullMs, settings.reseedMs),
    );
    full.push(...due.splice(0, share));
    windowed.push(...due);
    for (const ring of full) {
      if (!this.#stopped) await this.full(ring);
    }
    for (let at = 0; at < windowed.length && !this.#stopped; at += RINGS_MAX) {
      await this.#recent(windowed.slice(at, at + RINGS_MAX));
    }
  }

  /** Acts on every repair that is new or has changed since the last look. */
  async pollRepairs(): Promise<void> {
    const rows = await this.#deps.read((db) => repairs(db));
    const before = this.#repairs;
    const after = new Map<string, string>();
    for (const row of rows) {
      const key = JSON.stringify([row.tenant, row.queue, row.group]);
      // Not a high-water mark of time: clocks and the order of commits differ between brokers.
      const version = JSON.stringify([row.repairAtMicros, row.partition]);
      after.set(key, version);
      if (before.get(key) === version) continue;
      this.#rounds.repairs++;
      this.#repair(row);
    }
    this.#repairs = after;
  }

  #repair(row: Repair): void {
    const { hotlist } = this.#deps;
    if (row.partition === null) hotlist.drop(row.tenant, row.queue, row.group);
    else if (row.partitionId !== null) hotlist.revive(row.tenant, row.queue, row.group, row.partitionId);
    this.#deps.onRepair?.(row);
  }

  async #recent(rings: readonly GroupRing[]): Promise<void> {
    const { settings, clock, databaseNow } = this.#deps;
    const now = databaseNow();
    if (now === null) {
      for (const ring of rings) await this.full(ring);
      return;
    }
    const limit = settings.pagePartitions ?? PAGE_PARTITIONS;
    const started = clock.now();
    const rows = await this.#deps.read((db) => recent(db, rings, now - settings.windowMs * 1000, limit));
    this.#rounds.windowed++;
    for (const ring of rings) ring.seededAt = started;
    for (const row of rows) {
      const ring = rings[row.ring] as GroupRing;
      apply(this.#deps, ring, row);
      if (row.truncated) await this.full(ring);
    }
  }

  #seeding(ring: GroupRing): Seeding {
    let seeding = this.#running.get(ring);
    if (seeding === undefined) {
      this.#rounds.full++;
      seeding = new Seeding(this.#deps, ring, () => {
        this.#rounds.pages++;
        return this.#stopped;
      });
      this.#running.set(ring, seeding);
      const forget = () => this.#running.delete(ring);
      seeding.done.then(forget, forget);
    }
    return seeding;
  }

  #loop(name: string, periodMs: number, work: () => Promise<void>): void {
    if (this.#stopped) return;
    const { clock, random = Math.random, log } = this.#deps;
    const jitter = random() * Math.min(periodMs / 5, JITTER_MAX_MS);
    const timer = clock.after(periodMs + jitter, () => {
      const round = work()
        .catch((error: unknown) => {
          this.#rounds.errors++;
          log.warn({ err: error, task: name }, 'the hot list could not be refreshed, trying again later');
        })
        .finally(() => this.#loop(name, periodMs, work));
      this.#looks.set(name, round);
    });
    this.#timers.set(name, timer);
  }
}

/** A full read of one ring, page by page. */
class Seeding {
  readonly done: Promise<void>;
  readonly #deps: ReseedDeps;
  #next: PromiseWithResolvers<void>;

  constructor(deps: ReseedDeps, ring: GroupRing, paged: () => boolean) {
    this.#deps = deps;
    this.#next = Promise.withResolvers();
    this.#next.promise.catch(() => {});
    this.done = this.#run(ring, paged);
    this.done.catch(() => {});
  }

  /** Resolves after the page that is being read. */
  nextPage(): Promise<void> {
    return this.#next.promise;
  }

  async #run(ring: GroupRing, paged: () => boolean): Promise<void> {
    const { settings, clock } = this.#deps;
    const limit = settings.pagePartitions ?? PAGE_PARTITIONS;
    const started = clock.now();
    try {
      let after: string | null = '';
      for (let pages = 0; after !== null && !ring.dropped; pages++) {
        if (pages >= (settings.pagesMax ?? PAGES_MAX)) {
          ring.truncated = true;
          break;
        }
        const from: string = after;
        const found = await this.#deps.read((db) => page(db, ring.queueId, ring.group, from, limit));
        apply(this.#deps, ring, found);
        after = found.nextName;
        if (paged()) break;
        if (after === null) {
          ring.complete = true;
          ring.truncated = false;
          ring.seededFullAt = started;
        }
        this.#turn();
      }
      ring.seededAt = started;
    } catch (error) {
      this.#next.reject(error);
      throw error;
    }
    this.#next.resolve();
  }

  #turn(): void {
    const read = this.#next;
    this.#next = Promise.withResolvers();
    this.#next.promise.catch(() => {});
    read.resolve();
  }
}

/** Tells the ring what the database says is pending. */
function apply(deps: ReseedDeps, ring: GroupRing, found: PendingPage): void {
  const { ids, lasts, positions, leasedMicros, leasedTo } = found;
  if (ids === null || lasts === null || positions === null || leasedMicros === null || leasedTo === null)
    return;
  const now = deps.clock.now();
  for (let i = 0; i < ids.length; i++) {
    const leased = (leasedMicros[i] as number) / 1000;
    ring.ring.seed(
      ids[i] as number,
      lasts[i] as number,
      positions[i] ?? -1,
      leased > 0 ? Math.max(leased, LEASE_MARGIN_MS / 10) : 0,
      leasedTo[i] as number,
      now,
    );
  }
  deps.hotlist.settled(ring);
}
