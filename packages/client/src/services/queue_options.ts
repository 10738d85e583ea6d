import type { CallOptions, Transport } from '../wire/transport.ts';

/** What can be set on a queue; null is its default. */
export interface QueueOptions {
  /** For pops over several queues; default: the part of the name before the first dot. */
  namespace?: string | null;
  /** Default: the part of the name between the first and the second dot. */
  task?: string | null;
  /** Length of a lease that does not say its own, s. Default 300; 60 for a queue made by a push or pop. */
  leaseTime?: number | null;
  /** Failures of a message that are forgiven. Default 3. */
  retryLimit?: number | null;
  /** Both false: what failed for good is dropped. Default true. */
  deadLetterQueue?: boolean | null;
  dlqAfterMaxRetries?: boolean | null;
  /** How long a transactionId counts, s; 0: there is no deduplication. Default 3600. */
  dedupWindowSeconds?: number | null;
  /** Age at which a message becomes visible, s. Default 0. */
  delayedProcessing?: number | null;
  /** Quiet time of a partition before it is served, s. Default 0. */
  windowBuffer?: number | null;
  /** A waiting pop waits so long for a fuller batch, ms. 0..60000, default 0. */
  minPopWaitTime?: number | null;
  /** Switches the next two on. Default false: nothing is deleted. */
  retentionEnabled?: boolean | null;
  /** Delete what is older, consumed or not, s; 0: never. */
  retentionSeconds?: number | null;
  /** Delete what is older and passed by every group, s; 0: never. */
  completedRetentionSeconds?: number | null;
  /** Delete what is older, even when leased and without `retentionEnabled`, s; 0: never. */
  maxWaitTimeSeconds?: number | null;
  /** Name of a sink that retention waits for. */
  retentionSinkHold?: string | null;
  /** How long at most, s. 60..31536000, default 604800. */
  retentionSinkHoldMaxSeconds?: number | null;
  /** Encrypt payloads; the broker needs a key. Default false. */
  encryptionEnabled?: boolean | null;
  /** Stored, and without effect. */
  priority?: number | null;
  retryDelay?: number | null;
  maxSize?: number | null;
  ttl?: number | null;
}

export interface ConfiguredQueue {
  readonly queue: string;
  readonly queueId: string;
  readonly namespace: string;
  readonly task: string;
  /** All of them, as they are now. */
  readonly options: {
    readonly [K in Exclude<keyof QueueOptions, 'namespace' | 'task'>]-?: NonNullable<QueueOptions[K]>;
  };
  /** Names that were sent and have no effect, misspelt ones among them. */
  readonly ignored: readonly string[];
}

/** @throws RefusedError for values that are not allowed; `field` names the option */
export function configure(
  transport: Transport,
  queue: string,
  options: QueueOptions,
  call: CallOptions & { replace?: boolean },
): Promise<ConfiguredQueue> {
  return transport.ask<ConfiguredQueue>({
    method: 'POST',
    path: '/api/v1/configure',
    body: { queue, options, ...(call.replace === true ? { mode: 'replace' } : {}) },
    repeatable: true,
    signal: call.signal,
  });
}
