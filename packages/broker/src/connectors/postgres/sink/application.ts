/**
 * Applies the operations of a batch inside an open transaction, and finds out which messages cannot be applied.
 *
 * At first everything goes out at once, in layers (plan.ts) where the operations allow it, behind one savepoint. That is all
 * there is to do for a batch without poison. A data error sends it back to the savepoint and into strict order, where the
 * culprits are looked for: a piece of the batch that fails is undone, what stood before the failed statement is applied again,
 * the statement's own operations are halved until one is left, and the rest follows. A single operation that fails after
 * everything before it was applied is to blame, and its partition ends there. So a poison costs some log(n) statements, and
 * nothing that is good is left out for its sake.
 *
 * Constraints that are checked late are checked before the end (SET CONSTRAINTS): at the commit they would tell nothing about
 * the culprit. If that check fails although each statement went well, the search begins anew with a check after each piece.
 */
import type { SqlResult } from '../session/types.ts';
import { settle } from './all.ts';
import { classOf } from './faults.ts';
import type { Message } from './message.ts';
import type { Operation, RowOperation } from './operations.ts';
import { layeredRuns, strictRuns } from './plan.ts';
import type { Prepared } from './prepared.ts';
import { recordSet, type StatementTexts } from './statements.ts';

export interface Entry {
  readonly message: Message;
  readonly operation: Operation;
}

export interface Poison {
  readonly message: Message;
  readonly error: unknown;
}

/** How operations become statements: of a table, or the one of a `sql` sink. */
export type Writing = { readonly statement: string } | { readonly texts: StatementTexts };

/** An operation as the planner takes it, that finds back to its message. */
type Step = Operation & { readonly message: Message };

/** What a failed attempt tells: the error, and which of its steps the failed statement was for. */
interface Failure {
  readonly error: unknown;
  readonly from: number;
  readonly to: number;
}

/** One statement, and the steps that it is for. */
interface Ready {
  /** `joined`: see SqlSession.query. */
  readonly send: (joined: boolean) => Promise<SqlResult>;
  readonly from: number;
  readonly to: number;
}

/** The same on its way. */
interface Sent {
  readonly answer: Promise<SqlResult>;
  readonly from: number;
  readonly to: number;
}

/** The savepoint before all of it. */
export const BATCH = 'queen_batch';
const PIECE = 'queen_piece';
const CHECK = 'SET CONSTRAINTS ALL IMMEDIATE';

export class Application {
  readonly #session: Prepared;
  readonly #writing: Writing;
  /** By partition. */
  readonly #poisons = new Map<string, Poison>();
  #checksPieces = false;

  constructor(session: Prepared, writing: Writing) {
    this.#session = session;
    this.#writing = writing;
  }

