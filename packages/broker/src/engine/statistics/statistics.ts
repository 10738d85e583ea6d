/** Reads of the statistics, each in a few statements whose cost does not depend on the number of partitions. */
import { requiredNameFault } from '../../log/names.ts';
import * as analytics from '../../store/analytics.ts';
import type { Queryable } from '../../store/database.ts';
import {
  type CountedPage,
  partitionCursors,
  queueMatches,
  queuePage,
  readPartition,
} from '../../store/partitions.ts';
import { readQueue } from '../../store/queues.ts';
import * as rollup from '../../store/rollup.ts';
import { serverStats } from '../../store/server_stats.ts';
import { databaseNow } from '../../store/system.ts';
import { fromStore } from '../errors.ts';
import type { QueueOptions, TenantId } from '../types.ts';
import { barStarts, type Range, rangeOf } from './bars.ts';
import type {
  Asked,
  DeadLetterReport,
  LivePartition,
  LiveQueue,
  Overview,
  PageWanted,
  PartitionDetail,
  PartitionSort,
  QueueFilter,
  QueueSort,
  RetentionReport,
  StatisticsFace,
  SystemStatus,
} from './face.ts';
import type { RefreshReport } from './refresh.ts';
import { signatures } from './signatures.ts';
import { seriesOf, type Workload, type WorkloadBy } from './workload.ts';

export interface StatisticsDeps {
  run: <T>(work: (db: Queryable) => Promise<T>) => Promise<T>;
  /** Writes down what this broker has counted until now. */
  freshen: () => Promise<void>;
  refresh: () => Promise<RefreshReport>;
}

/** Points of one graph over all of its queues. */
const POINTS_MAX = 50_000;
const QUEUES_SHOWN = 100;
const SIGNATURES_SHOWN = 8;
const RATE_MICROS = 300_000_000;
const EVERYTHING: QueueFilter = { queue: null, namespace: null, task: null };

export class Statistics implements StatisticsFace {
  readonly #deps: StatisticsDeps;

  constructor(deps: StatisticsDeps) {
    this.#deps = deps;
  }

  async refresh(): Promise<RefreshReport> {
    try {
      return await this.#deps.refresh();
    } catch (error) {
      throw fromStore(error);
    }
  }

