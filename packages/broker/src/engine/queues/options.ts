/**
 * The options of a queue: one table of what each is and what it may hold. An option that is not in the table
 * is none. What they default to is the database's business (`queen.queue_defaults`), since the same defaults
 * decide a merge under the queue's row lock.
 */
import { nameFault } from '../../log/names.ts';
import { refused } from '../errors.ts';
import { INT_MAX, INT_MIN, type QueueOptions } from '../types.ts';

type Kind =
  | { is: 'integer'; min?: number; max?: number }
  | { is: 'boolean' }
  | { is: 'name' }
  | { is: 'sink' };

/** A sink that retention waits for; empty: none. */
export const SINK_NAME = /^[A-Za-z0-9._-]{0,64}$/;
/** For how long it may wait. */
export const SINK_HOLD_SECONDS = { min: 60, max: 31_536_000 };

const KINDS: { readonly [K in keyof QueueOptions]: Kind } = {
  namespace: { is: 'name' },
  task: { is: 'name' },
  priority: { is: 'integer' },
  leaseTime: { is: 'integer' },
  retryLimit: { is: 'integer' },
  retryDelay: { is: 'integer' },
  maxSize: { is: 'integer' },
  ttl: { is: 'integer' },
  deadLetterQueue: { is: 'boolean' },
  dlqAfterMaxRetries: { is: 'boolean' },
  delayedProcessing: { is: 'integer' },
  windowBuffer: { is: 'integer' },
  retentionEnabled: { is: 'boolean' },
  retentionSeconds: { is: 'integer' },
  completedRetentionSeconds: { is: 'integer' },
  maxWaitTimeSeconds: { is: 'integer' },
  minPopWaitTime: { is: 'integer' },
  encryptionEnabled: { is: 'boolean' },
  dedupWindowSeconds: { is: 'integer' },
  retentionSinkHold: { is: 'sink' },
  retentionSinkHoldMaxSeconds: { is: 'integer', ...SINK_HOLD_SECONDS },
};

/** Stored and echoed for the sake of older clients; nothing acts on them. */
const WITHOUT_EFFECT: readonly (keyof QueueOptions)[] = ['priority', 'ttl', 'maxSize', 'retryDelay'];

function fault(option: string, kind: Kind, value: unknown): string | null {
  switch (kind.is) {
    case 'integer': {
      const min = kind.min ?? INT_MIN;
      const max = kind.max ?? INT_MAX;
      return Number.isInteger(value) && (value as number) >= min && (value as number) <= max
        ? null
        : `${option} must be an integer from ${min} to ${max}, or null for its default`;
    }
    case 'boolean':
      return typeof value === 'boolean' ? null : `${option} must be true or false, or null for its default`;
    case 'name':
      return nameFault(value, option);
    case 'sink':
      return typeof value === 'string' && SINK_NAME.test(value)
        ? null
        : `${option} must be a sink's name: at most 64 of the characters A-Z a-z 0-9 . _ -, or null for none`;
  }
}

/**
 * The known options among `named`, checked.
 *
 * @throws EngineError `invalid_option` with the option as its field and what it may hold as its text.
 */
export function checkOptions(named: Record<string, unknown>): Record<string, unknown> {
  const checked: Record<string, unknown> = {};
  for (const option of Object.keys(KINDS) as (keyof QueueOptions)[]) {
    if (!Object.hasOwn(named, option)) continue;
    const value = named[option];
    if (value === undefined) continue;
    if (value !== null) {
      const sentence = fault(option, KINDS[option], value);
      if (sentence !== null) throw refused('invalid_option', sentence, option);
    }
    checked[option] = value;
  }
  return checked;
}

/** Of the options that a caller named, those that nothing acts on. */
export function withoutEffect(named: Record<string, unknown>): string[] {
  return WITHOUT_EFFECT.filter((option) => Object.hasOwn(named, option) && named[option] !== undefined);
}
