/**
 * How fast a tenant may call, on this broker. A bucket of tokens a tenant and kind, one an operation. A call passes while
 * there is a token and then takes all it needs, into debt if need be: a batch of any legal size can pass, and the rate
 * holds over time.
 */
import type { Clock } from '../clock.ts';
import { EngineError } from '../errors.ts';

export interface Rate {
  /** 0: nothing passes. */
  perSecond: number;
  burst: number;
}

interface Bucket {
  tokens: number;
  at: number;
  rate: Rate;
}

const BUCKETS_MAX = 100_000;

export class Rates {
  readonly #clock: Clock;
  readonly #of: string;
  readonly #buckets = new Map<string, Bucket>();

  /** `of`: what is counted, for the refusal. */
  constructor(clock: Clock, of: string) {
    this.#clock = clock;
    this.#of = of;
  }

  /** Takes `count` tokens of a rate (null: unlimited). Throws the EngineError `rate_limited` when there is none: nothing is taken then. */
  take(tenant: string, kind: 'reads' | 'writes', rate: Rate | null, count: number): void {
    if (count === 0 || rate === null) return;
    const key = `${tenant}\u001f${kind}`;
    const now = this.#clock.now();
    let bucket = this.#buckets.get(key);
    if (
      bucket === undefined ||
      bucket.rate.perSecond !== rate.perSecond ||
      bucket.rate.burst !== rate.burst
    ) {
      if (this.#buckets.size >= BUCKETS_MAX) this.#trim(now);
      bucket = { tokens: rate.burst, at: now, rate };
      this.#buckets.set(key, bucket);
    }
    bucket.tokens = Math.min(rate.burst, bucket.tokens + ((now - bucket.at) / 1000) * rate.perSecond);
    bucket.at = now;
    if (bucket.tokens < 1) {
      throw new EngineError(
        'overloaded',
        'rate_limited',
        `more than ${rate.perSecond} ${this.#of} ${kind} a second`,
        {
          retryAfterSeconds: Math.min(3600, Math.max(1, Math.ceil((1 - bucket.tokens) / rate.perSecond))),
        },
      );
    }
    bucket.tokens -= count;
  }

  /** Full buckets remember nothing. */
  #trim(now: number): void {
    for (const [key, { tokens, at, rate }] of this.#buckets) {
      if (tokens + ((now - at) / 1000) * rate.perSecond >= rate.burst) this.#buckets.delete(key);
    }
    if (this.#buckets.size >= BUCKETS_MAX) this.#buckets.delete(this.#buckets.keys().next().value!);
  }
}
