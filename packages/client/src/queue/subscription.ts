import { pop, type Scope } from '../calls/pop.ts';
import { Consumer, eachMessage, wholeBatches } from '../consume/consumer.ts';
import type { Delivery } from '../consume/delivery.ts';
import { batches, deliveries } from '../consume/loop.ts';
import type { BatchHandler, ConsumeOptions, Handler, TakeOptions } from '../consume/options.ts';
import type { Context } from '../context.ts';
import type { Message, PopOptions } from '../message.ts';

/** Where messages can be taken from: a queue, one of its partitions, or all queues of a namespace or task. */
export class Subscription<T = unknown> {
  protected readonly context: Context;
  protected readonly scope: Scope;

  constructor(context: Context, scope: Scope) {
    this.context = context;
    this.scope = scope;
  }

  /**
   * Takes what is there, leased: ack it with `client.ack`. An empty array when there is nothing.
   *
   * @throws InDoubtError for a pop with `autoAck` whose answer was lost
   */
  pop(options: PopOptions = {}): Promise<Message<T>[]> {
    return pop(this.context.transport, this.scope, options);
  }

  /**
   * Gives each message to a handler, in order within a partition, until the consumer is stopped. A message whose handler
   * returns is completed; one whose handler throws has failed and comes again.
   */
  consume(handler: Handler<T>, options: ConsumeOptions = {}): Consumer<T> {
    return this.#consumer(new Consumer<T>(this.#source(), eachMessage(handler, options), options));
  }

  /** The same, a whole batch at a time. */
  consumeBatches(handler: BatchHandler<T>, options: ConsumeOptions = {}): Consumer<T> {
    return this.#consumer(new Consumer<T>(this.#source(), wholeBatches(handler, options), options));
  }

  /**
   * The messages for `for await`. To ask for the next one is to complete the one before; to leave the loop gives the one at
   * hand back, unless it was settled. Ends when the signal fires or the client is closed.
   */
  messages(options: TakeOptions = {}): AsyncGenerator<Delivery<T>, void, undefined> {
    return deliveries<T>(this.#source(), options, (loop) => this.context.own('consumer', () => loop.stop()));
  }

  /** The same in batches. */
  batches(options: TakeOptions = {}): AsyncGenerator<readonly Delivery<T>[], void, undefined> {
    return batches<T>(this.#source(), options, (loop) => this.context.own('consumer', () => loop.stop()));
  }

  #source() {
    const { transport, retry } = this.context;
    return { transport, retry, scope: this.scope };
  }

  #consumer(consumer: Consumer<T>): Consumer<T> {
    const over = this.context.own('consumer', (timeoutMs) => consumer.stop({ timeoutMs }));
    consumer.done.then(over, over);
    return consumer;
  }
}
