import type { Clock } from '../../engine/clock.ts';

/** Resolves after so many milliseconds, or when the signal says so. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      timer.cancel();
      signal?.removeEventListener('abort', over);
      resolve();
    };
    const timer = clock.after(ms, over);
    signal?.addEventListener('abort', over, { once: true });
    if (signal?.aborted) over();
  });
}
