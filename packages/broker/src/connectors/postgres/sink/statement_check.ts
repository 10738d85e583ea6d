/** Whether the statement of a `sql` sink can be run once per message, inside a transaction that is not its own. */
import type { SinkSettings } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import type { SqlSession } from '../session/types.ts';

/** Words that begin what would end our transaction, or speak another protocol. */
const FORBIDDEN =
  /^(?:begin|start\s+transaction|commit|end|abort|rollback|savepoint|release|prepare\s+transaction|set\s+transaction|copy)\b/i;
/** White space, and comments as far as they do not nest. */
const LEADING = /^(?:\s+|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)+/;

/** Throws ConnectorFault `statement`, or what the session threw when the server did not judge it. */
export async function checkStatement(session: SqlSession, settings: SinkSettings): Promise<void> {
  const text = settings.statement!;
  const given = settings.params!.length;
  const bare = text.replace(LEADING, '');
  const forbidden = FORBIDDEN.exec(bare);
  if (forbidden !== null) {
    const word = forbidden[0].toUpperCase();
    throw statementFault(`${word} cannot be the statement of a sink: it runs inside the sink's transaction`);
  }
  const takes = await prepare(session, text, given);
  if (takes !== given) {
    throw statementFault(`it takes ${takes} parameters and sink.params has ${given}: make the two agree`);
  }
  if (given === 0 || (await namesLast(session, text, given))) return;
  throw statementFault(`it does not use $${given}, the last of sink.params: make the two agree`);
}

let prepared = 0;

/** A text may not name the parameter at all, and would still accept it as declared: so it is left out once. */
async function namesLast(session: SqlSession, text: string, given: number): Promise<boolean> {
  try {
    return (await session.prepare(`check_${++prepared}`, text, given - 1)) >= given;
  } catch (error) {
    // Not declared to be text it may be of any type, or of none that can be told: so it is named.
    if (error instanceof ConnectorFault && error.sqlState !== null) return true;
    throw error;
  }
}

async function prepare(session: SqlSession, text: string, textParams: number): Promise<number> {
  try {
    return await session.prepare(`check_${++prepared}`, text, textParams);
  } catch (error) {
    const judged = error instanceof ConnectorFault && error.code === 'postgres' && error.retry !== 'backoff';
    if (!judged) throw error;
    throw new ConnectorFault(
      'statement',
      `sink.statement does not prepare (every parameter is text): ${error.message}`,
      { sqlState: error.sqlState, cause: error.cause },
    );
  }
}

function statementFault(sentence: string): ConnectorFault {
  return new ConnectorFault('statement', `sink.statement: ${sentence}`);
}
