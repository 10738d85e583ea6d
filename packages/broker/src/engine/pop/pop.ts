/**
 * The pop path: first contact, candidates, claim, decode, and the long poll around them.
 *
 * A pop that finds nothing and may wait parks without connection or slot (../wake/parking.ts); when it is woken it
 * tries again from the start, so that what it was woken for is only ever a hint. A client that goes away is
 * noticed before a claim and after it: nothing stays leased for it.
 */

import { formatUuid, mintUuidV7 } from '../../log/uuid.ts';
import type { Queryable } from '../../store/database.ts';
import type { StoreLog } from '../../store/log.ts';
import { candidates } from '../../store/pop.ts';
import type { DeliveredBatch } from '../ack/registry.ts';
import type { Clock } from '../clock.ts';
import { EngineError, fromStore } from '../errors.ts';
import { type HotList, queueKey } from '../hotlist/hotlist.ts';
import type { Reseed } from '../hotlist/reseed.ts';
import { type PopAnswer, type PopRequest, QUEUE_MODE_GROUP } from '../types.ts';
import type { Wake } from '../wake/wake.ts';
import { Autopilot, type Choice } from './autopilot.ts';
import { Contact, QueueSupply } from './contact.ts';
import type { OpenPayload } from './decode.ts';
import { Harvest, type HarvestCounters } from './harvest.ts';
import { PinnedSource, Pins } from './pinned_source.ts';
import { RingSource } from './ring_source.ts';
import { SCAN_MAX, ScanSource } from './scan_source.ts';
import { QueueScanSupply, ScopeScanSupply } from './scan_supply.ts';
import { ScopeSupply, Scopes } from './scopes.ts';
import { CONFLATED_PARTITIONS_MAX, POP_DEFAULTS, type PopSettings } from './settings.ts';
import type { Source } from './source.ts';
import { autoAckRefused, checkRequest, startOf } from './start.ts';

export interface PopDeps {
  /** Runs work on the database under the pop lane's admission. */
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  hotlist: HotList;
  reseed: Reseed;
  wake: Wake;
  ackRegistry: { delivered(batch: DeliveredBatch): void };
  clock: Clock;
  log: StoreLog;
  settings?: Partial<PopSettings>;
  /** Pop maintenance is on. */
  paused?: () => boolean;
  /** Opens sealed payloads of a tenant. */
  open?: (tenant: string) => OpenPayload;
  /** See harvest.ts. */
  fired?: (items: number, ms: number) => void;
}

/** Budget and knobs of one pop, after defaults. */
interface Plan {
  batch: number;
  partitions: number;
  autopilot: Choice | null;
}

interface PopCounters {
  pops: number;
  aborted: number;
  /** Pops that were held back for a fuller batch, and for how long. */
  fillWaits: number;
  fillWaitMicros: number;
}

/** How far one pop has come. */
interface Progress {
  readonly deadline: number;
  attempts: number;
  /** Its one wait for a fuller batch is over, or does not apply. */
  filled: boolean;
}

export class PopPath {
  readonly counters: HarvestCounters & PopCounters = {
    pops: 0,
    fillWaits: 0,
    fillWaitMicros: 0,
    aborted: 0,
    claimCalls: 0,
    claims: 0,
    messages: 0,
    emptyVerdicts: 0,
    undone: 0,
    corruptSegments: 0,
  };
  readonly #deps: PopDeps;
  readonly #settings: PopSettings;
  readonly #contact: Contact;
  readonly #scopes: Scopes;
  readonly #pins: Pins;
  readonly autopilot: Autopilot;
  readonly #running = new Set<Promise<PopAnswer>>();
  #stopped = false;

