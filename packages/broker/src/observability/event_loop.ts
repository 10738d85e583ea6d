/**
 * How late the event loop runs what is due. Node's histogram records the distance between two ticks of its own
 * timer, so the timer's period is taken off. The readings cover the time since the window was last renewed.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';

/**
 * Each tick wakes the process up: at 20 ms that was half a percent of a core, a third of what a thousand parked polls
 * cost, at 100 ms it is 0.09 %. A shorter stall is seen when it meets a tick.
 */
const TICK_MS = 100;
const WINDOW_MS = 10_000;
const TICKS_MIN = 10;

export class EventLoopLag {
  readonly #histogram: ReturnType<typeof monitorEventLoopDelay>;
  readonly #renew: NodeJS.Timeout;
  /** Of the window before the running one, so that a reader just after a renewal is not shown an empty one. */
  #before = { mean: 0, max: 0 };

  constructor() {
    this.#histogram = monitorEventLoopDelay({ resolution: TICK_MS });
    this.#histogram.enable();
    this.#renew = setInterval(() => {
      this.#before = this.#running();
      this.#histogram.reset();
    }, WINDOW_MS);
    this.#renew.unref();
  }

  /** Milliseconds. */
  get mean(): number {
    return this.#histogram.count > TICKS_MIN ? this.#running().mean : this.#before.mean;
  }

  /** Milliseconds. */
  get max(): number {
    return Math.max(this.#running().max, this.#before.max);
  }

  stop(): void {
    clearInterval(this.#renew);
    this.#histogram.disable();
  }

  #running(): { mean: number; max: number } {
    if (this.#histogram.count === 0) return { mean: 0, max: 0 };
    return {
      mean: Math.max(0, this.#histogram.mean / 1e6 - TICK_MS),
      max: Math.max(0, this.#histogram.max / 1e6 - TICK_MS),
    };
  }
}
