import { pop, type Scope } from '../calls/pop.ts';
import { AbortedError, RefusedError } from '../errors.ts';
import { pauseMs, type RetryPolicy } from '../wire/backoff.ts';
import { pause } from '../wire/signals.ts';
import type { Transport } from '../wire/transport.ts';
import { Batch } from './batch.ts';
import { LEASE_SECONDS, type TakeOptions, WAIT_MS } from './options.ts';

/** What consumers and loops are made of. */
export interface Source {
  readonly transport: Transport;
  readonly retry: RetryPolicy;
  readonly scope: Scope;
}

/**
 * Waits for the next batch, through empty polls and brokers that are away.
 *
 * @returns null when the signal has fired; a batch whose answer had begun to arrive by then is handed out all the same
 * @throws RefusedError when the broker will never give anything
 */
export async function nextBatch<T>(
  source: Source,
  options: TakeOptions,
  signal: AbortSignal,
): Promise<Batch<T> | null> {
  const leaseSeconds = options.leaseSeconds ?? LEASE_SECONDS;
  for (let failures = 0; ; ) {
    if (signal.aborted) return null;
    const since = performance.now();
    try {
      const asked = { ...options, leaseSeconds, waitMs: options.waitMs ?? WAIT_MS, signal };
      const messages = await pop<T>(source.transport, source.scope, asked);
      if (messages.length > 0) return new Batch(source.transport, messages, leaseSeconds, since);
      failures = 0;
      // Pops that are switched off are answered at once, whatever wait was asked for.
      if (performance.now() - since < 50) await pause(Math.min(asked.waitMs, 1_000), signal);
    } catch (error) {
      if (error instanceof AbortedError) {
        if (signal.aborted || error.code === 'closed') return null;
        throw error;
      }
      if (error instanceof RefusedError || error instanceof TypeError) throw error;
      report(options, error);
      await pause(pauseMs(source.retry, failures++), signal).catch(() => {});
    }
  }
}

/** Tells the owner; what that one throws is not our affair. */
export function report(options: TakeOptions, error: unknown): void {
  try {
    if (options.onError === undefined) console.error(error);
    else options.onError(error);
  } catch (thrown) {
    console.error(thrown);
  }
}
