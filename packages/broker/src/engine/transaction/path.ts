/**
 * Transactions: pushes, acks, KV and timer operations that commit together or not at all.
 *
 * What makes it atomic is one PostgreSQL transaction in which nothing is caught: every refusal is thrown, and whatever is
 * thrown rolls back. What makes it free of deadlocks is the order of the whole system, kept here: KV rows, timer rows,
 * partitions ascending, consumer rows ascending, dead letters. Queues and partitions are created before, in a short
 * transaction of their own: an empty lane harms nobody, and a creation held open until our commit would hold up everyone
 * who names the same queue.
 *
 * Round trips: one statement for KV, pushes and acks together, and the commit. Timers split it (their rows come in
 * between); a dead letter or a search of leased segments adds its own. BEGIN travels with the first statement. What
 * can be prepared (packing, hashes, sealing, the windows of the deduplication) is prepared before the first lock.
 *
 * After the commit the same is told as after a push and an ack: dedup cache, lane memo, hot list and waiting consumers.
 * A commit whose fate is unknown is an error; nothing is remembered then, and the next append leaves a gap in the
 * cache, which makes it mute and never wrong.
 */
import { formatUuid, mintUuidV7 } from '../../log/uuid.ts';
import { buggify } from '../../observability/buggify.ts';
import type { Database, Queryable } from '../../store/database.ts';
import { StoreError } from '../../store/errors.ts';
import { InvariantError } from '../../store/invariant.ts';
import type { KvOutcome } from '../../store/kv.ts';
import { applyAll, type LogResult, type LogWork } from '../../store/log_transaction.ts';
import type { Append } from '../../store/push.ts';
import type { AckRegistry } from '../ack/registry.ts';
import type { PendingBytes } from '../admission/pending_bytes.ts';
import { Share } from '../admission/share.ts';
import type { Clock } from '../clock.ts';
import { EngineError, fromStore, refused } from '../errors.ts';
import type { Kv, KvRide } from '../kv/kv.ts';
import type { KvResult } from '../kv/operations.ts';
import type { TimerResult } from '../timers/face.ts';
import type { Announcer } from '../wake/announcer.ts';
import { Acks } from './acks.ts';
import { Pushes, type PushesDeps } from './pushes.ts';
import { Rollback, refuse } from './refusal.ts';
import type { PrepareRider, Rider } from './riders.ts';
import type { TransactionAnswer, TransactionFace, TransactionRequest, TransactionResult } from './types.ts';

export interface TransactionDeps extends PushesDeps {
  db: Pick<Database, 'transaction'>;
  admission: { run<T>(lane: 'push' | 'ack', work: () => Promise<T>): Promise<T> };
  /** Shared with the push path. */
  pending: PendingBytes;
  announcer: Announcer;
  registry: AckRegistry | null;
  kv: Pick<Kv, 'ride'>;
  /** Null: no timers here. */
  timers: PrepareRider | null;
  /** Several tenants: an unknown partition looks like a foreign one. */
  tenancy: boolean;
  /**
   * Transactions of clients in the database at a time. Many may be waiting there for one contended key, and must not
   * take all the slots of the plain pushes with them.
   */
  concurrency: number;
  clock: Clock;
  /** Milliseconds since 1970, for ids. */
  wallMs?: () => number;
  log: { warn(facts: object, message: string): void; error(facts: object, message: string): void };
}

/** Monotonic counts since the start. */
export interface TransactionCounters {
  requests: number;
  committed: number;
  /** By reason. */
  refused: Map<string, number>;
  /** Attempts that met a lane that was removed, or changed its options. */
  repeated: number;
  failed: number;
  inDoubt: number;
}

/** A lane that vanishes, or changes, again and again is not waited for. */
const ATTEMPTS_MAX = 5;
const CONNECTOR_TRANSACTIONS = 4;

interface Plan {
  request: TransactionRequest;
  pushes: Pushes;
  acks: Acks;
  kv: KvRide | null;
  timers: Rider | null;
}

interface Done {
  log: LogResult | null;
  acks: Awaited<ReturnType<Acks['settle']>>;
  kvOutcome: KvOutcome | null;
  kv: KvResult[];
  timers: readonly TimerResult[];
}

