import { spawn } from 'node:child_process';
import { type Account, asAccount } from './account.ts';

export interface ProgramResult {
  /** Exit code; null when the program could not be started or was ended by a signal. */
  code: number | null;
  /** Standard output and standard error as they came. */
  output: string;
  /** Errno name when it could not be started at all (`EACCES`, `ENOENT`, `EPERM`). */
  spawnError: string | null;
}

/** A plain environment: nothing of the broker's own (PG* variables, locale, preloads) reaches the server. */
export function programEnvironment(): NodeJS.ProcessEnv {
  return { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: '/', LC_ALL: 'C', TZ: 'UTC' };
}

/** Runs one program of the server to its end. Never rejects; the caller judges the result. */
export function runProgram(
  file: string,
  args: readonly string[],
  options: { account: Account; cwd?: string },
): Promise<ProgramResult> {
  return new Promise((resolve) => {
    const child = spawn(file, args, {
      ...asAccount(options.account),
      cwd: options.cwd ?? '/',
      env: programEnvironment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    const collect = (chunk: Buffer): void => {
      output += chunk.toString('utf8');
    };
    child.stdout.on('data', collect);
    child.stderr.on('data', collect);
    child.on('error', (error: NodeJS.ErrnoException) => {
      resolve({ code: null, output: output + error.message, spawnError: error.code ?? 'unknown' });
    });
    child.on('close', (code) => resolve({ code, output, spawnError: null }));
  });
}
