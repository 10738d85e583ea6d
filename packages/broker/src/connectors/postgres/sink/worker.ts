/**
 * One worker of a sink: pops a batch, applies it in one transaction, acknowledges it, with a connection of its own.
 *
 * A batch is worked on until all its partitions are settled or given back. What can be applied is committed and acknowledged
 * at once, poison or not; then the messages that failed are tried again, each alone in a transaction, with pauses in
 * between, until one side wins. Errors that are not about the data are waited out with the batch in hand as long as its lease lasts,
 * and without renewing it: a sink whose database is away lets go.
 *
 * The queue works while the target does. Behind a full batch there is probably another one, which is popped meanwhile; and
 * the queue is told of a settled batch while the next one begins. Neither takes part in the guarantee: what comes twice is
 * skipped by its progress row, whenever it comes and whoever has it.
 */
import type { Clock } from '../../../engine/clock.ts';
import { EngineError } from '../../../engine/errors.ts';
import type { BrokerFace, PopAnswer, TenantId } from '../../../engine/types.ts';
import type { StoreLog } from '../../../store/log.ts';
import { CONTENTION, delayMs, EMPTY, OUTAGE, POISON } from '../back_off.ts';
import type { SinkSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { pause } from '../pause.ts';
import type { SqlSession } from '../session/types.ts';
import { Acknowledger } from './acknowledger.ts';
import { applyBatch, type Part } from './batch.ts';
import { classOf, isContention, isOutdated, letterText, PayloadFault, withAdvice } from './faults.ts';
import { Keeper } from './keeper.ts';
import { Lane } from './lane.ts';
import { Prepared } from './prepared.ts';
import type { Progress } from './progress.ts';
import { isFinding, type Workshop } from './workshop.ts';

export interface WorkerDeps {
  readonly tenant: TenantId;
  readonly settings: SinkSettings;
  readonly broker: Pick<BrokerFace, 'pop' | 'ack' | 'extend'>;
  readonly dial: () => Promise<SqlSession>;
  readonly workshop: Workshop;
  readonly progress: Progress;
  readonly clock: Clock;
  readonly log: StoreLog;
  /** Tells what happened; see unit.ts. */
  readonly report: WorkerReport;
}

export interface WorkerReport {
  batch(applied: number, skipped: number): void;
  deadLetter(): void;
  /** It cannot work, for now. */
  failed(fault: ConnectorFault, retryInMs: number): void;
  /** It works again. */
  recovered(): void;
}

const POP_WAIT_MS = 10_000;
/** An empty answer that comes sooner was no wait. */
const AT_ONCE_MS = 5;
const NOT_NULL_VIOLATION = '23502';
const AWAITED_MS = 30_000;
const AWAITED_MAX = 10_000;
const IDLE_IN_TRANSACTION_SECONDS_MIN = 30;

/** A batch in hand. */
interface Batch {
  readonly lanes: readonly Lane[];
  /** No more would have fitted: there is probably more. */
  readonly full: boolean;
  readonly keeper: Keeper;
  readonly acknowledger: Acknowledger;
}

/** A batch that is being popped, or was and waits for its turn. */
interface Ahead {
  /** Null: nothing was there. */
  readonly fetched: Promise<Batch | null>;
  readonly asked: number;
}

export class Worker {
  readonly #deps: WorkerDeps;
  readonly #signal: AbortSignal;
  #session: Prepared | null = null;
  /** In a row. */
  #failures = 0;
  #empty = 0;
  #ahead: Ahead | null = null;
  /** Ends the pop that is under way. */
  #popping = new AbortController();
  /** By the stop. Never rejects. */
  #givenBack: Promise<void> = Promise.resolve();
  /** The queue is told of the batch before the one in hand. Never rejects. */
  #telling: Promise<void> = Promise.resolve();
  /** By partition: the update that waits for the rest of its row. */
  readonly #awaited = new Map<string, { offset: number; since: number }>();

  /** @param signal asks it to end; what it has begun is finished first */
  constructor(deps: WorkerDeps, signal: AbortSignal) {
    this.#deps = deps;
    this.#signal = signal;
    const stop = () => {
      this.#popping.abort();
      this.#givenBack = this.#letGo();
    };
    signal.addEventListener('abort', stop, { once: true });
  }

  /** Resolves when it was asked to end and has; rejects with a ConnectorFault that is not for a worker to wait out. */
  async run(): Promise<void> {
    try {
      while (!this.#signal.aborted) {
        try {
          await this.#connected();
          await this.#turn();
        } catch (error) {
          if (this.#signal.aborted) return;
          await this.#waitOut(error);
        }
      }
    } finally {
      await Promise.all([this.#letGo(), this.#givenBack, this.#telling]);
      await this.#disconnect();
    }
  }

  /** Cuts off what is under way. Never rejects. */
  async cut(): Promise<void> {
    await this.#session?.session.close();
  }

  async #turn(): Promise<void> {
    const { fetched, asked } = this.#ahead ?? this.#fetch();
    this.#ahead = null;
    const batch = await fetched;
    if (batch !== null) {
      this.#empty = 0;
      if (batch.full) this.#ahead = this.#fetch();
      await this.#work(batch);
      return;
    }
    this.#recovered();
    this.#empty = this.#deps.clock.now() - asked < AT_ONCE_MS ? this.#empty + 1 : 0;
    if (this.#empty > 0) await this.#pause(delayMs(EMPTY, this.#empty));
  }

  /** Pops the next batch, and keeps its lease from then on. */
  #fetch(): Ahead {
    const asked = this.#deps.clock.now();
    const fetched = this.#pop().then((answer) => {
      if (answer.claims.length === 0) return null;
      const batch = this.#batch(answer, asked);
      batch.keeper.resume();
      return batch;
    });
    // Whoever waits for it hears of a failure.
    fetched.catch(() => {});
    return { fetched, asked };
  }

  /** The batch that waits for its turn is given back. Never rejects. */
  async #letGo(): Promise<void> {
    if (this.#ahead === null) return;
    const { fetched } = this.#ahead;
    this.#ahead = null;
    this.#popping.abort();
    if (!this.#signal.aborted) this.#popping = new AbortController();
    const batch = await fetched.catch(() => null);
    if (batch === null) return;
    batch.keeper.pause();
    await batch.acknowledger.release(batch.lanes);
  }

  async #pop(): Promise<PopAnswer> {
    const { settings, tenant, broker } = this.#deps;
    try {
      return await broker.pop({
        tenant,
        scope: { kind: 'queue', queue: settings.queue },
        group: settings.consumerGroup,
        batch: settings.batch,
        // A source makes a partition of each row: a batch must be able to gather one message from each of hundreds.
        partitions: settings.batch,
        autoAck: false,
        waitMs: POP_WAIT_MS,
        leaseSeconds: settings.leaseSeconds,
        subscriptionMode: settings.subscriptionMode,
        subscriptionFrom: null,
        conflation: null,
        autopilot: false,
        signal: this.#popping.signal,
      });
    } catch (error) {
      throw engineFault(error);
    }
  }

  #batch(answer: PopAnswer, asked: number): Batch {
    const { settings, tenant, broker, clock } = this.#deps;
    const { leaseSeconds, consumerGroup: group } = settings;
    const extend = () =>
      broker.extend(tenant, answer.leaseId, leaseSeconds).then(({ renewed }) => renewed > 0);
    // The lease began within the call, which may have waited: at its end it has at least this long to go.
    const since = Math.max(asked, clock.now() - AT_ONCE_MS);
    const keeper = new Keeper({ clock, leaseMs: leaseSeconds * 1000, extend }, since);
    const acknowledger = new Acknowledger(
      { broker, tenant, group, clock },
      answer.leaseId,
      () => keeper.until,
    );
    const lanes = answer.claims.map((claim) => new Lane(claim));
    const full = lanes.reduce((sum, { messages }) => sum + messages.length, 0) >= settings.batch;
    return { lanes, full, keeper, acknowledger };
  }

  /** Until everything is settled or given back. Throws what is not for a worker to wait out. */
  async #work(batch: Batch): Promise<void> {
    const { lanes, keeper, acknowledger } = batch;
    try {
      while (lanes.some((lane) => !lane.done) && !this.#signal.aborted) {
        keeper.resume();
        try {
          await this.#step(batch);
          this.#recovered();
        } catch (error) {
          if (this.#signal.aborted) break;
          keeper.pause();
          await this.#waitOut(error);
          if (!keeper.held) return;
        }
      }
      await acknowledger.release(lanes.filter((lane) => !lane.done));
    } catch (error) {
      await acknowledger.release(lanes.filter((lane) => !lane.done));
      throw error;
    } finally {
      keeper.pause();
    }
  }

  async #step(batch: Batch): Promise<void> {
    const open = batch.lanes.filter((lane) => !lane.done);
    const ready = open.filter((lane) => lane.poison === null);
    if (ready.length > 0) {
      await this.#apply(
        batch,
        ready.map((lane) => ({ lane, messages: lane.messages.slice(lane.next) })),
      );
      return;
    }
    const { maxAttempts } = this.#deps.settings;
    const given = open.filter((lane) => lane.poison!.attempts >= maxAttempts && !this.#awaitsMore(lane));
    if (given.length > 0) await this.#file(batch, given);
    const suspects = open.filter((lane) => !lane.closed);
    if (suspects.length === 0) return;
    // This may take long, and others can have what waits behind it.
    await this.#letGo();
    await this.#pause(delayMs(POISON, Math.min(...suspects.map((lane) => lane.poison!.attempts))));
    for (const lane of suspects) {
      if (this.#signal.aborted) return;
      if (this.#awaitsMore(lane)) await this.#completeUpdate(batch, lane);
      else await this.#apply(batch, [{ lane, messages: lane.messages.slice(lane.next, lane.next + 1) }]);
    }
  }

  /**
   * An update that leaves large columns out, of a row that the copy does not have yet and that cannot be without them: a
   * source sends the rest soon, behind it in its partition.
   */
  #awaitsMore(lane: Lane): boolean {
    const { error } = lane.poison!;
    const { events } = this.#deps.workshop.work;
    if (events === null || !(error instanceof ConnectorFault) || error.sqlState !== NOT_NULL_VIOLATION)
      return false;
    const message = lane.messages[lane.next]!;
    if (!events.isPartial(message)) return false;
    const now = this.#deps.clock.now();
    const known = this.#awaited.get(lane.partitionId);
    if (known?.offset !== message.offset) {
      if (this.#awaited.size >= AWAITED_MAX) this.#awaited.clear();
      this.#awaited.set(lane.partitionId, { offset: message.offset, since: now });
      return true;
    }
    return now - known.since < AWAITED_MS;
  }

  async #completeUpdate(batch: Batch, lane: Lane): Promise<void> {
    const rest = lane.messages.slice(lane.next);
    const complete = this.#deps.workshop.work.events!.complete(rest);
    // Given back it comes again at once, with what has come behind it.
    if (complete === null) await batch.acknowledger.release([lane]);
    else
      await this.#apply(batch, [{ lane, messages: [complete.message, ...rest.slice(1, complete.messages)] }]);
  }

  /** One transaction and the acknowledgement of what it settled; that of a whole batch goes on behind it. */
  async #apply(batch: Batch, parts: readonly Part[]): Promise<void> {
    const { progress, workshop, report } = this.#deps;
    // The one before may have been lost in a pause.
    const session = await this.#connected();
    const outcome = await applyBatch(session, progress, workshop.work, parts);
    for (const [index, { lane }] of parts.entries()) {
      lane.next += outcome.settled[index]!;
      const poison = outcome.poisons.get(lane.partitionId);
      const before = outcome.settled[index]! > 0 ? null : lane.poison;
      lane.poison = poison === undefined ? null : tried(poison.error, before?.attempts ?? 0);
    }
    report.batch(outcome.applied, outcome.skipped);
    await this.#telling;
    const told = batch.acknowledger.completed(parts.map(({ lane }) => lane));
    if (batch.lanes.every((lane) => lane.done)) this.#telling = told;
    else await told;
  }

  async #file({ acknowledger }: Batch, lanes: readonly Lane[]): Promise<void> {
    const { settings, log, report } = this.#deps;
    const letters = lanes.map((lane) => ({ lane, reason: letterText(lane.poison!.error) }));
    for (const lane of await acknowledger.deadLetters(letters)) {
      report.deadLetter();
      const { error } = lane.poison!;
      const facts = {
        queue: settings.queue,
        partition: lane.partition,
        offset: lane.messages[lane.next]!.offset,
        sqlState: error instanceof ConnectorFault ? error.sqlState : null,
      };
      log.warn(facts, 'a message that cannot be applied was dead-lettered');
    }
  }

  /** Throws `error` itself when it is not to be waited out. */
  async #waitOut(error: unknown): Promise<void> {
    const kind = classOf(error);
    if (kind === 'fatal' || kind === 'data') throw error;
    const fault = error as ConnectorFault;
    this.#failures++;
    if (isContention(error)) {
      await this.#pause(delayMs(CONTENTION, this.#failures));
      return;
    }
    await this.#letGo();
    if (kind === 'environment' || fault.code === 'io') await this.#disconnect();
    if (kind === 'environment') {
      await this.#recheck();
      if (isOutdated(error) && this.#failures === 1) return;
    }
    const waitMs = delayMs(OUTAGE, this.#failures);
    this.#deps.report.failed(withAdvice(fault, this.#deps.settings.mode), waitMs);
    await this.#pause(waitMs);
  }

  /** Something about the table may have changed. Throws what the sink cannot go on with. */
  async #recheck(): Promise<void> {
    try {
      await this.#deps.workshop.check();
    } catch (error) {
      if (isFinding(error)) throw error;
    }
  }

  #recovered(): void {
    this.#failures = 0;
    this.#deps.report.recovered();
  }

  async #connected(): Promise<Prepared> {
    if (this.#session !== null) return this.#session;
    const { settings, dial } = this.#deps;
    const session = await dial();
    session.onClose(() => {
      if (this.#session?.session === session) this.#session = null;
    });
    const prepared = new Prepared(session, () => this.#deps.clock.now());
    try {
      await prepared.settle(Math.max(settings.leaseSeconds, IDLE_IN_TRANSACTION_SECONDS_MIN));
    } catch (error) {
      await session.close();
      throw error;
    }
    this.#session = prepared;
    return prepared;
  }

  async #disconnect(): Promise<void> {
    const session = this.#session;
    this.#session = null;
    await session?.session.close();
  }

  #pause(ms: number): Promise<void> {
    return pause(this.#deps.clock, ms, this.#signal);
  }
}

/** What cannot be read will not be readable later: that is known at the first try. */
function tried(error: unknown, before: number): Lane['poison'] {
  return { error, attempts: error instanceof PayloadFault ? Number.POSITIVE_INFINITY : before + 1 };
}

function engineFault(error: unknown): ConnectorFault {
  if (!(error instanceof EngineError)) throw error;
  const code = error.kind === 'refused' ? 'queen_refused' : 'queen';
  return new ConnectorFault(code, `the queue cannot be read: ${error.message}`, { cause: error });
}
