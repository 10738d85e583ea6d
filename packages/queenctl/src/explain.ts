import { QueenError } from '@queen-mq/client';
import { InvalidArgumentError } from 'commander';
import { type ExitName, Failure } from './exit.ts';

/** What is said about anything that was thrown, and how the process ends then. */
export interface Explained {
  readonly exit: ExitName;
  readonly sentence: string;
  readonly hint: string | undefined;
}

const NOT_FOUND: ReadonlySet<string> = new Set([
  'queue_not_found',
  'partition_not_found',
  'message_not_found',
  'connector_not_found',
  'UNKNOWN_TOPIC_OR_PARTITION',
]);

const USAGE = [TypeError, RangeError, InvalidArgumentError];

export function explain(error: unknown): Explained {
  if (error instanceof Failure) return { exit: error.exit, sentence: error.message, hint: error.hint };
  if (error instanceof QueenError) return ofClient(error);
  const sentence = error instanceof Error ? error.message : String(error);
  // The client checks its arguments too, and these come from the command line.
  const exit = USAGE.some((kind) => error instanceof kind) ? 'usage' : 'failure';
  return { exit, sentence, hint: undefined };
}

function ofClient(error: QueenError): Explained {
  const sentence =
    error.code === 'no_such_route'
      ? 'the broker has no such route: it is older than this queenctl'
      : error.message;
  const hint = hintOf(error);
  switch (error.kind) {
    case 'aborted':
      return { exit: 'interrupted', sentence: 'interrupted', hint: undefined };
    case 'in_doubt':
      return { exit: 'inDoubt', sentence, hint: hint ?? 'it may have been done: look before you repeat it' };
    case 'unavailable':
    case 'overloaded':
      return { exit: 'unavailable', sentence, hint };
    default:
      if (error.status === 401 || error.code === 'forbidden') return { exit: 'forbidden', sentence, hint };
      return { exit: NOT_FOUND.has(error.code) ? 'notFound' : 'refused', sentence, hint };
  }
}

function hintOf(error: QueenError): string | undefined {
  if (error.code === 'network' || error.code === 'timeout') {
    return `is a broker running there? Name it with --url or QUEEN_URL, and see \`queenctl health\``;
  }
  if (error.status === 401) return 'give a token with QUEEN_TOKEN, --token-file or --token';
  if (error.code === 'forbidden') return 'the role of this token does not allow that';
  if (error.retryAfterSeconds !== undefined) return `try again in ${Math.ceil(error.retryAfterSeconds)} s`;
  return undefined;
}
