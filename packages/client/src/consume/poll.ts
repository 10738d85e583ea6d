import { pop, type Scope } from '../calls/pop.ts';
import { AbortedError, RefusedError, tell } from '../errors.ts';
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

/** A queue that was empty is not asked again before so much time has passed, ms. */
const IDLE_MS_MIN = 50;

/**
 * Waits for the next batch, through empty polls and brokers that are away.
 *
 * @returns null when the signal has fired or the client was closed; a batch whose answer had begun to arrive by then is handed out all the same
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
      if (messages.length > 0) {
        const tellOwner = (error: unknown) => report(options, error);
        return new Batch(source.transport, messages, leaseSeconds, since, tellOwner);
      }
      failures = 0;
      // Pops that are switched off are answered at once, whatever wait was asked for; and who asks for none means no busy loop.
      const idleMs = Math.min(Math.max(asked.waitMs, IDLE_MS_MIN), 1_000);
      if (performance.now() - since < IDLE_MS_MIN) await pause(idleMs, signal);
    } catch (error) {
      // By the signal, or the client was closed.
      if (error instanceof AbortedError) return null;
      if (error instanceof RefusedError || error instanceof TypeError) throw error;
      report(options, error);
      await pause(pauseMs(source.retry, failures++), signal).catch(() => {});
    }
  }
}

/** Tells the owner of a consumer or loop. */
export function report({ onError = console.error }: TakeOptions, error: unknown): void {
  tell(() => onError(error));
}
