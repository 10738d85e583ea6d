/** One line of rates every few seconds while anything moves, and one more when it stops. */
import type { EventLoopLag } from './event_loop.ts';
import type { Log } from './log.ts';
import type { QueueTraffic, Traffic } from './traffic.ts';

export interface RateLogOptions {
  traffic: Traffic;
  lag: EventLoopLag;
  log: Log;
  /** 0 switches the line off. */
  everyMs: number;
  topQueues: number;
}

export class RateLog {
  readonly #options: RateLogOptions;
  #timer: NodeJS.Timeout | undefined;
  #last = { push: 0, pop: 0, ack: 0 };
  #lastAt = performance.now();
  #quiet = true;

  constructor(options: RateLogOptions) {
    this.#options = options;
  }

  start(): void {
    if (this.#options.everyMs <= 0) return;
    this.#timer = setInterval(() => this.report(), this.#options.everyMs);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Writes the line for the time since the previous report. */
  report(): void {
    const { traffic, lag, log } = this.#options;
    const now = performance.now();
    const seconds = Math.max((now - this.#lastAt) / 1000, 0.001);
    const total = { push: traffic.pushMessages, pop: traffic.popMessages, ack: traffic.ackMessages };
    const moved = total.push + total.pop + total.ack - this.#last.push - this.#last.pop - this.#last.ack;
    const facts = {
      pushPerSecond: short((total.push - this.#last.push) / seconds),
      popPerSecond: short((total.pop - this.#last.pop) / seconds),
      ackPerSecond: short((total.ack - this.#last.ack) / seconds),
      loopLagMs: Math.round(lag.mean),
      rssMb: Math.round(process.memoryUsage.rss() / 1_048_576),
    };
    this.#last = total;
    this.#lastAt = now;
    const queues = busiest(traffic.takeQueues(), this.#options.topQueues);
    if (moved > 0 || !this.#quiet) log.info(queues === '' ? facts : { ...facts, queues }, 'rates');
    this.#quiet = moved === 0;
  }
}

/** A decimal where it tells something: a message in ten seconds is not none. */
function short(rate: number): number {
  return rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate);
}

function busiest(queues: Map<string, QueueTraffic>, count: number): string {
  return [...queues]
    .sort(([, a], [, b]) => b.pushed + b.popped - a.pushed - a.popped)
    .slice(0, count)
    .map(([name, { pushed, popped }]) => `${name} +${pushed} -${popped}`)
    .join(', ');
}
