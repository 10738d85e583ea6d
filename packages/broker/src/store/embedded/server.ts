import { type ChildProcess, spawn } from 'node:child_process';
import {
  closeSync,
  constants,
  fchownSync,
  openSync,
  readFileSync,
  renameSync,
  statfsSync,
  statSync,
} from 'node:fs';
import { totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Account, asAccount, serverAccount } from './account.ts';
import { type Binaries, findBinaries } from './binaries.ts';
import { CLUSTER, DATABASE, ensureCluster, HERE, USER } from './cluster.ts';
import { type DirectoryLock, lockDirectory } from './directory-lock.ts';
import { EmbeddedError, type EmbeddedLog, explain, explainErrno } from './failure.ts';
import { endLeftOvers } from './processes.ts';
import { programEnvironment } from './program.ts';
import { type Machine, type Sizing, serverSettings, sizeServer } from './sizing.ts';

/**
 * The bundled PostgreSQL as a child of this process: started, watched, restarted when it dies, stopped.
 *
 * The child outlives a broker that is killed, and that is safe: the next start finds it by its working
 * directory, stops it and starts its own. It has a session of its own, so that a Ctrl-C in the terminal
 * reaches the broker alone, which drains first. It logs to a file and not through a pipe, since a broker
 * that is stopped or busy would block a server that writes into a full pipe.
 */
export interface EmbeddedOptions {
  /** The data directory; made when it is missing. */
  directory: string;
  /** Connections that the broker's pool may open. */
  poolSize: number;
  log: EmbeddedLog;
  /** False only for servers that tests throw away: nothing survives a power loss then. Default true. */
  durable?: boolean;
  /** More settings for the server, over the derived ones. */
  settings?: Record<string, string>;
  /** The npm package of the server. Default: the one for this platform. */
  packageName?: string;
  cacheDirectories?: readonly string[];
}

/** How to reach it, in the shape of the store's options. */
export interface EmbeddedConnection {
  /** One: the directory of the socket. */
  hosts: { host: string; port: number }[];
  database: string;
  user: string;
  maxConnections: number;
}

/** The port is only a part of the socket's file name: nothing listens on the network. */
const PORT = 5432;
/** A socket's address has 108 bytes, the last is NUL. */
const SOCKET_PATH_MAX = 107;
const RESTART_DELAY_MS = { first: 100, most: 5_000 };
const STOP_GRACE_MS = 30_000;
const LOG_FILE_MAX_BYTES = 16 * 1024 * 1024;

export class EmbeddedServer {
  readonly connection: EmbeddedConnection;
  readonly sizing: Sizing;
  readonly version: string;
  /** The database directory. */
  readonly cluster: string;
  /** Restarts after a death that nobody asked for. */
  restarts = 0;

  readonly #options: EmbeddedOptions;
  readonly #account: Account;
  readonly #binaries: Binaries;
  readonly #lock: DirectoryLock;
  readonly #directoryFd: number;
  /** The server's first process, from its birth on. */
  #child: ChildProcess | null = null;
  #ready = false;
  #stopping = false;
  #restart: Promise<void> | null = null;

  /**
   * Locks the directory, makes the database on the first start, ends what an earlier broker left, and answers
   * when the server takes connections (after a crash: when it has recovered).
   *
   * @throws EmbeddedError
   */
  static async start(options: EmbeddedOptions): Promise<EmbeddedServer> {
    const directory = resolve(options.directory);
    const lock = await lockDirectory(directory, 'data');
    try {
      const account = serverAccount(join(directory, CLUSTER));
      const binaries = await findBinaries({ ...options, account });
      const durable = options.durable ?? true;
      const { cluster } = await ensureCluster(directory, binaries, account, { durable, log: options.log });
      const server = new EmbeddedServer({ ...options, directory, durable }, account, binaries, lock, cluster);
      try {
        await endLeftOvers(cluster, options.log);
        await server.#launch();
        return server;
      } catch (error) {
        server.#release();
        throw error;
      }
    } catch (error) {
      await lock.release();
      throw explainErrno(error, directory);
    }
  }

