/**
 * What went wrong with a batch, and what follows from it.
 *
 * `data`: a message is to blame; it is tried again a few times, then dead-lettered. `transient`: it will pass, the same batch
 * is tried again. `environment`: somebody must do something to the database first; the same batch, and never a dead letter.
 * `fatal`: the sink as a whole cannot work.
 *
 * A wrong guess has a price: a data error that is taken for one of the environment blocks a sink for all to see, the reverse
 * empties a queue into the dead letters. So whatever is not surely about the data is of the environment.
 */

import type { SinkMode } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { isPassingState } from '../session/faults.ts';

export type FaultClass = 'data' | 'transient' | 'environment' | 'fatal';

/** The mode cannot read a message; the database has not been asked. */
export class PayloadFault extends Error {
  override name = 'PayloadFault';
}

const DATA_CLASSES = new Set(['21', '22', '23', '27', '38', '39', '44', '54', 'P0']);
/** The server took the session back, as it was told. */
const IDLE_IN_TRANSACTION = '25P03';
const INSUFFICIENT_PRIVILEGE = '42501';
/** Fights over rows, which are over when the other one is done. */
const CONTENTION = new Set(['40001', '40P01']);
/** The statement does not fit the table any more. */
const OUTDATED = new Set(['0A000', '42703', '42704', '42804', '26000', '42P10']);

export function classOf(error: unknown): FaultClass {
  if (error instanceof PayloadFault) return 'data';
  if (!(error instanceof ConnectorFault)) return 'fatal';
  if (error.code === 'io' || error.code === 'queen') return 'transient';
  if (error.code !== 'postgres') return 'fatal';
  const state = error.sqlState;
  if (state === null) return error.retry === 'backoff' ? 'transient' : 'environment';
  if (DATA_CLASSES.has(state.slice(0, 2))) return 'data';
  return isPassingState(state) || state === IDLE_IN_TRANSACTION ? 'transient' : 'environment';
}

export function isContention(error: unknown): boolean {
  return error instanceof ConnectorFault && CONTENTION.has(error.sqlState ?? '');
}

/** Worth one more try at once, after the table has been read again. */
export function isOutdated(error: unknown): boolean {
  return error instanceof ConnectorFault && OUTDATED.has(error.sqlState ?? '');
}

const RIGHTS: Readonly<Record<SinkMode, string>> = {
  append: 'INSERT on the table',
  upsert: 'SELECT, INSERT and UPDATE on the table',
  cdc: 'SELECT, INSERT, UPDATE and DELETE on the table, and TRUNCATE if truncates come',
  sql: 'what its statement needs',
};

/** A server that refuses names the table and not the right: which ones it takes follows from the mode. */
export function withAdvice(fault: ConnectorFault, mode: SinkMode): ConnectorFault {
  const { code, message, retry, sqlState } = fault;
  if (sqlState !== INSUFFICIENT_PRIVILEGE) return fault;
  const advice = `the role of mode ${mode} needs ${RIGHTS[mode]}, without a row-level policy in the way`;
  return new ConnectorFault(code, `${message}: ${advice}`, { retry, sqlState, cause: fault });
}

const LETTER_CHARACTERS_MAX = 2000;

/** What stands in the dead letter. It may quote values of the row, which is what its reader needs. */
export function letterText(error: unknown): string {
  if (error instanceof PayloadFault) return cut(`payload: ${error.message}`);
  const fault = error as ConnectorFault;
  const said = fault.cause as { message?: unknown; detail?: unknown } | undefined;
  const message = typeof said?.message === 'string' ? said.message : fault.message;
  const detail = typeof said?.detail === 'string' && said.detail !== '' ? ` (${said.detail})` : '';
  return cut(`${fault.sqlState ?? 'error'}: ${message}${detail}`);
}

function cut(text: string): string {
  if (text.length <= LETTER_CHARACTERS_MAX) return text;
  const short = text.slice(0, LETTER_CHARACTERS_MAX);
  // Not in the middle of a pair of surrogates.
  return /[\uD800-\uDBFF]$/.test(short) ? short.slice(0, -1) : short;
}
