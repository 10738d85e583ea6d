/**
 * Moments at which a test may let things go wrong: between a commit and the answer to it, where an accident
 * happens once in a long life and has to be right all the same. In production nothing is here: without a hook, which
 * only something loaded before the broker can leave behind, a point is a call of an empty function.
 */
export type FaultPoint =
  /** Partitions exist, nothing is in them yet. */
  | 'push.provisioned'
  /** A bundle is decided and what was new of it committed; nobody has been told. */
  | 'push.stored'
  /** Leases (or commits at delivery) are in the database; the messages have not left. */
  | 'pop.claimed'
  /** Cursors have moved; the dead letters that were asked for are still to be handed off. */
  | 'ack.decided'
  /** A dead letter is in its table. */
  | 'ack.handed_off'
  /** Everything of a transaction is written, nothing committed. */
  | 'transaction.written'
  /** A transaction is committed; nobody has been told. */
  | 'transaction.committed'
  /** Messages are on this broker's disk; nobody has been told. */
  | 'spool.kept'
  /** Messages of the spool are in the log, or the database said why not; the disk does not know yet. */
  | 'spool.stored'
  /** Timers are scheduled or cancelled; the caller has not been told. */
  | 'timers.applied'
  /** Due timers are claimed; nothing is fired yet. */
  | 'timers.claimed'
  /** Their messages are in the log and their rows gone; nobody has been told. */
  | 'timers.fired'
  /** A slot of a source exists, its first pointer does not. */
  | 'source.slot_created'
  /** Messages of a source and their pointer are committed; the upstream has not been told. */
  | 'source.committed'
  /** A sink has written rows and progress, and committed nothing. */
  | 'sink.written'
  /** They are committed in the target; the queue does not know. */
  | 'sink.committed';

export type FaultHook = (point: FaultPoint) => void;

const FAULT_HOOK = Symbol.for('queen.fault-hook');
const hook = (globalThis as Record<symbol, unknown>)[FAULT_HOOK] as FaultHook | undefined;

export const buggify: FaultHook = hook ?? (() => {});