  constructor(deps: PopDeps) {
    this.#deps = deps;
    this.#settings = { ...POP_DEFAULTS, ...deps.settings };
    const { clock, hotlist, wake, run } = deps;
    this.#contact = new Contact({ hotlist, clock, time: wake.time, run });
    this.#scopes = new Scopes({ hotlist, wake, clock, memoMs: this.#settings.memoMs, run });
    this.#pins = new Pins(clock, this.#settings.memoMs);
    this.autopilot = new Autopilot(clock, this.#settings, deps.log);
  }

  /** Never rejects because nothing is there; throws an EngineError. */
  pop(request: PopRequest): Promise<PopAnswer> {
    const running = this.#pop(request);
    this.#running.add(running);
    const forget = () => this.#running.delete(running);
    running.then(forget, forget);
    return running;
  }

  /** Answers what is parked, and waits for what is claiming. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#deps.wake.parking.stop();
    await Promise.allSettled([...this.#running]);
  }

  /** The cursors or registrations of a group were changed from outside. */
  forgetGroup(tenant: string, group: string): void {
    this.#pins.clear();
    this.#scopes.forgetGroup(tenant, group);
    this.#deps.wake.stirGroup(group);
  }

  /** A queue was deleted, or another one bears its name. */
  forgetQueue(tenant: string): void {
    this.#scopes.forgetQueue(tenant);
  }

  async #pop(request: PopRequest): Promise<PopAnswer> {
    checkRequest(request);
    this.counters.pops++;
    if (this.#deps.paused?.() === true) return { ...EMPTY, paused: true };
    const deadline = this.#deps.clock.now() + request.waitMs;
    const source = this.#source(request);
    const progress: Progress = { deadline, attempts: 0, filled: false };
    try {
      for (; ; progress.attempts++) {
        const answer = await this.#attempt(request, source, progress).catch((error: unknown) =>
          this.#outlive(fromStore(error), request, progress),
        );
        if (answer.claims.length > 0 || request.waitMs <= 0 || this.#stopped) return answer;
        const outcome = await this.#deps.wake.parking.park(source.wish, deadline, request.signal);
        if (outcome !== 'woken') return answer;
        if (this.#deps.paused?.() === true) return { ...answer, paused: true };
      }
    } catch (error) {
      throw fromStore(error);
    } finally {
      source.close();
    }
  }

  /**
   * A pop that has been parked outlives a database that goes away: nothing was taken for it, so it goes on waiting. One that
   * meets the outage with its first look is told of it.
   */
  async #outlive(error: EngineError, request: PopRequest, progress: Progress): Promise<PopAnswer> {
    const left = progress.deadline - this.#deps.clock.now();
    if (error.kind !== 'unavailable' || progress.attempts === 0 || left <= 0 || this.#stopped) throw error;
    await this.#pause(Math.min(left, OUTAGE_PAUSE_MS), request.signal);
    return EMPTY;
  }

  #pause(ms: number, signal: AbortSignal | null): Promise<void> {
    return new Promise((resolve) => {
      const over = () => {
        timer.cancel();
        signal?.removeEventListener('abort', over);
        resolve();
      };
      const timer = this.#deps.clock.after(ms, over);
      signal?.addEventListener('abort', over, { once: true });
    });
  }

  async #attempt(request: PopRequest, source: Source, progress: Progress): Promise<PopAnswer> {
    // Twice at most: what is found to be outdated once is prepared anew, then it is the next attempt's turn.
    for (let round = 0; ; round++) {
      if (request.signal?.aborted === true) return EMPTY;
      await source.prepare();
      if (source.conflation && request.autoAck) throw autoAckRefused();
      const plan = this.#plan(request, source);
      if (!progress.filled) progress.filled = await this.#letFill(request, source, plan, progress.deadline);
      const answer = await this.#harvest(request, source, plan, progress.attempts === 0);
      if (answer.claims.length > 0 || !source.stale || round > 0) return answer;
    }
  }