  private constructor(
    options: EmbeddedOptions,
    account: Account,
    binaries: Binaries,
    lock: DirectoryLock,
    cluster: string,
  ) {
    this.#options = options;
    this.#account = account;
    this.#binaries = binaries;
    this.#lock = lock;
    this.cluster = cluster;
    this.version = binaries.version;
    this.sizing = sizeServer(thisMachine(cluster), options.poolSize);
    this.#directoryFd = openSync(cluster, constants.O_RDONLY | constants.O_DIRECTORY);
    this.connection = {
      hosts: [{ host: socketDirectory(cluster, this.#directoryFd), port: PORT }],
      database: DATABASE,
      user: USER,
      maxConnections: this.sizing.maxConnections,
    };
    process.on('exit', this.#endWithProcess);
  }

  /** Of the server's first process; null while it does not take connections. */
  get pid(): number | null {
    return this.#ready ? (this.#child?.pid ?? null) : null;
  }

  /** Clean stop: sessions are ended, a checkpoint is written, the directory is free afterwards. */
  async stop(graceMs: number = STOP_GRACE_MS): Promise<void> {
    if (this.#stopping) return;
    this.#stopping = true;
    await endChild(this.#child, graceMs);
    await this.#restart;
    // A restart that had looked before it was told to stop has brought up another one.
    await endChild(this.#child, graceMs);
    this.#release();
    await this.#lock.release();
  }

  /** A process that exits without a stop tells its server to stop on the way out, whatever made it exit. */
  readonly #endWithProcess = (): void => {
    this.#child?.kill('SIGINT');
  };

  #release(): void {
    process.removeListener('exit', this.#endWithProcess);
    closeSync(this.#directoryFd);
  }

  async #launch(): Promise<void> {
    const { log, directory, durable = true } = this.#options;
    const logFile = join(directory, 'postgres.log');
    rotate(logFile);
    const sink = openSync(logFile, 'a', 0o600);
    // Root hands over what a later start by the owner has to write to.
    if (this.#account.switched) fchownSync(sink, this.#account.uid, this.#account.gid);
    const logStart = statSync(logFile).size;
    const settings = { ...serverSettings(this.sizing, durable), ...this.#options.settings };
    const child = spawn(
      this.#binaries.postgres,
      ['-D', HERE, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
      {
        ...asAccount(this.#account),
        cwd: this.cluster,
        env: programEnvironment(),
        stdio: ['ignore', sink, sink],
        detached: true,
      },
    );
    closeSync(sink);
    this.#child = child;
    let end: string | null = null;
    const ended = new Promise<void>((resolve) => {
      const note = (how: string): void => {
        end = how;
        this.#child = null;
        resolve();
      };
      child.once('error', (error) => note(error.message));
      child.once('exit', (code, signal) => note(signal ?? `exit code ${code}`));
    });
    const started = performance.now();
    let nextWord = started + 5_000;
    // No limit: a recovery takes as long as it takes, and one that is cut short starts from the beginning.
    while (!isReady(this.cluster, child.pid)) {
      if (end !== null) throw explain('start', this.cluster, `${tailFrom(logFile, logStart)}\n(${end})`);
      if (this.#stopping) child.kill('SIGINT');
      if (performance.now() > nextWord) {
        log.info({ seconds: Math.round((performance.now() - started) / 1000) }, 'PostgreSQL is recovering');
        nextWord += 5_000;
      }
      await Promise.race([sleep(10), ended]);
    }
    this.#ready = true;
    child.unref();
    void ended.then(() => this.#died(end ?? ''));
  }

  #died(how: string): void {
    this.#ready = false;
    if (this.#stopping) return;
    this.#options.log.error({ how }, 'the embedded PostgreSQL died: restarting it');
    this.#restart = this.#bringBack().finally(() => {
      this.#restart = null;
    });
  }

  async #bringBack(): Promise<void> {
    const { log } = this.#options;
    for (
      let delay = RESTART_DELAY_MS.first;
      !this.#stopping;
      delay = Math.min(delay * 2, RESTART_DELAY_MS.most)
    ) {
      try {
        await endLeftOvers(this.cluster, log);
        if (this.#stopping) return;
        await this.#launch();
        this.restarts++;
        log.info({ pid: this.pid }, 'the embedded PostgreSQL is back');
        return;
      } catch (error) {
        if (this.#stopping) return;
        log.error({ nextTryMs: delay }, error instanceof EmbeddedError ? error.message : String(error));
        await sleep(delay, undefined, { ref: false });
      }
    }
  }
}

function thisMachine(cluster: string): Machine {
  const limit = process.constrainedMemory();
  const disk = statfsSync(cluster);
  return {
    memoryBytes: limit > 0 ? Math.min(limit, totalmem()) : totalmem(),
    freeDiskBytes: disk.bavail * disk.bsize,
  };
}

/** The socket lies in the database directory; a path that is too long for it goes through a descriptor. */
function socketDirectory(cluster: string, fd: number): string {
  const length = Buffer.byteLength(join(cluster, `.s.PGSQL.${PORT}`));
  return length <= SOCKET_PATH_MAX ? cluster : `/proc/self/fd/${fd}`;
}

/** The server writes its state into the last line of its pid file, as pg_ctl reads it too. */
function isReady(cluster: string, pid: number | undefined): boolean {
  try {
    const lines = readFileSync(join(cluster, 'postmaster.pid'), 'utf8').split('\n');
    return Number(lines[0]) === pid && lines[7]?.trim() === 'ready';
  } catch {
    return false;
  }
}

async function endChild(child: ChildProcess | null, graceMs: number): Promise<void> {
  if (child === null || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<true>((resolve) => child.once('exit', () => resolve(true)));
  child.ref();
  for (const [signal, waitMs] of [
    ['SIGINT', graceMs],
    ['SIGQUIT', 5_000],
    ['SIGKILL', 5_000],
  ] as const) {
    child.kill(signal);
    if (await Promise.race([ended, sleep(waitMs, false, { ref: false })])) return;
  }
}

function rotate(logFile: string): void {
  const size = statSync(logFile, { throwIfNoEntry: false })?.size ?? 0;
  if (size > LOG_FILE_MAX_BYTES) renameSync(logFile, `${logFile}.1`);
}

function tailFrom(file: string, start: number): string {
  return readFileSync(file).subarray(start).toString('utf8');
}
