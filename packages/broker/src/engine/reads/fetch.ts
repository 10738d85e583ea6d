/**
 * Records by offset, for programs that copy a log elsewhere. A fetch reads on from where each of its entries stands
 * until it has enough; while it has not, it parks like a pop (../wake/parking.ts): without connection and slot, woken
 * by appends to its queues, and by the shared look of the broker where a notification was lost. What it has read
 * already is kept, so that a wait for many small messages reads each of them once.
 */
import { type Frame, MalformedSegment } from '../../log/frame.ts';
import { unpackSegment } from '../../log/segment.ts';
import type { Queryable } from '../../store/database.ts';
import { type FetchedSegment, fetchPlaces, fetchSegments } from '../../store/reads.ts';
import type { Clock } from '../clock.ts';
import { fromStore } from '../errors.ts';
import { queueKey } from '../hotlist/hotlist.ts';
import type { Parking, Wish } from '../wake/parking.ts';
import type { Watch } from '../wake/wake.ts';
import type { FetchError, FetchedEntry, FetchedRecord, FetchRequest } from './face.ts';

export interface FetchDeps {
  /** Runs work on the database under the pop lane's admission. */
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  wake: { parking: Parking; watch(watch: Watch): void; unwatch(watch: Watch): void };
  clock: Clock;
  /** Opens a payload that is sealed; gives back the envelope where no key fits. */
  open: (payload: Buffer) => Buffer;
  log: { error(facts: object, message: string): void };
}

/** Payload bytes in one answer; beyond it, entries without a record yet wait for the next fetch. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
/** Of one statement: what its entries ask for together, how many they are, and segments an entry. */
const STEP_BYTES = 8 * 1024 * 1024;
const STEP_ENTRIES = 128;
const STEP_SEGMENTS = 64;
/** Who waits for more than a byte lets a few appends come together before it looks again. */
const FILL_MS = 25;
/** No group has an empty name, so nothing that concerns a group disturbs a fetch. */
const NO_GROUP = '';

/** An entry on its way. */
interface Lane {
  readonly queue: string;
  readonly partition: string;
  readonly maxBytes: number;
  readonly records: FetchedRecord[];
  /** The next offset to read. */
  next: number;
  bytes: number;
  partitionId: number;
  last: number;
  logStart: number;
  /** Has all that it may have. */
  full: boolean;
  error: FetchError | null;
}

export class Fetcher {
  readonly #deps: FetchDeps;

  constructor(deps: FetchDeps) {
    this.#deps = deps;
  }

  /** Never rejects because nothing is there; throws an EngineError. */
  async fetch(request: FetchRequest): Promise<FetchedEntry[]> {
    const { clock } = this.#deps;
    const deadline = clock.now() + request.maxWaitMs;
    const lanes = request.entries.map(laneOf);
    const waiter = request.maxWaitMs > 0 ? new Waiter(this.#deps, request, lanes) : null;
    try {
      for (;;) {
        await this.#round(request.tenant, lanes);
        waiter?.looked(lanes);
        if (waiter === null || isEnough(lanes, request.minBytes)) break;
        if (!(await waiter.wait(deadline, request.signal))) break;
        if (request.minBytes > 1) await pause(clock, Math.min(FILL_MS, deadline - clock.now()));
      }
    } catch (error) {
      throw fromStore(error);
    } finally {
      waiter?.close();
    }
    return lanes.map(entryOf);
  }

  /** Looks where the partitions are, and reads what there is. */
  async #round(tenant: string, lanes: readonly Lane[]): Promise<void> {
    await this.#place(tenant, lanes);
    let total = 0;
    for (const lane of lanes) total += lane.bytes;
    for (;;) {
      const step = nextStep(lanes, ANSWER_BYTES_MAX - total);
      if (step.length === 0) return;
      const segments = await this.#deps.run((db) =>
        fetchSegments(
          db,
          step.map((lane) => ({
            partitionId: lane.partitionId,
            from: lane.next,
            bytes: Math.min(lane.maxBytes - lane.bytes, STEP_BYTES),
          })),
          STEP_SEGMENTS,
        ),
      );
      const moved = new Set<Lane>();
      for (const segment of segments) {
        const lane = step[segment.seq]!;
        const before = lane.bytes;
        const from = lane.next;
        await this.#take(lane, segment, ANSWER_BYTES_MAX - total);
        total += lane.bytes - before;
        if (lane.next > from) moved.add(lane);
      }
      // What should be there and is not was taken by retention since the look; the next one says so.
      for (const lane of step) if (!moved.has(lane)) lane.full = true;
    }
  }

  async #place(tenant: string, lanes: readonly Lane[]): Promise<void> {
    const places = await this.#deps.run((db) => fetchPlaces(db, tenant, lanes));
    const bySeq = new Map(places.map((place) => [place.seq, place]));
    lanes.forEach((lane, seq) => {
      const place = bySeq.get(seq);
      const empty = lane.records.length === 0;
      if (place === undefined || (lane.partitionId !== 0 && place.partitionId !== lane.partitionId)) {
        // Gone, or another one under the name. What was read of the old one is still true.
        if (empty) lane.error = 'UNKNOWN_TOPIC_OR_PARTITION';
        lane.full = true;
        return;
      }
      lane.partitionId = place.partitionId;
      lane.last = place.lastOffset;
      lane.logStart = place.logStart;
      if (lane.next >= place.logStart && lane.next <= place.lastOffset + 1) return;
      if (empty) lane.error = 'OFFSET_OUT_OF_RANGE';
      lane.full = true;
    });
  }

  /** Takes records out of a segment, as many as there is room for; the first of an entry always fits. */
  async #take(lane: Lane, segment: FetchedSegment, room: number): Promise<void> {
    // A gap, or a lane that had enough before this segment.
    if (lane.full || segment.base > lane.next || segment.end < lane.next) return;
    let frames: Frame[];
    try {
      frames = await unpackSegment(segment.blob, segment.end - segment.base + 1, lane.next - segment.base);
    } catch (error) {
      if (!(error instanceof MalformedSegment)) throw error;
      const { partitionId } = lane;
      const { base, end } = segment;
      this.#deps.log.error({ partitionId, base, end, err: error }, 'a stored segment is corrupt');
      if (lane.records.length === 0) lane.error = 'CORRUPT_MESSAGE';
      lane.full = true;
      return;
    }
    let left = room;
    for (const frame of frames) {
      const payload = frame.encrypted ? this.#deps.open(frame.payload) : frame.payload;
      const fits = lane.bytes + payload.length <= lane.maxBytes && payload.length <= left;
      if (!fits && (lane.records.length > 0 || left <= 0)) {
        lane.full = true;
        return;
      }
      lane.records.push({
        offset: lane.next++,
        transactionId: frame.transactionId,
        // A copy: a view would keep the whole decompressed segment.
        payload: Buffer.from(payload),
        createdAtMicros: segment.createdAtMicros,
      });
      lane.bytes += payload.length;
      left -= payload.length;
    }
    if (lane.bytes >= lane.maxBytes) lane.full = true;
  }
}

