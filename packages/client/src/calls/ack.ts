import type { AckResult, MessageRef, Outcome } from '../message.ts';
import type { CallOptions, Transport } from '../wire/transport.ts';
import { segment } from '../wire/transport.ts';
import { originOf } from './pop.ts';

/** One message and what became of it. */
export interface Ack {
  readonly message: MessageRef;
  readonly outcome: Outcome;
  /** Why it failed; the reason of a dead letter. */
  readonly error?: string | undefined;
}

/** Reasons are for people; a stack of a megabyte is not. */
const REASON_CHARACTERS_MAX = 8_192;

/**
 * Acks in one call for each group, in the order given. Repeated until it is answered: a repeated completion changes nothing. An
 * instruction that the broker did not carry out is a result with `success: false`, not an error.
 */
export async function acknowledge(
  transport: Transport,
  acks: readonly Ack[],
  options: CallOptions = {},
): Promise<AckResult[]> {
  const results: AckResult[] = new Array(acks.length);
  const byGroup = new Map<string | undefined, number[]>();
  acks.forEach(({ message }, at) => {
    const places = byGroup.get(message.consumerGroup);
    if (places === undefined) byGroup.set(message.consumerGroup, [at]);
    else places.push(at);
  });
  for (const [consumerGroup, places] of byGroup) {
    const { body } = await transport.call<AckResult[]>({
      method: 'POST',
      path: '/api/v1/ack/batch',
      body: { consumerGroup, acknowledgments: places.map((at) => wireOf(acks[at]!)) },
      affinity: originOf(acks[places[0]!]!.message),
      repeatable: true,
      signal: options.signal,
    });
    places.forEach((at, index) => {
      results[at] = body[index]!;
    });
  }
  return results;
}

function wireOf({ message, outcome, error }: Ack): Record<string, unknown> {
  const { transactionId, partitionId, leaseId } = message;
  return {
    transactionId,
    partitionId,
    status: outcome,
    ...(leaseId === undefined || leaseId === '' ? {} : { leaseId }),
    ...(error === undefined ? {} : { error: error.slice(0, REASON_CHARACTERS_MAX) }),
  };
}

/**
 * Makes a lease last for at least so long from now on, never shorter than it does.
 *
 * @param seconds 1 and up
 * @returns when it ends now, or null when it is over already
 */
export async function extendLease(
  transport: Transport,
  leaseId: string,
  seconds: number,
  options: CallOptions & { affinity?: string; timeoutMs?: number } = {},
): Promise<Date | null> {
  const { body } = await transport.call<{ success: boolean; newExpiresAt: string | null }>({
    method: 'POST',
    path: `/api/v1/lease/${segment(leaseId)}/extend`,
    body: { seconds },
    repeatable: true,
    signal: options.signal,
    timeoutMs: options.timeoutMs,
    ...(options.affinity === undefined ? {} : { affinity: options.affinity }),
  });
  return body.success && body.newExpiresAt !== null ? new Date(body.newExpiresAt) : null;
}