  async overview(tenant: TenantId): Promise<Overview> {
    await this.#deps.freshen();
    return this.#run(async (db) => {
      const nowMicros = await databaseNow(db);
      const totals = await rollup.standingTotals(db, tenant, EVERYTHING);
      const { stored, finished } = await analytics.trafficSince(db, tenant, nowMicros - RATE_MICROS);
      const age = await rollup.refreshAge(db);
      const perSecond = (count: number) => Math.round((count / (RATE_MICROS / 1e6)) * 100) / 100;
      return {
        totals,
        storedPerSecond: perSecond(stored),
        finishedPerSecond: perSecond(finished),
        nowMicros,
        statsAgeMs: age?.ageMs ?? -1,
      };
    });
  }

  queues(tenant: TenantId, filter: QueueFilter, page: PageWanted<QueueSort>) {
    return this.#run((db) => rollup.standingQueues(db, tenant, filter, page));
  }

  beside(tenant: TenantId) {
    return this.#run((db) => rollup.storedBeside(db, tenant));
  }

  async queue(tenant: TenantId, name: string, page: PageWanted<PartitionSort>): Promise<LiveQueue | null> {
    if (requiredNameFault(name, 'queue') !== null) return null;
    return this.#run(async (db) => {
      const queue = await readQueue(db, tenant, name, null);
      if (queue === null) return null;
      const { partitions, ...totals } = await rollup.queueTotals(db, tenant, queue.id);
      const rows = await queuePage(db, tenant, queue.id, page);
      return {
        id: String(queue.id),
        name: queue.name,
        createdAtMicros: queue.createdAtMicros,
        options: queue.options as unknown as QueueOptions,
        partitions,
        matches: page.search === null ? partitions : await queueMatches(db, queue.id, page.search),
        page: rows.map(livePartition),
        totals: { ...totals, completed: completed(totals) },
      };
    });
  }

  async partition(tenant: TenantId, queue: string, name: string): Promise<PartitionDetail | null> {
    if (requiredNameFault(queue, 'queue') !== null) return null;
    return this.#run(async (db) => {
      const row = await readPartition(db, tenant, queue, name);
      if (row === null) return null;
      const { logStart, nextOffset, createdAtMicros, ...counted } = row;
      const cursors = await partitionCursors(db, row.id);
      return { ...livePartition(counted), logStart, nextOffset, createdAtMicros, cursors };
    });
  }

  async stored(tenant: TenantId, asked: Asked, stepMinutes: number, filter: QueueFilter) {
    return this.#ranged(
      asked,
      async (db, range) => {
        const wanted = { ...range, stepMinutes };
        return { range: wanted, points: await analytics.storedBars(db, tenant, wanted, filter) };
      },
      24 * 60,
    );
  }

  async status(asked: Asked, filter: QueueFilter): Promise<SystemStatus> {
    return this.#ranged(asked, async (db, range) => {
      const brokers = await analytics.brokerBars(db, range, null);
      const narrowed = filter.queue !== null || filter.namespace !== null || filter.task !== null;
      const bars = narrowed ? await analytics.allTrafficBars(db, range, filter, null) : sumBars(brokers);
      const totals = await rollup.standingTotals(db, null, filter);
      const queues = await rollup.busiestQueues(db, filter, QUEUES_SHOWN);
      const age = await rollup.refreshAge(db);
      return { range, bars, brokers, totals, queues, statsAgeMs: age?.ageMs ?? -1 };
    });
  }

  async traffic(tenant: TenantId, asked: Asked, queue: string | null) {
    return this.#ranged(asked, async (db, range) => {
      // A time that has not begun has no bar.
      const width = Math.max(1, barStarts(range).length);
      const most = Math.max(1, Math.floor(POINTS_MAX / width));
      const bars = await analytics.trafficBars(db, tenant, range, queue, most);
      const shown = new Set(bars.map((bar) => bar.queue)).size;
      return { range, bars, truncated: queue === null && shown >= most };
    });
  }

  async parked(tenant: TenantId, asked: Asked, queue: string | null) {
    return this.#ranged(asked, async (db, range) => ({
      range,
      bars: await analytics.parkedBars(db, tenant, range, queue, POINTS_MAX),
    }));
  }

  async retention(
    tenant: TenantId,
    asked: Asked,
    queue: string | null,
    by: WorkloadBy | null,
  ): Promise<RetentionReport> {
    return this.#ranged(asked, async (db, range) => {
      const bars = await analytics.retentionBars(db, tenant, range, queue, by);
      const totals = { retention: 0, completed: 0, evicted: 0, events: 0 };
      const series: RetentionReport['series'] = [];
      const rows: NonNullable<RetentionReport['rows']> = [];
      for (const { bucketMicros, key, queues, ...counts } of bars) {
        if (bucketMicros === null) {
          rows.push({ key: key ?? '', queues: queues ?? 0, ...counts });
          continue;
        }
        series.push({ bucketMicros, ...counts });
        for (const name of Object.keys(totals) as (keyof typeof totals)[]) totals[name] += counts[name];
      }
      const all = (row: (typeof rows)[number]) => row.retention + row.completed + row.evicted;
      rows.sort((a, b) => all(b) - all(a) || (a.key < b.key ? -1 : 1));
      return { range, series, totals, rows: by === null ? null : rows };
    });
  }

  async workload(
    tenant: TenantId,
    asked: Asked,
    by: WorkloadBy,
    filter: QueueFilter,
    limit: number,
  ): Promise<Workload> {
    return this.#ranged(asked, async (db, range) => {
      const keys = await analytics.workloadKeys(db, tenant, range, by, filter, limit);
      const names = keys.map(({ key }) => key);
      const bars = await analytics.workloadBars(db, tenant, range, by, names, filter);
      const [whole] = await analytics.workloadKeys(db, tenant, range, 'all', EVERYTHING, 1);
      const wholeBars = await analytics.workloadBars(db, tenant, range, 'all', [''], EVERYTHING);
      const lines = seriesOf(range, names, bars);
      return {
        range,
        by,
        buckets: barStarts(range),
        rows: keys.map((sums) => ({ sums, series: lines.get(sums.key)! })),
        matches: keys[0]?.matches ?? 0,
        tenant: { sums: whole ?? NOTHING, series: seriesOf(range, [''], wholeBars).get('')! },
      };
    });
  }

  async deadLetters(tenant: TenantId, queue: string, limit: number): Promise<DeadLetterReport> {
    return this.#run(async (db) => {
      const summary = await analytics.deadLetterSummary(db, tenant, queue);
      const all = summary.find(({ kind }) => kind === 'all');
      const errors = (all?.n ?? 0) === 0 ? [] : await analytics.deadLetterReasons(db, tenant, queue, limit);
      const of = (kind: string) => summary.filter((row) => row.kind === kind);
      return {
        rowsNow: all?.n ?? 0,
        sample: errors.length,
        retryCounts: of('retries')
          .map(({ key, n }) => ({ retryCount: Number(key), n }))
          .sort((a, b) => a.retryCount - b.retryCount),
        groups: of('group').map(({ key, n }) => ({ group: key, n })),
        oldestMicros: all?.oldestMicros ?? null,
        newestMicros: all?.newestMicros ?? null,
        avgBytes: all?.bytes == null ? null : Math.round(all.bytes),
        signatures: signatures(errors, SIGNATURES_SHOWN),
        byDay: of('day').map(({ key, n }) => ({ day: key, n })),
      };
    });
  }

  liveness(tenant: TenantId, filter: QueueFilter, limit: number) {
    return this.#run(async (db) => {
      const age = await rollup.refreshAge(db);
      const rows = await rollup.partitionLiveness(db, tenant, filter, limit);
      return { capturedAtMicros: age?.finishedAtMicros ?? null, rows };
    });
  }

  async brokers(asked: Asked, server: string | null) {
    return this.#ranged(asked, async (db, range) => ({
      range,
      bars: await analytics.brokerBars(db, range, server),
    }));
  }

  async allTraffic(asked: Asked, queue: string | null, server: string | null) {
    return this.#ranged(asked, async (db, range) => ({
      range,
      bars: queue === null ? [] : await analytics.allTrafficBars(db, range, { ...EVERYTHING, queue }, server),
      queues: await analytics.allTrafficQueues(db, range, queue, server, QUEUES_SHOWN),
    }));
  }

  server() {
    return this.#run(async (db) => ({
      nowMicros: await databaseNow(db),
      stats: await serverStats(db),
    }));
  }

  async #ranged<T>(
    asked: Asked,
    work: (db: Queryable, range: Range) => Promise<T>,
    spanMinutes?: number,
  ): Promise<T> {
    await this.#deps.freshen();
    return this.#run(async (db) => {
      const now = asked.toMicros ?? (await databaseNow(db));
      return work(db, rangeOf(asked, now, spanMinutes));
    });
  }

  async #run<T>(work: (db: Queryable) => Promise<T>): Promise<T> {
    try {
      return await this.#deps.run(work);
    } catch (error) {
      throw fromStore(error);
    }
  }
}

