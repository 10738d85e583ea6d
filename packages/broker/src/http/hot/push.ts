/** POST /api/v1/push. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setImmediate as turn } from 'node:timers/promises';
import type { PushItem, PushResult } from '../../engine/types.ts';
import { parsePushBody, parsePushBodyInTurns, TURN_BYTES } from '../../log/json/push_body.ts';
import { accessOf } from '../access/levels.ts';
import { answerJson } from '../answer.ts';
import type { Wording } from '../errors.ts';
import type { HotContext } from './context.ts';

export const pushWording: Wording = { failed: (detail) => `push failed: ${detail}` };

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
    const { items } = large ? await parsePushBodyInTurns(bytes, () => turn()) : parsePushBody(bytes);
    const { tenant, sub } = identity;
    const results = items.length === 0 ? [] : await context.broker.push({ tenant, items, producerSub: sub });
    count(context, items, results);
    answerJson(response, 201, renderPush(items, results));
  } finally {
    body.release();
  }
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

function renderPush(items: readonly PushItem[], results: readonly PushResult[]): string {
  let json = '[';
  for (let index = 0; index < results.length; index++) {
    const { status, messageId, transactionId, offset, error } = results[index]!;
    json += `${index === 0 ? '' : ','}{"index":${index},"message_id":"${messageId}"`;
    json += `,"transaction_id":${JSON.stringify(transactionId)},"queueName":${JSON.stringify(items[index]!.queue)}`;
    json += `,"status":"${status}"`;
    if (offset !== null) json += `,"offset":${offset}`;
    json += error === null ? '}' : `,"error":${JSON.stringify(error)}}`;
  }
  return `${json}]`;
}
