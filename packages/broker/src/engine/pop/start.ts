/** Where a pop wants its group to start on what it has never met. */
import type { Start } from '../../store/pop.ts';
import { refused } from '../errors.ts';
import { type PopRequest, QUEUE_MODE_GROUP } from '../types.ts';

/** `subscriptionFrom` wins over the mode; queue mode always starts at the oldest message. */
export function startOf(request: PopRequest): Start {
  if (request.group === QUEUE_MODE_GROUP) return { mode: 'all', fromMicros: null };
  if (request.subscriptionFrom === 'now') return { mode: 'new', fromMicros: null };
  if (request.subscriptionFrom !== null) return { mode: 'timestamp', fromMicros: request.subscriptionFrom };
  return { mode: request.subscriptionMode, fromMicros: null };
}

/** Throws for what no pop may ask. */
export function checkRequest(request: PopRequest): void {
  if (request.scope.kind === 'discovery' && request.scope.namespace === null && request.scope.task === null) {
    throw refused('scope_required', 'namespace or task is required', 'namespace');
  }
  if (request.conflation !== true) return;
  if (request.group === QUEUE_MODE_GROUP) {
    throw refused('conflation_group', 'conflation needs a consumer group', 'consumerGroup');
  }
  if (request.autoAck) throw autoAckRefused();
}

/** A conflating group skips what it did not deliver when the delivered message is acked; there must be an ack. */
export function autoAckRefused(): Error {
  return refused('conflation_auto_ack', 'a conflating group cannot be popped with autoAck', 'autoAck');
}
