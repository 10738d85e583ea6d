import assert from 'node:assert/strict';
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { COMPILED } from '../../../test/kit/broker.ts';
import { file } from '../../../test/kit/end.ts';
import { broker } from '../../client/test/setup.ts';
import { parseExact } from '../src/output/exact_json.ts';
import type { Wish } from './worker.ts';

/** What a command line has said and how it has ended. */
export interface Ran {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
}

export interface RunOptions {
  readonly stdin?: string | undefined;
  readonly env?: Readonly<Record<string, string>>;
}

export const MAIN = join(import.meta.dirname, '../src/main.mjs');

/** Files of the tests: they go with the run. */
export const directory = mkdtempSync(join(tmpdir(), 'queenctl-test-'));
file.after(async () => rmSync(directory, { recursive: true, force: true }));

/** An environment of its own, but for what was compiled: with the tests and their brokers. */
export async function environment(): Promise<Record<string, string>> {
  const { url } = await broker();
  return { HOME: directory, NODE_COMPILE_CACHE: COMPILED, PATH: '/usr/bin:/bin', QUEEN_URL: url };
}

/** The program as users have it: a process. */
export async function start(
  args: readonly string[],
  stdin: 'ignore' | 'pipe' = 'ignore',
): Promise<ChildProcess> {
  const env = await environment();
  return spawn(process.execPath, [MAIN, ...args], { cwd: directory, env, stdio: [stdin, 'pipe', 'pipe'] });
}

export function ended(child: ChildProcess): Promise<Ran> {
  let out = '';
  let err = '';
  child.stdout!.setEncoding('utf8').on('data', (chunk: string) => {
    out += chunk;
  });
  child.stderr!.setEncoding('utf8').on('data', (chunk: string) => {
    err += chunk;
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ code, signal, out, err }));
  });
}

let worker: Promise<ChildProcess> | undefined;
let last: Promise<unknown> = Promise.resolve();

/** Runs a command line to its end, after those before it. */
export async function run(args: readonly string[], { stdin, env = {} }: RunOptions = {}): Promise<Ran> {
  worker ??= startWorker();
  const child = await worker;
  const turn = last.then(
    () =>
      new Promise<Ran>((resolve, reject) => {
        const died = () => reject(new Error(`the process ended with queenctl ${args.join(' ')}`));
        child.once('exit', died);
        child.once('message', (ran: Ran) => {
          child.off('exit', died);
          resolve(ran);
        });
        child.send({ args, stdin, env } satisfies Wish);
      }),
  );
  last = turn.catch(() => {});
  return turn;
}

async function startWorker(): Promise<ChildProcess> {
  const env = await environment();
  const child = fork(join(import.meta.dirname, 'worker.ts'), [], { cwd: directory, env, execArgv: [] });
  file.after(async () => void child.kill());
  return child;
}

/** The same of one that is to succeed. @returns what it printed */
export async function ok(...args: string[]): Promise<string> {
  const ran = await run(args);
  assert.equal(ran.code, 0, `queenctl ${args.join(' ')}\n${ran.out}${ran.err}`);
  return ran.out;
}

/** What one that is to succeed has printed as JSON. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into documents of every shape.
export async function json(...args: string[]): Promise<any> {
  return JSON.parse(await ok(...args, '-o', 'json'));
}

/** Documents, one a line, with their numbers as they were written. */
export function lines(text: string): Record<string, unknown>[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => parseExact(line) as Record<string, unknown>);
}

/** One that is to fail: how it ended, and a part of what it says. */
export async function fails(code: number, says: RegExp, args: readonly string[], options: RunOptions = {}) {
  const ran = await run(args, options);
  const what = `queenctl ${args.join(' ')}\n${ran.out}${ran.err}`;
  assert.equal(ran.code, code, what);
  assert.match(ran.err, says, what);
  assert.doesNotMatch(ran.err, /^\s+at .*\(?(file:|node:)/m, 'a stack is nothing for operators');
  return ran;
}

/** The same under several names, one for each try of a call: it pauses only after a round of all. */
export function asOften(url: string): string {
  return [1, 2, 3, 4, 5].map((nth) => `${url}/${nth}`).join(',');
}

/** Where nobody listens. */
export function closedUrl(): Promise<string> {
  const server = createServer();
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(`http://127.0.0.1:${port}`));
    });
  });
}
