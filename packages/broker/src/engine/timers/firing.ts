/**
 * From claimed timers to messages. Frames are packed outside of any transaction, the timers of one destination together, in
 * the order of their times; a fire then appends segments and deletes rows in one statement (090_timers.sql), through the
 * allocator of every other append, so that offsets, wake-ups and the deduplication cache hold.
 *
 * What can come back for a segment, and what follows:
 * - stored: remember it, announce it. In this order and only now, after the commit.
 * - some of its timers are not ours any more: the others are fired again without them, under the same claims.
 * - some are locked by somebody, mostly another sweeper that is about to find them claimed: a moment later all of them are
 *   tried again, so that they keep their order. Those that stay locked are left behind, and given back later.
 * - missing: the partition was removed. Provision anew, fire again, under the same claims.
 * - unsealed: the queue encrypts since they were scheduled. Seal, fire again.
 * - the statement failed for a passing reason: give everything back, nobody is to blame. When not even that works, the
 *   claims are remembered and given back later, or end by themselves.
 * - the database refused it: lanes are tried one by one, then timers, until the one is found that cannot be fired. Its
 *   failure is counted; after the last one it becomes a dead letter.
 */
import type { Frame } from '../../log/frame.ts';
import { hashTransactionIds } from '../../log/hash.ts';
import { packSegment } from '../../log/segment.ts';
import { buggify } from '../../observability/buggify.ts';
import type { Queryable } from '../../store/database.ts';
import { StoreError } from '../../store/errors.ts';
import { InvariantError } from '../../store/invariant.ts';
import type { Place } from '../../store/push.ts';
import {
  buryTimer,
  type ClaimedTimer,
  type FireOutcome,
  fireTimers,
  releaseTimers,
  type SegmentVerdict,
  type TimerClaim,
  type TimerSegment,
} from '../../store/timers.ts';
import type { Clock } from '../clock.ts';
import { fromStore } from '../errors.ts';
import type { Seal } from '../push/draft.ts';
import type { Dedup } from '../push/flusher.ts';
import type { PartitionMemo } from '../push/partition_memo.ts';
import type { Provisioner } from '../push/provisioner.ts';
import { laneKey } from '../push/unit.ts';
import { sealMissing } from '../sealing.ts';
import type { Announcement, Announcer } from '../wake/announcer.ts';
import { FireLag } from './fire_lag.ts';
import { inflate } from './payload.ts';

export interface FiringDeps {
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  memo: PartitionMemo;
  provisioner: Pick<Provisioner, 'place'>;
  dedup: Pick<Dedup, 'committed' | 'forget'>;
  announcer: Pick<Announcer, 'pushed'>;
  quotas: { timersGrew(tenant: string, timers: number): void };
  /** Counts messages that got into a queue. */
  ledger: { stored(tenant: string, queue: string, messages: number): void };
  seal: Seal;
  zstdLevel: number;
  clock: Clock;
  settings: { fireBytesMax: number; attemptsMax: number; leaseMs: number };
  log: { warn(facts: object, message: string): void };
}

/** Monotonic counts since the start. */
export interface FiringCounters {
  fired: number;
  /** Claims that turned out to be somebody else's. */
  stale: number;
  /** Given back and to be claimed again. */
  released: number;
  /** Failures by SQLSTATE class; `none` where there is none. */
  transient: Map<string, number>;
  permanent: Map<string, number>;
  /** Timers that failed for a reason of their own, each time. */
  poisoned: number;
  buried: number;
}

/** A partition that vanishes again as soon as it is created is not waited for. */
const TRIES_MAX = 8;
/** How often timers that somebody has locked are tried; the pause is twice as long each time. */
const BUSY_TRIES_MAX = 6;
const BUSY_PAUSE_MS = 3;
const TRANSIENT_PAUSE_MS = 500;
/** After the first failure; four times as long after each further one. */
const FAILED_PAUSE_MS = 1_000;
/** Inflated payloads were judged when they were scheduled; the limit of then may have been another. */
const PAYLOAD_BYTES_MAX = 64 * 1024 * 1024;
/** Around payload and transactionId in a frame. */
const FRAME_BYTES = 40;
const PASSING_CLASSES: ReadonlySet<string> = new Set(['08', '53', '57', '58']);

