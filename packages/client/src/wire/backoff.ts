/** How a failed call is repeated. */
export interface RetryPolicy {
  /** Tries after the first one when brokers do not answer or say 5xx. 0..100, default 4. */
  readonly retries: number;
  /** Tries after the first one when brokers are overloaded (429). 0..1000, default 9. */
  readonly overloadedRetries: number;
  /** Longest pause before the second round, ms; doubles from round to round. 1..60000, default 100. */
  readonly baseMs: number;
  /** Longest pause at all, but for what `Retry-After` asks, ms. 1..600000, default 5000. */
  readonly maxMs: number;
}

export const RETRIES: RetryPolicy = { retries: 4, overloadedRetries: 9, baseMs: 100, maxMs: 5_000 };

/** A broker that asks for more than this is not obeyed to the letter, s. */
const RETRY_AFTER_MAX_S = 60;

/**
 * A pause of between half and the whole of a bound that doubles: callers that failed together come back apart, and none at
 * once.
 *
 * @param round 0 for the first pause
 * @param random from 0 up to 1
 */
export function pauseMs(
  policy: Pick<RetryPolicy, 'baseMs' | 'maxMs'>,
  round: number,
  random: number = Math.random(),
): number {
  const bound = Math.min(policy.maxMs, policy.baseMs * 2 ** Math.min(round, 20));
  return bound * (0.5 + random / 2);
}

/** The pause that a broker asked for, a fifth more or less; without a wish one from `pauseMs`. */
export function overloadedPauseMs(
  policy: RetryPolicy,
  round: number,
  retryAfterSeconds: number | undefined,
  random: number = Math.random(),
): number {
  if (retryAfterSeconds === undefined) return pauseMs(policy, round, random);
  return Math.min(retryAfterSeconds, RETRY_AFTER_MAX_S) * 1000 * (0.8 + random * 0.4);
}
