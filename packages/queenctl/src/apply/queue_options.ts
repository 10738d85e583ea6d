import type { QueueOptions } from '@queen-mq/client';
import { usage } from '../exit.ts';
import { nearest } from '../output/text.ts';

/**
 * The options of a queue and what they are when nobody says otherwise. The broker decides; this copy is for telling what a
 * change would do before it is made, and a test holds it against a broker.
 */
export const QUEUE_DEFAULTS = {
  namespace: '',
  task: '',
  leaseTime: 300,
  retryLimit: 3,
  deadLetterQueue: true,
  dlqAfterMaxRetries: true,
  dedupWindowSeconds: 3600,
  delayedProcessing: 0,
  windowBuffer: 0,
  minPopWaitTime: 0,
  retentionEnabled: false,
  retentionSeconds: 0,
  completedRetentionSeconds: 0,
  maxWaitTimeSeconds: 0,
  retentionSinkHold: '',
  retentionSinkHoldMaxSeconds: 604_800,
  encryptionEnabled: false,
  priority: 0,
  retryDelay: 1000,
  maxSize: 0,
  ttl: 3600,
} as const satisfies { readonly [K in keyof QueueOptions]-?: NonNullable<QueueOptions[K]> };

type OptionName = keyof typeof QUEUE_DEFAULTS;

/** Options that are not at their default, also such as this program does not know. */
export function unusual(options: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const usual: Readonly<Record<string, unknown>> = QUEUE_DEFAULTS;
  return Object.fromEntries(Object.entries(options).filter(([option, value]) => value !== usual[option]));
}

/** A value as the option wants it, or a sentence about it. Ranges are the broker's to judge. */
export function checkOption(name: string, value: unknown): string | null {
  if (!Object.hasOwn(QUEUE_DEFAULTS, name)) {
    const near = nearest(name, Object.keys(QUEUE_DEFAULTS));
    return `${name} is no option of a queue${near === null ? '' : `: did you mean ${near}?`}`;
  }
  if (value === null) return null;
  const wanted = typeof QUEUE_DEFAULTS[name as OptionName];
  if (typeof value !== wanted || (wanted === 'number' && !Number.isInteger(value))) {
    const words = { number: 'an integer', boolean: 'true or false', string: 'a text' } as Record<
      string,
      string
    >;
    return `${name} is ${words[wanted]}, not ${JSON.stringify(value)}`;
  }
  return null;
}

/** Options from `name=value`. @throws Failure for an unknown name, or a value of another type */
export function optionsOf(pairs: readonly string[]): QueueOptions {
  const options: Record<string, unknown> = {};
  for (const pair of pairs) {
    const equals = pair.indexOf('=');
    if (equals < 1) throw usage(`"${pair}" is no name=value`);
    const name = pair.slice(0, equals);
    if (Object.hasOwn(options, name)) throw usage(`${name} is given twice`);
    const value = typed(name, pair.slice(equals + 1));
    const fault = checkOption(name, value);
    if (fault !== null) throw usage(fault);
    options[name] = value;
  }
  return options;
}

function typed(name: string, text: string): unknown {
  if (text === '') return null;
  const kind = typeof (QUEUE_DEFAULTS as Readonly<Record<string, unknown>>)[name];
  if (kind === 'number' && /^-?\d+$/.test(text)) return Number(text);
  if (kind === 'boolean' && (text === 'true' || text === 'false')) return text === 'true';
  return text;
}