export class TransactionPath implements TransactionFace {
  readonly #deps: TransactionDeps;
  readonly #clients: Share;
  readonly #connectors: Share;
  readonly #active = new Set<Promise<unknown>>();
  #draining = false;
  readonly counters: TransactionCounters = {
    requests: 0,
    committed: 0,
    refused: new Map(),
    repeated: 0,
    failed: 0,
    inDoubt: 0,
  };

  constructor(deps: TransactionDeps) {
    this.#deps = deps;
    const share = (connections: number) =>
      new Share({ connections, waitMs: null }, deps.clock, () => refused('overloaded', 'never: they wait'));
    this.#clients = share(deps.concurrency);
    this.#connectors = share(CONNECTOR_TRANSACTIONS);
  }

  async transaction(request: TransactionRequest): Promise<TransactionAnswer> {
    if (this.#draining) throw new EngineError('unavailable', 'stopping', 'this broker is stopping');
    const work = this.#transaction(request);
    this.#active.add(work);
    try {
      return await work;
    } finally {
      this.#active.delete(work);
    }
  }

  /** Refuses new ones; resolves when every one that was taken has its answer. */
  async drain(): Promise<void> {
    this.#draining = true;
    while (this.#active.size > 0) await Promise.allSettled(this.#active);
  }

  async #transaction(request: TransactionRequest): Promise<TransactionAnswer> {
    const transactionId = formatUuid(mintUuidV7(this.#nowMs()));
    const plan = await this.#plan(request);
    this.counters.requests++;
    try {
      return { transactionId, success: true, ...(await this.#admit(plan)) };
    } catch (error) {
      const refusal = error instanceof Rollback ? error.refusal : null;
      if (refusal === null) throw error;
      this.counters.refused.set(refusal.reason, (this.counters.refused.get(refusal.reason) ?? 0) + 1);
      return { transactionId, success: false, refusal };
    }
  }

  /** Judges the whole request before any of it is done. Throws EngineError. */
  async #plan(asked: TransactionRequest): Promise<Plan> {
    const { tenant, origin, operations, timers, producerSub, kvLater } = asked;
    const pushes = new Pushes(this.#deps, asked, this.#nowMs());
    let request = asked;
    if (kvLater !== undefined) {
      const [later] = await Promise.all([kvLater, pushes.prepare()]);
      request = { ...asked, kv: [...asked.kv, ...later] };
    }
    const { kv } = request;
    if (operations.length + kv.length + timers.length === 0) {
      throw refused('bad_request', 'the transaction is empty', 'operations');
    }
    const acks = new Acks(request, this.#deps.tenancy);
    const ride = kv.length === 0 ? null : await this.#deps.kv.ride({ tenant, origin, operations: kv });
    let rider: Rider | null = null;
    if (timers.length > 0) {
      if (this.#deps.timers === null) throw refused('timers_disabled', 'this broker has no timers', 'timers');
      rider = await this.#deps.timers({ tenant, origin, producerSub, operations: timers });
    }
    return { request, pushes, acks, kv: ride, timers: rider };
  }

  #admit(plan: Plan): Promise<Committed> {
    const { request, pushes } = plan;
    if (request.origin === 'connector') return this.#attempts(plan);
    let bytes = pushes.bytes;
    for (const operation of request.kv) if ('value' in operation) bytes += operation.value.length;
    if (bytes === 0) return this.#attempts(plan);
    return this.#deps.pending.run(bytes, () => this.#attempts(plan));
  }

  async #attempts(plan: Plan): Promise<Committed> {
    plan.acks.check();
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#attempt(plan);
      } catch (error) {
        if (!(error instanceof Rollback)) throw this.#failure(error);
        if (error.refusal !== null) throw error;
        this.counters.repeated++;
        if (attempt < ATTEMPTS_MAX) continue;
        throw new EngineError(
          'unavailable',
          'partition_missing',
          'a partition is being removed again and again',
        );
      }
    }
  }

  async #attempt(plan: Plan): Promise<Committed> {
    const { db, admission } = this.#deps;
    await plan.pushes.locate();
    const appends = await plan.pushes.build();
    const lane = appends.length > 0 ? 'push' : 'ack';
    const share = plan.request.origin === 'connector' ? this.#connectors : this.#clients;
    const done = await share.run(() =>
      admission.run(lane, () =>
        db.transaction(async (tx) => {
          const all = await this.#inside(plan, appends, tx);
          buggify('transaction.written');
          return all;
        }),
      ),
    );
    buggify('transaction.committed');
    return this.#committed(plan, done);
  }

  /** Between BEGIN and COMMIT. */
  async #inside(plan: Plan, appends: readonly Append[], tx: Queryable): Promise<Done> {
    const { request, pushes, acks, kv, timers } = plan;
    try {
      const work: LogWork = {
        appends,
        groups: acks.groups(),
        requiredLeases: acks.requiredLeases,
        decide: acks.together,
        durable: request.origin === 'connector',
      };
      let kvOutcome: KvOutcome | null = null;
      let timerResults: readonly TimerResult[] = [];
      let log: LogResult | null;
      if (timers === null) {
        ({ kv: kvOutcome, log } = await applyAll(tx, kv?.call ?? null, work));
        this.#judgeKv(plan, kvOutcome);
      } else {
        if (kv !== null) {
          ({ kv: kvOutcome } = await applyAll(tx, kv.call, { ...work, appends: [], groups: [] }));
          this.#judgeKv(plan, kvOutcome);
        }
        timerResults = await this.#ride(plan, timers, tx);
        ({ log } = await applyAll(tx, null, work));
      }
      if (log !== null) pushes.judge(log.appends);
      const answer = kvOutcome === null ? null : kv!.answer(kvOutcome);
      return {
        log,
        acks: log === null || acks.count === 0 ? [] : await acks.settle((use) => use(tx), log),
        kvOutcome,
        kv: answer?.ok === true ? answer.results : [],
        timers: timerResults,
      };
    } catch (error) {
      // Before the commit nothing is in doubt.
      if (error instanceof InvariantError) {
        this.#deps.log.error({ err: error }, 'a transaction was rolled back');
        throw refuse('misaligned', `internal error (${error.code}); rolled back`, null);
      }
      throw error;
    }
  }

  #judgeKv(plan: Plan, outcome: KvOutcome | null): void {
    if (outcome === null || outcome.failed === null) return;
    const answer = plan.kv!.answer(outcome);
    if (answer.ok) return;
    const { failedIndex, reason, version, value } = answer.precondition;
    const index = plan.request.operations.length + failedIndex;
    throw refuse('kv_precondition', 'kv_precondition_failed', index, { reason, version, value });
  }

