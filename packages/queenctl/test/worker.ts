import { Readable } from 'node:stream';
import { run } from '../src/main.ts';

/**
 * Runs command lines one after the other, as the program would, and sends back what each has said: to start a process takes
 * longer than most of what is asked of it. What is about the process itself is tested with one.
 */
export interface Wish {
  readonly args: readonly string[];
  readonly stdin: string | undefined;
  readonly env: Readonly<Record<string, string>>;
}

const usual = { ...process.env };

process.on('message', async ({ args, stdin, env }: Wish) => {
  let out = '';
  let err = '';
  process.env = { ...usual, ...env };
  process.exitCode = undefined;
  process.stdout.write = ((text: string) => {
    out += text;
    return true;
  }) as typeof process.stdout.write;
  process.stderr.write = ((text: string) => {
    err += text;
    return true;
  }) as typeof process.stderr.write;
  const input = Readable.from(stdin === undefined ? [] : [Buffer.from(stdin)]);
  Object.defineProperty(process, 'stdin', { value: input, configurable: true });
  await run(args);
  process.send!({ code: process.exitCode ?? 0, signal: null, out, err });
});
