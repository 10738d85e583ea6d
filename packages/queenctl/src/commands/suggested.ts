import { type Queen, RefusedError } from '@queen-mq/client';
import { Failure } from '../exit.ts';
import { nearest } from '../output/text.ts';

const NO_QUEUE: ReadonlySet<string> = new Set(['queue_not_found', 'UNKNOWN_TOPIC_OR_PARTITION']);

/** What was asked of a queue; when there is no such queue, an error that names the one that may have been meant. */
export async function suggested<T>(queen: Queen, queue: string, asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    if (!(error instanceof RefusedError) || !NO_QUEUE.has(error.code)) throw error;
    throw await noQueue(queen, queue);
  }
}

async function noQueue(queen: Queen, queue: string): Promise<Failure> {
  // A suggestion is not worth another error.
  const names = await queen.admin.queues().then(
    (queues) => queues.map(({ name }) => name),
    () => [],
  );
  const near = nearest(queue, names);
  const hint =
    near === null ? '`queenctl queues list` shows those that are there' : `did you mean "${near}"?`;
  return new Failure('notFound', `there is no queue "${queue}"`, hint);
}
