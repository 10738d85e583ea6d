/** From a message of a `sql` sink to the parameters of its statement. */
import { PayloadFault } from './faults.ts';
import { createdAtText, type Message } from './message.ts';
import type { StatementOperation } from './operations.ts';
import { type Fact, type ParamPath, parsePath, valueAt } from './paths.ts';

export class StatementReader {
  readonly #params: readonly ParamPath[];

  /** @param params paths as the document has them, which were parsed before */
  constructor(params: readonly string[]) {
    this.#params = params.map((text) => {
      const path = parsePath(text);
      if (typeof path === 'string') throw new Error(`path ${text} ${path}`);
      return path;
    });
  }

  /** Throws PayloadFault. */
  read(message: Message): StatementOperation {
    const values = this.#params.map((path, index) => {
      const value = 'fact' in path ? factOf(message, path.fact) : valueAt(message.payload, path.steps);
      const odd = value === null ? null : oddIn(value);
      if (odd !== null) {
        throw new PayloadFault(
          `the value of parameter ${index + 1} holds ${odd}, which no text of the database can`,
        );
      }
      return value;
    });
    const bytes = values.reduce((sum, value) => sum + (value?.length ?? 0), 0);
    return { kind: 'statement', shape: '', keys: [], bytes, values };
  }
}

/** What the database would refuse, or would get as U+FFFD without a word. */
function oddIn(value: string): string | null {
  if (value.includes('\u0000')) return '\\u0000';
  return value.isWellFormed() ? null : 'half of a surrogate pair';
}

function factOf(message: Message, fact: Fact): string {
  switch (fact) {
    case '@partition':
      return message.partition;
    case '@partitionId':
      return message.partitionId;
    case '@offset':
      return String(message.offset);
    case '@transactionId':
      return message.transactionId;
    default:
      return createdAtText(message);
  }
}