  async #harvest(request: PopRequest, source: Source, plan: Plan, sure: boolean): Promise<PopAnswer> {
    const { tenant, group, signal } = request;
    const worker = request.autoAck ? null : formatUuid(mintUuidV7(Date.now()));
    const harvest = new Harvest(
      {
        run: this.#deps.run,
        clock: this.#deps.clock,
        log: this.#deps.log,
        counters: this.counters,
        fired: this.#deps.fired,
      },
      {
        group,
        worker,
        batch: plan.batch,
        partitions: plan.partitions,
        bytesMax: this.#settings.answerBytesMax,
        leaseSeconds: request.leaseSeconds,
        windowBatch: this.#settings.hotlist ? this.#settings.windowBatch : 0,
        open: this.#deps.open?.(tenant) ?? null,
      },
      source,
      signal,
    );
    try {
      await harvest.gather(sure);
    } catch (error) {
      // What was claimed before the failure is good: deliver it, the failure will be met again.
      if (harvest.claimed.length === 0) throw error;
      this.#deps.log.warn({ err: error }, 'a pop was cut short');
    }
    if (signal?.aborted === true) {
      await this.#abandon(harvest, group);
      return EMPTY;
    }
    const corrupt = harvest.corrupt[0];
    if (harvest.claimed.length === 0 && corrupt !== undefined) {
      throw new EngineError('refused', 'corrupt_segment', corrupt.message, { cause: corrupt });
    }
    if (worker !== null) this.#register(harvest, request, worker, source.conflation);
    return {
      leaseId: harvest.claimed.length === 0 ? '' : (worker ?? ''),
      claims: harvest.answer(),
      conflation: source.conflation,
      conflationConflict: request.conflation !== null && request.conflation !== source.conflation,
      autopilot: plan.autopilot,
      paused: false,
    };
  }

  /** The client has gone: its leases are taken back, and their partitions are ready for others. */
  async #abandon(harvest: Harvest, group: string): Promise<void> {
    this.counters.aborted++;
    const ids = harvest.claimed.map(({ row }) => row.partitionId);
    await harvest.undo();
    for (const id of ids) this.#deps.wake.released(id, group);
  }

  #register(harvest: Harvest, request: PopRequest, worker: string, conflated: boolean): void {
    // The ack of a conflated batch reports how many messages it skipped; only the full procedure knows.
    if (conflated) return;
    for (const { row, messages } of harvest.claimed) {
      this.#deps.ackRegistry.delivered({
        tenant: request.tenant,
        partitionId: row.partitionId,
        group: request.group,
        worker,
        batchEnd: row.toOffset as number,
        transactionIds: messages.map((message) => message.transactionId),
        leaseSeconds: row.leaseSeconds as number,
      });
    }
  }

  #plan(request: PopRequest, source: Source): Plan {
    const batch = Math.max(1, request.batch ?? this.#settings.batchDefault);
    if (source.conflation) {
      const asked = request.partitions ?? batch;
      const partitions = asked <= 0 ? CONFLATED_PARTITIONS_MAX : Math.min(asked, CONFLATED_PARTITIONS_MAX);
      return { batch, partitions, autopilot: null };
    }
    if (request.scope.kind === 'partition') return { batch, partitions: 1, autopilot: null };
    const partitions = request.partitions ?? 1;
    const choice = this.#choose(request);
    if (choice === null) return { batch, partitions: Math.max(0, partitions), autopilot: null };
    const applied = {
      partitions: request.partitions ?? choice.partitions,
      batch: request.batch === null ? choice.batch : batch,
    };
    return {
      batch: applied.batch,
      partitions: Math.max(0, applied.partitions),
      autopilot: { ...applied, waitMs: choice.waitMs },
    };
  }

  #choose(request: PopRequest): Choice | null {
    const { autopilot, hotlist } = this.#settings;
    const { scope, group } = request;
    if (!request.autopilot || autopilot === 'off' || !hotlist) return null;
    if (scope.kind !== 'queue' || group === QUEUE_MODE_GROUP) return null;
    if (request.batch !== null && request.partitions !== null) return null;
    const ring = this.#deps.hotlist.find(request.tenant, scope.queue, group);
    if (ring === null) return null;
    const choice = this.autopilot.choose(`${queueKey(request.tenant, scope.queue)}\u001f${group}`, ring.ring);
    return autopilot === 'on' ? choice : null;
  }

  /**
   * minPopWaitTime: the first look that finds something, but not a full batch, waits for more before the claim.
   * False: nothing was there yet.
   */
  async #letFill(request: PopRequest, source: Source, plan: Plan, deadline: number): Promise<boolean> {
    if (request.scope.kind !== 'queue' || request.waitMs <= 0 || plan.batch <= 1) return true;
    if (source.conflation || source.minPopWaitMs <= 0) return true;
    const reach = plan.partitions <= 0 ? Number.MAX_SAFE_INTEGER : plan.partitions;
    const waiting = source.backlog(reach, plan.batch);
    if (waiting === 0) return false;
    if (waiting === null || waiting >= plan.batch) return true;
    const full = {
      keys: source.wish.keys,
      group: request.group,
      ready: null,
      wants: () => (source.backlog(reach, plan.batch) ?? plan.batch) >= plan.batch,
    };
    const until = Math.min(deadline, this.#deps.clock.now() + source.minPopWaitMs);
    const begun = this.#deps.clock.now();
    this.counters.fillWaits++;
    await this.#deps.wake.parking.park(full, until, request.signal);
    this.counters.fillWaitMicros += Math.round((this.#deps.clock.now() - begun) * 1000);
    return true;
  }

  #source(request: PopRequest): Source {
    const { tenant, group, scope } = request;
    const { clock, hotlist, reseed, wake, run } = this.#deps;
    const start = startOf(request);
    const conflate = request.conflation === true;
    const scan = (queues: readonly number[], name: string) =>
      run((db) => candidates(db, queues, name, SCAN_MAX));
    if (scope.kind === 'partition') {
      const { queue, partition } = scope;
      const deps = { clock, wake, run, pins: this.#pins };
      return new PinnedSource(deps, { tenant, queue, partition, group, start, conflate });
    }
    const ringDeps = { hotlist, reseed, clock, scan };
    if (scope.kind === 'queue') {
      const pop = { tenant, queue: scope.queue, group, start, conflate };
      if (this.#settings.hotlist) {
        return new RingSource(ringDeps, new QueueSupply(this.#contact, hotlist, pop));
      }
      return new ScanSource(run, clock, new QueueScanSupply(this.#contact, pop), request.partitions ?? 1);
    }
    const found = this.#scopes.find(tenant, scope.namespace ?? '', scope.task ?? '');
    const pop = { group, start, conflate };
    if (this.#settings.hotlist) return new RingSource(ringDeps, new ScopeSupply(found, hotlist, pop));
    return new ScanSource(run, clock, new ScopeScanSupply(found, pop), request.partitions ?? 1);
  }
}

/** Between two looks of a parked pop while the database is away. */
const OUTAGE_PAUSE_MS = 500;

const EMPTY: PopAnswer = {
  leaseId: '',
  claims: [],
  conflation: false,
  conflationConflict: false,
  autopilot: null,
  paused: false,
};
