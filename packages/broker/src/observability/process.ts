/** Families about the process itself. */
import type { EventLoopLag } from './event_loop.ts';
import type { Metrics } from './metrics.ts';

export function registerProcess(metrics: Metrics, lag: EventLoopLag): void {
  metrics.sources({
    queen_uptime_seconds: () => process.uptime(),
    queen_process_resident_memory_bytes: () => process.memoryUsage.rss(),
    queen_event_loop_lag_avg_milliseconds: () => lag.mean,
    queen_event_loop_lag_max_milliseconds: () => lag.max,
  });
}
