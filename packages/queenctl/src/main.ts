import { CommanderError, InvalidArgumentError } from 'commander';
import { EXIT } from './exit.ts';
import { explain } from './explain.ts';
import { styled } from './output/output.ts';
import { harmless } from './output/text.ts';
import { programOf } from './program.ts';

/** Runs a command line and sets the exit code. */
export async function main(args: readonly string[]): Promise<void> {
  endQuietlyWithoutReader();
  await run(args);
}

/** The same in a process that goes on. */
export async function run(args: readonly string[]): Promise<void> {
  try {
    await programOf().parseAsync(args, { from: 'user' });
  } catch (error) {
    // Commander has printed its own: help, the version, or what is wrong with the command line.
    if (error instanceof CommanderError && !(error instanceof InvalidArgumentError)) {
      process.exitCode = error.exitCode === 0 ? EXIT.ok.code : EXIT.usage.code;
      return;
    }
    const { exit, sentence, hint } = explain(error);
    process.stderr.write(`${styled('red', 'queenctl:', process.stderr)} ${harmless(sentence)}\n`);
    if (hint !== undefined) process.stderr.write(`  ${harmless(hint)}\n`);
    process.exitCode = EXIT[exit].code;
  }
}

/** Whoever reads our output may have seen enough (`| head`): that is no error, and nothing more is to be done. */
function endQuietlyWithoutReader(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      process.exit(error.code === 'EPIPE' ? EXIT.ok.code : EXIT.failure.code);
    });
  }
}
