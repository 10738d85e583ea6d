/** One transaction in the target: lock the progress, skip what is done, apply the rest, raise the progress, commit. */
import { buggify } from '../../../observability/buggify.ts';
import { ConnectorFault } from '../fault.ts';
import { all, settle } from './all.ts';
import { Application, BATCH, type Entry, type Poison } from './application.ts';
import { classOf, PayloadFault } from './faults.ts';
import type { Lane } from './lane.ts';
import type { Message } from './message.ts';
import type { Prepared } from './prepared.ts';
import type { Progress } from './progress.ts';
import type { Work } from './work.ts';

/** A lane and the messages of it that are to be applied now: the next ones, in order. */
export interface Part {
  readonly lane: Lane;
  readonly messages: readonly Message[];
}

export interface Outcome {
  /** How many messages of each part are settled: applied, or applied before. */
  readonly settled: readonly number[];
  readonly applied: number;
  readonly skipped: number;
  /** By partition id: the message behind the settled ones cannot be applied. */
  readonly poisons: ReadonlyMap<string, Poison>;
}

/**
 * Throws what is not about the data; then nothing was applied, unless the connection was lost at the commit, and the session
 * may be used again if it still lives.
 */
export async function applyBatch(
  session: Prepared,
  progress: Progress,
  work: Work,
  parts: readonly Part[],
): Promise<Outcome> {
  session.tidy();
  try {
    return await transaction(session, progress, work, parts);
  } catch (error) {
    await session.session.query('ROLLBACK').catch(() => {});
    throw error;
  }
}

/** A batch that was begun: its progress is locked, its messages are read. */
interface Begun {
  readonly done: ReadonlyMap<string, number>;
  readonly entries: readonly Entry[];
  /** What cannot be read, by partition id. */
  readonly poisons: Map<string, Poison>;
}

/**
 * First in the hope that nothing is wrong: the rows, the progress and the commit leave in one go. An error about the data undoes
 * it all, and the batch begins again with savepoints, to find out whose it is.
 */
async function transaction(
  session: Prepared,
  progress: Progress,
  work: Work,
  parts: readonly Part[],
): Promise<Outcome> {
  let begun = await begin(session, progress, work, parts);
  const application = new Application(session, work.writing);
  // A statement that is not ours is looked at before the commit.
  if (!work.foreign && begun.entries.length > 0) {
    const outcome = outcomeOf(parts, begun.done, begun.poisons);
    const sent = application.send(begun.entries, work.layered);
    const raised = progress.advance(session, reachedBy(parts, outcome));
    buggify('sink.written');
    // Behind a statement that failed a COMMIT is a rollback, and answers without an error: the first failure counts.
    const { failed } = await settle([...sent, raised, session.session.query('COMMIT')]);
    if (failed === null) {
      buggify('sink.committed');
      return outcome;
    }
    if (failed.index >= sent.length || classOf(failed.error) !== 'data') throw failed.error;
    begun = await begin(session, progress, work, parts);
  }
  for (const poison of await application.apply(begun.entries, work.layered)) {
    begun.poisons.set(poison.message.partitionId, poison);
  }
  const outcome = outcomeOf(parts, begun.done, begun.poisons);
  await commit(session, progress, work, parts, outcome);
  return outcome;
}

async function begin(
  session: Prepared,
  progress: Progress,
  work: Work,
  parts: readonly Part[],
): Promise<Begun> {
  const ordered = [...parts].sort((a, b) => Number(a.lane.partitionId) - Number(b.lane.partitionId));
  const done = await progress.begin(
    session,
    ordered.map(({ lane }) => lane),
  );
  const poisons = new Map<string, Poison>();
  const entries: Entry[] = [];
  for (const { lane, messages } of ordered) {
    const last = done.get(lane.partitionId)!;
    const left = messages.filter(({ offset }) => offset > last);
    const poison = readAll(left, work, entries);
    if (poison !== null) poisons.set(lane.partitionId, poison);
  }
  return { done, entries, poisons };
}

/** Adds what the messages do, up to the first one that cannot be read. */
function readAll(messages: readonly Message[], work: Work, entries: Entry[]): Poison | null {
  let offset = -1;
  for (const message of messages) {
    // The same message twice in one batch.
    if (message.offset <= offset) continue;
    offset = message.offset;
    try {
      entries.push({ message, operation: work.reader.read(message) });
    } catch (error) {
      if (!(error instanceof PayloadFault)) throw error;
      return { message, error };
    }
  }
  return null;
}

function outcomeOf(
  parts: readonly Part[],
  done: ReadonlyMap<string, number>,
  poisons: ReadonlyMap<string, Poison>,
): Outcome {
  let applied = 0;
  let skipped = 0;
  const settled = parts.map(({ lane, messages }) => {
    const stop = poisons.get(lane.partitionId)?.message.offset ?? Number.POSITIVE_INFINITY;
    const last = done.get(lane.partitionId)!;
    const good = messages.filter(({ offset }) => offset < stop).length;
    const before = messages.filter(({ offset }) => offset <= last).length;
    skipped += before;
    applied += good - before;
    return good;
  });
  return { settled, applied, skipped, poisons };
}

/** How far each partition is applied with it. */
function reachedBy(parts: readonly Part[], { settled }: Outcome) {
  return parts.flatMap(({ lane, messages }, index) => {
    const last = messages[settled[index]! - 1];
    return last === undefined
      ? []
      : [{ partitionId: lane.partitionId, partition: lane.partition, offset: last.offset }];
  });
}

async function commit(
  session: Prepared,
  progress: Progress,
  work: Work,
  parts: readonly Part[],
  outcome: Outcome,
): Promise<void> {
  if (work.foreign && outcome.applied > 0) await assertInTransaction(session);
  const raised = outcome.applied > 0 ? [progress.advance(session, reachedBy(parts, outcome))] : [];
  if (raised.length > 0) buggify('sink.written');
  await all([...raised, session.session.query('COMMIT')]);
  buggify('sink.committed');
}

/** Outside of a transaction there is no savepoint, in another one there is none of this name. */
const LEFT = new Set(['25P01', '3B001']);

/** What others wrote must have left the transaction open, and at its level. */
async function assertInTransaction({ session }: Prepared): Promise<void> {
  const broken = new ConnectorFault(
    'statement',
    'sink.statement ended the transaction of the sink, or changed its isolation: it must do neither',
  );
  try {
    const [, level] = await all([
      session.query(`RELEASE SAVEPOINT ${BATCH}`),
      session.query("SELECT pg_catalog.current_setting('transaction_isolation')"),
    ]);
    if (level!.rows[0]![0] !== 'read committed') throw broken;
  } catch (error) {
    throw error instanceof ConnectorFault && LEFT.has(error.sqlState ?? '') ? broken : error;
  }
}
