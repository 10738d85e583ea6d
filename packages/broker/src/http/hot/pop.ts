/**
 * GET /api/v1/pop/queue/:queue, …/partition/:partition and /api/v1/pop?namespace=&task=: one handler, three scopes.
 *
 * A claim hides messages for a whole lease, so nothing may be claimed for a client that is gone: the engine gets an
 * abort signal that fires with the connection.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { EngineError } from '../../engine/errors.ts';
import { type PopAnswer, type PopRequest, type PopScope, QUEUE_MODE_GROUP } from '../../engine/types.ts';
import { parseInstant } from '../../log/instants.ts';
import { accessOf } from '../access/levels.ts';
import { answerChunks, answerJson, answerNothing } from '../answer.ts';
import { Fault, faultOf, type Wording } from '../errors.ts';
import { pathName, queryName } from '../names.ts';
import { Query } from '../query.ts';
import type { HotContext } from './context.ts';
import { renderEmptyPop, renderPop } from './pop_answer.ts';

export const popWording: Wording = { failed: () => 'pop failed' };
const ACCESS = accessOf('GET', '/api/v1/pop/queue/:queue');
/** For a pinned pop: there is only this partition, so its error is the answer. */
const pinnedWording: Wording = { failed: (detail) => `pop failed: ${detail}` };

export async function popQueue(
  context: HotContext,
  request: IncomingMessage,
  response: ServerResponse,
  queueSegment: string,
  queryText: string,
): Promise<void> {
  const scope = (): PopScope => ({ kind: 'queue', queue: pathName(queueSegment, 'queue') });
  return pop(context, request, response, scope, new Query(queryText));
}

export async function popPartition(
  context: HotContext,
  request: IncomingMessage,
  response: ServerResponse,
  queueSegment: string,
  partitionSegment: string,
  queryText: string,
): Promise<void> {
  const scope = (): PopScope => ({
    kind: 'partition',
    queue: pathName(queueSegment, 'queue'),
    partition: pathName(partitionSegment, 'partition'),
  });
  return pop(context, request, response, scope, new Query(queryText));
}

export async function popDiscovery(
  context: HotContext,
  request: IncomingMessage,
  response: ServerResponse,
  queryText: string,
): Promise<void> {
  const query = new Query(queryText);
  return pop(context, request, response, () => discovery(query), query);
}

function discovery(query: Query): PopScope {
  const namespace = queryName(query, 'namespace');
  const task = queryName(query, 'task');
  if (namespace === null && task === null) {
    throw new Fault('scope_missing', { extra: { success: false, messages: [] } });
  }
  return { kind: 'discovery', namespace, task };
}

async function pop(
  context: HotContext,
  request: IncomingMessage,
  response: ServerResponse,
  readScope: () => PopScope,
  query: Query,
): Promise<void> {
  // Before anything of the request is judged: a stranger learns nothing but that one must not be one.
  const { tenant } = await context.identify(request, ACCESS);
  const scope = readScope();
  const wait = context.connections.wait(response);
  const queue = scope.kind === 'discovery' ? '' : scope.queue;
  let waiting = false;
  try {
    const wish = readPop(context, tenant, scope, query, wait.signal);
    waiting = wish.waitMs > 0;
    if (waiting) context.traffic.waits(queue);
    const answer = await claim(context, wish, wait.signal);
    count(context, wish, answer);
    send(response, wish, answer);
  } finally {
    if (waiting) context.traffic.waited(queue);
    context.connections.settled(response, wait);
  }
}

/** Reads the parameters. They are typed on every scope, also where a scope ignores one. */
function readPop(
  context: HotContext,
  tenant: string,
  scope: PopScope,
  query: Query,
  signal: AbortSignal,
): PopRequest {
  const batch = query.integer('batch');
  const timeoutMs = query.integer('timeout') ?? context.pop.timeoutMs;
  const group = queryName(query, 'consumerGroup') ?? QUEUE_MODE_GROUP;
  const conflation = query.boolean('conflation');
  const commitOnDelivery = query.boolean('commitOnDelivery');
  const autoAck = query.boolean('autoAck') ?? commitOnDelivery ?? false;
  if (conflation === true && group === QUEUE_MODE_GROUP) {
    throw new Fault('conflation_needs_group', { field: 'consumerGroup' });
  }
  if (conflation === true && autoAck) throw new Fault('conflation_with_auto_ack', { field: 'autoAck' });
  return {
    tenant,
    scope,
    group,
    batch: batch === null ? null : Math.max(1, batch),
    partitions: query.integer('partitions'),
    autoAck,
    waitMs: query.boolean('wait') === true ? Math.max(0, timeoutMs) : 0,
    leaseSeconds: Math.max(0, query.integer('leaseSeconds') ?? 0),
    subscriptionMode: subscriptionMode(query.text('subscriptionMode'), context.pop.subscriptionMode),
    subscriptionFrom: subscriptionFrom(query.text('subscriptionFrom')),
    conflation,
    autopilot: query.boolean('autopilot') ?? false,
    signal,
  };
}

/** `new` and its alias; every other word means `all`. */
export function subscriptionMode(word: string | null, absent: 'new' | 'all'): 'new' | 'all' {
  if (word === null || word === '') return absent;
  return word === 'new' || word === 'new-only' ? 'new' : 'all';
}

/** What cannot be read as an instant is ignored. */
function subscriptionFrom(text: string | null): PopRequest['subscriptionFrom'] {
  if (text === null) return null;
  return text === 'now' ? 'now' : parseInstant(text);
}

const NOTHING: PopAnswer = {
  leaseId: '',
  claims: [],
  conflation: false,
  conflationConflict: false,
  autopilot: null,
  paused: false,
};

async function claim(context: HotContext, wish: PopRequest, signal: AbortSignal): Promise<PopAnswer> {
  if (signal.aborted) return NOTHING;
  try {
    return await context.broker.pop(wish);
  } catch (error) {
    if (signal.aborted) return NOTHING;
    if (!(error instanceof EngineError) || error.kind !== 'refused') throw error;
    if (error.code === 'corrupt_segment' && wish.scope.kind === 'partition')
      throw faultOf(error, pinnedWording);
    if (error.code !== 'database_error' && error.code !== 'corrupt_segment') throw error;
    // A consumer of a whole queue can do nothing about it, and must not stop serving the other partitions for it.
    context.log.error({ err: error, scope: wish.scope, group: wish.group }, 'pop refused by the database');
    return NOTHING;
  }
}

function count({ traffic, log }: HotContext, { scope, group }: PopRequest, answer: PopAnswer): void {
  traffic.popRequests++;
  if (scope.kind === 'partition') traffic.popTargeted++;
  else traffic.popWildcard++;
  if (answer.claims.length === 0) traffic.popEmpty++;
  for (const { queue, partition, messages, deliveryAttempt } of answer.claims) {
    traffic.popMessages += messages.length;
    if (deliveryAttempt > 1) traffic.redeliveredMessages += messages.length;
    traffic.popped(queue, messages.length);
    if (!traffic.repeated(deliveryAttempt)) continue;
    const facts = { queue, partition, group, offset: messages[0]?.offset, deliveryAttempt };
    log.warn(facts, 'the same messages are delivered again and again, and never acked');
  }
}

function send(response: ServerResponse, wish: PopRequest, answer: PopAnswer): void {
  if (answer.claims.length > 0) answerChunks(response, 200, renderPop(wish, answer));
  else if (wish.conflation !== true && !answer.conflation && !answer.conflationConflict)
    answerNothing(response);
  else answerJson(response, 200, renderEmptyPop(wish, answer));
}
