/**
 * Retention: one pass deletes what every queue's rules allow, in bounded steps of one partition each. The rules
 * and their proofs are in sql/050_retention.sql; here is only the order, the pace and the patience.
 *
 * Phases of a pass, all measured from one moment of the database's clock: segments by age and by completion,
 * hash sidecar, segments by maximum wait, removal of idle empty partitions (at most once a minute), old
 * history. A step holds one partition's lock for some milliseconds and no other; a push to that partition waits
 * so long, nothing else does.
 *
 * The due list of a phase is bounded. It goes on where the previous cycle's stopped, so partitions that are due
 * and give nothing cannot crowd out the others however many they are.
 */
import type { Queryable } from '../../store/database.ts';
import { pruneMetrics } from '../../store/metrics.ts';
import * as store from '../../store/retention.ts';
import { BackOff } from './back_off.ts';
import { type MaintenanceDeps, MaintenanceLoop } from './maintenance_loop.ts';

export interface RetentionSettings {
  /** Milliseconds between the passes of all brokers together. */
  intervalMs: number;
  /** Segments (or sidecar rows) a step. */
  batchRows: number;
  /** Partitions at a time, 1 to 16. */
  parallelism: number;
  /** Due partitions a phase and pass. */
  dueCap: number;
  partitionCleanup: boolean;
  /** Idle days before an empty partition goes, at least 1. */
  partitionCleanupDays: number;
  /** How long retention history is kept. */
  historyDays: number;
}

export const RETENTION_DEFAULTS: RetentionSettings = {
  intervalMs: 5000,
  batchRows: 1000,
  parallelism: 1,
  dueCap: 5000,
  partitionCleanup: true,
  partitionCleanupDays: 30,
  historyDays: 90,
};

export interface PhaseReport {
  /** Partitions that got at least one step. */
  partitions: number;
  /** Due, but left alone for now. */
  backedOff: number;
  rows: number;
  messages: number;
  failed: number;
}

export interface PassReport {
  nowMicros: number;
  segments: PhaseReport;
  sidecar: PhaseReport;
  maxWait: PhaseReport;
  removedPartitions: number[];
  historyPruned: number;
  metricsPruned: number;
}

/** What a broker's passes did since its start. */
export interface RetentionCounters {
  passes: number;
  messages: Record<RetentionRule, number>;
  removedPartitions: number;
}

type RetentionRule = NonNullable<store.StepResult['rule']>;

export interface RetentionDeps extends MaintenanceDeps {
  /** These partitions are no more; their ids will not come back. */
  partitionsRemoved?(ids: readonly number[]): void;
  /** For statistics: what a step deleted, and how many partitions of a queue were removed. */
  retained?(queueId: number, rule: RetentionRule, messages: number): void;
  cleaned?(queueId: number, partitions: number): void;
}

const MICROS_PER_DAY = 86_400_000_000;
const CLEANUP_EVERY_MICROS = 60_000_000;
const CLEANUP_PAGE = 5000;
/** Removals a transaction: bounds how long the first of them stays locked. */
const CLEANUP_MAX = 100;
/** Pages a pass, so that a million partitions do not make one pass long. */
const CLEANUP_CALLS_MAX = 40;
/** Steps a partition and pass; what is left is the first thing of the next pass. */
const STEPS_MAX = 50;
const HISTORY_ROWS = 5000;
/** Deletions of old numbers a cleanup; a thousand busy queues write two thousand rows a minute. */
const METRICS_CALLS_MAX = 20;
/** So many failed steps mean that the database is not well, and the pass ends. */
const FAILURES_MAX = 10;

