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
 * A shard sends bundles of its ready lanes. It looks at them once a turn of the event loop, after everything that the
 * turn read from the sockets has joined.
 *
 * Lanes live only while they have something to do.
 */
import type { Place } from '../../store/push.ts';
import { fromStore } from '../errors.ts';
import { Draft } from './draft.ts';
import type { Dedup, Flusher } from './flusher.ts';
import type { PartitionMemo } from './partition_memo.ts';
import type { Provisioner } from './provisioner.ts';
import type { Unit } from './unit.ts';

export interface FusionSettings {
  shards: number;
  /** Bundles of a shard at a time. */
  shardFlightsMax: number;
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
  readonly shard: Shard;
  waiting: Unit[];
  /** Of the coming flush. */
  place: Place | null;
}

interface Shard {
  ready: Lane[];
  flights: number;
  /** Flights that wait for their slot, each good for one bundle. */
  boarding: number;
  scheduled: boolean;
}

export interface FusionDeps {
  flusher: Flusher;
  provisioner: Provisioner;
  memo: PartitionMemo;
  dedup: Dedup;
  settings: FusionSettings;
}

export class Fusion {
  readonly #deps: FusionDeps;
  readonly #shards: Shard[];
  readonly #lanes = new Map<string, Lane>();

  constructor(deps: FusionDeps) {
    this.#deps = deps;
    this.#shards = Array.from({ length: deps.settings.shards }, () => ({
      ready: [],
      flights: 0,
      boarding: 0,
      scheduled: false,
    }));
  }

  /** Takes a unit; its `settle` is called when its results are final. */
  join(unit: Unit): void {
    const lane = this.#lanes.get(unit.key);
    if (lane !== undefined) {
      lane.waiting.push(unit);
      return;
    }
    const { tenant, queue, partition, key } = unit;
    const shard = this.#shards[shardOf(key, this.#shards.length)]!;
    const created: Lane = { tenant, queue, partition, key, shard, waiting: [unit], place: null };
    this.#lanes.set(key, created);
    this.#lookUp(created);
  }

  stats(): { lanes: number; ready: number; flights: number } {
    let ready = 0;
    let flights = 0;
    for (const shard of this.#shards) {
      ready += shard.ready.length;
      flights += shard.flights;
    }
    return { lanes: this.#lanes.size, ready, flights };
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
      lane.shard.ready.push(lane);
      this.#schedule(lane.shard);
    };
    if (place.windowSeconds === 0) ready();
    // A cache that fails cannot vouch, which is always right.
    else
      this.#deps.dedup.prepare(place.partitionId, place.windowSeconds, place.lastOffset).then(ready, ready);
  }

  #schedule(shard: Shard): void {
    if (shard.scheduled) return;
    shard.scheduled = true;
    setImmediate(() => {
      shard.scheduled = false;
      this.#dispatch(shard);
    });
  }

  #dispatch(shard: Shard): void {
    const { shardFlightsMax, bundlePartitionsMax } = this.#deps.settings;
    while (shard.flights < shardFlightsMax && shard.boarding * bundlePartitionsMax < shard.ready.length) {
      shard.flights++;
      shard.boarding++;
      let boarded = false;
      const take = () => {
        boarded = true;
        shard.boarding--;
        return this.#take(shard);
      };
      void this.#deps.flusher
        .fly(take, (draft) => this.#landed(this.#lanes.get(draft.key)!))
        .then(() => {
          if (!boarded) shard.boarding--;
          shard.flights--;
          this.#dispatch(shard);
        });
    }
  }

  /** A bundle of what is ready now. */
  #take(shard: Shard): Draft[] {
    const { bundlePartitionsMax, segmentBytesMax } = this.#deps.settings;
    const drafts: Draft[] = [];
    let bytes = 0;
    let taken = 0;
    while (taken < shard.ready.length && drafts.length < bundlePartitionsMax) {
      const lane = shard.ready[taken]!;
      // At least one lane, then as long as the next one's first unit fits.
      if (drafts.length > 0 && bytes + lane.waiting[0]!.bytes > segmentBytesMax) break;
      const units = this.#takeUnits(lane, segmentBytesMax - bytes);
      for (const unit of units) bytes += unit.bytes;
      drafts.push(new Draft(units, lane.place));
      taken++;
    }
    shard.ready.splice(0, taken);
    // What did not fit goes with another flight.
    if (shard.ready.length > 0) this.#schedule(shard);
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

/** FNV-1a over the UTF-16 units: spreads the lanes, nothing else depends on it. */
function shardOf(key: string, shards: number): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193);
  return (hash >>> 0) % shards;
}
