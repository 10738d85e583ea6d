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
 * When a bundle leaves is decided in ../departures.ts. With 16 clients, each pushing 100 messages at a time, a
 * transaction for every push that finds a free connection took 0.96 ms of PostgreSQL's CPU a push, bundles of those
 * that arrived during a flight 0.34 ms. There are no shards: in one thread they would do nothing but split bundles.
 *
 * Before all that a lane asks for its way. While messages of it lie on this broker's disk, or pushes are paused, what comes
 * goes there too: it must not overtake them.
 *
 * Lanes live only while they have something to do.
 */
import type { Place } from '../../store/push.ts';
import type { Clock } from '../clock.ts';
import { type DepartureSettings, Departures, type Waiting } from '../departures.ts';
import { fromStore } from '../errors.ts';
import type { Detour } from './detour.ts';
import { Draft } from './draft.ts';
import type { Failures } from './failure.ts';
import type { Dedup, Flusher } from './flusher.ts';
import type { PartitionMemo } from './partition_memo.ts';
import type { Provisioner } from './provisioner.ts';
import type { Unit } from './unit.ts';

export interface FusionSettings extends DepartureSettings {
  bundlePartitionsMax: number;
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
  failures: Failures;
  detour: Detour | null;
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
  readonly #departures: Departures;
  /** Flights that wait for their slot, each good for one bundle. */
  #boarding = 0;

  constructor(deps: FusionDeps) {
    this.#deps = deps;
    const { clock, settings } = deps;
    this.#departures = new Departures(
      clock,
      settings,
      () => this.#unclaimed(),
      () => this.#fly(),
    );
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
    this.#next(created);
  }

  stats(): { lanes: number; ready: number; flights: number } {
    return { lanes: this.#lanes.size, ready: this.#ready.length, flights: this.#departures.flights };
  }

  /** Never called while something of the lane is under way. */
  #next(lane: Lane): void {
    const way = this.#deps.detour?.way(lane.key) ?? 'log';
    if (way === 'log') this.#lookUp(lane);
    else if (way === 'spool') void this.#divert(lane);
    else void way.then((found) => (found === 'log' ? this.#lookUp(lane) : this.#divert(lane)));
  }

  async #divert(lane: Lane): Promise<void> {
    const { memo, failures, settings } = this.#deps;
    const units = this.#takeUnits(lane, settings.segmentBytesMax);
    await failures.divert(new Draft(units, memo.get(lane.key)));
    this.#landed(lane);
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
        const draft = new Draft(this.#takeUnits(lane, this.#deps.settings.segmentBytesMax), null);
        await this.#deps.failures.settle(draft, fromStore(error));
        this.#landed(lane);
      },
    );
  }

  #prepare(lane: Lane, place: Place): void {
    lane.place = place;
    const ready = () => {
      lane.readyAt = this.#deps.clock.now();
      this.#ready.push(lane);
      this.#departures.schedule();
    };
    if (place.windowSeconds === 0) ready();
    // A cache that fails cannot vouch, which is always right.
    else
      this.#deps.dedup.prepare(place.partitionId, place.windowSeconds, place.lastOffset).then(ready, ready);
  }

  /** The ready lanes for which no flight waits already. */
  #unclaimed(): Waiting | null {
    const { bundlePartitionsMax } = this.#deps.settings;
    const first = this.#ready[this.#boarding * bundlePartitionsMax];
    if (first === undefined) return null;
    return { since: first.readyAt, full: this.#ready.length >= (this.#boarding + 1) * bundlePartitionsMax };
  }

  async #fly(): Promise<void> {
    this.#boarding++;
    let boarded = false;
    const take = () => {
      boarded = true;
      this.#boarding--;
      return this.#take();
    };
    await this.#deps.flusher.fly(take, (draft) => this.#landed(this.#lanes.get(draft.key)!));
    if (!boarded) this.#boarding--;
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
    if (this.#ready.length > 0) this.#departures.schedule();
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
    if (lane.waiting.length > 0) this.#next(lane);
    else this.#lanes.delete(lane.key);
  }
}
