/** Waiting that a stop ends, and what is done again and again. */
import type { Clock } from '../../../engine/clock.ts';
import { ConnectorFault } from '../fault.ts';
import { pause } from '../pause.ts';

/** Resolves after so many milliseconds; rejects with ConnectorFault `stopped`. */
export type Pause = (ms: number) => Promise<void>;

export function stopped(): ConnectorFault {
  return new ConnectorFault('stopped', 'the connector was asked to stop');
}

/** Pauses that end early when `signal` is aborted. */
export function pauseUntil(clock: Clock, signal: AbortSignal): Pause {
  return async (ms) => {
    await pause(clock, ms, signal);
    if (signal.aborted) throw stopped();
  };
}

/** Runs `work` every so many milliseconds until it is cancelled. */
export function every(clock: Clock, ms: number, work: () => void): { cancel(): void } {
  let cancelled = false;
  let timer = clock.after(ms, tick);
  function tick(): void {
    if (cancelled) return;
    timer = clock.after(ms, tick);
    work();
  }
  return {
    cancel() {
      cancelled = true;
      timer.cancel();
    },
  };
}