  async #ride(plan: Plan, timers: Rider, tx: Queryable): Promise<readonly TimerResult[]> {
    const outcome = await timers.run(tx);
    if (outcome.refusal === null) return outcome.results;
    const { reason, error, index } = outcome.refusal;
    const before = plan.request.operations.length + plan.request.kv.length;
    throw refuse(reason, error, index === null ? null : before + index);
  }

  /** Tells everybody who has to know. */
  #committed(plan: Plan, done: Done): Committed {
    const { announcer, registry } = this.#deps;
    const { request, pushes, acks } = plan;
    this.counters.committed++;
    if (done.log !== null && pushes.count > 0) announcer.pushed(pushes.settle(done.log.appends));
    acks.announce(done.acks, announcer, registry);
    if (done.kvOutcome !== null) plan.kv!.committed(done.kvOutcome);
    plan.timers?.committed();
    const results = new Array<TransactionResult>(request.operations.length);
    pushes.fill(results, request);
    acks.fill(results, done.acks);
    return { results, kv: done.kv, timers: done.timers };
  }

  /** What the database refused as such was rolled back: that is an answer. Everything else is an error. */
  #failure(error: unknown): Error {
    if (error instanceof StoreError && error.kind === 'refused') {
      this.#deps.log.warn({ err: error }, 'a transaction was refused by the database');
      const state = error.sqlState === null ? '' : ` (SQLSTATE ${error.sqlState})`;
      return refuse('db_error', `the database refused the transaction${state}; rolled back`, null);
    }
    const failure = fromStore(error);
    if (failure.kind === 'in_doubt') this.counters.inDoubt++;
    else this.counters.failed++;
    return failure;
  }

  #nowMs(): number {
    return (this.#deps.wallMs ?? Date.now)();
  }
}

interface Committed {
  results: TransactionResult[];
  kv: KvResult[];
  timers: readonly TimerResult[];
}
