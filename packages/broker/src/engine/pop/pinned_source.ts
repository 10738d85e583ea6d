/**
 * The one candidate of a pinned pop. It needs no ring: the first attempt asks the database, a parked one is stirred by
 * what concerns its partition (or, while that does not exist, its queue), and by the end of what its last attempt ran
 * into.
 */
import type { Queryable } from '../../store/database.ts';
import { CLAIM, type ClaimRow, type Pin, pin, register, type Start } from '../../store/pop.ts';
import type { Clock } from '../clock.ts';
import { queueKey } from '../hotlist/hotlist.ts';
import { LEASE_MARGIN_MS, PARK_MAX_MS, PARK_MIN_MS, SKIP_MS } from '../hotlist/ring.ts';
import type { Wish } from '../wake/parking.ts';
import type { Wake, Watch } from '../wake/wake.ts';
import { seeding } from './contact.ts';
import type { Candidates, Source } from './source.ts';

export interface PinnedDeps {
  clock: Clock;
  wake: Wake;
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  pins: Pins;
}

export interface PinnedPop {
  tenant: string;
  queue: string;
  partition: string;
  group: string;
  start: Start;
  conflate: boolean;
}

/** What is remembered of partitions by name. A claim finds out when one is gone. */
export class Pins {
  readonly #clock: Clock;
  readonly #memoMs: number;
  readonly #max: number;
  readonly #pins = new Map<string, { pin: Pin; at: number }>();

  constructor(clock: Clock, memoMs: number, max = 100_000) {
    this.#clock = clock;
    this.#memoMs = memoMs;
    this.#max = max;
  }

  get(key: string): Pin | null {
    const found = this.#pins.get(key);
    if (found === undefined || this.#clock.now() - found.at > this.#memoMs) return null;
    return found.pin;
  }

  set(key: string, pin: Pin): void {
    if (this.#pins.size >= this.#max) this.#pins.clear();
    this.#pins.set(key, { pin, at: this.#clock.now() });
  }

  delete(key: string): void {
    this.#pins.delete(key);
  }

  clear(): void {
    this.#pins.clear();
  }
}

export class PinnedSource implements Source {
  readonly wish: Wish;
  readonly minPopWaitMs = 0;
  pinned: Start;
  conflation = false;
  stale = false;
  readonly #deps: PinnedDeps;
  readonly #pop: PinnedPop;
  readonly #key: string;
  #pin: Pin | null = null;
  #watch: Watch | null = null;
  #drawn = false;
  #stirred = false;
  #seen = -1;
  #dueAt = Number.POSITIVE_INFINITY;

  constructor(deps: PinnedDeps, pop: PinnedPop) {
    this.#deps = deps;
    this.#pop = pop;
    this.pinned = pop.start;
    this.#key = [pop.tenant, pop.queue, pop.partition, pop.group].join('\u001f');
    this.wish = {
      keys: [queueKey(pop.tenant, pop.queue)],
      group: pop.group,
      ready: null,
      wants: () => this.#stirred || deps.clock.now() >= this.#dueAt,
    };
  }

  async prepare(): Promise<void> {
    // Stirred from here on: what happens after the look at the database must not be missed.
    this.#stirred = false;
    this.#drawn = false;
    this.stale = false;
    this.#dueAt = Number.POSITIVE_INFINITY;
    this.#watchFor(this.#pin?.partitionId ?? null);
    const { pins } = this.#deps;
    const found = pins.get(this.#key) ?? (await this.#find());
    if (found.partitionId !== null) pins.set(this.#key, found);
    this.#pin = found;
    this.conflation = found.conflation;
    this.#watchFor(found.partitionId);
  }

  draw(): Promise<Candidates> {
    const pin = this.#pin;
    if (pin === null || pin.partitionId === null || this.#drawn)
      return Promise.resolve({ ids: [], queues: [] });
    this.#drawn = true;
    return Promise.resolve({ ids: [pin.partitionId], queues: [pin.queueId] });
  }

  settle(row: ClaimRow): void {
    const now = this.#deps.clock.now();
    this.#seen = Math.max(this.#seen, row.lastOffset ?? -1);
    const waitMs = (row.waitMicros ?? 0) / 1000;
    if (row.verdict === CLAIM.leased) this.#dueAt = now + Math.min(waitMs + LEASE_MARGIN_MS, PARK_MAX_MS);
    else if (row.verdict === CLAIM.deferred) {
      this.#dueAt = now + Math.min(Math.max(waitMs, PARK_MIN_MS), PARK_MAX_MS);
    } else if (row.verdict !== CLAIM.empty) this.#dueAt = now + SKIP_MS;
  }

  giveBack(ids: readonly number[]): void {
    if (ids.length > 0) this.#stirred = true;
  }

  retry(_id: number, parkMs = 0): void {
    this.#dueAt = this.#deps.clock.now() + parkMs;
  }

  busy(): void {
    this.#dueAt = this.#deps.clock.now() + SKIP_MS;
  }

  outdated(): void {
    this.#deps.pins.delete(this.#key);
    this.#pin = null;
    this.#seen = -1;
    this.stale = true;
  }

  backlog(): null {
    return null;
  }

  close(): void {
    if (this.#watch !== null) this.#deps.wake.unwatch(this.#watch);
    this.#watch = null;
  }

  async #find(): Promise<Pin> {
    const { tenant, queue, partition, group, conflate } = this.#pop;
    const start = this.pinned;
    // A policy must be written down, and with it the registration; else a pinned pop registers nothing.
    if (conflate) {
      await seeding(() => this.#deps.run((db) => register(db, tenant, queue, group, start, true)));
    }
    return this.#deps.run((db) => pin(db, tenant, queue, partition, group, start));
  }

  #watchFor(partitionId: number | null): void {
    if (this.#watch !== null) {
      if (this.#watch.partitionId === partitionId) return;
      this.#deps.wake.unwatch(this.#watch);
    }
    this.#watch = {
      key: this.wish.keys[0] as string,
      group: this.#pop.group,
      partitionId,
      appended: (id, last) => {
        if (partitionId === null) this.#stirred = true;
        else if (id === partitionId && last > this.#seen) this.#stirred = true;
      },
      stir: () => {
        this.#stirred = true;
      },
      lost: () => {
        // Whatever partition bears the name next is younger than this pop: all of it is to be delivered.
        if (this.pinned.mode === 'new') this.pinned = { mode: 'all', fromMicros: null };
        this.#deps.pins.delete(this.#key);
        this.#pin = null;
        this.#seen = -1;
        this.#watchFor(null);
      },
    };
    this.#deps.wake.watch(this.#watch);
  }
}