  /**
   * Applies everything that can be; answers the first message of each partition that cannot. Behind it nothing of its partition
   * is applied. Throws what is not about the data; then the transaction is to be rolled back.
   * @param layered the operations may be put into layers
   */
  async apply(entries: readonly Entry[], layered: boolean): Promise<Poison[]> {
    const steps = entries.map(({ message, operation }): Step => ({ ...operation, message }));
    if (steps.length === 0) return [];
    const failure = await this.#attempt(BATCH, steps, layered, true);
    if (failure === null) return [];
    await (layered ? this.#piece(steps) : this.#split(steps, failure));
    if (await this.#passesChecks()) return [...this.#poisons.values()];
    await this.#undo(BATCH);
    this.#poisons.clear();
    this.#checksPieces = true;
    await this.#piece(steps);
    return [...this.#poisons.values()];
  }

  /** Sends all of it, and the check of what is checked late, without a way back. */
  send(entries: readonly Entry[], layered: boolean): Promise<SqlResult>[] {
    const steps = entries.map(({ message, operation }): Step => ({ ...operation, message }));
    const sent = this.#send(steps, layered, true);
    return [...sent.map(({ answer }) => answer), this.#session.session.query(CHECK)];
  }

  async #passesChecks(): Promise<boolean> {
    try {
      await this.#session.session.query(CHECK);
      return true;
    } catch (error) {
      if (classOf(error) !== 'data') throw error;
      return false;
    }
  }

  async #piece(steps: readonly Step[]): Promise<void> {
    const live = steps.filter(({ message }) => !this.#poisons.has(message.partitionId));
    if (live.length === 0) return;
    const failure = await this.#attempt(PIECE, live, false, this.#checksPieces);
    await this.#session.session.query(`RELEASE SAVEPOINT ${PIECE}`);
    if (failure !== null) await this.#split(live, failure);
  }

  async #split(steps: readonly Step[], { error, from, to }: Failure): Promise<void> {
    if (steps.length === 1) {
      const { message } = steps[0]!;
      this.#poisons.set(message.partitionId, { message, error });
    } else if (to - from === steps.length) {
      const middle = steps.length >> 1;
      await this.#piece(steps.slice(0, middle));
      await this.#piece(steps.slice(middle));
    } else {
      await this.#piece(steps.slice(0, from));
      await this.#piece(steps.slice(from, to));
      await this.#piece(steps.slice(to));
    }
  }

  /** Null: applied. After a data error everything is as before, and the savepoint still there. */
  async #attempt(
    savepoint: string,
    steps: readonly Step[],
    layered: boolean,
    checks: boolean,
  ): Promise<Failure | null> {
    const { session } = this.#session;
    const opened = session.query(`SAVEPOINT ${savepoint}`, [], { joined: true });
    const sent = this.#send(steps, layered, checks);
    if (checks) sent.push({ answer: session.query(CHECK), from: 0, to: steps.length });
    const { failed } = await settle([opened, ...sent.map(({ answer }) => answer)]);
    if (failed === null) return null;
    const statement = sent[failed.index - 1];
    if (statement === undefined || classOf(failed.error) !== 'data') throw failed.error;
    await this.#undo(savepoint);
    return { error: failed.error, from: statement.from, to: statement.to };
  }

  #undo(savepoint: string): Promise<SqlResult> {
    return this.#session.session.query(`ROLLBACK TO SAVEPOINT ${savepoint}`);
  }

  /** All share one Sync. @param more something is sent behind them at once, and brings it */
  #send(steps: readonly Step[], layered: boolean, more: boolean): Sent[] {
    const ready: Ready[] = [];
    let from = 0;
    for (const run of layered ? layeredRuns(steps) : strictRuns(steps)) {
      const to = from + run.length;
      if (run[0]!.kind === 'statement') {
        for (const [index, step] of run.entries()) {
          ready.push({ send: this.#statement(step), from: from + index, to: from + index + 1 });
        }
      } else for (const send of this.#changes(run)) ready.push({ send, from, to });
      from = to;
    }
    return ready.map(({ send, ...of }, index) => ({ ...of, answer: send(more || index < ready.length - 1) }));
  }

  #statement(step: Step): Ready['send'] {
    if (step.kind !== 'statement' || !('statement' in this.#writing)) throw new Error('not a statement');
    const { statement } = this.#writing;
    return (joined) => this.#session.run(statement, step.values, { textParams: true, joined });
  }

  #changes(run: readonly Step[]): Ready['send'][] {
    const first = run[0]!;
    if (!('texts' in this.#writing) || first.kind === 'statement') throw new Error('not a change of a row');
    const { texts } = this.#writing;
    if (first.kind === 'truncate') {
      const text = texts.truncate(first);
      return [(joined) => this.#session.session.query(text, [], { joined })];
    }
    const rows = run as readonly (RowOperation & Step)[];
    const sets = first.records.map((_, set) => recordSet(rows, set));
    return texts
      .of(first.kind, first.columnsOf)
      .map((text) => (joined) => this.#session.run(text, sets, { joined }));
  }
}
