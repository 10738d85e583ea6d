/**
 * How a bundle gets into the queues, exactly once.
 *
 * THE ARGUMENT. A bundle is one transaction of the store: its messages, and the pointer that says how far into the upstream
 * they reach. The pointer is written under the condition that it still has the version that this owner read or wrote
 * last. From that follow three things.
 *
 * 1. Two owners cannot both append after one pointer. The row of the pointer puts their transactions in order; the second
 *    one finds another version, and all of it rolls back, messages included.
 * 2. What the pointer covers is in the queues, and what it does not cover is not: both became true in one commit.
 * 3. The slot is confirmed only up to a pointer that is committed, so whatever is missing can be sent again by the
 *    upstream. Whatever is sent again and is covered is dropped (filter.ts).
 *
 * So it does not matter when a process dies, how often a transaction is sent, or how many believe that they own the
 * source. Neither the lease nor a clock nor the window of the deduplication is part of this. The ids of messages are
 * made from positions in the log and are the same each time, so the deduplication is a second net.
 *
 * IN DOUBT. A commit whose answer was lost is neither assumed nor repeated blindly: the pointer is read. It says what this
 * bundle would have said: committed, go on. It still has the version that the bundle expected: not applied, send the same
 * bundle again. (If the lost transaction is still about to commit, it holds the row, and the repetition waits for it, finds
 * another version, and reads again.) Anything else: somebody else is the owner now.
 *
 * AHEAD. While a bundle is being committed, the messages of the one behind it are hashed and packed. Its transaction begins when
 * the outcome of the one before is known, under the condition of the version that this one wrote: nothing of the argument
 * changes, the processor merely does not wait for the disk.
 *
 * REJECTED. To carry the lease in each bundle as well: one more contended row, and it would prove nothing that the version
 * of the pointer does not. To keep the position in the upstream, beside the slot: it would commit apart from the
 * messages, which is the bug that this design is there to exclude. To rely on the window of the deduplication alone: an
 * outage that is longer than the window would write everything of it twice.
 */
import type { Clock } from '../../../engine/clock.ts';
import { EngineError } from '../../../engine/errors.ts';
import type { KvOperation } from '../../../engine/kv/operations.ts';
import type {
  Refusal,
  TransactionAnswer,
  TransactionOperation,
  TransactionRequest,
} from '../../../engine/transaction/types.ts';
import type { BrokerFace, TenantId } from '../../../engine/types.ts';
import { buggify } from '../../../observability/buggify.ts';
import { delayMs, STORE } from '../back_off.ts';
import { ConnectorFault } from '../fault.ts';
import { instantNow } from '../instants.ts';
import type { Bundle } from './bundler.ts';
import { assertFollows, type Pointer, parsePointer, renderPointer, samePlace } from './pointer.ts';
import { NAMESPACE, queenFault, type SourceState } from './state.ts';
import { type Pause, stopped } from './time.ts';

interface CommitterOptions {
  readonly broker: Pick<BrokerFace, 'transaction'>;
  readonly state: Pick<SourceState, 'read'>;
  readonly tenant: TenantId;
  readonly key: string;
  readonly clock: Clock;
  /** Waits between two tries. */
  readonly pause: Pause;
  /** Of the connection that the bundles come from. */
  readonly system: { readonly systemId: string; readonly timeline: number };
}

/** The transaction of the bundle that comes next, which waits to be told the pointer. */
interface Ahead {
  readonly bundle: Bundle;
  readonly answer: Promise<TransactionAnswer>;
  tell(kv: readonly KvOperation[]): void;
  forget(): void;
}

/** A bundle that is not in after so long is given up, and the upstream's connection with it. */
const STALLED_MS = 60_000;
const CONFLICTS_MAX = 3;

export class Committer {
  readonly #options: CommitterOptions;
  #pointer: Pointer;
  #version: number;
  #ahead: Ahead | null = null;

  constructor(options: CommitterOptions, pointer: Pointer, version: number) {
    this.#options = options;
    this.#pointer = pointer;
    this.#version = version;
  }

  /** What is committed. */
  get pointer(): Pointer {
    return this.#pointer;
  }

