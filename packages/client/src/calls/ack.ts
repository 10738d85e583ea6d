import { InDoubtError, OverloadedError, RefusedError, UnavailableError } from '../errors.ts';
import type { AckResult, MessageRef, Outcome } from '../message.ts';
import { pauseMs } from '../wire/backoff.ts';
import { pause } from '../wire/signals.ts';
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

/** How often the broker is asked again for what it could not write, and how far apart. */
export interface AckRounds {
  readonly retries: number;
  readonly baseMs: number;
  readonly maxMs: number;
  /** Also when a call fails in a way that passes, until the signal fires. */
  readonly lasting: boolean;
}

/**
 * What the broker says of an instruction that it could not write; after the second nobody knows whether it did. A result has no code
 * beside these words, which are part of the interface (docs/http.md) and do not change.
 */
const NO_CONNECTION = 'pool';
const WRITE_FAILED = 'ack flush failed; lease will expire and redeliver';

/** Some instructions were not carried out: the lease was over, or the message is not known. `results` has all, in order. */
export class AckError extends RefusedError {
  readonly results: readonly AckResult[];

  constructor(results: readonly AckResult[]) {
    super(sentenceFor(results), { code: 'ack_refused' });
    this.results = results;
  }
}

/**
 * Some instructions were not carried out when they were repeated after an answer had got lost: the lost one may have carried them
 * out, which ends a lease. `results` has all, in order.
 */
export class AckInDoubtError extends InDoubtError {
  readonly results: readonly AckResult[];

  constructor(results: readonly AckResult[]) {
    super(`${sentenceFor(results)} (an earlier try may have been carried out)`, { code: 'ack_in_doubt' });
    this.results = results;
  }
}

function sentenceFor(results: readonly AckResult[]): string {
  const failed = results.filter(({ success }) => !success);
  const why = failed[0]?.error ?? 'unknown';
  return `${failed.length} of ${results.length} acks were not carried out: ${why}`;
}

/** The error for results of which some are no success; null when all are. */
export function ackErrorOf(results: readonly AckResult[]): AckError | AckInDoubtError | null {
  if (results.every(({ success }) => success)) return null;
  return results.some(({ inDoubt }) => inDoubt === true)
    ? new AckInDoubtError(results)
    : new AckError(results);
}

/** Reasons are for people; a stack of a megabyte is not. */
const REASON_CHARACTERS_MAX = 8_192;

/**
 * Acks in one call for each group, in the order given. An instruction that the broker did not carry out is a result with
 * `success: false`, not an error.
 *
 * @throws QueenError when a call fails, but for those that `rounds.lasting` outlasts
 */
export async function acknowledge(
  transport: Transport,
  acks: readonly Ack[],
  rounds: AckRounds,
  options: CallOptions = {},
): Promise<AckResult[]> {
  const results: AckResult[] = new Array(acks.length);
  const byGroup = new Map<string | undefined, number[]>();
  acks.forEach(({ message }, at) => {
    const places = byGroup.get(message.consumerGroup);
    if (places === undefined) byGroup.set(message.consumerGroup, [at]);
    else places.push(at);
  });
  for (const [group, places] of byGroup) {
    const own = places.map((at) => acks[at]!);
    const answers = await ofGroup(transport, group, own, rounds, options.signal);
    answers.forEach((answer, index) => {
      results[places[index]!] = answer;
    });
  }
  return results;
}

async function ofGroup(
  transport: Transport,
  group: string | undefined,
  acks: readonly Ack[],
  rounds: AckRounds,
  signal: AbortSignal | undefined,
): Promise<AckResult[]> {
  const results: AckResult[] = new Array(acks.length);
  let open = acks.map((_, at) => at);
  let doubt = false;
  for (let round = 0; ; round++) {
    const due = open.map((at) => acks[at]!);
    try {
      const { repeated, results: answers } = await send(transport, group, due, signal);
      doubt ||= repeated;
      answers.forEach((answer, index) => {
        const inDoubt = !answer.success && (doubt || answer.error === WRITE_FAILED);
        results[open[index]!] = inDoubt ? { ...answer, inDoubt } : answer;
      });
      doubt ||= answers.some(({ error }) => error === WRITE_FAILED);
    } catch (error) {
      if (!rounds.lasting || !isPassing(error)) throw error;
      if (error instanceof InDoubtError) doubt = true;
    }
    open = open.filter((at) => isUnwritten(results[at]));
    if (open.length === 0 || round >= rounds.retries) return results;
    await pause(pauseMs(rounds, round), signal);
  }
}

async function send(
  transport: Transport,
  consumerGroup: string | undefined,
  acks: readonly Ack[],
  signal: AbortSignal | undefined,
): Promise<{ repeated: boolean; results: AckResult[] }> {
  const { status, body, repeated } = await transport.call<AckResult[]>({
    method: 'POST',
    path: '/api/v1/ack/batch',
    body: { consumerGroup, acknowledgments: acks.map(wireOf) },
    affinity: originOf(acks[0]!.message),
    // A completion changes nothing the second time, and everything else ends the lease without which it is not carried out.
    repeatable: acks.every(({ message, outcome }) => outcome === 'completed' || isLeased(message)),
    signal,
  });
  if (!Array.isArray(body) || body.length !== acks.length) {
    const facts = { code: 'misaligned', status, body };
    throw new InDoubtError(`an ack of ${acks.length} messages has another number of results`, facts);
  }
  return { repeated, results: body };
}

/** Whether it is worth asking again: there was no answer, or none of the cursor, the lease or the budget. */
function isUnwritten(result: AckResult | undefined): boolean {
  return result === undefined || result.error === NO_CONNECTION || result.error === WRITE_FAILED;
}

function isPassing(error: unknown): boolean {
  return (
    error instanceof UnavailableError || error instanceof InDoubtError || error instanceof OverloadedError
  );
}

function isLeased({ leaseId }: MessageRef): boolean {
  return leaseId !== undefined && leaseId !== '';
}

function wireOf({ message, outcome, error }: Ack): Record<string, unknown> {
  const { transactionId, partitionId, leaseId } = message;
  return {
    transactionId,
    partitionId,
    status: outcome,
    ...(isLeased(message) ? { leaseId } : {}),
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
