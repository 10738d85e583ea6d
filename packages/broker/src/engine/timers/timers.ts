/**
 * Timer calls: judged, admitted, applied in one statement, answered by the index of each operation; alone or riding in a
 * transaction. What must hold between a call and a fire is in SQL (090_timers.sql).
 *
 * A cancellation is bound by nothing but its own form: whoever may schedule no more, or no longer, can still take back. Calls
 * run on the share of connections that KV has.
 *
 * Only delays come in, so that the database's clock is the only one that counts.
 */
import { formatUuid, mintUuidV7 } from '../../log/uuid.ts';
import { buggify } from '../../observability/buggify.ts';
import type { Database, Queryable } from '../../store/database.ts';
import type { QuotaRow } from '../../store/kv.ts';
import {
  applyTimers,
  countTimers,
  listTimers,
  peekTimer,
  type TimerRow,
  type TimerStep,
  type TimersOutcome,
  timerQueues,
} from '../../store/timers.ts';
import type { Clock } from '../clock.ts';
import { EngineError, refused } from '../errors.ts';
import { planned } from '../kv/kv.ts';
import type { Quotas } from '../kv/quotas.ts';
import { type Rate, Rates } from '../kv/rates.ts';
import type { Seal } from '../push/draft.ts';
import type { PartitionMemo } from '../push/partition_memo.ts';
import { laneKey } from '../push/unit.ts';
import { sealMissing } from '../sealing.ts';
import type { Switch } from '../system/switches.ts';
import type { Rider, RiderOutcome, RiderRequest } from '../transaction/riders.ts';
import type { TenantId } from '../types.ts';
import {
  checkKey,
  checkOperations,
  checkProducer,
  checkQueue,
  checkText,
  DELAY_MS_MIN,
  PREFIX_BYTES_MAX,
  TIMER_KEY_BYTES_MAX,
} from './check.ts';
import type {
  PendingTimer,
  TimerOperation,
  TimerPage,
  TimerResult,
  TimersFace,
  TimersRequest,
} from './face.ts';
import { timersDisabled, timersFailure, timersFault, timersRefused } from './faults.ts';
import { inflate } from './payload.ts';

export interface TimersSettings {
  /** Of a payload, as sent and as text. */
  payloadBytesMax: number;
  horizonSeconds: number;
  /** Calls of a tenant whose plan says nothing; null: unlimited. */
  reads: Rate | null;
  writes: Rate | null;
}

export interface TimersDeps {
  run: <T>(work: (db: Pick<Database, 'query' | 'transaction'>) => Promise<T>) => Promise<T>;
  quotas: Pick<Quotas, 'granted' | 'timersLeft' | 'timersGrew'>;
  /** Scheduling is on. */
  enabled: Switch;
  /** Hears after the commit that something will be due so soon. */
  scheduled: (delayMs: number) => void;
  /** Peers are told of what is due within this time, ms. */
  soonMs: number;
  tellPeers: () => void;
  seal: Seal;
  memo: Pick<PartitionMemo, 'get'>;
  clock: Clock;
  /** Milliseconds since 1970, for message ids. */
  wallMs?: () => number;
  settings: TimersSettings;
}

/** Monotonic counts since the start. */
export interface TimersCounters {
  /** Results of operations, by status. */
  operations: Map<string, number>;
  /** Schedules that were turned away, by the code of the refusal. */
  rejected: Map<string, number>;
}

/** Peers that look at all look once a second while anything is scheduled. */
const TELL_EVERY_MS = 1_000;
export const PAGE_DEFAULT = 100;
export const PAGE_MAX = 1000;

interface Call {
  tenant: TenantId;
  producerSub: string | null;
  operations: readonly TimerOperation[];
  steps: TimerStep[];
  /** How a fault names the list. */
  path: string;
  plan: QuotaRow | null;
}

type Applied = Extract<TimersOutcome, { kind: 'applied' }>;

export class Timers implements TimersFace {
  readonly #deps: TimersDeps;
  readonly #rates: Rates;
  #toldAt = Number.NEGATIVE_INFINITY;
  readonly counters: TimersCounters = { operations: new Map(), rejected: new Map() };