  /**
   * This bundle is committed after the one under way: its messages are packed meanwhile. Nothing of it is written before its
   * {@link commit}, which must follow unless {@link forget} does.
   */
  prepare(bundle: Bundle): void {
    if (this.#ahead !== null) return;
    const { promise, resolve, reject } = Promise.withResolvers<readonly KvOperation[]>();
    const answer = this.#options.broker.transaction({ ...this.#request(bundle), kvLater: promise });
    answer.catch(() => {});
    this.#ahead = { bundle, answer, tell: resolve, forget: () => reject(stopped()) };
  }

  /** What was prepared is not committed any more. */
  forget(): void {
    this.#ahead?.forget();
    this.#ahead = null;
  }

  /**
   * Resolves when it is in. Throws ConnectorFault: `fenced`, `duplicate`, `queen_refused`, `queen` when the store was away for
   * too long, or what the pause throws. One at a time.
   */
  async commit(bundle: Bundle): Promise<void> {
    const next = this.#after(bundle);
    const { clock, pause } = this.#options;
    const deadline = clock.now() + STALLED_MS;
    for (let conflicts = 0, attempts = 1; ; attempts++) {
      const outcome = await this.#attempt(bundle, next, deadline);
      if (outcome === 'committed') break;
      if (outcome === 'conflict' && ++conflicts > CONFLICTS_MAX) throw fenced();
      if (outcome !== 'conflict') conflicts = 0;
      const backOffMs = delayMs(STORE, attempts);
      if (clock.now() + backOffMs > deadline) {
        throw new ConnectorFault('queen', 'the broker could not store anything for a minute');
      }
      await pause(typeof outcome === 'object' ? outcome.waitMs : backOffMs);
    }
    this.#pointer = next;
    // The upstream still believes that nothing of it arrived.
    buggify('source.committed');
  }

  #after({ place }: Bundle): Pointer {
    const { system } = this.#options;
    const next = { ...this.#pointer, ...system, ...place, updatedAt: instantNow() };
    assertFollows(this.#pointer, next);
    return next;
  }

  /** `again`: not applied, it may be sent once more. */
  async #attempt(
    bundle: Bundle,
    next: Pointer,
    deadline: number,
  ): Promise<'committed' | 'again' | 'conflict' | { waitMs: number }> {
    try {
      const answer = await this.#send(bundle, next, deadline);
      if (!answer.success) return await this.#refused(answer.refusal, bundle, next);
      const written = answer.kv[0];
      if (written === undefined || !('version' in written))
        throw new ConnectorFault('queen', 'no version came');
      this.#version = written.version;
      return 'committed';
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      if (error.kind === 'overloaded') return { waitMs: (error.retryAfterSeconds ?? 1) * 1_000 };
      if (error.kind === 'unavailable') return 'again';
      if (error.kind === 'refused') throw lasting(error.message, null, bundle);
      return this.#look(next);
    }
  }

  async #send(bundle: Bundle, next: Pointer, deadline: number) {
    const { broker, key, clock } = this.#options;
    const pointer: KvOperation = {
      op: 'put',
      ns: NAMESPACE,
      key,
      value: renderPointer(next),
      life: null,
      expect: this.#version,
      required: true,
    };
    let sent: Promise<TransactionAnswer>;
    const ahead = this.#ahead;
    if (ahead?.bundle === bundle) {
      this.#ahead = null;
      ahead.tell([pointer]);
      sent = ahead.answer;
    } else sent = broker.transaction({ ...this.#request(bundle), kv: [pointer] });
    // A call that hangs must not keep the upstream waiting: whoever comes next reads how it ended.
    let expired: (() => void) | null = null;
    const timer = clock.after(Math.max(0, deadline - clock.now()), () => expired?.());
    const stalled = new Promise<never>((_, reject) => {
      expired = () =>
        reject(new ConnectorFault('queen', 'the broker has not stored a bundle within a minute'));
    });
    try {
      return await Promise.race([sent, stalled]);
    } finally {
      timer.cancel();
      sent.catch(() => {});
    }
  }

  #request({ messages }: Bundle): TransactionRequest {
    return {
      tenant: this.#options.tenant,
      origin: 'connector',
      operations: messages.map((item): TransactionOperation => ({ type: 'push', item })),
      kv: [],
      timers: [],
      requiredLeases: [],
      producerSub: null,
    };
  }

  async #refused(refusal: Refusal, bundle: Bundle, next: Pointer): Promise<'committed' | 'conflict'> {
    const { reason, error, failedIndex } = refusal;
    if (reason !== 'kv_precondition' && reason !== 'duplicate') throw lasting(error, failedIndex, bundle);
    const outcome = await this.#look(next);
    if (outcome === 'committed') return outcome;
    if (reason === 'kv_precondition') return 'conflict';
    const id = failedIndex === null ? undefined : bundle.messages[failedIndex]?.transactionId;
    throw new ConnectorFault(
      'duplicate',
      `${id === undefined ? 'a message' : `message ${id}`} is stored already although the source's pointer does not cover it: it was pushed by somebody else, or the pointer was set back`,
    );
  }

  /** Asks the pointer how it ended. Throws `fenced`, and `queen` when there is no answer. */
  async #look(next: Pointer): Promise<'committed' | 'again'> {
    const { state, key, pause } = this.#options;
    let found: Awaited<ReturnType<typeof state.read>>;
    for (let attempt = 1; ; attempt++) {
      try {
        found = await state.read(key);
        break;
      } catch (error) {
        if (attempt >= LOOKS_MAX) throw queenFault(error);
        await pause(delayMs(STORE, attempt));
      }
    }
    if (found === null) throw fenced();
    if (found.version === this.#version) return 'again';
    if (!samePlace(parsePointer(found.value), next)) throw fenced();
    this.#version = found.version;
    return 'committed';
  }
}

/** With the pauses between them about half a minute. */
const LOOKS_MAX = 12;

function fenced(): ConnectorFault {
  return new ConnectorFault('fenced', 'another owner has moved the pointer: this one stops');
}

function lasting(why: string, failedIndex: number | null, { messages }: Bundle): ConnectorFault {
  const message = failedIndex === null ? undefined : messages[failedIndex];
  const which =
    message === undefined
      ? ''
      : ` (queue ${message.queue}, partition ${message.partition}, ${message.payload.length} bytes)`;
  return new ConnectorFault(
    'queen_refused',
    `the broker refuses a bundle: ${why}${which}. Nothing is skipped: it is tried again`,
  );
}