interface Load {
  timer: ClaimedTimer;
  /** What the consumer gets, or its envelope. */
  payload: Buffer;
  bytes: number;
}

/** Timers of one destination, in the order of their times. */
interface Lane {
  key: string;
  tenant: string;
  queue: string;
  partition: string;
  place: Place;
  loads: Load[];
  /** Some of them are locked by somebody. */
  busy: boolean;
}

interface Built {
  lane: Lane;
  segment: TimerSegment;
}

/** One call of `fire`: what the database failed with for a passing reason, after which nothing more is tried. */
interface Pass {
  trouble: unknown;
}

export class Firing {
  readonly #deps: FiringDeps;
  #owed: { claims: readonly TimerClaim[]; until: number }[] = [];
  readonly lag: FireLag = new FireLag();
  readonly counters: FiringCounters = {
    fired: 0,
    stale: 0,
    released: 0,
    transient: new Map(),
    permanent: new Map(),
    poisoned: 0,
    buried: 0,
  };

  constructor(deps: FiringDeps) {
    this.#deps = deps;
  }

  /** Fires what was just claimed, or gives it back. False: the database has trouble. Never rejects. */
  async fire(timers: readonly ClaimedTimer[]): Promise<boolean> {
    const pass: Pass = { trouble: null };
    const lanes = await this.#lanes(timers, pass);
    for (const bundle of bundles(lanes, this.#deps.settings.fireBytesMax)) await this.#fire(bundle, pass);
    return pass.trouble === null;
  }

  /** Gives back what an earlier fire could not. Rejects when that fails again. */
  async settleDebts(): Promise<void> {
    const now = this.#deps.clock.now();
    this.#owed = this.#owed.filter(({ until }) => until > now);
    for (const debt of [...this.#owed]) {
      const how = { pauseMs: 0, failed: false, error: null };
      const given = await this.#deps.run((db) => releaseTimers(db, debt.claims, how));
      this.counters.released += given;
      // The others are somebody else's, or locked: until their claims end nobody can tell.
      if (given === debt.claims.length) this.#owed.splice(this.#owed.indexOf(debt), 1);
    }
  }

  async #lanes(timers: readonly ClaimedTimer[], pass: Pass): Promise<Lane[]> {
    const groups = new Map<string, Load[]>();
    for (const timer of timers) {
      const payload = timer.payloadZstd ? inflate(timer.payload, PAYLOAD_BYTES_MAX) : timer.payload;
      if (!Buffer.isBuffer(payload)) {
        await this.#failed(timer, null, new RangeError('the payload cannot be decompressed'), pass);
        continue;
      }
      const load = { timer, payload, bytes: payload.length + timer.transactionId.length + FRAME_BYTES };
      const key = laneKey(timer.tenant, timer.queue, timer.partition);
      const group = groups.get(key);
      if (group === undefined) groups.set(key, [load]);
      else group.push(load);
    }
    const lanes = Array.from(groups, async ([key, loads]): Promise<Lane[]> => {
      const { tenant, queue, partition } = loads[0]!.timer;
      try {
        return [
          { key, tenant, queue, partition, place: await this.#place(loads[0]!.timer), loads, busy: false },
        ];
      } catch (error) {
        await this.#unplaced(loads, error, pass);
        return [];
      }
    });
    return (await Promise.all(lanes)).flat();
  }

  async #unplaced(loads: readonly Load[], error: unknown, pass: Pass): Promise<void> {
    if (!isPassing(error)) {
      for (const { timer, payload } of loads) await this.#failed(timer, payload, error, pass);
      return;
    }
    pass.trouble ??= error;
    await this.#giveBack(loads, error);
  }

  /** Rejects with what the store threw. */
  async #place({ tenant, queue, partition }: ClaimedTimer): Promise<Place> {
    const { memo, provisioner } = this.#deps;
    const key = laneKey(tenant, queue, partition);
    const known = memo.get(key);
    if (known !== null) return known;
    const place = await provisioner.place(tenant, queue, partition);
    memo.set(key, place);
    return place;
  }

  async #fire(bundle: readonly Lane[], pass: Pass): Promise<void> {
    let open = bundle;
    for (let tries = 0; open.length > 0; tries++) {
      if (pass.trouble !== null || tries === TRIES_MAX) {
        const why = pass.trouble ?? new Error('the partition is being removed again and again');
        await this.#giveBack(
          open.flatMap((lane) => lane.loads),
          why,
        );
        return;
      }
      const built = await this.#build(open, pass);
      if (built.length === 0) return;
      const segments = built.map(({ segment }) => segment);
      let verdicts: SegmentVerdict[];
      try {
        verdicts = await this.#deps.run((db) => fireTimers(db, segments));
      } catch (error) {
        const lanes = built.map(({ lane }) => lane);
        await this.#broken(lanes, error, pass);
        return;
      }
      buggify('timers.fired');
      open = await this.#settle(built, verdicts, pass, tries);
      if (open.some((lane) => lane.busy)) await this.#pause(BUSY_PAUSE_MS * 2 ** tries);
    }
  }

  /** The segments of lanes; what cannot be packed is dealt with and left out. */
  async #build(lanes: readonly Lane[], pass: Pass): Promise<Built[]> {
    const { seal, zstdLevel } = this.#deps;
    const built: Built[] = [];
    for (const lane of lanes) {
      const { encrypts, partitionId } = lane.place;
      if (encrypts && seal === null && lane.loads.some(({ timer }) => !timer.sealed)) {
        // Whoever has the key can fire them.
        await this.#giveBack(lane.loads, sealMissing());
        continue;
      }
      const frames = lane.loads.map((load) => frameOf(load, encrypts ? seal : null));
      try {
        const segment = {
          partitionId,
          claims: lane.loads.map(({ timer }) => timer),
          hashes: hashTransactionIds(frames.map((frame) => frame.transactionId)),
          blob: await packSegment(frames, zstdLevel),
          sealed: frames.every((frame) => frame.encrypted),
        };
        built.push({ lane, segment });
      } catch (error) {
        await this.#broken([lane], error, pass);
      }
    }
    return built;
  }

  /** Tells and remembers what was stored; answers the lanes that have to be fired again. */
  async #settle(
    built: readonly Built[],
    verdicts: readonly SegmentVerdict[],
    pass: Pass,
    tries: number,
  ): Promise<Lane[]> {
    const announcements: Announcement[] = [];
    const again: Promise<Lane[]>[] = [];
    built.forEach(({ lane, segment }, i) => {
      const { outcomes, verdict } = verdicts[i]!;
      if (verdict === null) again.push(Promise.resolve(this.#without(lane, outcomes, tries)));
      else if (verdict.kind === 'stored') announcements.push(this.#stored(lane, segment, verdict));
      else again.push(this.#relocate(lane, verdict, pass));
    });
    if (announcements.length > 0) this.#deps.announcer.pushed(announcements);
    return (await Promise.all(again)).flat();
  }

  /** The lane with what is left of it. */
  #without(lane: Lane, outcomes: readonly FireOutcome[], tries: number): Lane[] {
    const of = (wanted: FireOutcome) => lane.loads.filter((_, n) => outcomes[n] === wanted);
    this.counters.stale += of('stale').length;
    this.counters.released += of('released').length;
    const busy = of('busy');
    if (busy.length > 0 && tries < BUSY_TRIES_MAX) {
      const loads = lane.loads.filter((_, n) => outcomes[n] === 'kept' || outcomes[n] === 'busy');
      return [{ ...lane, loads, busy: true }];
    }
    if (busy.length > 0) this.#owe(busy.map(({ timer }) => timer));
    const loads = of('kept');
    return loads.length === 0 ? [] : [{ ...lane, loads, busy: false }];
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#deps.clock.after(ms, resolve));
  }

  #stored(
    lane: Lane,
    segment: TimerSegment,
    verdict: Extract<SegmentVerdict['verdict'], { kind: 'stored' }>,
  ): Announcement {
    const { memo, dedup, quotas, ledger } = this.#deps;
    const { partitionId, hashes } = segment;
    const { base, createdAtMicros, queue: demands } = verdict;
    const { tenant, queue, key, loads } = lane;
    const lastOffset = base + loads.length - 1;
    if (demands.windowSeconds > 0) dedup.committed(partitionId, base, hashes, createdAtMicros);
    memo.set(key, { partitionId, lastOffset, ...demands });
    quotas.timersGrew(tenant, -loads.length);
    ledger.stored(tenant, queue, loads.length);
    this.counters.fired += loads.length;
    for (const { timer } of loads) this.lag.observe(tenant, (createdAtMicros - timer.dueAtMicros) / 1e6);
    return { tenant, queue, partitionId, lastOffset };
  }

  async #relocate(lane: Lane, verdict: NonNullable<SegmentVerdict['verdict']>, pass: Pass): Promise<Lane[]> {
    const { memo, dedup } = this.#deps;
    if (verdict.kind === 'unsealed') {
      const place = { ...lane.place, ...verdict.queue };
      memo.set(lane.key, place);
      return [{ ...lane, place }];
    }
    memo.drop(lane.key);
    dedup.forget(lane.place.partitionId);
    try {
      return [{ ...lane, place: await this.#place(lane.loads[0]!.timer) }];
    } catch (error) {
      await this.#unplaced(lane.loads, error, pass);
      return [];
    }
  }

  /** A fire of these failed as a whole, and wrote nothing as far as is known. */
  async #broken(lanes: readonly Lane[], error: unknown, pass: Pass): Promise<void> {
    const loads = lanes.flatMap((lane) => lane.loads);
    if (isPassing(error)) {
      pass.trouble ??= error;
      await this.#giveBack(loads, error);
    } else if (loads.length === 1) {
      await this.#failed(loads[0]!.timer, loads[0]!.payload, error, pass);
    } else if (lanes.length > 1) {
      for (const lane of lanes) await this.#fire([lane], pass);
    } else {
      for (const load of loads) await this.#fire([{ ...lanes[0]!, loads: [load] }], pass);
    }
  }

  /** Nothing that is the timers' own fault. Never rejects. */
  async #giveBack(loads: readonly Load[], error: unknown): Promise<void> {
    const claims = loads.map(({ timer }) => timer);
    count(this.counters.transient, classOf(error));
    try {
      const given = await this.#release(claims, TRANSIENT_PAUSE_MS, false, sentenceOf(error));
      this.counters.released += given;
      if (given < claims.length) this.#owe(claims);
    } catch {
      this.#owe(claims);
    }
  }

  /** This one timer cannot be fired. `payload` null: it cannot be read. Never rejects. */
  async #failed(timer: ClaimedTimer, payload: Buffer | null, error: unknown, pass: Pass): Promise<void> {
    const { log, settings } = this.#deps;
    const { queue, partition, timerKey } = timer;
    const attempts = timer.attempts + 1;
    this.counters.poisoned++;
    count(this.counters.permanent, classOf(error));
    log.warn({ err: error, queue, partition, timerKey, attempts }, 'a timer could not be fired');
    try {
      if (attempts >= settings.attemptsMax && (await this.#bury(timer, payload, sentenceOf(error)))) return;
      await this.#release([timer], FAILED_PAUSE_MS, true, sentenceOf(error));
    } catch (err) {
      pass.trouble ??= err;
      log.warn({ err, queue, timerKey }, 'the failure of a timer could not be noted');
      this.#owe([timer]);
    }
  }

  /** False: it could not become a dead letter. */
  async #bury(timer: ClaimedTimer, payload: Buffer | null, error: string): Promise<boolean> {
    const { seal, log, memo } = this.#deps;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      let place: Place;
      try {
        place = await this.#place(timer);
      } catch (err) {
        if (isPassing(err)) throw err;
        log.warn({ err, queue: timer.queue }, 'a dead timer has no partition to be buried in');
        return false;
      }
      const open = payload !== null && place.encrypts && !timer.sealed;
      if (open && seal === null) return false;
      const kept = open ? seal!(payload) : payload;
      const outcome = await this.#deps.run((db) => buryTimer(db, timer, place.partitionId, kept, error));
      if (outcome === 'buried') {
        this.counters.buried++;
        this.#deps.quotas.timersGrew(timer.tenant, -1);
      }
      if (outcome !== 'missing') return true;
      memo.drop(laneKey(timer.tenant, timer.queue, timer.partition));
    }
    return false;
  }

  #release(claims: readonly TimerClaim[], pauseMs: number, failed: boolean, error: string): Promise<number> {
    return this.#deps.run((db) => releaseTimers(db, claims, { pauseMs, failed, error }));
  }

  #owe(claims: readonly TimerClaim[]): void {
    const { clock, settings } = this.#deps;
    // The claims were made before this moment, so they end before that one.
    this.#owed.push({ claims: claims.map(claimOf), until: clock.now() + settings.leaseMs });
  }
}

