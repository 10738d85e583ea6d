import type { Command } from 'commander';

/** Command lines under the help of a command, each with what it is for. */
export function examples(command: Command, lines: readonly (readonly [string, string?])[]): Command {
  const text = lines
    .map(([line, why]) => (why === undefined ? `  $ ${line}` : `  # ${why}\n  $ ${line}`))
    .join('\n');
  return command.addHelpText('after', `\nExamples:\n${text}`);
}
