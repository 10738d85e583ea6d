/**
 * Payloads of queues that encrypt: sealed on their way into the log, opened on their way out.
 *
 * The invariant: what such a queue holds is never in the clear. The argument: a segment is stored only under the lock of
 * its partition's row, where the procedure reads what the queue wants now; whoever appends seals by what it remembers,
 * says whether it did, and is sent back when that was not enough. So a broker that remembers wrongly, or that has no
 * key, costs a round trip or an answer `encryption_required`, and never a row in the clear.
 *
 * The other way round nothing is refused: a payload that no key of ours opens is delivered as it is stored. A consumer
 * that cannot read a message can still pass it by, and a partition that stood still for it would lose more.
 */
import { openPayload, type SealingKey, sealPayload } from '../log/envelope.ts';
import type { Database } from '../store/database.ts';
import type { StoreLog } from '../store/log.ts';
import { sealedQueue } from '../store/queues.ts';
import type { Clock } from './clock.ts';
import { EngineError, refused } from './errors.ts';

const WARN_EVERY_MS = 60_000;

/** Throws the EngineError `encryption_required` when a queue encrypts: a broker without a key is of no use to it. */
export async function refuseSealedQueues(db: Database): Promise<void> {
  const name = await sealedQueue(db);
  if (name === null) return;
  throw new EngineError(
    'refused',
    'encryption_required',
    `queue ${JSON.stringify(name)} is encrypted: start with its QUEEN_ENCRYPTION_KEY (64 hex digits)`,
  );
}

/** What a writer hears whose queue encrypts, from a broker without a key. */
export function sealMissing(): EngineError {
  return refused(
    'encryption_required',
    'encryption_required: the queue stores encrypted payloads and this broker has no QUEEN_ENCRYPTION_KEY',
  );
}

export class Sealing {
  /** Null: this broker has no key. */
  readonly seal: ((payload: Buffer) => Buffer) | null;
  /** Payloads that were handed out as their envelope, since no key of ours opens them. */
  unopened = 0;
  readonly #key: SealingKey | null;
  readonly #log: StoreLog;
  readonly #clock: Clock;
  #warnedAt = Number.NEGATIVE_INFINITY;

  constructor(key: SealingKey | null, log: StoreLog, clock: Clock) {
    this.#key = key;
    this.#log = log;
    this.#clock = clock;
    this.seal = key === null ? null : (payload) => sealPayload(key, payload);
  }

  /** A payload that its frame calls sealed. The envelope itself when no key of ours opens it; counted and told. */
  readonly open = (payload: Buffer): Buffer => {
    const opened = this.openOurs(payload);
    if (opened !== null) return opened;
    this.unopened++;
    const now = this.#clock.now();
    if (now - this.#warnedAt >= WARN_EVERY_MS) {
      this.#warnedAt = now;
      const facts = { unopened: this.unopened, key: this.#key !== null };
      this.#log.error(facts, 'sealed payloads that this key does not open are delivered sealed');
    }
    return payload;
  };

  /** For what does not say whether it is sealed: null when it is not, or not by this key. */
  readonly openOurs = (payload: Buffer): Buffer | null =>
    this.#key === null ? null : openPayload(this.#key, payload);
}
