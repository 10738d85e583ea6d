/**
 * Push fusion: concurrent requests to one partition share a segment, concurrent partitions share a transaction.
 *
 * A lane (tenant, queue, partition) sends when it has something and nothing of it is in flight: no linger timer, no target
 * size. So a segment is what arrived during the previous round trip: one message when little comes, growing by itself
 * when much comes. At most one flush of a lane is in flight, and the next one starts after its commit, which is all
 * that keeps a producer's order; SQL knows nothing of it.
 *
 *     idle -> looking up its place -> waiting for the dedup cache -> ready -> in flight -> idle or looking up
 *
 * Only ready lanes go into bundles, so a lane that has to be created, or whose window has to be fetched, holds up no other.
 * They are looked at once a turn of the event loop, after everything that the turn read from the sockets has joined.
 *
 * A bundle leaves at once when none is under way, when it is full, or when its first lane has waited for {@link
 * FusionSettings.holdMs}; else it leaves when another one lands. A commit costs the same for one lane as for sixteen:
 * with 16 clients, each pushing 100 messages at a time, a transaction for each push that finds a free connection took
 * 0.96 ms of PostgreSQL's CPU a push, bundles of those that arrived during a flight 0.32 to 0.44 ms. The hold is for a
 * database that is slow rather than busy, where flights side by side are what brings throughput. There are no shards:
 * in one thread they would do nothing but split bundles.
 *
 * Lanes live only while they have something to do.
 */
import type { Place } from '../../store/push.ts';
import type { Clock, Timer } from '../clock.ts';
import { fromStore } from '../errors.ts';
import { Draft } from './draft.ts';
import type { Dedup, Flusher } from './flusher.ts';
import type { PartitionMemo } from './partition_memo.ts';
import type { Provisioner } from './provisioner.ts';
import type { Unit } from './unit.ts';

export interface FusionSettings {
  /** Bundles at a time. */
  flightsMax: number;
  bundlePartitionsMax: number;
  /** How long a lane waits for company while a bundle is under way, ms. */
  holdMs: number;
  /**
   * Raw bytes after which a segment takes no further unit, and a bundle no further segment. One unit alone may exceed it.
   */
  segmentBytesMax: number;
  /** Frames after which a segment takes no further unit. */
  segmentFramesMax: number;
}

interface Lane {
  readonly tenant: string;
  readonly queue: string;
  readonly partition: string;
  readonly key: string;
  waiting: Unit[];
  /** Of the coming flush. */
  place: Place | null;
  readyAt: number;
}

export interface FusionDeps {
  flusher: Flusher;
  provisioner: Provisioner;
  memo: PartitionMemo;
  dedup: Dedup;
  clock: Clock;
  settings: FusionSettings;
}

export class Fusion {
  readonly #deps: FusionDeps;
  readonly #lanes = new Map<string, Lane>();
  /** In the order in which they became ready. */
  readonly #ready: Lane[] = [];
  #flights = 0;
  /** Flights that wait for their slot, each good for one bundle. */
  #boarding = 0;
  #scheduled = false;
  /** Runs while lanes are held. */
  #hold: Timer | null = null;

  constructor(deps: FusionDeps) {
    this.#deps = deps;
  }

  /** Takes a unit; its `settle` is called when its results are final. */
  join(unit: Unit): void {
    const lane = this.#lanes.get(unit.key);
    if (lane !== undefined) {
      lane.waiting.push(unit);
      return;
    }
    const { tenant, queue, partition, key } = unit;
    const created: Lane = { tenant, queue, partition, key, waiting: [unit], place: null, readyAt: 0 };
    this.#lanes.set(key, created);
    this.#lookUp(created);
  }