  constructor(deps: TimersDeps) {
    this.#deps = deps;
    this.#rates = new Rates(deps.clock, 'timer');
  }

  async apply(request: TimersRequest): Promise<TimerResult[]> {
    const call = this.#call(request, 'operations');
    if (call.steps.length === 0) return [];
    try {
      if (call.operations.some(schedules)) {
        if (!(await this.#deps.enabled.on())) throw timersDisabled();
        call.plan = await this.#deps.quotas.granted(call.tenant);
        this.#take(call.tenant, call.plan, 'writes');
        const late = this.#beyondHorizon(call);
        if (late !== null) throw late.error;
      }
      const applied = await this.#deps.run((db) => this.#alone(db, call));
      buggify('timers.applied');
      this.#committed(call, applied);
      return resultsOf(call, applied);
    } catch (error) {
      throw this.#rejected(call, timersFailure(error));
    }
  }

  /** What a transaction takes along. Not held to rates. */
  readonly ride = async (request: RiderRequest): Promise<Rider> => {
    const call = this.#call(request, 'timers');
    try {
      if (request.origin === 'client' && call.operations.some(schedules)) {
        if (!(await this.#deps.enabled.on())) throw refused('timers_disabled', timersDisabled().message);
        call.plan = await this.#deps.quotas.granted(call.tenant);
      }
    } catch (error) {
      throw this.#rejected(call, timersFailure(error));
    }
    let applied: Applied | null = null;
    return {
      run: async (tx): Promise<RiderOutcome> => {
        try {
          const late = this.#beyondHorizon(call);
          if (late !== null) {
            const { message } = this.#rejected(call, late.error);
            return refusal('timer_horizon_exceeded', message, late.index);
          }
          applied = await this.#within(tx, call);
        } catch (error) {
          if (error instanceof Unsealed) return refusal('encryption_required', error.message, error.index);
          if (error instanceof EngineError) throw this.#rejected(call, error);
          throw error;
        }
        return { refusal: null, results: resultsOf(call, applied) };
      },
      committed: () => this.#committed(call, applied!),
    };
  };

  async peek(
    tenant: TenantId,
    queue: string,
    timerKey: string,
  ): Promise<(PendingTimer & { payload: Buffer }) | null> {
    checkQueue(queue, 'queue');
    checkKey(timerKey, 'timerKey');
    const row = await this.#read(tenant, (db) => peekTimer(db, tenant, queue, timerKey));
    return row === null ? null : { ...pending(queue, row), payload: row.payload! };
  }

  async list(
    tenant: TenantId,
    queue: string,
    page: { prefix: string; after: string | null; limit: number | null },
  ): Promise<TimerPage> {
    const { prefix, after } = page;
    checkQueue(queue, 'queue');
    checkText(prefix, PREFIX_BYTES_MAX, 'timers_bad_prefix', 'prefix');
    if (after !== null) checkText(after, TIMER_KEY_BYTES_MAX, 'timers_bad_after', 'after');
    const limit = pageLimit(page.limit);
    // One more than asked for tells whether there is more.
    const found = await this.#read(tenant, (db) =>
      listTimers(db, tenant, queue, { prefix, after, limit: limit + 1 }),
    );
    const rows = found.slice(0, limit).map((row) => pending(queue, row));
    const truncated = found.length > limit;
    return { rows, truncated, nextAfter: truncated ? rows.at(-1)!.timerKey : null };
  }

  async count(tenant: TenantId, queue: string, prefix: string): Promise<number> {
    checkQueue(queue, 'queue');
    checkText(prefix, PREFIX_BYTES_MAX, 'timers_count_bad_prefix', 'prefix');
    return this.#read(tenant, (db) => countTimers(db, tenant, queue, prefix));
  }

  async queues(
    tenant: TenantId,
    page: { after: string | null; limit: number | null },
  ): Promise<{ queues: string[]; nextAfter: string | null }> {
    const after = page.after ?? '';
    if (after !== '') checkQueue(after, 'after');
    const limit = pageLimit(page.limit);
    const found = await this.#read(tenant, (db) => timerQueues(db, tenant, after, limit + 1));
    const queues = found.slice(0, limit);
    return { queues, nextAfter: found.length > limit ? queues.at(-1)! : null };
  }

  /** Throws the EngineError `timers_bad_request` or `payload_too_large`. */
  #call(request: TimersRequest, path: string): Call {
    const { tenant, operations } = request;
    checkOperations(operations, this.#deps.settings, path);
    const producerSub = operations.some(schedules) ? request.producerSub : null;
    checkProducer(producerSub);
    const steps = operations.map((operation) => this.#step(tenant, operation));
    return { tenant, producerSub, operations, steps, path, plan: null };
  }

  #step(tenant: TenantId, operation: TimerOperation): TimerStep {
    const { op, queue, timerKey } = operation;
    if (op === 'cancel') return { op, queue, timerKey };
    const { partition, transactionId, payload, payloadZstd, encrypted } = operation;
    const messageId = formatUuid(mintUuidV7((this.#deps.wallMs ?? Date.now)()));
    const content = { partition, transactionId, messageId, payload, payloadZstd, encrypted, sealed: false };
    const step: TimerStep = {
      op,
      queue,
      timerKey,
      delayMs: Math.max(DELAY_MS_MIN, operation.delayMs),
      content,
    };
    // Only saves a round trip: the statement knows for sure, and asks for what is not sealed and has to be.
    const encrypts = this.#deps.memo.get(laneKey(tenant, queue, partition))?.encrypts === true;
    return encrypts && !encrypted && this.#deps.seal !== null ? this.#sealed(step) : step;
  }

  #sealed(step: Extract<TimerStep, { op: 'schedule' }>): TimerStep {
    const { content } = step;
    // Its size was judged before, compressed or not.
    const text = content.payloadZstd ? inflate(content.payload, Number.MAX_SAFE_INTEGER) : content.payload;
    const payload = this.#deps.seal!(text as Buffer);
    return { ...step, content: { ...content, payload, payloadZstd: false, sealed: true } };
  }

  /** The first schedule that lies too far ahead, for the broker or for the tenant's plan. */
  #beyondHorizon({ operations, plan, path }: Call): { index: number; error: EngineError } | null {
    const { horizonSeconds, payloadBytesMax } = this.#deps.settings;
    const seconds = Math.min(horizonSeconds, plan?.maxTimerHorizonSeconds ?? horizonSeconds);
    const bytesMax = Math.min(payloadBytesMax, plan?.maxBytes ?? payloadBytesMax);
    for (const [index, operation] of operations.entries()) {
      if (operation.op !== 'schedule') continue;
      const field = `${path}[${index}]`;
      if (operation.payload.length > bytesMax) {
        const sentence = `${field}.payload has more than the ${bytesMax} bytes of this tenant's plan`;
        throw timersRefused('payload_too_large', sentence, `${field}.payload`);
      }
      if (operation.delayMs <= seconds * 1000) continue;
      const sentence = `${field}.delayMs must be at most ${seconds * 1000} (${seconds} s)`;
      return { index, error: timersRefused('timer_horizon_exceeded', sentence, `${field}.delayMs`) };
    }
    return null;
  }

  /** In a transaction only when something may have to be undone. */
  async #alone(db: Pick<Database, 'query' | 'transaction'>, call: Call): Promise<Applied> {
    const left = this.#deps.quotas.timersLeft(call.plan);
    try {
      if (left === null || left >= call.operations.filter(schedules).length) {
        return await this.#within(db, call);
      }
      return await db.transaction((tx) => this.#within(tx, call));
    } catch (error) {
      if (!(error instanceof Unsealed)) throw error;
      const field = `${call.path}[${error.index}].queue`;
      throw timersFault('encryption_required', error.message, field);
    }
  }

  async #within(db: Queryable, call: Call): Promise<Applied> {
    const { tenant, producerSub } = call;
    const timersLeft = this.#deps.quotas.timersLeft(call.plan);
    for (;;) {
      const outcome = await applyTimers(db, { tenant, producerSub, steps: call.steps, timersLeft });
      if (outcome.kind === 'applied') return outcome;
      if (outcome.kind === 'over_quota') {
        throw timersRefused('timers_quota_exceeded', 'the plan of this tenant allows no more pending timers');
      }
      // Each round seals what was not: it ends.
      for (const index of outcome.steps) this.#seal(call, index);
    }
  }

  #seal(call: Call, index: number): void {
    const step = call.steps[index]!;
    if (step.op !== 'schedule') return;
    if (step.content.encrypted) {
      const field = `${call.path}[${index}].encrypted`;
      throw timersFault(
        'timers_encrypted_twice',
        `${field}: the queue encrypts its payloads itself, send them in the clear`,
        field,
      );
    }
    if (this.#deps.seal === null) throw new Unsealed(index);
    call.steps[index] = this.#sealed(step);
  }

  #committed(call: Call, applied: Applied): void {
    this.#deps.quotas.timersGrew(call.tenant, applied.grown);
    let soonest = Number.POSITIVE_INFINITY;
    applied.results.forEach(({ status }, i) => {
      count(this.counters.operations, status);
      const step = call.steps[i]!;
      if (step.op === 'schedule' && status !== 'too_late') soonest = Math.min(soonest, step.delayMs);
    });
    if (soonest < Number.POSITIVE_INFINITY) this.#tell(soonest);
  }

  #tell(delayMs: number): void {
    const { clock, scheduled, soonMs, tellPeers } = this.#deps;
    scheduled(delayMs);
    if (delayMs > soonMs || clock.now() - this.#toldAt < TELL_EVERY_MS) return;
    this.#toldAt = clock.now();
    tellPeers();
  }

  #rejected(call: Call, error: EngineError): EngineError {
    if (error.kind !== 'in_doubt' && call.operations.some(schedules))
      count(this.counters.rejected, error.code);
    return error;
  }

  #take(tenant: TenantId, plan: QuotaRow | null, kind: 'reads' | 'writes'): void {
    const own = kind === 'reads' ? plan?.maxReadsPerSecond : plan?.maxWritesPerSecond;
    // A call and not each of its operations: a batch costs the database one statement.
    this.#rates.take(tenant, kind, planned(this.#deps.settings[kind], own), 1);
  }

