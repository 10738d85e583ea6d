/**
 * KV calls: judged, admitted, applied in one statement, answered by the index of each operation. Everything that must hold
 * under concurrency is in SQL (080_kv.sql); here is what may be asked, how often and how much.
 *
 * A call runs on a share of connections of its own, beside the admission of the log's lanes: a storm of KV calls cannot
 * hold up pushes, and pushes cannot starve it.
 */
import { RecentQuantiles } from '../../observability/quantiles.ts';
import type { Database, Queryable } from '../../store/database.ts';
import type { QuotaRow } from '../../store/kv.ts';
import {
  applyKv,
  type KvCall,
  type KvOutcome,
  type KvStep,
  listKvNamespaces,
  scanKv,
} from '../../store/kv.ts';
import { Share } from '../admission/share.ts';
import type { Clock } from '../clock.ts';
import { EngineError, fromStore, refused } from '../errors.ts';
import type { Switch } from '../system/switches.ts';
import type { TenantId } from '../types.ts';
import { checkCursor, checkNamespace, checkOperations, type KvLimits, pageSize } from './check.ts';
import type { KvExpiry } from './expiry.ts';
import { kvDisabled, kvRefused } from './faults.ts';
import {
  type KvAnswer,
  type KvFace,
  type KvListing,
  type KvListRequest,
  type KvOperation,
  type KvRequest,
  writes,
} from './operations.ts';
import type { Quotas } from './quotas.ts';
import { type Rate, Rates } from './rates.ts';
import { renderAnswer } from './results.ts';

export interface KvSettings {
  valueBytesMax: number;
  readBytesMax: number;
  pageMax: number;
  /** Connections of its own share. */
  connections: number;
  /** Of a tenant whose plan says nothing; null: unlimited. */
  reads: Rate | null;
  writes: Rate | null;
}

export interface KvDeps {
  db: Pick<Database, 'query' | 'transaction'>;
  quotas: Quotas;
  enabled: Switch;
  expiry: Pick<KvExpiry, 'written'>;
  clock: Clock;
  settings: KvSettings;
}

/** KV operations that ride in somebody else's transaction. */
export interface KvRide {
  readonly call: KvCall;
  /** Throws the EngineError `kv_quota_exceeded`. */
  answer(outcome: KvOutcome): KvAnswer;
  committed(outcome: KvOutcome): void;
}

export interface KvCounters {
  /** By operation and outcome: applied, not_applied, found, not_found, page. */
  operations: Map<string, number>;
  bytesIn: number;
  bytesOut: number;
  rejected: Map<string, number>;
}

export const OPERATIONS_MAX = 256;
export const RIDING_OPERATIONS_MAX = 64;
const KEYS_MAX = 1024;
const RIDING_KEYS_MAX = 256;
const SHARE_WAIT_MS = 2_000;
const RETRY_AFTER_SECONDS = 1;
const CONNECTOR_CONNECTIONS = 4;

export class Kv implements KvFace {
  readonly #deps: KvDeps;
  readonly #rates: Rates;
  readonly #share: Share;
  readonly #connectorShare: Share;
  readonly #limits: KvLimits;
  readonly counters: KvCounters = { operations: new Map(), bytesIn: 0, bytesOut: 0, rejected: new Map() };

  /** Milliseconds of recent calls, by kind of operation. */
  readonly durations = new Map<string, RecentQuantiles>();