  stats(): { lanes: number; ready: number; flights: number } {
    return { lanes: this.#lanes.size, ready: this.#ready.length, flights: this.#flights };
  }

  #lookUp(lane: Lane): void {
    const place = this.#deps.memo.get(lane.key);
    if (place !== null) {
      this.#prepare(lane, place);
      return;
    }
    this.#deps.provisioner.place(lane.tenant, lane.queue, lane.partition).then(
      (found) => {
        this.#deps.memo.set(lane.key, found);
        this.#prepare(lane, found);
      },
      async (error: unknown) => {
        const draft = new Draft(this.#takeUnits(lane), null);
        await this.#deps.flusher.fail(draft, fromStore(error));
        this.#landed(lane);
      },
    );
  }

  #prepare(lane: Lane, place: Place): void {
    lane.place = place;
    const ready = () => {
      lane.readyAt = this.#deps.clock.now();
      this.#ready.push(lane);
      this.#schedule();
    };
    if (place.windowSeconds === 0) ready();
    // A cache that fails cannot vouch, which is always right.
    else
      this.#deps.dedup.prepare(place.partitionId, place.windowSeconds, place.lastOffset).then(ready, ready);
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#dispatch();
    });
  }

  #dispatch(): void {
    const { flightsMax, bundlePartitionsMax } = this.#deps.settings;
    while (this.#flights < flightsMax) {
      const first = this.#ready[this.#boarding * bundlePartitionsMax];
      if (first === undefined) return;
      if (this.#flights > 0 && !this.#full() && this.#isHeld(first)) return;
      this.#depart();
    }
  }

  /** Whether what is not boarding yet fills a bundle. */
  #full(): boolean {
    const { bundlePartitionsMax } = this.#deps.settings;
    return this.#ready.length >= (this.#boarding + 1) * bundlePartitionsMax;
  }

  /** Whether this lane goes on waiting for company; if so, for no longer than the hold. */
  #isHeld(lane: Lane): boolean {
    const { clock, settings } = this.#deps;
    const left = lane.readyAt + settings.holdMs - clock.now();
    if (left <= 0) return false;
    this.#hold ??= clock.after(Math.ceil(left), () => {
      this.#hold = null;
      this.#dispatch();
    });
    return true;
  }

  #depart(): void {
    this.#flights++;
    this.#boarding++;
    let boarded = false;
    const take = () => {
      boarded = true;
      this.#boarding--;
      return this.#take();
    };
    void this.#deps.flusher
      .fly(take, (draft) => this.#landed(this.#lanes.get(draft.key)!))
      .then(() => {
        if (!boarded) this.#boarding--;
        this.#flights--;
        this.#schedule();
      });
  }

  /** A bundle of what is ready now. */
  #take(): Draft[] {
    const { bundlePartitionsMax, segmentBytesMax } = this.#deps.settings;
    const drafts: Draft[] = [];
    let bytes = 0;
    let taken = 0;
    while (taken < this.#ready.length && drafts.length < bundlePartitionsMax) {
      const lane = this.#ready[taken]!;
      // At least one lane, then as long as the next one's first unit fits.
      if (drafts.length > 0 && bytes + lane.waiting[0]!.bytes > segmentBytesMax) break;
      const units = this.#takeUnits(lane, segmentBytesMax - bytes);
      for (const unit of units) bytes += unit.bytes;
      drafts.push(new Draft(units, lane.place));
      taken++;
    }
    this.#ready.splice(0, taken);
    // What did not fit goes with another flight.
    if (this.#ready.length > 0) this.#schedule();
    return drafts;
  }

  /** The lane's first unit, and those behind it that fit. */
  #takeUnits(lane: Lane, bytesMax = Number.POSITIVE_INFINITY): Unit[] {
    const { segmentFramesMax } = this.#deps.settings;
    const { waiting } = lane;
    let bytes = 0;
    let frames = 0;
    let count = 0;
    for (const unit of waiting) {
      bytes += unit.bytes;
      frames += unit.frames.length;
      if (count > 0 && (bytes > bytesMax || frames > segmentFramesMax)) break;
      count++;
    }
    lane.waiting = waiting.slice(count);
    return count === waiting.length ? waiting : waiting.slice(0, count);
  }

  #landed(lane: Lane): void {
    if (lane.waiting.length > 0) this.#lookUp(lane);
    else this.#lanes.delete(lane.key);
  }
}
