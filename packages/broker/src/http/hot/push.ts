/** POST /api/v1/push. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { PushItem, PushResult, PushStatus } from '../../engine/types.ts';
import { parsePushBody, parsePushBodyInTurns, TURN_BYTES } from '../../log/json/push_body.ts';
import { JsonWriter } from '../../log/json/writer.ts';
import { accessOf } from '../access/levels.ts';
import { answerBytes } from '../answer.ts';
import type { Wording } from '../errors.ts';
import { turn } from '../operations_body.ts';
import type { HotContext } from './context.ts';

export const pushWording: Wording = { failed: (detail) => `push failed: ${detail}` };

/** A result with UUIDs as ids; a guess that spares growing. */
const RESULT_BYTES_TYPICAL = 224;
const STATUS_JSON: Readonly<Record<PushStatus, string>> = {
  queued: ',"status":"queued"',
  duplicate: ',"status":"duplicate"',
  buffered: ',"status":"buffered"',
  failed: ',"status":"failed"',
};

const ACCESS = accessOf('POST', '/api/v1/push');

export async function push(
  context: HotContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const identity = await context.identify(request, ACCESS);
  const body = await context.bodies.receive(request, { lane: 'push' });
  try {
    const { bytes } = body;
    // A body of megabytes gives way to other requests while it is read.
    const large = bytes.length > TURN_BYTES;
    const { items } = large ? await parsePushBodyInTurns(bytes, turn) : parsePushBody(bytes);
    const { tenant, sub } = identity;
    const results = items.length === 0 ? [] : await context.broker.push({ tenant, items, producerSub: sub });
    count(context, items, results);
    answerBytes(response, statusOf(results), renderPush(items, results));
  } finally {
    body.release();
  }
}

/** What became of each item is in the body, but for one thing: nothing at all could be done with some. */
function statusOf(results: readonly PushResult[]): number {
  return results.some((result) => result.unkept === true) ? 500 : 201;
}

function count({ traffic }: HotContext, items: readonly PushItem[], results: readonly PushResult[]): void {
  traffic.pushRequests++;
  traffic.pushMessages += items.length;
  for (const { status } of results) traffic.pushResults[status]++;
  let start = 0;
  for (let i = 1; i <= items.length; i++) {
    if (i < items.length && items[i]!.queue === items[start]!.queue) continue;
    traffic.pushed(items[start]!.queue, i - start);
    start = i;
  }
}

/**
 * The answer's bytes. Almost all of it is ASCII that is copied character by character into a buffer of the right size or
 * more: as one string it would be a rope of a thousand pieces, to be flattened, measured and encoded.
 */
function renderPush(items: readonly PushItem[], results: readonly PushResult[]): Buffer {
  const writer = new JsonWriter(results.length * RESULT_BYTES_TYPICAL);
  let queue: string | null = null;
  let queueJson = '';
  writer.ascii('[');
  for (let index = 0; index < results.length; index++) {
    const { status, messageId, transactionId, offset, error } = results[index]!;
    if (items[index]!.queue !== queue) {
      queue = items[index]!.queue;
      queueJson = JSON.stringify(queue);
    }
    writer.ascii(index === 0 ? '{"index":' : ',{"index":');
    writer.integer(index);
    writer.ascii(',"message_id":"');
    writer.ascii(messageId);
    writer.ascii('","transaction_id":');
    writer.string(transactionId);
    writer.ascii(',"queueName":');
    writer.text(queueJson);
    writer.ascii(STATUS_JSON[status]);
    if (offset !== null) {
      writer.ascii(',"offset":');
      writer.integer(offset);
    }
    if (error !== null) {
      writer.ascii(',"error":');
      writer.string(error);
    }
    writer.ascii('}');
  }
  writer.ascii(']');
  return writer.bytes();
}
