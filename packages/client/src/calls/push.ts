import { InDoubtError, QueenError, sentenceOf, UnavailableError } from '../errors.ts';
import type { NewMessage, PushResult } from '../message.ts';
import { mintId } from '../uuid.ts';
import { pauseMs, type RetryPolicy } from '../wire/backoff.ts';
import { pause } from '../wire/signals.ts';
import type { CallOptions, Transport } from '../wire/transport.ts';

/** A message with everything that the wire wants; the same object is sent with every try. */
export interface PushItem {
  readonly queue: string;
  readonly partition: string;
  readonly transactionId: string;
  readonly payload: unknown;
}

interface WireResult {
  index: number;
  message_id: string;
  transaction_id: string;
  queueName: string;
  status: PushResult['status'];
  error?: string;
  offset?: number;
}

/** Some or all messages of a push were not stored. `results` has all of them, in order. */
export class PushError extends UnavailableError {
  readonly results: readonly PushResult[];

  constructor(results: readonly PushResult[], cause?: unknown) {
    const failed = results.filter(({ status }) => status === 'failed');
    const why = failed[0]?.error ?? 'unknown';
    super(`${failed.length} of ${results.length} messages were not stored: ${why}`, {
      code: 'push_failed',
      cause,
    });
    this.results = results;
  }
}

/**
 * Some messages of a push were not stored by the first try, and the answer to the next one was lost. `results` has all of them, in
 * order; nobody knows of those that are `in_doubt`. To push them again under their transactionIds stores none twice.
 */
export class PushInDoubtError extends InDoubtError {
  readonly results: readonly PushResult[];

  constructor(results: readonly PushResult[], cause: unknown) {
    const doubted = results.filter(({ status }) => status === 'in_doubt').length;
    const sentence = `nobody knows whether ${doubted} of ${results.length} messages were stored: ${sentenceOf(cause)}`;
    super(sentence, { code: 'push_in_doubt', cause });
    this.results = results;
  }
}

/**
 * Fills in what is missing: here the transactionId is minted, once, before anything is sent.
 *
 * @throws TypeError for an item without `data`
 */
export function itemOf<T>(queue: string, partition: string | undefined, message: NewMessage<T>): PushItem {
  if (message.data === undefined) throw new TypeError('a message to push needs data: { data: … }');
  return {
    queue,
    partition: message.partition ?? partition ?? 'Default',
    transactionId: message.transactionId ?? mintId(),
    payload: message.data,
  };
}

/**
 * Stores messages. Whatever is repeated has the transactionIds of the first try, so nothing is stored twice; an item that was
 * stored by a try whose answer was lost is reported `duplicate` by the next one.
 *
 * @throws PushError when some are refused or still not stored after all tries, PushInDoubtError when the answer of a later try was lost
 *   for some, and QueenError of any kind
 */
export async function push(
  transport: Transport,
  retry: RetryPolicy,
  items: readonly PushItem[],
  options: CallOptions = {},
): Promise<PushResult[]> {
  const results: PushResult[] = new Array(items.length);
  let open = items.map((_, at) => at);
  let cause: unknown;
  for (let round = 0; open.length > 0; round++) {
    let answers: PushResult[];
    try {
      answers = await send(
        transport,
        open.map((at) => items[at]!),
        options,
      );
    } catch (error) {
      // What the first rounds have told is not thrown away with the rest.
      if (round === 0 || !(error instanceof QueenError) || error.kind === 'aborted') throw error;
      if (error instanceof InDoubtError) {
        for (const at of open) results[at] = { ...results[at]!, status: 'in_doubt', error: error.message };
        throw new PushInDoubtError(results, error);
      }
      cause = error;
      break;
    }
    answers.forEach((answer, index) => {
      results[open[index]!] = answer;
    });
    open = open.filter((at) => mayBecomeStored(results[at]!));
    if (open.length === 0 || round >= retry.retries) break;
    await pause(pauseMs(retry, round), options.signal);
  }
  if (results.some(({ status }) => status === 'failed')) throw new PushError(results, cause);
  return results;
}

async function send(
  transport: Transport,
  items: readonly PushItem[],
  options: CallOptions,
): Promise<PushResult[]> {
  const { status, body } = await transport.call<WireResult[]>({
    method: 'POST',
    path: '/api/v1/push',
    body: { items },
    affinity: affinityOf(items),
    repeatable: true,
    // A broker that is paused for maintenance and cannot write to its disk: a 500 that tells about each item.
    accepts: (code, answer) => code === 500 && Array.isArray(answer),
    signal: options.signal,
  });
  if (!Array.isArray(body) || body.length !== items.length) {
    const facts = { code: 'misaligned', status, body };
    throw new InDoubtError(`a push of ${items.length} messages has another number of results`, facts);
  }
  return body.map((result) => ({
    transactionId: result.transaction_id,
    messageId: result.message_id,
    queue: result.queueName,
    status: result.status,
    ...(result.error === undefined ? {} : { error: result.error }),
    ...(result.offset === undefined ? {} : { offset: result.offset }),
  }));
}

/** Messages of a queue keep to one broker: what that one holds back on its disk is not overtaken. */
function affinityOf(items: readonly PushItem[]): string {
  return `push:${items[0]!.queue}`;
}

function mayBecomeStored({ status, error }: PushResult): boolean {
  return status === 'failed' && error?.startsWith('encryption_required') !== true;
}
