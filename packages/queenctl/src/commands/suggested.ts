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
  return notFound(`there is no queue "${queue}"`, 'queues', queue, names);
}

/**
 * An error that names what may have been meant, or else the command that lists what is there.
 *
 * @param kind the command whose `list` shows them
 * @param names of those that are there
 */
export function notFound(sentence: string, kind: string, name: string, names: readonly string[]): Failure {
  const near = nearest(name, names);
  const hint =
    near === null || near === name
      ? `\`queenctl ${kind} list\` shows those that are there`
      : `did you mean "${near}"?`;
  return new Failure('notFound', sentence, hint);
}