export class RetentionLoop {
  readonly #deps: RetentionDeps;
  readonly #settings: RetentionSettings;
  readonly #loop: MaintenanceLoop;
  readonly #backOff = {
    segments: new BackOff(),
    sidecar: new BackOff(),
    max_wait: new BackOff(),
  } satisfies Record<store.RetentionPhase, BackOff>;
  readonly #position = {
    segments: store.DUE_START,
    sidecar: store.DUE_START,
    max_wait: store.DUE_START,
  } satisfies Record<store.RetentionPhase, store.DuePosition>;
  readonly counters: RetentionCounters = {
    passes: 0,
    messages: { retention: 0, completed_retention: 0, max_wait: 0 },
    removedPartitions: 0,
  };
  #cycle = 0;
  #cleanupAfter = 0;
  #cleanedAtMicros = 0;

  constructor(deps: RetentionDeps, settings: Partial<RetentionSettings> = {}) {
    this.#deps = deps;
    this.#settings = { ...RETENTION_DEFAULTS, ...settings };
    this.#loop = new MaintenanceLoop(deps, {
      name: 'retention',
      periodMs: this.#settings.intervalMs,
      pass: (signal) => this.pass(signal),
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** One look of the loop: a pass, if it is due and no other broker has it. Milliseconds until the next look. */
  look(): Promise<number> {
    return this.#loop.look();
  }

  /** One whole pass, whoever holds the lease. Between two steps it gives way to the signal. */
  async pass(signal?: AbortSignal): Promise<PassReport> {
    this.#cycle++;
    const nowMicros = await this.#run((db) => store.maintenanceNow(db));
    const report: PassReport = {
      nowMicros,
      segments: await this.#phase('segments', nowMicros, signal),
      sidecar: await this.#phase('sidecar', nowMicros, signal),
      maxWait: await this.#phase('max_wait', nowMicros, signal),
      removedPartitions: [],
      historyPruned: 0,
      metricsPruned: 0,
    };
    const sinceCleanup = nowMicros - this.#cleanedAtMicros;
    if (sinceCleanup >= CLEANUP_EVERY_MICROS || sinceCleanup < 0) {
      this.#cleanedAtMicros = nowMicros;
      if (this.#settings.partitionCleanup) report.removedPartitions = await this.#cleanup(nowMicros, signal);
      const before = nowMicros - this.#settings.historyDays * MICROS_PER_DAY;
      report.historyPruned = await this.#run((db) => store.pruneHistory(db, before, HISTORY_ROWS));
      report.metricsPruned = await this.#pruneMetrics(before, signal);
    }
    this.counters.passes++;
    return report;
  }

  async #pruneMetrics(before: number, signal?: AbortSignal): Promise<number> {
    let pruned = 0;
    for (let calls = 0; calls < METRICS_CALLS_MAX && !signal?.aborted; calls++) {
      const removed = await this.#run((db) => pruneMetrics(db, before, HISTORY_ROWS));
      pruned += removed;
      if (removed < HISTORY_ROWS) break;
    }
    return pruned;
  }

  async #phase(phase: store.RetentionPhase, nowMicros: number, signal?: AbortSignal): Promise<PhaseReport> {
    const report: PhaseReport = { partitions: 0, backedOff: 0, rows: 0, messages: 0, failed: 0 };
    if (signal?.aborted) return report;
    const backOff: BackOff = this.#backOff[phase];
    const { due, next } = await this.#run((db) =>
      store.duePartitions(db, phase, nowMicros, this.#position[phase], this.#settings.dueCap),
    );
    this.#position[phase] = next ?? store.DUE_START;
    let at = 0;
    const worker = async () => {
      while (at < due.length && !signal?.aborted && report.failed < FAILURES_MAX) {
        const { partitionId, queueId, rules } = due[at++]!;
        if (backOff.skips(partitionId, rules, this.#cycle)) {
          report.backedOff++;
          continue;
        }
        report.partitions++;
        try {
          const rows = await this.#partition(phase, { partitionId, queueId }, nowMicros, report, signal);
          if (rows === 0) backOff.idle(partitionId, rules, this.#cycle);
          else backOff.forget(partitionId);
        } catch (error) {
          report.failed++;
          this.#deps.log.warn({ err: error, partitionId, phase }, 'retention step failed');
        }
      }
    };
    const workers = Math.min(Math.max(this.#settings.parallelism, 1), 16);
    await Promise.all(Array.from({ length: workers }, worker));
    return report;
  }

  /** Steps on one partition while they fill their horizon. Null: it is gone. */
  async #partition(
    phase: store.RetentionPhase,
    { partitionId, queueId }: { partitionId: number; queueId: number },
    nowMicros: number,
    report: PhaseReport,
    signal?: AbortSignal,
  ): Promise<number | null> {
    let rows = 0;
    for (let steps = 0; steps < STEPS_MAX && !signal?.aborted; steps++) {
      const step = await this.#run((db) =>
        store.retentionStep(db, phase, partitionId, nowMicros, this.#settings.batchRows),
      );
      if (step === null) return null;
      rows += step.rows;
      report.rows += step.rows;
      report.messages += step.messages;
      if (step.rule !== null) {
        this.counters.messages[step.rule] += step.messages;
        this.#deps.retained?.(queueId, step.rule, step.messages);
      }
      if (!step.more) break;
    }
    return rows;
  }

  async #cleanup(nowMicros: number, signal?: AbortSignal): Promise<number[]> {
    const cutoff = nowMicros - Math.max(this.#settings.partitionCleanupDays, 1) * MICROS_PER_DAY;
    const removed: number[] = [];
    for (let calls = 0; calls < CLEANUP_CALLS_MAX && !signal?.aborted; calls++) {
      const page = await this.#run((db) =>
        store.cleanupPartitions(db, cutoff, nowMicros, this.#cleanupAfter, CLEANUP_PAGE, CLEANUP_MAX),
      );
      removed.push(...page.removed);
      for (const queueId of page.queues) this.#deps.cleaned?.(queueId, 1);
      this.#cleanupAfter = page.lastId ?? 0;
      if (page.lastId === null) break;
    }
    this.counters.removedPartitions += removed.length;
    if (removed.length > 0) this.#deps.partitionsRemoved?.(removed);
    return removed;
  }

  #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    return this.#deps.admission.run('maintenance', () => work(this.#deps.db));
  }
}
