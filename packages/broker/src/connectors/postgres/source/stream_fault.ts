/** What ended a stream, or kept it from beginning, as a fault of the connector. */
import { InvariantError } from '../../../store/invariant.ts';
import type { SourceSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import { ProtocolViolation } from '../replication/pgoutput.ts';
import { sessionFault } from '../session/faults.ts';

/** Somebody else reads from the slot: wait for it. */
export class SlotBusy extends Error {
  constructor() {
    super('the slot is in use');
    this.name = 'SlotBusy';
  }
}

/** The source is to go through its start again. */
export class StartAgain extends Error {
  constructor(why: string) {
    super(why);
    this.name = 'StartAgain';
  }
}

const LOST = /can no longer get changes|can no longer access|has been invalidated|was invalidated/;

/** Programming errors stay what they are. */
export function streamFault(error: unknown, { slot, publication }: SourceSettings): unknown {
  if (error instanceof ProtocolViolation) {
    return new ConnectorFault('io', `protocol violation: ${error.message}`, { cause: error });
  }
  if (error instanceof StartAgain || isProgrammingError(error)) return error;
  const fault = sessionFault(error);
  const { sqlState, message, cause } = fault;
  if (sqlState === '55006') return new SlotBusy();
  if (sqlState === '55000' && LOST.test(message)) {
    return new ConnectorFault(
      'slot_invalidated',
      `PostgreSQL has dropped what slot ${slot} held (${message}): begin anew with POST …/resync`,
      { sqlState, cause },
    );
  }
  if (sqlState === '42704' && message.includes('publication')) {
    return new ConnectorFault(
      'publication',
      `publication ${publication} is younger than the slot's place in the log (${message}): begin anew with POST …/resync`,
      { sqlState, cause },
    );
  }
  if (sqlState === '42704') {
    return new ConnectorFault('slot_lost', `slot ${slot} is gone: begin anew with POST …/resync`, {
      sqlState,
      cause,
    });
  }
  // The server checks what a database in SQL_ASCII stores only when it is to be sent.
  if (sqlState === '22021') {
    return new ConnectorFault(
      'encoding',
      `a table holds a value that is not UTF-8 (${message}): repair the row, or take the table out of source.tables`,
      { sqlState, cause },
    );
  }
  if (sqlState === '42501') return new ConnectorFault('privilege', message, { sqlState, cause });
  return fault;
}

function isProgrammingError(error: unknown): boolean {
  return error instanceof TypeError || error instanceof ReferenceError || error instanceof InvariantError;
}
