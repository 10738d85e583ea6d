/** What timers look like on the wire. */
import type { PendingTimer, TimerResult } from '../engine/timers/face.ts';
import { formatInstant, formatInstantOrNull } from '../log/instants.ts';

/** What became of an operation. */
export function timerMembers(result: TimerResult): Record<string, unknown> {
  const { status, queue, timerKey, transactionId, messageId, dueAtMicros } = result;
  return {
    ok: status !== 'absent' && status !== 'too_late',
    status,
    queue,
    timerKey,
    txn: transactionId,
    messageId,
    deliverAt: formatInstantOrNull(dueAtMicros),
  };
}

/** `payload`: as stored; null: left out. */
export function pendingMembers(timer: PendingTimer, payload: Buffer | null): Record<string, unknown> {
  return {
    queue: timer.queue,
    timerKey: timer.timerKey,
    partition: timer.partition,
    deliverAt: formatInstant(timer.dueAtMicros),
    txn: timer.transactionId,
    messageId: timer.messageId,
    ...(payload === null ? {} : { payload: payload.toString('base64') }),
    payloadZstd: timer.payloadZstd,
    encrypted: timer.encrypted,
    producerSub: timer.producerSub,
    attempts: timer.attempts,
    lastError: timer.lastError,
    claimed: timer.claimed,
    createdAt: formatInstant(timer.createdAtMicros),
    updatedAt: formatInstant(timer.updatedAtMicros),
  };
}
