import { join } from 'node:path';
import type { PoolPlan } from '../config/pool.ts';
import type { Config } from '../config.ts';
import type { Broker, EngineSettings } from '../engine/broker.ts';
import { parseSealingKey } from '../log/envelope.ts';
import type { Metrics, Sample } from '../observability/metrics.ts';
import { timerSources } from './timer_metrics.ts';

/** Changed options are in force within half a minute, whatever is set. */
const MEMO_MS_MAX = 30_000;

/** Bundles of pushes at a time for each of QUEEN_V2_FUSION_SHARDS. */
const FLIGHTS_A_SHARD = 8;
const SPOOL_DIRECTORY = '/var/lib/queen/buffers';

/** The settings of the engine, as the environment and the database's limits have them. */
export function engineSettings(config: Config, plan: PoolPlan): EngineSettings {
  const { admission, push, spool, pop, hotlist, ack, background, kv, timers, security } = config;
  const memoMs = Math.min(MEMO_MS_MAX, push.cacheRefreshMs);
  const reads = kv.readsPerSecond === 0 ? null : { perSecond: kv.readsPerSecond, burst: kv.readsBurst };
  const writes = kv.writesPerSecond === 0 ? null : { perSecond: kv.writesPerSecond, burst: kv.writesBurst };
  return {
    admission: {
      min: plan.min,
      max: plan.max,
      init: plan.init,
      tickMs: admission.tickMs,
      trainGapMs: admission.trainGapMicros / 1000,
      shares: {
        push: admission.sharePush,
        pop: admission.sharePop,
        ack: admission.shareAck,
        maintenance: admission.shareMaintenance,
      },
    },
    admissionTrace: admission.trace,
    pendingBytesMax: admission.pushPendingMb * 1024 * 1024,
    zstdLevel: push.zstdLevel,
    fusion: {
      flightsMax: push.fusionShards * FLIGHTS_A_SHARD,
      holdMs: push.fusionHoldMs,
      segmentBytesMax: config.server.maxBodyBytes,
    },
    placeMemoMs: memoMs,
    dedup: { enabled: push.dedupCache, maxBytes: push.dedupCacheMb * 1024 * 1024 },
    pop: {
      hotlist: hotlist.enabled,
      windowBatch: hotlist.windowBatch,
      memoMs,
      autopilot: pop.autopilot,
      autopilotBatch: pop.autopilotBatch,
      autopilotTargetAgeMs: pop.autopilotTargetAgeMs,
      autopilotDwellMs: pop.autopilotDwellMs,
      autopilotDwellPops: pop.autopilotDwellPops,
      autopilotLanesMax: pop.autopilotMaxLanes,
      autopilotBurstCap: pop.autopilotBurstCap,
    },
    parking: {
      tickMs: 5,
      initialMs: pop.waitInitialMs,
      threshold: pop.waitBackoffThreshold,
      multiplier: pop.waitBackoffMultiplier,
      maxMs: pop.waitMaxMs,
    },
    reseed: {
      reseedMs: hotlist.reseedMs,
      fullMs: hotlist.reseedFullMs,
      windowMs: hotlist.reseedWindowMs,
      idleSweepMs: hotlist.idleSweepMs,
    },
    ack: {
      registry: ack.registry,
      registryBytesMax: ack.registryMb * 1024 * 1024,
      fusion: ack.fusion,
      fusionShards: ack.fusionShards,
      fusionHoldMs: ack.fusionHoldMs,
    },
    retention: {
      intervalMs: background.retentionMs,
      batchRows: background.retentionBatch,
      parallelism: background.retentionParallelism,
      dueCap: background.retentionDueCap,
      partitionCleanup: background.partitionCleanup,
      partitionCleanupDays: background.partitionCleanupDays,
      historyDays: background.metricsRetentionDays,
    },
    retainedBytesMs: background.retainedBytesMs,
    statistics: { refreshMs: background.statsMs, flushMs: background.metricsFlushMs },
    safetyWalkMs: background.retentionSafetyWalkMs,
    fetchSafeFloorMs: pop.fetchSafeFloorMs,
    kv: {
      valueBytesMax: kv.maxValueBytes,
      readBytesMax: kv.maxReadBytes,
      pageMax: kv.prefixLimit,
      connections: kv.poolSize ?? Math.min(32, Math.max(4, Math.floor(plan.poolSize / 10))),
      reads,
      writes,
      requireGrant: kv.requireGrant ?? security.tenancyHeader,
      sweeper: kv.sweeper,
      expiry: { everyMs: kv.expireEveryMs, batchRows: kv.expireBatch },
      usageMs: kv.usageEveryMs,
    },
    spool: {
      directories:
        spool.directory === null
          ? [SPOOL_DIRECTORY, join(config.postgres.dataDirectory, 'buffers')]
          : [spool.directory],
      flushMs: spool.flushMs,
      batchEvents: spool.maxBatch,
      eventsPerFile: spool.eventsPerFile,
      bytesMax: spool.maxMb * 1024 * 1024,
    },
    timers: {
      payloadBytesMax: timers.maxPayloadBytes,
      horizonSeconds: timers.maxHorizonSeconds,
      reads,
      writes,
      attemptsMax: timers.maxAttempts,
      sweep: {
        minSleepMs: timers.minSleepMs,
        maxSleepMs: timers.maxSleepMs,
        idleSleepMs: timers.idleMaxSleepMs,
        idleAfterCycles: timers.idleAfterCycles,
        leaseMs: timers.leaseMs,
        claimBatch: timers.claimBatch,
        cycleRowsMax: timers.cycleMaxRows,
        fireBytesMax: timers.maxFireBytes,
        parallelism: timers.parallelism,
      },
    },
    tenancy: security.tenancyHeader,
    sealingKey: security.encryptionKey === null ? null : parseSealingKey(security.encryptionKey),
  };
}