  constructor(deps: KvDeps) {
    this.#deps = deps;
    const { settings, clock } = deps;
    this.#rates = new Rates(clock, 'KV');
    const busy = () => kvUnavailable('all connections of KV are busy', undefined);
    this.#share = new Share({ connections: settings.connections, waitMs: SHARE_WAIT_MS }, clock, busy);
    this.#connectorShare = new Share({ connections: CONNECTOR_CONNECTIONS, waitMs: null }, clock, busy);
    this.#limits = {
      operationsMax: OPERATIONS_MAX,
      keysMax: Math.max(KEYS_MAX, settings.pageMax),
      valueBytesMax: settings.valueBytesMax,
      pageMax: settings.pageMax,
      prefixes: true,
    };
  }

  stats(): ReturnType<Share['stats']> {
    return this.#share.stats();
  }

  /** Work of a neighbour on this share of connections. Throws what it throws, and `kv_unavailable` when none is free. */
  lend<T>(work: (db: Pick<Database, 'query' | 'transaction'>) => Promise<T>): Promise<T> {
    return this.#share.run(() => work(this.#deps.db));
  }

  async kv(request: KvRequest): Promise<KvAnswer> {
    const { tenant, origin, operations } = request;
    const steps = checkOperations(operations, this.#limits, origin, 'operations');
    if (steps.length === 0) return { ok: true, results: [] };
    const plan = origin === 'connector' ? null : await this.#admit(tenant, operations);
    const call = this.#call(tenant, steps, plan, origin === 'connector');
    call.guard = operations.length > 1;
    const begun = performance.now();
    const outcome = await this.#run(origin, () => this.#apply(call));
    this.#timed(operations, performance.now() - begun);
    const answer = this.#answer(outcome, operations);
    this.#committed(outcome, plan, operations);
    return answer;
  }

  /** A call takes its time for each kind of operation in it. */
  #timed(operations: readonly KvOperation[], ms: number): void {
    for (const kind of new Set(operations.map(({ op }) => op))) {
      let durations = this.durations.get(kind);
      if (durations === undefined) {
        durations = new RecentQuantiles(256);
        this.durations.set(kind, durations);
      }
      durations.observe(ms);
    }
  }

  /** What a transaction takes along. Not held to rates. Throws EngineError as `kv` does, a switch that is off `refused`. */
  async ride(request: KvRequest): Promise<KvRide> {
    const { tenant, origin, operations } = request;
    const limits = {
      ...this.#limits,
      operationsMax: RIDING_OPERATIONS_MAX,
      keysMax: RIDING_KEYS_MAX,
      prefixes: false,
    };
    const steps = checkOperations(operations, limits, origin, 'kv');
    let plan: QuotaRow | null = null;
    if (origin === 'client' && steps.length > 0) {
      if (!(await this.#deps.enabled.on())) throw refused('kv_disabled', kvDisabled().message);
      plan = await this.#granted(tenant);
    }
    return {
      call: { ...this.#call(tenant, steps, plan, origin === 'connector'), guard: true },
      answer: (outcome) => this.#answer(outcome, operations),
      committed: (outcome) => this.#committed(outcome, plan, operations),
    };
  }

  async kvNamespaces(tenant: TenantId): Promise<{ namespace: string; keys: number }[]> {
    await this.#admitLook(tenant);
    return this.#run('client', () => listKvNamespaces(this.#deps.db, tenant));
  }

  async kvList(request: KvListRequest): Promise<KvListing> {
    const { settings, db } = this.#deps;
    checkNamespace(request.namespace, 'namespace');
    checkCursor(request.prefix, 'prefix');
    if (request.after !== null) checkCursor(request.after, 'after');
    await this.#admitLook(request.tenant);
    const { rows, truncated } = await this.#run('client', () =>
      scanKv(db, {
        ...request,
        limit: pageSize(request.limit, settings.pageMax),
        readBytesMax: settings.readBytesMax,
      }),
    );
    let bytes = 0;
    for (const row of rows) bytes += row.value === null ? 0 : Buffer.byteLength(row.value);
    return { rows, truncated, nextAfter: truncated ? rows.at(-1)!.key : null, bytes };
  }

  #call(tenant: string, steps: readonly KvStep[], plan: QuotaRow | null, connector: boolean): KvCall {
    const left = this.#deps.quotas.left(plan);
    return {
      tenant,
      steps,
      readBytesMax: this.#deps.settings.readBytesMax,
      rowsLeft: left.rows,
      bytesLeft: left.bytes,
      guard: false,
      durable: connector,
    };
  }

  /** Alone in its statement when a failure cannot find anything written before it, else in a transaction. */
  #apply(call: KvCall): Promise<KvOutcome> {
    const { db } = this.#deps;
    const writing = call.steps.filter((step) => step.code >= 1 && step.code <= 3).length;
    const mayFail = call.steps.some((step) => step.required === true) || this.#tight(call);
    if (writing < 2 || !mayFail) return applyKv(db, call);
    return db
      .transaction(async (tx) => {
        const outcome = await applyKv(tx, call);
        if (outcome.failed !== null) throw new Undo(outcome);
        return outcome;
      })
      .catch((error: unknown) => {
        if (error instanceof Undo) return error.outcome;
        throw error;
      });
  }

  /** The plan may not suffice for the whole call. */
  #tight(call: KvCall): boolean {
    let bytes = 0;
    for (const step of call.steps)
      bytes += step.code === 1 ? step.value!.length * 3 : step.code === 3 ? 1024 : 0;
    return (
      (call.rowsLeft !== null && call.rowsLeft < call.steps.length) ||
      (call.bytesLeft !== null && call.bytesLeft < bytes)
    );
  }

  #answer(outcome: KvOutcome, operations: readonly KvOperation[]): KvAnswer {
    if (outcome.failed?.failure === 'kv_quota_exceeded') {
      this.#reject('quota');
      throw kvRefused('kv_quota_exceeded', 'the plan of this tenant allows no more keys or bytes');
    }
    return renderAnswer(outcome, operations);
  }

  #committed(outcome: KvOutcome, plan: QuotaRow | null, operations: readonly KvOperation[]): void {
    if (outcome.failed !== null) return;
    this.#deps.quotas.grew(plan, outcome.grownRows, outcome.grownBytes);
    operations.forEach((operation, i) => {
      const answer = outcome.answers[i]!;
      this.#count(operation, answer.done, answer.rows.length);
      if ('value' in operation) this.counters.bytesIn += operation.value.length;
      if (answer.value !== null) this.counters.bytesOut += answer.value.length;
      for (const row of answer.rows) this.counters.bytesOut += row.value?.length ?? 0;
      if (answer.done && 'life' in operation && operation.life !== null) {
        this.#deps.expiry.written(operation.life * 1000);
      }
    });
  }

  #count(operation: KvOperation, done: boolean, rows: number): void {
    const outcome = writes(operation)
      ? done
        ? 'applied'
        : 'not_applied'
      : done || rows > 0
        ? 'found'
        : 'not_found';
    const key = `${operation.op}\u001f${outcome}`;
    this.counters.operations.set(key, (this.counters.operations.get(key) ?? 0) + 1);
  }

  #reject(reason: string): void {
    this.counters.rejected.set(reason, (this.counters.rejected.get(reason) ?? 0) + 1);
  }

  async #admit(tenant: TenantId, operations: readonly KvOperation[]): Promise<QuotaRow | null> {
    await this.#switchedOn();
    const plan = await this.#granted(tenant);
    const writing = operations.filter(writes).length;
    this.#take(tenant, plan, operations.length - writing, writing);
    return plan;
  }

  async #admitLook(tenant: TenantId): Promise<void> {
    await this.#switchedOn();
    this.#take(tenant, await this.#plan(tenant), 1, 0);
  }

  #take(tenant: TenantId, plan: QuotaRow | null, reads: number, writing: number): void {
    const { settings } = this.#deps;
    try {
      this.#rates.take(tenant, 'reads', planned(settings.reads, plan?.maxReadsPerSecond), reads);
      this.#rates.take(tenant, 'writes', planned(settings.writes, plan?.maxWritesPerSecond), writing);
    } catch (error) {
      this.#reject('rate');
      throw error;
    }
  }

  async #switchedOn(): Promise<void> {
    if (await this.#deps.enabled.on()) return;
    this.#reject('disabled');
    throw kvDisabled();
  }

  async #granted(tenant: TenantId): Promise<QuotaRow | null> {
    try {
      return await this.#deps.quotas.granted(tenant);
    } catch (error) {
      throw kvFailure(error);
    }
  }

  async #plan(tenant: TenantId): Promise<QuotaRow | null> {
    try {
      return await this.#deps.quotas.of(tenant);
    } catch (error) {
      throw kvFailure(error);
    }
  }

  async #run<T>(origin: KvRequest['origin'], work: (db: Queryable) => Promise<T>): Promise<T> {
    const share = origin === 'connector' ? this.#connectorShare : this.#share;
    try {
      return await share.run(() => work(this.#deps.db));
    } catch (error) {
      const failure = kvFailure(error);
      if (failure.kind === 'unavailable') this.#reject('unavailable');
      throw failure;
    }
  }
}

class Undo extends Error {
  readonly outcome: KvOutcome;

  constructor(outcome: KvOutcome) {
    super('a condition was lost');
    this.outcome = outcome;
  }
}

/** A plan's own rate bursts for two seconds, as the broker's does. */
export function planned(rate: Rate | null, perSecond: number | null | undefined): Rate | null {
  return perSecond === null || perSecond === undefined ? rate : { perSecond, burst: 2 * perSecond };
}

function kvUnavailable(message: string, cause: unknown): EngineError {
  return new EngineError('unavailable', 'kv_unavailable', message, {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause,
  });
}

function kvFailure(error: unknown): EngineError {
  const failure = fromStore(error);
  if (failure.kind !== 'unavailable' || failure.code.startsWith('kv_')) return failure;
  return kvUnavailable(failure.message, failure.cause);
}
