import { abortedBy } from '../errors.ts';

/** A controller that follows others, and lets go of them. */
export interface Linked {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
  /** Stops following. To be called when the work is over, or long-lived signals collect listeners. */
  unlink(): void;
}

/** A signal that fires with the first of those given. */
export function linked(...signals: readonly (AbortSignal | undefined)[]): Linked {
  const controller = new AbortController();
  const offs: (() => void)[] = [];
  for (const signal of signals) {
    if (signal === undefined) continue;
    const follow = () => controller.abort(signal.reason);
    if (signal.aborted) {
      follow();
      break;
    }
    signal.addEventListener('abort', follow, { once: true });
    offs.push(() => signal.removeEventListener('abort', follow));
  }
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    unlink() {
      for (const off of offs.splice(0)) off();
    },
  };
}

/** Waits; rejects with an AbortedError as soon as the signal fires. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(abortedBy(signal));
    const stop = () => {
      clearTimeout(timer);
      reject(abortedBy(signal!));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** The promise, or an AbortedError when the signal fires before; what the promise stands for goes on. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      work.catch(() => {});
      return reject(abortedBy(signal));
    }
    const stop = () => reject(abortedBy(signal));
    signal.addEventListener('abort', stop, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
