/**
 * The way of a push through the broker: validate and group the request (unit.ts), let its units share segments and
 * transactions with those of other requests (fusion.ts), append (flusher.ts, and in the end the one allocator in
 * SQL), answer in the order of the request when all units have settled.
 */
import type { Queryable } from '../../store/database.ts';
import type { PendingBytes } from '../admission/pending_bytes.ts';
import type { Clock } from '../clock.ts';
import { EngineError } from '../errors.ts';
import type { PushRequest, PushResult } from '../types.ts';
import type { Announcer } from '../wake/announcer.ts';
import type { Detour } from './detour.ts';
import type { Seal } from './draft.ts';
import { type FailureCounters, Failures } from './failure.ts';
import { type Dedup, type FlushCounters, Flusher, type PushLog } from './flusher.ts';
import { Fusion, type FusionSettings } from './fusion.ts';
import { PartitionMemo } from './partition_memo.ts';
import { Provisioner } from './provisioner.ts';
import { follow, type GroupedRequest, groupRequest } from './unit.ts';

export const FUSION_DEFAULTS: FusionSettings = {
  flightsMax: 64,
  bundlePartitionsMax: 16,
  holdMs: 3,
  segmentBytesMax: 64 * 1024 * 1024,
  // Bounds the arrays of one statement and the frames that a pop has to decode to deliver one. A request with more than
  // this for one partition still is one segment: it is stored whole or not at all.
  segmentFramesMax: 8192,
};

export interface PushDeps {
  db: Queryable;
  admission: { run<T>(lane: 'push', work: () => Promise<T>): Promise<T> };
  /** Shared with whatever else accepts bytes to append. */
  pending: PendingBytes;
  dedup: Dedup;
  announcer: Announcer;
  clock: Clock;
  /** Milliseconds since 1970, for the message ids. */
  wallMs?: () => number;
  zstdLevel: number;
  fusion?: Partial<FusionSettings>;
  /** Null: no key, pushes to a queue that encrypts are refused. */
  seal?: Seal;
  /** Null: what the database does not take is answered `failed`. */
  detour?: Detour | null;
  log: PushLog;
  /** How long a lane's place is believed. Default 30 s. */
  memoMs?: number | undefined;
  /** See flusher.ts. */
  fired?: (items: number, ms: number) => void;
}

export interface PushStats extends FlushCounters, FailureCounters {
  requests: number;
  messages: number;
  active: number;
  lanes: number;
  ready: number;
  flights: number;
  memo: number;
}

export class PushPath {
  readonly #deps: PushDeps;
  /** Where lanes are; shared with whatever else appends. */
  readonly memo: PartitionMemo;
  readonly provisioner: Provisioner;
  readonly #flusher: Flusher;
  readonly #failures: Failures;
  readonly #fusion: Fusion;
  readonly #active = new Set<Promise<unknown>>();
  #requests = 0;
  #messages = 0;
  #draining = false;

  constructor(deps: PushDeps) {
    this.#deps = deps;
    const { db, admission, dedup, announcer, zstdLevel, log } = deps;
    const memo = new PartitionMemo(deps.clock, deps.memoMs);
    const provisioner = new Provisioner((work) => admission.run('push', () => work(db)));
    this.memo = memo;
    this.provisioner = provisioner;
    const detour = deps.detour ?? null;
    const failures = new Failures({ detour, canSeal: (deps.seal ?? null) !== null, log });
    this.#failures = failures;
    this.#flusher = new Flusher({
      db,
      admission,
      dedup,
      memo,
      provisioner,
      announcer,
      zstdLevel,
      seal: deps.seal ?? null,
      // Nothing that comes from a client is sealed.
      unseal: () => null,
      failures,
      log,
      fired: deps.fired,
    });
    const settings = { ...FUSION_DEFAULTS, ...deps.fusion };
    this.#fusion = new Fusion({
      flusher: this.#flusher,
      failures,
      detour,
      provisioner,
      memo,
      dedup,
      clock: deps.clock,
      settings,
    });
  }

  /**
   * One result an item, in order; what the database does becomes a status of the items concerned. Throws EngineError
   * `refused` (a bad item: nothing of the request is taken), `overloaded`, or `unavailable` while draining.
   */
  async push(request: PushRequest): Promise<PushResult[]> {
    if (this.#draining) throw new EngineError('unavailable', 'stopping', 'this broker is stopping');
    const grouped = groupRequest(request, (this.#deps.wallMs ?? Date.now)());
    if (grouped.results.length === 0) return grouped.results;
    const work = this.#deps.pending.run(grouped.bytes, () => this.#store(grouped));
    this.#active.add(work);
    try {
      return await work;
    } finally {
      this.#active.delete(work);
    }
  }

  /** Refuses new requests; resolves when every one that was taken has its answer. */
  async drain(): Promise<void> {
    this.#draining = true;
    while (this.#active.size > 0) await Promise.allSettled(this.#active);
  }

  stats(): PushStats {
    return {
      ...this.#flusher.counters,
      ...this.#failures.counters,
      ...this.#fusion.stats(),
      requests: this.#requests,
      messages: this.#messages,
      active: this.#active.size,
      memo: this.memo.size,
    };
  }

  async #store(grouped: GroupedRequest): Promise<PushResult[]> {
    const { units, results, followers } = grouped;
    this.#requests++;
    this.#messages += results.length;
    await new Promise<void>((resolve) => {
      let open = units.length;
      for (const unit of units) {
        unit.settle = () => {
          if (--open === 0) resolve();
        };
        this.#fusion.join(unit);
      }
    });
    for (const follower of followers) follow(follower);
    return results;
  }
}
