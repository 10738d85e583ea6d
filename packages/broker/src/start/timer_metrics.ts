/** Where the numbers of timers go on /metrics/prometheus. All families are there from the start, at zero. */
import type { Broker } from '../engine/broker.ts';
import { TIMER_STATUS } from '../store/timers.ts';

export function timerSources(broker: Broker) {
  const { counters, lag } = broker.firing;
  const sweeper = broker.timerSweeper;
  const failures = (kind: 'transient' | 'permanent') => {
    // Every class is there from its first failure on, the whole from the start.
    const counts = counters[kind].size === 0 ? [['none', 0] as const] : [...counters[kind]];
    return counts.map(([sqlstate, value]) => ({ labels: { kind, sqlstate }, value }));
  };
  const byCode = (known: readonly string[], counts: ReadonlyMap<string, number>) =>
    [...new Set([...known, ...counts.keys()])].map((code) => ({ code, value: counts.get(code) ?? 0 }));
  return {
    queen_timers_due: async () => (await broker.timerBacklog.read()).due,
    queen_timers_due_capped: async () => ((await broker.timerBacklog.read()).capped ? 1 : 0),
    queen_timers_oldest_late_seconds: async () => (await broker.timerBacklog.read()).lateMs / 1000,
    queen_timers_fire_lag_seconds: () =>
      lag.read().map(({ tenant, quantile, seconds }) => ({
        labels: { tenant, quantile: String(quantile) },
        value: seconds,
      })),
    queen_timers_fire_lag_tenants_dropped_total: () => lag.dropped,
    queen_timers_operations_total: () =>
      byCode(TIMER_STATUS, broker.timers.counters.operations).map(({ code, value }) => ({
        labels: { outcome: code },
        value,
      })),
    queen_timers_fired_total: () =>
      (['fired', 'stale', 'released'] as const).map((outcome) => ({
        labels: { outcome },
        value: counters[outcome],
      })),
    queen_timers_dlq_total: () => counters.buried,
    queen_timers_fire_failures_total: () => [...failures('transient'), ...failures('permanent')],
    queen_timers_poisoned_total: () => counters.poisoned,
    queen_timers_schedule_rejected_total: () =>
      byCode(SCHEDULE_REFUSALS, broker.timers.counters.rejected).map(({ code, value }) => ({
        labels: { reason: code },
        value,
      })),
    queen_sweeper_cycle_milliseconds: () => sweeper.last.cycleMs,
    queen_sweeper_sleep_milliseconds: () => sweeper.last.sleepMs,
    queen_sweeper_rows_total: () => [
      { labels: { phase: 'timers' }, value: sweeper.counters.rows },
      { labels: { phase: 'kv' }, value: broker.kvExpiry.counters.deleted },
    ],
    queen_sweeper_skip_locked_total: () => sweeper.counters.passedBy,
    queen_sweeper_phase_skipped_total: () => [{ labels: { phase: 'timers' }, value: sweeper.counters.off }],
  };
}

const SCHEDULE_REFUSALS = [
  'timers_disabled',
  'feature_gated',
  'timers_quota_exceeded',
  'timer_horizon_exceeded',
  'rate_limited',
  'timers_unavailable',
] as const;
