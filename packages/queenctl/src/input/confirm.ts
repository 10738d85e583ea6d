import { createInterface } from 'node:readline/promises';
import { Failure, usage } from '../exit.ts';

/**
 * Asks on a terminal whether something that cannot be taken back is meant. Without a terminal nobody can be asked, and
 * `--yes` has to be given.
 *
 * @param what a sentence that says what will happen
 */
export async function confirm(what: string, yes: boolean | undefined, signal: AbortSignal): Promise<void> {
  if (yes === true) return;
  if (!process.stdin.isTTY || !process.stderr.isTTY) {
    throw usage(`${what}; that has to be confirmed`, 'give --yes, or run it on a terminal');
  }
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await lines.question(`${what}. Go on? [y/N] `, { signal });
    if (!/^y(es)?$/i.test(answer.trim())) throw new Failure('failure', 'nothing was changed');
  } finally {
    lines.close();
  }
}