/** Without its payload. */
function claimOf({ tenant, queue, timerKey, token }: TimerClaim): TimerClaim {
  return { tenant, queue, timerKey, token };
}

/** Cut so that a bundle has at most about `bytesMax`, or one timer; each lane at most once in it, its timers in order. */
function* bundles(lanes: readonly Lane[], bytesMax: number): Generator<Lane[]> {
  let bundle: Lane[] = [];
  let bytes = 0;
  for (const lane of lanes) {
    let from = 0;
    for (let n = 0; n < lane.loads.length; n++) {
      const load = lane.loads[n]!;
      if (bytes > 0 && bytes + load.bytes > bytesMax) {
        if (n > from) bundle.push({ ...lane, loads: lane.loads.slice(from, n) });
        yield bundle;
        bundle = [];
        bytes = 0;
        from = n;
      }
      bytes += load.bytes;
    }
    bundle.push(from === 0 ? lane : { ...lane, loads: lane.loads.slice(from) });
  }
  if (bundle.length > 0) yield bundle;
}

function frameOf({ timer, payload }: Load, seal: Seal): Frame {
  const { messageId, transactionId, producerSub, sealed } = timer;
  const frame = { messageId, traceId: null, transactionId, producerSub };
  if (sealed || seal === null) return { ...frame, encrypted: sealed, payload };
  return { ...frame, encrypted: true, payload: seal(payload) };
}

/** It may go well another time, for a reason that has nothing to do with what was sent. */
function isPassing(error: unknown): boolean {
  // Noticed in an answer: what was sent may have been carried out.
  if (error instanceof InvariantError) return true;
  if (!(error instanceof StoreError)) return false;
  const { kind, sqlState } = error;
  return kind !== 'refused' || sqlState === null || PASSING_CLASSES.has(sqlState.slice(0, 2));
}

function classOf(error: unknown): string {
  const state = error instanceof StoreError ? error.sqlState : null;
  return state === null ? 'none' : state.slice(0, 2);
}

/** For people who look at the timer; what the database said may quote somebody's data, and is for the log. */
function sentenceOf(error: unknown): string {
  if (error instanceof StoreError || error instanceof InvariantError) return fromStore(error).message;
  return error instanceof Error ? error.message : 'internal error';
}

function count(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
