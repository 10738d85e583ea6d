import { itemOf, push } from '../calls/push.ts';
import type { NewMessage, PushResult } from '../message.ts';
import { Producer, type ProducerOptions } from '../produce/producer.ts';
import { DeadLetters } from '../services/dead_letters.ts';
import { type ConfiguredQueue, configure, type QueueOptions } from '../services/queue_options.ts';
import {
  depthOf,
  inspectQueue,
  type PartitionPage,
  partitionsOf,
  type QueueDepth,
  type QueueDetail,
  removeQueue,
} from '../services/queues.ts';
import { Timers } from '../services/timers.ts';
import type { CallOptions } from '../wire/transport.ts';
import { Subscription } from './subscription.ts';

/** A queue, or a partition of it, perhaps for a consumer group. Nothing is sent before something is asked for. */
export class Queue<T = unknown> extends Subscription<T> {
  get name(): string {
    return this.scope.queue!;
  }

  /** One partition of it: an ordered lane that comes into being with its first message. */
  partition(partition: string): Queue<T> {
    return new Queue<T>(this.context, { ...this.scope, partition });
  }

  /** For a consumer group: each group gets every message once. */
  group(group: string): Queue<T> {
    return new Queue<T>(this.context, { ...this.scope, group });
  }

  /**
   * Stores messages, in order, and resolves when all of them are durable.
   *
   * @throws PushError when some are not stored after all tries; OverloadedError, InDoubtError, … when nothing is known of any
   */
  async push(
    messages: NewMessage<T> | readonly NewMessage<T>[],
    options: CallOptions = {},
  ): Promise<PushResult[]> {
    const list = Array.isArray(messages)
      ? (messages as readonly NewMessage<T>[])
      : [messages as NewMessage<T>];
    const items = list.map((message) => itemOf(this.name, this.scope.partition, message));
    return push(this.context.transport, this.context.retry, items, options);
  }

  /** For many small pushes: gathers messages and sends them together. Closed with the client at the latest. */
  producer(options: ProducerOptions = {}): Producer<T> {
    const { transport, retry } = this.context;
    const { queue, partition } = this.scope;
    const producer = new Producer<T>(transport, retry, queue!, partition, options, () => over());
    const over = this.context.own('producer', () => producer.close());
    return producer;
  }

  /** Makes the queue, or changes the options that are named. */
  configure(
    options: QueueOptions = {},
    call: CallOptions & { replace?: boolean } = {},
  ): Promise<ConfiguredQueue> {
    return configure(this.context.transport, this.name, options, call);
  }

  /** With all its partitions: `partitions` asks for a page of them. @throws RefusedError `queue_not_found` */
  inspect(options: CallOptions = {}): Promise<QueueDetail> {
    return inspectQueue(this.context.transport, this.name, options);
  }

  /**
   * One page of its partitions, by name, counted now, and its options.
   *
   * @param options.limit 1..10000, default 1000
   * @throws RefusedError `queue_not_found`
   */
  partitions(
    options: CallOptions & { limit?: number | undefined; offset?: number | undefined } = {},
  ): Promise<PartitionPage> {
    return partitionsOf(this.context.transport, this.name, options);
  }

  /** How much waits, for the group of this handle or, without one, for the group that is furthest behind. */
  depth(options: CallOptions = {}): Promise<QueueDepth> {
    return depthOf(this.context.transport, this.name, this.scope.group, options);
  }

  /** Deletes the queue with its messages, cursors and dead letters. False: there was none. */
  delete(options: CallOptions = {}): Promise<boolean> {
    return removeQueue(this.context.transport, this.name, options);
  }

  /** What could not be processed, of this queue, partition and group. */
  get deadLetters(): DeadLetters<T> {
    return new DeadLetters<T>(this.context.transport, this.scope);
  }

  /** Messages that are to be pushed later. */
  get timers(): Timers<T> {
    return new Timers<T>(this.context.transport, this.name, this.scope.partition);
  }
}
