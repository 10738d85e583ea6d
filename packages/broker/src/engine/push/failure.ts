/**
 * What becomes of messages that the database did not take, or that nobody gives to it now.
 *
 * After `unavailable` nothing was written, after `in doubt` the messages may be stored. Both go to the spool where there
 * is one: stored again from there they are told apart by their transactionIds. What the database refuses for what it is
 * would be refused from there too, so the producer hears of it at once.
 *
 * Without a spool, or when that does not take them either, the two kinds are never mixed up, in words neither: sending a
 * message in doubt again with the same transactionId tells (`duplicate` with its id, inside the window).
 */
import { EngineError, fromStore } from '../errors.ts';
import { sealMissing } from '../sealing.ts';
import type { Detour } from './detour.ts';
import type { Draft } from './draft.ts';

/** Monotonic counts of messages since the start. */
export interface FailureCounters {
  failedUnavailable: number;
  failedInDoubt: number;
  failedRefused: number;
  /** Kept on disk instead. */
  buffered: number;
}

export interface FailureDeps {
  /** Null: there is no spool. */
  detour: Detour | null;
  /** This broker has a key. */
  canSeal: boolean;
  log: { warn(facts: object, message: string): void; error(facts: object, message: string): void };
}

export class Failures {
  readonly counters: FailureCounters = {
    failedUnavailable: 0,
    failedInDoubt: 0,
    failedRefused: 0,
    buffered: 0,
  };
  readonly #deps: FailureDeps;

  constructor(deps: FailureDeps) {
    this.#deps = deps;
  }

  /** The draft cannot be appended: it is kept elsewhere, or answered. Never rejects. */
  async settle(draft: Draft, error: EngineError): Promise<void> {
    const { queue, partition } = draft.lane;
    if (isPassing(error) && (await this.#keep(draft, true)) === null) return;
    if (error.code !== 'encryption_required') {
      const facts = { err: error.cause ?? error, queue, partition, frames: draft.count };
      this.#deps.log.warn(facts, 'a push failed');
    }
    this.#count(error, draft.count);
    draft.failed(error);
  }

  /** The draft takes the way around without having been tried. Never rejects. */
  async divert(draft: Draft): Promise<void> {
    const error = await this.#keep(draft, false);
    if (error === null) return;
    this.#count(error, draft.count);
    draft.failed(error, error.code !== 'encryption_required');
  }

  /** Null: it is kept, and answered. */
  async #keep(draft: Draft, failed: boolean): Promise<EngineError | null> {
    const { detour, canSeal, log } = this.#deps;
    if (detour === null) return new EngineError('unavailable', 'no_spool', 'this broker has no spool');
    const encrypts = draft.place?.encrypts ?? null;
    // Kept in the clear it would be what its queue must never hold, on a disk instead of in a table.
    if (encrypts === true && !canSeal) return sealMissing();
    const { tenant, queue, partition, key } = draft.lane;
    try {
      await detour.keep({ tenant, queue, partition, key, frames: draft.frames, encrypts }, failed);
    } catch (error) {
      log.error(
        { err: error, queue, partition, frames: draft.count },
        'a push could not be kept on disk either',
      );
      return fromStore(error);
    }
    this.counters.buffered += draft.count;
    draft.buffered();
    return null;
  }

  #count(error: EngineError, messages: number): void {
    if (error.kind === 'in_doubt') this.counters.failedInDoubt += messages;
    else if (error.kind === 'refused') this.counters.failedRefused += messages;
    else this.counters.failedUnavailable += messages;
  }
}

/** It is not about the messages: they can be stored when the trouble is over. */
export function isPassing(error: EngineError): boolean {
  return error.kind !== 'refused' || error.code === 'pool' || error.code === 'database_connection';
}

export function failureText(error: EngineError): string {
  switch (error.kind) {
    case 'in_doubt':
      return `in doubt: ${error.message}; it may have been stored, send it again with the same transactionId`;
    case 'refused':
      return error.code === 'encryption_required' ? error.message : `refused: ${error.message}`;
    default:
      return `unavailable: ${error.message}; nothing was written, send it again`;
  }
}
