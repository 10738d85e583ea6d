import type { RetryPolicy } from './wire/backoff.ts';
import type { Transport } from './wire/transport.ts';

/** What the parts of a client share. */
export interface Context {
  readonly transport: Transport;
  readonly retry: RetryPolicy;
  /**
   * Something that has to come to its end before the client does: consumers first, as their handlers may still produce.
   *
   * @returns to be called when it has
   */
  own(what: 'consumer' | 'producer', end: (timeoutMs: number | undefined) => Promise<void>): () => void;
}
