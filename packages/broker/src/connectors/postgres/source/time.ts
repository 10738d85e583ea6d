/** Waiting that a stop ends, and what is done again and again. */
import type { Clock } from '../../../engine/clock.ts';
import { ConnectorFault } from '../fault.ts';

/** Resolves after so many milliseconds; rejects with ConnectorFault `stopped`. */
export type Pause = (ms: number) => Promise<void>;

export function stopped(): ConnectorFault {
  return new ConnectorFault('stopped', 'the connector was asked to stop');
}

/** Pauses that end early when `signal` is aborted. */
export function pauseUntil(clock: Clock, signal: AbortSignal): Pause {
  return (ms) =>
    new Promise((resolve, reject) => {
      if (signal.aborted) return reject(stopped());
      const abort = (): void => {
        timer.cancel();
        reject(stopped());
      };
      const timer = clock.after(ms, () => {
        signal.removeEventListener('abort', abort);
        resolve();
      });
      signal.addEventListener('abort', abort, { once: true });
    });
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