  async #read<T>(tenant: TenantId, work: (db: Queryable) => Promise<T>): Promise<T> {
    try {
      this.#take(tenant, await this.#deps.quotas.granted(tenant), 'reads');
      return await this.#deps.run(work);
    } catch (error) {
      throw timersFailure(error);
    }
  }
}

/** A queue that encrypts, and no key here. */
class Unsealed extends Error {
  readonly index: number;

  constructor(index: number) {
    super(sealMissing().message);
    this.index = index;
  }
}

function pageLimit(asked: number | null): number {
  return Math.min(PAGE_MAX, Math.max(1, Math.floor(asked ?? PAGE_DEFAULT)));
}

function schedules(operation: TimerOperation): boolean {
  return operation.op === 'schedule';
}

function refusal(
  reason: 'timer_horizon_exceeded' | 'encryption_required',
  error: string,
  index: number,
): RiderOutcome {
  return { refusal: { reason, error, index }, results: null };
}

function resultsOf({ operations, steps }: Call, applied: Applied): TimerResult[] {
  return operations.map(({ queue, timerKey, transactionId: named }, i) => {
    const { status, dueAtMicros, transactionId } = applied.results[i]!;
    const step = steps[i]!;
    const messageId = step.op === 'schedule' && dueAtMicros !== null ? step.content.messageId : null;
    return { status, queue, timerKey, transactionId: named ?? transactionId, messageId, dueAtMicros };
  });
}

function pending(queue: string, { payload: _, ...row }: TimerRow): PendingTimer {
  return { queue, ...row };
}

function count(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
