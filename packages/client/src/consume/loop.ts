import { pauseMs } from '../wire/backoff.ts';
import { linked, pause } from '../wire/signals.ts';
import type { Batch } from './batch.ts';
import type { Delivery } from './delivery.ts';
import type { TakeOptions } from './options.ts';
import { nextBatch, report, type Source } from './poll.ts';

/** A loop that was begun, for a client that is closed meanwhile. */
export interface Loop {
  /** Gives back what nobody has settled, also what a poll brings just now, and ends the loop at its next turn. */
  stop(): Promise<void>;
}

/**
 * The messages of a queue, for `for await`. To ask for the next one is to complete the one before, unless that was settled by
 * its own methods. To leave the loop, by `break` or by throwing, gives back what was not settled, the message at hand
 * too: `await message.ack()` before a `break`.
 *
 * @param begun told of the loop when it begins; what it returns is called at the end
 */
export async function* deliveries<T>(
  source: Source,
  options: TakeOptions,
  begun: (loop: Loop) => () => void,
): AsyncGenerator<Delivery<T>, void, undefined> {
  for await (const batch of taken<T>(source, options, begun)) {
    for (const delivery of batch.deliveries) {
      if (options.signal?.aborted === true) return;
      if (!batch.isOpen(delivery)) continue;
      yield delivery;
      batch.settle(delivery, 'completed');
    }
  }
}

/** The same in batches, as the broker gave them out. */
export async function* batches<T>(
  source: Source,
  options: TakeOptions,
  begun: (loop: Loop) => () => void,
): AsyncGenerator<readonly Delivery<T>[], void, undefined> {
  for await (const batch of taken<T>(source, options, begun)) {
    yield batch.deliveries;
    for (const delivery of batch.deliveries) batch.settle(delivery, 'completed');
  }
}

async function* taken<T>(
  source: Source,
  options: TakeOptions,
  begun: (loop: Loop) => () => void,
): AsyncGenerator<Batch<T>, void, undefined> {
  const link = linked(options.signal);
  let current: Batch<T> | null = null;
  /** The poll that is under way, or the last one. What it brings is `current` before anybody else hears of it. */
  let polled: Promise<Batch<T> | null> = Promise.resolve(null);
  const release = async () => {
    await current?.release().catch((error) => report(options, error));
    current = null;
  };
  const over = begun({
    async stop() {
      link.abort();
      // An answer that has begun to arrive may hold messages: nobody else would give them back.
      await polled.catch(() => {});
      await release();
    },
  });
  let again = 0;
  try {
    for (;;) {
      polled = nextBatch<T>(source, options, link.signal).then((taken) => {
        current = taken;
        return taken;
      });
      const batch = await polled;
      if (batch === null || link.signal.aborted) return;
      yield batch;
      again = batch.sentBack ? again + 1 : 0;
      await release();
      // What was sent back comes again at once: without a pause this would be a busy loop.
      if (again > 0) await pause(pauseMs(source.retry, again - 1), link.signal).catch(() => {});
    }
  } finally {
    await release();
    link.unlink();
    over();
  }
}
