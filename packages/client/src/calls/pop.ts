import type { Message, PopOptions } from '../message.ts';
import { segment, type Transport } from '../wire/transport.ts';

/** From where a pop takes: a queue, one partition of it, or all queues of a namespace, a task or both. */
export interface Scope {
  readonly queue?: string | undefined;
  readonly partition?: string | undefined;
  readonly namespace?: string | undefined;
  readonly task?: string | undefined;
  readonly group?: string | undefined;
}

const BATCH = 100;
/** How much longer than a long poll its answer may take, ms. */
const WAIT_MARGIN_MS = 5_000;

interface PopBody {
  readonly queue: string;
  readonly messages: readonly (Omit<Message, 'queue' | 'offset'> & { queue?: string; offset?: number })[];
}

/**
 * Takes what is there, or nothing. A leased pop is repeated when its answer is lost: what that one held comes again when
 * its lease is over. One with `autoAck` is not.
 */
export async function pop<T>(
  transport: Transport,
  scope: Scope,
  options: PopOptions = {},
): Promise<Message<T>[]> {
  const { waitMs = 0, subscriptionFrom } = options;
  const { body } = await transport.call<PopBody | null>({
    method: 'GET',
    path: pathOf(scope),
    query: {
      batch: options.batch ?? BATCH,
      partitions: options.partitions,
      wait: waitMs > 0 ? true : undefined,
      timeout: waitMs > 0 ? waitMs : undefined,
      leaseSeconds: options.leaseSeconds,
      consumerGroup: scope.group,
      autoAck: options.autoAck === true ? true : undefined,
      subscriptionMode: options.subscriptionMode,
      subscriptionFrom: subscriptionFrom instanceof Date ? subscriptionFrom.toISOString() : subscriptionFrom,
      conflation: options.conflation,
      namespace: scope.queue === undefined ? scope.namespace : undefined,
      task: scope.queue === undefined ? scope.task : undefined,
    },
    affinity: affinityOf(scope),
    repeatable: options.autoAck !== true,
    reads: false,
    keepsAnswer: true,
    timeoutMs: waitMs > 0 ? waitMs + WAIT_MARGIN_MS : undefined,
    signal: options.signal,
  });
  if (body === null) return [];
  const affinity = affinityOf(scope);
  return body.messages.map((message) => {
    const whole = { offset: -1, ...message, queue: message.queue ?? body.queue } as Message<T>;
    origins.set(whole, affinity);
    return whole;
  });
}

function pathOf({ queue, partition }: Scope): string {
  if (queue === undefined) return '/api/v1/pop';
  const path = `/api/v1/pop/queue/${segment(queue)}`;
  return partition === undefined ? path : `${path}/partition/${segment(partition)}`;
}

/** One consumer keeps to one broker, which then remembers what it has handed out. */
function affinityOf({ queue, partition, namespace, task, group }: Scope): string {
  const whose = group ?? '';
  return queue === undefined
    ? `${namespace ?? ''}:${task ?? ''}:${whose}`
    : `${queue}:${partition ?? '*'}:${whose}`;
}

const origins = new WeakMap<object, string>();

/** The affinity with which a message was popped; a copy of it has lost that, which costs the broker a look-up. */
export function originOf(message: {
  queue?: string | undefined;
  consumerGroup?: string | undefined;
}): string {
  return origins.get(message) ?? `${message.queue ?? ''}:*:${message.consumerGroup ?? ''}`;
}