function completed(counts: { total: number; pending: number; deadLetter: number }): number {
  return Math.max(0, counts.total - counts.pending - counts.deadLetter);
}

const SUMMED = [
  'pushRequests',
  'pushMessages',
  'popRequests',
  'popMessages',
  'popEmpty',
  'ackRequests',
  'ackMessages',
  'ackSuccess',
  'ackFailed',
  'dlq',
  'transactions',
  'lagCount',
  'lagSumMicros',
] as const;

/** One bar of each time over all brokers. */
function sumBars(brokers: readonly analytics.BrokerBar[]): analytics.CountBar[] {
  const bars = new Map<number, analytics.CountBar>();
  for (const broker of brokers) {
    const bar = bars.get(broker.bucketMicros);
    if (bar === undefined) {
      const first = { bucketMicros: broker.bucketMicros, lagMaxMicros: broker.lagMaxMicros };
      const counts = Object.fromEntries(SUMMED.map((name) => [name, broker[name]]));
      bars.set(broker.bucketMicros, { ...first, ...counts } as unknown as analytics.CountBar);
      continue;
    }
    for (const name of SUMMED) bar[name] += broker[name];
    bar.lagMaxMicros = Math.max(bar.lagMaxMicros, broker.lagMaxMicros);
  }
  return [...bars.values()];
}

/** A tenant without queues and without traffic. */
const NOTHING: analytics.WorkloadKey = {
  key: '',
  namespace: '',
  task: '',
  queues: 0,
  pushMessages: 0,
  pushRequests: 0,
  popMessages: 0,
  popEmpty: 0,
  ackRequests: 0,
  ackSuccess: 0,
  ackFailed: 0,
  transactions: 0,
  conflated: 0,
  partitionsCreated: 0,
  partitionsDeleted: 0,
  parked: 0,
  lagCount: 0,
  lagSumMicros: 0,
  lagMaxMicros: 0,
  touched: 0,
  active: 0,
  pending: 0,
  processing: 0,
  deadLetter: 0,
  retainedBytes: 0,
  partitions: 0,
  groups: 0,
  withoutGroup: 0,
  pendingWithoutGroup: 0,
  matches: 0,
};

function livePartition({ id, oldestAtMicros, newestAtMicros, ...row }: CountedPage): LivePartition {
  return {
    ...row,
    id: String(id),
    completed: completed(row),
    oldestMicros: oldestAtMicros,
    newestMicros: newestAtMicros,
  };
}
