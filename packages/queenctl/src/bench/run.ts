import { AbortedError, AckError, AckInDoubtError, type Queen, type QueueOptions } from '@queen-mq/client';
import { Latencies } from './latencies.ts';

export interface BenchOptions {
  readonly queue: string;
  readonly options: QueueOptions;
  /** End after so many messages, or after so much time. */
  readonly messages: number;
  readonly forMs: number;
  /** Bytes of a payload. */
  readonly size: number;
  readonly partitions: number;
  readonly producers: number;
  /** 0: push only. */
  readonly consumers: number;
  /** Messages in a request. */
  readonly batch: number;
}

type Summary = Latencies['summary'];

export interface BenchResult {
  readonly pushed: {
    messages: number;
    seconds: number;
    perSecond: number;
    mibPerSecond: number;
    request: Summary;
  };
  readonly consumed: {
    messages: number;
    again: number;
    seconds: number;
    perSecond: number;
    endToEnd: Summary;
  } | null;
}

interface Payload {
  /** When its push began, ms. */
  readonly at: number;
  readonly pad: string;
}

const GROUP = 'bench';
/** A consumer that has heard of nothing looks whether all is done, ms. */
const WAIT_MS = 500;
/** How long the rest may take to arrive when nothing comes any more, ms. */
const GIVE_UP_MS = 30_000;

/** Pushes and consumes at once, from several producers and consumers, and measures both. */
export class Bench {
  readonly #queen: Queen;
  readonly #options: BenchOptions;
  readonly #request = new Latencies();
  readonly #endToEnd = new Latencies();
  readonly #pad: string;
  #pushed = 0;
  #claimed = 0;
  #consumed = 0;
  #again = 0;
  #pushing = true;
  #lastAt = 0;

  constructor(queen: Queen, options: BenchOptions) {
    this.#queen = queen;
    this.#options = options;
    const least = JSON.stringify({ at: now(), pad: '' }).length;
    this.#pad = 'x'.repeat(Math.max(0, options.size - least));
  }

  get pushed(): number {
    return this.#pushed;
  }

  get consumed(): number {
    return this.#consumed;
  }

  /** @param stop ends it early: what was measured until then counts */
  async run(stop: AbortSignal): Promise<BenchResult> {
    const { producers, consumers, forMs } = this.#options;
    const began = performance.now();
    const until = began + forMs;
    const consuming = Promise.all(times(consumers, () => this.#consume(stop)));
    // Not to be lost when a producer fails first.
    consuming.catch(() => {});
    await Promise.all(times(producers, (nth) => this.#produce(nth, until, stop))).finally(() => {
      this.#pushing = false;
    });
    const pushSeconds = (performance.now() - began) / 1000;
    await consuming;
    const consumeSeconds = (this.#lastAt - began) / 1000;
    const rate = (count: number, seconds: number) => (seconds > 0 ? Math.round(count / seconds) : 0);
    return {
      pushed: {
        messages: this.#pushed,
        seconds: rounded(pushSeconds),
        perSecond: rate(this.#pushed, pushSeconds),
        mibPerSecond: rounded((this.#pushed * this.#options.size) / pushSeconds / 1024 ** 2),
        request: this.#request.summary,
      },
      consumed:
        consumers === 0
          ? null
          : {
              messages: this.#consumed,
              again: this.#again,
              seconds: rounded(Math.max(0, consumeSeconds)),
              perSecond: rate(this.#consumed, consumeSeconds),
              endToEnd: this.#endToEnd.summary,
            },
    };
  }

  async #produce(nth: number, until: number, stop: AbortSignal): Promise<void> {
    const { queue, messages, batch, partitions } = this.#options;
    for (let round = nth; !stop.aborted && performance.now() < until; round++) {
      const count = Math.min(batch, messages - this.#claimed);
      if (count <= 0) return;
      this.#claimed += count;
      const partition = `p-${round % partitions}`;
      const began = performance.now();
      const at = now();
      await this.#queen
        .queue<Payload>(queue)
        .partition(partition)
        .push(times(count, () => ({ data: { at, pad: this.#pad } })));
      this.#request.add(performance.now() - began);
      this.#pushed += count;
      this.#lastAt = performance.now();
    }
  }

  async #consume(stop: AbortSignal): Promise<void> {
    const { queue, batch } = this.#options;
    const from = this.#queen.queue<Payload>(queue).group(GROUP);
    while (!stop.aborted) {
      if (!this.#pushing && this.#consumed >= this.#pushed) return;
      const taken = await from
        .pop({ batch, partitions: 0, waitMs: WAIT_MS, subscriptionMode: 'all', signal: stop })
        .catch((error: unknown) => {
          if (error instanceof AbortedError) return [];
          throw error;
        });
      if (taken.length === 0) {
        if (!this.#pushing && performance.now() - this.#lastAt > GIVE_UP_MS)
          throw new Error(
            `${this.#pushed - this.#consumed} messages did not arrive within ${GIVE_UP_MS / 1000} s`,
          );
        continue;
      }
      const at = now();
      for (const { data, deliveryAttempt } of taken) {
        this.#endToEnd.add(Math.max(0, at - data.at));
        if (deliveryAttempt > 1) this.#again++;
      }
      const acks = await this.#queen.ack(taken).catch((error: unknown) => {
        // Whose lease was over comes again, and is counted then.
        if (error instanceof AckError || error instanceof AckInDoubtError) return error.results;
        throw error;
      });
      this.#consumed += acks.filter(({ success, noop }) => success && !noop).length;
      this.#lastAt = performance.now();
    }
  }
}

function now(): number {
  return Math.round((performance.timeOrigin + performance.now()) * 1000) / 1000;
}

function times<T>(count: number, make: (nth: number) => T): T[] {
  return Array.from({ length: count }, (_, nth) => make(nth));
}

function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
