/**
 * Time as the engine sees it. Whatever decides *when* (batching, parking, waking, sweeping) takes a Clock,
 * so that a test can drive it by hand. Leases, windows and visibility never come from here: they are judged
 * by the database's clock, inside SQL.
 */
export interface Timer {
  /** Stops the timer; harmless when it has fired already. */
  cancel(): void;
}

export interface Clock {
  /** Monotonic milliseconds; only differences mean something. */
  now(): number;
  /** Runs `work` once after `ms` milliseconds. Never keeps the process alive by itself. */
  after(ms: number, work: () => void): Timer;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  after(ms, work) {
    const handle = setTimeout(work, ms);
    handle.unref();
    return { cancel: () => clearTimeout(handle) };
  },
};
