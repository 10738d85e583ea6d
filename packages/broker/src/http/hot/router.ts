/**
 * Push, pop and ack are matched by hand and answered on the bare server: that is a third more requests a second than
 * through a router (43.6k against 30.4k on one core), and the bodies stay bytes. Everything else goes on to Fastify.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { answerFault } from '../answer.ts';
import * as operations from '../api/messages.ts';
import type { Route } from '../app.ts';
import { ClientGone } from '../body.ts';
import { faultOf, type Wording } from '../errors.ts';
import { splitTarget } from '../target.ts';
import { ackBatch, ackOne, ackWording } from './ack.ts';
import type { HotContext } from './context.ts';
import { popDiscovery, popPartition, popQueue, popWording } from './pop.ts';
import { push, pushWording } from './push.ts';

/** What is matched here, as the list of all routes has it. */
export const HOT_ROUTES: readonly Route[] = [
  { method: 'POST', path: '/api/v1/push', operation: operations.push },
  { method: 'GET', path: '/api/v1/pop', operation: operations.popDiscovery },
  { method: 'GET', path: '/api/v1/pop/queue/:queue', operation: operations.popQueue },
  {
    method: 'GET',
    path: '/api/v1/pop/queue/:queue/partition/:partition',
    operation: operations.popPartition,
  },
  { method: 'POST', path: '/api/v1/ack', operation: operations.ack },
  { method: 'POST', path: '/api/v1/ack/batch', operation: operations.ackBatch },
];

const POP = '/api/v1/pop';
const POP_QUEUE = '/api/v1/pop/queue/';

/** Takes the request if it is for a hot route. False: it is somebody else's. */
export function routeHot(context: HotContext, request: IncomingMessage, response: ServerResponse): boolean {
  const { path, query } = splitTarget(request.url!);
  if (request.method === 'POST') {
    if (path === '/api/v1/push') return run(context, response, push(context, request, response), pushWording);
    if (path === '/api/v1/ack') return run(context, response, ackOne(context, request, response), ackWording);
    if (path === '/api/v1/ack/batch')
      return run(context, response, ackBatch(context, request, response), ackWording);
    return false;
  }
  if (request.method !== 'GET' || !path.startsWith(POP)) return false;
  if (path === POP)
    return run(context, response, popDiscovery(context, request, response, query), popWording);
  if (!path.startsWith(POP_QUEUE)) return false;
  const [queue, word, partition, ...rest] = path.slice(POP_QUEUE.length).split('/');
  if (queue === undefined || queue === '') return false;
  if (word === undefined)
    return run(context, response, popQueue(context, request, response, queue, query), popWording);
  if (word !== 'partition' || partition === undefined || rest.length > 0) return false;
  return run(
    context,
    response,
    popPartition(context, request, response, queue, partition, query),
    popWording,
  );
}

function run(context: HotContext, response: ServerResponse, work: Promise<void>, wording: Wording): true {
  work.catch((error: unknown) => {
    if (error instanceof ClientGone) return;
    const fault = faultOf(error, wording);
    if (fault.status >= 500)
      context.log.error({ err: fault.cause ?? fault, code: fault.code }, 'request failed');
    else context.traffic.refuse(fault.code);
    answerFault(response, fault);
  });
  return true;
}