/** Hears of appends to the queues of one fetch. */
class Waiter {
  readonly #deps: FetchDeps;
  readonly #watches: Watch[] = [];
  readonly #wish: Wish;
  readonly #seen = new Map<number, number>();
  #looked = false;
  #stirred = false;

  constructor(deps: FetchDeps, request: FetchRequest, lanes: readonly Lane[]) {
    this.#deps = deps;
    const keys = [...new Set(lanes.map((lane) => queueKey(request.tenant, lane.queue)))];
    this.#wish = { keys, group: NO_GROUP, ready: null, wants: () => this.#stirred };
    const stir = () => {
      this.#stirred = true;
    };
    for (const key of keys) {
      const watch: Watch = {
        key,
        group: NO_GROUP,
        partitionId: null,
        appended: (id, last) => {
          if (!this.#looked || last > (this.#seen.get(id) ?? Number.POSITIVE_INFINITY)) stir();
        },
        stir,
        lost: stir,
      };
      // From before the first look: what is appended after it must not be missed.
      deps.wake.watch(watch);
      this.#watches.push(watch);
    }
  }

  /** Remembers how far the look saw. */
  looked(lanes: readonly Lane[]): void {
    this.#looked = true;
    for (const lane of lanes) {
      if (lane.error === null) this.#seen.set(lane.partitionId, lane.last);
    }
  }

  /** False: not worth another look (the time is up, the client left, the broker stops). */
  async wait(deadline: number, signal: AbortSignal | null): Promise<boolean> {
    const outcome = await this.#deps.wake.parking.park(this.#wish, deadline, signal);
    this.#stirred = false;
    return outcome === 'woken';
  }

  close(): void {
    for (const watch of this.#watches) this.#deps.wake.unwatch(watch);
  }
}

function laneOf(entry: FetchRequest['entries'][number]): Lane {
  return {
    queue: entry.queue,
    partition: entry.partition,
    maxBytes: entry.maxBytes,
    records: [],
    next: entry.offset,
    bytes: 0,
    partitionId: 0,
    last: -1,
    logStart: -1,
    full: false,
    error: null,
  };
}

function entryOf(lane: Lane): FetchedEntry {
  const { queue, partition, error } = lane;
  const known = lane.partitionId !== 0;
  return {
    queue,
    partition,
    records: error === null ? lane.records : [],
    highWatermark: known ? lane.last + 1 : -1,
    logStart: known ? lane.logStart : -1,
    error,
  };
}

/** The next entries to read for, in order; none: there is nothing to read, or no room left. */
function nextStep(lanes: readonly Lane[], room: number): Lane[] {
  const step: Lane[] = [];
  let bytes = 0;
  if (room <= 0) return step;
  for (const lane of lanes) {
    if (lane.full || lane.error !== null || lane.next > lane.last) continue;
    step.push(lane);
    bytes += lane.maxBytes - lane.bytes;
    if (bytes >= STEP_BYTES || step.length >= STEP_ENTRIES) break;
  }
  return step;
}

/** An error is told at once; so is an answer that could not grow. */
function isEnough(lanes: readonly Lane[], minBytes: number): boolean {
  let bytes = 0;
  let growing = false;
  for (const lane of lanes) {
    if (lane.error !== null) return true;
    bytes += lane.bytes;
    if (!lane.full) growing = true;
  }
  return bytes >= Math.min(minBytes, ANSWER_BYTES_MAX) || !growing;
}

function pause(clock: Clock, ms: number): Promise<void> {
  if (ms <= 0) return Promise.resolve();
  return new Promise((resolve) => void clock.after(ms, resolve));
}
