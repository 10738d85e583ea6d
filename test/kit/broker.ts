import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CLUSTER } from '../../packages/broker/src/store/embedded/cluster.ts';
import { killLeftOvers } from '../../packages/broker/src/store/embedded/processes.ts';
import { atEnd, type Cleanup } from './cleanup.ts';
import type { TestDatabase } from './postgres.ts';
import { brokersWanted, startRoundRobin } from './round_robin.ts';

/**
 * A broker as its users run it: a process of its own, on a free port, that says where it listens.
 */
export interface BrokerOptions {
  /** An external database. Without it the broker runs its bundled one in `dataDir`. */
  database?: TestDatabase | { url: string };
  /** Default without `database`: a temporary directory that goes away with the test. */
  dataDir?: string;
  env?: Record<string, string>;
  /** What its database cannot take lies here. Default: in `dataDir`, or a directory that goes away with the test. */
  spoolDir?: string;
  /** Runs it under another account; only root can. */
  uid?: number;
  gid?: number;
  cwd?: string;
  /** Where the sources are; default: this working copy. */
  root?: string;
  /** How long the start may take, ms. Default 60,000. */
  readyWithinMs?: number;
  /** Why the test needs one broker even where two behind a round-robin are asked for. */
  alone?: string;
}

export interface BrokerProcess {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  readonly dataDir: string | null;
  kill(signal?: NodeJS.Signals): Promise<Ended>;
  /** SIGTERM, and waits for the end. */
  stop(): Promise<Ended>;
  /** Settles when the process ends, however. */
  readonly ended: Promise<Ended>;
  /** Everything that it wrote to standard output and standard error. */
  logs(): string;
  /** Settles when the log has it; rejects when the process ends before, or after `withinMs` (30,000). */
  logged(pattern: RegExp, withinMs?: number): Promise<RegExpExecArray>;
}

export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  logs: string;
}

const ROOT = join(import.meta.dirname, '../..');
/** Sources, compiled once for all: half of what the start of a process costs. */
export const COMPILED = join(tmpdir(), 'queen-compile-cache');

/**
 * Starts a broker and waits until it listens. With `t` it is killed, and its temporary directory removed,
 * when the test ends. Rejects with the log when it does not come up.
 */
export async function startBroker(options: BrokerOptions = {}, t?: Cleanup): Promise<BrokerProcess> {
  const broker = spawnBroker(options, t);
  const line = await broker.logged(/listening on (http:\/\/\S+:(\d+))/, options.readyWithinMs ?? 60_000);
  const started = Object.assign(broker, { url: line[1]!, port: Number(line[2]) });
  const shares = options.database !== undefined && t !== undefined && brokersWanted(options.alone) > 1;
  return shares ? withCompanion(started, options, t) : started;
}

/** A second broker on the same database, and a round-robin before the two. They live and end together. */
async function withCompanion(
  first: BrokerProcess,
  options: BrokerOptions,
  t: Cleanup,
): Promise<BrokerProcess> {
  const second = await startBroker({ ...options, alone: 'it is the companion' }, t);
  const front = await startRoundRobin([first.url, second.url], t);
  const both = async (signal?: NodeJS.Signals) => {
    const [ended] = await Promise.all([first.kill(signal), second.kill(signal)]);
    return ended;
  };
  return {
    ...first,
    ...front,
    kill: both,
    stop: () => both('SIGTERM'),
    logs: () => first.logs() + second.logs(),
    logged: (pattern, withinMs) =>
      Promise.any([first.logged(pattern, withinMs), second.logged(pattern, withinMs)]),
  };
}

/** The same without waiting: `url` and `port` mean nothing. For starts that are to fail. */
export function spawnBroker(options: BrokerOptions = {}, t?: Cleanup): BrokerProcess {
  const root = options.root ?? ROOT;
  const temporary =
    options.database === undefined && options.dataDir === undefined
      ? mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`))
      : null;
  const dataDir = options.dataDir ?? temporary;
  // Never the one that brokers of a machine share.
  const spoolDir = options.spoolDir ?? options.env?.FILE_BUFFER_DIR ?? null;
  const spool =
    dataDir === null && spoolDir === null ? mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`)) : null;
  const child = spawn(join(root, 'node_modules/.bin/node'), [join(root, 'packages/broker/src/main.mjs')], {
    cwd: options.cwd ?? root,
    env: {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: tmpdir(),
      PORT: '0',
      ...(options.database === undefined ? {} : { DATABASE_URL: options.database.url }),
      ...(dataDir === null ? {} : { QUEEN_DATA_DIR: dataDir }),
      FILE_BUFFER_DIR: spoolDir ?? spool ?? join(dataDir!, 'buffers'),
      NODE_COMPILE_CACHE: COMPILED,
      ...options.env,
    },
    ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.gid ?? options.uid }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const log = new LogBuffer(child);
  const ended = new Promise<Ended>((resolve) => {
    child.once('error', (error) => {
      log.append(`${error.message}\n`);
      resolve({ code: null, signal: null, logs: log.text });
    });
    // Not 'close': a database that outlives its broker must not keep the test waiting.
    child.once('exit', (code, signal) => setImmediate(() => resolve({ code, signal, logs: log.text })));
  });
  const kill = (signal: NodeJS.Signals = 'SIGKILL'): Promise<Ended> => {
    child.kill(signal);
    return ended;
  };
  if (t !== undefined) {
    atEnd(t, async () => {
      if (child.exitCode === null && child.signalCode === null) await kill();
      if (dataDir !== null) await killLeftOvers(join(dataDir, CLUSTER));
      for (const directory of [temporary, spool]) {
        if (directory !== null) rmSync(directory, { recursive: true, force: true });
      }
    });
  }
  return {
    url: '',
    port: 0,
    pid: child.pid ?? -1,
    dataDir,
    ended,
    kill,
    stop: () => kill('SIGTERM'),
    logs: () => log.text,
    logged: (pattern, withinMs = 30_000) => log.waitFor(pattern, withinMs, ended),
  };
}

class LogBuffer {
  text = '';
  #waiting: (() => void)[] = [];

  constructor(child: ChildProcess) {
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (chunk: string) => this.append(chunk));
    }
  }

  append(chunk: string): void {
    this.text += chunk;
    for (const look of [...this.#waiting]) look();
  }

  waitFor(pattern: RegExp, withinMs: number, ended: Promise<Ended>): Promise<RegExpExecArray> {
    return new Promise((resolve, reject) => {
      const settle = (result: RegExpExecArray | string): void => {
        clearTimeout(timer);
        this.#waiting = this.#waiting.filter((other) => other !== look);
        if (typeof result === 'string') reject(new Error(`${result}; the broker's log:\n${this.text}`));
        else resolve(result);
      };
      const look = (): void => {
        const found = pattern.exec(this.text);
        if (found !== null) settle(found);
      };
      const timer = setTimeout(() => settle(`nothing like ${pattern} within ${withinMs} ms`), withinMs);
      this.#waiting.push(look);
      void ended.then(({ code, signal }) => {
        look();
        settle(`the broker ended (${signal ?? code}) before ${pattern}`);
      });
      look();
    });
  }
}
