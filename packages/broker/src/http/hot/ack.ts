/** POST /api/v1/ack and POST /api/v1/ack/batch: the same thing for one item and for many. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { ACK_ERROR } from '../../engine/ack/verdicts.ts';
import type { AckItem, AckVerdict } from '../../engine/types.ts';
import { accessOf } from '../access/levels.ts';
import { answerJson } from '../answer.ts';
import type { Wording } from '../errors.ts';
import { type AckBody, readAckBatchBody, readAckBody } from './ack_body.ts';
import type { HotContext } from './context.ts';

export const ackWording: Wording = { failed: () => ACK_ERROR.flushFailed };

const ACCESS = accessOf('POST', '/api/v1/ack');

export function ackOne(
  context: HotContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  return acknowledge(context, request, response, readAckBody);
}

export function ackBatch(
  context: HotContext,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  return acknowledge(context, request, response, readAckBatchBody);
}

async function acknowledge(
  context: HotContext,
  request: IncomingMessage,
  response: ServerResponse,
  read: (bytes: Buffer) => AckBody,
): Promise<void> {
  const { tenant } = await context.identify(request, ACCESS);
  const body = await context.bodies.receive(request, { lane: 'other' });
  try {
    const { group, items } = read(body.bytes);
    const verdicts = items.length === 0 ? [] : await context.broker.ack({ tenant, group, items });
    count(context, items, verdicts);
    answerJson(response, 200, renderAck(items, verdicts));
  } finally {
    body.release();
  }
}

function count({ traffic }: HotContext, items: readonly AckItem[], verdicts: readonly AckVerdict[]): void {
  traffic.ackRequests++;
  traffic.ackMessages += items.length;
  for (const { leaseId } of items) if (leaseId === null) traffic.ackUnfenced++;
  for (const { success } of verdicts) if (!success) traffic.ackFailed++;
}

function renderAck(items: readonly AckItem[], verdicts: readonly AckVerdict[]): string {
  let json = '[';
  for (let index = 0; index < verdicts.length; index++) {
    const { success, error, leaseReleased, dlq, noop, conflated, dropped } = verdicts[index]!;
    json += `${index === 0 ? '' : ','}{"index":${index}`;
    json += `,"transactionId":${JSON.stringify(items[index]!.transactionId)},"success":${success}`;
    json += `,"error":${error === null ? 'null' : JSON.stringify(error)}`;
    json += `,"leaseReleased":${leaseReleased},"dlq":${dlq},"noop":${noop}`;
    if (conflated !== undefined) json += `,"conflated":${conflated}`;
    json += dropped === true ? ',"dropped":true}' : '}';
  }
  return `${json}]`;
}