const QUANTILES = [0.5, 0.99];

function quantiles(labels: Record<string, string>, values: readonly number[] | null): Sample[] {
  return (values ?? []).map((value, i) => ({ labels: { ...labels, quantile: String(QUANTILES[i]) }, value }));
}

const LANES = ['push', 'pop', 'ack', 'maintenance'] as const;

/** Where the engine's numbers go on /metrics/prometheus. */
export function registerEngine(metrics: Metrics, broker: Broker): void {
  const lanes = (of: 'inFlight' | 'waiting') =>
    LANES.map((lane) => ({
      labels: { lane: lane === 'maintenance' ? 'maint' : lane },
      value: broker.admission.stats()[of][lane],
    }));
  const { counters, autopilot } = broker.popPath;
  const { mode } = autopilot;
  const batches = Object.entries(broker.batches);
  metrics.sources({
    queen_admission_budget: () => broker.admission.stats().limit,
    queen_admission_inflight: () => lanes('inFlight'),
    queen_admission_waiting: () => lanes('waiting'),
    queen_admission_refused_total: () => broker.pending.stats().refused,
    queen_admission_trains_per_s: () => broker.admission.trains.read().perSecond,
    queen_admission_txn_per_train: () => broker.admission.trains.read().callsPerTrain,
    queen_admission_cycle_ms: () => broker.admission.trains.read().cycleMs,
    queen_push_pending_bytes: () => broker.pending.stats().bytes,
    queen_db_pool_size: () => broker.db.stats().size,
    queen_db_pool_idle: () => broker.db.stats().idle,
    queen_db_pool_active: () => broker.db.stats().active,
    queen_db_pool_waiting: () => broker.db.stats().waiting,
    queen_db_statements_total: () => broker.db.statementsTotal,
    queen_dedup_suppressed_partitions: () => broker.dedup.stats().suppressedPartitions,
    queen_dedup_resident_partitions: () => broker.dedup.stats().residentPartitions,
    queen_dedup_cache_bytes: () => broker.dedup.stats().bytes,
    queen_dedup_vouched_total: () => broker.dedup.stats().vouchedTotal,
    queen_dedup_probed_total: () => broker.dedup.stats().unvouchedTotal,
    queen_dedup_hydrations_total: () =>
      Object.entries(broker.dedup.stats().hydrations).map(([outcome, value]) => ({
        labels: { outcome },
        value,
      })),
    queen_ack_registry_bytes: () => broker.registry.stats().bytes,
    queen_ack_registry_hits_total: () => broker.ackPath.stats().registryHits,
    queen_ack_registry_misses_total: () => broker.ackPath.stats().registryMisses,
    queen_corrupt_segments_total: () => counters.corruptSegments,
    queen_maintenance_mode_enabled: () => (broker.system.knownSwitches().maintenance_mode ? 1 : 0),
    queen_pop_maintenance_mode_enabled: () => (broker.system.knownSwitches().pop_maintenance_mode ? 1 : 0),
    queen_file_buffer_pending: () => broker.system.spool().pending,
    queen_file_buffer_failed: () => broker.system.spool().failed,
    queen_file_buffer_db_healthy: () => (broker.system.spool().healthy ? 1 : 0),
    queen_file_buffer_bytes: () => broker.system.spool().bytes,
    queen_file_buffer_kept_total: () => {
      const { kept = 0, failovers = 0 } = broker.spool?.counters ?? {};
      return [
        { labels: { reason: 'outage' }, value: failovers },
        { labels: { reason: 'behind' }, value: kept - failovers },
      ];
    },
    queen_file_buffer_drained_total: () => {
      const { stored = 0, duplicates = 0, putAside = 0 } = broker.spool?.counters ?? {};
      return Object.entries({ stored, duplicate: duplicates, failed: putAside }).map(([outcome, value]) => ({
        labels: { outcome },
        value,
      }));
    },
    queen_file_buffer_refused_total: () => broker.spool?.counters.refused ?? 0,
    queen_sealed_payloads_unopened_total: () => broker.sealing.unopened,
    queen_transactions_total: () => [
      { labels: { outcome: 'committed' }, value: broker.transactionPath.counters.committed },
      { labels: { outcome: 'failed' }, value: broker.transactionPath.counters.failed },
      { labels: { outcome: 'in_doubt' }, value: broker.transactionPath.counters.inDoubt },
      ...Array.from(broker.transactionPath.counters.refused, ([outcome, value]) => ({
        labels: { outcome },
        value,
      })),
    ],
    queen_kv_pool: () => {
      const { size, busy, waiting } = broker.kvPath.stats();
      return Object.entries({ size, busy, waiting }).map(([state, value]) => ({ labels: { state }, value }));
    },
    queen_kv_ops_total: () =>
      Array.from(broker.kvPath.counters.operations, ([key, value]) => {
        const [operation = '', outcome = ''] = key.split('\u001f');
        return { labels: { operation, outcome }, value };
      }),
    queen_kv_bytes_total: () => [
      { labels: { direction: 'in' }, value: broker.kvPath.counters.bytesIn },
      { labels: { direction: 'out' }, value: broker.kvPath.counters.bytesOut },
    ],
    queen_kv_read_rejected_total: () =>
      Array.from(broker.kvPath.counters.rejected, ([reason, value]) => ({ labels: { reason }, value })),
    queen_kv_expired_total: () => broker.kvExpiry.counters.deleted,
    queen_kv_expiry_lag_seconds: () => broker.kvExpiry.last.lagMs / 1000,
    queen_kv_op_duration_milliseconds: () =>
      Array.from(broker.kvPath.durations).flatMap(([operation, recent]) =>
        quantiles({ operation }, recent.read(QUANTILES)),
      ),
    queen_kv_singleflight_coalesced_total: () => 0,
    queen_pop_autopilot_choices_total: () => [
      { labels: { applied: String(mode === 'on') }, value: autopilot.choices },
    ],
    queen_pop_autopilot_partitions: () => quantiles({}, autopilot.partitions.read(QUANTILES)),
    queen_pop_fill_wait_total: () => counters.fillWaits,
    queen_pop_fill_wait_microseconds_total: () => counters.fillWaitMicros,
    queen_fusion_items_per_batch: () =>
      batches.map(([op, calls]) => ({ labels: { op }, value: calls.meanItems() ?? 0 })),
    queen_batch_rtt_milliseconds: () =>
      batches.flatMap(([op, calls]) => quantiles({ op }, calls.durations(QUANTILES))),
    queen_retention_passes_total: () => broker.retention.counters.passes,
    queen_retention_messages_total: () =>
      Object.entries(broker.retention.counters.messages).map(([rule, value]) => ({
        labels: { rule },
        value,
      })),
    queen_retention_partitions_removed_total: () => broker.retention.counters.removedPartitions,
    ...timerSources(broker),
    queen_hotlist_rings: () => broker.hotlist.stats().rings,
    queen_hotlist_entries: () => broker.hotlist.stats().ready,
    queen_hotlist_dry_claims_total: () => counters.emptyVerdicts,
    queen_hotlist_reseeds_total: () =>
      (['windowed', 'full'] as const).map((kind) => ({
        labels: { kind },
        value: broker.reseed.stats()[kind],
      })),
    queen_wake_sent_total: () => broker.wake.peers?.counters.sent ?? 0,
    queen_wake_received_total: () => broker.wake.peers?.counters.received ?? 0,
    // The first connection is none.
    queen_wake_reconnects_total: () => Math.max(0, (broker.wake.peers?.counters.connects ?? 0) - 1),
    queen_wake_connected: () => (broker.wake.peers?.connected === true ? 1 : 0),
    queen_batches_fired_total: () => [
      { labels: { op: 'push' }, value: broker.pushPath.stats().appends },
      { labels: { op: 'pop' }, value: counters.claimCalls },
      { labels: { op: 'ack' }, value: broker.ackPath.stats().flushes },
    ],
    queen_batch_items_fired_total: () => [
      { labels: { op: 'push' }, value: broker.pushPath.stats().messages },
      { labels: { op: 'pop' }, value: counters.messages },
      { labels: { op: 'ack' }, value: broker.ackPath.stats().flushedItems },
    ],
  });
}
