import { EngineError } from '../engine/errors.ts';
import type { ClientGone } from './body.ts';
import { CodedFaults } from './coded_faults.ts';
import { Fault } from './errors.ts';

const timersFaults = new CodedFaults(
  [
    'timers_bad_request',
    'timer_horizon_exceeded',
    'timers_quota_exceeded',
    'feature_gated',
    'payload_too_large',
    'rate_limited',
    'timers_disabled',
    'timers_unavailable',
  ],
  'timers_failed',
  'timers_unavailable',
);

/** Schedules that are refused for what they are in a batch of their own may pass there, and cancellations always do. */
const BLOCKS: ReadonlySet<string> = new Set([
  'timers_quota_exceeded',
  'feature_gated',
  'rate_limited',
  'timers_disabled',
]);

/** Whether cancellations that came along would have been carried out alone. */
export function blocksSchedulesOnly(error: unknown): boolean {
  return error instanceof EngineError && BLOCKS.has(error.code);
}

/** The answer to anything thrown by a timer route. */
export function timersFaultOf(error: unknown): Fault | ClientGone {
  if (!(error instanceof Fault) || error.kind !== 'bad_query') return timersFaults.of(error);
  const { message, field } = error;
  return timersFaults.fault('timers_bad_request', message, {
    reason: 'timers_bad_query',
    cause: error,
    field,
  });
}
